"""The words that stand in columns of the lake: of each its number, itself and what it means.

Kernels write numbers, columns list the words, docs/lake.md and reports explain them: all from
here. The number of a word is its index among those of its dictionary; numbers are internal and may
change.
"""

from collections.abc import Iterable
from typing import Final


def _word(words: dict[str, str], word: str, meaning: str) -> int:
    """Add a word to a dictionary of words and meanings; returns its number."""
    assert word not in words
    words[word] = meaning
    return len(words) - 1


# How connections ended; the number of a word is its index in this order (`ENDED_*`).
ENDED: Final = {
    "fin": "both sides ended their streams",
    "rst": "a side reset it",
    "reused": "its addresses and ports were used for another one",
    "idle": "silent for too long, or given up as there were too many",
    "capture_end": "still open at the end of the capture, as far as its directions were captured",
}

# What became of the records of a TLS connection, and why.
TLS_DECRYPTION: Final[dict[str, str]] = {
    "decrypted": "a key opened all of its records",
    "partly": "a key opened it, but for some records",
    "no_key_log": "no key log was given",
    "no_key": "the key log has no key for it",
    "wrong_key": "the key of the key log does not open it",
    "no_hello": "its hellos, which say whose key it wants, are not in the capture",
    "unsupported": "its version or cipher is not read",
    "no_library": "what opens records is not installed: the extra tls",
    "limit": "too many TLS connections at once",
}

# Kinds of exchanges.
KINDS: Final[dict[str, str]] = {}
KIND_PUBLISH: Final = _word(KINDS, "publish", "a message is sent to be stored")
KIND_REQUEST: Final = _word(KINDS, "request", "anything else that has an answer of its own")
KIND_ACK: Final = _word(KINDS, "ack", "an acknowledgement that asks to be confirmed")
KIND_PING: Final = _word(KINDS, "ping", "a question whether the other side is alive")
KIND_AUTH: Final = _word(KINDS, "auth", "a challenge to authenticate")
KIND_CONSUME: Final = _word(KINDS, "consume", "a request for messages")

# Outcomes of exchanges.
OUTCOMES: Final[dict[str, str]] = {}
OK: Final = _word(OUTCOMES, "ok", "the answer confirms it")
ERROR_ANSWER: Final = _word(OUTCOMES, "error", "the answer refuses it")
DUP_OR_DROPPED: Final = _word(
    OUTCOMES, "dup_or_dropped", "a receipt without an id: the broker had it already, or dropped it"
)
DROPPED_AFTER_CLOSE: Final = _word(
    OUTCOMES, "dropped_after_close", "never answered; its producer had been closed or opened again"
)
CONN_CLOSED: Final = _word(OUTCOMES, "conn_closed", "never answered; the connection ended first")
UNANSWERED_AT_END: Final = _word(
    OUTCOMES, "unanswered_at_end", "not answered by the end of the capture"
)
LOST_IN_GAP: Final = _word(
    OUTCOMES, "lost_in_gap", "not answered in what was captured; bytes of the answers are missing"
)
RESPONSE_CUT: Final = _word(
    OUTCOMES, "response_cut", "answered, but the answer is not whole in the capture"
)
OTHER_SIDE_NOT_CAPTURED: Final = _word(
    OUTCOMES, "other_side_not_captured", "only one direction of the connection was captured"
)
NOT_AWAITED: Final = _word(OUTCOMES, "not_awaited", "the client wanted no answer")
EVICTED: Final = _word(OUTCOMES, "evicted", "given up unanswered, too many waited")
ORPHAN_RESPONSE: Final = _word(
    OUTCOMES, "orphan_response", "an answer whose request was not captured"
)

# Why an entry was delivered again, in the order in which Pulsar's causes are asked for: the first
# that fits. (Those of Cursus come last.)
CAUSES: Final[dict[str, str]] = {}
CAUSE_SEEK: Final = _word(CAUSES, "seek", "the subscription was moved back")
CAUSE_EXPLICIT: Final = _word(
    CAUSES, "explicit", "the consumer asked for it: negative ack, ack timeout"
)
CAUSE_TXN_ABORT: Final = _word(
    CAUSES, "txn_abort", "its acknowledgement was part of a transaction that was aborted"
)
CAUSE_FAILOVER_SWITCH: Final = _word(
    CAUSES, "failover_switch", "another consumer became the active one, or the same one once more"
)
CAUSE_UNLOAD: Final = _word(CAUSES, "unload", "the broker gave the topic away, or took it again")
CAUSE_RECONNECT: Final = _word(CAUSES, "reconnect", "the consumer came back on a new connection")
CAUSE_CONSUMER_GONE: Final = _word(CAUSES, "consumer_gone", "the consumer that held it went away")
CAUSE_PRE_CAPTURE: Final = _word(
    CAUSES, "pre_capture", "the broker counted it; the delivery before is older than the capture"
)
CAUSE_UNKNOWN: Final = _word(CAUSES, "unknown", "nothing in the capture explains it")
CAUSE_REBALANCE: Final = _word(CAUSES, "rebalance", "the members of the group changed")
CAUSE_NO_COMMIT: Final = _word(CAUSES, "no_commit", "its offset had not been committed")
CAUSE_RESET: Final = _word(CAUSES, "reset", "the group began at an older offset")

# What became of deliveries.
DELIVERY_OUTCOMES: Final[dict[str, str]] = {}
ACKED: Final = _word(
    DELIVERY_OUTCOMES,
    "acked",
    "acknowledged; also behind the end of its consumer or a request to deliver it again, "
    "within five minutes and before the next delivery",
)
DISCARDED: Final = _word(
    DELIVERY_OUTCOMES,
    "discarded",
    "discarded by the consumer as unreadable: the application never got it",
)
REDELIVERY_REQUESTED: Final = _word(
    DELIVERY_OUTCOMES, "redelivery_requested", "the consumer asked for it again"
)
CONSUMER_CLOSED: Final = _word(
    DELIVERY_OUTCOMES, "consumer_closed", "the consumer was closed first"
)
UNACKED_AT_END: Final = _word(
    DELIVERY_OUTCOMES, "unacked_at_end", "not acknowledged by the end of the capture"
)
DELIVERY_CONN_CLOSED: Final = _word(DELIVERY_OUTCOMES, "conn_closed", "the connection ended first")
UNKNOWN_GAP: Final = _word(
    DELIVERY_OUTCOMES, "unknown_gap", "bytes in which the ack may lie are missing"
)
UNRESOLVED_AT_LIMIT: Final = _word(
    DELIVERY_OUTCOMES, "unresolved_at_limit", "given up, too many were open"
)
ACK_REFUSED: Final = _word(
    DELIVERY_OUTCOMES, "ack_refused", "the broker refused its acknowledgement, and no other counted"
)
ACK_ROLLED_BACK: Final = _word(
    DELIVERY_OUTCOMES,
    "ack_rolled_back",
    "its acknowledgement was undone with its transaction, and no other counted",
)
ACK_UNCOMMITTED: Final = _word(
    DELIVERY_OUTCOMES,
    "ack_uncommitted",
    "acknowledged in a transaction that had not ended when the capture did",
)

# What changes the balance of a consumer's permits.
PERMIT_EVENTS: Final[dict[str, str]] = {}
GRANT: Final = _word(PERMIT_EVENTS, "grant", "the consumer asked for more messages")
DELIVERY: Final = _word(PERMIT_EVENTS, "delivery", "messages came, which use them up")
RESET: Final = _word(PERMIT_EVENTS, "reset", "it starts at nothing again")

# What stands between the frames of a connection.
STREAM_EVENTS: Final[dict[str, str]] = {}
EVENT_GAP: Final = _word(STREAM_EVENTS, "gap", "bytes were never captured")
EVENT_SKIPPED: Final = _word(STREAM_EVENTS, "skipped", "bytes were there, but no frame in them")
EVENT_FIN: Final = _word(STREAM_EVENTS, "fin", "a direction is complete")
EVENT_CLOSE: Final = _word(STREAM_EVENTS, "close", "the connection is over")

# Who closed a producer or consumer.
CLOSERS: Final[dict[str, str]] = {}
BY_CLIENT: Final = _word(CLOSERS, "client", "the client closed it, or opened its id again")
BY_BROKER: Final = _word(CLOSERS, "broker", "the broker closed or refused it")
BY_CONNECTION: Final = _word(CLOSERS, "connection", "the connection ended")
BY_CAPTURE_END: Final = _word(CLOSERS, "capture_end", "it was open when the capture ended")

DIRECTIONS: Final[dict[str, str]] = {}
TO_BROKER: Final = _word(DIRECTIONS, "to_broker", "from the client to the broker")
TO_CLIENT: Final = _word(DIRECTIONS, "to_client", "from the broker to the client")
UNKNOWN_DIRECTION: Final = _word(DIRECTIONS, "unknown", "nothing tells client from broker")
BOTH_DIRECTIONS: Final = tuple(DIRECTIONS)[:UNKNOWN_DIRECTION]  # columns of each end in these words

STATUSES: Final[dict[str, str]] = {}
COMPLETE: Final = _word(STATUSES, "complete", "all bytes are there")
CUT_BY_GAP: Final = _word(STATUSES, "cut_by_gap", "bytes in it were never captured")
CUT_BY_SNAPLEN: Final = _word(
    STATUSES, "cut_by_snaplen", "the capture kept only the beginning of its packets"
)
CUT_BY_END: Final = _word(STATUSES, "cut_by_end", "the capture or the connection ended within it")
MALFORMED: Final = _word(STATUSES, "malformed", "its fields cannot be read")

CHECKSUMS: Final[dict[str, str]] = {}
CHECKSUM_OK: Final = _word(
    CHECKSUMS, "ok", "the CRC32C that the frame carries is that of its bytes"
)
CHECKSUM_MISMATCH: Final = _word(
    CHECKSUMS, "mismatch", "it is not: the bytes changed on their way, or in the capture"
)
CHECKSUM_ABSENT: Final = _word(CHECKSUMS, "absent", "the frame carries no checksum")
CHECKSUM_NOT_EVALUATED: Final = _word(
    CHECKSUMS,
    "not_evaluated",
    "not all of the bytes that it covers are in the capture, or readable",
)
# Why a checksum was not evaluated: by the status of its frame.
_NOTES: Final = {
    CUT_BY_GAP: "gap",
    CUT_BY_SNAPLEN: "snaplen",
    CUT_BY_END: "capture_end",
    MALFORMED: "malformed",
}
CHECKSUM_NOTES: Final = tuple(_NOTES.get(status, "") for status in range(len(STATUSES)))

NAME_SOURCES: Final[dict[str, str]] = {}
NAME_OBSERVED: Final = _word(
    NAME_SOURCES, "observed", "the command that opened it is in the capture"
)
NAME_BACKFILLED: Final = _word(
    NAME_SOURCES,
    "backfilled",
    "a producer of that broker with the same name and id, opened in the capture, gave the topic",
)
NAME_LEDGER_JOIN: Final = _word(
    NAME_SOURCES,
    "ledger_join",
    "its ledger gave the topic, which another row of the capture names for that broker",
)
NAME_UNKNOWN: Final = _word(NAME_SOURCES, "unknown", "nothing in the capture names it")

# How the keys of a Key_Shared subscription are shared.
KEY_SHARED_MODES: Final = {
    "AUTO_SPLIT": "the broker divides the slots of keys among its consumers",
    "STICKY": "each consumer asks for its own slots; what lies where nobody asks waits",
}

# Protocols that are told by first bytes and port, and not read.
OTHER_PROTOCOLS: Final = {
    "bookkeeper": "BookKeeper",
    "zookeeper": "ZooKeeper",
    "kafka": "Kafka",
    "mqtt": "MQTT",
    "amqp": "AMQP",
}

# What docs/lake.md explains: columns, and their words.
EXPLAINED: Final = {
    "connections.ended, events.ended": ENDED,
    "connections.tls_decryption": TLS_DECRYPTION,
    "exchanges.kind": KINDS,
    "exchanges.outcome": OUTCOMES,
    "deliveries.outcome": DELIVERY_OUTCOMES,
    "deliveries.redelivery_cause": CAUSES,
    "permits.event": PERMIT_EVENTS,
    "events.event": STREAM_EVENTS,
    "producers.closed_by, consumers.closed_by": CLOSERS,
    "consumers.key_shared_mode": KEY_SHARED_MODES,
    "frames.status": STATUSES,
    "frames.checksum, deliveries.checksum": CHECKSUMS,
    "frames.name_source, producers.name_source, consumers.name_source": NAME_SOURCES,
}


def listed(words: Iterable[str]) -> str:
    """Words as a list in a sentence."""
    *first, last = words
    return f"{', '.join(first)} or {last}"
