"""What people asked in public threads, and what the findings answer on captures like theirs.

Each capture is made from what its thread tells of the wire, landed with the others, and asked by
all rules. What a test expects is counted from how the capture was made.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from dissector.findings.finding import Finding
from tests.dissector.findings.asking import findings_by_capture, variant
from tests.dissector.findings.samples import RULES
from tests.dissector.findings.thread_captures import (
    LIMIT,
    MAKERS,
    PROPERTY_BYTES,
    Made,
    topic,
)


class Answer(NamedTuple):
    """The finding that answers a thread, and where things are in its capture."""

    one: Finding
    made: Made

    def said(self, name: str) -> str:
        """A sentence of its text, by its begin."""
        (line,) = [line for line in self.one.text.split("\n") if line.startswith(name)]
        return line

    def is_shown(self, *roles: str) -> bool:
        """Whether the evidence of these roles is the packets that the maker meant."""
        packets = {each.role: each.packet for each in self.one.evidence}
        return all(packets[role] == self.made.packets[role] for role in roles)


Answers = Callable[..., Answer]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Made, list[Finding]]]:
    """The warnings and errors of all rules, by capture."""
    folder = tmp_path_factory.mktemp("threads")
    made = {name: make() for name, make in MAKERS.items()}
    for name, each in made.items():
        (folder / f"{name}.pcap").write_bytes(each.file)
    by_capture = findings_by_capture(
        [rule.number for rule in RULES], {name: folder / f"{name}.pcap" for name in MAKERS}
    )
    return {
        name: (made[name], [one for one in findings if one.severity != "info"])
        for name, findings in by_capture.items()
    }


@pytest.fixture
def answer(found: dict[str, tuple[Made, list[Finding]]]) -> Answers:
    """The finding of a number; with it no other warning or error is there than those named."""

    def ask(thread: str, number: str, name: str = "", others: tuple[str, ...] = ()) -> Answer:
        made, findings = found[thread]
        assert sorted(one.number for one in findings) == sorted((number, *others))
        (one,) = [one for one in findings if one.number == number]
        assert variant(one) == name
        return Answer(one, made)

    return ask


def near(value: float, within: float = 0.05) -> object:
    return pytest.approx(value, abs=within)


# -- consumers that get nothing


def test_pulsar_100_who_owes_the_permits(answer: Answers):
    """apache/pulsar#100: available permits are 0 and the backlog grows; broker or client?

    The client: what its ack timeout asked for again used up its permits, and no FLOW followed.
    """
    answered = answer("pulsar_100", "D01", "redelivery_without_flow")
    assert answered.one.severity == "error" and answered.one.subject["consumer_name"] == "reader"
    # 10 permits: four messages, the same again, and two of them once more.
    assert answered.one.measured["granted"] == answered.one.measured["delivered"] == 4 + 4 + 2
    assert answered.one.measured["available"] == 0 and answered.one.measured["unacked"] == 2
    assert answered.one.measured["redelivers"] == 2
    assert answered.one.measured["lasted_s"] == near(5 * 3)
    assert answered.is_shown("last flow", "last message")
    assert any("connection was dead" in each for each in answered.one.ruled_out)
    assert any("application was slow" in each for each in answered.one.ruled_out)
    assert "ack timeout" in answered.said("What else looks the same")


def test_pulsar_6173_which_permits_leak(answer: Answers):
    """apache/pulsar#6173: a reader of batches stops; what does it count?

    Entries: at each FLOW it had given back as many permits as entries had come.
    """
    answered = answer("pulsar_6173", "D02", "counts_entries")
    assert (answered.one.severity, answered.one.verdict) == ("error", "proven")
    assert answered.one.measured["first_flow"] == 200
    assert answered.one.measured["entries"] == answered.one.measured["given_back"] == 18
    assert answered.one.measured["messages"] == 18 * 10
    assert "same sums" in answered.said("What else looks the same")


def test_client_go_155_why_twice_the_queue(answer: Answers):
    """apache/pulsar-client-go#155: why does a consumer get twice its queue?

    It subscribed while it was open and granted its queue once more; the messages between the two
    grants are those that it may have thrown away.
    """
    answered = answer("client_go_155", "D03")
    assert answered.one.severity == "warning" and answered.one.measured["first_flow"] == 1000
    assert answered.one.measured["most_available"] == 1000 - 12 + 1000
    assert answered.one.measured["dropped"] == 12
    assert "its first FLOW was 1,000" in answered.one.text
    assert answered.is_shown("second subscribe")
    assert "not on the wire" in answered.said("What else looks the same")


def test_pulsar_9788_does_the_broker_withhold(answer: Answers):
    """apache/pulsar#9788: 723 permits are left, the backlog grows: who is stuck?

    The broker: it had confirmed the entry that waits, and all that came was acknowledged.
    """
    answered = answer("pulsar_9788", "D05")
    assert (answered.one.severity, answered.one.verdict) == ("error", "proven")
    assert answered.one.measured["available"] == 1000 - 277 == 723
    assert answered.one.measured["entry"] == "7:277" and answered.one.measured["left_unacked"] == 0
    assert answered.one.measured["lasted_s"] == near(4 * 3, 0.1)
    assert answered.is_shown("its receipt") and len(answered.one.ruled_out) == 4
    assert "outside of this capture" in answered.said("What else looks the same")
    assert "before unloading" in answered.said("What to do")


def test_pulsar_759_who_holds_the_messages(answer: Answers):
    """apache/pulsar#759: a whole subscription is blocked at a number of unacknowledged messages.

    At 30 of three consumers; the oldest of them is at the first consumer.
    """
    answered = answer("pulsar_759", "D06", "subscription")
    assert (answered.one.severity, answered.one.verdict) == ("error", "proven")
    assert answered.one.measured["unacked"] == 30 and answered.one.measured["consumers"] == 3
    assert answered.one.measured["available"] == 1000 - 30 // 3
    assert answered.one.measured["silence_measured_s"] == near(2 * 2)
    assert answered.one.measured["owner_name"] == "reader-0" and answered.is_shown("oldest unacked")
    assert any("out of permits" in each for each in answered.one.ruled_out)
    assert "outside of this capture" in answered.said("What else looks the same")


def test_pulsar_10167_what_a_new_consumer_waits_for(answer: Answers):
    """apache/pulsar#10167: a second consumer of Key_Shared gets nothing; why?

    The first one, which acknowledges nothing, holds what was delivered before the second joined.
    """
    answered = answer("pulsar_10167", "D07", "still")
    assert answered.one.severity == "warning" and answered.one.verdict == "pattern"
    assert answered.one.subject["consumer_name"] == "second"
    assert answered.one.measured["owner_name"] == "first"
    assert answered.one.measured["held"] == answered.one.measured["keys_seen"] == 50
    assert answered.one.measured["waited_s"] == near(4 * 3, 0.2)
    assert answered.is_shown("oldest held") and "2.7.1" in answered.one.text
    assert "keys none of which" in answered.said("What else looks the same")


# -- sends


def test_pulsar_8321_did_the_message_leave(answer: Answers):
    """apache/pulsar#8321: sends time out now and then; did they leave, and where do they wait?

    They left; the connection and the broker were well, and the next receipt is of a new ledger.
    """
    answered = answer("pulsar_8321", "D12", "ledger_rollover")
    assert answered.one.severity == "error"
    assert answered.one.subject["topic"] == topic("thread-8321")
    assert answered.one.subject["producer_name"] == "waits"
    assert answered.one.measured["sends"] == answered.one.measured["answered"] == 5
    assert answered.one.measured["longest_s"] == near(55 - 7)
    assert answered.one.measured["other_receipts"] == 40 and answered.one.measured["pongs"] == 1
    assert answered.one.measured["last_ledger_id"] == 41
    assert answered.one.measured["next_ledger_id"] == 42
    assert "because of the failure" in answered.said("What else looks the same")


def test_client_go_650_why_messages_are_there_twice(answer: Answers):
    """apache/pulsar-client-go#650: the client connects anew and sends again; is it stored twice?

    Four of the five are: the client closed by itself although their receipts had come.
    """
    answered = answer("client_go_650", "D15", "client_close")
    assert (answered.one.severity, answered.one.verdict) == ("error", "proven")
    assert answered.one.subject["producer_name"] == "loops"
    # The receipts 2 to 5 had come; that of 1 had not.
    assert answered.one.measured["messages"] == answered.one.measured["by_receipt"] == 4
    assert answered.one.measured["extra"] == 4 and answered.one.measured["copies"] == 2
    assert answered.one.measured["sequence_id"] == 2
    assert "uses the name again" in answered.said("What else looks the same")


def test_pulsar_5218_is_the_message_lost(answer: Answers):
    """apache/pulsar#5218: a send that failed in storage is answered as a duplicate; is it lost?

    No copy of it has an id, and the broker itself said that it had only what was before; the
    refusal is a finding of its own.
    """
    answered = answer("pulsar_5218", "D16", "", ("R01",))
    assert answered.one.severity == "error" and answered.one.verdict == "pattern"
    assert answered.one.subject["producer_name"] == "deduplicated"
    assert answered.one.measured["sends"] == 1 and answered.one.measured["sequence_id"] == 5
    assert answered.one.measured["last_sequence_id"] == 4
    assert "on purpose" in answered.said("What else looks the same")


def test_pulsar_13560_why_the_broker_closes(answer: Answers):
    """apache/pulsar#13560: the broker closes without an error, and the client sends again.

    The frame is above the limit, and its payload is not: its properties are what is large.
    """
    answered = answer("pulsar_13560", "D17")
    assert (answered.one.severity, answered.one.verdict) == ("error", "proven")
    assert answered.one.subject["producer_name"] == "large"
    assert answered.one.measured["attempts"] == 3 and answered.one.measured["limit_bytes"] == LIMIT
    assert answered.one.measured["frame_bytes"] == near(PROPERTY_BYTES + 100, 100)
    assert "properties" in answered.said("What to do")
    assert "lower limit" in answered.said("What else looks the same")


# -- connections


def test_pulsar_13342_who_holds_the_name(answer: Answers):
    """apache/pulsar#13342: the name is still connected after a reconnect; by whom?

    By the client's own earlier connection, which is silent, and which the broker has not given up.
    """
    answered = answer("pulsar_13342", "D21", "own_half_open")
    assert answered.one.severity == "error" and answered.one.verdict == "pattern"
    assert answered.one.measured["refusals"] == 8
    # Each pause is twice the one before, from 0.1 s on.
    assert answered.one.measured["refused_s"] == near(sum(0.1 * 2**turn for turn in range(7)))
    assert answered.one.measured["owner_port"] == "40000"
    # Up to the last refusal.
    refused_s = answered.one.measured["refused_s"]
    assert answered.one.measured["owner_silent_s"] == near(90.1 - 30 + refused_s)
    assert "Another process" in answered.said("What else looks the same")


def test_dotpulsar_269_what_makes_sending_slow(answer: Answers):
    """apache/pulsar-dotpulsar#269: sending is slow; what costs the time?

    A producer is opened for each message, over one connection.
    """
    answered = answer("dotpulsar_269", "D25")
    assert answered.one.severity == "warning" and answered.one.subject["topic"] == topic(
        "thread-269"
    )
    assert answered.one.measured["opens_seen"] == answered.one.measured["messages_seen"] == 30
    assert answered.one.measured["short"] == 30 and answered.one.measured["connections_seen"] == 1
    assert answered.one.measured["opening_s"] == near(30 * 0.005, 0.001)
    assert answered.one.measured["using_s"] == near(30 * 0.01, 0.001)
    assert "Many processes" in answered.said("What else looks the same")


def test_pulsar_755_can_acks_be_lost(answer: Answers):
    """apache/pulsar#755: nothing answers an ack; can one be lost?

    Four were, in a connection that was reset 0.1 s later; those of seconds before were not.
    """
    answered = answer("pulsar_755", "D37")
    assert (answered.one.severity, answered.one.verdict) == ("warning", "proven")
    assert answered.one.subject["consumer_name"] == "reader"
    assert answered.one.measured["entries"] == 4
    assert answered.one.measured["before_close_s"] == near(0.1, 0.01)
    assert "crash" in answered.said("What else looks the same")
