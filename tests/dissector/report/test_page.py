"""The page: self-contained, complete without a script, whole in a browser, safe to open."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dissector.report.explained import joined_about
from dissector.report.meanings import CAUSES, DELIVERY_OUTCOMES, OUTCOMES, STATUSES, meaning_of
from dissector.report.outlook import remarks
from dissector.report.page import MAX_ROWS, page
from dissector.report.result import SECTIONS
from dissector.report.summary import Summary
from tests.dissector.report import made
from tests.dissector.report.browser import looked_at

HOSTILE = "persistent://t/n/<script>alert(1)</script>\u202e\x1b[2J" + "x" * 300


def report_of(*captures: made.Tables) -> dict[str, Any]:
    summary = Summary()
    for number, tables in enumerate(captures):
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


def test_an_empty_report_is_a_page_that_says_so() -> None:
    text = page(report_of())
    for said in ("Nothing was published", "No consumer was seen", "Nothing was delivered",
                 "No checksum could be evaluated", "No request was refused"):  # fmt: skip
        assert said in text


def test_what_was_not_read_is_told_from_what_was_not_captured() -> None:
    for reasons, said in (({}, "is not in the capture"), ({"message_unread": 5}, "Too little was")):
        report = report_of()
        report["coverage"]["total"]["frames"] = 9
        for section in ("redelivery", "publish_to_delivery", "ack_latency"):
            report[section]["total"] |= {"deliveries": None, "not_judged": reasons}
        text = page(report)
        (remark,) = (each for each in remarks(report) if each.section == "redelivery")
        for section in ("redelivery", "publish_to_delivery", "ack_latency"):
            start = text.index(f'<section id="{section}">')
            part = text[start : text.index("</section>", start)]
            assert f"<strong>{said}" in part or f"{said}.</strong>" in part, section
        assert said in remark.text


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
    report["closing"] = {"about": joined_about(closing), **closing}
    text = page(report)
    part = text[text.index('<section id="closing">') :]
    assert "2 frames begin in one capture and end in the next: 1 counted" in part
    assert part.count(">lost</td>") == 1 and part.count(">counted</td>") == 1
    (remark,) = (each for each in remarks(report) if each.section == "closing")
    assert "1 frame at the border" in remark.text and "1 capture shows" in remark.text


def test_a_send_that_was_passed_over_may_have_no_number() -> None:
    rows = [
        made.publish(request_frame_no=1, sequence_id=None, outcome="unanswered_at_end",
                     latency_ns=None, response_frame_no=None),
        made.publish(request_frame_no=2),
    ]  # fmt: skip
    report = report_of({"exchanges": rows})
    assert [row["sequence_id"] for row in report["send_latency"]["passed_over"]] == [None]
    assert ">None<" not in page(report) and 'title="it was not read"' in page(report)


def test_every_section_is_there_and_says_what_its_numbers_mean(rich: dict[str, Any]) -> None:
    text = page(rich)
    for section in SECTIONS:
        start = text.index(f'<section id="{section}">')
        head = text[start : start + 300]
        assert '<p class="meaning">' in head, section
        assert f'href="#{section}"' in text


def test_numbers_of_the_report_stand_on_the_page(rich: dict[str, Any]) -> None:
    text = re.sub(r"<[^>]+>", "", page(rich))
    for section, key in (("send_latency", "sends"), ("permit_utilization", "granted"),
                         ("redelivery", "deliveries"), ("coverage", "frames")):  # fmt: skip
        assert f"{rich[section]['total'][key]:,}" in text, section


def test_names_from_the_wire_cannot_act(rich: dict[str, Any]) -> None:
    text = page(rich)
    assert "<script>alert" not in text and "\u202e" not in text and "\x1b" not in text
    assert "&lt;script&gt;alert(1)" in text.replace("<wbr>", "")
    assert "x" * 200 not in text, "long names are cut"


def test_nothing_is_fetched_and_the_file_is_small(rich: dict[str, Any]) -> None:
    text = page(rich)
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,)[^\"]*\"", text)
    assert not re.findall(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", text)
    assert len(text.encode()) < 2 << 20


def test_long_lists_are_cut_and_say_where_the_rest_is() -> None:
    rows = [
        made.publish(topic=f"topic-{number}", sequence_id=number) for number in range(MAX_ROWS + 9)
    ]
    text = page(report_of({"exchanges": rows}))
    assert f"{MAX_ROWS} of {MAX_ROWS + 9} rows" in text
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
    rich: dict[str, Any], tmp_path: Path, width: int, is_dark: bool
) -> None:
    found = looked_at(page(rich), tmp_path, width, is_dark=is_dark)
    assert found["width"] == width
    assert found["scrolls"] <= width and found["outside"] == []
    assert found["faults"] == [] and found["console"] == []
    assert [url for url in found["requests"] if not url.startswith("data:")] == []
    assert found["drawings"] >= 4 and found["sorts"] > 20
    assert found["smallest"] >= 8, "letters in plots are readable"
    paper, ink = (sum(map(int, re.findall(r"\d+", found[name])[:3])) for name in ("paper", "ink"))
    assert (paper < 150 and ink > 600) if is_dark else (paper > 600 and ink < 200)


def test_a_browser_shows_an_empty_report_too(tmp_path: Path) -> None:
    found = looked_at(page(report_of()), tmp_path, 400)
    assert found["scrolls"] <= 400 and found["outside"] == [] and found["faults"] == []
