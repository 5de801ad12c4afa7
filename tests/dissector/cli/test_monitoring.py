"""What a tap says of findings names a command that shows them."""

import shlex
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.cli.monitoring import command_for
from tests.dissector.observed import CAPTURES

UNLOADED = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")


def test_a_tap_without_files_and_lake_is_told_what_the_rule_means():
    assert command_for("D06", None, ()) == "dissector explain D06"


def test_names_of_files_are_quoted():
    assert command_for("D06", None, ("-a.pcap", "b c")) == (
        "dissector findings ./-a.pcap 'b c' --code D06"
    )
    assert command_for("D06", Path("a lake"), ("x",)) == (
        "dissector findings --lake 'a lake' --code D06"
    )


@pytest.mark.parametrize("with_lake", [False, True])
def test_each_finding_is_one_line_whose_command_shows_it(tmp_path, capsys, with_lake):
    more = ["--lake", str(tmp_path / "lake"), "--rotate", "20KB"] if with_lake else []
    assert run(["tap", "--replay", UNLOADED, *more]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if " finding " in line]
    assert [line.split()[2:5] for line in said] == [
        ["D15", "error", "stored_twice"], ["D24", "info", "topic_moved"],
        ["R01", "info", "request_refused"],
    ]  # fmt: skip
    text, command = said[0].split(" See: dissector ")
    assert run(shlex.split(command)) == 0
    shown = " ".join(capsys.readouterr().out.split())  # however wide the terminal is
    assert text.rpartition("the producer: ")[2] in shown


def test_findings_can_be_switched_off(capsys):
    assert run(["tap", "--replay", UNLOADED, "--no-findings"]) == 0
    assert " finding " not in capsys.readouterr().err
