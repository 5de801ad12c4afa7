"""Timelines of findings: what they count is in the capture, of the finding's subject and time."""

import html
import re
import shlex
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dissector.cli.main import run
from dissector.lake.reader import open_lake
from dissector.limits import MAX_PAGE_ROWS, MAX_TIMELINE_BINS
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report import pipeline
from dissector.report.pipeline import Report
from dissector.report.timeline_picture import SERIES
from dissector.report.timelines import Timeline
from tests.dissector.lake.samples import landed
from tests.dissector.observed import tables_of
from tests.dissector.report.browser import looked_at

FOLDER = Path(__file__).resolve().parents[3] / "captures" / "pulsar-apache"
NAMES = (
    "java-j73_broker_restart-bem", "java-j39_dispatch_rate", "java-j17_blocked_unacked",
    "java-j24_unload", "java-j74_corrupt",
)  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [f"pulsar-apache/{name}.pcap" for name in NAMES]
    return landed(tmp_path_factory.mktemp("timelines") / "lake", names)


@pytest.fixture(scope="module")
def report(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    scope = pipeline.Scope(is_drawn=True)
    with open_lake(lake) as there:
        work = tmp_path_factory.mktemp("work")
        return pipeline.make_report(there, work, partial(DuckdbEngine, threads=1), scope)


def ns(at: int | datetime) -> int:
    """A time as ns since 1970; tables have it so, or as a time of µs."""
    if isinstance(at, int):
        return at
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def frames_of(rows: list[dict[str, Any]], at: str, frame: str) -> list[tuple[int, Any, Any]]:
    """When a frame was complete, its number, and its row."""
    return [
        (ns(row[at]), row[frame], row)
        for row in rows if row[frame] is not None
    ]  # fmt: skip


def counted(name: str, timeline: Timeline, subject: dict[str, Any]) -> Counter[str]:
    """How many frames of each series a capture has, counted one by one."""
    tables = tables_of(str(FOLDER / f"{name}.pcap"))
    shown = {each.frame_no for each in timeline.shown}
    links = {row["connection_id"] for row in tables["frames"] if row["frame_no"] in shown}
    links |= {
        row["connection_id"] for row in tables["connections"]
        if row["client_ip"] == subject.get("client_ip")
    }  # fmt: skip
    found: set[tuple[str, int]] = set()

    def add(series: str, at: int, number: int, row: dict[str, Any]) -> None:
        if not timeline.first_ns <= at <= timeline.last_ns:
            return
        if row.get("topic") is None:
            is_mine = row["connection_id"] in links
        else:
            wanted, mine = subject.get("subscription"), row.get("subscription")
            is_mine = row["topic"] == subject["topic"] and (
                wanted is None or mine is None or wanted == mine
            )
        if is_mine:
            found.add((series, number))

    for kind, good, bad in (("publish", "send", "refused send"),
                            ("request", "request", "refused request")):  # fmt: skip
        rows = [row for row in tables["exchanges"] if row["kind"] == kind]
        for at, number, row in frames_of(rows, "request_last_ns", "request_frame_no"):
            add(good, at, number, row)
        for at, number, row in frames_of(rows, "response_last_ns", "response_frame_no"):
            if row["outcome"] == "error":
                add(bad, at, number, row)
            elif kind == "publish":
                add("receipt", at, number, row)
    for at, number, row in frames_of(tables["deliveries"], "ts", "frame_no"):
        add("redelivery" if row["is_redelivered"] else "delivery", at, number, row)
    for at, number, row in frames_of(tables["acks"], "ts", "frame_no"):
        add("ack", at, number, row)
    for at, number, row in frames_of(tables["permits"], "ts", "frame_no"):
        if row["event"] == "grant":
            add("grant", at, number, row)
    for at, number, row in frames_of(tables["frames"], "last_ts_ns", "frame_no"):
        if row["command"] in ("CLOSE_PRODUCER", "CLOSE_CONSUMER"):
            add("close", at, number, row)
    for row in tables["connections"]:
        if row["started"] == "syn":
            add("open", row["first_ts_ns"], row["connection_id"], row)
        if row["ended"] in ("fin", "rst"):
            add("end", row["last_ts_ns"], row["connection_id"], row)
    return Counter(series for series, _ in found)


@pytest.mark.parametrize("name", NAMES)
def test_a_timeline_counts_what_the_capture_has(report: Report, name: str) -> None:
    mine = [
        (one, report.judgement.findings[one.place]) for one in report.timelines
        if name in report.judgement.findings[one.place].capture
    ]  # fmt: skip
    assert mine
    for timeline, finding in mine:
        told: Counter[str] = Counter()
        for mark in timeline.marks:
            told[mark.series] += mark.frames
        assert told and told == counted(name, timeline, dict(finding.subject)), finding.number


def test_each_listed_finding_has_one_that_shows_its_evidence(report: Report) -> None:
    rows = report.report["findings"]["findings"]
    assert [one.place for one in report.timelines] == [*range(min(len(rows), MAX_PAGE_ROWS))]
    for timeline in report.timelines:
        row = rows[timeline.place]
        evidence = {(each["frame_no"], each["packet"], each["role"]) for each in row["evidence"]}
        assert {(each.frame_no, each.packet, each.role) for each in timeline.shown} == evidence
        assert [*timeline.shown] == sorted(timeline.shown, key=lambda each: each.at_ns)
        first, last = timeline.incident_ns
        assert timeline.first_ns <= first <= last <= timeline.last_ns
        assert any(timeline.first_ns <= each.at_ns <= timeline.last_ns for each in timeline.shown)


def test_marks_lie_in_their_bins_and_are_few(report: Report) -> None:
    for timeline in report.timelines:
        bin_ns = -(-(timeline.last_ns - timeline.first_ns + 1) // MAX_TIMELINE_BINS)
        cells = []
        for mark in timeline.marks:
            assert timeline.first_ns <= mark.first_ns <= mark.last_ns <= timeline.last_ns
            cells.append((mark.series, (mark.first_ns - timeline.first_ns) // bin_ns))
            assert (mark.last_ns - timeline.first_ns) // bin_ns == cells[-1][1]
            assert mark.frames > 0 and mark.series in SERIES
        assert len({*cells}) == len(cells) <= MAX_TIMELINE_BINS * len(SERIES)


def test_the_marks_are_a_table_of_the_report(lake: Path, tmp_path: Path, report: Report) -> None:
    pipeline.write(lake, tmp_path / "out", partial(DuckdbEngine, threads=1))
    rows = pq.read_table(tmp_path / "out" / "tables" / "findings_timelines").to_pylist()
    findings = report.report["findings"]["findings"]
    assert len(rows) == sum(len(one.marks) for one in report.timelines)
    for row in rows:
        one = findings[row["finding"] - 1]
        assert (row["id"], row["capture"]) == (one["id"], one["capture"])
    text = (tmp_path / "out" / "report.html").read_text()
    assert text.count('<svg class="timeline"') == len(report.timelines)


@pytest.fixture(scope="module")
def page_of_one(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("one")
    lake = landed(folder / "lake", ["pulsar-apache/java-j24_unload.pcap"])
    pipeline.write(lake, folder / "out", partial(DuckdbEngine, threads=1))
    return (folder / "out" / "report.html").read_text()


def test_a_command_shows_as_many_frames_as_the_number_says(
    page_of_one: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    cell = r'"(?:frames|sends|answers)" data-v="(\d+)"><span class="place" data-command="(.*?)">'
    cells = {(command, int(count)) for count, command in re.findall(cell, page_of_one)}
    assert len(cells) > 10
    for command, count in cells:
        capsys.readouterr()
        assert run([*shlex.split(html.unescape(command))[1:], "-q", "-T", "jsonl"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count, command


@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_all_of_a_real_page(page_of_one: str, tmp_path: Path, width: int) -> None:
    unfold = 'for (const each of document.querySelectorAll("details")) each.open = true;'
    probed = looked_at(page_of_one, tmp_path, width, act=unfold)
    assert probed["cut"] == [] and probed["outside"] == [] and probed["scrolls"] <= width
    assert probed["faults"] == [] and probed["console"] == []
