"""What people asked in public threads, and what the findings answer on captures like theirs.

Each capture is made from what its thread tells of the wire, landed with the others, and asked by
all rules. What a test expects is counted from how the capture was made.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from dissector.cli.main import run
from dissector.findings.finding import Finding, findings_of
from dissector.lake.reader import open_lake
from dissector.queries.sandbox import sandbox_over
from tests.dissector.findings.asking import variant
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
def lake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Made, list[Finding]]]:
    """The warnings and errors of all rules, by capture."""
    folder = tmp_path_factory.mktemp("threads")
    made = {name: make() for name, make in MAKERS.items()}
    files = []
    for name, each in made.items():
        files.append(folder / f"{name}.pcap")
        files[-1].write_bytes(each.file)
    to = str(folder / "lake")
    assert run(["land", "--chain", "none", "-q", "--lake", to, *map(str, files)]) in (0, 3)
    with open_lake(folder / "lake") as opened, sandbox_over(opened) as engine:
        findings, problems = findings_of(engine, RULES)
    assert not problems
    return {
        name: (
            made[name],
            [
                one for one in findings
                if one.severity != "info" and one.capture.startswith(f"c-{name}-pcap-")
            ],
        )
        for name in MAKERS
    }  # fmt: skip


@pytest.fixture
def answer(lake: dict[str, tuple[Made, list[Finding]]]) -> Answers:
    """The finding of a number; with it no other warning or error is there than those named."""

    def ask(thread: str, number: str, name: str = "", others: tuple[str, ...] = ()) -> Answer:
        made, findings = lake[thread]
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
    found = answer("pulsar_100", "D01", "redelivery_without_flow")
    assert found.one.severity == "error" and found.one.subject["consumer_name"] == "reader"
    # 10 permits: four messages, the same again, and two of them once more.
    assert found.one.measured["granted"] == found.one.measured["delivered"] == 4 + 4 + 2
    assert found.one.measured["available"] == 0 and found.one.measured["unacked"] == 2
    assert found.one.measured["redelivers"] == 2
    assert found.one.measured["lasted_s"] == near(5 * 3)
    assert found.is_shown("last flow", "last message")
    assert any("connection was dead" in each for each in found.one.ruled_out)
    assert any("application was slow" in each for each in found.one.ruled_out)
    assert "ack timeout" in found.said("What else looks the same")


def test_pulsar_6173_which_permits_leak(answer: Answers):
    """apache/pulsar#6173: a reader of batches stops; what does it count?

    Entries: at each FLOW it had given back as many permits as entries had come.
    """
    found = answer("pulsar_6173", "D02", "counts_entries")
    assert (found.one.severity, found.one.verdict) == ("error", "proven")
    assert found.one.measured["first_flow"] == 200
    assert found.one.measured["entries"] == found.one.measured["given_back"] == 18
    assert found.one.measured["messages"] == 18 * 10
    assert "same sums" in found.said("What else looks the same")


def test_client_go_155_why_twice_the_queue(answer: Answers):
    """apache/pulsar-client-go#155: why does a consumer get twice its queue?

    It subscribed while it was open and granted its queue once more; the messages between the two
    grants are those that it may have thrown away.
    """
    found = answer("client_go_155", "D03")
    assert found.one.severity == "warning" and found.one.measured["first_flow"] == 1000
    assert found.one.measured["most_available"] == 1000 - 12 + 1000
    assert found.one.measured["dropped"] == 12
    assert "its first FLOW was 1,000" in found.one.text
    assert found.is_shown("second subscribe")
    assert "not on the wire" in found.said("What else looks the same")


def test_pulsar_9788_does_the_broker_withhold(answer: Answers):
    """apache/pulsar#9788: 723 permits are left, the backlog grows: who is stuck?

    The broker: it had confirmed the entry that waits, and all that came was acknowledged.
    """
    found = answer("pulsar_9788", "D05")
    assert (found.one.severity, found.one.verdict) == ("error", "proven")
    assert found.one.measured["available"] == 1000 - 277 == 723
    assert found.one.measured["entry"] == "7:277" and found.one.measured["left_unacked"] == 0
    assert found.one.measured["lasted_s"] == near(4 * 3, 0.1)
    assert found.is_shown("its receipt") and len(found.one.ruled_out) == 4
    assert "outside of this capture" in found.said("What else looks the same")
    assert "before unloading" in found.said("What to do")


def test_pulsar_759_who_holds_the_messages(answer: Answers):
    """apache/pulsar#759: a whole subscription is blocked at a number of unacknowledged messages.

    At 30 of three consumers; the oldest of them is at the first consumer.
    """
    found = answer("pulsar_759", "D06", "subscription")
    assert (found.one.severity, found.one.verdict) == ("error", "proven")
    assert found.one.measured["unacked"] == 30 and found.one.measured["consumers"] == 3
    assert found.one.measured["available"] == 1000 - 30 // 3
    assert found.one.measured["silence_measured_s"] == near(2 * 2)
    assert found.one.measured["holder_name"] == "reader-0" and found.is_shown("oldest unacked")
    assert any("out of permits" in each for each in found.one.ruled_out)
    assert "outside of this capture" in found.said("What else looks the same")


def test_pulsar_10167_what_a_new_consumer_waits_for(answer: Answers):
    """apache/pulsar#10167: a second consumer of Key_Shared gets nothing; why?

    The first one, which acknowledges nothing, holds what was delivered before the second joined.
    """
    found = answer("pulsar_10167", "D07", "still")
    assert found.one.severity == "warning" and found.one.verdict == "pattern"
    assert found.one.subject["consumer_name"] == "second"
    assert found.one.measured["holder_name"] == "first"
    assert found.one.measured["held"] == found.one.measured["keys_seen"] == 50
    assert found.one.measured["waited_s"] == near(4 * 3, 0.2)
    assert found.is_shown("oldest held") and "2.7.1" in found.one.text
    assert "keys none of which" in found.said("What else looks the same")


# -- sends


def test_pulsar_8321_did_the_message_leave(answer: Answers):
    """apache/pulsar#8321: sends time out now and then; did they leave, and where do they wait?

    They left; the connection and the broker were well, and the next receipt is of a new ledger.
    """
    found = answer("pulsar_8321", "D12", "ledger_rollover")
    assert found.one.severity == "error"
    assert found.one.subject["topic"] == topic("thread-8321")
    assert found.one.subject["producer_name"] == "waits"
    assert found.one.measured["sends"] == found.one.measured["answered"] == 5
    assert found.one.measured["longest_s"] == near(55 - 7)
    assert found.one.measured["other_receipts"] == 40 and found.one.measured["pongs"] == 1
    assert found.one.measured["last_ledger_id"] == 41
    assert found.one.measured["next_ledger_id"] == 42
    assert "because of the failure" in found.said("What else looks the same")


def test_client_go_650_why_messages_are_there_twice(answer: Answers):
    """apache/pulsar-client-go#650: the client connects anew and sends again; is it stored twice?

    Four of the five are: the client closed by itself although their receipts had come.
    """
    found = answer("client_go_650", "D15", "client_close")
    assert (found.one.severity, found.one.verdict) == ("error", "proven")
    assert found.one.subject["producer_name"] == "loops"
    # The receipts 2 to 5 had come; that of 1 had not.
    assert found.one.measured["messages"] == found.one.measured["by_receipt"] == 4
    assert found.one.measured["extra"] == 4 and found.one.measured["copies"] == 2
    assert found.one.measured["sequence_id"] == 2
    assert "uses the name again" in found.said("What else looks the same")


def test_pulsar_5218_is_the_message_lost(answer: Answers):
    """apache/pulsar#5218: a send that failed in storage is answered as a duplicate; is it lost?

    No copy of it has an id, and the broker itself said that it had only what was before; the
    refusal is a finding of its own.
    """
    found = answer("pulsar_5218", "D16", "", ("R01",))
    assert found.one.severity == "error" and found.one.verdict == "pattern"
    assert found.one.subject["producer_name"] == "deduplicated"
    assert found.one.measured["sends"] == 1 and found.one.measured["sequence_id"] == 5
    assert found.one.measured["last_sequence_id"] == 4
    assert "on purpose" in found.said("What else looks the same")


def test_pulsar_13560_why_the_broker_closes(answer: Answers):
    """apache/pulsar#13560: the broker closes without an error, and the client sends again.

    The frame is above the limit, and its payload is not: its properties are what is large.
    """
    found = answer("pulsar_13560", "D17")
    assert (found.one.severity, found.one.verdict) == ("error", "proven")
    assert found.one.subject["producer_name"] == "large"
    assert found.one.measured["attempts"] == 3 and found.one.measured["limit_bytes"] == LIMIT
    assert found.one.measured["frame_bytes"] == near(PROPERTY_BYTES + 100, 100)
    assert "properties" in found.said("What to do")
    assert "lower limit" in found.said("What else looks the same")


# -- connections


def test_pulsar_13342_who_holds_the_name(answer: Answers):
    """apache/pulsar#13342: the name is still connected after a reconnect; by whom?

    By the client's own earlier connection, which is silent, and which the broker has not given up.
    """
    found = answer("pulsar_13342", "D21", "own_half_open")
    assert found.one.severity == "error" and found.one.verdict == "pattern"
    assert found.one.measured["refusals"] == 8
    # Each pause is twice the one before, from 0.1 s on.
    assert found.one.measured["refused_s"] == near(sum(0.1 * 2**turn for turn in range(7)))
    assert found.one.measured["holder_port"] == "40000"
    # Up to the last refusal.
    refused_s = found.one.measured["refused_s"]
    assert found.one.measured["holder_silent_s"] == near(90.1 - 30 + refused_s)
    assert "Another process" in found.said("What else looks the same")


def test_dotpulsar_269_what_makes_sending_slow(answer: Answers):
    """apache/pulsar-dotpulsar#269: sending is slow; what costs the time?

    A producer is opened for each message, over one connection.
    """
    found = answer("dotpulsar_269", "D25")
    assert found.one.severity == "warning" and found.one.subject["topic"] == topic("thread-269")
    assert found.one.measured["opens_seen"] == found.one.measured["messages_seen"] == 30
    assert found.one.measured["short"] == 30 and found.one.measured["connections_seen"] == 1
    assert found.one.measured["opening_s"] == near(30 * 0.005, 0.001)
    assert found.one.measured["using_s"] == near(30 * 0.01, 0.001)
    assert "Many processes" in found.said("What else looks the same")


def test_pulsar_755_can_acks_be_lost(answer: Answers):
    """apache/pulsar#755: nothing answers an ack; can one be lost?

    Four were, in a connection that was reset 0.1 s later; those of seconds before were not.
    """
    found = answer("pulsar_755", "D37")
    assert (found.one.severity, found.one.verdict) == ("warning", "proven")
    assert found.one.subject["consumer_name"] == "reader"
    assert found.one.measured["entries"] == 4
    assert found.one.measured["before_close_s"] == near(0.1, 0.01)
    assert "crash" in found.said("What else looks the same")
