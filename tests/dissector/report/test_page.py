"""The page: self-contained, complete without a script, whole in a browser, safe to open."""

import base64
import copy
import html
import json
import re
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from dissector.cli.terminal import Paint
from dissector.cli.text_report import text_report
from dissector.limits import MAX_PAGE_ROWS
from dissector.report.closing import about
from dissector.report.descriptions import CAUSES, DELIVERY_OUTCOMES, OUTCOMES, STATUSES, meaning_of
from dissector.report.headlines import CAPTURE_WORDS
from dissector.report.page import MIN_FOLD, folded, page
from dissector.report.result import JUDGED, SECTIONS
from tests.dissector.findings.judged import headlines
from tests.dissector.report import made
from tests.dissector.report.browser import looked_at
from tests.numbers import Numbers

HOSTILE = "persistent://t/n/<script>alert(1)</script>\u202e\x1b[2J" + "x" * 300


# What other tables have rows of was in frames, which tests need not write down.
FRAME = {"connection_id": 0, "frame_no": 1, "protocol": "pulsar", "status": "complete"}


def report_of(*captures: made.Tables) -> dict[str, Any]:
    summary = Numbers()
    for number, given in enumerate(captures):
        tables = {"frames": [FRAME]} | given
        for name in sorted(tables, key=lambda name: name != "frames"):
            summary.add(name, made.batch(name, tables[name]), f"c-{number}")
    report: dict[str, Any] = json.loads(json.dumps(summary.result()))
    return report


@pytest.fixture(scope="module")
def rich() -> dict[str, Any]:
    """A report in which everything occurs."""
    capture = made.RandomCapture(5)
    for row in capture.tables["exchanges"][:30]:
        row["topic"] = HOSTILE
    return report_of(capture.tables)


@pytest.fixture(scope="module")
def rich_page(rich: dict[str, Any]) -> str:
    return page(rich)


def test_a_report_without_frames_claims_nothing() -> None:
    """Where nothing was decoded, that nothing was refused would be a word too many."""
    text = page(report_of())
    assert text.count("No frame was decoded.") == 8
    for said in ("Nothing was published", "No consumer was seen", "Nothing was delivered",
                 "No checksum could be evaluated", "No request was refused"):  # fmt: skip
        assert said not in text


def test_a_report_of_frames_alone_is_a_page_that_says_so() -> None:
    report = report_of()
    report["coverage"]["total"]["frames"] = 9
    text = page(report)
    for said in ("Nothing was published", "No consumer was seen", "Nothing was delivered",
                 "No checksum could be evaluated", "No request was refused"):  # fmt: skip
        assert said in text


@pytest.mark.usefixtures("no_plots")
def test_what_was_not_read_is_told_from_what_was_not_captured() -> None:
    for reasons, said in (({}, "is not in the capture"), ({"message_unread": 5}, "Too little was")):
        report = report_of()
        report["coverage"]["total"]["frames"] = 9
        for section in ("redelivery", "publish_to_delivery", "ack_latency"):
            report[section]["total"] |= {"deliveries": None, "not_evaluated_by_reason": reasons}
        text = page(report)
        (headline,) = (one for one in headlines(report) if one.text.startswith("No send was seen"))
        for section in ("redelivery", "publish_to_delivery", "ack_latency"):
            start = text.index(f'<section id="{section}">')
            part = text[start : text.index("</section>", start)]
            assert f"<strong>{said}" in part or f"{said}.</strong>" in part, section
        assert said.lower() in headline.text


@pytest.mark.usefixtures("no_plots")
def test_what_joining_captures_lost_is_listed() -> None:
    report = report_of()
    assert 'id="closing"' not in page(report)
    row = {
        "capture": "c-0", "connection_id": 3, "next_capture": "c-1", "next_connection_id": 0,
        "direction": "to_client", "command": None, "frame_no": 8, "frame_bytes": 81,
        "skipped_bytes": 78, "fate": "lost",
    }  # fmt: skip
    counted = row | {"command": "SEND", "direction": "to_broker", "fate": "counted"}
    total = {"captures": 3, "captures_joined": 2, "groups": 1, "frames_straddling": 2,
             "frames_lost": 1, "bytes_missing_between": 0}  # fmt: skip
    closing = {"total": total, "straddling": [counted, row], "copies": [{"capture": "c-2"}]}
    report["closing"] = {"about": about(closing), **closing}
    text = page(report)
    part = text[text.index('<section id="closing">') :]
    assert "2 frames begin in one capture and end in the next: 1 counted" in part
    assert part.count(">lost</td>") == 1 and part.count(">counted</td>") == 1
    (headline,) = (each for each in headlines(report) if each.section == "closing")
    assert "1 frame at the boundary" in headline.text and "1 capture shows" in headline.text


@pytest.mark.usefixtures("no_plots")
def test_a_send_that_was_passed_over_may_have_no_number() -> None:
    rows = [
        made.publish(request_frame_no=1, sequence_id=None, outcome="unanswered_at_end",
                     latency_ns=None, response_frame_no=None),
        made.publish(request_frame_no=2),
    ]  # fmt: skip
    report = report_of({"exchanges": rows})
    assert [row["sequence_id"] for row in report["send_latency"]["passed_over"]] == [None]
    assert ">None<" not in page(report) and 'title="it was not read"' in page(report)


def test_every_section_is_there_and_says_what_its_numbers_mean(rich_page: str) -> None:
    text = rich_page
    for section in SECTIONS:
        start = text.index(f'<section id="{section}">')
        head = text[start : start + 300]
        assert '<p class="meaning">' in head, section
        assert f'href="#{section}"' in text


def test_numbers_of_the_report_stand_on_the_page(rich: dict[str, Any], rich_page: str) -> None:
    text = re.sub(r"<[^>]+>", "", rich_page)
    for section, key in (("send_latency", "sends"), ("permit_utilization", "granted"),
                         ("redelivery", "deliveries"), ("coverage", "frames")):  # fmt: skip
        assert f"{rich[section]['total'][key]:,}" in text, section


def test_names_from_the_wire_cannot_act(rich_page: str) -> None:
    text = rich_page
    assert "<script>alert" not in text and "\u202e" not in text and "\x1b" not in text
    assert "&lt;script&gt;alert(1)" in text.replace("<wbr>", "")
    assert "x" * 200 not in text, "long names are cut"


def test_nothing_is_fetched_and_the_file_is_small(rich_page: str) -> None:
    text = rich_page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,)[^\"]*\"", text)
    assert not re.findall(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", text)
    assert len(text.encode()) < 2 << 20


def test_the_policy_allows_the_style_and_the_script_of_the_page_and_nothing_else(
    rich_page: str,
) -> None:
    text = rich_page
    matches = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert len(matches) == 1 and text.index(matches[0]) < text.index("<style")
    rules = dict(rule.strip().split(" ", 1) for rule in html.unescape(matches[0]).split(";"))
    assert (
        rules["default-src"] == "'none'" and rules["base-uri"] == rules["form-action"] == "'none'"
    )
    for name, kind in (("style", "style-src"), ("script", "script-src")):
        texts = set(re.findall(rf"<{name}[^>]*>(.*?)</{name}>", text, re.DOTALL))
        digests = {base64.b64encode(sha256(each.encode()).digest()).decode() for each in texts}
        assert set(rules[kind].split()) == {f"'sha256-{digest}'" for digest in digests}
    assert not re.findall(r"<[^>]*\son\w+=", text), "no script stands in an attribute"


def test_a_browser_runs_no_script_that_a_name_brought_along(rich_page: str, tmp_path: Path) -> None:
    """Were a name not made safe, the policy would still refuse what it does."""
    evil = "<script>console.warn('ran')</script><img src=https://evil.example/x>"
    probed = looked_at(rich_page.replace("</main>", f"{evil}</main>", 1), tmp_path, 1280)
    assert not [fault for fault in probed["faults"] if "ran" in fault]
    refused = [line for line in probed["console"] if "Content Security Policy" in line]
    assert len(refused) >= 2 and any("https://evil.example/x" in line for line in refused)


def test_a_strict_policy_for_content_lets_the_page_be(rich_page: str) -> None:
    """One style and one script that a digest can name; nothing is styled or done in attributes."""
    text = rich_page
    assert text.count("<style") == 1 and text.count("<script") == 1
    assert not re.findall(r"<[^>]*\s(?:style|on[a-z]+)\s*=", text)


def storm(count: int) -> dict[str, Any]:
    """A report of as many refusals of one request, each of its own incident, and one of another."""
    refused = [
        made.publish(
            request_frame_no=2 * at + 1, response_frame_no=2 * at + 2, sequence_id=at,
            request_last_ns=made.START_NS + at * made.SECOND_NS, outcome="error",
            error_code="PersistenceError", error_text="no bookies",
        )
        for at in range(count)
    ]  # fmt: skip
    other = made.publish(request_frame_no=9001, response_frame_no=9002, outcome="error",
                         error_code="ChecksumError", topic="other")  # fmt: skip
    return report_of({"exchanges": [*refused, other]})


@pytest.mark.usefixtures("no_plots")
def test_rows_of_one_storm_are_one_row_with_count_first_and_last_time() -> None:
    report = storm(400)
    assert report["errors"]["total"]["incidents"] == 401
    text = page(report)
    part = text[text.index('<section id="errors">') : text.index('<section id="publish_to')]
    (summary,) = re.findall(r'<tr class="fold">.*?<summary>(.*?)</summary>', part)
    assert summary.startswith("400 like this, first 2025-06-15 15:06:40.005")
    assert "last 2025-06-15 15:13:19.005" in summary
    table = part[part.index("<table") : part.index("</section>")]
    shown = re.sub(r"<details>.*?</details>", "", table, flags=re.DOTALL)
    assert shown.count("PersistenceError") == 1 and "ChecksumError" in shown
    by_code = 1
    # As often in the condition that selects them: see the number of answers.
    cells = re.sub(r'data-command="[^"]*"', "", table).count("PersistenceError")
    assert cells == by_code + MAX_PAGE_ROWS, "the others can be unfolded"
    assert "tables/errors_incidents" in table


@pytest.mark.usefixtures("no_plots")
def test_a_storm_of_which_only_the_first_rows_are_listed_says_at_least() -> None:
    report = storm(400)
    report["errors"]["total"]["incidents"] = 9000
    assert "<summary>at least 400 like this" in page(report)


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize(("count", "folds"), [(MIN_FOLD - 1, 0), (MIN_FOLD, 1)])
def test_few_rows_stay_single(count: int, folds: int) -> None:
    assert page(storm(count)).count('<tr class="fold">') == folds


@pytest.mark.usefixtures("no_plots")
def test_a_fold_keeps_the_order_of_its_list_and_captures_apart() -> None:
    rows = [
        {"capture": capture, "code": code, "ts": f"2026-01-01T00:00:{at:02d}Z"}
        for at, (capture, code) in enumerate(
            [("c-0", "b"), ("c-0", "a"), ("c-1", "b"), ("c-0", "b"), ("c-0", "b"), ("c-1", "b")]
        )
    ]
    found = folded(rows, ["code"])
    assert [(fold.rows[0]["capture"], fold.rows[0]["code"], fold.times) for fold in found] == [
        ("c-0", "b", 3), ("c-0", "a", 1), ("c-1", "b", 1), ("c-1", "b", 1),
    ]  # fmt: skip
    assert (found[0].first, found[0].last) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:04Z")
    assert sum(fold.listed for fold in found) == len(rows)


@pytest.fixture(scope="module")
def three() -> dict[str, Any]:
    """A report of three captures, of which the middle one is not like the others."""
    captures = [made.RandomCapture(seed, 20, 10).tables for seed in (3, 4, 6)]
    for number, tables in enumerate(captures):
        tables["capture_files"][0]["file_name"] = f"night-{number}.pcap"
        for name in ("frames", "exchanges", "deliveries", "permits", "notices"):
            tables[name] = tables[name] if number == 1 else []
    return report_of(*captures)


@pytest.mark.usefixtures("no_plots")
def test_captures_are_listed_near_the_top_the_worst_first(three: dict[str, Any]) -> None:
    text = page(three)
    part = text[text.index('<section id="verdicts">') : text.index('<h2 class="together">')]
    names = re.findall(r'name">(night-\d)', part.replace("<wbr>", ""))
    assert names[0] == "night-1" and sorted(names) == ["night-0", "night-1", "night-2"]
    worst = three["verdicts"]["by_capture"][0]
    assert worst["verdict"] == "bad" and worst["reasons"][0]["text"] in html.unescape(part)
    assert 'class="filter" role="search" hidden' in part, "without a script it would do nothing"
    assert 'id="verdicts"' not in page(report_of(made.RandomCapture(3, 5, 5).tables))


@pytest.mark.usefixtures("no_plots")
def test_a_mark_that_a_finding_gave_stands_without_a_zero(three: dict[str, Any]) -> None:
    report = copy.deepcopy(three)
    row = report["verdicts"]["by_capture"][0]
    for section, mark, number in (
        ("permit_utilization", "look", 0), ("send_latency", "look", 3), ("coverage", "bad", 0.0),
    ):  # fmt: skip
        row["sections"][section], row["decided_by"][section] = mark, number
    shown = page(report)
    first = shown[shown.index('<tbody data-verdict="') :]
    cells = re.findall(r'<td[^>]* class="text part"[^>]*>(.*?)</td>', first)[: len(JUDGED)]
    told = {name: re.sub("<[^>]*>", "", cell) for name, cell in zip(JUDGED, cells, strict=True)}
    assert told["permit_utilization"].strip() == "look"
    assert told["send_latency"] == "look 3"
    assert told["coverage"] == "bad 0 %"


@pytest.mark.usefixtures("no_plots")
def test_captures_are_found_by_text_and_by_verdict(three: dict[str, Any], tmp_path: Path) -> None:
    act = """
      const wanted = document.querySelector(".filter [type=search]");
      const shown = () => Array.from(document.querySelectorAll("#verdicts [data-verdict]"))
        .filter((each) => each.getBoundingClientRect().height > 0)
        .map((each) => each.querySelector("td").textContent);
      const change = () => wanted.dispatchEvent(new Event("input", { bubbles: true }));
      window.noted = [shown()];
      wanted.value = "NIGHT-2 PCAP";
      change();
      window.noted.push(shown());
      wanted.value = "";
      change();
      document.querySelector(".filter [value=bad]").click();
      window.noted.push(shown(), document.querySelector(".filter .found").textContent);
      document.querySelector("#verdicts th button").click();
      window.noted.push(shown());
    """
    probed = looked_at(page(three), tmp_path, 1280, act=act)
    everything, by_text, by_verdict, said, in_order = probed["noted"]
    assert everything[0] == "night-1.pcap" and len(everything) == 3
    assert by_text == ["night-2.pcap"]
    assert sorted(by_verdict) == in_order == ["night-0.pcap", "night-2.pcap"]
    assert said == "2 of 3 captures shown"
    assert probed["faults"] == [] and probed["console"] == []


def test_the_page_uses_the_words_of_the_terminal(rich: dict[str, Any], rich_page: str) -> None:
    text = rich_page
    on_page = re.findall(r'<span class="mark">([^<]*)</span>', text)
    on_terminal = [line.split()[0] for line in text_report(rich, Paint("never"))
                   if re.match(r"  (ok|look|bad|note) ", line)]  # fmt: skip
    assert on_page and set(on_page) <= set(CAPTURE_WORDS)
    assert sorted(on_page) == sorted(on_terminal)
    assert on_page == sorted(on_page, key=CAPTURE_WORDS.index), "the worst first"


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG counts it, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_every_text_can_be_read_on_its_ground() -> None:
    style = (resources.files("dissector.data") / "report.css").read_text("utf-8")
    schemes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
               for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]  # fmt: skip
    assert len(schemes) == 2, "light and dark"
    washes = {"good": "good-wash", "look": "warn-wash", "bad": "bad-wash", "plain": "plain-wash"}
    for colours in (schemes[0], schemes[0] | schemes[1]):
        pairs = [(text, ground) for ground in ("paper", "card", *washes.values())
                 for text in ("ink", "muted", "accent")]  # fmt: skip
        pairs += [(name, wash) for name, wash in (("good", "good-wash"), ("warn", "warn-wash"),
                                                  ("bad", "bad-wash"))]  # fmt: skip
        for text, ground in pairs:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for drawn in ("series-1", "series-2", "series-3", "warn-mark"):
            assert contrast(colours[drawn], colours["card"]) >= 3, drawn


@pytest.mark.usefixtures("no_plots")
def test_long_lists_are_cut_and_say_where_the_rest_is() -> None:
    rows = [
        made.publish(topic=f"topic-{number}", sequence_id=number)
        for number in range(MAX_PAGE_ROWS + 9)
    ]
    text = page(report_of({"exchanges": rows}))
    assert f"{MAX_PAGE_ROWS} of {MAX_PAGE_ROWS + 9} rows" in text
    assert "tables/send_latency_by_topic" in text


def test_every_word_of_a_report_has_a_meaning(rich: dict[str, Any]) -> None:
    for table, words in (
        (OUTCOMES, rich["send_latency"]["total"]["outcomes"]),
        (CAUSES, rich["redelivery"]["total"]["by_cause"]),
        (DELIVERY_OUTCOMES, rich["redelivery"]["total"]["delivery_outcomes"]),
        (STATUSES, rich["coverage"]["total"]["frames_by_status"]),
        ("notices", rich["coverage"]["total"]["notices_by_code"]),
    ):
        found = meaning_of(table, words)
        assert list(found) == list(words) and all(found.values()), found
    assert meaning_of("notices", ["batch_malformed"]) == {
        "batch_malformed": "a batch says … messages, … were read"
    }


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_all_of_it(
    rich_page: str, tmp_path: Path, width: int, is_dark: bool
) -> None:
    unfold = 'for (const each of document.querySelectorAll("details")) each.open = true;'
    probed = looked_at(rich_page, tmp_path, width, is_dark=is_dark, act=unfold)
    assert probed["width"] == width
    assert probed["scrolls"] <= width and probed["outside"] == []
    assert probed["faults"] == [] and probed["console"] == []
    assert [url for url in probed["requests"] if not url.startswith("data:")] == []
    assert probed["drawings"] >= 4 and probed["sorts"] > 20
    assert probed["smallest"] >= 8, "letters in plots are readable"
    assert probed["hidden"] == [] and probed["cut"] == [], "nothing is seen by scrolling alone"
    paper, ink = (sum(map(int, re.findall(r"\d+", probed[name])[:3])) for name in ("paper", "ink"))
    assert (paper < 150 and ink > 600) if is_dark else (paper > 600 and ink < 200)


def test_a_browser_shows_an_empty_report_too(tmp_path: Path) -> None:
    probed = looked_at(page(report_of()), tmp_path, 400)
    assert probed["scrolls"] <= 400 and probed["outside"] == [] and probed["faults"] == []
