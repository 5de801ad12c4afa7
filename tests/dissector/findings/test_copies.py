"""Rules of messages that are stored twice, not at all or damaged: made captures and twins."""

import crc32c
import pytest

from tests.dissector.findings.asking import findings_of_lines, variant
from tests.dissector.findings.sending_captures import Line
from tests.hard.tape import simple
from tests.wire import pulsar

# Rules that fire on what is made here, and on no sample capture.
MADE = {"D16"}


# -- D15


def stored_twice(end: str) -> list[Line]:
    """Two sends whose first attempts end so, both stored, and stored again by the second."""
    line = Line()
    line.begin()
    line.produce(0.1)
    line.send(1, 0)
    line.send(1.1, 1)
    if end == "error":
        line.send(1.2, 2)
        line.down(1.25, send_error(2))
    line.receipt(1.3, 0, 0)
    line.receipt(1.31, 1, 1)
    again = line
    if end == "close":
        line.close_producer(1.32)
    elif end == "ping":
        line.ping(2, None)
    if end in ("fin", "ping"):
        line.finish(40)
    elif end == "rst":
        line.reset(40)
    if end in ("fin", "ping", "rst"):
        again = Line(40_001)
        again.begin(40.5)
    if end in ("fin", "ping", "rst", "close"):
        again.produce(41)
    for sequence in range(2):
        again.send(42 + sequence * 0.1, sequence)
        again.receipt(42.01 + sequence * 0.1, sequence, 10 + sequence)
    return [line] if again is line else [line, again]


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("error", "send_error"),
        ("close", "broker_close"),
        ("fin", "client_close"),
        ("ping", "keep_alive"),
        ("rst", "reset"),
        ("", ""),
    ],
)
def test_messages_are_stored_twice_for_what_ended_the_first_attempt(tmp_path, end, name):
    (one,) = findings_of_lines(tmp_path, "D15", *stored_twice(end))
    assert variant(one) == name
    assert one.measured["messages"] == 2 and one.measured["extra"] == 2
    assert one.measured["by_receipt"] == 2


def test_a_copy_that_only_a_consumer_shows(tmp_path):
    line = Line()
    line.begin()
    line.subscribe(0.1)
    for entry, sequence in enumerate((0, 1, 2, 1, 3)):
        line.message(1 + entry * 0.1, entry, sequence=sequence)
    (one,) = findings_of_lines(tmp_path, "D15", line)
    assert variant(one) == "delivered_twice" and one.verdict == "pattern"
    assert one.measured["messages"] == 1 and one.measured["sequence_id"] == 1


def test_an_entry_that_is_delivered_again_is_no_copy(tmp_path):
    line = Line()
    line.begin()
    line.subscribe(0.1)
    for turn in range(2):
        for entry in range(3):
            line.message(1 + turn + entry * 0.1, entry, count=turn)
    assert findings_of_lines(tmp_path, "D15", line) == []


# -- D16


def deduplicated(*, last: int = -1, is_delivered: bool = False, other: bool = False) -> Line:
    """Sends 0 to 4 are stored; 5 is answered as a duplicate, or 4 is with other bytes."""
    line = Line()
    line.begin()
    line.produce(0.1, last_sequence_id=last)
    if is_delivered:
        line.subscribe(0.2)
    for number in range(5):
        line.send(1 + number * 0.1, number)
        line.receipt(1.005 + number * 0.1, number, number)
    sequence = 4 if other else 5
    line.send(2, sequence, payload=b"another" if other else b"hello")
    line.receipt(2.001, sequence)
    if is_delivered:
        line.message(2.1, 99, sequence=5)
    return line


def test_a_message_that_is_taken_for_a_duplicate_and_is_nowhere(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D16", deduplicated())
    assert variant(one) == "" and one.measured["sequence_id"] == 5
    assert one.measured["sends"] == 1


def test_a_message_with_other_bytes_is_taken_for_a_duplicate(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D16", deduplicated(other=True))
    assert variant(one) == "other_content" and one.measured["sequence_id"] == 4


@pytest.mark.parametrize("twin", [{"last": 5}, {"is_delivered": True}])
def test_duplicates_whose_first_copy_is_known_are_no_finding(tmp_path, twin):
    assert findings_of_lines(tmp_path, "D16", deduplicated(**twin)) == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_first_copy_may_lie_in_a_hole_of_an_earlier_connection(tmp_path, is_lost):
    before = Line(39_999)
    before.begin(-2)
    before.produce(-1.9)
    sent = len(before.packets)
    before.send(-1.5, 5)
    before.receipt(-1.49, 5, 50)
    if is_lost:
        del before.packets[sent:]
    before.ping(-1.2, -1.1)
    before.finish(-1)
    assert findings_of_lines(tmp_path, "D16", before, deduplicated()) == []


# -- D38


def damaged(place: str) -> Line:
    """One entry whose bytes are wrong at a place of its way."""
    line = Line()
    line.begin()
    line.produce(0.1)
    line.send(1, 0, checksum=True if place in ("after", "nowhere") else 0x1234)
    line.down(1.01, send_error(0, "ChecksumError" if place != "nowhere" else "PersistenceError"))
    if place == "sender":
        line.send(1.1, 0, checksum=0x1234)
        line.down(1.11, send_error(0))
    return line


def send_error(sequence: int, error: str = "ChecksumError") -> bytes:
    """The broker refuses a send."""
    return simple("SEND_ERROR", producer_id=1, sequence_id=sequence, error=error, message="bad")


@pytest.mark.parametrize(
    ("place", "name", "frames"),
    [("after", "after_tap", 1), ("sender", "sender", 2), ("once", "", 1)],
)
def test_a_send_that_is_refused_for_its_checksum(tmp_path, place, name, frames):
    (one,) = findings_of_lines(tmp_path, "D38", damaged(place))
    assert f"0x{one.measured['crc32c_stored']:08x}" in one.text
    assert variant(one) == name and one.measured["frames"] == frames


def test_a_send_that_is_refused_for_another_reason_is_no_finding(tmp_path):
    assert findings_of_lines(tmp_path, "D38", damaged("nowhere")) == []


def spoiled(*are_good: bool) -> list[Line]:
    """A good send, and its entry for a subscription on a connection each, right or not."""
    first = Line()
    first.begin()
    first.produce(0.1)
    first.send(1, 0)
    first.receipt(1.01, 0, 0)
    lines = [first]
    for number, is_good in enumerate(are_good):
        line = Line(41_000 + number)
        line.begin(2)
        line.subscribe(2.5, subscription=f"sub-{number}")
        line.message(3, 0, payload=b"hello" if is_good else b"hellq", checksum=stored_crc())
        line.ack(3.1, 0, **({} if is_good else {"validation_error": "ChecksumMismatch"}))
        lines.append(line)
    return lines


def stored_crc() -> int:
    """The checksum that the sender gave the entry of `spoiled`."""
    metadata = pulsar.metadata("p", 0, 1_700_000_000_000)
    return crc32c.crc32c(pulsar.checked_half(metadata, b"hello"))


@pytest.mark.parametrize(
    ("are_good", "name", "copies"),
    [
        ((False,), "broker_or_path", 1),
        ((False, False), "stored_or_broker", 2),
        ((False, True), "path", 2),
    ],
)
def test_an_entry_that_is_wrong_when_delivered(tmp_path, are_good, name, copies):
    findings = findings_of_lines(tmp_path, "D38", *spoiled(*are_good))
    assert {variant(one) for one in findings} == {name}
    assert {one.measured["copies"] for one in findings} == {copies}


def test_an_entry_that_is_right_for_all_is_no_finding(tmp_path):
    assert findings_of_lines(tmp_path, "D38", *spoiled(True, True)) == []
