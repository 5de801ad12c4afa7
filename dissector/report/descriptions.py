"""What the words of a report mean: outcomes, causes and statuses, a sentence each, for readers."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dissector.notices import NOTICES
from dissector.schemas.enums import CAUSES, DELIVERY_OUTCOMES, OUTCOMES, STATUSES

__all__ = ["CAUSES", "DELIVERY_OUTCOMES", "OUTCOMES", "STATUSES", "meaning_of"]

# Why an entry was delivered again, within a sentence, behind a number of deliveries.
CAUSE_WORDS: Final = {
    "explicit": "asked for by the consumer (negative ack or ack timeout)",
    "txn_abort": "after an aborted transaction",
    "consumer_gone": "after their consumer went away",
    "seek": "after a seek",
    "failover_switch": "after another consumer became the active one",
    "reconnect": "after a reconnect",
    "unload": "after the broker gave the topic away or took it again (unload)",
    "pre_capture": "delivered first before the capture began",
    "unknown": "for no reason that the capture shows",
    "rebalance": "after the members of the group changed",
    "no_commit": "since their offset had not been committed",
    "reset": "after the group began at an older offset",
}
# What to do about it, by the most frequent cause.
CAUSE_STEPS: Final = {
    "explicit": "See why the application rejects messages, or needs longer than its ack timeout",
    "txn_abort": "See why transactions are aborted",
    "consumer_gone": "See why consumers went away: a crash, a deployment, a lost connection",
    "seek": "Ask who moved the subscription back; if it was on purpose, nothing is to be done",
    "failover_switch": "See why the active consumer changed: a crash, a new consumer, a deployment",
    "reconnect": "See why connections were lost: the broker's log, the network, keep-alives",
    "unload": "See the broker's log for unloads: load balancing, a restart, an administrator",
    "rebalance": "See why members of the group come and go: crashes, deployments, lost heartbeats",
    "no_commit": "See why the group does not commit what it has read",
    "reset": "Ask who set the group back; if it was on purpose, nothing is to be done",
}
# The same of a reconnect, by who closed the connection before it, and whether the broker had
# refused a send on it just then.
RECONNECT_STEPS: Final = {
    ("client", True): "See why the broker refused a send: the client closed its connection then",
    ("broker", True): "See why the broker refused a send and closed the connection",
    ("client", False): "See the client's log: it closed its connection itself",
    ("broker", False): "See the broker's log: it closed the connection",
}
NO_CODE: Final = "no code"  # of a refusal that says why in words alone
# Why a broker closed a producer or consumer, as far as the capture shows it.
CLOSE_CAUSES: Final = {
    "migrated": "told to go to another cluster (TOPIC_MIGRATED)",
    "terminated": "on a terminated topic (TopicTerminatedError)",
    "refused": "after it had refused a send",
    "not_opened_again": "and refused to be opened again",
    "seek": "on a seek",
    "opened_again": "opened again later as after an unload",
    "unknown": "for a reason that the capture does not show",
}
# What to do about a refusal, by its code; Pulsar's names, then those of Cursus.
ERROR_STEPS: Final = {
    "ChecksumError": "The entry was damaged before it reached the broker.",
    "PersistenceError": "Look at the bookies and the broker's log: storing failed.",
    "ServiceNotReady": "The topic was being moved or loaded: clients ask again by themselves.",
    "ProducerBlockedQuotaExceededError": "The backlog quota is full: consume, or raise it.",
    "ProducerBlockedQuotaExceededException": "The backlog quota is full: consume, or raise it.",
    "ConsumerBusy": "Another consumer holds the subscription, or its limit is reached.",
    "ProducerBusy": "Another producer of this name is connected, or the limit is reached.",
    "ProducerFenced": "Another producer took the topic for itself.",
    "TopicNotFound": "Create the topic, or allow automatic creation.",
    "GET_SCHEMA TopicNotFound": "A topic has no schema before its first producer brings one.",
    "InvalidTopicName": "Check how the client writes the topic's name.",
    "SubscriptionNotFound": "Create the subscription first.",
    "AuthenticationError": "Check the client's credentials.",
    "AuthorizationError": "Grant the client's role the right on this topic.",
    "TooManyRequests": "The broker limits lookups: fewer clients at once, or raise the limit.",
    "topic_not_found": "Create the topic first.",
    "authentication_required": "Let the client authenticate first.",
    "authentication_failed": "Check the client's credentials.",
    "NOT_AUTHORIZED_FOR_TOPIC": "Grant the client the right on this topic.",
    "NOT_LEADER": "Clients asked a follower: check their list of brokers.",
    "NOT_COORDINATOR": "Clients asked a broker that does not keep the group: check their list.",
    "GEN_MISMATCH": "The group had been rebalanced: its members join again by themselves.",
    "version_conflict": "Another writer was first: read the stream again before appending.",
    "broker_error": "Look at the broker's log at this time.",
    "malformed_input": "The broker cannot read the request: compare versions of client and broker.",
    "decode_failed": "The broker cannot read the request: compare versions of client and broker.",
    "missing_topic": "The request names no topic: compare versions of client and broker.",
    "unknown_command": "The broker does not know the command: compare the versions.",
}


def code_text(code: str | None) -> str:
    """The code of a refusal in a sentence: its name; its number where this version has none."""
    if code is None:
        return NO_CODE
    return f"code {code}" if code.lstrip("-").isdecimal() else code


def _sentence(text: str) -> str:
    """A notice's sentence; the numbers of single notices stand in the table, here are blanks."""
    return re.sub(r"\{(value2?|name)\}", "…", text)


# What each notice and each bound of the summary says.
NOTICE_SENTENCES: Final = {kind.code: _sentence(kind.sentence) for kind in NOTICES}


def notice_sentence(total: Mapping[str, Any], code: str) -> str:
    """What notices of a code say: the sentence of those about the capture, with their numbers; of
    several other ones the sentence with blanks.

    Args:
        total: of the section `coverage`.
    """
    texts = total["notice_texts"].get(code, [])
    if len(texts) == total["notices_by_code"].get(code):
        return "; ".join(texts)
    return NOTICE_SENTENCES.get(code, "a notice of another version")


# Findings that somebody should see at once; what other verdicts speak of is not among them.
SERIOUS: Final = frozenset(
    kind.code for kind in NOTICES if kind.severity == "error" and kind.code != "unknown_link_type"
)


def _notices(codes: Iterable[str]) -> dict[str, str]:
    return {code: NOTICE_SENTENCES.get(code, "") for code in codes}


def meaning_of(kind: Mapping[str, str] | str, words: Iterable[str]) -> dict[str, str]:
    """What each word means; kind: one of the tables above, or "notices" for codes of notices."""
    if kind == "notices":
        return _notices(words)
    assert not isinstance(kind, str)
    return {word: kind.get(word, "") for word in words}
