"""Connecting: the time of lookups and of opening producers and consumers; connection storms."""

from typing import Any, Final

from dissector.limits import MAX_BURSTS, MAX_CLOSED_CONNECTIONS, MAX_OPENING_CHAINS
from dissector.report import numbers
from dissector.report.merged_tables import MergedTables, unread
from dissector.report.numbers import Row
from dissector.report.section import Judged, Section, counted, not_evaluated


def _chain(row: Row) -> Row:
    """One chain with the durations of its steps: lookups, connecting, opening, and pauses."""
    steps = {
        name: numbers.milliseconds(max(0, row[took] or 0)) or 0.0
        for name, took in (
            ("lookup_ms", "lookup_ns"), ("connect_ms", "connect_took_ns"), ("open_ms", "open_ns"),
        )
    }  # fmt: skip
    took = numbers.milliseconds(row["chain_ns"]) or 0.0
    return {
        "chain_ms": took,
        "ts": numbers.instant(row["first_ns"]),
        **{name: row[name] for name in ("topic", "opened", "client_ip")},
        **steps,
        # Steps of one chain overlap if a client connects to two brokers at once.
        "pauses_ms": max(0.0, round(took - sum(steps.values()), 3)),
        **{name: row[name] for name in ("lookups", "refused", "capture", "connection_id",
                                        "request_frame_no", "response_frame_no")},
    }  # fmt: skip


def _chains(merged: MergedTables) -> list[Row]:
    """Chains from the first lookup of a topic to the opened producer or consumer."""
    chains = [_chain(row) for row in merged.rows("slow_chains")]
    chains.sort(
        key=lambda row: (
            -row["chain_ms"],
            row["ts"] or "",
            numbers.nulls_last(row["capture"], row["response_frame_no"]),
        )
    )
    return chains[:MAX_OPENING_CHAINS]


def _bursts(merged: MergedTables) -> list[Row]:
    """The most connections opened within ten seconds, per client and broker."""
    bursts = [
        {
            **{name: row[name] for name in ("client_ip", "broker_ip", "broker_port", "opened")},
            "opened_within_10_s": row["within_10_s"], "ts": numbers.instant(row["at_ns"]),
            "not_established": row["vain"], "capture": row["capture"],
        }
        for row in merged.rows("bursts")
    ]  # fmt: skip
    bursts.sort(
        key=lambda row: (
            -row["opened_within_10_s"],
            numbers.nulls_last(
                row["client_ip"], row["broker_ip"], row["broker_port"], row["capture"]
            ),
        )
    )
    return bursts[:MAX_BURSTS]


def _closed(merged: MergedTables) -> list[Row]:
    """Producers and consumers closed by the broker, in the order of frames."""
    connections = merged.rows("closed_by_broker")
    connections.sort(
        key=lambda row: numbers.nulls_last(row["capture"], row["closed_frame_no"], row["what"])
    )
    shown = (
        "what", "topic", "name", "subscription", "capture", "connection_id", "closed_frame_no",
        "cause",
    )  # fmt: skip
    return [{name: row[name] for name in shown} for row in connections[:MAX_CLOSED_CONNECTIONS]]


def _links(merged: MergedTables) -> list[Row]:
    """The connections with most frames: their endpoints, versions, and which end closed first."""
    links = merged.rows("links")
    columns = ("first_ts_ns", "connection_id", "capture")
    links.sort(
        key=lambda row: (-row["frames"], numbers.nulls_last(*(row[name] for name in columns)))
    )
    for row in links:
        row["first_ts"], row["last_ts"] = (
            numbers.instant(row.pop("first_ts_ns")), numbers.instant(row.pop("last_ts_ns"))
        )  # fmt: skip
    return links


def connecting(merged: MergedTables) -> dict[str, Any]:
    """The section `connecting`: total, slowest_chains, bursts, closed_by_broker, by_connection."""
    rows = merged.rows("connecting")
    chains = merged.rows("chain_times")

    def count(name: str) -> int:
        return sum(row[name] for row in rows)

    total = {
        "connections": count("connections"),
        "opened": count("opened"),
        "not_established": count("vain"),
        "network_round_trip_ms": numbers.timed(rows, "round_trips", "round_trip_ns"),
        "opened_within_10_s": numbers.high(row["opened_within_10_s"] for row in rows),
        "bursts": count("bursts"),
        "closed_by_broker": {
            "connections": count("closed"),
            "producers": count("closed_producers"),
            "consumers": count("closed_consumers"),
        },
        "closed_by_cause": numbers.known(
            numbers.counts_by(merged.rows("closed_causes"), "cause", "closed")
        ),
        "chains": sum(row["chains"] for row in chains),
        "chain_ms": numbers.timed(chains, "chains", "chain_ns"),
        "chains_with_refusals": sum(row["refused"] for row in chains),
        "not_evaluated_by_reason": {
            "opened_before_capture": count("unseen"),
            "request_unread": unread(merged, "setup"),
        },
    }
    return {
        "total": total,
        "slowest_chains": _chains(merged),
        "bursts": _bursts(merged),
        "closed_by_broker": _closed(merged),
        "by_connection": _links(merged),
    }


def about(report: Row) -> str:
    """The section's sentences: meaning of its numbers, counts of cases, unknowns."""
    total = report["connecting"]["total"]
    return (
        "Time from a client's first lookup of a topic to the open producer or consumer, including "
        "connecting and its own pauses, and the number of connections that clients opened at "
        f"once. It covers {counted(total['chains'], 'chain', 'chains')} and "
        f"{counted(total['opened'], 'connection', 'connections')} whose opening was captured."
        f"{not_evaluated(report, total['not_evaluated_by_reason'])}"
    )


def _lost_connections(total: Row) -> int:
    closed = total["closed_by_broker"]
    lost: int = closed["producers"] + closed["consumers"] or total["not_established"]
    return lost


SECTION: Final = Section(
    "connecting", connecting, about,
    ("connecting", "chain_times", "slow_chains", "bursts", "closed_by_broker", "closed_causes",
     "links", "unread"),
    Judged("connecting", _lost_connections),
)  # fmt: skip
