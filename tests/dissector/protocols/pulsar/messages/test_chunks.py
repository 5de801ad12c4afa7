"""Chunked messages: joined where all pieces came, else a notice; bounded in number and bytes."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.codecs.names import NameTable
from dissector.limits import NULL
from dissector.notices import NOTICES
from dissector.protocols.pulsar.messages.chunks import Chunks, Joined, chunks_at
from dissector.protocols.pulsar.wire.fields import FieldDecoder
from tests.wire import pulsar
from tests.wire.blocks import block_of

PIECES = (b"first ", b"second ", b"third")
WHOLE = b"".join(PIECES)


def chunk(number: int, *, count: int = 3, uuid: str = "u", total: int | None = None, **more: Any):
    """A SEND of one piece of a message."""
    fields = {
        "uuid": uuid, "chunk_id": number, "num_chunks_from_msg": count,
        "total_chunk_msg_size": len(WHOLE) if total is None else total, **more,
    }  # fmt: skip
    return pulsar.send(PIECES[number % 3], metadata_fields=fields)


def delivered(number: int, consumer_id: int) -> bytes:
    """A MESSAGE of one piece."""
    message_id = {"ledgerId": 1, "entryId": number}
    fields = {"uuid": "u", "chunk_id": number, "num_chunks_from_msg": 3}
    head = pulsar.command("MESSAGE", consumer_id=consumer_id, message_id=message_id)
    return pulsar.entry(head, pulsar.metadata(**fields), PIECES[number])


def add(
    chunks: Chunks, frames: list[bytes], connections: list[int] | None = None, topic: int = NULL
) -> list[Joined | None]:
    block, sources = block_of(frames)
    FieldDecoder(NameTable(10, 100), 0).decode(block, len(frames), sources)
    block.topic[:] = topic
    if connections is not None:
        block.connection_id[:] = connections
    rows = range(len(frames))
    return [chunks.add(each, sources) for each in chunks_at(block, rows)]


def codes(chunks: Chunks) -> list[tuple[str, int]]:
    return [(NOTICES[each.kind].code, each.frame_no) for each in chunks.drain_notices()]


def test_the_last_chunk_completes_a_message() -> None:
    chunks = Chunks(keeps_pieces=True)
    assert add(chunks, [chunk(0), chunk(1), chunk(2)]) == [None, None, Joined(len(WHOLE), WHOLE)]
    assert add(Chunks(), [chunk(0), chunk(1), chunk(2)])[2] == Joined(len(WHOLE), b"")
    assert not codes(chunks) and not chunks.finish()


@pytest.mark.parametrize("missing", [(0,), (1,), (0, 1)], ids=str)
def test_a_message_that_lacks_a_chunk_is_a_notice_at_its_last(missing: tuple[int, ...]) -> None:
    chunks = Chunks()
    frames = [chunk(number) for number in range(3) if number not in missing]
    assert add(chunks, frames) == [None] * len(frames)
    assert codes(chunks) == [("chunk_missing", len(frames))] and not chunks.finish()


def test_a_message_without_its_end_is_a_notice_at_the_end() -> None:
    chunks = Chunks()
    add(chunks, [chunk(0), chunk(1)])
    assert not codes(chunks)
    (left,) = chunks.finish()
    assert (NOTICES[left.kind].code, left.frame_no) == ("chunk_missing", 2)
    assert not chunks.finish()


def test_a_size_that_does_not_add_up_is_a_missing_chunk() -> None:
    chunks = Chunks()
    assert add(chunks, [chunk(k, total=99) for k in range(3)]) == [None] * 3
    assert codes(chunks) == [("chunk_missing", 3)]


def test_producers_and_consumers_are_told_apart() -> None:
    chunks = Chunks(keeps_pieces=True)
    frames = [delivered(0, 1), delivered(0, 2), chunk(0), chunk(0, uuid="v"), delivered(1, 1)]
    frames += [delivered(2, 1), chunk(1), delivered(1, 2), delivered(2, 2), chunk(2)]
    found = add(chunks, frames)
    assert [index for index, each in enumerate(found) if each] == [5, 8, 9]
    assert all(each is None or each.pieces == WHOLE for each in found)


def test_a_producer_goes_on_over_another_connection_where_its_topic_is_known() -> None:
    frames = [chunk(0), chunk(1), chunk(2)]
    assert add(Chunks(), frames, [1, 1, 2], topic=5)[2] == Joined(len(WHOLE), b"")
    assert add(Chunks(), frames, [1, 1, 2])[2] is None


def test_what_is_sent_again_counts_once() -> None:
    chunks = Chunks(keeps_pieces=True)
    again = [chunk(0), chunk(1), chunk(1), chunk(2), chunk(1), chunk(2)]
    assert [each and each.pieces for each in add(chunks, again)] == [None] * 3 + [WHOLE] + [
        None
    ] * 2
    assert not codes(chunks) and not chunks.finish()
    # From the first chunk on the whole message comes again, and is a message again.
    assert add(chunks, [chunk(0), chunk(0), chunk(1), chunk(2)])[3] == Joined(len(WHOLE), WHOLE)


@given(st.permutations(range(3)))
def test_the_last_chunk_alone_decides(order: list[int]) -> None:
    chunks = Chunks()
    found = add(chunks, [chunk(number) for number in order])
    is_whole = order[2] == 2
    assert [each is not None for each in found] == [False, False, is_whole]
    assert len(codes(chunks)) == (0 if is_whole else 1)


def test_every_order_of_two_messages() -> None:
    for order in set(permutations([0, 0, 1, 1])):
        seen = {0: 0, 1: 0}
        frames = []
        for message in order:
            frames.append(chunk(seen[message], count=2, uuid=str(message), total=13))
            seen[message] += 1
        assert sum(each is not None for each in add(Chunks(), frames)) == 2


def test_the_message_begun_first_is_given_up_at_the_bounds() -> None:
    chunks = Chunks(max_messages=2)
    add(chunks, [chunk(0, uuid=uuid) for uuid in "abc"])
    assert codes(chunks) == [("chunks_limit", 1)]
    assert add(chunks, [chunk(1, uuid="a"), chunk(2, uuid="a")]) == [None, None]
    chunks = Chunks(keeps_pieces=True, max_bytes=10)
    add(chunks, [chunk(0, uuid="a"), chunk(0, uuid="b")])
    assert codes(chunks) == [("chunks_limit", 1)]
    chunks = Chunks(max_chunks=2)
    add(chunks, [chunk(0, uuid="a"), chunk(0, uuid="a"), chunk(1, uuid="a"), chunk(0, uuid="b")])
    assert codes(chunks) == [("chunks_limit", 3)]
    assert add(chunks, [chunk(1, uuid="b"), chunk(2, uuid="b")])[1] is not None


@pytest.mark.parametrize("number", [-1, 3, 1 << 30])
def test_a_number_beyond_the_count_is_no_chunk_of_it(number: int) -> None:
    chunks = Chunks()
    assert add(chunks, [chunk(0), chunk(1), chunk(number), chunk(2)])[3] is not None
