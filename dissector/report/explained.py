"""One text per section: what its numbers mean, of how many they speak, what was not judged and why.

The texts are made from the numbers of the report itself, so that no number stands without them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from dissector.report.numbers import Row
from dissector.report.verdict import spoken
from dissector.report.words import bytes_text, count_text, duration_text, many
from dissector.schemas.words import DELIVERY_OUTCOMES, OUTCOMES

# Why something was not judged, by the names that stand in `not_judged` and `outcomes`.
_UNANSWERED: Final = (
    "unanswered_at_end", "lost_in_gap", "response_cut", "other_side_not_captured", "evicted",
    "orphan_response",
)  # fmt: skip
REASONS: Final = {
    **{outcome: OUTCOMES[outcome] for outcome in _UNANSWERED},
    **{outcome: said for outcome, said in DELIVERY_OUTCOMES.items() if outcome != "acked"},
    "ok_without_latency": "the answer was captured before its request",
    "answered_without_latency": "the answer was captured before its request, or in part",
    "baseline_unknown": "their opening is not in the capture, so their balance was never known",
    "delivered_without_known_balance": "balance known only while nothing was delivered",
    "baseline_known_partly": "judged over the time in which their balance was known",
    "no_identity": "entries of non-persistent topics have no id",
    "message_count_unknown": "the metadata was not read",
    "subscribed_before_capture": "their consumer, and perhaps a delivery before, is older than the "
    "capture",
    "redelivered": "not the first delivery",
    "delay_wanted": "the producer wanted them later",
    "send_not_known": "no receipt tells which SEND they come from, or it is too long ago",
    "opened_before_capture": "their beginning is not in the capture",
    "acked_without_latency": "the ack was captured before the delivery",
    "message_unread": "deliveries of which too little was captured to tell which and to whom",
    "request_unread": "requests of which too little was captured",
    "ack_unread": "acknowledgements of which too little was captured",
    "snaplen": "the capture kept only the beginning of their packets",
    "gap": "bytes of them are missing",
}


def not_judged(report: Row, counts: Mapping[str, int | None]) -> str:
    """The sentence about what was not judged; how many of what, and why.

    What lies in bytes that were never captured is in no count: nobody knows how much it is.
    """
    found = []
    for name, count in sorted(counts.items(), key=lambda item: (-(item[1] or 0), item[0])):
        if count:
            reason = REASONS.get(name, name.replace("_", " "))
            found.append(f"{count_text(count)} ({reason})")
    lost = report["coverage"]["total"]
    hidden = (
        f" More may lie in {many(lost['gaps'], 'gap')} of {bytes_text(lost['gap_bytes'])}."
        if lost["gaps"]
        else ""
    )
    if found:
        return f" Not judged: {'; '.join(found)}.{hidden}"
    if hidden:
        return hidden
    return " Nothing was left unjudged." if lost["frames"] else " There was nothing to judge."


def _counted(value: int | None, one: str, several: str | None = None) -> str:
    """A count with its noun; an unknown one says so."""
    return (
        f"an unknown number of {several or one + 's'}"
        if value is None
        else many(value, one, several)
    )


def _send_latency(report: Row) -> str:
    total = report["send_latency"]["total"]
    trip = report["connecting"]["total"]["network_round_trip_ms"]
    nearer = report["requests"]["total"]["tap_nearer_to"]
    place = (
        f"certainly nearer to the {nearer}"
        if nearer
        else "whether nearer to client or broker is not certain"
    )
    path = (
        f" The whole path took {duration_text(trip['p50'])} there and back (median of "
        f"{many(trip['count'], 'handshake')})."
        if trip["count"]
        else ""
    )
    return (
        "Time from the last byte of a SEND to the last byte of its receipt, where the capture was "
        f"taken ({place}): the broker's work and the part of the network behind that place.{path}"
        f" It speaks of {many(total['latency_ms']['count'], 'receipt')} for "
        f"{_counted(total['sends'], 'send')}; refused sends and receipts without an id are no "
        f"latencies.{not_judged(report, total['not_judged'])}"
    )


def _permits(report: Row) -> str:
    total = report["permit_utilization"]["total"]
    if total["not_applicable"]:
        return f"Not applicable: {total['not_applicable']}."
    of = total["utilization_of"]
    shares = (
        f"{many(of['delivered'], 'message')} delivered of {count_text(of['allowed'])} allowed, "
        f"and {duration_text(total['observed_ms'])} of known balance, of all consumers together"
        if of
        else "no consumer whose balance is known"
    )
    return (
        "Share of the messages that consumers allowed (permits) which was delivered to them. It "
        f"speaks of {shares}.{not_judged(report, total['not_judged'])} Silence with permits "
        "left may be an empty backlog or a limit of the broker; a capture cannot tell."
    )


def _redelivery(report: Row) -> str:
    total = report["redelivery"]["total"]
    return (
        "Share of deliveries to clients' queues that were not the first of their entry, by the "
        "broker's count or by an id seen before. It speaks of "
        f"{_counted(total['deliveries'], 'delivery', 'deliveries')} with "
        f"{_counted(total['messages'], 'message')}, and is the least it can be: what was "
        "delivered before the capture began is known only where the broker counts it."
        f"{not_judged(report, total['not_judged'])}"
    )


def _checksums(report: Row) -> str:
    total = report["checksum_failures"]["total"]
    if total["not_applicable"]:
        return f"Not applicable: {total['not_applicable']}."
    absent = f" {count_text(total['absent'])} carry none." if total["absent"] else ""
    return (
        "Share of SEND and MESSAGE frames whose checksum (CRC32C) does not match their bytes. It "
        f"speaks of {many(total['evaluated'], 'frame')} that were seen whole.{absent}"
        f"{not_judged(report, total['not_evaluated_by_reason'])} A mismatch is damage on the wire "
        "only if the receiver says so too."
    )


def _errors(report: Row) -> str:
    total = report["errors"]["total"]
    frames = report["coverage"]["total"]["frames"]
    if total["answers"] is None:
        return (
            "Answers that refuse a request, of any command. The direction of the answers was not "
            "captured, so nothing is known of them."
        )
    return (
        "Answers that refuse a request, of any command; repeats of one request within two minutes "
        f"are one incident. {_counted(total['answers'], 'answer')} in "
        f"{_counted(total['incidents'], 'incident')}, in {many(frames, 'frame')}."
        f"{not_judged(report, {})} What a client refuses by itself never reaches the wire."
    )


def _transit(report: Row) -> str:
    total = report["publish_to_delivery"]["total"]
    return (
        "Time from the last byte of a SEND to the last byte of the MESSAGE that carries its entry "
        "to a consumer's queue, across connections of the same capture. It speaks of "
        f"{many(total['transit_ms']['count'], 'first delivery', 'first deliveries')} of "
        f"{_counted(total['deliveries'], 'delivery', 'deliveries')}."
        f"{not_judged(report, total['not_judged'])}"
    )


def _acks(report: Row) -> str:
    total = report["ack_latency"]["total"]
    floor = total["grouping_floor_ms"]
    gathered = {
        None: "Whether clients kept acks back to send them together is not known.",
        0.0: "Every ack wanted an answer, so none was kept back.",
    }.get(
        floor,
        f"Clients gathered acks and sent them together, by default for up to "
        f"{duration_text(floor or 0)}: that much of the time may be waiting in the client.",
    )
    return (
        "Time from the last byte of a MESSAGE to the first byte of the ACK that consumes it: the "
        f"queue of the client, its application and the network. {gathered} It speaks of "
        f"{count_text(total['ack_latency_ms']['count'])} of "
        f"{_counted(total['deliveries'], 'delivery', 'deliveries')}."
        f"{not_judged(report, total['not_judged'])}"
    )


def _requests(report: Row) -> str:
    total = report["requests"]["total"]
    return (
        "Time from the last byte of a request to the last byte of its answer, for every command "
        "but SEND; a PING by who sent it, since the other side answers. It speaks of "
        f"{many(total['latency_ms']['count'], 'answer')} to "
        f"{_counted(total['requests'], 'request', 'requests')}."
        f"{not_judged(report, total['not_judged'])}"
    )


def _connecting(report: Row) -> str:
    total = report["connecting"]["total"]
    return (
        "How long a client took from its first question about a topic to the producer or consumer "
        "that is open on it, with connecting and its own pauses, and how many connections clients "
        f"opened at once. It speaks of {_counted(total['chains'], 'chain', 'chains')} and "
        f"{_counted(total['opened'], 'connection', 'connections')} whose opening was captured."
        f"{not_judged(report, total['not_judged'])}"
    )


def _slowest(report: Row) -> str:
    sends = len(report["slowest"]["publish"])
    others = len(report["slowest"]["other"])
    return (
        f"The slowest exchanges that could be timed, {many(sends, 'send')} and "
        f"{many(others, 'other request')}, with the frames and packets to look at. Refused sends "
        "are not among them, nor what was never answered: it has no time."
    )


def _coverage(report: Row) -> str:
    total = report["coverage"]["total"]
    one_way = sum(total["one_way_connections"].values())
    lacks = f" Of {many(one_way, 'connection')} one direction is missing." if one_way else ""
    return (
        f"What was read: {many(total['packets'], 'packet')} with "
        f"{bytes_text(total['stream_bytes'])} of stream in "
        f"{many(total['connections'], 'connection')}. decoded_share is what of these bytes stands "
        f"in whole frames; the rest was not captured, was cut, or is no Pulsar.{lacks} What is "
        "missing here is missing in every other section."
    )


def joined_about(closing: Row) -> str:
    """What the section `closing` speaks of."""
    total = closing["total"]
    counted = total["frames_straddling"] - total["frames_lost"]
    found = [
        "What captures know only together: a connection that goes on in the next one, a message "
        "that is published in one and delivered in another. "
        f"{many(total['captures_joined'], 'capture', 'captures')} of {total['captures']} "
        f"were read as {total['groups']}."
    ]
    if total["frames_straddling"]:
        frames = many(total["frames_straddling"], "frame", "frames")
        found.append(
            f"{frames} begin in one capture and end in the next: {counted} counted, being sends "
            f"and deliveries that say whose they are, and {total['frames_lost']} lost."
        )
    if total["bytes_missing_between"]:
        missing = many(total["bytes_missing_between"], "byte", "bytes")
        found.append(f"{missing} are missing between captures.")
    if closing["copies"]:
        copies = many(len(closing["copies"]), "capture", "captures")
        found.append(
            f"{copies} with the same traffic as another one: what both hold counts once, but in "
            "coverage."
        )
    return " ".join(found)


SENTENCES: Final[dict[str, Callable[[Row], str]]] = {
    "coverage": _coverage,
    "send_latency": _send_latency,
    "permit_utilization": _permits,
    "redelivery": _redelivery,
    "checksum_failures": _checksums,
    "errors": _errors,
    "publish_to_delivery": _transit,
    "ack_latency": _acks,
    "requests": _requests,
    "connecting": _connecting,
    "slowest": _slowest,
}


def explained(report: Row) -> Row:
    """The report with its text, `about`, in each section; only for reports of all sections."""
    if any(section not in report for section in SENTENCES):
        return report
    return {
        name: {"about": spoken(report, SENTENCES[name](report)), **content}
        if name in SENTENCES
        else content
        for name, content in report.items()
    }
