"""What stands out in a report: a few sentences at its top, each with the section it comes from."""

import re
from typing import NamedTuple

from dissector.report.numbers import Row
from dissector.report.words import bytes_text, count_text, duration_text, share_text

GOOD = "good"
LOOK = "look"
BAD = "bad"
PLAIN = "plain"
# Outcomes of sends that the broker did not confirm, in words.
_NO_RECEIPT = {
    "error": "refused",
    "dropped_after_close": "dropped since the producer had been closed",
    "conn_closed": "whose connection ended",
}


# What Cursus calls it, where a text says it in Pulsar's words.
_CURSUS_WORDS = {
    "SEND": "publish",
    "receipt": "answer",
    "receipts": "answers",
    "MESSAGE": "BATCH",
    "ACK": "commit",
    "ack": "commit",
    "acks": "commits",
    "entry": "records",
    "Pulsar": "Cursus",
}
_WORD = re.compile(rf"\b(?:{'|'.join(_CURSUS_WORDS)})\b")


class Remark(NamedTuple):
    """One sentence. mark: good, look, bad or plain; section: its anchor on the page."""

    mark: str
    section: str
    text: str


def many(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun."""
    return f"{count_text(count)} {one if count == 1 else several or one + 's'}"


def spoken(report: Row, text: str) -> str:
    """A text that uses Pulsar's words, in those of Cursus where only that was read."""
    if not report["checksum_failures"]["total"]["not_applicable"]:
        return text
    text = text.replace("a receipt", "an answer")
    return _WORD.sub(lambda found: _CURSUS_WORDS[found[0]], text)


def _beside(report: Row) -> str:
    """That numbers of Pulsar alone do not speak of connections of Cursus, where there are any."""
    count = report["coverage"]["total"]["connections_by_protocol"].get("cursus", 0)
    return f" Not applicable to {many(count, 'connection')} of Cursus." if count else ""


def _not_captured(section: str, what: str) -> Remark:
    """That a direction is missing, where otherwise it would look as if nothing had happened."""
    return Remark(LOOK, section, f"{what} is not in the capture: this is not known.")


def _latency(report: Row) -> Remark:
    total = report["send_latency"]["total"]
    latency, sends = total["latency_ms"], total["sends"]
    if sends is None:
        return _not_captured("send_latency", "What clients send")
    if not sends:
        return Remark(PLAIN, "send_latency", "Nothing was published.")
    if not latency["count"]:
        text = f"{many(sends, 'send')}, but no receipt that could be timed."
        return Remark(LOOK, "send_latency", text)
    messages = total["messages"]
    what = f"{many(messages, 'message')} in " if messages is not None else ""
    text = (
        f"{what}{many(sends, 'send')}; half of the receipts came "
        f"within {duration_text(latency['p50'])}, 99 % within {duration_text(latency['p99'])}."
    )
    return Remark(PLAIN, "send_latency", text)


def _unanswered(report: Row) -> Remark | None:
    outcomes = report["send_latency"]["total"]["outcomes"]
    found = {name: outcomes[name] for name in _NO_RECEIPT if outcomes.get(name)}
    resent = report["send_latency"]["total"]["resent"]
    passed = report["send_latency"]["total"]["passed_over"]
    if not found and not resent and not passed:
        return None
    said = []
    if found:
        why = ", ".join(f"{count_text(count)} {_NO_RECEIPT[name]}" for name, count in found.items())
        said.append(f"{many(sum(found.values()), 'send')} without a receipt: {why}.")
    if resent:
        said.append(f"{many(resent, 'send')} repeated an earlier one.")
    if passed:
        said.append(f"{many(passed, 'send')} never answered, though later ones were.")
    return Remark(LOOK, "send_latency", " ".join(said))


def _permits(report: Row) -> Remark:
    total = report["permit_utilization"]["total"]
    stalls = total["stalls"]
    if total["not_applicable"]:
        text = f"Not applicable: {total['not_applicable']}."
        return Remark(PLAIN, "permit_utilization", text)
    if not total["consumers"]:
        return Remark(PLAIN, "permit_utilization", "No consumer was seen.")
    if stalls["count"] is None:
        text = f"The balance of {many(total['consumers'], 'consumer')} is not known."
        return Remark(PLAIN, "permit_utilization", text)
    stuck = stalls["open_at_end"]["count"]
    if stalls["count"] or stuck:
        longest = max(stalls["longest_ms"] or 0, stalls["open_at_end"]["longest_ms"] or 0)
        text = (
            f"Consumers had no permits for a second or more "
            f"{many(stalls['count'] + stuck, 'time')}, at most {duration_text(longest)}; messages "
            f"were seen waiting {count_text(stalls['confirmed']['count'])} of these times."
            f"{_beside(report)}"
        )
        return Remark(LOOK, "permit_utilization", text)
    reasons = total["not_judged"]
    judged = total["consumers"] - sum(
        reasons[name] for name in ("baseline_unknown", "delivered_without_known_balance")
    )
    who = "The consumer" if judged == 1 else f"Each of {judged:,} consumers"
    if judged < total["consumers"]:
        who = f"{who} whose balance is known"
    text = f"{who} had permits left, or was without for less than a second.{_beside(report)}"
    return Remark(GOOD, "permit_utilization", text)


def _redelivery(report: Row) -> Remark:
    total = report["redelivery"]["total"]
    if total["deliveries"] is None and total["not_judged"].get("message_unread"):
        text = "Too little was captured of what brokers send: this is not known."
        return Remark(LOOK, "redelivery", text)
    if total["deliveries"] is None:
        return _not_captured("redelivery", "What brokers send")
    if not total["deliveries"]:
        return Remark(PLAIN, "redelivery", "Nothing was delivered.")
    if not total["redelivered"]:
        text = f"No redeliveries in {many(total['deliveries'], 'delivery', 'deliveries')}."
        return Remark(GOOD, "redelivery", text)
    causes = sorted(total["by_cause"].items(), key=lambda item: (-item[1], item[0]))
    why = ", ".join(f"{count_text(count)} {name.replace('_', ' ')}" for name, count in causes[:3])
    text = (
        f"{count_text(total['redelivered'])} of "
        f"{many(total['deliveries'], 'delivery', 'deliveries')} were "
        f"redeliveries ({why})."
    )
    return Remark(LOOK, "redelivery", text)


def _checksums(report: Row) -> Remark:
    total = report["checksum_failures"]["total"]
    if total["not_applicable"]:
        text = f"Not applicable: {total['not_applicable']}."
        return Remark(PLAIN, "checksum_failures", text)
    if not total["evaluated"]:
        return Remark(PLAIN, "checksum_failures", "No checksum could be evaluated.")
    if not total["mismatch"]:
        text = f"All {many(total['evaluated'], 'evaluated checksum')} match.{_beside(report)}"
        return Remark(GOOD, "checksum_failures", text)
    verdicts = [
        f"{count_text(total[name])} {words}"
        for name, words in (
            ("confirmed_by_peer", "confirmed by the receiver"),
            ("capture_artefact", "faulty in the capture only"),
            ("unconfirmed", "unconfirmed"),
        )
        if total[name]
    ]
    text = (
        f"{count_text(total['mismatch'])} of {many(total['evaluated'], 'checksum')} "
        f"{'does' if total['mismatch'] == 1 else 'do'} not match: {', '.join(verdicts)}."
        f"{_beside(report)}"
    )
    return Remark(BAD, "checksum_failures", text)


def _errors(report: Row) -> Remark:
    total = report["errors"]["total"]
    if total["answers"] is None:
        return _not_captured("errors", "What brokers answer")
    if not total["answers"]:
        return Remark(GOOD, "errors", "No request was refused.")
    codes = [row["error_code"] or "no code" for row in report["errors"]["by_code"][:3]]
    text = (
        f"{many(total['answers'], 'request')} refused, in {many(total['incidents'], 'incident')} "
        f"({', '.join(codes)})"
    )
    if total["expected"] == total["answers"]:
        return Remark(GOOD, "errors", f"{text}, as these clients always are.")
    if total["expected"]:
        text = f"{text}; {count_text(total['expected'])} of them always are with these clients"
    return Remark(LOOK, "errors", f"{text}.")


def _coverage(report: Row) -> list[Remark]:
    total = report["coverage"]["total"]
    found = []
    if total["stream_bytes"] and total["decoded_share"] is not None:
        mark = GOOD if total["decoded_share"] >= 0.99 else LOOK
        lost = []
        if total["gaps"]:
            size = bytes_text(total["gap_bytes"])
            lost.append(f"{many(total['gaps'], 'gap')} of {size} together")
        if total["snaplen_cut_bytes"]:
            lost.append(f"{bytes_text(total['snaplen_cut_bytes'])} cut by the snap length")
        text = (
            f"{share_text(total['decoded_share'])} of {bytes_text(total['stream_bytes'])} of "
            f"stream could be decoded; {' and '.join(lost) or 'no gaps'}."
        )
        found.append(Remark(mark, "coverage", text))
    one_way = sum(total["one_way_connections"].values())
    if one_way:
        text = f"Of {many(one_way, 'connection')} only one direction was captured."
        found.append(Remark(LOOK, "coverage", text))
    if total["tls_opaque_connections"]:
        count = many(total["tls_opaque_connections"], "connection")
        found.append(Remark(LOOK, "coverage", f"{count} encrypted by TLS and not decoded."))
    if total["limits_hit"]:
        names = ", ".join(total["limits_hit"])
        text = f"Bounds were hit, some numbers are incomplete: {names}."
        found.append(Remark(BAD, "coverage", text))
    return found


def _left_behind(report: Row) -> Remark | None:
    """Deliveries that were lost behind the tap, or that the application keeps."""
    count = report["ack_latency"]["total"]["passed_over"]
    if not count:
        return None
    what = "delivery was" if count == 1 else "deliveries were"
    text = f"{count_text(count)} {what} never acknowledged, though later ones were."
    return Remark(LOOK, "ack_latency", text)


def _closed(report: Row) -> Remark | None:
    """Producers and consumers that the broker closed: an unload, a deleted topic, a quota."""
    closed = report["connecting"]["total"]["closed_by_broker"]
    said = [
        many(closed[f"{what}s"], what) for what in ("producer", "consumer") if closed[f"{what}s"]
    ]
    if not said:
        return None
    return Remark(LOOK, "connecting", f"The broker closed {' and '.join(said)}.")


def _joined(report: Row) -> Remark | None:
    """What was lost where captures go over into each other, and what is there twice."""
    if "closing" not in report:
        return None
    total, copies = report["closing"]["total"], report["closing"]["copies"]
    said = []
    if total["frames_lost"]:
        verb = "is" if total["frames_lost"] == 1 else "are"
        lost = many(total["frames_lost"], "frame")
        said.append(f"{lost} at the border of two captures {verb} lost")
    if copies:
        verb = "shows" if len(copies) == 1 else "show"
        again = many(len(copies), "capture")
        said.append(f"{again} {verb} the same traffic as another one, which counts once")
    return Remark(LOOK, "closing", f"{'; '.join(said)}.") if said else None


def remarks(report: Row) -> list[Remark]:
    """What a reader should know first; for reports with all sections."""
    found = [
        *_coverage(report),
        _latency(report),
        _unanswered(report),
        _permits(report),
        _redelivery(report),
        _checksums(report),
        _errors(report),
        _left_behind(report),
        _closed(report),
        _joined(report),
    ]
    return [
        remark._replace(text=spoken(report, remark.text)) for remark in found if remark is not None
    ]
