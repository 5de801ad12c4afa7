"""Conversations that were lent come back as they were."""

from dissector.limits import NULL
from dissector.protocols.columns import TO_CLIENT
from dissector.protocols.cursus.commands import BATCH, NUMBER
from dissector.protocols.cursus.conversations import Conversation, Request
from dissector.protocols.cursus.lending import Lending


def waiting_batch(frame_no: int) -> Request:
    request = Request(BATCH, frame_no, None)
    for place, name in enumerate(("first_ns", "last_ns", "size", "topic", "partition", "producer")):
        setattr(request, name, 10 * frame_no + place)
    request.sequence, request.highest, request.message_count = 5, 6, 2
    request.attempt, request.outstanding, request.acks = 1, 0, -1
    request.idempotent, request.tainted, request.number = 1, 1, 9
    return request


def said(request: Request) -> dict[str, object]:
    return {name: getattr(request, name) for name in Request.__slots__}


def test_what_waits_comes_back_in_its_order():
    lending = Lending(1 << 10)
    talk = Conversation(7, lending.open(7))
    before = [waiting_batch(number) for number in (3, 4, 5)]
    for request in before:
        talk.push(request)
    kept = [said(request) for request in before]
    talk.has_asked = talk.has_stored = talk.seen[TO_CLIENT] = True
    lending.lend(talk)
    assert talk.is_lent and not talk.waiting
    lending.take_back(talk)
    assert [said(request) for request in talk.waiting] == kept
    assert talk.publishes == 3 and talk.has_pipelined and talk.has_stored and not talk.is_lent
    assert int(lending.state.free.free[0]) == len(lending.state.free.rows)


def test_what_is_not_simple_is_not_lent():
    lending = Lending(1 << 10)
    talk = Conversation(7, lending.open(7))
    talk.push(Request(NUMBER["LIST"], 1, None))
    lending.lend(talk)
    assert not talk.is_lent
    talk.pop()
    talk.stream = Request(NUMBER["STREAM"], 2, None)
    lending.lend(talk)
    assert not talk.is_lent, "a stream of no known group"
    talk.stream.subscription = 3
    lending.lend(talk)
    assert talk.is_lent
    lending.take_back(talk)
    talk.stream = None
    talk.push(waiting_batch(3))
    talk.waiting[0].may_be_lost = True
    lending.lend(talk)
    assert not talk.is_lent


def test_records_are_used_again_and_there_is_always_room():
    lending = Lending(1 << 10)
    numbers = [lending.open(connection) for connection in range(200)]
    assert sorted(numbers) == list(range(200))
    lending.close(7)
    lending.close(7)
    assert lending.open(1000) == numbers[7] and lending.open(1001) == 200
    lending.make_room(500)
    assert int(lending.state.free.free[0]) >= 500
    lending.make_room(5000)
    assert len(lending.state.free.rows) == 1 << 10
    lending.add_pending(3)
    assert lending.pending == 3 and NULL < 0
