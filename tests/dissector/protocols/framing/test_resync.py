"""A search finds the lowest chain that nothing contradicts, at a cost linear in the bytes."""

import random

import pytest

from dissector.limits import RESYNC_HOLD_BYTES, RESYNC_HOLD_MS
from dissector.protocols.cursus.spec import SPEC as CURSUS
from dissector.protocols.framing.resync import (
    SearchResult,
    find_chain,
    is_believed,
    is_confirmed_by_packets,
    tells_protocol,
)
from dissector.protocols.framing.search_state import (
    AT,
    CHECKSUMMED,
    FRAMES,
    IS_OPEN,
    LAST,
    PROOFS,
    RESUME,
    SECOND,
    STEPS,
    THIRD,
    TOTAL,
)
from tests.wire import cursus
from tests.wire.buffers import Held
from tests.wire.toy import PROVEN, TO_BROKER, frame

JUNK = b"\xff" * 9
LINE = cursus.bare("FETCH_OFFSET topic=a partition=0")
SQL = cursus.bare("delete from orders where id = 7")
PACKED = cursus.frame(b"\x1f\x8b\x08" + bytes(60))


def buffer_of(*parts: bytes | int) -> Held:
    """Packets, and holes as their lengths."""
    return Held().add(*parts)


def sized(*sizes: int) -> Held:
    """Packets of so many bytes; a negative size is a hole."""
    return buffer_of(*[bytes(size) if size > 0 else -size for size in sizes])


def add(buffer: Held, part: bytes | int) -> None:
    buffer.add(part)


def search(buffer: Held, is_final: int = 0) -> int:
    return find_chain(buffer.search_view(), buffer.rule(is_final)._replace(limit=10_000))


def cell(buffer: Held, number: int) -> int:
    return buffer.cell(number)


def test_one_header_is_a_chain_that_stands_until_something_contradicts_it() -> None:
    buffer = buffer_of(JUNK + frame(TO_BROKER))
    assert (search(buffer), cell(buffer, AT), cell(buffer, FRAMES)) == (SearchResult.LIVE, 9, 1)
    add(buffer, frame(TO_BROKER))
    assert (search(buffer), cell(buffer, AT), cell(buffer, FRAMES)) == (SearchResult.LIVE, 9, 2)
    add(buffer, JUNK)
    assert (search(buffer), cell(buffer, AT)) == (SearchResult.NOTHING, -1)
    assert cell(buffer, RESUME) > 9


def test_the_chain_behind_a_contradicted_one_is_found() -> None:
    inner = JUNK + frame(TO_BROKER, b"inner") * 2 + frame(TO_BROKER, bytes(30))[:20]
    buffer = buffer_of(inner + frame(TO_BROKER, b"outer") * 3)
    assert search(buffer) == SearchResult.LIVE
    assert cell(buffer, AT) == len(inner)


def test_a_right_sum_is_counted() -> None:
    buffer = buffer_of(JUNK + frame(PROVEN) + frame(TO_BROKER))
    search(buffer)
    assert cell(buffer, PROOFS) == 1


def test_a_frame_with_a_wrong_sum_that_is_a_chain_inside_is_none() -> None:
    """The last frame of a recorded stream, cut off, may end by chance where a frame does."""
    true = frame(PROVEN, b"x") * 4
    cut = frame(PROVEN, bytes(10 + len(true)))[:15]
    buffer = buffer_of(JUNK + frame(PROVEN, b"recorded") + cut + true + frame(PROVEN))
    assert search(buffer) == SearchResult.LIVE
    assert cell(buffer, AT) == 9 + len(frame(PROVEN, b"recorded")) + len(cut)


def test_a_frame_with_a_wrong_sum_alone_contradicts_nothing() -> None:
    wrong = frame(PROVEN, b"wrong")[:-1] + b"\0"
    buffer = buffer_of(JUNK + frame(PROVEN) + wrong + frame(PROVEN))
    assert (search(buffer), cell(buffer, AT), cell(buffer, FRAMES)) == (SearchResult.LIVE, 9, 3)


def test_an_end_behind_a_hole_confirms_or_contradicts() -> None:
    long = frame(TO_BROKER, bytes(100))
    buffer = buffer_of(JUNK + long[:40], 30, long[70:] + frame(TO_BROKER))
    assert (search(buffer), cell(buffer, AT), cell(buffer, FRAMES)) == (SearchResult.LIVE, 9, 2)
    buffer = buffer_of(JUNK + long[:40], 30, long[60:] + frame(TO_BROKER) * 2)
    assert search(buffer) == SearchResult.LIVE
    assert cell(buffer, AT) == 9 + 40 + len(long[60:])


def test_a_chain_whose_next_header_lies_in_a_hole_is_blind() -> None:
    long = frame(TO_BROKER, bytes(100))
    left = len(long) - 40
    for hole, expected in (
        (left - 1, SearchResult.LIVE),
        (left, SearchResult.LIVE),
        (left + 1, SearchResult.BLIND),
        (left + 90, SearchResult.BLIND),
    ):
        buffer = buffer_of(JUNK + long[:40], hole, frame(TO_BROKER)[-1:] * (left - hole))
        assert (search(buffer), cell(buffer, AT)) == (expected, 9)
    buffer = buffer_of(JUNK + long, 10)
    assert (search(buffer), cell(buffer, AT)) == (SearchResult.BLIND, 9)


@pytest.mark.parametrize("tail", range(1, 6))
def test_a_header_that_is_not_whole_is_kept_for_more_bytes(tail: int) -> None:
    buffer = buffer_of(b"\xff" * 20 + frame(TO_BROKER)[:tail])
    assert search(buffer) == SearchResult.NOTHING
    assert cell(buffer, RESUME) <= 20


@pytest.mark.parametrize("seed", range(20))
def test_bytes_may_come_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    parts = []
    for _ in range(12):
        whole = frame(chance.choice([TO_BROKER, PROVEN]), chance.randbytes(chance.randrange(40)))
        parts.append(chance.choice([whole, whole[: chance.randrange(1, len(whole))], JUNK, whole]))
    data = b"".join(parts)
    whole_buffer = buffer_of(data)
    expected = search(whole_buffer)
    buffered_ranges = Held()
    for at in range(0, len(data), 7):
        add(buffered_ranges, data[at : at + 7])
        found = search(buffered_ranges)
    assert (found, cell(buffered_ranges, AT)) == (expected, cell(whole_buffer, AT))
    assert cell(buffered_ranges, FRAMES) == cell(whole_buffer, FRAMES)


def look_alikes(size: int) -> bytes:
    """Headers everywhere: each says that its frame ends far on, where no header stands."""
    head = frame(TO_BROKER, bytes(4000))[:6]
    return head * (size // len(head))


def nearly_a_chain(size: int) -> bytes:
    """Chains that begin everywhere and all break at the same place."""
    return (frame(PROVEN, b"ab") + frame(TO_BROKER)[:3]) * 3 + frame(TO_BROKER) * (size // 6) + JUNK


def wrong_sums(size: int) -> bytes:
    """Long frames with wrong sums inside each other, in a chain that goes on."""
    wrong = frame(PROVEN, bytes(5000))
    data = bytearray(wrong[:-1] + b"\1") * (size // len(wrong))
    for at in range(0, len(data) - 6000, 50):
        if data[at : at + 6] == bytes(6):
            data[at : at + 6] = frame(PROVEN, bytes(3000))[:6]
    return bytes(data)


@pytest.mark.parametrize("make", [look_alikes, nearly_a_chain, wrong_sums])
def test_the_cost_is_linear_in_the_bytes(make: object) -> None:
    steps = []
    for size in (100_000, 400_000):
        buffer = Held()
        data = make(size)  # type: ignore[operator]
        for at in range(0, len(data), 1000):
            add(buffer, data[at : at + 1000])
            search(buffer)
        steps.append(cell(buffer, STEPS))
        assert steps[-1] <= 6 * len(data) + 100_000
        assert cell(buffer, CHECKSUMMED) <= 5 * len(data) + 100_000
    assert steps[1] <= 4.4 * steps[0] + 1000


def chain(buffer: Held, *starts: int, total: int = 0) -> Held:
    """Say that a search found frames at these offsets."""
    cells = buffer.search_view().search
    cells[AT], cells[FRAMES], cells[LAST] = starts[0], len(starts), starts[-1]
    cells[SECOND] = starts[1] if len(starts) > 1 else -1
    cells[THIRD] = starts[2] if len(starts) > 2 else -1
    cells[TOTAL], cells[IS_OPEN] = total, int(total > 0)
    return buffer


def test_a_chain_is_believed_when_it_has_stood_long_enough() -> None:
    began = 1_000  # packets are a microsecond apart
    late = began + RESYNC_HOLD_MS * 1_000_000 + 1
    buffer = chain(sized(3, 4, 5), 0, 5)
    assert not is_believed(buffer.search_view(), buffer.rule(1), SearchResult.NOTHING, 0)
    assert not is_believed(buffer.search_view(), buffer.rule(), SearchResult.LIVE, late - 1)
    assert is_believed(buffer.search_view(), buffer.rule(), SearchResult.LIVE, late)
    assert is_believed(buffer.search_view(), buffer.rule(), SearchResult.BLIND, 0)
    assert is_believed(buffer.search_view(), buffer.rule(1), SearchResult.LIVE, 0)
    buffer = chain(sized(10, RESYNC_HOLD_BYTES), 10, 20, 10 + RESYNC_HOLD_BYTES, total=100)
    assert is_believed(buffer.search_view(), buffer.rule(), SearchResult.LIVE, 0)


def test_the_end_of_a_long_frame_is_waited_for() -> None:
    buffer = chain(sized(10, RESYNC_HOLD_BYTES + 20), 10, 10 + RESYNC_HOLD_BYTES, total=1_000_000)
    assert not is_believed(buffer.search_view(), buffer.rule(), SearchResult.LIVE, 10**12)


def is_confirmed(buffer: Held) -> bool:
    return is_confirmed_by_packets(buffer.search_view())


def test_three_frames_that_begin_packets_are_confirmed_by_packets() -> None:
    assert is_confirmed(chain(sized(3, 4, 5, 6), 3, 7, 12))
    assert not is_confirmed(chain(sized(3, 4, 5, 6), 3, 7, 11))
    assert not is_confirmed(chain(sized(3, 4, 5), 3, 7, 12))
    # A header that is not judged yet, and bytes that each begin a packet, tell nothing.
    unjudged = chain(sized(3, 4, 5, 6), 3, 7, 12)
    unjudged.search_view().search[FRAMES] = 2
    assert not is_confirmed(unjudged)
    assert not is_confirmed(chain(sized(*[1] * 40), 3, 16, 29))
    assert is_confirmed(chain(sized(3, 4, 9, 4, 9, 6), 3, 16, 29))
    # TCP cuts a long payload into equal parts.
    assert not is_confirmed(chain(sized(3, 1448, 1448, 6), 3, 1451, 2899))


@pytest.mark.parametrize(
    ("data", "skipped", "is_end", "is_told"),
    [
        (LINE, 0, 0, False),
        (LINE, 0, 1, True),
        (LINE, 9, 1, False),
        (LINE + LINE, 9, 0, True),
        (LINE[:-1], 0, 1, False),
        (PACKED + LINE, 9, 0, True),
        (PACKED + PACKED, 0, 1, False),
        (SQL + SQL, 0, 1, False),
        (cursus.batch(cursus.records(9))[:-9], 9, 0, True),
    ],
)
def test_what_tells_the_protocol(data: bytes, skipped: int, is_end: int, is_told: bool) -> None:
    """By what its frames say, not by lengths."""
    buffer = Held(CURSUS).add(data)
    rule = buffer.rule(0, 1, skipped)
    assert find_chain(buffer.search_view(), rule) == SearchResult.LIVE
    assert tells_protocol(buffer.search_view(), rule, is_end) == is_told
    assert tells_protocol(buffer.search_view(), rule._replace(is_open=0), is_end)
    if is_end and not is_told:  # no byte will tell more
        assert find_chain(buffer.search_view(), rule._replace(is_final=1)) == SearchResult.NOTHING
