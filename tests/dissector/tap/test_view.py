"""The view of the busiest topics: what it says, and where it says it."""

import io
import re

import pytest

from dissector.cli.main import run
from dissector.tap.view import View
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
    view = View(health, str, io.StringIO())
    line, unknown = view.lines(1e9)
    assert (unknown.topic, unknown.sends) == ("unknown", 5)
    assert line.topic == "persistent://public/default/j24"
    sends = {key: count for key, count in health.sums.sends.values.items()}
    mine = {outcome: count for (topic, outcome), count in sends.items() if topic == line.topic}
    assert line.sends == sum(mine.values()) > 0
    assert line.not_ok == line.sends - mine["ok"]
    assert line.p50_ms is not None and line.p50_ms <= line.p99_ms
    again = view.lines(2e9)
    assert again[0].rate == 0


def test_a_file_gets_plain_lines(health):
    stream = io.StringIO()
    view = View(health, str.upper, stream)
    view.tick(1e9)
    view.tick(1e9 + 1)
    text = stream.getvalue()
    assert "\x1b" not in text and text.count("packets") == 1
    assert re.search(r"sends/s, [\d,]+ sends, .* permits .*: PERSISTENT://", text)


def test_a_terminal_gets_a_table_in_place(health):
    stream = Terminal()
    view = View(health, str, stream)
    view.tick(1e9)
    view.tick(1e9 + 5)
    view.close()
    text = stream.getvalue()
    assert "\x1b[" in text and text.count("p99 ms") >= 2


def test_the_command_shows_it(capsys):
    assert run(["tap", "--replay", str(CAPTURES / NAME), "--top"]) == 0
    assert "sends/s" in capsys.readouterr().out
