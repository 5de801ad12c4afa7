"""Send latency: from the last byte of a SEND to the last byte of the receipt that answers it."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from dissector.limits import MAX_MINUTE_CELLS, MAX_PASSED_OVER
from dissector.queries.catalogue import catalogue
from dissector.report import numbers
from dissector.report.formatting import many, time_text
from dissector.report.merged_tables import MergedTables, is_direction_missing
from dissector.report.numbers import Row
from dissector.report.section import Judged, Section, counted, not_evaluated

GROUPINGS: Final = {
    "total": (),
    "by_topic": ("topic",),
    "by_producer": ("topic", "producer_name"),
    "by_client": ("client_ip",),
    "by_broker": ("broker_ip",),
}
# The query of distinct messages for each list; total and topic are sums over producers, because a
# message belongs to one topic and one producer but may reach two brokers.
_MESSAGES_OF: Final = {
    "total": "producer",
    "by_topic": "producer",
    "by_producer": "producer",
    "by_client": "client",
    "by_broker": "broker",
}


Group = tuple[Any, ...]
# Outcomes that leave open whether the broker answered.
_NOT_SEEN: Final = (
    "other_side_not_captured", "lost_in_gap", "response_cut", "not_awaited", "orphan_response",
)  # fmt: skip
_UNANSWERED: Final = ("unanswered_at_end", "conn_closed", "dropped_after_close")


# Windows of time, in minutes; hours and days begin at full ones in UTC.
_WINDOWS: Final = {"minute": 1, "hour": 60, "day": 1440}


def _per(window: str, rows: list[Row]) -> list[Row]:
    """The sends of each window of capture time, without windows that have none."""
    width = _WINDOWS[window]
    windows: dict[int, list[Row]] = {}
    for row in rows:
        if row["minute"] is not None:
            windows.setdefault(row["minute"] // width, []).append(row)
    return [
        {window: numbers.instant(number * width * numbers.NS_PER_MINUTE), **_cell(windows[number])}
        for number in sorted(windows)
    ]


def _cell(rows: list[Row]) -> Row:
    """One point of a series over time."""
    latency = numbers.timed(rows, "latencies", "latency_ns")
    return {
        "sends": sum(row["sends"] for row in rows),
        "messages": sum(row["messages"] for row in rows),
        "request_bytes": sum(row["request_bytes"] for row in rows),
        "latencies": latency["count"],
        **{f"{name}_ms": latency[name] for name in ("p50", "p99", "max", "mean")},
    }


class _Lists:
    """The rows of all queries of the section, grouped for one list."""

    def __init__(self, merged: MergedTables, grouping: str) -> None:
        keys = list(GROUPINGS[grouping])
        group = tuple(keys)
        self.grouping = grouping
        self.keys = group
        self.sends = numbers.grouped(merged.rows("sends", [*keys, "outcome"]), group)
        self.minutes = numbers.grouped(
            merged.rows("send_minutes", [*keys, "minute", "bucket"]), group
        )
        self.transmits = numbers.grouped(merged.rows("transmits", [*keys, "bucket"]), group)
        self.logical = numbers.grouped(merged.rows("logical", [*keys, "bucket"]), group)
        self.application = numbers.grouped(merged.rows("application", [*keys, "bucket"]), group)
        clocks = merged.rows("clocks", ["client_ip"]) if grouping == "by_client" else []
        self.ahead_ns = {(row["client_ip"],): row["ahead_ns_max"] for row in clocks}
        messages = numbers.grouped(
            merged.rows("messages", ["grouping", *keys]), ("grouping", *keys)
        )
        self.messages = {
            key[1:]: sum(row["messages"] for row in rows)
            for key, rows in messages.items()
            if key[0] == _MESSAGES_OF[grouping]
        }
        exact = merged.rows("exact") if "exact" in merged.tables else []
        self.exact = {
            (row["measure"], *(row[key] for key in keys)): row
            for row in exact
            if row["grouping"] == grouping
        }
        cells = len({(key, row["minute"]) for key, rows in self.minutes.items() for row in rows})
        is_short = grouping == "total" or cells <= MAX_MINUTE_CELLS
        self.has_minutes = is_short and not merged.only_totals


def _group(lists: _Lists, key: Group) -> Row:
    """The numbers of one group."""
    sends = lists.sends.get(key, [])
    minutes = lists.minutes.get(key, [])
    transmits = lists.transmits.get(key, [])
    logical = lists.logical.get(key, [])
    outcomes = numbers.counts_by(sends, "outcome", "sends")
    requests = [row for row in sends if row["outcome"] != "orphan_response"]
    total = {name: sum(row[name] for row in requests) for name in catalogue()["sends"].sums}
    left_out: dict[str | None, int] = {
        name: outcomes.get(name, 0) for name in numbers.NOT_EVALUATED
    }
    left_out["ok_without_latency"] = outcomes.get("ok", 0) - total["latencies"]
    is_unread = 0 < total["sends"] == total["counts_unknown"]
    return {
        "sends": total["sends"],
        "messages": None if is_unread else lists.messages.get(key, 0),
        "published": None if is_unread else total["published"],
        "stored": None if is_unread else _stored(sends),
        "request_bytes": total["request_bytes"],
        "first_message_ts": numbers.instant(numbers.low(row["message_ns_min"] for row in requests)),
        "last_message_ts": numbers.instant(numbers.high(row["message_ns_max"] for row in requests)),
        "outcomes": numbers.known(outcomes),
        "messages_by_outcome": numbers.known(numbers.counts_by(sends, "outcome", "messages")),
        "tainted": total["tainted"],
        "latency_ms": numbers.timed(
            minutes, "latencies", "latency_ns", lists.exact.get(("latency", *key))
        ),
        "transmit_ms": numbers.durations(
            numbers.histogram(transmits, "transmits"),
            total["transmit_ns"],
            numbers.low(row["transmit_ns_min"] for row in requests),
            numbers.high(row["transmit_ns_max"] for row in requests),
            lists.exact.get(("transmit", *key)),
        ),
        "resent": total["resent"],
        "outstanding_max": numbers.high(row["outstanding_max"] for row in requests),
        "last_receipt_ts": numbers.instant(
            numbers.high(row["response_ns_max"] for row in sends if row["outcome"] == "ok")
        ),
        "oldest_unanswered_ts": numbers.instant(
            numbers.low(row["request_ns_min"] for row in sends if row["outcome"] in _UNANSWERED)
        ),
        "logical_latency_ms": numbers.timed(
            logical, "logicals", "logical_ns", lists.exact.get(("logical", *key))
        ),
        **_application(lists, key),
        "sends_of_unknown_count": total["counts_unknown"],
        "not_evaluated_by_reason": numbers.known(left_out),
        **{
            f"per_{window}": _per(window, minutes) if lists.has_minutes else None
            for window in _WINDOWS
        },
    }


def _application(lists: _Lists, key: Group) -> Row:
    """The applications' waiting times for receipts, and the mean of each part of them."""
    rows = lists.application.get(key, [])
    total = {name: sum(row[name] for row in rows) for name in catalogue()["application"].sums}
    confirmed, published = total["confirmed"], total["published"]
    is_unknown = total["unsteady"] > 0 == confirmed
    parts = {name: (total[f"{name}_ns"], confirmed) for name in ("again", "transmit", "answer")}
    parts["client"] = (total["client_ns"], published)
    clock = {"clock_ahead_ms": numbers.milliseconds(lists.ahead_ns.get(key))}
    return {
        "application_ms": None
        if is_unknown
        else numbers.timed(
            rows, "confirmed", "application_ns", lists.exact.get(("application", *key))
        ),
        "application_parts_ms": {
            name: numbers.milliseconds(numbers.rounded(*parts[name])) if parts[name][1] else None
            for name in ("client", "again", "transmit", "answer")
        },
        "application_since": numbers.known(
            {
                "publish_time": published - total["batches"],
                "batch_closed": total["batches"],
                "first_send": confirmed - published,
            }
        ),
        "application_unknown": {"clock_set_back": total["unsteady"]} if total["unsteady"] else {},
        **(clock if lists.grouping == "by_client" else {}),
    }


def _stored(sends: list[Row]) -> int | None:
    """The number of messages confirmed by receipts with an id; None if no answer was visible."""
    stored = sum(row["messages"] for row in sends if row["outcome"] == "ok")
    is_seen = any(row["sends"] and row["outcome"] not in _NOT_SEEN for row in sends)
    return stored if is_seen or not sends else None


def _over_time(merged: MergedTables) -> Row:
    """The plot's series: finer than minutes if the capture is short."""
    points: dict[int, list[Row]] = {}
    for row in merged.rows("send_points", ["at_ns", "bucket"]):
        if row["at_ns"] is not None:
            points.setdefault(row["at_ns"] // merged.step_ns, []).append(row)
    return {
        "step_ms": numbers.milliseconds(merged.step_ns),
        "points": [
            {"ts": numbers.instant(point * merged.step_ns), **_cell(points[point])}
            for point in sorted(points)
        ],
    }


def _passed_over(merged: MergedTables) -> list[Row]:
    """Sends never answered although later ones of their producer were, in order."""
    rows = merged.rows("passed_over")
    rows.sort(
        key=lambda row: numbers.nulls_last(row["at_ns"], row["capture"], row["request_frame_no"])
    )
    for row in rows:
        row["ts"] = numbers.instant(row.pop("at_ns"))
    return rows


def send_latency(merged: MergedTables) -> dict[str, Any]:
    """The section `send_latency`: total, its lists, and passed_over."""
    section: dict[str, Any] = {}
    for grouping, keys in GROUPINGS.items():
        if keys and merged.only_totals:
            continue
        lists = _Lists(merged, grouping)
        if grouping == "total":
            section["total"] = _group(lists, ())
            buckets = numbers.histogram(lists.minutes.get((), []), "latencies")
            section["total"]["latency_histogram"] = [list(item) for item in sorted(buckets.items())]
            section["total"]["over_time"] = None if merged.only_totals else _over_time(merged)
            continue
        groups = [
            {**dict(zip(keys, key, strict=True)), **_group(lists, key)} for key in lists.sends
        ]
        groups.sort(
            key=lambda row: (-row["sends"], numbers.nulls_last(*(row[key] for key in keys)))
        )
        section[grouping] = groups
    section["total"]["passed_over"] = sum(
        row["passed_over"] for row in merged.rows("passed_over_counts")
    )
    section["passed_over"] = _passed_over(merged)[:MAX_PASSED_OVER]
    if is_direction_missing(merged, "to_broker"):
        keys = ("sends", "messages", "request_bytes", "resent")
        for name, content in section.items():
            if name == "passed_over":
                continue
            section[name] = (
                numbers.unseen(content, *keys)
                if name == "total"
                else [numbers.unseen(row, *keys) for row in content]
            )
    return section


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["send_latency"]["total"]
    trip = report["connecting"]["total"]["network_round_trip_ms"]
    nearer = report["requests"]["total"]["tap_nearer_to"]
    where = (
        f"certainly nearer to the {nearer}"
        if nearer
        else "whether nearer to client or broker is not certain"
    )
    path = (
        f" The round trip of the whole path took {time_text(trip, 'p50')} (median of "
        f"{many(trip['count'], 'handshake')})."
        if trip["count"]
        else ""
    )
    return (
        "Time from the last byte of a SEND to the last byte of its receipt, at the place of the "
        f"capture ({where}): the broker's work and the network beyond that place.{path}"
        f" It covers {many(total['latency_ms']['count'], 'receipt')} for "
        f"{counted(total['sends'], 'send')}; refused sends and receipts without an id are no "
        f"latencies.{not_evaluated(report, total['not_evaluated_by_reason'])}"
    )


def _unconfirmed(total: Row) -> int:
    count: int = (total["sends"] or 0) - total["outcomes"].get("ok", 0)
    return count or total["resent"]


SECTION: Final = Section(
    "send_latency", send_latency, about,
    ("sends", "send_minutes", "transmits", "logical", "application", "clocks", "messages",
     "send_points", "passed_over", "passed_over_counts", "directions"),
    Judged("sends", _unconfirmed),
)  # fmt: skip


# -- percentiles of the values themselves (`--exact`): they cannot be merged, so none are cached

VALUES: Final = "send_values"
_EXACT_NAMES: Final = ("topic", "producer_name", "client_ip", "broker_ip")


def _ranked(grouping: str, keys: tuple[str, ...]) -> str:
    part = ", ".join(("measure", *keys))
    names = ", ".join(
        name if name in keys else f"CAST(NULL AS STRING) AS {name}" for name in _EXACT_NAMES
    )
    values = ", ".join(
        f"min(CASE WHEN place >= greatest(1, floor_div(number * {permille} + 999, 1000)) "
        f"THEN value_ns END) AS {name}"
        for name, permille in numbers.PERCENTILES
    )
    return (
        f"SELECT '{grouping}' AS grouping, {names}, measure, {values} FROM ("
        f"SELECT {part}, value_ns, sum(sends) OVER (PARTITION BY {part} ORDER BY value_ns) "
        f"AS place, sum(sends) OVER (PARTITION BY {part}) AS number FROM timed) AS numbered "
        f"GROUP BY {part}"
    )


def exact(table: Callable[[str], pa.Table], values: str) -> pa.Table:
    """All percentiles: one row per list, measure and group.

    Columns: grouping, the name of a list of the section; topic, producer_name, client_ip,
    broker_ip, null unless the list has them; measure: latency, transmit, logical or application;
    a column per percentile, ns: the value of rank ceil(count * share), from 1.

    Args:
        table: runs a query. values: the query of all rows of `queries/exact/send_values.sql`.
    """
    ranked = " UNION ALL ".join(_ranked(name, keys) for name, keys in GROUPINGS.items())
    return table(f"WITH timed AS (\n{values}\n) {ranked}")
