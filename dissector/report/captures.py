"""Verdicts by capture: what stands out in each one by itself, the worst first.

Which of a hundred files is the bad one? Every part of a report carries its capture, so the numbers
of one capture are those that the sections make of its rows alone, and its verdicts are those of
`outlook` on these numbers: no rule stands twice.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.report.names import Names
from dissector.report.numbers import Row, nulls_last
from dissector.report.outlook import remarks
from dissector.report.parts import MAX_VERDICTS, Parts, no_parts
from dissector.report.verdict import BAD, GOOD, LOOK, PLAIN, VERDICTS

# Verdicts in words, the worst first.
_ORDER: Final = (BAD, LOOK, GOOD, PLAIN)
WORDS: Final = tuple(VERDICTS[mark] for mark in _ORDER)
# The sections that verdicts stand in.
JUDGED: Final = (
    "coverage",
    "send_latency",
    "permit_utilization",
    "redelivery",
    "checksum_failures",
    "errors",
    "ack_latency",
    "connecting",
)


def _split(table: pa.Table) -> dict[str | None, pa.Table]:
    """The rows of each capture, in the order of the table."""
    if table.num_rows == 0:
        return {}
    coded = pc.dictionary_encode(table.column("capture").combine_chunks(), null_encoding="encode")
    codes = coded.indices.to_numpy()
    ordered = table.take(np.argsort(codes, kind="stable")).combine_chunks()
    counts = np.bincount(codes, minlength=len(coded.dictionary))
    starts = np.cumsum(counts) - counts
    return {
        name: ordered.slice(start, count)
        for name, start, count in zip(
            coded.dictionary.to_pylist(), starts.tolist(), counts.tolist(), strict=True
        )
    }


def _frames(parts: Parts) -> pa.Table:
    """The tally of frames, each where its connection counts: beside what was read of it."""
    table = parts.tables["frames"]
    if not parts.heads or not table.num_rows:
        return table
    places = [(row["capture"], row["connection_id"]) for row in table.to_pylist()]
    heads = [parts.heads.get(place, place) for place in places]
    for column, values in zip(("capture", "connection_id"), zip(*heads, strict=True), strict=True):
        at = table.schema.get_field_index(column)
        table = table.set_column(at, column, pa.array(values, table.schema.field(at).type))
    return table


def each_capture(parts: Parts) -> Iterator[tuple[str | None, Parts]]:
    """The parts of every capture that has files; what has no capture is left out."""
    tables, names = no_parts().tables, parts.names._asdict()
    empty = tables | {name: table.slice(0, 0) for name, table in parts.tables.items()}
    nameless = {name: table.slice(0, 0) for name, table in names.items()}
    placed = parts.tables | {"frames": _frames(parts)}
    mine = {
        name: _split(table) for name, table in placed.items() if "capture" in table.schema.names
    }  # fmt: skip
    named = {name: _split(table) for name, table in names.items()}
    for capture in sorted(mine["files"], key=nulls_last):
        found = {name: each[capture] for name, each in mine.items() if capture in each}
        known = {name: each[capture] for name, each in named.items() if capture in each}
        yield (
            capture,
            parts._replace(tables=empty | found, names=Names(**(nameless | known)), limits={}),
        )


def _numbers(report: Row) -> Row:
    """The number that decides in each section, and when, how much and how fast was sent."""
    total = {name: report[name]["total"] for name in JUDGED}
    sends, stalls = total["send_latency"], total["permit_utilization"]["stalls"]
    closed = total["connecting"]["closed_by_broker"]
    stuck = stalls["open_at_end"]["count"]
    return {
        "first_ts": total["coverage"]["first_ts"],
        "sends": sends["sends"],
        "latency_p50_ms": sends["latency_ms"]["p50"],
        "latency_p99_ms": sends["latency_ms"]["p99"],
        "decided_by": {
            "coverage": total["coverage"]["decoded_share"],
            "send_latency": (sends["sends"] or 0) - sends["outcomes"].get("ok", 0)
            or sends["resent"],
            "permit_utilization": None if stalls["count"] is None else stalls["count"] + stuck,
            "redelivery": total["redelivery"]["redelivered"],
            "checksum_failures": total["checksum_failures"]["mismatch"],
            "errors": total["errors"]["answers"],
            "ack_latency": total["ack_latency"]["passed_over"],
            "connecting": closed["producers"] + closed["consumers"]
            or total["connecting"]["not_established"],
        },
    }


def _verdict(capture: str | None, report: Row) -> Row:
    """The row of one capture. report: its sources and numbers alone."""
    # How many messages are distinct is counted over all captures, not in each.
    sends = report["send_latency"]
    report = report | {"send_latency": sends | {"total": sends["total"] | {"messages": None}}}
    found = sorted(remarks(report), key=lambda remark: _ORDER.index(remark.mark))
    marks: dict[str, str] = {}
    for remark in found:
        marks.setdefault(remark.section, remark.word)
    return {
        "capture": capture,
        "verdict": found[0].word,
        "bad": sum(remark.mark == BAD for remark in found),
        "look": sum(remark.mark == LOOK for remark in found),
        "sections": {name: marks.get(name) for name in JUDGED},
        **_numbers(report),
        "reasons": [
            {
                "section": remark.section,
                "verdict": remark.word,
                "text": remark.text,
                "next_step": remark.next_step,
            }
            for remark in found
            if remark.mark in (BAD, LOOK)
        ],
    }


def captures_judged(
    parts: Parts, report: Row, sections: Mapping[str, Callable[[Parts], Row]]
) -> dict[str, Any]:
    """What stands out in each capture: total and by_capture, the worst first.

    Args:
        parts: settled (`result.settle`). report: made from all of them, with `sources`; sections:
            what made it.
    """
    listed = []
    found = list(each_capture(parts))
    for capture, mine in found:
        if len(found) > 1:
            sources = [row for row in report["sources"] if row["capture"] == capture]
            made = {name: make(mine) for name, make in sections.items()}
            listed.append(_verdict(capture, {"sources": sources, **made}))
        else:
            listed.append(_verdict(capture, report))
    listed.sort(key=lambda row: (-row["bad"], -row["look"], nulls_last(row["capture"])))
    found_of = Counter(row["verdict"] for row in listed)
    total = {
        "captures": len(listed),
        "by_verdict": {word: found_of[word] for word in WORDS},
    }
    return {"total": total, "by_capture": listed[:MAX_VERDICTS]}
