"""What the rules find in captures made by code, and which variant of a rule a finding is."""

from pathlib import Path

from dissector.cli.main import run
from dissector.findings.finding import Finding, findings_of
from dissector.findings.loading import load_rules
from dissector.lake.reader import open_lake
from dissector.queries.sandbox import sandbox_over
from tests.dissector.findings.sending_captures import Line, written
from tests.dissector.findings.tape import Tape

RULES, _ = load_rules()


def findings_of_lines(folder: Path, number: str, *lines: Line) -> list[Finding]:
    """What one rule finds in a capture of these connections."""
    return findings_in(folder, number, written(folder / "made.pcap", lines))


def findings_of_tape(folder: Path, number: str, tape: Tape) -> list[Finding]:
    """What one rule finds on a tape."""
    file = folder / "made.pcap"
    file.write_bytes(tape.capture())
    return findings_in(folder, number, file)


def findings_in(folder: Path, number: str, capture: Path) -> list[Finding]:
    """The same in a capture that is there; what is missing in it does not matter."""
    assert run(["land", "-q", "--lake", str(folder / "lake"), str(capture)]) in (0, 3)
    with open_lake(folder / "lake") as opened, sandbox_over(opened) as engine:
        findings, problems = findings_of(engine, [r for r in RULES if r.number == number])
    assert not problems
    return findings


def variant(finding: Finding) -> str:
    """The variant that a finding's title belongs to."""
    (rule,) = [rule for rule in RULES if rule.number == finding.number]
    (name,) = [name for name, words in rule.words.items() if words.title == finding.title]
    return name
