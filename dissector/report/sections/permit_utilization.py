"""Permit utilization: the share of granted permits that is used, and times without permits."""

from typing import Any, Final

from dissector.report import merged_tables, numbers
from dissector.report.formatting import count_text, duration_text, many
from dissector.report.merged_tables import MergedTables
from dissector.report.numbers import Row
from dissector.report.section import Judged, Section, not_evaluated

STALL_US: Final = 1_000_000  # the least duration of a balance of 0, or of silence with permits left
CONFIRM_US: Final = 250_000  # a delivery this soon after the grant proves that messages waited

_NOT_APPLICABLE: Final = "consumers of Cursus grant no permits"

# Counts that need frames of one direction.
_DELIVERED: Final = ("deliveries", "delivered")
_GRANTED: Final = ("grants", "granted", "first_grant")

_LAST: Final = ("last_grant", "last_delivery", "last_ack")
# Stalls and silences by name, and the columns that count them.
_KINDS: Final = {
    "confirmed": "confirmed", "unconfirmed": "unconfirmed", "open_at_end": "open_stall",
    "idle_or_broker_limited": "quiet",
}  # fmt: skip
_TIMES: Final = {kind: (f"{kind}_us", f"{kind}_us_max") for kind in _KINDS.values()}
_IDENTITY: Final = ("capture", "connection_id", "consumer_id", "incarnation")


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _IDENTITY)


def _us(duration_us: int) -> float:
    return duration_us / numbers.US_PER_MS


def _times(consumers: list[Row], *kinds: str) -> Row:
    """The number of stalls of some kinds, their total duration, and the longest.

    kinds: columns of counts; `<kind>_us` and `<kind>_us_max` have their durations.
    """
    count = total = 0
    longest = None
    for kind in kinds:
        us, us_max = _TIMES[kind]
        for row in consumers:
            count += row[kind]
            total += row[us]
            if row[us_max] is not None and (longest is None or longest < row[us_max]):
                longest = row[us_max]
    return {
        "count": count,
        "total_ms": _us(total),
        "longest_ms": None if longest is None else _us(longest),
    }


def _nothing() -> Row:
    """`_times` if no balance is known: unknown, not 0."""
    return {"count": None, "total_ms": None, "longest_ms": None}


def is_judged(row: Row) -> bool:
    """Whether a consumer's known balance shows how it used its permits.

    It does not if every delivery lies outside the time of known balance: grants without deliveries
    would then look like an idle consumer.
    """
    has_all = not row["deliveries"] or not row["unknown_rows"]
    return bool(row["known_rows"] and (row["known_delivered"] or has_all))


def _stalls(consumers: list[Row]) -> Row:
    """Stalls that a grant ended; `confirmed`: a delivery followed within CONFIRM_US.

    consumers: the judged ones; without any, all values are None.
    """
    if not consumers:
        return {**_nothing(), **{name: _nothing() for name in _KINDS}}
    return {
        **_times(consumers, "confirmed", "unconfirmed"),
        **{name: _times(consumers, kind) for name, kind in _KINDS.items()},
    }


def _busy_us(row: Row) -> int:
    """Occupancy times time, µs: the integral of used permits, divided by the first grant."""
    return int(row["occupied"] // row["first_grant"]) if row["first_grant"] else 0


def _drift(row: Row) -> int | None:
    """The balance's maximum less the first grant; None if its start was not seen.

    A client grants as many permits as it has consumed: a balance above its queue's size is an
    excess grant.
    """
    is_whole = row["first_grant"] and not row["unknown_rows"] and row["start_balance"] == 0
    return max(0, row["available_max"] - row["first_grant"]) if is_whole else None


def _group(consumers: list[Row]) -> Row:
    """The numbers of some consumer incarnations together."""
    judged = [row for row in consumers if is_judged(row)]
    observed = sum(row["observed_us"] for row in judged)
    delivered = sum(row["known_delivered"] for row in judged)
    allowed = sum(max(0, row["start_balance"]) + row["known_granted"] for row in judged)
    least = [row["available_min"] for row in judged if row["available_min"] is not None]
    return {
        "grants": sum(row["grants"] for row in consumers),
        "granted": sum(row["granted"] for row in consumers),
        "deliveries": sum(row["deliveries"] for row in consumers),
        "delivered": sum(row["delivered"] for row in consumers),
        "utilization": numbers.share(delivered, max(1, allowed)) if judged else None,
        "utilization_of": {"delivered": delivered, "allowed": allowed} if judged else None,
        "occupancy": numbers.share(sum(_busy_us(row) for row in judged), observed),
        "exhausted_share": numbers.share(sum(row["exhausted_us"] for row in judged), observed),
        "observed_ms": _us(observed),
        "overshoot": max(0, -min(least)) if least else None,
        "drift": numbers.high(_drift(row) for row in judged),
        "unacked_max": numbers.high(row["unacked_max"] for row in judged),
        "stalls": _stalls(judged),
    }


def _summed(consumers: list[Row]) -> Row:
    """The numbers of several consumers, with the counts of those not evaluated."""
    # A consumer that subscribed and has granted nothing yet has a known balance: 0.
    unknown = sum(
        not row["known_rows"] and bool(row["unknown_rows"] or row["available_last"] is None)
        for row in consumers
    )
    partly = sum(bool(is_judged(row) and row["unknown_rows"]) for row in consumers)
    outside = sum(bool(row["known_rows"] and not is_judged(row)) for row in consumers)
    return {
        "consumers": len(consumers),
        **_group(consumers),
        **{
            f"{name}_ts": _at(numbers.high(row[f"{name}_us"] for row in consumers))
            for name in _LAST[1:]
        },
        "baseline_known": unknown + partly + outside == 0 if consumers else None,
        "not_evaluated_by_reason": {
            "baseline_unknown": unknown,
            "delivered_without_known_balance": outside,
            "baseline_known_partly": partly,
        },
    }


def _consumer(row: Row) -> Row:
    names = ("consumer_name", "topic", "subscription", "subscription_type")
    return {
        **{name: row[name] for name in (*_IDENTITY, *names)},
        "first_grant": row["first_grant"],
        **_group([row]),
        **{name: row[name] for name in ("available_last", "unacked_last")},
        **{f"{name}_ts": _at(row[f"{name}_us"]) for name in _LAST},
        "oldest_unacked_frame_no": row["oldest_unacked_frame_no"],
        "baseline_known": row["unknown_rows"] == 0,
        "not_evaluated_by_reason": {"changes_of_unknown_balance": row["unknown_rows"]},
    }


def _at(time_us: int | None) -> str | None:
    return None if time_us is None else numbers.instant(time_us * numbers.NS_PER_US)


def _interest(row: Row) -> tuple[Any, ...]:
    """Sort key of the consumer to draw: longest without permits, then most permits granted."""
    return (-row["exhausted_us"], -row["granted"], numbers.nulls_last(*_identity(row)))


def chosen(consumers: list[Row]) -> Row | None:
    """The consumer whose balance the report draws; None if no balance is known."""
    return min((row for row in consumers if is_judged(row)), key=_interest, default=None)


def _balance(merged: MergedTables, consumers: list[Row]) -> Row | None:
    """One consumer's least, greatest and last balance per step of time."""
    row = chosen(consumers)
    if row is None:
        return None
    points = [
        point for point in merged.rows("balances")
        if _identity(point) == _identity(row) and point["at_ns"] is not None
    ]  # fmt: skip
    points.sort(key=lambda point: int(point["at_ns"]))
    step_ns = merged.steps.get(row["capture"], merged.step_ns)
    names = ("consumer_name", "topic", "subscription", "first_grant")
    return {
        **{name: row[name] for name in (*_IDENTITY, *names)},
        "step_ms": numbers.milliseconds(step_ns),
        "points": [
            {
                "ts": numbers.instant(point["at_ns"]),
                "available_min": point["available_min"],
                "available_max": point["available_max"],
                "available_last": point["available_last"],
            }
            for point in points
        ],
    }


def _stall_rows(merged: MergedTables, consumers: list[Row]) -> list[Row]:
    """The longest stalls, each with the frames that begin and end it; open stalls lack the end."""
    longest = sorted(
        merged.rows("stalls"),
        key=lambda row: (-row["stall_us"], row["start_us"], numbers.nulls_last(*_identity(row))),
    )
    whose = {_identity(row) for row in longest}
    named = {_identity(row): row for row in consumers if _identity(row) in whose}
    names = ("consumer_name", "topic", "subscription")
    return [
        {
            **{name: row[name] for name in _IDENTITY},
            **{name: named.get(_identity(row), {}).get(name) for name in names},
            "start_ts": numbers.instant(row["start_us"] * numbers.NS_PER_US),
            "stall_ms": _us(row["stall_us"]),
            "confirmed": row["confirmed"],
            "start_frame_no": row["start_frame_no"],
            "end_frame_no": row["end_frame_no"],
        }
        for row in longest
    ]


def permit_utilization(merged: MergedTables) -> dict[str, Any]:
    """The section `permit_utilization`: total, by_subscription, by_consumer, longest_stalls."""
    consumers = merged.rows("consumers")
    subscriptions = [
        {
            "topic": topic,
            "subscription": subscription,
            "subscription_type": max(r["subscription_type"] or "" for r in group) or None,
            **_summed(group),
        }
        for (topic, subscription), group in numbers.grouped(
            consumers, ("topic", "subscription")
        ).items()
    ]
    subscriptions.sort(
        key=lambda row: (-row["delivered"], numbers.nulls_last(row["topic"], row["subscription"]))
    )
    listed = [_consumer(row) for row in consumers]
    listed.sort(key=lambda row: (-row["delivered"], numbers.nulls_last(*_identity(row))))
    section: dict[str, Any] = {
        "total": _summed(consumers),
        "by_subscription": subscriptions,
        "by_consumer": listed,
        "longest_stalls": _stall_rows(merged, consumers),
        "balance_over_time": _balance(merged, consumers),
    }
    count = merged_tables.unread(merged, "delivery")
    section = merged_tables.with_unread(section, "message_unread", count, "deliveries", _DELIVERED)
    for direction, keys in (("to_client", _DELIVERED), ("to_broker", _GRANTED)):
        if merged_tables.is_direction_missing(merged, direction):
            section["total"] = numbers.unseen(section["total"], *keys)
            for name in ("by_subscription", "by_consumer"):
                section[name] = [numbers.unseen(row, *keys) for row in section[name]]
    reason = _NOT_APPLICABLE if merged_tables.is_without_permits(merged) else None
    return section | {"total": numbers.applicable(section["total"], reason)}


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["permit_utilization"]["total"]
    if total["not_applicable"]:
        return f"Not applicable: {total['not_applicable']}."
    of = total["utilization_of"]
    shares = (
        f"{many(of['delivered'], 'message')} delivered of {count_text(of['allowed'])} allowed, "
        f"and {duration_text(total['observed_ms'])} of known balance, of all consumers together"
        if of
        else "no consumer whose balance is known"
    )
    return (
        "Share of the messages allowed by consumers (permits) that was delivered to them. It "
        f"covers {shares}.{not_evaluated(report, total['not_evaluated_by_reason'])} Silence "
        "with permits left may be an empty backlog or a limit of the broker; a capture cannot tell."
    )


def _stall_count(total: Row) -> int | None:
    stalls = total["stalls"]
    return None if stalls["count"] is None else stalls["count"] + stalls["open_at_end"]["count"]


SECTION: Final = Section(
    "permit_utilization",
    permit_utilization,
    about,
    ("consumers", "stalls", "balances", "unread", "directions"),
    Judged("permits", _stall_count),
)
