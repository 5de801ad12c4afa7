"""What rules find in windows of a tap is what they find in the capture, and as much of it."""

import json
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dissector.cli.main import run
from dissector.dissection import Options
from dissector.findings.finding import Finding
from dissector.findings.loading import load_rules
from dissector.findings.querying import rule_queries
from dissector.schemas import TABLES
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from dissector.tap import windows
from dissector.tap.replay import Replay
from dissector.tap.service import Settings, Tap
from dissector.tap.windows import WINDOW_BYTES, WINDOW_NS, Window, Windows, reading
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
HEALTHY = (
    "pulsar-apache/java-j01_plain.pcap", "pulsar/cpp-s03_batch_lz4.pcap",
    "pulsar-apache/java-j40_slow_consumer.pcap", "pulsar-apache/go-g01_plain.pcap",
)  # fmt: skip


class Looks(Windows):
    """Windows that keep what was found in each."""

    def __init__(self, tap: Tap, **options: int) -> None:
        super().__init__(tap, may_wait=True, **options)
        self.each: list[list[Finding]] = []

    def all(self) -> list[Finding]:
        self.close()
        while not self._found.empty():
            self.each.append(self._found.get())
        assert self.judged == len(self.each) and not (self.failed or self.skipped), self.problem
        return [one for found in self.each for one in found]


def looked_at(path: Path, window_s: float = 1e6, window_bytes: int = WINDOW_BYTES) -> Looks:
    """A replay in pieces of a quarter of a window, so that windows end near their length."""
    (chain,) = chains([str(path)]).chains
    step = int(window_s * S) // 4
    tap = Tap(Replay(chain), Settings(Options(), rotate_ns=step))
    found = Looks(tap, window_bytes=window_bytes, window_ns=int(window_s * S))
    tap.listen(found)
    tap.run()
    return found


def of_command(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict]:
    """What the command says of the file."""
    assert run(["findings", "-q", "--json", str(path)]) == 0
    found: list[dict] = json.loads(capsys.readouterr().out)["findings"]
    return found


def about(number: str, subject: object) -> tuple[str, str]:
    return number, json.dumps(subject, sort_keys=True)


@pytest.mark.parametrize("name", FAULTY)
def test_one_window_over_all_finds_what_the_command_finds(name, capsys):
    wanted = of_command(CAPTURES / name, capsys)
    found = looked_at(CAPTURES / name).all()
    assert found
    assert [(one.number, one.severity, one.text, dict(one.measured)) for one in found] == [
        (row["id"], row["severity"], row["text"], row["measured"]) for row in wanted
    ]
    for one, row in zip(found, wanted, strict=True):
        assert [each._asdict() for each in one.evidence] == row["evidence"]


@pytest.mark.parametrize("name", FAULTY)
def test_small_windows_find_it_and_nothing_else(name, capsys):
    wanted = {about(row["id"], row["subject"]) for row in of_command(CAPTURES / name, capsys)}
    looks = looked_at(CAPTURES / name, FAULTY[name])
    assert {about(one.number, dict(one.subject)) for one in looks.all()} == wanted


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
    looks = looked_at(CAPTURES / UNLOADED, 1, window_bytes=1)
    assert {one.number for one in looks.all()} >= {"D15", "R01"}
    assert len(looks.each) > 8


def open_scene(folder: Path) -> Path:
    scene = Scene()
    producer = scene.producer()
    for _ in range(4):
        producer.send()
        scene.wait(3)
    capture = folder / "sends.pcap"
    capture.write_bytes(scene.pcap())
    return capture


class Busy(Windows):
    """Windows that go on as soon as the thread has the first one, and not before."""

    is_judging: threading.Event

    def tick(self, now: float) -> None:
        super().tick(now)
        if self._waiting.full():
            assert self.is_judging.wait(60)


def test_a_live_tap_passes_windows_over_and_never_waits(tmp_path, monkeypatch):
    (chain,) = chains([str(open_scene(tmp_path))]).chains
    go_on, seen = threading.Event(), []
    monkeypatch.setattr(Busy, "is_judging", threading.Event(), raising=False)

    def judge(window: Window, _: object) -> list[Finding]:
        Busy.is_judging.set()
        go_on.wait(60)
        seen.append(window)
        return []

    monkeypatch.setattr(windows, "judge", judge)
    tap = Tap(Replay(chain), Settings(Options(), rotate_ns=S))
    found = Busy(tap, may_wait=False, window_bytes=1)
    tap.listen(found)
    tap.run()
    skipped = found.skipped
    assert skipped >= 1, "one is judged, one waits, the others are passed over"
    go_on.set()
    found.close()
    assert found.judged == len(seen) == 3
    assert seen[1].follows, "the first two come one after the other"
    assert not seen[2].follows, "what the thread knows is not what came before it"


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

    monkeypatch.setattr(windows, "judge", judge)
    monkeypatch.setattr(windows, "time", clock)
    (chain,) = chains([str(CAPTURES / UNLOADED)]).chains
    blocks = [block for block in dissect(chain, Options()) if block.table == "exchanges"]
    packets = SimpleNamespace(packets=SimpleNamespace(ts_ns=[S]), rows=1)
    found = Windows(SimpleNamespace(tap_run="run", open_rows=tuple), False, window_bytes=1)
    counts = []
    for now, is_judged in ((0, True), (19, False), (21, True), (40, False), (42, True)):
        clock.now = now
        found.packets(packets)
        found.rows(blocks)
        found.tick(now)
        while is_judged and found._due <= now:
            time.sleep(0.001)
        counts.append(found.skipped)
    found.close()
    assert counts == [0, 1, 1, 2, 2]


def test_a_window_that_cannot_be_judged_is_counted_and_the_next_one_is(tmp_path, monkeypatch):
    def judge(*_: object) -> list[Finding]:
        raise MemoryError("no more of it")

    monkeypatch.setattr(windows, "judge", judge)
    (chain,) = chains([str(open_scene(tmp_path))]).chains
    tap = Tap(Replay(chain), Settings(Options(), rotate_ns=3 * S))
    found = Windows(tap, may_wait=True, window_ns=3 * S)
    tap.listen(found)
    tap.run()
    found.close()
    assert found.failed > 1 and found.problem == "MemoryError: no more of it"


def test_the_page_lists_what_only_a_whole_capture_decides():
    rules, _ = load_rules()
    listed = [
        f"| {' '.join([rule.number, name]).strip()} | {words.whole} |"
        for rule in rules
        for name, words in rule.words.items()
        if words.whole and (not name or not rule.words[""].whole)
    ]
    page = (CAPTURES.parent / "docs" / "tap.md").read_text("utf-8")
    found = [line for line in page.splitlines() if re.match(r"\| [A-Z]\d\d( \w+)? \|", line)]
    assert found == listed
    assert f"{WINDOW_BYTES >> 20} MiB of rows" in page and WINDOW_NS == 60 * S


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
