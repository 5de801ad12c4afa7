"""Every sentence of a summary on every sample capture: readable, and true to clients' logs."""

import functools
import re
from typing import Any

import pytest

from dissector.dissection import Options
from dissector.report.headlines import WRONG, Headline, headlines
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.dissector.observed import CASES, CURSUS_CASES, LOGGED, Case, ids_of, name_of
from tests.numbers import Numbers

NUMBER = r"([\d,]+)"
SETTLED = "In the end every message was confirmed."
NOTHING_AGAIN = "nothing was delivered again."
# Counted nouns that must not be several behind a 1.
NOUNS = "sends|deliveries|messages|requests|checksums|connections|consumers|answers|incidents"
MISCOUNTED = re.compile(
    rf"\b1 (?:{NOUNS})\b|\bof 1 |(?<![\d.,])0 of "
    rf"|\b(?!1\b)\d+ (?:send|delivery) |  "
)
ONE_OF_MANY = re.compile(rf"\b1 (?:{NOUNS})\b")
# All went well for the client, and yet something is wrong on the wire.
NOT_CALM = {
    "cpp-s30_latency_mix-wireloss.pcap.gz": "packets were lost behind the tap",
    "java-j17_blocked_unacked.pcap": "delivery stopped at the limit of unacknowledged messages",
    "java-j24_unload.pcap": "the broker unloaded the topic, and messages were stored twice",
    "java-j38_throttled.pcap": "the broker paced its receipts",
    "java-j39_dispatch_rate.pcap": "deliveries waited for a dispatch rate",
    "java-j73_broker_restart-bem.pcap": "sends waited for a broker that was down",
    "java-j74_corrupt.pcap": "a bit was flipped",
}


@functools.cache
def reports() -> dict[str, dict[str, Any]]:
    """What `dissector summary` says of each capture, by the ids of tests."""
    summary = Numbers(asks_rules=True)
    for case in (*CASES, *CURSUS_CASES):
        (chain,) = chains([str(case.path)], "auto").chains
        for block in dissect(chain, Options(want_detail="none")):
            summary.add_block(block, name_of(case))
    return summary.results()


@functools.cache
def said(case: Case) -> tuple[Headline, ...]:
    return tuple(headlines(reports()[name_of(case)]))


def text_of(case: Case, *sections: str) -> str:
    """What numbers say of some sections; findings are not among it."""
    found = (each for each in said(case) if each.section in sections and not each.anchor)
    return " ".join(each.text for each in found)


# Where the client library gave up a send that never reached the wire: its producer was refused.
NEVER_SENT = "java-j26_backlog_quota.pcap"


def is_well(case: Case, section: str) -> bool:
    """Whether what numbers say of a section is that all is well."""
    return any(each.word == "ok" for each in said(case) if each.section == section)


def number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return None if match is None else int(match[1].replace(",", ""))


@pytest.mark.parametrize("case", [*CASES, *CURSUS_CASES], ids=name_of)
def test_sentences_read_right(case: Case) -> None:
    for each in said(case):
        text = each.text
        # Names from the wire in findings may look like the beginning of a count.
        assert not (ONE_OF_MANY if each.anchor else MISCOUNTED).search(text), text
        assert text.endswith(".") and ".." not in text and "None " not in text.split(". ")[0][5:]
        assert text[0].isupper() or text[0].isdigit() or text[0] in "<>"
        assert each.next_step or each.word not in WRONG, each


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_counts_in_sentences_are_those_of_the_slow_decoder(case: Case) -> None:
    told = case.truth["frames"]
    sends = number(rf"{NUMBER} sends?\b", text_of(case, "send_latency")) or 0
    refused = number(rf"{NUMBER} requests? (?:was|were) refused", text_of(case, "errors")) or 0
    if case.is_cut or case.is_lossy or case.has_both_proxy_sides:
        assert sends >= told.get("to_broker SEND", 0) or case.has_both_proxy_sides
        return
    assert sends == told.get("to_broker SEND", 0)
    assert refused >= told.get("to_client SEND_ERROR", 0)
    text = text_of(case, "redelivery")
    deliveries = number(rf"{NUMBER} deliver(?:y|ies)", text)
    if not case.is_one_way:
        assert (deliveries or 0) == told.get("to_client MESSAGE", 0)


@pytest.mark.parametrize("case", LOGGED, ids=name_of)
def test_what_is_said_to_be_well_was_well_for_the_client(case: Case) -> None:
    """No repeat where a client saw one, nothing confirmed that a client was told has failed."""
    again = [each for each in case.events if each["ev"] == "recv" and each.get("redelivery_count")]
    if NOTHING_AGAIN in text_of(case, "redelivery"):
        assert not again
    sends = text_of(case, "send_latency")
    if SETTLED in sends:
        assert not case.seen.get("sent_err")
    if "had no attempt that was confirmed" in sends:
        assert case.seen.get("sent_err")
    if SETTLED not in sends and case.is_whole and "Not confirmed" in sends:
        assert case.seen.get("sent_err")
    acks = text_of(case, "ack_latency")
    got = {each.get("mid") for each in case.events if each["ev"] == "recv"}
    done = {each.get("mid") for each in case.events if each["ev"] == "ack"}
    if is_well(case, "ack_latency") and done:
        assert re.fullmatch(rf"{NUMBER} deliver(?:y|ies): \1 acknowledged\.", acks)
        assert got <= done or "txn_ack" in {each["ev"] for each in case.events}
    if is_well(case, "send_latency"):
        assert "confirmed as stored" in sends
        assert not case.seen.get("sent_err") or case.name == NEVER_SENT


# Sends of which the client's log has more, or fewer, than the wire.
NOT_AS_LOGGED = {
    "cpp-s11_dlq.pcap": "the client library published dead letters itself",
    "java-j16_dlq_retry.pcap": "the client library published dead letters itself",
}


@pytest.mark.parametrize("case", LOGGED, ids=name_of)
def test_what_was_published_and_stored_is_what_the_clients_say(case: Case) -> None:
    """Deduplication stores less than was published; what was repeated may be stored twice."""
    if not case.is_whole or case.name in NOT_AS_LOGGED or not case.seen["sent_ok"]:
        return
    sends = [each for each in case.events if each["ev"] == "send" and not each.get("err")]
    dropped = [each for each in sends if str(each.get("mid", "")).startswith("-1:")]
    text = text_of(case, "send_latency")
    confirmed = case.seen["sent_ok"] - len(dropped)
    match = re.match(rf"{NUMBER} sends? with {NUMBER} messages?, (.*?)[;.]", text)
    assert match, text
    published = int(match[2].replace(",", ""))
    assert 0 <= published - case.seen["sent_ok"] <= (case.seen.get("sent_err") or 0)
    again = number(rf"confirmed as stored {NUMBER} times", match[3])
    part = number(rf"{NUMBER} of them", match[3])
    if again is not None:
        assert again > confirmed and case.name in NOT_CALM
    elif part is None and not match[3].startswith("none"):
        assert published == confirmed
    else:
        assert (part or 0) == confirmed


# Acknowledged by the client library itself, which no application logs.
BY_THE_LIBRARY = {
    **NOT_AS_LOGGED,
    "java-j22_reader.pcap": "readers acknowledge what they have read",
    "java-j28_compaction.pcap": "readers acknowledge what they have read",
}


@pytest.mark.parametrize("case", LOGGED, ids=name_of)
def test_nothing_is_called_acknowledged_that_no_client_acknowledged(case: Case) -> None:
    """An acknowledgement that was rolled back is followed by another one of the same message."""
    acks = [each for each in case.events if each["ev"] in ("ack", "txn_ack")]
    is_plain = "seek" not in case.name and not any(
        each["ev"] == "cumack" or ";" in str(each.get("mid")) for each in case.events
    )
    text = text_of(case, "ack_latency")
    if not (acks and is_plain and text) or case.name in BY_THE_LIBRARY or case.has_both_proxy_sides:
        return
    entries = {(each.ledger, each.entry) for ack in acks for each in ids_of(ack)}
    subscriptions = {each.get("sub") for each in case.events if each["ev"] == "recv"}
    said_acked = number(rf"{NUMBER} acknowledged", text)
    assert said_acked is not None, text
    assert said_acked <= len(entries) * max(len(subscriptions), 1), text


@pytest.mark.parametrize("case", LOGGED, ids=name_of)
def test_a_client_for_whom_all_went_well_alarms_nobody(case: Case) -> None:
    seen = case.seen
    events = {each["ev"] for each in case.events if not each.get("err")}
    is_fine = seen["sent_ok"] == seen["recv_total"] and not seen.get("sent_err")
    is_fine &= not seen["recv_redelivered"] and not events & {"nack", "seek", "SIGKILL"}
    if not (case.is_whole and is_fine):
        return
    alarms = [each for each in said(case) if each.word in WRONG]
    assert bool(alarms) == (case.name in NOT_CALM), alarms


def test_what_little_was_decoded_is_no_evidence() -> None:
    for name in ("mut-snap200-java-j03_batch_lz4.pcap", "var-snaplen96.pcap"):
        (case,) = (case for case in CASES if case.name == name)
        assert not any(each.word == "ok" for each in said(case)), name


def test_a_direction_that_is_missing_makes_no_attempt_vain() -> None:
    for case in (*CASES, *CURSUS_CASES):
        if "one_direction" in case.name or case.is_one_way:
            assert "came to nothing" not in text_of(case, "connecting"), case
