"""Builds findings from the rows of rules: groups incidents and formats their texts.

Columns of a rule's query: capture, first_ns, last_ns, and any of variant, subject_…, measured_…,
ruled_out_…, frame_… (frame numbers of evidence, at most eight; the name is the frame's role).
A row is one incident; the numbers and evidence of a finding are those of its worst row.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dissector.errors import UsageError
from dissector.findings.explaining import broker_errors
from dissector.findings.loading import (
    PARTS,
    RANK,
    SEVERITIES,
    VERDICTS,
    Rule,
    RuleProblem,
    incidents_query,
)
from dissector.limits import MAX_COUNTED_KINDS, MAX_EVIDENCE_FRAMES, MAX_RULE_INCIDENTS
from dissector.notices import NOTICES
from dissector.queries.duckdb_engine import quoted
from dissector.queries.sandbox import expanded
from dissector.schemas.quantities import about_text, bytes_text, duration_text, share_text
from dissector.schemas.wire_names import name_text

if TYPE_CHECKING:
    from dissector.queries.sandbox import Sandbox

CLOCKS_NS: Final = 1_000_000_000  # the clocks of capturing hosts differ by less
# Notice sentences with blanks for their numbers, which the table notices has.
_NOTICES: Final = {kind.code: re.sub(r"\{(value2?|name)\}", "…", kind.sentence) for kind in NOTICES}
_DECIMALS: Final = 6  # of measured numbers
_NEEDED: Final = ("capture", "first_ns", "last_ns")
FRAME: Final = "frame"
PACKET: Final = "packet"  # column of the frame's packet, added to the query's columns
_KINDS: Final = ("subject", "measured", "ruled_out", FRAME)
# {name}; {name:size} with a format of `_UNITS` or `_WORDS`; {name|is|are} by number; and the noun
# that follows, after at most one word.
_PLACEHOLDER: Final = re.compile(
    r"\{(\w+)(?:\|([^{}|]*)\|([^{}|]*)|:(\w+))?\}"
    r"(?: ((?:such|other|further|open|slow) )?(ids|gaps|(?!this)\w{4,}s)\b)?"
)
# Text that is omitted if a value is unknown or all values are 0.
_IF_KNOWN: Final = re.compile(r"\[([^\[\]]*)\]")
_AT: Final = re.compile(r"LINE (\d+):.*", re.DOTALL)
_NAMED: Final = re.compile(r'"(\w+)"|\bname (\w+)')
_ENDINGS: Final = re.compile(r"ies$|(?<=ch|sh|ss)es$|s$")
_UNNAMED: Final = {
    "name": "name not captured",
    "topic": "a topic whose name was not captured",
    "subscription": "a subscription whose name was not captured",
    "version": "version not captured",
}
_SENTENCE: Final = {
    "what": "",
    "known": "How it is known: ",
    "rival": "What else looks the same: ",
    "decides": "What would decide: ",
    "do": "What to do: ",
}


class Evidence(NamedTuple):
    """A frame of evidence: its number in the capture, its last packet, its role."""

    frame_no: int
    packet: int | None
    role: str


class Finding(NamedTuple):
    """A rule's incidents of one subject; times in ns since 1970.

    section: the report section that it judges.
    capture: of the worst incident, whose frames are the evidence; "" for a rule over several
        captures together.
    show: see `RuleTexts`.
    spans: begin and end of each incident, in order.
    apart_ns: incidents with a shorter pause are merged.
    """

    number: str
    code: str
    title: str
    severity: str
    verdict: str
    section: str
    capture: str
    subject: Mapping[str, Any]
    first_ns: int
    last_ns: int
    spans: tuple[tuple[int, int], ...]
    apart_ns: int
    measured: Mapping[str, Any]
    thresholds: Mapping[str, float]
    ruled_out: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    text: str
    show: str = ""

    @property
    def incidents(self) -> int:
        """The number of incidents."""
        return len(self.spans)


Rows = Iterable[Mapping[str, Any]]


def findings_of_rows(rule: Rule, rows: Rows) -> tuple[list[Finding], list[RuleProblem]]:
    """The findings of a rule's incidents, and the problems met on the way."""
    listed = list(rows)
    failed = sorted({str(row["problem"]) for row in listed if row.get("problem")})
    problems = [_problem_at(rule, text) for text in failed]
    listed = [row for row in listed if row["capture"] is not None]
    for capture in sorted(row["capture"] for row in listed if row[RANK] > MAX_RULE_INCIDENTS):
        text = f"more than {MAX_RULE_INCIDENTS:,} incidents in {capture}: the worst are shown"
        problems.append(RuleProblem(rule.file, None, text))
    try:
        shown = [row for row in listed if row[RANK] <= MAX_RULE_INCIDENTS]
        return _grouped(rule, shown), problems
    except UsageError as error:
        return [], [*problems, _problem_at(rule, str(error))]
    except MemoryError:
        raise
    except Exception as error:  # values that cannot be formatted; other rules continue
        text = f"its rows cannot be formatted: {type(error).__name__}"
        return [], [*problems, RuleProblem(rule.file, rule.query_line, text)]


def findings_of(
    engine: "Sandbox", rules: Iterable[Rule]
) -> tuple[list[Finding], list[RuleProblem]]:
    """The findings of a user's rules, worst first, and the problems of rules that failed."""
    findings: list[Finding] = []
    problems = []
    for rule in rules:
        if rule.is_over_totals:  # they run only in reports
            problems.append(RuleProblem(rule.file, rule.query_line, "totals are of reports alone"))
            continue
        try:
            rows, columns = _rows(engine, rule)
            _check(rule, columns)
        except UsageError as error:
            problems.append(_problem_at(rule, str(error)))
            continue
        rule_findings, failed = findings_of_rows(rule, _with_packets(engine, rows))
        findings += rule_findings
        problems += failed
    return worst_first(findings), problems


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in display order."""
    return sorted(findings, key=_order)


def _rows(engine: "Sandbox", rule: Rule) -> tuple[list[dict[str, Any]], list[str]]:
    query = expanded(incidents_query(rule))
    rows: list[dict[str, Any]] = []
    columns: list[str] = []
    for answer in engine.answers(query):
        columns = list(answer.schema.names)
        for batch in answer.batches():
            rows += batch.to_pylist()
    return rows, columns


def _problem_at(rule: Rule, text: str) -> RuleProblem:
    """The problem of an engine error, with the line of the rule's file that it concerns."""
    at = _AT.search(text)
    if at is not None:
        query = incidents_query(rule)
        before = expanded(query).removesuffix(query).count("\n") + 1
        line = rule.query_line + int(at[1]) - before - 1
        return RuleProblem(rule.file, max(line, rule.query_line), _AT.sub("", text).strip(" ;"))
    # Most errors name an identifier instead of a line.
    named = _NAMED.search(text)
    if named is not None:
        for number, line_text in enumerate(rule.query.split("\n")):
            if re.search(rf"\b{named[1] or named[2]}\b", line_text):
                return RuleProblem(rule.file, rule.query_line + number, text)
    return RuleProblem(rule.file, rule.query_line, text)


def _check(rule: Rule, columns: Sequence[str]) -> None:
    """Check a rule's columns and texts.

    Raises:
        UsageError: a column is missing or has an unknown prefix, or a text names a missing column.
    """
    for name in _NEEDED:
        if name not in columns:
            raise UsageError(f"the query gives no column {name}")
    for name in columns:
        if name not in (*_NEEDED, "variant", RANK) and not _split(name)[1]:
            raise UsageError(f"the column {name} is none of {', '.join(_KINDS)}_…")
        if name.startswith("ruled_out_") and _split(name)[1] not in rule.ruled_out:
            raise UsageError(f"the front matter has no words for {name}")
    if sum(name.startswith("frame_") for name in columns) > MAX_EVIDENCE_FRAMES:
        raise UsageError(f"more than {MAX_EVIDENCE_FRAMES} frames of evidence")
    given = [_split(name)[1] for name in columns if not name.startswith("ruled_out_")]
    names = {*given, *rule.thresholds}
    for words in rule.words.values():
        for part in words.parts.values():
            for name, *_ in _PLACEHOLDER.findall(part):
                if name not in names:
                    raise UsageError(f"a text names {{{name}}}, which no column gives")
                if given.count(name) > 1:
                    raise UsageError(f"a text names {{{name}}}, which several columns give")


@lru_cache(maxsize=1024)  # called for each cell several times: it dominated the time of a finding
def _split(name: str) -> tuple[str, str]:
    for kind in (*_KINDS, PACKET):
        if name.startswith(f"{kind}_"):
            return kind, name[len(kind) + 1 :]
    return "", ""


def _cells(row: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    parts = ((*_split(name), value) for name, value in row.items())
    return {name: _plain(value) for kind, name, value in parts if kind == wanted}


def _plain(value: Any) -> Any:
    """A value in the form shared by all engines; floats are rounded to six decimals."""
    if isinstance(value, list):  # a map
        return {name: _plain(each) for name, each in value} or None
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    return round(value, _DECIMALS) if isinstance(value, float) else value


def _rank(rule: Rule, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The sort key of a row, greatest for the worst; then more evidence, then earlier."""
    worst = row.get(rule.worst)
    shown = sum(number is not None for number in _cells(row, FRAME).values())
    return (worst is not None, worst or 0, shown, -(row["first_ns"] or 0), -(row["last_ns"] or 0))


def _not_refuted(rule: Rule, rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows, except incidents decided only by a whole capture (`RuleTexts.whole`) if another
    capture has at the same time an incident of the subject that is not."""
    shown: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if not _needs_whole_capture(rule, row):
            shown.setdefault(_subject_key(row), []).append(row)
    for row in rows:
        if not _needs_whole_capture(rule, row) or not any(
            each["capture"] != row["capture"] and _is_at_once(each, row)
            for each in shown.get(_subject_key(row), ())
        ):
            yield row


def _needs_whole_capture(rule: Rule, row: Mapping[str, Any]) -> bool:
    words = rule.words.get(row.get("variant") or "")
    return words is not None and bool(words.whole)


def _subject_key(row: Mapping[str, Any]) -> str:
    return repr(sorted(_cells(row, "subject").items()))


def _is_at_once(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two incidents overlap in time, with a tolerance of CLOCKS_NS."""
    begin = max(one["first_ns"] or 0, other["first_ns"] or 0)
    return begin - min(one["last_ns"] or 0, other["last_ns"] or 0) <= CLOCKS_NS


def _grouped(rule: Rule, rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """One finding per variant, subject and capture; captures that share an incident share one."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in _not_refuted(rule, rows):
        groups.setdefault((row.get("variant") or "", _subject_key(row)), []).append(row)
    findings = []
    for group in groups.values():
        by_captures: dict[frozenset[str], list[list[Mapping[str, Any]]]] = {}
        for incident in _incidents(group, _apart_ns(rule)):
            captures = frozenset(row["capture"] for row in incident)
            incidents = [incident]
            for other in [each for each in by_captures if each & captures]:
                incidents += by_captures.pop(other)
                captures |= other
            by_captures[captures] = incidents
        findings += [finding_of(rule, incidents) for incidents in by_captures.values()]
    return findings


def _apart_ns(rule: Rule) -> int:
    return round(rule.apart_s * 1e9)


def _incidents(rows: Rows, apart_ns: int) -> list[list[Mapping[str, Any]]]:
    """Rows of one subject grouped into incidents: a pause above apart_ns begins the next one."""
    incidents: list[list[Mapping[str, Any]]] = []
    until = 0
    for row in sorted(rows, key=_row_order):
        if not incidents or (row["first_ns"] or 0) - until > apart_ns:
            incidents.append([])
        incidents[-1].append(row)
        until = max(until, row["last_ns"] or 0)
    return incidents


def _row_order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The sort key of a row within its subject. Equal incidents of several captures sort by the
    capture's name, so the engine's row order does not matter."""
    frames = tuple(number or 0 for number in _cells(row, FRAME).values())
    return row["first_ns"] or 0, row["last_ns"] or 0, row["capture"], frames


def _span(incident: Rows) -> tuple[int, int]:
    times = [(row["first_ns"] or 0, row["last_ns"] or 0) for row in incident]
    return min(first for first, _ in times), max(last for _, last in times)


def finding_of(rule: Rule, incidents: Sequence[Sequence[Mapping[str, Any]]]) -> Finding:
    """The finding for incidents of one subject. incidents: the rows of each.

    Raises:
        UsageError: the front matter has no such variant.
    """
    rows = [row for incident in incidents for row in incident]
    spans = tuple(sorted(map(_span, incidents)))
    worst = max(rows, key=lambda row: _rank(rule, row))
    variant = worst.get("variant") or ""
    if variant not in rule.words:
        raise UsageError(f"the front matter has no variant {variant}")
    words = rule.words[variant]
    subject, measured = _cells(worst, "subject"), _cells(worst, "measured")
    thresholds = {name: each.value for name, each in rule.thresholds.items()}
    values = {**thresholds, **subject, **measured, **_cells(worst, FRAME)}
    evidence: dict[int, Evidence] = {}
    for role, number in _cells(worst, FRAME).items():
        if number is not None:
            packet = worst.get(f"{PACKET}_{role}")
            evidence.setdefault(number, Evidence(number, packet, role.replace("_", " ")))
    return Finding(
        rule.number, rule.code, words.title, words.severity, words.verdict, rule.section,
        worst["capture"], subject, spans[0][0], max(last for _, last in spans), spans,
        _apart_ns(rule), measured, thresholds,
        tuple(rule.ruled_out[name] for name, is_so in _cells(worst, "ruled_out").items() if is_so),
        tuple(evidence.values()), text_of(words.parts, values, rule.names), words.show,
    )  # fmt: skip


def text_of(parts: Mapping[str, str], values: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The text of a finding, a line per part; values that look like placeholders stay as they are.

    names: see `Rule.names`.
    """
    lines = []
    for part in PARTS:
        template = _IF_KNOWN.sub(lambda match: _if_known(values, match[1]), parts[part])
        text = _PLACEHOLDER.sub(lambda match: _counted(values, names, match), template).strip()
        if text:
            lines.append(_SENTENCE[part] + text)
    return "\n".join(lines)


def _if_known(values: Mapping[str, Any], template: str) -> str:
    """The text in brackets; "" if a value is unknown or all values are 0."""
    shown = [values.get(match[1]) for match in _PLACEHOLDER.finditer(template)]
    is_none = bool(shown) and all(type(value) is int and value == 0 for value in shown)
    return "" if is_none or None in shown else template


def _counted(values: Mapping[str, Any], names: Mapping[str, str], match: re.Match[str]) -> str:
    """The text of a placeholder: a value, or the word for its number; and the noun that follows."""
    name, singular, plural, form, between, noun = match.groups()
    value = values.get(name)
    is_one = value == 1 and type(value) is int
    if form is not None and value is not None:
        text = _UNITS[form](value) if form in _UNITS else _WORDS[form](value, names)
    else:
        text = _shown(name, value) if singular is None else (singular if is_one else plural)
    if noun is None:
        return text
    if is_one and singular is None:
        noun = _ENDINGS.sub(lambda ending: "y" if ending[0] == "ies" else "", noun)
    return f"{text} {between or ''}{noun}"


def counts_text(counts: Mapping[str, int], names: Mapping[str, str]) -> str:
    """Counts by name, the largest first: 3 MQTT, 1 Kafka. names: display names."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(
        f"{count:,} {names.get(name) or name_text(name)}"
        for name, count in ordered[:MAX_COUNTED_KINDS]
    )
    return f"{shown} … ({len(ordered)} in all)" if len(ordered) > MAX_COUNTED_KINDS else shown


def _shares(counts: Mapping[str, int], names: Mapping[str, str]) -> str:
    """Counts by name after their total; a single name without its count, which equals it."""
    text = counts_text(counts, names)
    return text.partition(" ")[2] if len(counts) == 1 else text


def _asked(code: str) -> str:
    """The question to ask about a broker error."""
    unknown = "What does the broker's log say at that time?"
    return broker_errors().get(code, {}).get("ask", unknown)


def _notices(counts: Mapping[str, int]) -> str:
    """The sentences of notices, with their codes and counts."""
    return "; ".join(
        f"{_NOTICES.get(code, 'a bound on memory')} ({code}, {count:,} time{'s' * (count != 1)})"
        for code, count in sorted(counts.items())
    )


def _hexadecimal(value: Any) -> str:
    """A checksum as protocol analysers print it."""
    return f"0x{value:08x}"


_UNITS: Final[Mapping[str, Callable[[Any], str]]] = {
    "size": bytes_text, "share": share_text, "time": duration_text, "about": about_text,
    "notice": _notices, "ask": _asked, "hex": _hexadecimal,
}  # fmt: skip
_WORDS: Final[Mapping[str, Callable[[Any, Mapping[str, str]], str]]] = {
    "counts": counts_text, "shares": _shares,
}  # fmt: skip


def _shown(name: str, value: object) -> str:
    if value is None:
        return f"({_UNNAMED.get(name.rpartition('_')[2], 'not known')})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    # `name_text` escapes line breaks, which would look like the next sentence.
    return f"{value:,}" if isinstance(value, int) else name_text(str(value))


def _with_packets(engine: "Sandbox", rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a rule, with the packet that completed each frame."""
    wanted = {
        (row["capture"], number)
        for row in rows
        for number in _cells(row, FRAME).values()
        if number is not None
    }
    if not wanted:
        return list(rows)
    keys = ", ".join(f"({quoted(capture)}, {number})" for capture, number in sorted(wanted))
    query = (
        f"SELECT capture, frame_no, last_packet FROM frames WHERE (capture, frame_no) IN ({keys})"
    )
    packets = {
        (row["capture"], row["frame_no"]): row["last_packet"]
        for answer in engine.answers(query)
        for batch in answer.batches()
        for row in batch.to_pylist()
    }
    return [
        row | {
            f"{PACKET}_{role}": packets.get((row["capture"], number))
            for role, number in _cells(row, FRAME).items()
        }
        for row in rows
    ]  # fmt: skip


def _order(one: Finding) -> tuple[Any, ...]:
    return (
        SEVERITIES.index(one.severity), VERDICTS.index(one.verdict), -one.incidents, one.number,
        one.capture, one.first_ns, repr(one.subject),
    )  # fmt: skip
