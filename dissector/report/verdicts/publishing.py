"""Verdicts on requests: how fast sends were, what was not confirmed, what was refused."""

from collections.abc import Mapping
from typing import Final

from dissector.report.descriptions import CLOSE_CAUSES, ERROR_STEPS, code_text
from dissector.report.example_commands import Commands
from dissector.report.formatting import count_text, duration_text, every, listed, many
from dissector.report.numbers import UNKNOWN, Row, known
from dissector.report.verdict import (
    GOOD,
    NAMED,
    PLAIN,
    Remark,
    both_directions,
    holes,
    not_captured,
    reasons_text,
    share_of,
    shares_text,
    step_text,
    whole_packets,
    without_count,
)

# Below this share of sends an unanswered one at the very end is what any capture ends with.
_IN_FLIGHT: Final = 0.01

# Of sends that were not confirmed: what became of each, by its outcome.
_UNCONFIRMED: Final = {
    "error": "refused",
    "dropped_after_close": "unanswered when their producer was closed or opened again",
    "conn_closed": "unanswered when the connection ended",
    "unanswered_at_end": "unanswered when the capture ended",
}

READABLE: Final = ("ok", "dup_or_dropped", "error")  # outcomes by an answer that could be read
_ANSWERED: Final = (*READABLE, "response_cut")

_SEEN: Final = (*READABLE, "orphan_response")  # answers that could be read


def answered(outcomes: Mapping[str, int]) -> int:
    """How many sends got an answer of any kind: a receipt, one for a duplicate, or a refusal."""
    return sum(outcomes.get(name, 0) for name in _ANSWERED)


def latency(report: Row, commands: Commands) -> Remark:
    total = report["send_latency"]["total"]
    latency, sends = total["latency_ms"], total["sends"]
    if sends is None:
        return not_captured("send_latency", "Sends", "clients")
    if not sends:
        return Remark(PLAIN, "send_latency", "No send was seen.")
    what = _carried(total)
    if not latency["count"]:
        cut = total["outcomes"].get("response_cut")
        why = "is whole in the capture" if cut else "could be timed"
        return Remark(PLAIN, "send_latency", f"{what}, none with a receipt that {why}.")
    if latency["count"] == sends == 1:
        took = f"its receipt came after {duration_text(latency['max'])}"
    elif latency["count"] == 1:
        took = f"one receipt could be timed, it came after {duration_text(latency['max'])}"
    elif latency["count"] < 100:
        took = (
            f"half of the receipts came within {duration_text(latency['p50'])}, the slowest after "
            f"{duration_text(latency['max'])}"
        )
    else:
        took = (
            f"half of the receipts came within {duration_text(latency['p50'])}, 99 % within "
            f"{duration_text(latency['p99'])}"
        )
    return Remark(PLAIN, "send_latency", f"{what}; {took}.")


def _carried(total: Row) -> str:
    """Attempts, the messages that clients published in them, and how many of these were stored.

    A message that is published again under its sequence id is one more, and one that its client
    library sends again is not.
    """
    published, stored = total["published"], total["stored"]
    what = many(total["sends"], "send")
    if published is None:
        return what
    least = "at least " if total["sends_of_unknown_count"] else ""
    what += f" with {least}{many(published, 'message')}"
    if not published or stored is None:
        return what
    if stored > published:
        return f"{what}, confirmed as stored {many(stored, 'time')} in all"
    if stored == published:
        return f"{what}, {'all of them ' if published > 1 else ''}confirmed as stored"
    return f"{what}, {count_text(stored) if stored else 'none'} of them confirmed as stored"


def unconfirmed(report: Row, commands: Commands) -> Remark | None:
    """Sends that were not confirmed at once, or of which that is not known."""
    total = report["send_latency"]["total"]
    outcomes, sends = total["outcomes"], total["sends"] or 0
    missing, reasons = shares_text(outcomes, _UNCONFIRMED)
    found = []
    if missing:
        kinds = {name: count for name in _UNCONFIRMED if (count := outcomes.get(name))}
        who = share_of(missing, sends, "send") + " not"
        if missing == sends:
            who = share_of(0, sends, "send")
        found.append(f"{who} confirmed: {without_count(kinds, reasons)}.")
    if total["passed_over"]:
        others = "a later one" if total["passed_over"] == 1 else "later ones"
        found.append(
            f"{many(total['passed_over'], 'send')} got no receipt though {others} of the same "
            "producer did."
        )
    if total["resent"]:
        found.append(f"{many(total['resent'], 'send')} repeated an earlier one.")
    if missing and total["resent"]:
        found += _in_the_end(report)
    unknown, why = reasons_text(outcomes, UNKNOWN)
    if unknown:
        found.append(f"Whether {many(unknown, 'send')} succeeded is not known: {why}.")
    if outcomes.get("dup_or_dropped"):
        found.append(
            f"{many(outcomes['dup_or_dropped'], 'send')} got a receipt without a message id: the "
            "broker had the message already, or dropped it."
        )
    if outcomes.get("not_awaited"):
        found.append(f"{many(outcomes['not_awaited'], 'send')} wanted no answer.")
    if not found:
        return None
    in_flight = outcomes.get("unanswered_at_end", 0)
    is_usual = missing == in_flight <= _IN_FLIGHT * sends
    # Of a direction that is missing, coverage speaks; this is what follows from it.
    unknown -= outcomes.get("other_side_not_captured", 0)
    if is_usual and not (total["passed_over"] or total["resent"] or unknown):
        return Remark(PLAIN, "send_latency", " ".join(found))
    return Remark(PLAIN, "send_latency", " ".join(found), _send_step(report, commands))


def _in_the_end(report: Row) -> list[str]:
    """Whether what was sent several times got a receipt in one of the attempts.

    Sends but those that repeat others are as many as messages or batches; each of them counts in
    logical_latency_ms when one of its attempts was confirmed by an id.
    """
    total, lacks = report["send_latency"]["total"], report["coverage"]["total"]
    outcomes = total["outcomes"]
    if any(outcomes.get(name) for name in (*UNKNOWN, "dup_or_dropped", "not_awaited")):
        return []
    never = total["sends"] - total["resent"] - total["logical_latency_ms"]["count"]
    if never < 0 or (never and (lacks["gaps"] or lacks["snaplen_cut_bytes"])):
        return []  # a further attempt may lie in what is missing
    if never:
        return [f"{many(never, 'send')} had no attempt that was confirmed."]
    return ["In the end every message was confirmed."]


def _send_step(report: Row, commands: Commands) -> str:
    """How to look at sends that were not confirmed, the most telling kind first."""
    section = report["send_latency"]
    outcomes = section["total"]["outcomes"]
    if section["passed_over"]:
        row = section["passed_over"][0]
        expression = (
            f"connection_id == {row['connection_id']} and producer_id == {row['producer_id']} "
            f"and sequence_id == {row['sequence_id']}"
        )
        words = "Ask the application whether it sent them again; the first of them"
        if row["producer_id"] is not None and row["sequence_id"] is not None:
            return step_text(words, commands.frames(expression, row))
    if outcomes.get("error"):
        return step_text("The broker's reasons are in", commands.frames("error_code != null"))
    if outcomes.get("dropped_after_close"):
        return step_text(
            "What closed the producers", commands.frames('command == "CLOSE_PRODUCER"')
        )
    lacks = report["coverage"]["total"]
    if lacks["snaplen_cut_bytes"] and (outcomes.get("response_cut") or not lacks["gaps"]):
        return whole_packets(lacks)
    if any(outcomes.get(name) for name in ("lost_in_gap", "response_cut")):
        return step_text("Capture again without losses; what was lost where", holes(commands))
    if outcomes.get("other_side_not_captured"):
        return both_directions(commands)
    return step_text(
        "Clients repeat what is not confirmed in time: look for slow sends, and for connections "
        "that ended and who closed them (closed_by)",
        commands.connections(),
    )


def errors(report: Row, commands: Commands) -> Remark:
    section = report["errors"]
    total = section["total"]
    if total["answers"] is None:
        return not_captured("errors", "Refusals", "brokers")
    if not total["answers"]:
        return _no_errors(report)
    codes = [code_text(row["error_code"]) for row in section["by_code"]]
    verb = "was" if total["answers"] == 1 else "were"
    text = f"{many(total['answers'], 'request')} {verb} refused"
    if total["incidents"] < total["answers"]:
        text += f" in {many(total['incidents'], 'incident')}"
    text += f": {listed(codes, NAMED)}"
    if total["expected"] == total["answers"]:
        return Remark(GOOD, "errors", f"{text}; this is usual with these clients.")
    if total["expected"]:
        verb = "is" if total["expected"] == 1 else "are"
        text = f"{text}; {count_text(total['expected'])} of them {verb} usual with these clients"
    rows = section["incidents"]
    key = codes[0] if codes else ""
    if rows and rows[0]["request_command"] == "GET_SCHEMA":
        key = f"GET_SCHEMA {key}"
    hint = ERROR_STEPS.get(key, "")
    words = f"{hint} " if hint else ""
    if rows and rows[0]["response_frame_no"] is not None:
        numbers = [rows[0]["request_frame_no"], rows[0]["response_frame_no"]]
        frames = ", ".join(str(number) for number in numbers if number is not None)
        command = commands.frames(f"frame_no in ({frames})", rows[0], " -V")
        which = "The first of the most frequent kind" if len(codes) > 1 else "The first"
        which = "The refusal" if total["answers"] == 1 else which
        step = step_text(f"{words}{which}", command)
    else:
        step = step_text(f"{words}All refusals", commands.frames("error_code != null"))
    return Remark(PLAIN, "errors", f"{text}.", step)


def _no_errors(report: Row) -> Remark:
    """That nothing was refused, where answers were seen that could have been refusals."""
    seen = unknown = 0
    for section in ("send_latency", "requests"):
        outcomes = report[section]["total"]["outcomes"]
        seen += sum(outcomes.get(name, 0) for name in _SEEN)
        unknown += sum(outcomes.get(name, 0) for name in UNKNOWN)
    if not seen:
        return Remark(PLAIN, "errors", "No answer was decoded: refusals cannot be judged.")
    text = every(seen, "answer", "grants its request", "grant their requests")
    if unknown:
        text += f"; of {many(unknown, 'further request')} no answer could be read"
    mark = PLAIN if unknown > seen else GOOD
    return Remark(mark, "errors", f"{text}: no refusal was seen.")


def unanswered(report: Row, commands: Commands) -> Remark | None:
    """Requests, but sends and those that wait for messages, that nobody answered."""
    counts: dict[str | None, int] = {}
    total = waiting = 0
    for row in report["requests"]["by_command"]:
        if row["kind"] not in ("request", "auth"):
            continue
        total += row["requests"]
        waiting += row["outcomes"].get("unanswered_at_end", 0)
        name = row["request_command"]
        counts[name] = counts.get(name, 0) + row["outcomes"].get("conn_closed", 0)
    found = known(counts)
    sentences = []
    if found:
        ordered = sorted(found, key=lambda name: (-found[name], name))
        kinds = listed([f"{count_text(found[name])} {name}" for name in ordered], NAMED)
        count = sum(found.values())
        verb = "was" if count == 1 else "were"
        sentences.append(
            f"{many(count, 'request')} {verb} unanswered when the connection ended: {kinds}."
        )
    if waiting > _IN_FLIGHT * total:
        verb = "was" if waiting == 1 else "were"
        sentences.append(f"{many(waiting, 'request')} {verb} unanswered when the capture ended.")
    if not sentences:
        return None
    words = "Find out who ended these connections (closed_by), and look into the log of the other"
    return Remark(PLAIN, "requests", " ".join(sentences), step_text(words, commands.connections()))


def closed(report: Row, commands: Commands) -> Remark | None:
    """Producers and consumers that the broker closed, and what the capture shows of why."""
    total = report["connecting"]["total"]
    closed = total["closed_by_broker"]
    closed_subjects = [
        many(closed[f"{what}s"], what) for what in ("producer", "consumer") if closed[f"{what}s"]
    ]
    if not closed_subjects:
        return None
    count, reasons = shares_text(total["closed_by_cause"], CLOSE_CAUSES)
    reasons = without_count(total["closed_by_cause"], reasons)
    text = f"The broker closed {' and '.join(closed_subjects)}"
    if total["closed_by_cause"].get("seek") == count:
        return Remark(PLAIN, "connecting", f"{text}, as it does on a seek.")
    text = f"{text}: {reasons}."
    expression = 'direction == "to_client" and command in ("CLOSE_PRODUCER", "CLOSE_CONSUMER")'
    step = step_text("Compare with the broker's log at these times", commands.frames(expression))
    return Remark(PLAIN, "connecting", text, step)


def in_vain(report: Row, commands: Commands) -> Remark | None:
    """Connections that were tried and came to nothing."""
    count = report["connecting"]["total"]["not_established"]
    if not count:
        return None
    text = f"{many(count, 'attempt')} to connect came to nothing: refused or never answered."
    step = step_text(
        "Check whether the broker listens there and no firewall stands between",
        commands.connections('protocol == "none"'),
    )
    return Remark(PLAIN, "connecting", text, step)
