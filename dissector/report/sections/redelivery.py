"""Redelivery: entries delivered more than once, with causes; retry and dead letter publishes."""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from dissector.limits import MAX_EXAMPLES
from dissector.queries.selection import Selection
from dissector.report import numbers
from dissector.report.merged_tables import MergedTables, is_direction_missing, unread, with_unread
from dissector.report.numbers import Row
from dissector.report.section import Judged, Section, counted, not_evaluated

# Causes requested by the application; the other causes lie in the infrastructure.
ASKED_FOR: Final = ("explicit", "txn_abort")
_ASIDE: Final = re.compile(r"^(?P<origin>.*)-(?P<kind>DLQ|RETRY)(?:-partition-\d+)?$")
_KINDS: Final = {"DLQ": "dead_letter_publishes", "RETRY": "retry_publishes"}

# Counts that need MESSAGE frames.
_OF_DELIVERIES: Final = (
    "deliveries", "messages", "redelivered", "redelivered_messages", "asked_for", "infrastructure",
    "counted_by_broker", "seen_before", "compacted_out",
)  # fmt: skip

_EXAMPLE: Final = (
    "capture", "connection_id", "frame_no", "previous_frame_no", "packet", "at_us", "topic",
    "subscription", "consumer_id", "incarnation", "consumer_name", "ledger_id", "entry_id",
    "message_count", "redelivery_count", "redelivery_cause", "closed_first_by", "is_refused",
)  # fmt: skip

Group = tuple[Any, ...]
# Deliveries, redelivery requests, delays, and publishes to retry and dead letter topics.
_Lists = tuple[list[Row], list[Row], list[Row], list[Row]]


def has_identity(topic: str | None) -> bool:
    """Whether entries of a topic have ids: entries of non-persistent topics are all 0:0."""
    return not (topic or "").startswith("non-persistent://")


def _origin(row: Row, origins: dict[str, Group]) -> tuple[str | None, Any, Any]:
    """Kind of a publish to a retry or dead letter topic, and its original (topic, subscription).

    They are read from the properties (Pulsar: REAL_TOPIC), else from the topic's name,
    `<topic>-<subscription>-DLQ`, if a subscription of that name was seen.
    """
    named = _ASIDE.match(row["topic"] or "")
    kind = _KINDS[named["kind"]] if named else None
    # The C++ client sets REAL_TOPIC alone, and the application may choose the topic's name.
    if kind is None and (row["has_reconsume_times"] or row["real_topic"] is not None):
        kind = "other_reconsume_publishes"
    from_name = origins.get(named["origin"], (None, None)) if named else (None, None)
    topic = row["real_topic"] or from_name[0]
    return kind, topic, row["real_subscription"] or from_name[1]


def _is_selected(
    selection: Selection, topics: Iterable[str | None], subscription: str | None
) -> bool:
    """Whether a publish is selected by one of its topics, its own and the original one, and by the
    original subscription."""
    return (
        not selection.topics or any(name and selection.has_topic(name) for name in topics)
    ) and (not selection.subscriptions or subscription in selection.subscriptions)


def _aside(merged: MergedTables, pairs: set[Group]) -> list[Row]:
    """Publishes to retry and dead letter topics, by original topic and subscription."""
    origins = {f"{topic}-{subscription}": (topic, subscription) for topic, subscription in pairs}
    publishes = []
    for row in merged.rows("reconsumed"):
        kind, topic, subscription = _origin(row, origins)
        if kind is not None and _is_selected(merged.selection, (row["topic"], topic), subscription):
            publishes.append(
                {
                    "kind": kind,
                    "topic": topic,
                    "subscription": subscription,
                    # The Go client batches dead letters; an unknown message count counts as 1.
                    "publishes": max(row["publishes"], row["messages"] or 0),
                }
            )
    return publishes


def _publishes(aside: list[Row], kind: str) -> int:
    return sum(row["publishes"] for row in aside if row["kind"] == kind)


def _causes(redelivered: list[Row]) -> Row:
    causes = numbers.counts_by(redelivered, "redelivery_cause", "deliveries")
    by_request = sum(count for cause, count in causes.items() if cause in ASKED_FOR)
    return {
        "by_cause": numbers.known(causes),
        "messages_by_cause": numbers.known(
            numbers.counts_by(redelivered, "redelivery_cause", "messages")
        ),
        "asked_for": by_request,
        "infrastructure": sum(causes.values()) - by_request,
    }


def _group(deliveries: list[Row], requests: list[Row], delays: list[Row], aside: list[Row]) -> Row:
    """The numbers of one group of deliveries."""
    redelivered = [row for row in deliveries if row["is_redelivered"]]
    judged = [row for row in deliveries if has_identity(row["topic"])]
    without_identity = sum(row["deliveries"] for row in deliveries) - sum(
        row["deliveries"] for row in judged
    )
    return {
        "deliveries": sum(row["deliveries"] for row in deliveries),
        "messages": sum(row["messages"] for row in deliveries),
        "redelivered": sum(row["deliveries"] for row in redelivered),
        "redelivered_messages": sum(row["messages"] for row in redelivered),
        "rate_messages": numbers.share(
            sum(row["messages"] for row in redelivered if has_identity(row["topic"])),
            sum(row["messages"] for row in judged),
        ),
        "rate_entries": numbers.share(
            sum(row["deliveries"] for row in redelivered if has_identity(row["topic"])),
            sum(row["deliveries"] for row in judged),
        ),
        **_causes(redelivered),
        "counted_by_broker": sum(row["counted_by_broker"] for row in deliveries),
        "seen_before": sum(row["seen_before"] for row in deliveries),
        "max_redelivery_count": numbers.high(row["redelivery_count_max"] for row in deliveries),
        "ids_requested": sum(row["ids_requested"] for row in requests),
        "requests_for_all": sum(row["requests_for_all"] for row in requests),
        "asked_after_ms": _delay(delays, "asked"),
        "came_after_ms": _delay(delays, "came"),
        "dead_letter_publishes": _publishes(aside, "dead_letter_publishes"),
        "retry_publishes": _publishes(aside, "retry_publishes"),
        "other_reconsume_publishes": _publishes(aside, "other_reconsume_publishes"),
        "delivery_outcomes": numbers.known(numbers.counts_by(deliveries, "outcome", "deliveries")),
        "not_evaluated_by_reason": numbers.known(
            {
                "no_identity": without_identity,
                "message_count_unknown": sum(row["counts_unknown"] for row in deliveries),
                "subscribed_before_capture": sum(
                    row["deliveries"]
                    for row in deliveries
                    if row["is_older"] and not row["is_redelivered"]
                ),
            }
        ),
    }


def _delay(delays: list[Row], which: str) -> Row:
    return numbers.timed([row for row in delays if row["which"] == which], "delays", "delay_ns")


def _listed(rows_of: _Lists, keys: Group) -> list[Row]:
    groups: dict[Group, _Lists] = {}
    for index, rows in enumerate(rows_of):
        for row in rows:
            key = tuple(row[name] for name in keys)
            if index == 3 and key not in groups:
                continue  # the original topic has no delivery in the capture: in the total only
            groups.setdefault(key, ([], [], [], []))[index].append(row)
    listed = [
        {**dict(zip(keys, key, strict=True)), **_group(*lists)} for key, lists in groups.items()
    ]
    listed.sort(
        key=lambda row: (
            -row["redelivered"],
            -row["deliveries"],
            numbers.nulls_last(*(row[k] for k in keys)),
        )
    )
    return listed


def _examples(redelivered: list[Row]) -> list[Row]:
    """The first redelivered entries by time, with the first of each cause."""
    rows = numbers.by_time(redelivered, _EXAMPLE)
    first: dict[str | None, int] = {}
    for place, row in enumerate(rows):
        first.setdefault(row["redelivery_cause"], place)
    kept = {*first.values()}
    rest = (place for place in range(len(rows)) if place not in kept)
    kept.update(islice(rest, max(MAX_EXAMPLES - len(kept), 0)))
    return [rows[place] for place in sorted(kept)]


def redelivery(merged: MergedTables) -> dict[str, Any]:
    """The section `redelivery`: total, by_topic, by_subscription, examples."""
    deliveries = merged.rows("deliveries")
    requests = merged.rows("redeliver_requests")
    pairs = {
        (row["topic"], row["subscription"])
        for row in (*deliveries, *requests)
        if row["topic"] is not None and row["subscription"] is not None
    }
    aside = _aside(merged, pairs)
    emptied = {row["topic"]: row["placeholders"] for row in merged.rows("placeholders")}
    lists = (deliveries, requests, merged.rows("redelivery_delays"), aside)
    by_topic = _listed(lists, ("topic",))
    section: dict[str, Any] = {
        "total": {
            **_group(*lists),
            "compacted_out": sum(emptied.values()),
        },
        "by_topic": [{**row, "compacted_out": emptied.get(row["topic"], 0)} for row in by_topic],
        "by_subscription": _listed(lists, ("topic", "subscription")),
        "examples": _examples(merged.rows("redelivered")),
    }
    count = unread(merged, "delivery")
    section = with_unread(section, "message_unread", count, "deliveries", _OF_DELIVERIES)
    if is_direction_missing(merged, "to_client"):
        section["total"] = numbers.unseen(section["total"], *_OF_DELIVERIES)
        for name in ("by_topic", "by_subscription"):
            section[name] = [numbers.unseen(row, *_OF_DELIVERIES) for row in section[name]]
    return section


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["redelivery"]["total"]
    return (
        "Share of deliveries to clients' queues that were not the first of their entry, by the "
        "broker's count or by an id seen before. It covers "
        f"{counted(total['deliveries'], 'delivery', 'deliveries')} with "
        f"{counted(total['messages'], 'message')}, and is a lower bound: deliveries "
        "before the capture are known only if the broker counts them."
        f"{not_evaluated(report, total['not_evaluated_by_reason'])}"
    )


SECTION: Final = Section(
    "redelivery", redelivery, about,
    ("deliveries", "redeliver_requests", "redelivery_delays", "placeholders", "reconsumed",
     "redelivered", "unread", "directions"),
    Judged("redelivery", lambda total: total["redelivered"]),
)  # fmt: skip
