"""The type of a section: its numbers, the sentences about them, and the number of its verdict.

The sentences are built from the report's numbers. They say what the numbers mean, how many cases
they cover, what was not evaluated and why. Every section has sentences.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from dissector.report.formatting import bytes_text, count_text, many
from dissector.report.merged_tables import MergedTables
from dissector.report.numbers import NOT_EVALUATED, Row
from dissector.schemas.enums import DELIVERY_OUTCOMES, OUTCOMES


def _count_or_nothing(count: int) -> str:
    """Empty for 0: the verdict may come from a finding, and a 0 beside it would mislead."""
    return count_text(count) if count else ""


class Judged(NamedTuple):
    """A section's column in the list of verdicts by capture.

    column: its heading on the page.
    number: returns the deciding number of the section's total.
    text: that number in words, may be empty.
    """

    column: str
    number: Callable[[Row], Any]
    text: Callable[[Any], str] = _count_or_nothing


class Section(NamedTuple):
    """A section of the report, one module of `sections` each.

    build: returns its content, `total` and lists.
    about: returns its sentences, from a report with all sections.
    reads: the queries of the catalogue that it needs.
    judged: None if no verdict depends on it.
    """

    name: str
    build: Callable[[MergedTables], dict[str, Any]]
    about: Callable[[Row], str]
    reads: tuple[str, ...]
    judged: Judged | None = None


# Why something was not evaluated, by the keys of `not_evaluated_by_reason` and `outcomes`.
REASONS: Final = {
    **{outcome: OUTCOMES[outcome] for outcome in NOT_EVALUATED},
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


def not_evaluated(report: Row, counts: Mapping[str, int | None]) -> str:
    """The sentence on what was not evaluated: counts and reasons.

    No count includes frames in bytes that were never captured: their number is unknown.
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
        return f" Not evaluated: {'; '.join(reasons)}.{hidden}"
    if hidden:
        return hidden
    return " Everything was evaluated." if lost["frames"] else " There was nothing to evaluate."


def counted(value: int | None, one: str, several: str | None = None) -> str:
    """A count with its noun; None: "an unknown number of"."""
    return (
        f"an unknown number of {several or one + 's'}"
        if value is None
        else many(value, one, several)
    )
