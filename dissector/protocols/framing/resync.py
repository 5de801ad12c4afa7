"""Find the first frame again in a run of bytes whose beginning is not a known frame's start.

A header alone proves little: payloads may hold whole frames. A candidate is an offset with a strict
header, stricter where it stands inside a packet, as payloads do; it is followed from frame end to
frame end. Where an end that is known in sequence space meets bytes that are no header, or a length
of zero that does not begin a packet, the candidate is contradicted, and so are all offsets that it
has visited: they lead to the same place. The lowest candidate that nothing contradicts is the
chain, and whoever holds the run decides how long it must stand before it is believed.

While the protocol of a connection is not known, a chain must also tell it (`tells_protocol`): that
lengths lead from one header to the next says nothing, since so they do in many protocols. One that
does not, and of which no byte will tell more, is contradicted.

Bytes may be missing inside a buffer: a hole ends no chain whose next header lies behind it. A chain
whose next header lies in a hole is blind: nothing will confirm or contradict it any more.

A chain is believed where packets confirm it, where nothing can contradict it any more, and where it
has stood for long enough.

The cost is linear in the bytes of a run, whatever they are: each offset is a candidate once, and
visited by one chain at most; sums over payloads have a budget.
"""

import enum
from typing import Final, NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import RESYNC_HOLD_BYTES, RESYNC_HOLD_MS
from dissector.protocols import strictness
from dissector.protocols.framing import search_state
from dissector.protocols.framing.range_pool import BufferedRanges
from dissector.stream.columns import STARTS_PACKET, RangeKind
from dissector.tables import ABSENT


class SearchResult(enum.IntEnum):
    """Results of a search."""

    NOTHING = 0  # no candidate; bytes below RESUME can start no frame
    LIVE = 1  # a chain that runs to the end of what is there
    BLIND = 2  # a chain whose next header lies in a hole
    BROKEN = 3


# What a header that a hole cuts off must show to be taken for one: both sizes, the command and the
# tag of its body.
HEADER_EVIDENCE: Final = 12
# Checksums are computed, and doubtful frames searched, over this many times the bytes of a run.
_BUDGET: Final = 4
_BUDGET_BYTES: Final = 1 << 16
_SHORT_FRAME_BYTES: Final = 64 << 10
# Bytes of the equal segments into which TCP cuts long payloads, by what links carry: the smallest
# packet that all must, Ethernet with and without tunnels, jumbo frames and offload.
_SEGMENTS: Final = ((512, 600), (1200, 1500), (4000, 1 << 62))
# So many packets say something of two frames, and one more for so many of their bytes.
_FEW_PACKETS: Final = 4
_TINY_PACKET_BYTES: Final = 64
SURE_FRAMES: Final = 3  # in a row: a chain that may be believed where it must be decided
HOLD_NS: Final = RESYNC_HOLD_MS * 1_000_000
_VISITED: Final = 1
_COMBED_MARK: Final = 2
_MARK_BITS: Final = 2
BEGINS_PACKET: Final = 0x80
# Their bits stand below BEGINS_PACKET.
MOST_PROTOCOLS: Final = (BEGINS_PACKET.bit_length() - 1) // _MARK_BITS
_LENGTH_BYTES: Final = 4


class Searched(NamedTuple):
    """A buffer as a search sees it.

    data: uint8[], its bytes.
    marks: uint8[], two bits for each protocol, and BEGINS_PACKET.
    search: the cells.
    ranges: rows of all buffers, from `first` on the row_count of this one.
    first_gap: its first gap, or ABSENT.
    base: `begin` of its first byte.
    """

    data: ByteArray
    marks: ByteArray
    search: Int64Array
    ranges: BufferedRanges
    first: int
    row_count: int
    first_gap: int
    base: int


class ByteOfRange(NamedTuple):
    """A byte of a buffer: the range that holds it, ABSENT if it is behind all, and its offset
    there."""

    row: int
    offset: int


class Rule(NamedTuple):
    """How headers and frames are judged: callbacks and which of them, direction, longest frame.

    direction: 0 to_broker, 1 to_client, 2 unknown.
    limit: bytes.
    is_final: no byte will follow.
    is_open: the connection's protocol is not known.
    skipped: bytes of the direction before the run.
    """

    check: tuple  # type: ignore[type-arg]
    prove: tuple  # type: ignore[type-arg]
    protocol: int
    direction: int
    limit: int
    is_final: int
    is_open: int
    skipped: int


@inlined
def _is_marked(buffer: Searched, offset: int, rule: Rule, mark: int) -> bool:
    return bool(buffer.marks[offset] & mark << _MARK_BITS * rule.protocol)


@inlined
def _mark(buffer: Searched, offset: int, rule: Rule, mark: int) -> None:
    buffer.marks[offset] |= mark << _MARK_BITS * rule.protocol


@inlined
def _judge(buffer: Searched, offset: int, end: int, rule: Rule, level: int) -> int:
    buffer.search[search_state.STEPS] += 1
    return int(
        rule.check[rule.protocol](buffer.data, offset, end, rule.direction, rule.limit, level)
    )


@inlined
def _stands_in_front(buffer: Searched, offset: int, end: int) -> bool:
    """Whether a frame's length is the first in a packet, and not in several: where packets are
    tiny, any byte begins one."""
    for behind in range(offset + 1, min(offset + _LENGTH_BYTES, end)):
        if buffer.marks[behind] & BEGINS_PACKET:
            return False
    return bool(buffer.marks[offset] & BEGINS_PACKET)


@kernel
def begin_search(search: Int64Array) -> None:
    """Make the cells those of a search that has not begun."""
    search[:] = 0
    search[search_state.AT] = search[search_state.BEGAN_AT] = search[search_state.CONFIRMED_AT] = -1
    search[search_state.PASSED_GAP] = search[search_state.RESUME_GAP] = ABSENT


@inlined
def _gap_behind(buffer: Searched, passed: int) -> int:
    """The gap behind one, the first one behind ABSENT; ABSENT behind the last."""
    return buffer.first_gap if passed == ABSENT else int(buffer.ranges.next_gap[passed])


@inlined
def _gap_at(buffer: Searched, gap: int) -> int:
    """Where a gap lies: the offset of the byte behind it; the buffer's end where there is none."""
    return len(buffer.data) if gap == ABSENT else int(buffer.ranges.begin[gap]) - buffer.base


@inlined
def _pass_gaps(buffer: Searched, passed: int, offset: int) -> int:
    """The last gap that lies at an offset or before it, from one on that does."""
    gap = _gap_behind(buffer, passed)
    for _ in range(buffer.row_count):
        if gap == ABSENT or _gap_at(buffer, gap) > offset:
            break
        passed = gap
        gap = buffer.ranges.next_gap[gap]
    return passed


@inlined
def _is_sound(buffer: Searched, rule: Rule) -> int:
    """The verdict on the chain's last frame, which is whole: 1 proven, 0 not known, -1 wrong."""
    search = buffer.search
    if (
        search[search_state.SUMMED] + search[search_state.TOTAL]
        > _BUDGET * len(buffer.data) + _BUDGET_BYTES
    ):
        return 0
    search[search_state.SUMMED] += search[search_state.TOTAL]
    return int(
        rule.prove[rule.protocol](
            buffer.data, search[search_state.LAST], search[search_state.TOTAL]
        )
    )


@kernel
def _holds_chain(buffer: Searched, rule: Rule) -> bool:
    """Whether the chain's last frame, whose sum is wrong, is a chain of proven frames inside.

    Then it is no frame: it began in a payload, and its end is a frame's end by chance.
    """
    search = buffer.search
    start = search[search_state.LAST]
    end = start + search[search_state.TOTAL]
    if (
        search[search_state.COMBED] + search[search_state.TOTAL]
        > _BUDGET * len(buffer.data) + _BUDGET_BYTES
    ):
        return False
    search[search_state.COMBED] += search[search_state.TOTAL]
    for offset in range(start + 1, end):
        position = offset
        proofs = 0
        while position < end and not _is_marked(buffer, position, rule, _VISITED | _COMBED_MARK):
            total = _judge(buffer, position, end, rule, strictness.STRICT)
            if total <= 0 or total > end - position:
                break
            _mark(buffer, position, rule, _COMBED_MARK)
            if search[search_state.SUMMED] + total <= _BUDGET * len(buffer.data) + _BUDGET_BYTES:
                search[search_state.SUMMED] += total
                proofs += rule.prove[rule.protocol](buffer.data, position, total) == 1
            position += total
        if position == end and proofs > 0:
            return True
    return False


@inlined
def _next_candidate(buffer: Searched, rule: Rule) -> bool:
    """Look for the next strict header; False if there is none yet."""
    search, size = buffer.search, len(buffer.data)
    passed = search[search_state.RESUME_GAP]
    gap = _gap_behind(buffer, passed)
    end = _gap_at(buffer, gap)
    for offset in range(search[search_state.RESUME], size):
        if gap != ABSENT and end <= offset:
            passed = _pass_gaps(buffer, passed, offset)
            gap = _gap_behind(buffer, passed)
            end = _gap_at(buffer, gap)
        if _is_marked(buffer, offset, rule, _VISITED):
            continue
        level = strictness.FIRST if _stands_in_front(buffer, offset, end) else strictness.INSIDE
        total = _judge(buffer, offset, end, rule, level)
        if total < 0:
            continue
        if total == 0 and gap == ABSENT and rule.is_final == 0:
            search[search_state.RESUME] = offset
            search[search_state.RESUME_GAP] = passed
            return False
        if total == 0 and end - offset < HEADER_EVIDENCE:
            continue
        search[search_state.RESUME] = offset
        search[search_state.RESUME_GAP] = passed
        search[search_state.AT] = offset
        search[search_state.CURSOR] = offset
        search[search_state.TO_GO] = 0
        search[search_state.PASSED_GAP] = passed
        search[search_state.FRAMES] = 0
        search[search_state.PROOFS] = 0
        search[search_state.LAST] = offset
        search[search_state.IS_OPEN] = 0
        search[search_state.SECOND] = -1
        search[search_state.THIRD] = -1
        return True
    search[search_state.RESUME] = max(search[search_state.RESUME], size)
    search[search_state.RESUME_GAP] = passed
    return False


@inlined
def _reach_end(buffer: Searched) -> SearchResult:
    """Move the cursor on to the end of the chain's last frame; LIVE there or where bytes end."""
    search = buffer.search
    for _ in range(buffer.row_count):
        gap = _gap_behind(buffer, search[search_state.PASSED_GAP])
        step = _gap_at(buffer, gap) - search[search_state.CURSOR]
        if search[search_state.TO_GO] == 0 or gap == ABSENT or search[search_state.TO_GO] < step:
            break
        search[search_state.CURSOR] += step
        search[search_state.TO_GO] -= step
        if search[search_state.TO_GO] < buffer.ranges.length[gap]:
            return SearchResult.BLIND
        search[search_state.TO_GO] -= buffer.ranges.length[gap]
        search[search_state.IS_HOLED] = 1
        search[search_state.PASSED_GAP] = gap
    step = min(search[search_state.TO_GO], len(buffer.data) - search[search_state.CURSOR])
    search[search_state.CURSOR] += step
    search[search_state.TO_GO] -= step
    return SearchResult.LIVE


@inlined
def _follow(buffer: Searched, rule: Rule) -> SearchResult:
    """Follow the chain from where it stands to the end of the bytes."""
    search = buffer.search
    while True:
        if _reach_end(buffer) == SearchResult.BLIND:
            return SearchResult.BLIND
        if search[search_state.TO_GO] > 0:
            return SearchResult.LIVE
        if search[search_state.IS_OPEN] == 1:
            search[search_state.IS_OPEN] = 0
            verdict = 0
            if search[search_state.IS_HOLED] == 0:
                verdict = _is_sound(buffer, rule)
            if verdict == 1:
                search[search_state.PROOFS] += 1
            elif verdict < 0 and _holds_chain(buffer, rule):
                return SearchResult.BROKEN
            if search[search_state.FRAMES] == 1:
                search[search_state.SECOND] = search[search_state.CURSOR]
            elif search[search_state.FRAMES] == 2:
                search[search_state.THIRD] = search[search_state.CURSOR]
        at = search[search_state.CURSOR]
        gap = _gap_behind(buffer, search[search_state.PASSED_GAP])
        end = _gap_at(buffer, gap)
        if gap != ABSENT and end == at:
            return SearchResult.BLIND
        if at >= len(buffer.data):
            return SearchResult.LIVE
        if _is_marked(buffer, at, rule, _VISITED):
            return SearchResult.BROKEN
        total = _judge(buffer, at, end, rule, strictness.STRICT)
        if total < 0 or (total == _LENGTH_BYTES and not _stands_in_front(buffer, at, end)):
            return SearchResult.BROKEN
        if total == 0:
            return SearchResult.BLIND if gap != ABSENT or rule.is_final == 1 else SearchResult.LIVE
        _mark(buffer, at, rule, _VISITED)
        search[search_state.FRAMES] += 1
        search[search_state.LAST] = at
        search[search_state.TOTAL] = total
        search[search_state.TO_GO] = total
        search[search_state.IS_HOLED] = 0
        search[search_state.IS_OPEN] = 1


@kernel
def tells_protocol(buffer: Searched, rule: Rule, is_end: int) -> bool:
    """Whether a chain tells the protocol of its connection, if that is not known.

    A header does that is hard to mistake; else one that says what only its protocol does, or a
    frame that proves itself, with another behind it, or if it is all there is of the direction.

    Args:
        is_end: the chain ends as it stands.
    """
    if rule.is_open == 0:
        return True
    search = buffer.search
    start = search[search_state.AT]
    end = _gap_at(buffer, _gap_behind(buffer, search[search_state.RESUME_GAP]))
    judged = _judge(buffer, start, end, rule, strictness.ALONE)
    if judged > 0 or (judged == 0 and search[search_state.FRAMES] == 0):
        return True  # what is there of a header that is cut was evidence enough
    if search[search_state.PROOFS] == 0 and _judge(buffer, start, end, rule, strictness.OWN) <= 0:
        return False
    is_whole = search[search_state.TO_GO] == 0 and search[search_state.IS_OPEN] == 0
    is_all = start == 0 and rule.skipped == 0 and is_whole
    return bool(search[search_state.FRAMES] > 1 or (is_end == 1 and is_all))


@kernel
def find_chain(buffer: Searched, rule: Rule) -> SearchResult:
    """Go on with the search of a run; NOTHING, LIVE or BLIND."""
    search = buffer.search
    search[search_state.IS_BEGUN] = 1
    while True:
        if search[search_state.AT] < 0 and not _next_candidate(buffer, rule):
            return SearchResult.NOTHING
        status = _follow(buffer, rule)
        is_decided = status == SearchResult.BLIND or rule.is_final == 1
        if status != SearchResult.BROKEN and (not is_decided or tells_protocol(buffer, rule, 1)):
            return status
        search[search_state.RESUME] = search[search_state.AT] + 1
        search[search_state.AT] = -1


@kernel
def range_at(buffer: Searched, offset: int) -> ByteOfRange:
    """Where a byte of a buffer lies."""
    row = buffer.first
    for _ in range(buffer.row_count):
        if buffer.ranges.kind[row] == RangeKind.DATA:
            if offset < buffer.ranges.length[row]:
                return ByteOfRange(row, offset)
            offset -= buffer.ranges.length[row]
        row = buffer.ranges.next[row]
    return ByteOfRange(ABSENT, offset)


@inlined
def _is_long(buffer: Searched) -> bool:
    """Whether the end of the chain's last frame is far: it would cover frames that it only says it
    holds, if it is none."""
    return bool(
        buffer.search[search_state.IS_OPEN] == 1
        and buffer.search[search_state.TOTAL] > _SHORT_FRAME_BYTES
    )


@inlined
def _have_uneven_sizes(first: int, second: int) -> bool:
    """Whether the sizes of two frames are not those of the segments of a long payload."""
    is_like_segments = False
    for low, high in _SEGMENTS:
        is_like_segments |= low <= first < high
    return first != second or not is_like_segments


@kernel
def _begin_packets(buffer: Searched) -> bool:
    """Whether three frames of a chain begin packets, few of which are tiny."""
    search, ranges = buffer.search, buffer.ranges
    start, middle = search[search_state.AT], search[search_state.SECOND]
    end = search[search_state.THIRD]
    if not _have_uneven_sizes(middle - start, end - middle):
        return False
    offset = begun = packets = 0
    row = buffer.first
    for _ in range(buffer.row_count):
        if offset > end:
            break
        if ranges.kind[row] == RangeKind.DATA and ranges.length[row] > 0:
            if ranges.flags[row] & STARTS_PACKET:
                begun += offset in (start, middle, end)
                packets += start <= offset < end
            offset += ranges.length[row]
        row = ranges.next[row]
    return begun == 3 and packets <= _FEW_PACKETS + (end - start) // _TINY_PACKET_BYTES


@kernel
def is_confirmed_by_packets(buffer: Searched) -> bool:
    """Whether three frames of a chain in a row begin packets.

    No payload decides how TCP cuts it, but for long payloads, which are cut into equal parts. Where
    packets are tiny, any byte begins one, which proves nothing.
    """
    search = buffer.search
    if (
        search[search_state.FRAMES] < 3
        or search[search_state.THIRD] < 0
        or search[search_state.THIRD] >= len(buffer.data)
    ):
        return False
    if search[search_state.CONFIRMED_AT] != search[search_state.AT]:
        search[search_state.CONFIRMED_AT] = search[search_state.AT]
        search[search_state.IS_CONFIRMED] = _begin_packets(buffer)
    return bool(search[search_state.IS_CONFIRMED] == 1)


@inlined
def _began(buffer: Searched) -> int:
    """When the first packet of a chain was captured, ns."""
    search = buffer.search
    if search[search_state.BEGAN_AT] != search[search_state.AT]:
        search[search_state.BEGAN_AT] = search[search_state.AT]
        search[search_state.BEGAN_TS] = buffer.ranges.ts_ns[
            range_at(buffer, search[search_state.AT]).row
        ]
    return int(search[search_state.BEGAN_TS])


@kernel
def is_believed(buffer: Searched, rule: Rule, status: SearchResult, ts_ns: int) -> bool:
    """Whether the chain of a search may go out.

    It does where packets confirm it, where nothing can contradict it any more, and where it has
    stood for RESYNC_HOLD_BYTES or RESYNC_HOLD_MS. A long frame at its end is waited for, and so is
    what tells an unknown protocol.

    Args:
        status: what `find_chain` gave; ts_ns: now.
    """
    search = buffer.search
    if status == SearchResult.NOTHING:
        return False
    if status == SearchResult.BLIND or rule.is_final == 1:
        return True
    if not tells_protocol(buffer, rule, 0):
        return False
    if is_confirmed_by_packets(buffer):
        return True
    if _is_long(buffer):
        return False
    if search[search_state.LAST] - search[search_state.AT] >= RESYNC_HOLD_BYTES:
        return True
    return bool(search[search_state.FRAMES] > 1 and ts_ns - _began(buffer) > HOLD_NS)


@kernel
def has_some(buffer: Searched, frames: int) -> bool:
    """Whether there is a chain of so many frames, and no long one at its end."""
    return (
        buffer.search[search_state.AT] >= 0
        and buffer.search[search_state.FRAMES] >= frames
        and not _is_long(buffer)
    )
