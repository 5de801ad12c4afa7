"""The picture of a timeline: whole, described in words, of bounded size, and it answers a touch."""

import copy
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.limits import (
    MAX_EVIDENCE_FRAMES,
    MAX_FINDING_KINDS,
    MAX_LISTED,
    MAX_PAGE_ROWS,
    MAX_TIMELINE_BINS,
)
from dissector.report.page import page
from dissector.report.result import SECTIONS
from dissector.report.timeline_picture import SERIES, described, picture, ticks, touched
from dissector.report.timelines import Mark, Shown, Timeline
from tests.dissector.report import made
from tests.dissector.report.browser import looked_at
from tests.dissector.report.test_headlines import judged_report
from tests.dissector.report.test_page import report_of

SECOND_NS = 1_000_000_000
BEGIN_NS = 1_750_000_000 * SECOND_NS
MAX_TIMELINE_BYTES = 4 << 20  # of all, as docs/metrics.md says
MAX_PAGE_BYTES = 12 << 20


def timeline(place: int = 0, *marks: Mark, shown: int = 2) -> Timeline:
    """Ten seconds; an incident from the third to the sixth."""
    evidence = tuple(
        Shown(f"role {number}", 10 + number, 20 + number, BEGIN_NS + (3 + number) * SECOND_NS)
        for number in range(shown)
    )
    span = BEGIN_NS + 3 * SECOND_NS, BEGIN_NS + 6 * SECOND_NS
    return Timeline(place, BEGIN_NS, BEGIN_NS + 10 * SECOND_NS, span, evidence, marks)


def mark(series: str, at_s: float, frames: int = 1, lasts_s: float = 0.0) -> Mark:
    first = BEGIN_NS + round(at_s * SECOND_NS)
    return Mark(series, frames, first, first + round(lasts_s * SECOND_NS), 5, 5 + frames)


def full(place: int) -> Timeline:
    """As many marks as there can be, of a capture of a billion frames."""
    width = 10 / MAX_TIMELINE_BINS
    marks = [
        mark(series, number * width, 10**6, 0.9 * width)._replace(
            first_frame_no=10**9, last_frame_no=10**9
        )
        for series in SERIES for number in range(MAX_TIMELINE_BINS)
    ]  # fmt: skip
    return timeline(place, *marks, shown=MAX_EVIDENCE_FRAMES)


def parsed(one: Timeline) -> ElementTree.Element:
    svg = picture(one, "T")
    return ElementTree.fromstring(f"<div xmlns='http://www.w3.org/2000/svg'>{svg}</div>")


def bars(one: Timeline) -> int:
    paths = re.findall(r'<path d="(M[^"]*)" fill="var', str(picture(one, "T")))
    return sum(path.count("M") for path in paths)


def test_each_mark_is_a_bar_within_the_picture() -> None:
    one = timeline(0, mark("send", 0), mark("send", 10), mark("receipt", 4, 40, 0.1),
                   mark("refused send", 4), mark("end", 9.5))  # fmt: skip
    assert bars(one) == len(one.marks) == len(json.loads(touched(one)))
    (inner,) = parsed(one).iter("{http://www.w3.org/2000/svg}rect")
    assert (inner.get("x"), inner.get("width")) == ("300", "300"), "the incident"
    places = [int(x) for x in re.findall(r"M(\d+) ", str(picture(one, "T")))]
    assert all(0 <= x <= 1000 for x in places)


def test_what_is_rare_and_bad_is_not_overlooked() -> None:
    one = timeline(0, mark("receipt", 4, 10_000), mark("refused send", 4))
    (height,) = re.findall(r'd="M400 \d+v-(\d+)" fill="var\(--bad\)', str(picture(one, "T")))
    assert int(height) > 10


def test_it_is_told_to_who_cannot_see_it() -> None:
    one = timeline(0, mark("send", 1, 7), mark("refused send", 2))
    root = parsed(one)
    (svg, *_) = root.iter("{http://www.w3.org/2000/svg}svg")
    names = {each.get("id"): each.text for each in root.iter() if each.get("id")}
    assert svg.get("role") == "img" and {*(svg.get("aria-labelledby") or "").split()} == {*names}
    assert described(one) in names.values() and "7 sends, 1 refused send" in described(one)
    assert "a role 0 after 3 s, b role 1 after 4 s" in described(one)
    texts = "".join(root.itertext())
    assert "15:06:40.000" in texts and "+5 s" in texts, "an axis"
    assert "receipts 0" in texts and "■ refused 1" in texts, "a legend, also of what did not come"


def test_what_was_not_captured_is_not_nothing() -> None:
    one = timeline(0, mark("receipt", 1, 7))._replace(missing=frozenset({"to_broker"}))
    texts = "".join(parsed(one).itertext())
    assert "receipts 7" in texts and "■ sends not captured" in texts and "sends 0" not in texts
    assert "7 receipts, sends not captured" in described(one)


def test_letters_that_are_close_stand_together() -> None:
    near = [Shown("r", n, n, BEGIN_NS + n * SECOND_NS // 100) for n in range(300, 303)]
    svg = str(picture(timeline(0, mark("send", 1))._replace(shown=(*near,)), "T"))
    assert re.findall(r'class="letter"[^>]*>([^<]*)<', svg) == ["a b c"]
    far = (Shown("r", 1, 1, BEGIN_NS - 1), *near)
    svg = str(picture(timeline(0, mark("send", 1))._replace(shown=far), "T"))
    assert re.findall(r'class="letter"[^>]*>([^<]*)<', svg) == ["b c d"], "a lies outside"


def test_nothing_is_drawn_where_nothing_happened() -> None:
    assert picture(timeline(), "T") == ""


@given(st.integers(1, 10**19))
def test_ticks_are_round_few_and_inside(span_ns: int) -> None:
    found = ticks(span_ns)
    assert 1 <= len(found) <= 4 and found[0] > 0 and found[-1] <= span_ns
    assert re.fullmatch(r"[125]0*", str(found[0]))


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """A report with as many findings as a page lists."""
    report = judged_report("D15")
    row, *_ = report["findings"]["findings"]
    evidence = [{"frame_no": 11, "packet": 21, "role": "role 1"}]
    rows = [row | {"id": f"D{n:02}", "evidence": evidence} for n in range(MAX_PAGE_ROWS)]
    report["findings"]["findings"] = rows
    return report


def test_a_page_of_pictures_is_of_bounded_size(found: dict[str, Any]) -> None:
    text = page(found, None, [full(place) for place in range(MAX_PAGE_ROWS)])
    assert text.count('<svg class="timeline"') == MAX_PAGE_ROWS
    assert len(text.encode()) < MAX_TIMELINE_BYTES


def test_each_finding_has_its_picture_once(found: dict[str, Any]) -> None:
    text = page(found, None, [timeline(place, mark("send", 1)) for place in range(MAX_PAGE_ROWS)])
    head = text[: text.index("<nav")]
    assert head.count('<svg class="timeline"') == 1, "of the worst, at the begin"
    assert [f'id="timeline-{place}"' in text for place in range(MAX_PAGE_ROWS)] == [True] * 40
    assert len(re.findall(r'id="(timeline-\d+)"', text)) == MAX_PAGE_ROWS
    for place in range(1, MAX_PAGE_ROWS):
        start = text.index(f'id="finding-{place + 1}"')
        assert f'id="timeline-{place}"' in text[start : text.index("</article>", start)]
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len({*ids}) == len(ids)


ACT = """
window.noted = {};
const settle = async () => { for (let turn = 0; turn < 20; turn++) await null; };
const all = (what) => Array.from(document.querySelectorAll(what));
const texts = () => all(".card code").map((each) => each.textContent);
(async () => {
  const written = [];
  const clipboard = { writeText: async (text) => written.push(text) };
  Object.defineProperty(navigator, "clipboard", { value: clipboard, configurable: true });
  all(".around .copy").slice(0, 2).forEach((each) => each.click());
  await settle();
  noted.written = written;
  noted.said = all(".copy")[0].textContent;
  Object.defineProperty(navigator, "clipboard", { value: undefined, configurable: true });
  document.execCommand = () => false;
  all(".around .copy")[0].click();
  await settle();
  noted.selected = String(getSelection());
  const place = all(".proof .place")[0];
  place.click();
  noted.place = texts();
  noted.size = all(".copy, .away, .place").filter((each) => each.getBoundingClientRect().width)
    .map((each) => each.getBoundingClientRect().height);
  document.querySelector(".away").click();
  noted.closed = all(".card").length;
  const box = document.querySelector("svg.timeline").getBoundingClientRect();
  const at = { bubbles: true, clientX: box.left + box.width * 0.45, clientY: box.top + 20 + 30 };
  document.querySelector("svg.timeline").dispatchEvent(new MouseEvent("click", at));
  noted.touched = [document.querySelector(".card p").textContent, ...texts()];
  const card = document.querySelector(".card").getBoundingClientRect();
  noted.inside = card.left >= 0 && card.right <= document.documentElement.clientWidth;
  dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  noted.escaped = all(".card").length;
})();
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_numbers_lead_to_frames_by_a_click(
    found: dict[str, Any], tmp_path: Path, width: int
) -> None:
    report = copy.deepcopy(found)
    report["findings"]["findings"] = report["findings"]["findings"][:2]
    drawn = [timeline(place, mark("send", 4, 40, 0.1), mark("receipt", 6)) for place in (0, 1)]
    probed = looked_at(page(report, None, drawn), tmp_path, width, act=ACT)
    assert probed["faults"] == [] and probed["console"] == [] and probed["outside"] == []
    noted = probed["noted"]
    command = "dissector frames INPUT -Y 'frame_no in (11)'"
    assert noted["written"] == [command, "frame.number == 21"] and noted["said"] == "copied"
    assert noted["selected"] == command, "what cannot be copied is selected"
    assert noted["place"] == ["dissector frames INPUT -Y 'frame_no == 10'", "frame.number == 20"]
    assert noted["closed"] == noted["escaped"] == 0 and noted["inside"]
    assert noted["touched"] == [
        "40 sends, 4000.000 ms behind the begin",
        "dissector frames INPUT -Y 'frame_no >= 5 and frame_no <= 45'",
        "frame.time_epoch >= 1750000004.000000000 && frame.time_epoch <= 1750000004.100000000",
    ]
    if width == 400:
        assert min(noted["size"]) >= 44, "a finger needs so much"


def test_a_page_is_of_bounded_size_whatever_there_is(found: dict[str, Any]) -> None:
    """Names of a thousand characters, a thousand captures with a dozen reasons each, full lists."""
    report = copy.deepcopy(found)
    evil = "persistent://t/n/" + "<&\"'" * 250

    def many_of(row: dict[str, Any], **other: Any) -> list[dict[str, Any]]:
        rows = [row | other | {"capture": f"c-{n}"} for n in range(1000) for _ in range(4)]
        return rows[:MAX_LISTED]

    capture = made.RandomCapture(5)
    for row in capture.tables["exchanges"]:
        row["topic"] = row["producer_name"] = row["error_text"] = evil
    lists = report_of(capture.tables)
    for section in SECTIONS:
        for name, value in lists[section].items():
            if isinstance(value, list) and value and section != "findings":
                lists[section][name] = many_of(value[0])
    said = f"{'A sentence. ' * 30}{evil[:100]}"
    reason = {"section": "errors", "verdict": "bad", "text": said}
    reason["next_step"] = f"Do:\n{said[-300:]}"
    worst = lists["verdicts"]["by_capture"][0] | {"reasons": [reason] * MAX_FINDING_KINDS}
    lists["verdicts"]["by_capture"] = many_of(worst, verdict="bad")
    lists["verdicts"]["total"]["captures"] = 5000
    lists["sources"] = [{**lists["sources"][0], "capture": f"c-{n}"} for n in range(5000)]
    lists["findings"] = report["findings"]
    text = page(lists, None, [full(place) for place in range(MAX_PAGE_ROWS)])
    assert text.count("<table") > 20 and evil not in text
    assert len(text.encode()) < MAX_PAGE_BYTES
