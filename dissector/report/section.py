"""What a section is: its numbers, the sentences about them, and what decides its verdict.

The sentences are made from the numbers of the report itself: what they mean, of how many they
speak, what was not judged and why. No number stands without them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from dissector.report.formatting import bytes_text, count_text, many
from dissector.report.merged_tables import MergedTables
from dissector.report.numbers import NOT_JUDGED, Row
from dissector.schemas.enums import DELIVERY_OUTCOMES, OUTCOMES


def _count_or_nothing(count: int) -> str:
    """Where a finding decided, none of what is counted may be there: a 0 beside it misleads."""
    return count_text(count) if count else ""


class Judged(NamedTuple):
    """How a section stands in the list of verdicts by capture.

    column: its heading on the page.
    number: what decides, from the section's total.
    text: that number in words, empty where it is not worth telling.
    """

    column: str
    number: Callable[[Row], Any]
    text: Callable[[Any], str] = _count_or_nothing


class Section(NamedTuple):
    """A section of the report, one module of `sections` each.

    build: its content, `total` and lists.
    about: its sentences, from a report that has all sections.
    reads: queries of the catalogue that it is made from.
    judged: None where no verdict is made from it.
    """

    name: str
    build: Callable[[MergedTables], dict[str, Any]]
    about: Callable[[Row], str]
    reads: tuple[str, ...]
    judged: Judged | None = None


# Why something was not judged, by the names that stand in `not_judged` and `outcomes`.
REASONS: Final = {
    **{outcome: OUTCOMES[outcome] for outcome in NOT_JUDGED},
    **{outcome: reason for outcome, reason in DELIVERY_OUTCOMES.items() if outcome != "acked"},
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
    reasons = []
    for name, count in sorted(counts.items(), key=lambda item: (-(item[1] or 0), item[0])):
        if count:
            reason = REASONS.get(name, name.replace("_", " "))
            reasons.append(f"{count_text(count)} ({reason})")
    lost = report["coverage"]["total"]
    hidden = (
        f" More may lie in {many(lost['gaps'], 'gap')} of {bytes_text(lost['gap_bytes'])}."
        if lost["gaps"]
        else ""
    )
    if reasons:
        return f" Not judged: {'; '.join(reasons)}.{hidden}"
    if hidden:
        return hidden
    return " Nothing was left unjudged." if lost["frames"] else " There was nothing to judge."


def counted(value: int | None, one: str, several: str | None = None) -> str:
    """A count with its noun; an unknown one says so."""
    return (
        f"an unknown number of {several or one + 's'}"
        if value is None
        else many(value, one, several)
    )
