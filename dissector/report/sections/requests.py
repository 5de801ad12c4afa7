"""Requests: round trips of everything but publishes, by command, and what pings say of the tap."""

from typing import Any, Final

from dissector.report.names import Names, legs_of
from dissector.report.numbers import NOT_JUDGED, Row, known, nulls_last, timed
from dissector.report.parts import SETUP_COMMANDS, Parts
from dissector.report.tallies import REQUESTS, rows
from dissector.report.unread import unread_requests, with_unread

CLIENT: Final = "client"
BROKER: Final = "broker"
NEARER: Final = 3  # a side is nearer if it lies within this part of the way
# Further commands that only clients send and that always want an answer.
_LATER_COMMANDS: Final = ("UNSUBSCRIBE", "SEEK", "GET_LAST_MESSAGE_ID", "GET_SCHEMA")


def _group(found: list[Row]) -> Row:
    """The numbers of some requests."""
    outcomes: dict[str | None, int] = {}
    for row in found:
        outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + row["requests"]
    asked = [row for row in found if row["outcome"] != "orphan_response"]
    answered = outcomes.get("ok", 0) + outcomes.get("error", 0)
    latency = timed(asked, "latencies", "latency_ns")
    not_judged: dict[str | None, int] = {name: outcomes.get(name, 0) for name in NOT_JUDGED}
    not_judged["answered_without_latency"] = answered - latency["count"]
    return {
        "requests": sum(row["requests"] for row in asked),
        "outcomes": known(outcomes),
        "tainted": sum(row["tainted"] for row in asked),
        "latency_ms": latency,
        "not_judged": known(not_judged),
    }


def _nearer(found: list[Row], names: Names) -> str | None:
    """Which end the tap is certainly nearer to: client or broker; None if that is not certain.

    What one end answers cannot come sooner than the network takes from the tap to it and back. Is
    that less than a third of the round trip of the whole path, as the handshake of the same
    connection took it, then the tap is nearer to that end. Connections must not contradict.
    """
    places = [(row["capture"], row["connection_id"]) for row in found]
    legs = legs_of(names, places, "handshake_rtt_ns")
    votes = set()
    for row in found:
        leg = legs.get((row["capture"], row["connection_id"]))
        path = leg and leg["handshake_rtt_ns"]
        if path is None or row["latency_ns_min"] is None:
            continue
        if row["latency_ns_min"] * NEARER < path:
            is_of_client = row["asked_by"] == BROKER or row["kind"] == "auth"
            votes.add(CLIENT if is_of_client else BROKER)
    return votes.pop() if len(votes) == 1 else None


def requests(parts: Parts) -> dict[str, Any]:
    """The section `requests`: total, by_command, pings."""
    found = rows(
        parts.tables["requests"],
        REQUESTS,
        ["kind", "request_command", "asked_by", "outcome", "bucket"],
    )
    commands: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        commands.setdefault((row["kind"], row["request_command"]), []).append(row)
    by_command = [
        {"kind": kind, "request_command": command, **_group(group)}
        for (kind, command), group in commands.items()
    ]
    by_command.sort(
        key=lambda row: (-row["requests"], nulls_last(row["request_command"], row["kind"]))
    )
    askers = sorted({row["asked_by"] for row in found if row["asked_by"] is not None})
    pings: dict[str | None, Row] = {
        asker: {"asked_by": asker, **_group([row for row in found if row["asked_by"] == asker])}
        for asker in askers
    }
    of_connection = rows(
        parts.tables["requests"], REQUESTS, ["capture", "connection_id", "kind", "asked_by"]
    )
    nearer = _nearer(of_connection, parts.names)
    section: dict[str, Any] = {
        "total": {**_group(found), "tap_nearer_to": nearer},
        "by_command": by_command,
        "pings": list(pings.values()),
    }
    count = unread_requests(parts, (*SETUP_COMMANDS, *_LATER_COMMANDS))
    return with_unread(section, "request_unread", count, "requests", ("requests",))
