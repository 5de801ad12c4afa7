"""Timelines of findings: the traffic around an incident, counted per series and bin of time.

A timeline shows the incident that has a finding's evidence, and a short time before and after it.
Its frames are those of the finding's topic and subscription. Frames without a topic (connections,
requests), and all frames of a finding without one, are shown if they are on the connections of its
evidence or its client. Bins bound the size of a timeline, whatever the traffic.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dissector.findings.finding import Finding
from dissector.limits import MAX_PAGE_ROWS, MAX_TIMELINE_BINS
from dissector.queries.catalogue import views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.selection import Selection
from dissector.report.partitions import Inputs, tables_of
from dissector.schemas.small_tables import NUMBER, TEXT, nested_table, small_table

_READ: Final = ("exchanges", "deliveries", "permits", "acks", "frames", "connections")
_AROUND: Final = 0.2  # of an incident's duration, shown before and after it
_LEAST_NS: Final = 50_000_000  # shown before and after a moment: a round trip and a retry
# Evidence farther away than so many durations of the incident is not shown, as it would shrink it.
_FAR: Final = 3
_SUBJECT: Final = ("topic", "subscription", "client_ip")
_LINKS: Final = (
    "SELECT DISTINCT w.place, c.connection_id FROM windows AS w JOIN connections AS c "
    "ON c.capture = w.capture AND c.client_ip = w.client_ip "
    "UNION SELECT place, connection_id FROM shown"
)
_MARKS: Final = """
SELECT
  w.place, m.series, count(DISTINCT coalesce(m.frame_no, -1 - m.connection_id)) AS frames,
  min(m.at_ns) AS first_ns, max(m.at_ns) AS last_ns,
  min(m.frame_no) AS first_frame_no, max(m.frame_no) AS last_frame_no
FROM windows AS w
JOIN moments AS m ON m.capture = w.capture AND m.at_ns BETWEEN w.first_ns AND w.last_ns
LEFT JOIN links AS l ON l.place = w.place AND l.connection_id = m.connection_id
WHERE CASE
  WHEN m.topic IS NOT NULL AND w.topic IS NOT NULL THEN
    (m.topic = w.topic OR starts_with(m.topic, w.topic || '-partition-'))
    AND (m.subscription = w.subscription OR m.subscription IS NULL OR w.subscription IS NULL)
  ELSE l.place IS NOT NULL OR w.place NOT IN (SELECT place FROM links)
END
GROUP BY w.place, m.series, floor_div(m.at_ns - w.first_ns, w.bin_ns)
ORDER BY w.place, m.series, first_ns
"""
DIRECTIONS: Final = ("to_broker", "to_client")
_DIRECTIONS: Final = (
    "SELECT capture, sum(packets_to_broker)::BIGINT AS to_broker, "
    "sum(packets_to_client)::BIGINT AS to_client FROM connections GROUP BY capture"
)
SCHEMA: Final = pa.schema(
    {
        "finding": NUMBER, "id": TEXT, "capture": TEXT, "series": TEXT, "frames": NUMBER,
        "first_ns": NUMBER, "last_ns": NUMBER, "first_frame_no": NUMBER, "last_frame_no": NUMBER,
    }.items()
)  # fmt: skip


class Mark(NamedTuple):
    """The frames (or connections) of one series in one bin. Times in ns since 1970."""

    series: str
    frames: int
    first_ns: int
    last_ns: int
    first_frame_no: int | None
    last_frame_no: int | None


class Shown(NamedTuple):
    """A frame of evidence. at_ns: when it was complete, ns since 1970."""

    role: str
    frame_no: int
    packet: int | None
    at_ns: int


class Timeline(NamedTuple):
    """The timeline of a finding.

    place: index of the finding in its report, from 0.
    first_ns, last_ns: the shown time.
    incident_ns: begin and end of the incident.
    shown: the finding's evidence, by time; some may lie outside the shown time.
    missing: directions of which the capture has no packet.
    """

    place: int
    first_ns: int
    last_ns: int
    incident_ns: tuple[int, int]
    shown: tuple[Shown, ...]
    marks: tuple[Mark, ...]
    missing: frozenset[str] = frozenset()


def timelines(read: Inputs, findings: Sequence[Finding], work: Path) -> list[Timeline]:
    """The timelines of the findings that the page lists, if they are of one capture.

    Raises:
        InputError: a file of the lake cannot be read.
    """
    drawn = {
        place: one for place, one in enumerate(findings[:MAX_PAGE_ROWS])
        if one.capture in read.captures
    }  # fmt: skip
    if not drawn:
        return []
    captures = {one.capture for one in drawn.values()}
    with DuckdbEngine(work) as db:
        tables_of(read, captures, None, Selection()).open(db, _READ)
        for view in views("timelines.sql"):
            db.view(view.name, view.query)
        shown = _evidence(db, drawn)
        spans = {place: _span(read, one, shown[place]) for place, one in drawn.items()}
        marks: dict[int, list[Mark]] = {place: [] for place in drawn}
        for row in _marks(db, drawn, spans).to_pylist():
            marks[row.pop("place")].append(Mark(**row))
        missing = {
            row["capture"]: frozenset(way for way in DIRECTIONS if row[way] == 0)
            for row in db.table(_DIRECTIONS).to_pylist()
        }
    return [
        Timeline(
            place, *spans[place], _incident(one, shown[place]), shown[place], (*marks[place],),
            missing.get(one.capture, frozenset()),
        )
        for place, one in drawn.items()
    ]  # fmt: skip


def _evidence(db: DuckdbEngine, drawn: dict[int, Finding]) -> dict[int, tuple[Shown, ...]]:
    """The evidence of findings, by time; creates the table `shown` of its connections."""
    wanted = small_table(
        [(place, one.capture, each.frame_no)
         for place, one in drawn.items() for each in one.evidence],
        place=NUMBER, capture=TEXT, no=NUMBER,
    )  # fmt: skip
    db.register("wanted_frames", wanted)
    rows = db.table(
        "SELECT w.place, w.no, f.connection_id, f.last_ts_ns FROM wanted_frames AS w "
        "JOIN frames AS f ON f.capture = w.capture AND f.frame_no = w.no"
    ).to_pylist()
    links = [(row["place"], row["connection_id"]) for row in rows]
    db.register("shown", small_table(links, place=NUMBER, connection_id=NUMBER))
    times = {(row["place"], row["no"]): row["last_ts_ns"] for row in rows}
    return {
        place: tuple(sorted(
            (Shown(each.role, each.frame_no, each.packet, times[place, each.frame_no])
             for each in one.evidence if (place, each.frame_no) in times),
            key=lambda each: (each.at_ns, each.frame_no),
        ))
        for place, one in drawn.items()
    }  # fmt: skip


def _incident(one: Finding, shown: Iterable[Shown]) -> tuple[int, int]:
    """The incident with most of the evidence; of several, the longest."""
    times = [each.at_ns for each in shown]

    def rank(span: tuple[int, int]) -> tuple[int, int]:
        return sum(span[0] <= at <= span[1] for at in times), span[1] - span[0]

    return max(one.spans, key=rank)


def _span(read: Inputs, one: Finding, shown: Sequence[Shown]) -> tuple[int, int]:
    """The shown time: that of the incident and its evidence, and a margin."""
    first, last = _incident(one, shown)
    room = max(_FAR * (last - first), _LEAST_NS)
    near = [each.at_ns for each in shown if first - room <= each.at_ns <= last + room]
    begin, end = min(first, *near, last), max(last, *near, first)
    around = max(round(_AROUND * (end - begin)), _LEAST_NS)
    # Nothing is known of the time before and after the capture.
    whole_first, whole_last = read.spans.get(one.capture, (0, 0))
    if whole_first <= begin and end <= whole_last:
        return max(begin - around, whole_first), min(end + around, whole_last)
    return begin - around, end + around


def _marks(
    db: DuckdbEngine, drawn: dict[int, Finding], spans: dict[int, tuple[int, int]]
) -> pa.Table:
    windows = [
        (place, one.capture, first, last, -(-(last - first + 1) // MAX_TIMELINE_BINS),
         *(_text(one.subject.get(name)) for name in _SUBJECT))
        for (place, one), (first, last) in zip(drawn.items(), spans.values(), strict=True)
    ]  # fmt: skip
    kinds = dict.fromkeys(("place", "first_ns", "last_ns", "bin_ns"), NUMBER)
    names = ("place", "capture", "first_ns", "last_ns", "bin_ns", *_SUBJECT)
    db.register("windows", small_table(windows, **{n: kinds.get(n, TEXT) for n in names}))
    db.register("links", db.table(_LINKS))
    return db.table(_MARKS)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def table_of(drawn: Iterable[Timeline], findings: Sequence[Finding]) -> pa.Table:
    """The marks of timelines as rows of a table; `finding` counts from 1."""
    rows = [
        {"finding": one.place + 1, "id": findings[one.place].number,
         "capture": findings[one.place].capture, **mark._asdict()}
        for one in drawn for mark in one.marks
    ]  # fmt: skip
    return nested_table(rows, SCHEMA)
