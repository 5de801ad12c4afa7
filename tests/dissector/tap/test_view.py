"""The view of the busiest topics: what it says, and where it says it."""

import io
import json
import re
from types import SimpleNamespace

import pytest

from dissector.cli.main import run
from dissector.cli.terminal import safe_text
from dissector.dissection import Options
from dissector.sources.rings import chains
from dissector.tap.health import Health
from dissector.tap.playback import FilePlayback
from dissector.tap.service import Tap, TapSettings
from dissector.tap.view import Shown, TapView
from dissector.tap.view_columns import COLUMNS, TopicLine
from dissector.tap.windows import Windows
from tests.dissector.observed import CAPTURES
from tests.dissector.tap.test_metrics import replayed

NAME = "pulsar-apache/java-j24_unload.pcap"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def health():
    return replayed(NAME)[0]


def test_topics_are_listed_by_how_busy_they_are(health):
    view = TapView(health, str, io.StringIO())
    (line,) = view.lines(1e9)
    assert line.topic == "persistent://public/default/j24"
    sends = {key: count for key, count in health.sums.counts["sends"].values.items()}
    mine = {outcome: count for (topic, outcome), count in sends.items() if topic == line.topic}
    assert line.sends == sum(mine.values()) > 0
    assert line.refused == mine["error"]
    assert line.unanswered == 5, "dropped with the producer that was closed"
    again = view.lines(2e9)
    assert again[0].rate == 0


def test_a_file_gets_plain_lines(health):
    stream = io.StringIO()
    view = TapView(health, str.upper, stream)
    view.tick(1e9)
    view.tick(1e9 + 1)
    text = stream.getvalue()
    assert "\x1b" not in text and text.count("PACKETS") == 1
    legend, up, refusals, heading, row = text.splitlines()
    assert legend.startswith("sends/s: lately; ") and legend.endswith("Sorted by sends/s (--sort).")
    assert up.startswith("UP 1 S: ") and refusals.startswith("1 REFUSAL (1 PERSISTENCEERROR); 0 OF")
    assert heading.split()[-3:] == ["again", "open", "topic"]
    assert row.index("PERSISTENT://") == heading.index("topic")


def line_of(name: str, rate: float = 1.0, **numbers: object) -> TopicLine:
    return TopicLine(name, rate, 1, 0, 0, {}, {}, None, None, 0)._replace(**numbers)


def test_columns_and_their_order_can_be_chosen(health):
    stream = io.StringIO()
    shown = Shown([COLUMNS["felt"], COLUMNS["sends"]], "topic")
    view = TapView(health, str, stream, shown=shown)
    view.tick(1e9)
    legend, *_, heading, row = stream.getvalue().splitlines()
    assert legend.startswith("felt ms: ") and legend.endswith("Sorted by topic (--sort).")
    assert heading.split() == ["felt", "ms", "sends", "topic"]
    assert row.split() == ["180", "320", "persistent://public/default/j24"]


def test_topics_are_sorted_by_the_column_that_was_asked_for(health):
    def sorted_by(order: str, *lines: TopicLine) -> list[str]:
        view = TapView(health, str, io.StringIO(), shown=Shown(order=order))
        return [line.topic for line in view.in_order(lines)]

    slow = line_of("b", latency={"p99": 9.0})
    quick, none = line_of("a", 3.0, latency={"p99": 2.0}), line_of("c", 2.0, permits=5)
    assert sorted_by("rate", slow, quick, none) == ["a", "c", "b"]
    assert sorted_by("p99", quick, slow, none) == ["b", "a", "c"]
    assert sorted_by("permits", quick, slow, none) == ["c", "a", "b"]
    assert sorted_by("topic", none, slow, quick) == ["a", "b", "c"]


def test_what_does_not_fit_is_counted(health):
    stream = io.StringIO()
    view = TapView(health, str, stream)
    view._topics = 17
    view._print([line_of("t")])
    assert stream.getvalue().endswith("… and 16 more topics\n")


def test_a_line_is_printed_above_the_table(health):
    stream = Terminal()
    view = TapView(health, str, stream)
    assert not view.say("early"), "there is no table yet"
    view.tick(1e9)
    assert view.say("12:00:00Z D01 error")
    view.close()
    assert not view.say("late")
    assert "12:00:00Z D01 error" in stream.getvalue() and "early" not in stream.getvalue()


def test_a_terminal_gets_a_table_in_place(health):
    stream = Terminal()
    view = TapView(health, str, stream)
    view.tick(1e9)
    view.tick(1e9 + 5)
    view.close()
    text = stream.getvalue()
    assert "\x1b[" in text and text.count("p99 ms") >= 2


def test_the_command_shows_it(capsys):
    assert run(["tap", "--replay", str(CAPTURES / NAME), "--top"]) == 0
    assert "sends/s" in capsys.readouterr().out


def watched(name: str, stream: io.StringIO) -> list[TopicLine]:
    """What the view says of a capture that it watched from its beginning."""
    (chain,) = chains([str(CAPTURES / name)]).chains
    health = Health(is_live=False)
    view = TapView(health, str, stream)
    tap = Tap(FilePlayback(chain), TapSettings(Options()), None, [health, view])
    windows = Windows(tap, True, [health.sums])
    health.ask = windows.flush
    tap.listen(windows)
    tap.run()
    windows.close()
    return view.lines(1e9)


@pytest.mark.parametrize(
    "name",
    [NAME, "pulsar-apache/cpp-c44_dedup.pcap", "pulsar-apache/java-j03_batch_lz4.pcap",
     "cursus/go-produce_singles_acks_1.pcap"],
)  # fmt: skip
def test_the_numbers_are_those_of_the_summary(name, capsys):
    assert run(["summary", str(CAPTURES / name), "--json", "-q"]) == 0
    report = json.loads(capsys.readouterr().out)
    lines = {line.topic: line for line in watched(name, io.StringIO())}
    for group in report["send_latency"]["by_topic"]:
        line = lines[group["topic"]]
        latency = group["latency_ms"]
        assert line.latency == latency and line.application == group["application_ms"]
        assert line.refused == group["outcomes"].get("error", 0)
    assert sum(line.sends for line in lines.values()) == report["send_latency"]["total"]["sends"]
    assert sum(line.refused for line in lines.values()) == report["send_latency"]["total"][
        "outcomes"
    ].get("error", 0)


def test_topics_that_share_a_folder_are_told_apart_on_a_narrow_terminal(health, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    view = TapView(health, str, stream)
    names = [f"persistent://public/default/orders-of-the-north-{number}" for number in range(3)]
    view._draw([line_of(name) for name in names])
    text = stream.getvalue()
    assert "topics in persistent://public/default/" in text
    assert all(f"-the-north-{number}" in text for number in range(3))
    assert all(len(line) <= 80 for line in re.sub(r"\x1b\[[\d;?]*\w", "", text).splitlines())


def test_findings_are_counted_and_the_worst_is_shown(health):
    stream = io.StringIO()
    worst = SimpleNamespace(number="D06", title="of \x1b")
    incidents = SimpleNamespace(by_severity={"info": 1, "error": 2}, worst=worst)
    TapView(health, safe_text, stream, incidents=incidents).tick(1e9)  # type: ignore[arg-type]
    assert "findings: 2 error, 1 info; the worst: D06 of \\x1b" in stream.getvalue()
