"""Connecting: how long clients take to find their broker and open something, and storms of it."""

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from dissector.buckets import bucket_of
from dissector.report.names import without_twins
from dissector.report.numbers import NS_PER_S, Row, durations, instant, milliseconds, nulls_last
from dissector.report.parts import SETUP_COMMANDS, Parts
from dissector.report.unread import unread_requests

MAX_CHAINS: Final = 50  # the slowest ones
MAX_BURSTS: Final = 50
MAX_CLOSED: Final = 1000
BURST_SPAN_NS: Final = 10 * NS_PER_S
BURST: Final = 10  # connections from one client to one broker within that time
# A step as old as this belongs to another attempt: clients wait a minute at most between two.
CHAIN_PAUSE_NS: Final = 120 * NS_PER_S
_LAST_STEPS: Final = ("PRODUCER", "SUBSCRIBE")


def _spread(values_ns: Iterable[int]) -> Row:
    """`durations` of single values."""
    values = list(values_ns)
    buckets: dict[int, int] = {}
    for value in values:
        bucket = int(bucket_of(value))
        buckets[bucket] = buckets.get(bucket, 0) + 1
    return durations(buckets, sum(values), min(values, default=None), max(values, default=None))


def _took(steps: list[Row], *commands: str) -> float:
    """How long the steps of some commands took together, ms."""
    found = sum(
        step["response_last_ns"] - step["request_first_ns"]
        for step in steps
        if step["request_command"] in commands and step["response_last_ns"] is not None
    )
    return milliseconds(max(0, found)) or 0.0


def _chain(steps: list[Row]) -> Row:
    """One chain. steps: in order, the last one opened the producer or consumer."""
    last = steps[-1]
    took = last["response_last_ns"] - steps[0]["request_first_ns"]
    parts = {
        "lookup_ms": _took(steps, "LOOKUP", "PARTITIONED_METADATA"),
        "connect_ms": _took(steps, "CONNECT"),
        "open_ms": _took(steps, *_LAST_STEPS),
    }
    return {
        "chain_ms": milliseconds(took),
        "chain_ns": took,
        "ts": instant(steps[0]["request_first_ns"]),
        "topic": last["topic"],
        "opened": last["request_command"],
        "client_ip": last["client_ip"],
        **parts,
        # Steps of one chain may overlap, where a client connects to two brokers at once.
        "pauses_ms": max(0.0, round((milliseconds(took) or 0.0) - sum(parts.values()), 3)),
        "lookups": sum(step["request_command"] == "LOOKUP" for step in steps),
        "refused": sum(step["outcome"] == "error" for step in steps),
        "capture": last["capture"],
        "connection_id": last["connection_id"],
        "request_frame_no": steps[0]["request_frame_no"],
        "response_frame_no": last["response_frame_no"],
    }


def chains(setup: list[Row], wholes: Mapping[str, str] = MappingProxyType({})) -> list[Row]:
    """From the first question for a topic to the producer or consumer that is open on it.

    A chain is what one client asked for one topic, and the CONNECT of the connection on which it
    then opened it, if that lies in between; PRODUCER and SUBSCRIBE end a chain when they succeed.
    setup: rows of SETUP; those without a time are left out. wholes: as in Parts.
    """
    waiting: dict[tuple[Any, ...], list[Row]] = {}
    connects: dict[tuple[Any, ...], Row] = {}
    found = []
    order = sorted(
        (row for row in setup if row["request_first_ns"] is not None),
        key=lambda row: (row["request_first_ns"], nulls_last(row["request_frame_no"])),
    )
    for row in order:
        place = (row["capture"], row["connection_id"])
        if row["request_command"] == "CONNECT":
            connects[place] = row
            continue
        if row["topic"] is None:
            continue
        capture = wholes.get(row["capture"], row["capture"])
        key = (capture, row["client_ip"], row["topic"])
        steps = waiting.setdefault(key, [])
        if steps and row["request_first_ns"] - steps[-1]["request_first_ns"] > CHAIN_PAUSE_NS:
            steps.clear()
        steps.append(row)
        is_open = row["request_command"] in _LAST_STEPS and row["outcome"] == "ok"
        if is_open and row["response_last_ns"] is not None:
            connect = connects.get(place)
            first = steps[0]["request_first_ns"]
            if connect is not None and connect["request_first_ns"] >= first:
                steps.insert(len(steps) - 1, connect)
            chain = _chain(steps)
            if chain["chain_ns"] >= 0:  # else the clock was set back meanwhile
                found.append(chain)
            del waiting[key]
    return found


def _is_vain(leg: Row) -> bool:
    """Whether a connection came to nothing: no handshake, and no byte of payload either."""
    return leg["handshake_rtt_ns"] is None and leg["protocol"] == "none"


def _bursts(legs: list[Row], parts: Parts) -> tuple[list[Row], int]:
    """Per client and broker the most connections opened within BURST_SPAN_NS; and the most of all.

    legs: connections whose opening was captured.
    """
    pairs: dict[tuple[Any, ...], list[Row]] = {}
    for leg in sorted(legs, key=lambda leg: (leg["first_ts_ns"], leg["connection_id"])):
        key = (parts.whole_of(leg), leg["client_ip"], leg["broker_ip"], leg["broker_port"])
        pairs.setdefault(key, []).append(leg)
    found = []
    most = 0
    for (_, client, broker, port), opened in pairs.items():
        window: deque[Row] = deque()
        peak, at = 0, None
        for leg in opened:
            window.append(leg)
            while leg["first_ts_ns"] - window[0]["first_ts_ns"] > BURST_SPAN_NS:
                window.popleft()
            if len(window) > peak:
                peak, at = len(window), window[0]["first_ts_ns"]
        most = max(most, peak)
        if peak >= BURST:
            found.append(
                {
                    "client_ip": client, "broker_ip": broker, "broker_port": port,
                    "opened": len(opened), "opened_within_10_s": peak, "ts": instant(at),
                    "not_established": sum(map(_is_vain, opened)),
                    "capture": opened[0]["capture"],
                }
            )  # fmt: skip
    found.sort(
        key=lambda row: (
            -row["opened_within_10_s"],
            nulls_last(row["client_ip"], row["broker_ip"], row["broker_port"], row["capture"]),
        )
    )
    return found, most


def _closed(parts: Parts) -> list[Row]:
    """Producers and consumers that the broker closed, in the order of their frames.

    Those that it refused were never open.
    """
    found = []
    for what, table in (("producer", parts.names.producers), ("consumer", parts.names.consumers)):
        for row in without_twins(table, parts.names).to_pylist():
            is_closed = row["closed_by"] == "broker" and row["refused_code"] is None
            if is_closed and parts.is_counted(row):
                found.append(
                    {
                        "what": what, "topic": row["topic"], "name": row["name"],
                        "subscription": row.get("subscription"), "capture": row["capture"],
                        "connection_id": row["connection_id"],
                        "closed_frame_no": row["closed_frame_no"],
                    }
                )  # fmt: skip
    found.sort(key=lambda row: nulls_last(row["capture"], row["closed_frame_no"], row["what"]))
    return found


def connecting(parts: Parts) -> dict[str, Any]:
    """The section `connecting`: total, slowest_chains, bursts, closed_by_broker."""
    legs: list[Row] = [leg for leg in parts.names.legs.to_pylist() if parts.is_counted(leg)]
    opened = [leg for leg in legs if leg["started"] == "syn" and leg["first_ts_ns"] is not None]
    round_trips = [leg["handshake_rtt_ns"] for leg in opened if leg["handshake_rtt_ns"] is not None]
    bursts, most = _bursts(opened, parts)
    closed = _closed(parts)
    found = chains(parts.tables["setup"].to_pylist(), parts.wholes)
    total = {
        "connections": len(legs),
        "opened": len(opened),
        "not_established": sum(map(_is_vain, opened)),
        "network_round_trip_ms": _spread(round_trips),
        "opened_within_10_s": most if opened else None,
        "bursts": len(bursts),
        "closed_by_broker": {
            # An attempt that was refused was none.
            "connections": sum(
                leg["closed_first_by"] == "broker" and not _is_vain(leg) for leg in legs
            ),
            "producers": sum(row["what"] == "producer" for row in closed),
            "consumers": sum(row["what"] == "consumer" for row in closed),
        },
        "chains": len(found),
        "chain_ms": _spread(chain.pop("chain_ns") for chain in found),
        "chains_with_refusals": sum(chain["refused"] > 0 for chain in found),
        "not_judged": {
            "opened_before_capture": len(legs) - len(opened),
            "request_unread": unread_requests(parts, SETUP_COMMANDS),
        },
    }
    found.sort(
        key=lambda row: (
            -row["chain_ms"],
            row["ts"],
            nulls_last(row["capture"], row["response_frame_no"]),
        )
    )
    return {
        "total": total,
        "slowest_chains": found[:MAX_CHAINS],
        "bursts": bursts[:MAX_BURSTS],
        "closed_by_broker": closed[:MAX_CLOSED],
    }
