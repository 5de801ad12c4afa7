"""Publish to delivery: from a SEND to the MESSAGE that carries its entry to a consumer's queue."""

from typing import Any, Final

from dissector.report.formatting import many
from dissector.report.merged_tables import MergedTables, is_direction_missing, unread, with_unread
from dissector.report.numbers import (
    Row,
    grouped,
    instant,
    known,
    low,
    milliseconds,
    nulls_last,
    timed,
    unseen,
)
from dissector.report.section import Section, counted, not_evaluated

_KEYS: Final = ("topic", "subscription")
_CHANGES: Final = ("stored", "delivered", "acknowledged")


def _group(rows: list[Row]) -> Row:
    """The numbers of some deliveries."""
    first = [row for row in rows if not row["is_redelivered"]]
    delayed = sum(row["deliveries"] for row in first if row["is_delayed"])
    deliveries = sum(row["deliveries"] for row in rows)
    redelivered = deliveries - sum(row["deliveries"] for row in first)
    latency = timed(rows, "timed", "publish_to_delivery_ns")
    return {
        "deliveries": deliveries,
        "transit_ms": latency,
        "not_evaluated_by_reason": known(
            {
                "redelivered": redelivered,
                "delay_wanted": delayed,
                "send_not_known": deliveries - redelivered - delayed - latency["count"],
            }
        ),
    }


def _undelivered(rows: list[Row]) -> Row:
    """Entries stored since a subscription asked for messages, and the number never delivered."""
    return {
        "stored": sum(row["stored"] for row in rows),
        "undelivered": sum(row["undelivered"] for row in rows),
        "oldest_undelivered_ts": instant(low(row["oldest_ns"] for row in rows)),
    }


def _backlog(merged: MergedTables) -> Row:
    """Undelivered and unacknowledged entries of subscriptions, at the end of each step of time in
    which a count changed."""
    points: dict[int, Row] = {}
    before = dict.fromkeys(_CHANGES, 0)  # before the selected time
    for row in merged.rows("backlog"):
        point = before
        if row["at_ns"] is not None:
            point = points.setdefault(row["at_ns"] // merged.step_ns, dict.fromkeys(_CHANGES, 0))
        for name in _CHANGES:
            point[name] += row[name]
    listed = []
    undelivered = before["stored"] - before["delivered"]
    unacknowledged = before["delivered"] - before["acknowledged"]
    for at in sorted(points):
        point = points[at]
        undelivered += point["stored"] - point["delivered"]
        unacknowledged += point["delivered"] - point["acknowledged"]
        waiting = {"undelivered": undelivered, "unacknowledged": unacknowledged}
        listed.append({"ts": instant(at * merged.step_ns), **point, **waiting})
    return {"step_ms": milliseconds(merged.step_ns), "points": listed}


def publish_to_delivery(merged: MergedTables) -> dict[str, Any]:
    """The section `publish_to_delivery`: total, by_subscription, backlog."""
    rows = merged.rows("transits")
    transits = grouped(rows, _KEYS)
    waiting = {tuple(row[name] for name in _KEYS): row for row in merged.rows("undelivered")}
    listed = [
        {
            **dict(zip(_KEYS, key, strict=True)),
            **_group(transits.get(key, [])),
            **_undelivered([waiting[key]] if key in waiting else []),
        }
        for key in {**transits, **waiting}
    ]
    listed.sort(
        key=lambda row: (
            -row["transit_ms"]["count"],
            -row["deliveries"],
            nulls_last(*(row[name] for name in _KEYS)),
        )
    )
    entries = merged.rows("entries")
    total = {
        **_group(rows),
        **_undelivered([row for row in waiting.values() if row["subscription"] is not None]),
        "entries_unsubscribed": sum(
            row["undelivered"] for row in waiting.values() if row["subscription"] is None
        ),
        "entries_confirmed": sum(row["confirmed"] for row in entries),
        "entries_delivered": sum(row["delivered"] for row in entries),
        "entries_stored": sum(row["either"] for row in entries),
    }
    section: dict[str, Any] = {"total": total, "by_subscription": listed}
    section["backlog"] = None if merged.only_totals else _backlog(merged)
    count = unread(merged, "delivery")
    of_deliveries = (
        "deliveries", "entries_delivered", "entries_stored", "undelivered", "oldest_undelivered_ts",
    )  # fmt: skip
    section = with_unread(section, "message_unread", count, "deliveries", of_deliveries)
    if is_direction_missing(merged, "to_client"):
        entries_counted = (name for name in total if name.startswith("entr"))
        hidden = ("deliveries", "undelivered", "oldest_undelivered_ts", *entries_counted)
        section["total"] = unseen(section["total"], *hidden)
        section["by_subscription"] = [unseen(row, *hidden) for row in section["by_subscription"]]
        section["backlog"] = None
    return section


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["publish_to_delivery"]["total"]
    return (
        "Time from the last byte of a SEND to the last byte of the MESSAGE that carries its entry "
        "to a consumer's queue, across connections of the same capture. It covers "
        f"{many(total['transit_ms']['count'], 'first delivery', 'first deliveries')} of "
        f"{counted(total['deliveries'], 'delivery', 'deliveries')}."
        f"{not_evaluated(report, total['not_evaluated_by_reason'])}"
    )


SECTION: Final = Section(
    "publish_to_delivery",
    publish_to_delivery,
    about,
    ("transits", "entries", "undelivered", "backlog", "unread", "directions"),
)
