"""Verdicts by capture: what stands out in each one by itself, the worst first.

Which of a hundred files is the bad one? Every row of a query names its capture, so the numbers of
one capture are those that the sections make of its rows alone, and its verdicts are those of the
rules and `dissector.report.verdicts` on these numbers: no rule stands twice. They depend on nothing
else, so they are made once for each capture, and kept.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from dissector.findings.querying import OverFrames
from dissector.limits import MAX_VERDICTS
from dissector.queries.catalogue import Query
from dissector.report.merged_tables import MergedTables, empty_tables, tables_by_capture
from dissector.report.numbers import Row, nulls_last
from dissector.report.result import JUDGED, SECTIONS, sources
from dissector.report.sections.findings import judge_reports
from dissector.report.verdict import BAD, LOOK, NOT_JUDGED, Remark, attempted
from dissector.report.verdicts import headlines
from dissector.schemas.small_tables import NUMBER, TEXT, small_table

# Of captures, the worst first: one that is fine in what could be judged is before one of notes.
WORDS: Final = ("bad", "look", "ok", "note")
_NAMES: Final = frozenset(
    ("topic", "subscription", "producer_name", "client_ip", "broker_ip", "minute", "at_ns")
)
# What is kept of a capture: how bad it is, and its row of the list as JSON.
_KINDS: Final = {
    "capture": TEXT, "verdict": TEXT, "bad": NUMBER, "look": NUMBER, "failed": NUMBER,
    "row_json": TEXT,
}  # fmt: skip
SCHEMA: Final = pa.schema(_KINDS.items())


# Numbers of a capture that could not be judged, see `_numbers`.
_NOT_KNOWN: Final[Row] = {
    **dict.fromkeys(("first_ts", "sends", "latency_p50_ms", "latency_p99_ms")),
    "decided_by": dict.fromkeys(JUDGED),
}


def _numbers(report: Row) -> Row:
    """The number that decides in each section, and when, how much and how fast was sent."""
    sends = report["send_latency"]["total"]
    return {
        "first_ts": report["coverage"]["total"]["first_ts"],
        "sends": sends["sends"],
        "latency_p50_ms": sends["latency_ms"]["p50"],
        "latency_p99_ms": sends["latency_ms"]["p99"],
        "decided_by": {name: each.number(report[name]["total"]) for name, each in JUDGED.items()},
    }


def _report(merged: MergedTables) -> Row:
    """The sources and numbers of one capture that it is judged by."""
    report: Row = {"sources": sources(merged)}
    for name in ("findings", *JUDGED, "requests"):
        report[name] = SECTIONS[name].build(merged)
    # How many messages are distinct is counted over all captures, not in each.
    report["send_latency"]["total"]["messages"] = None
    return report


class _Capture(NamedTuple):
    """A capture with the numbers that it is judged by; failed: why there are none."""

    capture: str | None
    parts: MergedTables
    report: Row
    failed: list[Remark]


def _capture(capture: str | None, merged: MergedTables) -> _Capture:
    report: Row = {}
    failed = attempted("coverage", lambda: report.update(_report(merged)) or ())
    return _Capture(capture, merged, report, failed)


def _verdict(one: _Capture) -> Row:
    """The row of one capture, whose report has been judged."""
    found = one.failed or attempted("coverage", lambda: headlines(one.report))
    numbers = _NOT_KNOWN if one.failed else _numbers(one.report)
    marks: dict[str, str] = {}
    for headline in found:
        if headline.mark != NOT_JUDGED:
            worst = min(marks.get(headline.section, headline.word), headline.word, key=WORDS.index)
            marks[headline.section] = worst
    return {
        "capture": one.capture,
        "verdict": min(marks.values(), key=WORDS.index),
        "bad": sum(headline.mark == BAD for headline in found),
        "look": sum(headline.mark == LOOK for headline in found),
        "failed": sum(headline.is_failure for headline in found),
        "sections": {name: marks.get(name) for name in JUDGED},
        **numbers,
        "reasons": [
            {
                "section": headline.section,
                "verdict": headline.word,
                "text": headline.text,
                "next_step": headline.next_step,
            }
            for headline in found
            if headline.mark in (BAD, LOOK)
        ],
    }


def _kept(row: Row) -> Row:
    """The verdict of a capture as it is kept: a row of SCHEMA."""
    kept = {name: row[name] for name in ("capture", "verdict", "bad", "look", "failed")}
    return kept | {"row_json": json.dumps(row, ensure_ascii=False)}


def rows_to_judge(query: Query, source: str) -> str:
    """The query of the rows of each capture that its verdict needs.

    Histograms are added up over names and times, which no total tells: they are most of all rows.

    Args:
        source: the view of the rows of the query per capture.
    """
    left_out = [name for name in query.keys if name in _NAMES]
    if "bucket" not in query.keys or not left_out:
        return f"SELECT * FROM {source}"
    keys = dict.fromkeys(("capture", *query.keys))
    rows = query.added_up(source, tuple(name for name in keys if name not in left_out))
    return f"SELECT *, {', '.join(f'NULL AS {name}' for name in left_out)} FROM ({rows}) AS found"


def verdict_rows(tables: Mapping[str, pa.Table | list[Row]], engine: OverFrames) -> pa.Table:
    """The verdicts of all captures that have files, in the order of their names: rows of SCHEMA.

    Args:
        engine: asks rules over totals. tables: the rows of each query per capture (see
            `rows_to_judge`), and `files`.
    """
    whole = {**empty_tables().tables, **tables}
    captures = [_capture(capture, merged) for capture, merged in tables_by_capture(whole)]
    judge_reports(engine, [(one.parts, one.report) for one in captures if not one.failed])
    rows = [_kept(_verdict(one)) for one in captures]
    return small_table([[row[name] for name in _KINDS] for row in rows], **_KINDS)


def verdict_section(rows: Iterable[Row]) -> Row:
    """What stands out in each capture: total and by_capture, the worst first.

    Args:
        rows: of SCHEMA, in any order.
    """
    found = list(rows)
    worst = heapq.nsmallest(
        MAX_VERDICTS, found, lambda row: (-row["bad"], -row["look"], nulls_last(row["capture"]))
    )
    counts = Counter(row["verdict"] for row in found)
    return {
        "total": {
            "captures": len(found),
            "by_verdict": {word: counts[word] for word in WORDS},
            "failed": sum(row["failed"] for row in found),
        },
        "by_capture": [json.loads(row["row_json"]) for row in worst],
    }
