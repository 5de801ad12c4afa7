"""Findings: the rows that rules give over a lake, put together and in words.

Columns of a rule's query: capture, first_ns, last_ns, and any of variant, subject_…, measured_…,
ruled_out_…, frame_… (frame numbers of evidence, at most eight; the name is the frame's role).
A row is one incident; what one finding measures and shows is its worst row.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dissector.errors import UsageError
from dissector.findings.loading import (
    MAX_INCIDENTS,
    PARTS,
    RANK,
    SEVERITIES,
    VERDICTS,
    Problem,
    Rule,
    incidents_query,
)
from dissector.queries.duckdb_engine import quoted
from dissector.queries.sandbox import expanded

if TYPE_CHECKING:
    from dissector.queries.sandbox import Sandbox

INCIDENT_NS: Final = 60_000_000_000  # what comes again sooner is the same incident
MAX_EVIDENCE: Final = 8
_NEEDED: Final = ("capture", "first_ns", "last_ns")
_KINDS: Final = ("subject", "measured", "ruled_out", "frame")
_PLACE: Final = re.compile(r"\{(\w+)\}")
_AT: Final = re.compile(r"LINE (\d+):.*", re.DOTALL)
_NAMED: Final = re.compile(r'"(\w+)"|\bname (\w+)')
_SENTENCE: Final = {
    "what": "",
    "known": "How it is known: ",
    "rival": "What else looks the same: ",
    "decides": "What would decide: ",
    "do": "What to do: ",
}


class Evidence(NamedTuple):
    """A frame that shows it: its number in the capture, its last packet, its role."""

    frame_no: int
    packet: int | None
    role: str


class Finding(NamedTuple):
    """What a rule found about one subject of one capture; times in ns since 1970."""

    number: str
    code: str
    title: str
    severity: str
    verdict: str
    capture: str
    subject: Mapping[str, Any]
    first_ns: int
    last_ns: int
    incidents: int
    measured: Mapping[str, Any]
    thresholds: Mapping[str, float]
    ruled_out: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    text: str


def findings_of(
    engine: "Sandbox", rules: Iterable[Rule]
) -> tuple[list[Finding], list[Problem]]:
    """What the rules find, worst first, and the rules that failed."""
    found: list[Finding] = []
    problems = []
    for rule in rules:
        try:
            rows, columns = _rows(engine, rule)
            _check(rule, columns)
            found += _put_together(rule, rows)
            for capture in sorted(row["capture"] for row in rows if row[RANK] > MAX_INCIDENTS):
                text = f"more than {MAX_INCIDENTS:,} incidents in {capture}: the worst are shown"
                problems.append(Problem(rule.file, None, text))
        except UsageError as error:
            problems.append(_placed(rule, str(error)))
    return sorted(_with_packets(engine, found), key=_worst_first), problems


def _rows(engine: "Sandbox", rule: Rule) -> tuple[list[dict[str, Any]], list[str]]:
    query = expanded(incidents_query(rule))
    rows: list[dict[str, Any]] = []
    columns: list[str] = []
    for answer in engine.answers(query):
        columns = list(answer.schema.names)
        for batch in answer.batches():
            rows += batch.to_pylist()
    return rows, columns


def _placed(rule: Rule, text: str) -> Problem:
    """An error of the engine, at the line of the rule's file that it is about."""
    at = _AT.search(text)
    if at is not None:
        query = incidents_query(rule)
        before = expanded(query).removesuffix(query).count("\n") + 1
        line = rule.query_line + int(at[1]) - before - 1
        return Problem(rule.file, max(line, rule.query_line), _AT.sub("", text).strip(" ;"))
    # Most errors give no line, but the name that they are about.
    named = _NAMED.search(text)
    if named is not None:
        for number, line_text in enumerate(rule.query.split("\n")):
            if re.search(rf"\b{named[1] or named[2]}\b", line_text):
                return Problem(rule.file, rule.query_line + number, text)
    return Problem(rule.file, rule.query_line, text)


def _check(rule: Rule, columns: Sequence[str]) -> None:
    """Refuse a rule whose columns or texts do not fit.

    Raises:
        UsageError: a column is missing or of no kind, or a text names what no column gives.
    """
    for name in _NEEDED:
        if name not in columns:
            raise UsageError(f"the query gives no column {name}")
    for name in columns:
        if name not in (*_NEEDED, "variant", RANK) and not _split(name)[1]:
            raise UsageError(f"the column {name} is none of {', '.join(_KINDS)}_…")
        if name.startswith("ruled_out_") and _split(name)[1] not in rule.ruled_out:
            raise UsageError(f"the front matter has no words for {name}")
    if sum(name.startswith("frame_") for name in columns) > MAX_EVIDENCE:
        raise UsageError(f"more than {MAX_EVIDENCE} frames of evidence")
    names = {_split(name)[1] for name in columns} | {*rule.thresholds}
    for words in rule.words.values():
        for part in words.parts.values():
            for name in _PLACE.findall(part):
                if name not in names:
                    raise UsageError(f"a text names {{{name}}}, which no column gives")


def _split(name: str) -> tuple[str, str]:
    for kind in _KINDS:
        if name.startswith(f"{kind}_"):
            return kind, name[len(kind) + 1 :]
    return "", ""


def _cells(row: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    parts = ((*_split(name), value) for name, value in row.items())
    return {name: value for kind, name, value in parts if kind == wanted}


def _put_together(rule: Rule, rows: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """One finding per capture, variant and subject."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row[RANK]):
        if row[RANK] > MAX_INCIDENTS:
            continue
        subject = tuple(_cells(row, "subject").values())
        key = (row["capture"], row.get("variant") or "", *map(repr, subject))
        groups.setdefault(key, []).append(row)
    return [_finding(rule, group) for group in groups.values()]


def _finding(rule: Rule, rows: Sequence[Mapping[str, Any]]) -> Finding:
    worst = rows[0]
    variant = worst.get("variant") or ""
    if variant not in rule.words:
        raise UsageError(f"the front matter has no variant {variant}")
    words = rule.words[variant]
    subject, measured = _cells(worst, "subject"), _cells(worst, "measured")
    thresholds = {name: each.value for name, each in rule.thresholds.items()}
    values = {**thresholds, **subject, **measured, **_cells(worst, "frame")}
    times = sorted((row["first_ns"] or 0, row["last_ns"] or 0) for row in rows)
    incidents, until = 0, None
    for first, last in times:
        incidents += until is None or first - until > INCIDENT_NS
        until = last if until is None else max(until, last)
    evidence: dict[int, Evidence] = {}
    for role, number in _cells(worst, "frame").items():
        if number is not None:
            evidence.setdefault(number, Evidence(number, None, role.replace("_", " ")))
    return Finding(
        rule.number, rule.code, words.title, words.severity, words.verdict, worst["capture"],
        subject, times[0][0], max(last for _, last in times), incidents, measured, thresholds,
        tuple(rule.ruled_out[name] for name, is_so in _cells(worst, "ruled_out").items() if is_so),
        tuple(evidence.values()), _text(words.parts, values),
    )  # fmt: skip


def _text(parts: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """The sentences; a value that itself looks like a place is not looked up again."""
    lines = (
        _SENTENCE[part] + _PLACE.sub(lambda found: _shown(values.get(found[1])), parts[part])
        for part in PARTS
    )
    return "\n".join(lines)


def _shown(value: object) -> str:
    if value is None:
        return "(unknown)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _with_packets(engine: "Sandbox", found: Sequence[Finding]) -> list[Finding]:
    """The findings, their evidence with the packet that completed each frame."""
    wanted = sorted({(one.capture, each.frame_no) for one in found for each in one.evidence})
    if not wanted:
        return list(found)
    places = ", ".join(f"({quoted(capture)}, {number})" for capture, number in wanted)
    query = (
        "SELECT capture, frame_no, last_packet FROM frames "
        f"WHERE (capture, frame_no) IN ({places})"
    )
    packets = {
        (row["capture"], row["frame_no"]): row["last_packet"]
        for answer in engine.answers(query)
        for batch in answer.batches()
        for row in batch.to_pylist()
    }
    return [
        one._replace(
            evidence=tuple(
                each._replace(packet=packets.get((one.capture, each.frame_no)))
                for each in one.evidence
            )
        )
        for one in found
    ]


def _worst_first(one: Finding) -> tuple[Any, ...]:
    return (
        SEVERITIES.index(one.severity), VERDICTS.index(one.verdict), -one.incidents, one.number,
        one.capture, one.first_ns, repr(one.subject),
    )  # fmt: skip
