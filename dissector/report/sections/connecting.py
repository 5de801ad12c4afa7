"""Connecting: how long clients take to find their broker and open something, and storms of it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.blocks import Int64Array
from dissector.buckets import buckets_of
from dissector.report.bursts import bursts_of
from dissector.report.names import without_twins
from dissector.report.numbers import NS_PER_S, Row, durations, instant, milliseconds, nulls_last
from dissector.report.parts import SETUP_COMMANDS, Parts
from dissector.report.rows import Mask
from dissector.report.unread import unread_requests

MAX_CHAINS: Final = 50  # the slowest ones
MAX_BURSTS: Final = 50
MAX_CLOSED: Final = 1000
BURST: Final = 10  # connections from one client to one broker within that time
# A step as old as this belongs to another attempt: clients wait a minute at most between two.
CHAIN_PAUSE_NS: Final = 120 * NS_PER_S
_LAST_STEPS: Final = ("PRODUCER", "SUBSCRIBE")


def _spread(values_ns: Sequence[int] | Int64Array) -> Row:
    """`durations` of single values."""
    values = np.asarray(values_ns, np.int64)
    if not len(values):
        return durations({}, 0, None, None)
    buckets, counts = np.unique(buckets_of(values), return_counts=True)
    found = dict(zip(buckets.tolist(), counts.tolist(), strict=True))
    return durations(found, int(values.sum()), int(values.min()), int(values.max()))


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


def _is_vain(legs: pa.Table) -> Mask:
    """Which connections came to nothing: no handshake, and no byte of payload either.

    Where nothing of the client was captured, its part of the handshake is not known.
    """
    is_without = pc.fill_null(pc.equal(legs.column("protocol"), "none"), False)
    is_tried = pc.fill_null(pc.greater(legs.column("packets_to_broker"), 0), True)
    is_vain = pc.and_(pc.and_(pc.is_null(legs.column("handshake_rtt_ns")), is_without), is_tried)
    found: Mask = is_vain.to_numpy()
    return found


def _bursts(opened: pa.Table, parts: Parts) -> tuple[list[Row], int]:
    """Per client and broker the most connections opened within ten seconds; and the most of all.

    opened: connections whose opening was captured.
    """
    if not opened.num_rows:
        return [], 0
    pairs = bursts_of(opened, parts.wholes_of(opened), _is_vain(opened))
    chosen = np.flatnonzero(pairs.peak >= BURST)
    names = ("client_ip", "broker_ip", "broker_port", "capture")
    ends = opened.select(names).take(pa.array(pairs.first[chosen])).to_pylist()
    found = [
        {
            **{name: end[name] for name in names[:3]},
            "opened": int(pairs.opened[pair]), "opened_within_10_s": int(pairs.peak[pair]),
            "ts": instant(int(pairs.at_ns[pair])), "not_established": int(pairs.vain[pair]),
            "capture": end["capture"],
        }
        for pair, end in zip(chosen.tolist(), ends, strict=True)
    ]  # fmt: skip
    found.sort(
        key=lambda row: (
            -row["opened_within_10_s"],
            nulls_last(row["client_ip"], row["broker_ip"], row["broker_port"], row["capture"]),
        )
    )
    return found, int(pairs.peak.max())


def _closed(parts: Parts) -> list[Row]:
    """Producers and consumers that the broker closed, in the order of their frames.

    Those that it refused were never open.
    """
    found = []
    for what, table in (("producer", parts.names.producers), ("consumer", parts.names.consumers)):
        is_closed = pc.fill_null(pc.equal(table.column("closed_by"), "broker"), False)
        table = table.filter(pc.and_(is_closed, pc.is_null(table.column("refused_code"))))
        for row in without_twins(table, parts.names).to_pylist():
            if parts.is_counted(row):
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
    legs = parts.counted(parts.names.legs)
    is_syn = pc.fill_null(pc.equal(legs.column("started"), "syn"), False)
    opened = legs.filter(pc.and_(is_syn, pc.is_valid(legs.column("first_ts_ns"))))
    round_trips = opened.column("handshake_rtt_ns").drop_null().to_numpy()
    is_closed = pc.fill_null(pc.equal(legs.column("closed_first_by"), "broker"), False).to_numpy()
    bursts, most = _bursts(opened, parts)
    closed = _closed(parts)
    found = chains(parts.tables["setup"].to_pylist(), parts.wholes)
    total = {
        "connections": legs.num_rows,
        "opened": opened.num_rows,
        "not_established": int(_is_vain(opened).sum()),
        "network_round_trip_ms": _spread(round_trips),
        "opened_within_10_s": most if opened.num_rows else None,
        "bursts": len(bursts),
        "closed_by_broker": {
            # An attempt that was refused was none.
            "connections": int((is_closed & ~_is_vain(legs)).sum()),
            "producers": sum(row["what"] == "producer" for row in closed),
            "consumers": sum(row["what"] == "consumer" for row in closed),
        },
        "chains": len(found),
        "chain_ms": _spread([chain.pop("chain_ns") for chain in found]),
        "chains_with_refusals": sum(chain["refused"] > 0 for chain in found),
        "not_judged": {
            "opened_before_capture": legs.num_rows - opened.num_rows,
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
