"""Slowest: the exchanges that took longest, with their frames and packets."""

from typing import Any, Final

from dissector.limits import MAX_SLOW
from dissector.report.formatting import many
from dissector.report.merged_tables import MergedTables
from dissector.report.numbers import Row, instant, milliseconds, nulls_last
from dissector.report.section import Section

LISTS: Final = ("publish", "other")  # publishing has its own, everything else shares one
# Columns that the section shows under other names, or not at all.
_HIDDEN: Final = ("list", "latency_ns", "transmit_ns", "request_last_ns")


def _order(row: Row) -> tuple[Any, ...]:
    return (
        -row["latency_ns"],
        row["request_last_ns"],
        nulls_last(row["capture"], row["request_frame_no"], row["connection_id"]),
    )


def _shown(row: Row) -> Row:
    return {
        "latency_ms": milliseconds(row["latency_ns"]),
        "transmit_ms": milliseconds(row["transmit_ns"]),
        "ts": instant(row["request_last_ns"]),
        **{name: value for name, value in row.items() if name not in _HIDDEN},
    }


def slowest(merged: MergedTables) -> dict[str, Any]:
    """The section `slowest`: total, publish, other."""
    rows = sorted(merged.rows("slow"), key=_order)
    section: dict[str, Any] = {
        name: [_shown(row) for row in rows if row["list"] == name][:MAX_SLOW] for name in LISTS
    }
    total = {
        f"longest_{name}_ms": listed[0]["latency_ms"] if listed else None
        for name, listed in section.items()
    }
    return {"total": total, **section}


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    sends = len(report["slowest"]["publish"])
    others = len(report["slowest"]["other"])
    return (
        f"The slowest exchanges that could be timed, {many(sends, 'send')} and "
        f"{many(others, 'other request')}, with their frames and packets. Refused sends and "
        "unanswered requests are left out: they have no latency."
    )


SECTION: Final = Section("slowest", slowest, about, ("slow",))
