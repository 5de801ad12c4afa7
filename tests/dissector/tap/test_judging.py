"""What rules find in windows of a tap is what they find in the capture, and as much of it."""

import io
import json
import os
import re
import threading
import time
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dissector.cli.main import run
from dissector.dissection import Options
from dissector.findings.finding import Evidence, Finding
from dissector.findings.loading import load_rules
from dissector.findings.querying import rule_queries
from dissector.limits import MAX_WINDOW_BYTES
from dissector.schemas import TABLES
from dissector.sources.rings import chains
from dissector.tap import judging, window_tables
from dissector.tap.judging import HISTORY_NS, Judging, reading
from dissector.tap.playback import FilePlayback
from dissector.tap.service import Tap, TapSettings
from dissector.tap.windows import WINDOW_NS, Window, Windows
from tests.busy.traffic import Size, write_capture
from tests.dissector.findings.stuck_captures import Scene
from tests.dissector.findings.test_permit_rules import exhausted
from tests.dissector.findings.test_stuck_subscriptions import stopping
from tests.dissector.observed import CAPTURES

S = 10**9
UNLOADED = "pulsar-apache/java-j24_unload.pcap"
# Rules fire in these, and the length of windows in which each of their incidents has room.
FAULTY = {
    UNLOADED: 1.0,
    "pulsar-apache/java-j17_blocked_unacked.pcap": 2.0,
    "pulsar-apache/java-j74_corrupt.pcap": 1.0,
    "pulsar-apache/java-j12_nack.pcap": 1.0,
    "pulsar-apache/java-j23_errors.pcap": 1.0,
    "cursus/go-group_rebalance_two_consumers.pcap": 1.0,
}
# What 60 s hold at once is easy; where windows are shorter, incidents go over from one to the next.
RECORDINGS = [(name, window_s) for name, shorter in FAULTY.items() for window_s in (1e6, shorter)]
RECORDINGS += [
    (f"pulsar-live/{name}", 10.0)
    for name in ("live-broker_restart.pcap.gz", "live-ack_timeout.pcap", "live-nack_loop.pcap.gz")
]
RECORDINGS += [("threads/t01-delayed-strict-stall.pcap", 10.0)]
if os.environ.get("DISSECTOR_ALL_RECORDINGS"):
    RECORDINGS = [
        (str(path.relative_to(CAPTURES)), window_s)
        for path in sorted(CAPTURES.glob("*/*.pcap*"))
        for window_s in (60.0, 10.0)
    ]
# What looks like something else before its cause is there: rules say the general thing first.
NAMED_BEFORE = {("t01-delayed-strict-stall.pcap", 10.0): {"D05"}}
DECIDED = {query.rule.number for query in reading().queries.values()}
HEALTHY = (
    "pulsar-apache/java-j01_plain.pcap", "pulsar/cpp-s03_batch_lz4.pcap",
    "pulsar-apache/java-j40_slow_consumer.pcap", "pulsar-apache/go-g01_plain.pcap",
)  # fmt: skip


class Looks(Judging):
    """Rules that keep what was found in each window."""

    def __init__(self) -> None:
        super().__init__(may_wait=True)
        self.each: list[list[Finding]] = []

    def all(self) -> list[Finding]:
        self.close()
        while not self._findings.empty():
            self.each.append(self._findings.get())
        assert self.judged == len(self.each) and not (self.failed or self.skipped), self.problem
        return [one for found in self.each for one in found]


def looked_at(path: Path, window_s: float = 1e6, window_bytes: int = MAX_WINDOW_BYTES) -> Looks:
    """A replay in pieces of a quarter of a window, so that windows end near their length."""
    (chain,) = chains([str(path)]).chains
    step = int(window_s * S) // 4
    tap = Tap(FilePlayback(chain), TapSettings(Options(), rotate_ns=step))
    looks = Looks()
    windows = Windows(tap, True, [], looks, window_bytes, int(window_s * S))
    tap.listen(windows)
    tap.run()
    windows.close()
    return looks


@cache
def of_command(path: Path) -> list[dict]:
    """What the command says of the file."""
    with redirect_stdout(io.StringIO()) as said:
        assert run(["findings", "-q", "--json", str(path)]) == 0
    listed: list[dict] = json.loads(said.getvalue())["findings"]
    return listed


def about(number: str, subject: object) -> tuple[str, str]:
    return number, json.dumps(subject, sort_keys=True)


@pytest.mark.parametrize(("name", "window_s"), RECORDINGS)
def test_what_is_found_live_is_what_is_found_in_the_file(name, window_s):
    """Finding by finding, with all it measures and shows, however long windows are."""
    rows = [row for row in of_command(CAPTURES / name) if row["id"] in DECIDED]
    looks = looked_at(CAPTURES / name, window_s)
    found = looks.all()
    last = looks.each[-1] if looks.each else []
    assert [
        (one.number, one.severity, one.text, dict(one.measured), [*map(_shown, one.evidence)])
        for one in last
    ] == [
        (row["id"], row["severity"], row["text"], row["measured"], row["evidence"]) for row in rows
    ]
    wanted = {about(row["id"], row["subject"]) for row in rows}
    more = {about(one.number, dict(one.subject)) for one in found} - wanted
    assert {number for number, _ in more} == NAMED_BEFORE.get((Path(name).name, window_s), set())


def _shown(one: Evidence) -> dict[str, Any]:
    return one._asdict()


def test_as_many_rows_as_a_window_may_have_are_judged_within_the_memory_of_rules(tmp_path):
    write_capture(tmp_path / "busy.pcap", Size(150_000), 0)
    looks = looked_at(tmp_path / "busy.pcap")
    looks.all()
    assert looks.judged > 2


@pytest.mark.parametrize("name", HEALTHY)
def test_clients_for_whom_all_went_well_raise_nothing(name):
    found = looked_at(CAPTURES / name, 0.5).all()
    assert not [one for one in found if one.severity != "info"]


def test_a_subscription_that_is_stuck_is_found_while_its_consumer_is_open(tmp_path):
    capture = tmp_path / "stuck.pcap"
    capture.write_bytes(stopping().pcap())
    looks = looked_at(capture, 8)
    looks.all()
    assert len(looks.each) == 2
    (one,) = looks.each[0]
    assert (one.number, one.severity) == ("D05", "error") and 5 < one.measured["lasted_s"] < 12


def test_windows_end_where_memory_does(tmp_path):
    looks = looked_at(CAPTURES / UNLOADED, 2, window_bytes=1)
    assert {one.number for one in looks.all()} >= {"D15", "R01"}
    assert len(looks.each) > 6  # by their length there would be two


def open_scene(folder: Path) -> Path:
    scene = Scene()
    producer = scene.producer()
    for _ in range(4):
        producer.send()
        scene.wait(3)
    capture = folder / "sends.pcap"
    capture.write_bytes(scene.pcap())
    return capture


def window_of(number: int, size: int = 1, is_look: bool = False) -> Window:
    """A window of a run: its rows are none, its end is its number in seconds."""
    return Window("run", None, size, number * S, open_rows=() if is_look else None)


def test_windows_that_come_while_rules_are_busy_are_judged_together(monkeypatch):
    go_on, looks = threading.Event(), []

    def judge(_: Window, rows: object) -> list[Finding]:
        looks.append(rows)
        go_on.wait(60)
        return []

    monkeypatch.setattr(judging, "judge", judge)
    monkeypatch.setattr(window_tables, "joined", lambda several: len(several))
    thread = Judging(may_wait=False)
    assert thread.is_free(time.monotonic())
    thread.expect()
    thread.take(window_of(1, is_look=True), {})
    for number in range(2, 6):
        thread.take(window_of(number), {})
        assert not thread.is_free(time.monotonic())
    go_on.set()
    while thread._is_busy.is_set():
        time.sleep(0.001)
    thread.expect()
    thread.take(window_of(6, is_look=True), {})
    thread.close()
    assert looks == [1, 6] and (thread.judged, thread.skipped) == (2, 0)


def test_rows_of_ten_minutes_are_judged_or_as_many_as_memory_may_hold(monkeypatch):
    looks = []
    monkeypatch.setattr(judging, "judge", lambda window, rows: looks.append(rows) or [])
    monkeypatch.setattr(window_tables, "joined", lambda several: len(several))
    thread = Judging(may_wait=False, limit=10)
    for number, size in ((1, 1), (2, 1), (HISTORY_NS // S + 2, 1), (2000, 8), (2001, 9)):
        thread.take(window_of(number, size, is_look=True), {})
    for number in range(3000, 3010):  # more than is judged in time: the oldest ones go
        thread.take(window_of(number, 5), {})
    thread.take(window_of(3010, 5, is_look=True), {})
    thread.close()
    assert looks == [1, 2, 2, 1, 2, 4]
    assert thread.skipped == 7


class Clock:
    """A clock and a processor's time, both set by the test."""

    def __init__(self) -> None:
        self.now = self.used = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.used


def test_rules_take_a_tenth_of_a_processor_at_most(monkeypatch):
    clock = Clock()

    def judge(*_: object) -> list[Finding]:
        clock.used += 2
        return []

    monkeypatch.setattr(judging, "judge", judge)
    monkeypatch.setattr(judging, "time", clock)
    thread = Judging(may_wait=False)
    frees = []
    for now, is_judged in ((0, True), (19, False), (21, True), (40, False), (42, True)):
        clock.now = now
        frees.append(thread.is_free(now))
        if is_judged:
            thread.expect()
            thread.take(window_of(now, is_look=True), {})
            while thread._is_busy.is_set():
                time.sleep(0.001)
    thread.close()
    assert frees == [True, False, True, False, True]


def test_a_window_that_cannot_be_judged_is_counted_and_the_next_one_is(tmp_path, monkeypatch):
    def judge(*_: object) -> list[Finding]:
        raise MemoryError("no more of it")

    monkeypatch.setattr(judging, "judge", judge)
    (chain,) = chains([str(open_scene(tmp_path))]).chains
    tap = Tap(FilePlayback(chain), TapSettings(Options(), rotate_ns=3 * S))
    thread = Judging(may_wait=True)
    windows = Windows(tap, True, [], thread, window_ns=3 * S)
    tap.listen(windows)
    tap.run()
    windows.close()
    thread.close()
    assert thread.failed > 1 and thread.problem == "MemoryError: no more of it"


def test_the_page_lists_what_only_a_whole_capture_decides():
    rules, _ = load_rules()
    listed = [
        f"| {' '.join([rule.number, name]).strip()} | {words.whole} |"
        for rule in rules
        for name, words in rule.words.items()
        if words.whole and (not name or not rule.words[""].whole)
    ]
    page = (CAPTURES.parent / "docs" / "tap.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if re.match(r"\| [A-Z]\d\d( \w+)? \|", line)]
    assert lines == listed
    assert f"{MAX_WINDOW_BYTES >> 20} MiB of rows" in page and WINDOW_NS == 60 * S
    assert "ten minutes" in page and HISTORY_NS == 600 * S


def test_what_only_a_whole_capture_decides_is_left_out(tmp_path):
    asked = {query.rule.number for query in reading().queries.values()}
    rules = {query.rule.number: query.rule for query in rule_queries().values()}
    assert {*rules} - asked == {number for number, rule in rules.items() if rule.words[""].whole}
    capture = tmp_path / "waiting.pcap"
    capture.write_bytes(exhausted(6)[0].pcap())
    assert not looked_at(capture).all()


def test_only_columns_that_rules_read_are_kept():
    columns = reading().columns
    assert {"frames", "exchanges", "deliveries", "permits", "connections"} <= {*columns}
    assert sum(map(len, columns.values())) < sum(len(table.columns) for table in TABLES.values())
