"""What a tap says of findings names a command that shows them."""

import shlex
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.cli.monitoring import SEVERITIES, FindingOptions
from dissector.findings import loading
from tests.dissector.observed import CAPTURES
from tests.dissector.tap.test_finding_incidents import finding

UNLOADED = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")
LINE = "finding D06 error code_D06 at 00:01:40Z: A title: It happened. See: "


def options(*replayed: str, lake: Path | None = None, severity: str = "warning") -> FindingOptions:
    return FindingOptions(severity, lake, replayed)


def test_a_line_says_what_happened_and_the_command_that_shows_more():
    one = finding("D06", 100, 110, topic="t")
    assert options().line(one, None) == LINE + "dissector explain D06"
    names = options("-a.pcap", "b c").line(one, None)
    assert names == LINE + "dissector findings ./-a.pcap 'b c' --code D06"
    of_lake = options("x", lake=Path("a lake")).line(one, None)
    assert of_lake == LINE + "dissector findings --lake 'a lake' --code D06"


def test_a_terminal_gets_as_much_of_it_as_fits_one_line():
    one = finding("D06", 100, 110, topic="t")._replace(title="漢" * 40 + "\x1b")
    assert options().line(one, 200) == f"00:01:40Z D06 error: {'漢' * 40}\\x1b: It happened."
    assert options().line(one, 40) == "00:01:40Z D06 error: " + "漢" * 9 + "…"


def test_only_what_is_grave_enough_is_said_and_the_rest_is_counted():
    assert loading.SEVERITIES[:3] == SEVERITIES
    said = {each: [one for one in SEVERITIES if options(severity=each).says(one)]
            for each in SEVERITIES}  # fmt: skip
    assert said == {"error": ["error"], "warning": ["error", "warning"], "info": [*SEVERITIES]}
    counts = {"info": 3, "error": 1}
    assert options("a b").summary(counts) == (
        "findings: 1 error, 3 info (not said: info; see --severity); dissector findings 'a b'"
    )
    assert options(severity="info").summary(counts) == "findings: 1 error, 3 info"


@pytest.mark.parametrize("with_lake", [False, True])
def test_each_finding_is_one_line_whose_command_shows_it(tmp_path, capsys, with_lake):
    more = ["--lake", str(tmp_path / "lake"), "--rotate", "20KB"] if with_lake else []
    assert run(["tap", "--replay", UNLOADED, "--severity", "info", *more]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if " finding " in line]
    assert [line.split()[2:5] for line in said] == [
        ["D15", "error", "stored_twice"], ["D24", "info", "topic_moved"],
        ["R01", "info", "request_refused"],
    ]  # fmt: skip
    text, command = said[0].split(" See: dissector ")
    assert run(shlex.split(command)) == 0
    shown = " ".join(capsys.readouterr().out.split())  # however wide the terminal is
    assert text.rpartition("the producer: ")[2] in shown


def test_notes_are_not_said_unless_asked_for(capsys):
    assert run(["tap", "--replay", UNLOADED]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "finding" in line]
    assert [line.split()[1:4] for line in said] == [
        ["finding", "D15", "error"], ["findings:", "1", "error,"],
    ]  # fmt: skip
    assert run(["tap", "--replay", UNLOADED, "--severity", "info", "--no-findings"]) == 1
    assert "--severity does nothing without --findings" in capsys.readouterr().err


def test_findings_can_be_switched_off(capsys):
    assert run(["tap", "--replay", UNLOADED, "--no-findings"]) == 0
    assert " finding " not in capsys.readouterr().err
