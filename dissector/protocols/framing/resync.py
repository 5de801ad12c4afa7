"""Find the first frame again in a run of bytes whose beginning is not a known frame's start.

A header alone proves little: payloads may hold whole frames. A candidate is an offset with a strict
header, stricter where it stands inside a packet, as payloads do; it is followed from frame end to
frame end. Where an end that is known in sequence space meets bytes that are no header, or a length
of zero that does not begin a packet, the candidate is contradicted, and so are all offsets that it
has visited: they lead to the same place. The lowest candidate that nothing contradicts is the
chain, and the caller decides how long it must stand before it is believed.

While the protocol of a connection is not known, a chain must also identify it (`tells_protocol`):
lengths that lead from header to header prove nothing, as many protocols have them. A chain that
does not identify it, and to which no byte will be added, is contradicted.

Bytes may be missing inside a buffer: a gap ends no chain whose next header lies behind it. A chain
whose next header lies in a gap is blind: nothing will confirm or contradict it any more.

A chain is believed if packets confirm it, if nothing can contradict it any more, or if it has stood
for long enough.

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
    LIVE = 1  # a chain that runs to the end of the bytes so far
    BLIND = 2  # a chain whose next header lies in a gap
    BROKEN = 3  # a chain that is contradicted


# A header that a gap cuts is accepted with these bytes: both sizes, the command and the tag of its
# body.
HEADER_EVIDENCE: Final = 12
# Checksums, and searches inside doubtful frames, may cover this many times the bytes of a run.
_BUDGET: Final = 4
_BUDGET_BYTES: Final = 1 << 16
_SHORT_FRAME_BYTES: Final = 64 << 10
# Bytes of the equal segments into which TCP cuts long payloads, by link: the smallest MTU allowed,
# Ethernet with and without tunnels, jumbo frames and offload.
_SEGMENTS: Final = ((512, 600), (1200, 1500), (4000, 1 << 62))
# Two frames in at most so many packets prove something; one more per so many of their bytes.
_FEW_PACKETS: Final = 4
_TINY_PACKET_BYTES: Final = 64
SURE_FRAMES: Final = 3  # in a row: such a chain is believed where it must be decided
HOLD_NS: Final = RESYNC_HOLD_MS * 1_000_000
_VISITED: Final = 1
_RESCANNED_MARK: Final = 2
_MARK_BITS: Final = 2
BEGINS_PACKET: Final = 0x80
# Their mark bits lie below BEGINS_PACKET.
MOST_PROTOCOLS: Final = (BEGINS_PACKET.bit_length() - 1) // _MARK_BITS
_LENGTH_BYTES: Final = 4


class SearchView(NamedTuple):
    """A buffer and one of its searches.

    data: uint8[], its bytes.
    marks: uint8[], per byte: two bits for each protocol, and BEGINS_PACKET.
    search: int64[SEARCH_CELLS], see `search_state`.
    ranges: rows of all buffers; this one has row_count, linked from `first` on.
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
    """A byte of a buffer: the range that holds it, ABSENT behind the last, and its offset there."""

    row: int
    offset: int


class Rule(NamedTuple):
    """How headers and frames are judged.

    check, prove: callbacks of all protocols; protocol: index of the one to call.
    direction: 0 to_broker, 1 to_client, 2 unknown.
    limit: bytes of the longest frame.
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
def _is_marked(buffer: SearchView, offset: int, rule: Rule, mark: int) -> bool:
    return bool(buffer.marks[offset] & mark << _MARK_BITS * rule.protocol)


@inlined
def _mark(buffer: SearchView, offset: int, rule: Rule, mark: int) -> None:
    buffer.marks[offset] |= mark << _MARK_BITS * rule.protocol


@inlined
def _judge(buffer: SearchView, offset: int, end: int, rule: Rule, level: int) -> int:
    buffer.search[search_state.STEPS] += 1
    return int(
        rule.check[rule.protocol](buffer.data, offset, end, rule.direction, rule.limit, level)
    )


@inlined
def _stands_in_front(buffer: SearchView, offset: int, end: int) -> bool:
    """Whether a frame's length field begins a packet and lies in that one: where packets are tiny,
    any byte begins one."""
    for behind in range(offset + 1, min(offset + _LENGTH_BYTES, end)):
        if buffer.marks[behind] & BEGINS_PACKET:
            return False
    return bool(buffer.marks[offset] & BEGINS_PACKET)


@kernel
def begin_search(search: Int64Array) -> None:
    """Reset the cells of a search to those before its start."""
    search[:] = 0
    search[search_state.AT] = search[search_state.BEGAN_AT] = search[search_state.CONFIRMED_AT] = -1
    search[search_state.PASSED_GAP] = search[search_state.RESUME_GAP] = ABSENT


@inlined
def _gap_behind(buffer: SearchView, passed: int) -> int:
    """The gap that follows `passed`, the first one if that is ABSENT; ABSENT after the last."""
    return buffer.first_gap if passed == ABSENT else int(buffer.ranges.next_gap[passed])


@inlined
def _gap_at(buffer: SearchView, gap: int) -> int:
    """The offset of the byte behind a gap; the buffer's end if the gap is ABSENT."""
    return len(buffer.data) if gap == ABSENT else int(buffer.ranges.begin[gap]) - buffer.base


@inlined
def _pass_gaps(buffer: SearchView, passed: int, offset: int) -> int:
    """The last gap at or before an offset; `passed` is one such gap, or ABSENT."""
    gap = _gap_behind(buffer, passed)
    for _ in range(buffer.row_count):
        if gap == ABSENT or _gap_at(buffer, gap) > offset:
            break
        passed = gap
        gap = buffer.ranges.next_gap[gap]
    return passed


@inlined
def _is_sound(buffer: SearchView, rule: Rule) -> int:
    """Verify the chain's last frame, which is whole: 1 proven, 0 not known, -1 wrong."""
    search = buffer.search
    if (
        search[search_state.CHECKSUMMED] + search[search_state.TOTAL]
        > _BUDGET * len(buffer.data) + _BUDGET_BYTES
    ):
        return 0
    search[search_state.CHECKSUMMED] += search[search_state.TOTAL]
    return int(
        rule.prove[rule.protocol](
            buffer.data, search[search_state.LAST], search[search_state.TOTAL]
        )
    )


@kernel
def _holds_chain(buffer: SearchView, rule: Rule) -> bool:
    """Whether the chain's last frame, whose checksum is wrong, contains a chain of proven frames.

    Then it is no frame: it began in a payload, and its end is a frame's end by chance.
    """
    search = buffer.search
    start = search[search_state.LAST]
    end = start + search[search_state.TOTAL]
    budget = _BUDGET * len(buffer.data) + _BUDGET_BYTES
    if search[search_state.RESCANNED] + search[search_state.TOTAL] > budget:
        return False
    search[search_state.RESCANNED] += search[search_state.TOTAL]
    for offset in range(start + 1, end):
        position = offset
        proofs = 0
        while position < end and not _is_marked(buffer, position, rule, _VISITED | _RESCANNED_MARK):
            total = _judge(buffer, position, end, rule, strictness.STRICT)
            if total <= 0 or total > end - position:
                break
            _mark(buffer, position, rule, _RESCANNED_MARK)
            if search[search_state.CHECKSUMMED] + total <= budget:
                search[search_state.CHECKSUMMED] += total
                proofs += rule.prove[rule.protocol](buffer.data, position, total) == 1
            position += total
        if position == end and proofs > 0:
            return True
    return False


@inlined
def _next_candidate(buffer: SearchView, rule: Rule) -> bool:
    """Find the next strict header and begin a chain there; False if there is none yet."""
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
def _reach_end(buffer: SearchView) -> SearchResult:
    """Move the cursor to the end of the last frame or of the bytes; BLIND if that is in a gap."""
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
def _follow(buffer: SearchView, rule: Rule) -> SearchResult:
    """Follow the chain from its cursor to the end of the bytes."""
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
def tells_protocol(buffer: SearchView, rule: Rule, is_end: int) -> bool:
    """Whether a chain identifies the protocol of its connection; True if that is known already.

    An unmistakable header does. So does a header that only this protocol has, or a frame with a
    right checksum, if another frame follows or it is all of the direction.

    Args:
        is_end: no frame will be added to the chain.
    """
    if rule.is_open == 0:
        return True
    search = buffer.search
    start = search[search_state.AT]
    end = _gap_at(buffer, _gap_behind(buffer, search[search_state.RESUME_GAP]))
    verdict = _judge(buffer, start, end, rule, strictness.ALONE)
    if verdict > 0 or (verdict == 0 and search[search_state.FRAMES] == 0):
        return True  # the bytes of a cut header were evidence enough (HEADER_EVIDENCE)
    if search[search_state.PROOFS] == 0 and _judge(buffer, start, end, rule, strictness.OWN) <= 0:
        return False
    is_whole = search[search_state.TO_GO] == 0 and search[search_state.IS_OPEN] == 0
    is_all = start == 0 and rule.skipped == 0 and is_whole
    return bool(search[search_state.FRAMES] > 1 or (is_end == 1 and is_all))


@kernel
def find_chain(buffer: SearchView, rule: Rule) -> SearchResult:
    """Resume the search of a run; NOTHING, LIVE or BLIND."""
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
def range_at(buffer: SearchView, offset: int) -> ByteOfRange:
    """The range that holds a byte of a buffer."""
    row = buffer.first
    for _ in range(buffer.row_count):
        if buffer.ranges.kind[row] == RangeKind.DATA:
            if offset < buffer.ranges.length[row]:
                return ByteOfRange(row, offset)
            offset -= buffer.ranges.length[row]
        row = buffer.ranges.next[row]
    return ByteOfRange(ABSENT, offset)


@inlined
def _is_long(buffer: SearchView) -> bool:
    """Whether the chain's last frame is unfinished and long: if it is no frame, it hides real
    ones."""
    return bool(
        buffer.search[search_state.IS_OPEN] == 1
        and buffer.search[search_state.TOTAL] > _SHORT_FRAME_BYTES
    )


@inlined
def _have_uneven_sizes(first: int, second: int) -> bool:
    """Whether two frames differ in size from the equal segments of a long payload."""
    is_like_segments = False
    for low, high in _SEGMENTS:
        is_like_segments |= low <= first < high
    return first != second or not is_like_segments


@kernel
def _begin_packets(buffer: SearchView) -> bool:
    """Whether the first three frames of a chain begin packets that are not tiny on average."""
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
def is_confirmed_by_packets(buffer: SearchView) -> bool:
    """Whether the first three frames of a chain begin packets.

    A payload does not choose where TCP cuts it, except that long ones are cut into equal parts.
    Where packets are tiny, any byte begins one, which proves nothing.
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
def _began(buffer: SearchView) -> int:
    """Capture time of the first packet of a chain, ns."""
    search = buffer.search
    if search[search_state.BEGAN_AT] != search[search_state.AT]:
        search[search_state.BEGAN_AT] = search[search_state.AT]
        search[search_state.BEGAN_TS] = buffer.ranges.ts_ns[
            range_at(buffer, search[search_state.AT]).row
        ]
    return int(search[search_state.BEGAN_TS])


@kernel
def is_believed(buffer: SearchView, rule: Rule, status: SearchResult, ts_ns: int) -> bool:
    """Whether the chain of a search is believed.

    It is if packets confirm it, if nothing can contradict it any more, or once it has stood for
    RESYNC_HOLD_BYTES or RESYNC_HOLD_MS and ends with no unfinished long frame. While bytes may
    follow, it must also identify an unknown protocol.

    Args:
        status: the result of `find_chain`; ts_ns: the processing clock.
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
def has_some(buffer: SearchView, frames: int) -> bool:
    """Whether there is a chain of at least so many frames without a long one at its end."""
    return (
        buffer.search[search_state.AT] >= 0
        and buffer.search[search_state.FRAMES] >= frames
        and not _is_long(buffer)
    )
