"""Verdicts on consumers: permits, deliveries that were repeated, and what was acknowledged."""

from collections.abc import Mapping
from typing import Final

from dissector.report.descriptions import CAUSE_STEPS, CAUSE_WORDS, RECONNECT_STEPS
from dissector.report.example_commands import Commands
from dissector.report.formatting import count_text, duration_text, every, listed, many
from dissector.report.numbers import Row
from dissector.report.verdict import (
    GOOD,
    NAMED,
    PLAIN,
    Remark,
    beside,
    not_captured,
    seeks,
    share_of,
    shares_text,
    step_text,
    without_count,
)

# Of deliveries that were not acknowledged: what became of each.
_UNACKNOWLEDGED: Final = {
    "discarded": "discarded by the consumer as unreadable",
    "ack_refused": "refused by the broker when acknowledged",
    "ack_rolled_back": "rolled back with a transaction",
    "ack_uncommitted": "part of a transaction that was still open when the capture ended",
    "redelivery_requested": "asked for again by the consumer",
    "consumer_closed": "open when the consumer was closed",
    "conn_closed": "open when the connection ended",
    "unacked_at_end": "open when the capture ended",
    "unknown_gap": "of unknown outcome (the acknowledgement may lie in bytes that are missing)",
    "unresolved_at_limit": "of unknown outcome (too many were open)",
    "unknown": "of unknown outcome",
}
# Of Cursus: answers to a poll have no outcome where there is nothing to commit.
_WITHOUT_OUTCOME: Final = "empty, read without a group, or not readable"

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
    text = f"{who} out of permits for a second or longer"
    partly = reasons["baseline_known_partly"]
    if partly:
        text += (
            f" while its balance was known: {duration_text(total['observed_ms'])} of all "
            "consumers together"
        )
    mark = PLAIN if 2 * partly > judged else GOOD
    return Remark(mark, "permit_utilization", f"{text}.{beside(report)}")


def _stalls(report: Row, commands: Commands) -> Remark:
    """Times in which consumers had no permits, and whether somebody waited for them."""
    section = report["permit_utilization"]
    stalls = section["total"]["stalls"]
    stuck = stalls["open_at_end"]["count"]
    times = stalls["count"] + stuck
    longest = max(stalls["longest_ms"] or 0, stalls["open_at_end"]["longest_ms"] or 0)
    confirmed = stalls["confirmed"]["count"]
    text = f"One consumer was out of permits once, for {duration_text(longest)}"
    if times > 1:
        text = (
            f"Consumers were out of permits for a second or longer {many(times, 'time')}, for at "
            f"most {duration_text(longest)}"
        )
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
    return Remark(PLAIN, "permit_utilization", f"{text}{beside(report)}", step)


def causes_text(causes: Mapping[str, int], limit: int = NAMED) -> str:
    """Why entries were delivered again, in words, the most frequent first."""
    ordered = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    found = [
        f"{count_text(count)} {CAUSE_WORDS.get(name, name.replace('_', ' '))}"
        for name, count in ordered
    ]
    if len(found) == 1:
        return without_count(causes, found[0])
    shown = ", ".join(found[:limit])
    rest = sum(count for _, count in ordered[limit:])
    return f"{shown}, {count_text(rest)} for other reasons" if rest else shown


def redelivery(report: Row, commands: Commands) -> Remark:
    section = report["redelivery"]
    total = section["total"]
    if total["deliveries"] is None and total["not_judged"].get("message_unread"):
        text = "Redeliveries cannot be judged: too little was captured of what brokers send."
        return Remark(PLAIN, "redelivery", text)
    if total["deliveries"] is None:
        return not_captured("redelivery", "Redeliveries", "brokers")
    if not total["deliveries"]:
        return Remark(PLAIN, "redelivery", "No delivery was seen.")
    deliveries = many(total["deliveries"], "delivery", "deliveries")
    if total["messages"] == 0:
        text = (
            f"Whether {deliveries} repeated earlier ones cannot be judged: no message was seen in "
            "any of them."
        )
        return Remark(PLAIN, "redelivery", text)
    of = ""
    if total["messages"] is not None and total["messages"] > total["deliveries"]:
        of = f" ({many(total['messages'], 'message')})"
    if not total["redelivered"]:
        if total["not_judged"].get("no_identity", 0) >= total["deliveries"]:
            text = (
                f"Whether {deliveries} repeated earlier ones cannot be judged: entries of "
                "non-persistent topics have no id."
            )
            return Remark(PLAIN, "redelivery", text)
        text = every(
            total["deliveries"], f"delivery{of}", "was a first one", "were first ones",
            f"deliveries{of}",
        )  # fmt: skip
        return Remark(GOOD, "redelivery", f"{text}: nothing was delivered again.")
    if of:
        again = count_text(total["redelivered_messages"])
        of = f" ({again} of {many(total['messages'], 'message')})"
    verb = "was a repeat" if total["redelivered"] == 1 else "were repeats"
    text = (
        f"{count_text(total['redelivered'])} of {deliveries}{of} {verb}: "
        f"{causes_text(total['by_cause'])}."
    )
    cause = max(total["by_cause"], key=lambda name: (total["by_cause"][name], name), default="")
    step = CAUSE_STEPS.get(cause, "See whether the application takes a message twice without harm")
    row = next((each for each in section["examples"] if each["redelivery_cause"] == cause), None)
    if row is not None:
        how = (row["closed_first_by"], bool(row["is_refused"]))
        step = RECONNECT_STEPS.get(how, step) if cause == "reconnect" else step
        both = f"frame_no == {row['frame_no']}"
        if row["previous_frame_no"] is not None:
            both = f"frame_no in ({row['previous_frame_no']}, {row['frame_no']})"
        step = step_text(f"{step}; the first one", commands.frames(both, row))
    return Remark(PLAIN, "redelivery", text, step)


def acks(report: Row, commands: Commands) -> Remark | None:
    """What became of deliveries: acknowledged, asked for again, discarded, or left open."""
    section = report["ack_latency"]
    total = section["total"]
    if not total["deliveries"] or total["acked"] is None:
        return None
    rest = total["not_judged"]
    kinds = dict(_UNACKNOWLEDGED)
    if report["checksum_failures"]["total"]["not_applicable"]:
        kinds["unknown"] = _WITHOUT_OUTCOME
    others, reasons = shares_text(rest, kinds)
    found = {name: count for name in kinds if (count := rest.get(name))}
    if not reasons and not total["acked"]:
        return None
    if others == rest.get("unknown") and not total["acked"]:
        whose = many(total["deliveries"], "delivery", "deliveries")
        text = f"Whether {whose} got an acknowledgement cannot be judged: {kinds['unknown']}."
        return Remark(PLAIN, "ack_latency", text)
    who = share_of(total["acked"], total["deliveries"], "delivery", "deliveries")
    text = f"{who} acknowledged{f'; {reasons}' if reasons else ''}."
    if others == total["deliveries"]:
        text = f"{who} acknowledged: {without_count(found, reasons)}."
    if part := total["acked_in_part"]:
        verb = "was" if part == 1 else "were"
        text += f" Of batches not acknowledged as a whole, {many(part, 'message')} {verb}."
    passed, _ = shares_text(total["passed_over_by_outcome"], dict.fromkeys(_OPEN, ""))
    errors = total["validation_errors"]
    if rest.get("discarded") or errors:
        names = sorted(errors, key=lambda name: (-errors[name], name)) or ["an unknown error"]
        text += f" Consumers discarded with {listed(names, NAMED)}: applications never got these."
        command = commands.frames("validation_error != null")
        words = "Find out why clients cannot read them: key, codec or damage; the discarding ACKs"
        return Remark(PLAIN, "ack_latency", text, step_text(words, command))
    if rest.get("ack_refused") and not passed:
        command = commands.frames('command == "ACK_RESPONSE" and error_code != null', more=" -V")
        return Remark(PLAIN, "ack_latency", text, step_text("The broker's reasons", command))
    if passed:
        verb = "was" if passed == 1 else "were"
        text += f" {count_text(passed)} {verb} left open though later ones were acknowledged"
        closed = total["passed_over_by_outcome"].get("consumer_closed")
        if seeks(report) and closed == passed:
            text += ", as a seek leaves them"
            return Remark(PLAIN, "ack_latency", f"{text}.")
        text += "."
        return Remark(PLAIN, "ack_latency", text, _left_step(section["passed_over"], commands))
    return Remark(PLAIN, "ack_latency", text)


def _left_step(rows: list[Row], commands: Commands) -> str:
    """How to look at a delivery that was left open."""
    words = "Ask the application what it does with these: it neither acknowledges nor rejects them"
    left = [row for row in rows if row["outcome"] in _OPEN and row["ledger_id"] is not None]
    whole = [row for row in left if not row["is_broken"]]
    if left and not whole:
        broken = len({row["chunk_uuid"] for row in left})
        words = (
            f"See the client's log: these are chunks of {many(broken, 'message')}, not each of "
            "them once, and client libraries drop such a message before the application sees it"
        )
    row = next(iter(whole or left), None)
    if row is None:
        return f"{words}."
    expression = (
        f"connection_id == {row['connection_id']} and ledger_id == {row['ledger_id']} and "
        f"entry_id == {row['entry_id']}"
    )
    return step_text(f"{words}; the first one", commands.frames(expression, row))


def checksums(report: Row, commands: Commands) -> Remark:
    total = report["checksum_failures"]["total"]
    if total["not_applicable"]:
        text = f"Checksums: not applicable, {total['not_applicable']}."
        return Remark(PLAIN, "checksum_failures", text)
    if not total["evaluated"]:
        absent = many(total["absent"], "entry carries none", "entries carry none")
        why = f": {absent}" if total["absent"] else ""
        return Remark(PLAIN, "checksum_failures", f"No checksum could be evaluated{why}.")
    if not total["mismatch"]:
        text = every(total["evaluated"], "checksum that could be evaluated", "matches", "match",
                     "checksums that could be evaluated")  # fmt: skip
        if total["not_evaluated"]:
            text += f"; {count_text(total['not_evaluated'])} could not"
        mark = PLAIN if total["not_evaluated"] > total["evaluated"] else GOOD
        return Remark(mark, "checksum_failures", f"{text}.{beside(report)}")
    kinds = {
        "confirmed_by_peer": "confirmed by the receiver",
        "capture_artefact": "in the capture only, the receiver took the frame",
        "unconfirmed": "not confirmed by the receiver",
    }
    _, reasons = shares_text(total, kinds)
    reasons = without_count({name: total[name] for name in kinds if total[name]}, reasons)
    text = (
        f"{count_text(total['mismatch'])} of {many(total['evaluated'], 'checksum')} "
        f"{'does' if total['mismatch'] == 1 else 'do'} not match: {reasons}.{beside(report)}"
    )
    is_real = total["confirmed_by_peer"] or total["unconfirmed"]
    step = (
        "Suspect memory or network card of the sender, or a device between; the damaged frames"
        if is_real
        else "Suspect the capture, not the traffic; the frames"
    )
    command = commands.frames('checksum == "mismatch"')
    return Remark(PLAIN, "checksum_failures", text, step_text(step, command))
