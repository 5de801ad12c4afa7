"""Requests: round trips of all commands but publishes, and the tap's position by pings."""

from typing import Any, Final

from dissector.report.formatting import many
from dissector.report.merged_tables import MergedTables, unread, with_unread
from dissector.report.numbers import (
    NOT_EVALUATED,
    Row,
    counts_by,
    grouped,
    known,
    nulls_last,
    timed,
)
from dissector.report.section import Section, counted, not_evaluated

CLIENT: Final = "client"
BROKER: Final = "broker"


def _group(rows: list[Row]) -> Row:
    """The numbers of some requests."""
    outcomes = counts_by(rows, "outcome", "requests")
    request_rows = [row for row in rows if row["outcome"] != "orphan_response"]
    answered = outcomes.get("ok", 0) + outcomes.get("error", 0)
    latency = timed(request_rows, "latencies", "latency_ns")
    left_out: dict[str | None, int] = {name: outcomes.get(name, 0) for name in NOT_EVALUATED}
    left_out["answered_without_latency"] = answered - latency["count"]
    return {
        "requests": sum(row["requests"] for row in request_rows),
        "outcomes": known(outcomes),
        "tainted": sum(row["tainted"] for row in request_rows),
        "latency_ms": latency,
        "not_evaluated_by_reason": known(left_out),
    }


def _nearer(rows: list[Row]) -> str | None:
    """The end that the tap is certainly nearer to: client or broker; None if uncertain.

    An end's answer takes at least the round trip between tap and that end. If an answer took less
    than a third of the whole path's round trip, as measured by the same connection's handshake, the
    tap is nearer to that end. Connections must not contradict each other.
    """
    votes = {
        CLIENT if row["asked_by"] == BROKER or row["kind"] == "auth" else BROKER
        for row in rows
        if row["quick"]
    }
    return votes.pop() if len(votes) == 1 else None


def requests(merged: MergedTables) -> dict[str, Any]:
    """The section `requests`: total, by_command, pings."""
    rows = merged.rows("requests")
    by_command = [
        {"kind": kind, "request_command": command, **_group(group)}
        for (kind, command), group in grouped(rows, ("kind", "request_command")).items()
    ]
    by_command.sort(
        key=lambda row: (-row["requests"], nulls_last(row["request_command"], row["kind"]))
    )
    by_asker = grouped((row for row in rows if row["asked_by"] is not None), ("asked_by",))
    section: dict[str, Any] = {
        "total": {**_group(rows), "tap_nearer_to": _nearer(rows)},
        "by_command": by_command,
        "pings": [
            {"asked_by": asker, **_group(group)} for (asker,), group in sorted(by_asker.items())
        ],
    }
    count = unread(merged, "setup", "request")
    return with_unread(section, "request_unread", count, "requests", ("requests",))


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["requests"]["total"]
    return (
        "Time from the last byte of a request to the last byte of its answer, for every command "
        "except SEND; a PING by its sender, since the other side answers. It covers "
        f"{many(total['latency_ms']['count'], 'answer')} to "
        f"{counted(total['requests'], 'request', 'requests')}."
        f"{not_evaluated(report, total['not_evaluated_by_reason'])}"
    )


SECTION: Final = Section("requests", requests, about, ("requests", "unread"))
