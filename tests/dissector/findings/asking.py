"""What the rules find in captures made by code, and which variant of a rule a finding is."""

from collections.abc import Collection, Mapping
from pathlib import Path

from dissector.dissection import Options
from dissector.findings.finding import Finding, findings_of_rows, worst_first
from dissector.findings.loading import load_rules
from dissector.findings.querying import incidents, rule_queries
from dissector.queries.catalogue import MAY_FAIL
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain
from tests.dissector.findings.sending_captures import Line, written
from tests.dissector.findings.tape import Tape
from tests.numbers import Numbers

RULES, _ = load_rules()


def findings_of_lines(folder: Path, number: str, *lines: Line) -> list[Finding]:
    """What one rule finds in a capture of these connections."""
    return findings_in(number, written(folder / "made.pcap", lines))


def findings_of_tape(folder: Path, number: str, tape: Tape) -> list[Finding]:
    """What one rule finds on a tape."""
    file = folder / "made.pcap"
    file.write_bytes(tape.capture())
    return findings_in(number, file)


def findings_in(number: str, capture: Path) -> list[Finding]:
    """The same in a capture that is there; what is missing in it does not matter."""
    return findings_by_capture([number], {"made": capture})["made"]


def findings_by_capture(
    numbers: Collection[str], captures: Mapping[str, Path]
) -> dict[str, list[Finding]]:
    """What rules find in each of several captures, by its name, as reports ask: over rows that lie
    in no lake, since to write and to read them takes most of the time."""
    made = Numbers()
    for name, capture in captures.items():
        for block in dissect(Chain((str(capture),), name), Options()):
            made.add_block(block, name)
    found: dict[str, list[Finding]] = {name: [] for name in captures}
    asked = {f"{MAY_FAIL}{number.lower()}" for number in numbers}
    queries = {name: each for name, each in rule_queries().items() if name in asked}
    given = incidents(made.opened(), {name: each.text for name, each in queries.items()})
    for name, each in queries.items():
        rows = given[name].to_pylist()
        assert {row["capture"] for row in rows} <= captures.keys()
        for capture_name, findings in found.items():
            mine = [row for row in rows if row["capture"] == capture_name]
            more, problems = findings_of_rows(each.rule, mine)
            assert not problems
            findings += more
    return {name: worst_first(findings) for name, findings in found.items()}


def variant(finding: Finding) -> str:
    """The variant that a finding's title belongs to."""
    (rule,) = [rule for rule in RULES if rule.number == finding.number]
    (name,) = [name for name, words in rule.words.items() if words.title == finding.title]
    return name
