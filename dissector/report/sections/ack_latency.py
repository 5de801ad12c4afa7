"""Ack latency: from a delivery to the ack that consumes it, and how acks were gathered."""

from collections import Counter
from typing import Any, Final

from dissector.report.lags import lag_of, lag_rows
from dissector.report.names import is_blind
from dissector.report.numbers import (
    NS_PER_US,
    Row,
    instant,
    known,
    milliseconds,
    nulls_last,
    share,
    timed,
    unseen,
)
from dissector.report.parts import MAX_PASSED_OVER, Parts
from dissector.report.tallies import ACK_COMMANDS, ACK_TIMES, rows
from dissector.report.unread import unread, with_unread

# Clients keep acks back and send them together; Java, C++ and Go do so for 100 ms by default.
GROUPING_FLOOR_MS: Final = 100.0
_KEYS: Final = ("topic", "subscription")
_OF_ACKS: Final = (
    "acked", "ack_commands", "cumulative_commands", "answered_commands", "ids_acked",
)  # fmt: skip


def _floor(commands: int, ids: int, is_all_answered: bool) -> float | None:
    """How long an ack may have waited in its client; None if the acks do not tell.

    Acks that want an answer are sent at once. Several ids in a command have been gathered; single
    ones without an answer may have been kept back as well, or come from a client that never does.
    """
    if not commands:
        return None
    if ids > commands:
        return GROUPING_FLOOR_MS
    return 0.0 if is_all_answered else None


def _oldest_ms(deliveries: list[Row], ends_us: dict[str | None, int]) -> float | None:
    """How long the oldest delivery that nobody acknowledged had waited when its capture ended."""
    ages = [
        ends_us[row["capture"]] - row["at_us_min"]
        for row in deliveries
        if row["outcome"] == "unacked_at_end"
        and row["at_us_min"] is not None
        and row["capture"] in ends_us
    ]
    return milliseconds(max(0, *ages) * NS_PER_US) if ages else None


def _group(deliveries: list[Row], commands: list[Row], ends_us: dict[str | None, int]) -> Row:
    """The numbers of some deliveries, and of the ACK commands of the same consumers.

    ends_us: when each capture ended.
    """
    outcomes: dict[str | None, int] = {}
    for row in deliveries:
        outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + row["deliveries"]
    latency = timed(deliveries, "timed", "ack_latency_ns")
    single = [row for row in commands if row["ack_type"] != "Cumulative"]
    ids = sum(row["ids"] for row in single)
    count = sum(row["ack_commands"] for row in single)
    answered = sum(row["ack_commands"] for row in commands if row["is_answered"])
    acked = outcomes.pop("acked", 0)
    return {
        "deliveries": sum(row["deliveries"] for row in deliveries),
        "acked": acked,
        "ack_latency_ms": latency,
        "ack_commands": sum(row["ack_commands"] for row in commands),
        "cumulative_commands": sum(row["ack_commands"] for row in commands) - count,
        "answered_commands": answered,
        "ids_acked": ids,
        "ids_per_command": share(ids, count),
        "grouping_floor_ms": _floor(
            count, ids, sum(row["ack_commands"] for row in commands) == answered
        ),
        "validation_errors": _validation_errors(commands),
        "oldest_unacknowledged_ms": _oldest_ms(deliveries, ends_us),
        "not_judged": known({**outcomes, "acked_without_latency": acked - latency["count"]}),
    }


def _validation_errors(commands: list[Row]) -> dict[str, int]:
    """Why clients discarded messages, as their ACKs say; ids of entries per reason."""
    found: dict[str, int] = {}
    for row in commands:
        if row["validation_error"] is not None:
            found[row["validation_error"]] = found.get(row["validation_error"], 0) + row["ids"]
    return dict(sorted(found.items()))


def _by_outcome(deliveries: list[Row]) -> dict[str, int]:
    """How many of listed deliveries have each outcome."""
    return dict(sorted(Counter(row["outcome"] for row in deliveries).items()))


def _ends_us(parts: Parts) -> dict[str | None, int]:
    """When each capture ended; captures that were joined end together."""
    found: dict[str | None, int] = {}
    for file in parts.tables["files"].select(["capture", "last_ts_ns"]).to_pylist():
        if file["last_ts_ns"] is not None:
            last = file["last_ts_ns"] // NS_PER_US
            whole = parts.whole_of(file)
            found[whole] = max(found.get(whole, last), last)
    return found | {name: found[whole] for name, whole in parts.wholes.items() if whole in found}


def _passed_over(parts: Parts) -> list[Row]:
    """Deliveries that were never acked although later ones to their consumer were, in order."""
    found: list[Row] = parts.tables["passed_deliveries"].to_pylist()
    found.sort(key=lambda row: nulls_last(row["at_us"], row["capture"], row["frame_no"]))
    for row in found:
        at_us = row.pop("at_us")  # none: its packet carries no time
        row["ts"] = None if at_us is None else instant(at_us * NS_PER_US)
    return found


def ack_latency(parts: Parts) -> dict[str, Any]:
    """The section `ack_latency`: total, by_subscription, passed_over."""
    names = ["capture", *_KEYS, "outcome", "bucket"]
    deliveries = rows(parts.tables["ack_times"], ACK_TIMES, names)
    ends_us = _ends_us(parts)
    names = [*_KEYS, "ack_type", "is_answered", "validation_error"]
    commands = rows(parts.tables["ack_commands"], ACK_COMMANDS, names)
    groups: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = {}
    for place, found in enumerate((deliveries, commands)):
        for row in found:
            key = tuple(row[name] for name in _KEYS)
            groups.setdefault(key, ([], []))[place].append(row)
    lags = lag_rows(parts.tables["lags"])
    lags_of: dict[tuple[Any, ...], list[Row]] = {}
    for row in lags:
        lags_of.setdefault(tuple(row[name] for name in _KEYS), []).append(row)
    listed = [
        {
            **dict(zip(_KEYS, key, strict=True)),
            **_group(*found, ends_us),
            **lag_of(lags_of.get(key, [])),
        }
        for key, found in groups.items()
    ]
    listed.sort(key=lambda row: (-row["acked"], nulls_last(*(row[name] for name in _KEYS))))
    section: dict[str, Any] = {
        "total": {**_group(deliveries, commands, ends_us), **lag_of(lags)},
        "by_subscription": listed,
    }
    count = unread(parts, "MESSAGE", "ack_times", "deliveries")
    section = with_unread(section, "message_unread", count, "deliveries", ("deliveries", "acked"))
    count = unread(parts, "ACK", "ack_commands", "ack_commands")
    section = with_unread(section, "ack_unread", count, "ack_commands", _OF_ACKS)
    for way, keys in (("to_client", ("deliveries", "acked")), ("to_broker", _OF_ACKS)):
        if is_blind(parts.names, way):
            section["total"] = unseen(section["total"], *keys)
            section["by_subscription"] = [unseen(row, *keys) for row in section["by_subscription"]]
    passed_over = _passed_over(parts)
    section["total"]["passed_over"] = len(passed_over)
    section["total"]["passed_over_by_outcome"] = _by_outcome(passed_over)
    section["passed_over"] = passed_over[:MAX_PASSED_OVER]
    return section
