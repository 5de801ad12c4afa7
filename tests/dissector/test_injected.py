"""Known faults put into a conversation: the report names each one, where it is, and nothing else.

A conversation of one producer and one consumer is written packet by packet, with a fault where a
test wants one: a receipt held back, a bit flipped, a message dropped, a consumer that stops, a
broker that closes. `faults` collects everything that a report has to complain about.
"""

from typing import Any, Final

import pytest

from dissector.dissection import Options
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.hard.tape import START_NS, TOPIC, Tape, capture, receipt, simple
from tests.numbers import Numbers
from tests.wire import pulsar

MS: Final = 1_000_000
SUBSCRIPTION: Final = "s"
Row = dict[str, Any]


class Talk:
    """A producer that sends every 20 ms, and a consumer that gets and acks what was stored."""

    def __init__(self, permits: int | None = 1000) -> None:
        self.tape = Tape()
        self.requests = 10
        self.has_consumer = permits is not None
        self.tape.open()
        self.tape.connect()
        self.at(50)
        if permits is not None:
            self.subscribe(permits)

    def at(self, ms: float) -> None:
        """Go on at a time since the start."""
        self.tape.now = START_NS + int(ms * MS)

    def say(self, name: str, to_broker: bool = True, **fields: Any) -> None:
        """A command without an entry."""
        self.tape.frame(to_broker, simple(name, **fields), is_acked=False)

    def ask(
        self, name: str, answer: str = "SUCCESS", answered: Row | None = None, **fields: Any
    ) -> None:
        """A request with its answer."""
        self.requests += 1
        self.say(name, request_id=self.requests, **fields)
        more = answered or ({"producer_name": "p"} if answer == "PRODUCER_SUCCESS" else {})
        self.say(answer, False, request_id=self.requests, **more)

    def subscribe(self, permits: int) -> None:
        """Open the consumer and let it be sent so many messages."""
        self.ask("SUBSCRIBE", topic=TOPIC, subscription=SUBSCRIPTION, subType="Shared",
                 consumer_id=1)  # fmt: skip
        self.say("FLOW", consumer_id=1, messagePermits=permits)

    def send(self, number: int, frame: bytes | None = None) -> None:
        """A SEND at its time."""
        self.at(100 + 20 * number)
        self.tape.frame(True, frame or entry_of(number), is_acked=False)

    def receive(self, number: int, after_ms: float = 3) -> None:
        """The receipt of a send."""
        self.at(100 + 20 * number + after_ms)
        self.tape.frame(False, receipt(number), is_acked=False)

    def deliver(self, number: int, entry: int | None = None, frame: bytes | None = None) -> None:
        """An entry on its way to the consumer."""
        whole = frame or message_of(number, number if entry is None else entry)
        self.tape.frame(False, whole, is_acked=False)

    def ack(self, entry: int, **fields: Any) -> None:
        """The consumer has done with an entry."""
        place = [{"ledgerId": 7, "entryId": entry}]
        self.say("ACK", consumer_id=1, ack_type="Individual", message_id=place, **fields)

    def usual(self, number: int) -> None:
        """A message that is published, stored, delivered and acknowledged."""
        self.send(number)
        self.receive(number)
        self.deliver(number)
        self.ack(number)

    def end(self) -> Tape:
        """The client closes everything."""
        self.ask("CLOSE_PRODUCER", producer_id=1)
        if self.has_consumer:
            self.ask("CLOSE_CONSUMER", consumer_id=1)
        self.tape.close()
        return self.tape


def half_of(number: int) -> tuple[bytes, bytes]:
    """Metadata and payload of a message."""
    return pulsar.metadata(sequence_id=number), b"payload %06d" % number


def entry_of(number: int, **fields: Any) -> bytes:
    """A SEND."""
    command = pulsar.command("SEND", producer_id=1, sequence_id=number, **fields)
    return pulsar.entry(command, *half_of(number))


def message_of(number: int, entry: int, **fields: Any) -> bytes:
    """The MESSAGE that carries what was sent as this number, stored as this entry."""
    place = {"ledgerId": 7, "entryId": entry}
    command = pulsar.command("MESSAGE", consumer_id=1, message_id=place, **fields)
    return pulsar.entry(command, *half_of(number))


def flipped(frame: bytes, bit: int) -> bytes:
    """A frame with one bit of it the other way round, counted from its end."""
    damaged = bytearray(frame)
    damaged[-1 - bit // 8] ^= 1 << (bit % 8)
    return bytes(damaged)


def report_of(tape: Tape, tmp_path: Any) -> Row:
    """The report of a conversation."""
    path = tmp_path / "injected.pcap"
    path.write_bytes(capture(tape.records()))
    summary = Numbers()
    (chain,) = chains([str(path)], "auto").chains
    for block in dissect(chain, Options()):
        summary.add_block(block)
    return summary.result()


def where(failure: Row, frame: bytes) -> tuple[str, int]:
    """What is damaged, and which bit of a frame, counted as `flipped` does."""
    (place,), (mask,) = failure["differs_at"], failure["differs_masks"]
    bit = int(mask).bit_length() - 1
    return failure["differs"], 8 * (len(frame) - 1 - place) + bit


def faults(report: Row) -> Row:
    """Everything that a report complains about, zeros left out."""
    total = {name: content["total"] for name, content in report.items()
             if isinstance(content, dict)}  # fmt: skip
    sends, permits, again = (
        total[name] for name in ("send_latency", "permit_utilization", "redelivery")
    )
    found = {
        "sends": {name: count for name, count in sends["outcomes"].items() if name != "ok"},
        "slow": [row["sequence_id"] for row in report["slowest"]["publish"]
                 if row["latency_ms"] > 10],
        "passed_over": [row["sequence_id"] for row in report["send_latency"]["passed_over"]],
        "left_behind": [row["entry_id"] for row in report["ack_latency"]["passed_over"]],
        "resent": sends["resent"],
        "tainted": sends["tainted"],
        "stalls": permits["stalls"]["count"],
        "open_stalls": permits["stalls"]["open_at_end"]["count"],
        "silences": permits["stalls"]["idle_or_broker_limited"]["count"],
        "overshoot": permits["overshoot"],
        "redelivered": again["by_cause"],
        "deliveries": {name: count for name, count in again["delivery_outcomes"].items()
                       if name != "acked"},
        "mismatches": {
            name: count for name, count in total["checksum_failures"].items()
            if name in ("confirmed_by_peer", "capture_artefact", "unconfirmed") and count
        },
        "errors": [row["error_code"] for row in report["errors"]["incidents"]],
        "requests": {name: count for name, count in total["requests"]["outcomes"].items()
                     if name != "ok"},
        "closed": {name: count for name, count
                   in total["connecting"]["closed_by_broker"].items() if count},
        "storms": total["connecting"]["bursts"],
        "gaps": total["coverage"]["gaps"],
        "notices": total["coverage"]["notices_by_code"],
        "bounds": total["coverage"]["limits_hit"],
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}


def test_a_conversation_without_a_fault_has_nothing_to_complain_about(tmp_path: Any) -> None:
    talk = Talk()
    for number in range(30):
        talk.usual(number)
    report = report_of(talk.end(), tmp_path)
    assert faults(report) == {}
    assert report["send_latency"]["total"]["latency_ms"]["max"] == 3.0
    assert report["publish_to_delivery"]["total"]["transit_ms"]["count"] == 30
    assert report["ack_latency"]["total"]["ack_latency_ms"]["max"] == 1.0


def test_receipts_that_are_held_back_are_the_slow_ones_by_that_much(tmp_path: Any) -> None:
    delays = {7: 250.0, 12: 500.0, 25: 1000.0}
    talk = Talk(permits=None)
    at: list[tuple[float, Any]] = []
    for number in range(30):
        sent = 100 + 20 * number
        at.append((sent, lambda n=number: talk.tape.frame(True, entry_of(n), is_acked=False)))
        # A broker answers in order: those behind a late receipt wait as well.
        took = max(3.0, *(
            delay + 20 * (late - number) + 0.01 * (number - late)
            for late, delay in delays.items() if late <= number
        ), 3.0)  # fmt: skip
        at.append((sent + took, lambda n=number: talk.tape.frame(False, receipt(n),
                                                                 is_acked=False)))  # fmt: skip
    for ms, step in sorted(at, key=lambda each: each[0]):
        talk.at(ms)
        step()
    report = report_of(talk.end(), tmp_path)
    slowest = {row["sequence_id"]: row["latency_ms"] for row in report["slowest"]["publish"]}
    assert {number: slowest[number] for number in delays} == delays
    assert next(iter(slowest)) == 25
    assert set(faults(report)) == {"slow"}
    assert report["send_latency"]["total"]["latency_ms"]["max"] == 1000.0


def test_a_bit_flipped_on_the_way_to_the_broker_is_confirmed_by_it(tmp_path: Any) -> None:
    talk = Talk()
    for number in range(10):
        if number != 4:
            talk.usual(number)
            continue
        talk.send(4, flipped(entry_of(4), 21))
        talk.at(183)
        talk.say("SEND_ERROR", False, producer_id=1, sequence_id=4, error="ChecksumError",
                 message="checksum failed")  # fmt: skip
        talk.at(186)
        talk.tape.frame(True, entry_of(4), is_acked=False)
        talk.at(189)
        talk.tape.frame(False, receipt(4), is_acked=False)
        talk.deliver(4)
        talk.ack(4)
    report = report_of(talk.end(), tmp_path)
    assert faults(report) == {
        "sends": {"error": 1}, "resent": 1, "errors": ["ChecksumError"],
        "mismatches": {"confirmed_by_peer": 1},
    }  # fmt: skip
    (failure,) = report["checksum_failures"]["failures"]
    assert (failure["command"], failure["sequence_id"]) == ("SEND", 4)
    assert where(failure, entry_of(4)) == ("one_bit", 21)
    assert failure["copy_frame_no"] is not None


def test_a_bit_flipped_in_the_capture_alone_is_disproved_by_the_receipt(tmp_path: Any) -> None:
    talk = Talk()
    for number in range(10):
        if number != 6:
            talk.usual(number)
            continue
        talk.send(6, flipped(entry_of(6), 3))
        talk.receive(6)
        talk.deliver(6)
        talk.ack(6)
    report = report_of(talk.end(), tmp_path)
    assert faults(report) == {"mismatches": {"capture_artefact": 1}}
    (failure,) = report["checksum_failures"]["failures"]
    assert where(failure, entry_of(6)) == ("one_bit", 3)


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "silent"])
def test_a_bit_flipped_on_the_way_to_the_consumer(tmp_path: Any, is_refused: bool) -> None:
    talk = Talk()
    for number in range(10):
        if number != 2:
            talk.usual(number)
            continue
        talk.send(2)
        talk.receive(2)
        talk.deliver(2, frame=flipped(message_of(2, 2), 40))
        if is_refused:
            talk.ack(2, validation_error="ChecksumMismatch")
        else:
            talk.ack(2)
    report = report_of(talk.end(), tmp_path)
    (failure,) = report["checksum_failures"]["failures"]
    assert where(failure, message_of(2, 2)) == ("one_bit", 40)
    # The publish of the same entry is the copy that says so.
    assert failure["copy_frame_no"] < failure["frame_no"]
    refused = {"mismatches": {"confirmed_by_peer": 1}, "deliveries": {"discarded": 1},
               "left_behind": [2]}  # fmt: skip
    assert faults(report) == (refused if is_refused else {"mismatches": {"unconfirmed": 1}})


def test_a_refusal_confirms_the_delivery_that_it_ends_and_no_other(tmp_path: Any) -> None:
    talk = Talk()
    talk.send(2)
    talk.receive(2)
    place = [{"ledgerId": 7, "entryId": 2}]
    for bit in (40, 44):
        talk.deliver(2, frame=flipped(message_of(2, 2), bit))
        if bit == 40:
            talk.say("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=place)
    talk.ack(2, validation_error="ChecksumMismatch")
    found = report_of(talk.end(), tmp_path)["checksum_failures"]["failures"]
    assert [row["verdict"] for row in found] == ["unconfirmed", "confirmed_by_peer"]
    assert found[0]["evidence_frame_no"] is None
    assert found[1]["evidence_frame_no"] == found[1]["frame_no"] + 1


def test_damage_of_a_stored_checksum_is_told_from_damage_of_the_data(tmp_path: Any) -> None:
    talk = Talk()
    for number in range(5):
        if number != 3:
            talk.usual(number)
            continue
        whole = message_of(3, 3)
        bits = 8 * (4 + sum(map(len, half_of(3)))) + 9  # in the last but one byte of the checksum
        talk.send(3)
        talk.receive(3)
        talk.deliver(3, frame=flipped(whole, bits))
        talk.ack(3, validation_error="ChecksumMismatch")
    (failure,) = report_of(talk.end(), tmp_path)["checksum_failures"]["failures"]
    assert where(failure, whole) == ("checksum_field", bits)


def test_sends_that_a_relay_dropped_are_named_one_by_one(tmp_path: Any) -> None:
    """The client's side of a relay: the broker never saw them, and answers those behind them."""
    dropped = {3, 4, 11}
    talk = Talk()
    for number in range(20):
        if number in dropped:
            talk.send(number)
        else:
            talk.usual(number)
    # The last one is without an answer as well: its capture ends first.
    talk.send(20)
    tape = talk.tape
    report = report_of(tape, tmp_path)
    assert faults(report) == {
        "sends": {"unanswered_at_end": 4}, "passed_over": sorted(dropped),
    }  # fmt: skip
    assert report["send_latency"]["total"]["not_evaluated_by_reason"] == {"unanswered_at_end": 4}


def test_receipts_that_the_capture_lost_are_no_losses_of_the_broker(tmp_path: Any) -> None:
    talk = Talk()
    for number in range(20):
        talk.usual(number)
    tape = talk.end()
    lost = [packet for packet in tape.packets if packet.payload in (receipt(5), receipt(9))]
    assert len(lost) == 2
    for packet in lost:
        tape.packets.remove(packet)
    report = report_of(tape, tmp_path)
    found = faults(report)
    assert found.pop("gaps") == 2 and found.pop("notices") == {"gap_lost": 2}
    # What was delivered says that both were stored; but not how long that took.
    assert found.pop("sends") == {"lost_in_gap": 2}
    assert set(found) <= {"tainted", "requests"}
    assert report["send_latency"]["total"]["latency_ms"]["count"] == 18
    assert report["publish_to_delivery"]["total"]["entries_stored"] == 20


def test_a_consumer_that_stops_is_without_permits_until_the_end(tmp_path: Any) -> None:
    talk = Talk(permits=10)
    for number in range(10):
        talk.usual(number)
    talk.at(5_000)
    talk.say("PING")
    talk.say("PONG", False)
    report = report_of(talk.tape, tmp_path)
    assert faults(report) == {"open_stalls": 1}
    (stall,) = report["permit_utilization"]["longest_stalls"]
    assert stall["end_frame_no"] is None and stall["confirmed"] is None
    assert stall["stall_ms"] == pytest.approx(5_000 - (100 + 180 + 4), abs=3)
    total = report["permit_utilization"]["total"]
    assert (total["utilization"], total["overshoot"]) == (1.0, 0)


def test_a_consumer_that_has_closed_waits_for_nothing(tmp_path: Any) -> None:
    """Without permits and closed, on a connection that goes on: no stall, and no silence."""
    talk = Talk(permits=10)
    for number in range(10):
        talk.usual(number)
    talk.at(400)
    talk.ask("CLOSE_CONSUMER", consumer_id=1)
    talk.at(9_000)
    talk.say("PING")
    talk.say("PONG", False)
    report = report_of(talk.tape, tmp_path)
    assert faults(report) == {}
    total = report["permit_utilization"]["total"]
    assert total["observed_ms"] == pytest.approx(350, abs=3)
    assert total["stalls"]["idle_or_broker_limited"]["count"] == 0


def test_a_consumer_that_subscribes_again_while_it_lives_grants_too_much(tmp_path: Any) -> None:
    """A second SUBSCRIBE resets nothing; the full grant that follows it is one too many."""
    talk = Talk(permits=10)
    for number in range(4):
        talk.usual(number)
    talk.at(300)
    talk.subscribe(10)
    report = report_of(talk.tape, tmp_path)
    total = report["permit_utilization"]["total"]
    assert total["drift"] == (10 - 4 + 10) - 10 and total["overshoot"] == 0
    assert total["granted"] == 20


def test_a_consumer_that_goes_on_late_was_waited_for(tmp_path: Any) -> None:
    talk = Talk(permits=5)
    for number in range(5):
        talk.usual(number)
    talk.at(3_000)
    talk.say("FLOW", consumer_id=1, messagePermits=5)
    talk.at(3_050)
    talk.deliver(5)
    talk.ack(5)
    report = report_of(talk.tape, tmp_path)
    assert faults(report) == {"stalls": 1}
    assert report["permit_utilization"]["total"]["stalls"]["confirmed"]["count"] == 1


def test_a_consumer_that_stops_acknowledging_holds_what_it_got(tmp_path: Any) -> None:
    talk = Talk()
    for number in range(10):
        if number < 6:
            talk.usual(number)
            continue
        talk.send(number)
        talk.receive(number)
        talk.deliver(number)
    report = report_of(talk.tape, tmp_path)
    assert faults(report) == {"deliveries": {"unacked_at_end": 4}}
    # The first of the four came 60 ms before the last one, with which the capture ends.
    (row,) = report["ack_latency"]["by_subscription"]
    assert row["oldest_unacknowledged_ms"] == pytest.approx(60, abs=0.1)
    assert report["permit_utilization"]["total"]["unacked_max"] == 4


def test_a_broker_that_closes_is_named_with_what_it_cost(tmp_path: Any) -> None:
    """As with an unloaded topic: sends in the air are swallowed, sent again, and answered."""
    talk = Talk()
    for number in range(10):
        talk.usual(number)
    talk.at(296)
    talk.say("CLOSE_PRODUCER", False, producer_id=1, request_id=-1)
    talk.say("CLOSE_CONSUMER", False, consumer_id=1, request_id=-1)
    talk.send(10)
    talk.send(11)
    talk.at(450)
    talk.ask("PRODUCER", "PRODUCER_SUCCESS", topic=TOPIC, producer_id=1, producer_name="p")
    talk.subscribe(1000)
    for number in (10, 11):
        talk.at(460 + 30 * (number - 10))
        talk.tape.frame(True, entry_of(number), is_acked=False)
        talk.at(480 + 30 * (number - 10))
        talk.tape.frame(False, receipt(number), is_acked=False)
        talk.deliver(number)
        talk.ack(number)
    report = report_of(talk.end(), tmp_path)
    assert faults(report) == {
        "slow": [10, 11], "sends": {"dropped_after_close": 2}, "resent": 2,
        "closed": {"producers": 1, "consumers": 1},
    }  # fmt: skip
    assert {row["what"] for row in report["connecting"]["closed_by_broker"]} == {
        "producer", "consumer",
    }  # fmt: skip
    logical = report["send_latency"]["total"]["logical_latency_ms"]
    assert logical["count"] == 12 and logical["max"] == 510 - 320


def test_what_a_closed_consumer_held_comes_again(tmp_path: Any) -> None:
    talk = Talk()
    for number in range(8):
        talk.usual(number)
    for number in (8, 9):
        talk.send(number)
        talk.receive(number)
        talk.deliver(number)
    talk.at(400)
    talk.say("CLOSE_CONSUMER", False, consumer_id=1, request_id=-1)
    talk.subscribe(1000)
    for number in (8, 9):
        talk.deliver(number)
        talk.ack(number)
    report = report_of(talk.end(), tmp_path)
    assert faults(report) == {
        "redelivered": {"unload": 2}, "deliveries": {"consumer_closed": 2},
        "closed": {"consumers": 1},
    }  # fmt: skip
    assert report["redelivery"]["total"]["rate_entries"] == round(2 / 12, 6)
