"""The words that stand in columns of the lake, and what each means.

Columns list them, docs/lake.md and reports explain them: all from here.
"""

from collections.abc import Iterable
from typing import Final

# How connections ended; the number of a word is its place in this order (`ENDED_*`).
ENDED: Final = {
    "fin": "both sides ended their streams",
    "rst": "a side reset it",
    "reused": "its addresses and ports were used for another one",
    "idle": "silent for too long, or given up as there were too many",
    "capture_end": "still open at the end of the capture",
}
# Outcomes of exchanges.
OUTCOMES: Final = {
    "ok": "the answer confirms it",
    "error": "the answer refuses it",
    "dup_or_dropped": "a receipt without an id: the broker had it already, or dropped it",
    "dropped_after_close": "never answered; its producer had been closed or opened again",
    "conn_closed": "never answered; the connection ended first",
    "unanswered_at_end": "not answered by the end of the capture",
    "lost_in_gap": "not answered in what was captured; bytes of the answers are missing",
    "response_cut": "answered, but the answer is not whole in the capture",
    "other_side_not_captured": "only one direction of the connection was captured",
    "not_awaited": "the client wanted no answer",
    "evicted": "given up unanswered, too many waited",
    "orphan_response": "an answer whose request was not captured",
}
# Why an entry was delivered again, in the order in which Pulsar's causes are asked for: the first
# that fits. (Those of Cursus come last.)
CAUSES: Final = {
    "seek": "the subscription was moved back",
    "explicit": "the consumer asked for it: negative ack, ack timeout",
    "txn_abort": "its acknowledgement was part of a transaction that was aborted",
    "failover_switch": "another consumer became the active one",
    "unload": "the broker gave the topic away, or took it again",
    "reconnect": "the consumer came back on a new connection",
    "consumer_gone": "the consumer that held it went away",
    "pre_capture": "the broker counted it; the delivery before is older than the capture",
    "unknown": "nothing in the capture explains it",
    "rebalance": "the members of the group changed",
    "no_commit": "its offset had not been committed",
    "reset": "the group began at an older offset",
}
# What became of deliveries.
DELIVERY_OUTCOMES: Final = {
    "acked": "acknowledged",
    "discarded": "discarded by the consumer as unreadable: the application never got it",
    "redelivery_requested": "the consumer asked for it again",
    "consumer_closed": "the consumer was closed first",
    "unacked_at_end": "not acknowledged by the end of the capture",
    "conn_closed": "the connection ended first",
    "unknown_gap": "bytes in which the ack may lie are missing",
    "unresolved_at_limit": "given up, too many were open",
}
STATUSES: Final = {
    "complete": "all bytes are there",
    "cut_by_gap": "bytes in it were never captured",
    "cut_by_snaplen": "the capture kept only the beginning of its packets",
    "cut_by_end": "the capture or the connection ended within it",
    "malformed": "its fields cannot be read",
}
CHECKSUMS: Final = {
    "ok": "the CRC32C that the frame carries is that of its bytes",
    "mismatch": "it is not: the bytes changed on their way, or in the capture",
    "absent": "the frame carries no checksum",
    "not_evaluated": "not all of the bytes that it covers are in the capture, or readable",
}
NAME_SOURCES: Final = {
    "observed": "the command that opened it is in the capture",
    "backfilled": "a producer of the same name and id, opened in the capture, gave the topic",
    "ledger_join": "its ledger gave the topic, which another row of the capture names",
    "unknown": "nothing in the capture names it",
}
# What docs/lake.md explains: columns, and their words.
EXPLAINED: Final = {
    "connections.ended": ENDED,
    "exchanges.outcome": OUTCOMES,
    "deliveries.outcome": DELIVERY_OUTCOMES,
    "deliveries.redelivery_cause": CAUSES,
    "frames.status": STATUSES,
    "frames.checksum, deliveries.checksum": CHECKSUMS,
    "frames.name_source, producers.name_source, consumers.name_source": NAME_SOURCES,
}


def listed(words: Iterable[str]) -> str:
    """Words as a list in a sentence."""
    *first, last = words
    return f"{', '.join(first)} or {last}"
