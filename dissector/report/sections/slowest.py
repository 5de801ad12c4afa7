"""Slowest: the exchanges that took longest, with their frames and packets."""

from typing import Any, Final

from dissector.report.numbers import Row, instant, milliseconds, nulls_last
from dissector.report.parts import MAX_SLOW, Parts

# Lists and the kinds of exchanges in them: publishing has its own, everything else shares one.
LISTS: Final = {"publish": ("publish",), "other": ("request", "auth", "ack", "ping", "consume")}


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
        **{
            name: value
            for name, value in row.items()
            if name not in ("latency_ns", "transmit_ns", "request_last_ns")
        },
    }


def slowest(parts: Parts) -> dict[str, Any]:
    """The section `slowest`: total, publish, other."""
    found: list[Row] = parts.tables["slow"].to_pylist()
    section: dict[str, Any] = {}
    for name, kinds in LISTS.items():
        chosen = sorted((row for row in found if row["kind"] in kinds), key=_order)[:MAX_SLOW]
        section[name] = [_shown(row) for row in chosen]
    total = {
        f"longest_{name}_ms": listed[0]["latency_ms"] if listed else None
        for name, listed in section.items()
    }
    return {"total": total, **section}
