"""The main numbers of a report, the slow and plain way: one loop over rows per number.

Rows are plain dictionaries of the lake's tables of one capture. Nothing is summed by key first,
nothing is bounded, and names learnt late are filled in before anything else.
"""

from bisect import bisect_left
from typing import Any

Row = dict[str, Any]
Tables = dict[str, list[Row]]
_SECOND_US = 1_000_000


def _late(rows: list[Row], source: list[Row], number: str, into: dict[str, str]) -> list[Row]:
    """Rows with what became known of their producer or consumer later."""
    known: dict[tuple[Any, ...], Row] = {}
    for each in source:
        key = (each["connection_id"], each[number], each["incarnation"])
        for name in into:
            held = known.setdefault(key, {})
            if each.get(name) is not None:
                held[name] = min(held.get(name, each[name]), each[name])
    filled = []
    for row in rows:
        late = known.get((row["connection_id"], row.get(number), row.get("incarnation")), {})
        more = {target: late.get(name) for name, target in into.items() if row.get(target) is None}
        filled.append(row | more)
    return filled


def settled(tables: Tables) -> Tables:
    """Tables without the second legs of proxied connections, and with all names."""
    twins = {
        row["connection_id"] for row in tables["connections"]
        if row.get("leg") == "broker" and row.get("twin_connection_id") is not None
    }  # fmt: skip
    once = {
        name: [row for row in rows if row.get("connection_id") not in twins]
        for name, rows in tables.items()
    }
    producer = {"topic": "topic", "name": "producer_name"}
    consumer = {"topic": "topic", "subscription": "subscription"}
    return once | {
        "exchanges": _late(once["exchanges"], tables["producers"], "producer_id", producer),
        "deliveries": _late(once["deliveries"], tables["consumers"], "consumer_id", consumer),
        "acks": _late(once["acks"], tables["consumers"], "consumer_id", consumer),
        "permits": _late(once["permits"], tables["consumers"], "consumer_id", consumer),
    }


def _counted(values: list[Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value or "unknown"] = counts.get(value or "unknown", 0) + 1
    return counts


def _message_id(row: Row) -> int | None:
    """The sequence id; the checksum for a replicator, which sends on for several producers."""
    is_replicator = (row["producer_name"] or "").startswith("pulsar.repl.")
    has_crc = row.get("crc32c_stored") is not None and row["sequence_id"] is not None
    number: int | None = row["crc32c_stored"] if is_replicator and has_crc else row["sequence_id"]
    return number


def send_latency(tables: Tables) -> Row:
    """Counts of sends, and their latencies in ns, sorted."""
    sends = [row for row in tables["exchanges"] if row["kind"] == "publish"]
    asked = [row for row in sends if row["outcome"] != "orphan_response"]
    largest: dict[tuple[Any, ...], int] = {}
    unknown = 0
    for row in asked:
        if row["message_count"] is None:
            unknown += 1
            continue
        key = (row["topic"], row["producer_name"], _message_id(row))
        if None in key[:2]:
            key = (*key, row["connection_id"], row["producer_id"], row["incarnation"])
        largest[key] = max(largest.get(key, 0), row["message_count"])
    timed = sorted(
        row["latency_ns"] for row in asked
        if row["outcome"] == "ok" and row["latency_ns"] is not None
    )  # fmt: skip
    return {
        "sends": len(asked),
        "outcomes": _counted([row["outcome"] for row in sends]),
        "tainted": sum(bool(row["tainted"]) for row in asked),
        "resent": sum((row["attempt"] or 1) > 1 for row in asked),
        "request_bytes": sum(row["request_bytes"] for row in asked),
        "latencies": timed,
    }


def distinct_messages(tables: Tables) -> int:
    """Messages by distinct (topic, producer, sequence id), each with its largest count."""
    largest: dict[tuple[Any, ...], int] = {}
    for row in tables["exchanges"]:
        if row["kind"] == "publish" and row["outcome"] != "orphan_response":
            key = (row["topic"], row["producer_name"], _message_id(row))
            largest[key] = max(largest.get(key, 0), row["message_count"] or 0)
    return sum(largest.values())


def percentile(values: list[int], permille: int) -> int:
    """The smallest value that this share does not exceed."""
    return values[max(1, -(-len(values) * permille // 1000)) - 1]


def redelivery(tables: Tables) -> Row:
    """Deliveries, and those that came again."""
    again = [row for row in tables["deliveries"] if row["is_redelivered"]]
    return {
        "deliveries": len(tables["deliveries"]),
        "messages": sum(row["message_count"] or 0 for row in tables["deliveries"]),
        "redelivered": len(again),
        "redelivered_messages": sum(row["message_count"] or 0 for row in again),
        "by_cause": _counted([row["redelivery_cause"] for row in again]),
        "counted_by_broker": sum(
            (row["redelivery_count"] or 0) > 0 for row in tables["deliveries"]
        ),
        "delivery_outcomes": _counted([row["outcome"] for row in tables["deliveries"]]),
        "ids_requested": sum(
            row["action"] == "redeliver" and row["ledger_id"] is not None for row in tables["acks"]
        ),
    }


def permits(tables: Tables, *, is_all_observed: bool = False) -> Row:
    """Grants, deliveries, time without permits, and stalls; times of consumers that are judged."""
    consumers: dict[tuple[int, int, int], list[Row]] = {}
    for row in tables["permits"]:
        key = (row["connection_id"], row["consumer_id"], row["incarnation"])
        consumers.setdefault(key, []).append(row)
    ends = {row["connection_id"]: row["last_ts_ns"] // 1000 for row in tables["connections"]}
    times = {(row["connection_id"], row["frame_no"]): row["ts"] for row in tables.get("frames", ())}
    closed = {
        (row["connection_id"], row["consumer_id"], row["incarnation"]): times[place]
        for row in tables.get("consumers", ())
        if (place := (row["connection_id"], row["closed_frame_no"])) in times
    }
    stalls: list[int] = []
    exhausted = observed = 0
    for key, rows in consumers.items():
        if not (is_all_observed or _is_judged(rows)):
            continue
        end_us = closed.get(key, ends.get(key[0], 0))
        spent, seen, found = _balance(rows, max(end_us, rows[-1]["ts"]))
        exhausted += spent
        observed += seen
        stalls += found
    grants = [row for row in tables["permits"] if row["event"] == "grant"]
    taken = [row for row in tables["permits"] if row["event"] == "delivery"]
    return {
        "consumers": len(consumers),
        "grants": len(grants),
        "granted": sum(row["delta"] or 0 for row in grants),
        "deliveries": len(taken),
        "delivered": -sum(row["delta"] or 0 for row in taken),
        "exhausted_us": exhausted,
        "observed_us": observed,
        "stalls_us": sorted(stalls),
    }


def _is_judged(rows: list[Row]) -> bool:
    """Whether the balance was known while the consumer was delivered something."""
    changes = [row for row in rows if row["event"] != "reset"]
    known = [row for row in changes if row["available_after"] is not None]
    taken = [row for row in known if row["event"] == "delivery" and row["delta"]]
    is_idle = all(row["event"] != "delivery" for row in changes)
    return bool(known) and (bool(taken) or is_idle or len(known) == len(changes))


def _balance(rows: list[Row], end_us: int) -> tuple[int, int, list[int]]:
    """Time without permits, observed time, and ended stalls of one consumer, in µs."""
    exhausted = observed = 0
    stalls = []
    is_started = False
    empty_since: int | None = None
    for place, row in enumerate(rows):
        if row["event"] == "reset":
            is_started = False
        elif row["event"] == "grant" and (row["delta"] or 0) > 0:
            is_started = True
        is_active = is_started and row["available_after"] is not None and row["event"] != "reset"
        until = rows[place + 1]["ts"] if place + 1 < len(rows) else end_us
        passed = max(0, until - row["ts"]) if is_active else 0
        observed += passed
        is_empty = is_active and row["available_after"] <= 0
        if is_empty:
            exhausted += passed
            empty_since = row["ts"] if empty_since is None else empty_since
        elif empty_since is not None:
            if is_active and row["event"] == "grant" and row["ts"] - empty_since >= _SECOND_US:
                stalls.append(row["ts"] - empty_since)
            empty_since = None
    return exhausted, observed, stalls


def checksums(tables: Tables) -> dict[str, int]:
    """Frames by checksum."""
    return _counted([row["checksum"] for row in tables["frames"] if row["checksum"] is not None])


def within(buckets: list[list[int]], values: list[int], edges: list[int]) -> bool:
    """Whether a histogram counts these sorted values. edges: upper bound of each bucket."""
    reached = 0
    for place, (_, count) in enumerate(buckets):
        reached += count
        if bisect_left(values, edges[place] + 1) != reached:
            return False
    return reached == len(values)
