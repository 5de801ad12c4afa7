"""Ack latency: from a delivery to the ack that consumes it, and how clients grouped acks."""

from typing import Any, Final

from dissector.report import numbers
from dissector.report.formatting import count_text, duration_text
from dissector.report.merged_tables import MergedTables, is_direction_missing, unread, with_unread
from dissector.report.numbers import Row
from dissector.report.section import Judged, Section, counted, not_evaluated

# Clients delay acks to group them; Java, C++ and Go do so for 100 ms by default.
GROUPING_FLOOR_MS: Final = 100.0
_KEYS: Final = ("topic", "subscription")
_OF_DELIVERIES: Final = ("deliveries", "acked", "refused", "rolled_back")
_OF_ACKS: Final = (
    *_OF_DELIVERIES[1:], "ack_commands", "cumulative_commands", "answered_commands", "ids_acked",
)  # fmt: skip


def _floor(commands: int, ids: int, is_all_answered: bool) -> float | None:
    """The time, ms, that an ack may have waited in its client; None if unknown.

    Clients send acks that request an answer at once. Several ids in a command were grouped; single
    ids without an answer may have been delayed, too, or come from a client that never groups.
    """
    if not commands:
        return None
    if ids > commands:
        return GROUPING_FLOOR_MS
    return 0.0 if is_all_answered else None


def _group(deliveries: list[Row], commands: list[Row]) -> Row:
    """The numbers of some deliveries, and of the ACK commands of the same consumers."""
    outcomes = numbers.counts_by(deliveries, "outcome", "deliveries")
    latency = numbers.timed(deliveries, "timed", "ack_latency_ns")
    single = [row for row in commands if row["ack_type"] != "Cumulative"]
    ids = sum(row["ids"] for row in single)
    count = sum(row["ack_commands"] for row in single)
    answered = sum(row["ack_commands"] for row in commands if row["is_answered"])
    acked = outcomes.pop("acked", 0)
    return {
        "deliveries": sum(row["deliveries"] for row in deliveries),
        "acked": acked,
        "refused": outcomes.get("ack_refused", 0),
        "rolled_back": outcomes.get("ack_rolled_back", 0),
        "acked_in_part": sum(row["acked_in_part"] for row in deliveries),
        "ack_latency_ms": latency,
        "ack_commands": sum(row["ack_commands"] for row in commands),
        "cumulative_commands": sum(row["ack_commands"] for row in commands) - count,
        "answered_commands": answered,
        "ids_acked": ids,
        "ids_per_command": numbers.share(ids, count),
        "grouping_floor_ms": _floor(
            count, ids, sum(row["ack_commands"] for row in commands) == answered
        ),
        "validation_errors": _validation_errors(commands),
        "not_evaluated_by_reason": numbers.known(
            {**outcomes, "acked_without_latency": acked - latency["count"]}
        ),
    }


def _validation_errors(commands: list[Row]) -> dict[str, int]:
    """The number of acked ids per validation error, by which clients discard messages."""
    counts = numbers.counts_by(commands, "validation_error", "ids")
    counts.pop(None, None)
    return {str(reason): counts[reason] for reason in sorted(counts, key=str)}


def _lag(rows: list[Row], which: str) -> Row:
    """Last and highest lag of some rows; None if no row has a lag of this kind."""
    newest: dict[tuple[Any, ...], tuple[Any, int]] = {}
    judged = [row for row in rows if row["which"] == which and row["evaluated"]]
    for row in judged:
        log = (*(row[name] for name in _KEYS), row["partition"])
        when = (row["last_us"] or 0, row["capture"])  # 0: its packet has no timestamp
        if log not in newest or when > newest[log][0]:
            newest[log] = (when, row["last_lag"])
    return {
        f"lag_{which}_last": sum(lag for _, lag in newest.values()) if newest else None,
        f"lag_{which}_max": numbers.high(row["lag_max"] for row in judged),
    }


def _lags(rows: list[Row]) -> Row:
    """The lag of groups behind the ends of their logs (Cursus).

    Every partition has its own log: the last lag of a subscription is the sum of its partitions'
    last lags. A row is not evaluated if the log's end was not seen before it.
    """
    return {
        **_lag(rows, "committed"),
        **_lag(rows, "delivered"),
        "lag_not_evaluated": sum(row["not_evaluated"] for row in rows) if rows else None,
    }


# Columns of deliveries that were never acked although later ones to their consumer were.
_PASSED: Final = (
    "capture", "connection_id", "consumer_id", "incarnation", "topic", "subscription",
    "consumer_name", "ledger_id", "entry_id", "message_count", "outcome", "at_us", "frame_no",
    "packet", "chunk_uuid", "is_broken",
)  # fmt: skip


_OLDEST: Final = (
    "capture", "connection_id", "consumer_id", "incarnation", "topic", "subscription",
    "consumer_name", "ledger_id", "entry_id", "frame_no", "packet", "at_us",
)  # fmt: skip


def _oldest(rows: list[Row]) -> Row:
    """The delivery that was unacked longest at its capture's end, its consumer, and the time."""
    oldest = min(rows, key=lambda row: (-(row["waited_us"] or 0), row["capture"]), default=None)
    if oldest is None:
        return {"oldest_unacknowledged_ms": None, "oldest_unacknowledged": None}
    waited_us = oldest["waited_us"]
    return {
        "oldest_unacknowledged_ms": (
            None if waited_us is None else numbers.milliseconds(waited_us * numbers.NS_PER_US)
        ),
        "oldest_unacknowledged": numbers.by_time([oldest], _OLDEST)[0],
    }


def ack_latency(merged: MergedTables) -> dict[str, Any]:
    """The section `ack_latency`: total, by_subscription, passed_over."""
    deliveries, commands, lags = map(merged.rows, ("ack_times", "ack_commands", "lags"))
    groups: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = {}
    for index, rows in enumerate(() if merged.only_totals else (deliveries, commands)):
        for row in rows:
            key = tuple(row[name] for name in _KEYS)
            groups.setdefault(key, ([], []))[index].append(row)
    lags_of = numbers.grouped(lags, _KEYS)
    oldest = merged.rows("unacknowledged")
    oldest_of = numbers.grouped(oldest, _KEYS)
    listed = [
        {
            **dict(zip(_KEYS, key, strict=True)),
            **_group(*lists),
            **_lags(lags_of.get(key, [])),
            **_oldest(oldest_of.get(key, [])),
        }
        for key, lists in groups.items()
    ]
    listed.sort(key=lambda row: (-row["acked"], numbers.nulls_last(*(row[name] for name in _KEYS))))
    section: dict[str, Any] = {
        "total": {
            **_group(deliveries, commands),
            **_lags(lags),
            **_oldest(oldest),
        },
        "by_subscription": listed,
    }
    count = unread(merged, "delivery")
    section = with_unread(section, "message_unread", count, "deliveries", _OF_DELIVERIES)
    count = unread(merged, "ack")
    section = with_unread(section, "ack_unread", count, "ack_commands", _OF_ACKS)
    for direction, keys in (("to_client", _OF_DELIVERIES), ("to_broker", _OF_ACKS)):
        if is_direction_missing(merged, direction):
            section["total"] = numbers.unseen(section["total"], *keys)
            section["by_subscription"] = [
                numbers.unseen(row, *keys) for row in section["by_subscription"]
            ]
    passed = {row["outcome"]: row["passed_over"] for row in merged.rows("passed_delivery_counts")}
    section["total"]["passed_over"] = sum(passed.values())
    section["total"]["passed_over_by_outcome"] = dict(sorted(passed.items()))
    section["passed_over"] = numbers.by_time(merged.rows("passed_deliveries"), _PASSED)
    return section


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["ack_latency"]["total"]
    floor = total["grouping_floor_ms"]
    gathered = {
        None: "Whether clients delayed acks to group them is not known.",
        0.0: "Every ack asked for an answer, so none was delayed.",
    }.get(
        floor,
        f"Clients grouped acks, by default for up to "
        f"{duration_text(floor or 0)}: that much of the time may be waiting in the client.",
    )
    return (
        "Time from the last byte of a MESSAGE to the first byte of the ACK that consumes it: the "
        f"queue of the client, its application and the network. {gathered} It covers "
        f"{count_text(total['ack_latency_ms']['count'])} of "
        f"{counted(total['deliveries'], 'delivery', 'deliveries')}."
        f"{not_evaluated(report, total['not_evaluated_by_reason'])}"
    )


SECTION: Final = Section(
    "ack_latency", ack_latency, about,
    ("ack_times", "ack_commands", "lags", "passed_deliveries", "passed_delivery_counts",
     "unacknowledged", "unread", "directions"),
    Judged("acks", lambda total: total["passed_over"]),
)  # fmt: skip
