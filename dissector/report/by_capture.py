"""The verdict on each capture by itself, the worst first: which of a hundred is the bad one?

Every row of a query names its capture. So the sections compute the numbers of one capture from its
rows alone, and the rules judge these numbers as they judge those of a report. The verdict depends
on nothing else, so it is computed once per capture, and cached.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from dissector.findings.querying import OverFrames
from dissector.findings.totals import FAILED
from dissector.limits import MAX_VERDICTS
from dissector.queries.catalogue import Query
from dissector.report import numbers
from dissector.report.headlines import CAPTURE_WORDS, WORDS, WRONG, headlines, verdict
from dissector.report.merged_tables import MergedTables, empty_tables, tables_by_capture
from dissector.report.numbers import Row
from dissector.report.result import JUDGED, SECTIONS, sources
from dissector.report.sections.findings import failed_section, judge_reports
from dissector.schemas.small_tables import NUMBER, TEXT, small_table

_NAMES: Final = frozenset(
    ("topic", "subscription", "producer_name", "client_ip", "broker_ip", "minute", "at_ns")
)
# The cached columns of a capture: its verdict with counts of headlines, and its row as JSON.
_KINDS: Final = {
    "capture": TEXT, "verdict": TEXT, "bad": NUMBER, "look": NUMBER, "failed": NUMBER,
    "row_json": TEXT,
}  # fmt: skip
SCHEMA: Final = pa.schema(_KINDS.items())
# `_numbers` of a capture whose sections could not be computed.
_NOT_KNOWN: Final[Row] = {
    **dict.fromkeys(("first_ts", "sends", "latency_p50_ms", "latency_p99_ms")),
    "decided_by": dict.fromkeys(JUDGED),
}


def _numbers(report: Row) -> Row:
    """Each section's deciding number, the first time, the count of sends and their latency."""
    sends = report["send_latency"]["total"]
    p50, p99 = _percentiles_ms(sends["latency_ms"], dict(sends["latency_histogram"]))
    return {
        "first_ts": report["coverage"]["total"]["first_ts"],
        "sends": sends["sends"],
        "latency_p50_ms": p50,
        "latency_p99_ms": p99,
        "decided_by": {name: each.number(report[name]["total"]) for name, each in JUDGED.items()},
    }


def _percentiles_ms(took: Row, buckets: dict[int, int]) -> list[float] | tuple[None, None]:
    """p50 and p99 from the histogram. Reports with exact percentiles use these, too, as they share
    the cached rows of captures."""
    if not buckets:
        return None, None
    low_ns, high_ns = (round(took[name] * numbers.NS_PER_MS) for name in ("min", "max"))
    values = numbers.quantiles_ns(buckets, (500, 990), low_ns, high_ns)
    return [numbers.milliseconds(each) or 0 for each in values]


def _report(merged: MergedTables) -> Row:
    """The sources and sections of one capture that its verdict needs; if computing a section
    fails, the failure is the finding."""
    report: Row = {"sources": sources(merged)}
    try:
        for name in ("findings", *JUDGED, "requests"):
            report[name] = SECTIONS[name].build(merged)
    except MemoryError:
        raise
    except Exception as error:  # one capture's failure must not stop the others' verdicts
        return {"sources": report["sources"], "findings": failed_section(merged, error)}
    # Distinct messages are counted over all captures, not in each.
    report["send_latency"]["total"]["messages"] = None
    return report


def row_of(capture: str | None, report: Row) -> Row:
    """The row of one capture in the list, from its judged report."""
    lines = headlines(report)
    marks: dict[str, str] = {}
    for one in lines:
        if one.word:
            worst = (marks.get(one.section, one.word), one.word)
            marks[one.section] = min(worst, key=CAPTURE_WORDS.index)
    codes = Counter(row["code"] for row in report["findings"]["findings"])
    return {
        "capture": capture,
        "verdict": verdict(lines),
        "bad": sum(one.word == WORDS["error"] for one in lines),
        "look": sum(one.word == WORDS["warning"] for one in lines),
        "failed": codes[FAILED],
        "sections": {name: marks.get(name) for name in JUDGED},
        **(_numbers(report) if "coverage" in report else _NOT_KNOWN),
        "reasons": [
            {
                "section": one.section,
                "verdict": one.word,
                "text": one.sentence,
                "next_step": one.next_step,
            }
            for one in lines
            if one.word in WRONG
        ],
    }


def _kept(row: Row) -> Row:
    """The row of a capture as it is cached: a row of SCHEMA."""
    kept = {name: row[name] for name in ("capture", "verdict", "bad", "look", "failed")}
    return kept | {"row_json": json.dumps(row, ensure_ascii=False)}


def rows_to_judge(query: Query, source: str) -> str:
    """The SQL of the rows per capture that verdicts need.

    Histograms, most of all rows, are summed over names and times: totals use neither.

    Args:
        source: the view of the query's rows per capture.
    """
    left_out = [name for name in query.keys if name in _NAMES]
    if "bucket" not in query.keys or not left_out:
        return f"SELECT * FROM {source}"
    keys = dict.fromkeys(("capture", *query.keys))
    rows = query.added_up(source, tuple(name for name in keys if name not in left_out))
    return f"SELECT *, {', '.join(f'NULL AS {name}' for name in left_out)} FROM ({rows}) AS summed"


def verdict_rows(
    tables: Mapping[str, pa.Table | list[Row]], engine: OverFrames, rules: Iterable[str] = ()
) -> pa.Table:
    """The verdicts of all captures that have files, in the order of their names: rows of SCHEMA.

    Args:
        tables: the rows of each query per capture (see `rows_to_judge`), and `files`.
        engine: runs the rules over totals.
        rules: numbers of the rules to run, none: all.
    """
    whole = {**empty_tables().tables, **tables}
    captures = [(name, merged, _report(merged)) for name, merged in tables_by_capture(whole)]
    reports = [(merged, report) for _, merged, report in captures if "coverage" in report]
    judge_reports(engine, reports, rules)
    rows = [_kept(row_of(name, report)) for name, _, report in captures]
    return small_table([[row[name] for name in _KINDS] for row in rows], **_KINDS)


def section_of_one(report: Row) -> Row:
    """`verdict_section` of a judged report over one capture."""
    captures = {source["capture"]: None for source in report["sources"]}
    return verdict_section(_kept(row_of(capture, report)) for capture in captures)


def verdict_section(rows: Iterable[Row]) -> Row:
    """The section `verdicts`: total, and by_capture with the worst capture first.

    Args:
        rows: of SCHEMA, in any order.
    """
    listed = list(rows)
    worst = heapq.nsmallest(
        MAX_VERDICTS,
        listed,
        lambda row: (-row["bad"], -row["look"], numbers.nulls_last(row["capture"])),
    )
    counts = Counter(row["verdict"] for row in listed)
    return {
        "total": {
            "captures": len(listed),
            "by_verdict": {word: counts[word] for word in CAPTURE_WORDS},
            "failed": sum(row["failed"] for row in listed),
        },
        "by_capture": [json.loads(row["row_json"]) for row in worst],
    }
