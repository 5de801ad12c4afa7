"""Verdicts on consumers: permits, deliveries that were repeated, and what was acknowledged."""

from collections.abc import Mapping
from typing import Final

from dissector.report.commands import Commands
from dissector.report.meanings import CAUSE_WORDS
from dissector.report.numbers import Row
from dissector.report.verdict import (
    GOOD,
    LOOK,
    NAMED,
    PLAIN,
    Remark,
    beside,
    not_captured,
    parts_text,
    step_text,
    whole_packets,
)
from dissector.report.words import count_text, duration_text, every, listed, many

# Of deliveries that were not acknowledged: what became of each.
_UNACKNOWLEDGED: Final = {
    "discarded": "discarded by the consumer as unreadable",
    "redelivery_requested": "asked for again by the consumer",
    "consumer_closed": "open when the consumer was closed",
    "conn_closed": "open when the connection ended",
    "unacked_at_end": "open when the capture ended",
    "unknown_gap": "not known, the acknowledgement may lie in bytes that are missing",
    "unresolved_at_limit": "not known, too many were open",
    "unknown": "not known",
}

# Outcomes of deliveries that a later acknowledged one passed over.
_OPEN: Final = ("consumer_closed", "conn_closed", "unacked_at_end")


def permits(report: Row, commands: Commands) -> Remark:
    total = report["permit_utilization"]["total"]
    stalls = total["stalls"]
    if total["not_applicable"]:
        text = f"Permits: not applicable, {total['not_applicable']}."
        return Remark(PLAIN, "permit_utilization", text)
    if not total["consumers"]:
        return Remark(PLAIN, "permit_utilization", "No consumer was seen.")
    reasons = total["not_judged"]
    judged = total["consumers"] - sum(
        reasons[name] for name in ("baseline_unknown", "delivered_without_known_balance")
    )
    if stalls["count"] is None or not judged or not total["observed_ms"]:
        text = (
            f"Whether {many(total['consumers'], 'consumer')} ran out of permits cannot be judged: "
            "the balance is not known."
        )
        return Remark(PLAIN, "permit_utilization", text)
    stuck = stalls["open_at_end"]["count"]
    if stalls["count"] or stuck:
        return _stalls(report, commands)
    who = "No consumer was"
    if judged < total["consumers"]:
        who = f"Of {many(judged, 'consumer')} with a known balance, none was"
    text = f"{who} out of permits for a second or longer.{beside(report)}"
    return Remark(GOOD, "permit_utilization", text)


def _stalls(report: Row, commands: Commands) -> Remark:
    """Times in which consumers had no permits, and whether somebody waited for them."""
    section = report["permit_utilization"]
    stalls = section["total"]["stalls"]
    stuck = stalls["open_at_end"]["count"]
    times = stalls["count"] + stuck
    longest = max(stalls["longest_ms"] or 0, stalls["open_at_end"]["longest_ms"] or 0)
    often = f"{many(times, 'time')}, for at most" if times > 1 else "once, for"
    confirmed = stalls["confirmed"]["count"]
    text = f"Consumers were out of permits for a second or longer {often} {duration_text(longest)}"
    if stuck:
        text += f", {'still so' if stuck == times else f'{count_text(stuck)} still so'} at the end"
    when = "then" if times == 1 else many(confirmed, "time")
    text += (
        f"; messages were seen waiting {when}."
        if confirmed
        else "; whether messages were waiting is not known."
    )
    rows = [each for each in section["by_consumer"] if each["stalls"]["open_at_end"]["count"]]
    rows = [*section["longest_stalls"], *rows]
    step = "Find out what keeps the application busy, or raise its receiver queue size"
    if rows and rows[0]["consumer_id"] is not None:
        expression = (
            f"connection_id == {rows[0]['connection_id']} and "
            f"consumer_id == {rows[0]['consumer_id']}"
        )
        step = step_text(
            f"{step}; FLOW and MESSAGE of the longest", commands.frames(expression, rows[0])
        )
    return Remark(LOOK, "permit_utilization", f"{text}{beside(report)}", step)


def causes_text(causes: Mapping[str, int], limit: int = NAMED) -> str:
    """Why entries were delivered again, in words, the most frequent first."""
    ordered = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    found = [
        f"{count_text(count)} {CAUSE_WORDS.get(name, name.replace('_', ' '))}"
        for name, count in ordered
    ]
    shown = ", ".join(found[:limit])
    rest = sum(count for _, count in ordered[limit:])
    return f"{shown}, {count_text(rest)} for other reasons" if rest else shown


def redelivery(report: Row, commands: Commands) -> Remark:
    section = report["redelivery"]
    total = section["total"]
    if total["deliveries"] is None and total["not_judged"].get("message_unread"):
        text = "Too little was captured of what brokers send: redeliveries cannot be judged."
        return Remark(LOOK, "redelivery", text, whole_packets())
    if total["deliveries"] is None:
        return not_captured(commands, "redelivery", "What brokers send")
    if not total["deliveries"]:
        return Remark(PLAIN, "redelivery", "No delivery was seen.")
    deliveries = many(total["deliveries"], "delivery", "deliveries")
    if not total["redelivered"]:
        if total["not_judged"].get("no_identity", 0) >= total["deliveries"]:
            text = (
                f"Whether {deliveries} repeated earlier ones cannot be judged: entries of "
                "non-persistent topics have no id."
            )
            return Remark(PLAIN, "redelivery", text)
        text = every(
            total["deliveries"], "delivery", "was a first one", "were first ones", "deliveries"
        )
        return Remark(GOOD, "redelivery", f"{text}: nothing was delivered again.")
    verb = "was a repeat" if total["redelivered"] == 1 else "were repeats"
    text = (
        f"{count_text(total['redelivered'])} of {deliveries} {verb}: "
        f"{causes_text(total['by_cause'])}."
    )
    step = "Ask whether the application takes a message twice without harm"
    if section["examples"]:
        row = section["examples"][0]
        both = f"frame_no == {row['frame_no']}"
        if row["previous_frame_no"] is not None:
            both = f"frame_no in ({row['previous_frame_no']}, {row['frame_no']})"
        step = step_text(f"{step}; the first one", commands.frames(both, row))
    return Remark(LOOK, "redelivery", text, step)


def acks(report: Row, commands: Commands) -> Remark | None:
    """What became of deliveries: acknowledged, asked for again, discarded, or left open."""
    section = report["ack_latency"]
    total = section["total"]
    if not total["deliveries"] or total["acked"] is None:
        return None
    rest = total["not_judged"]
    _, said = parts_text(rest, _UNACKNOWLEDGED)
    if not said and not total["acked"]:
        return None
    deliveries = many(total["deliveries"], "delivery", "deliveries")
    if total["acked"] == total["deliveries"]:
        text = every(
            total["acked"], "delivery", "was acknowledged", "were acknowledged", "deliveries"
        )
    else:
        verb = "was" if total["acked"] == 1 else "were"
        text = f"{count_text(total['acked'])} of {deliveries} {verb} acknowledged"
    text = f"{text}{f'; {said}' if said else ''}."
    passed, _ = parts_text(total["passed_over_by_outcome"], dict.fromkeys(_OPEN, ""))
    if total["validation_errors"]:
        names = sorted(
            total["validation_errors"], key=lambda n: (-total["validation_errors"][n], n)
        )
        text += f" Consumers discarded with {listed(names, NAMED)}: applications never got these."
        command = commands.frames("validation_error != null")
        words = "Find out why clients cannot read them: key, codec or damage; the discarding ACKs"
        return Remark(LOOK, "ack_latency", text, step_text(words, command))
    if passed:
        verb = "was" if passed == 1 else "were"
        text += f" {count_text(passed)} {verb} left open though later ones were acknowledged."
        return Remark(LOOK, "ack_latency", text, _left_step(section["passed_over"], commands))
    return Remark(PLAIN, "ack_latency", text)


def _left_step(rows: list[Row], commands: Commands) -> str:
    """How to look at a delivery that was left open."""
    words = "Ask the application what it does with these: it neither acknowledges nor rejects them"
    row = next(
        (row for row in rows if row["outcome"] in _OPEN and row["ledger_id"] is not None), None
    )
    if row is None:
        return f"{words}."
    expression = (
        f"connection_id == {row['connection_id']} and ledger_id == {row['ledger_id']} and "
        f"entry_id == {row['entry_id']}"
    )
    return step_text(f"{words}; the first one", commands.frames(expression, row))
