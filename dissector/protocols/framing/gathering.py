"""Add the ranges of a connection to its runs ahead of their turn, as far as none decides anything.

A search may hold a thousand ranges of a direction, and as many of the other one that waits, before
its chain is believed. Each of them is added to a run and the search goes on; nothing comes out and
nothing else is changed. So the ranges that follow in the same block are taken together, past those
of other connections. One at which there is something to decide is marked as DUE, and decided when
its turn comes: the order of frames does not depend on what was gathered.
"""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import MAX_WAIT_BYTES, RESYNC_HOLD_BYTES, RESYNC_HOLD_MS
from dissector.protocols.framing.replays import DUE, GATHERED, Pieces
from dissector.protocols.framing.resync import (
    LIVE,
    PIECES,
    RESUME,
    SIZE,
    Rule,
    Searched,
    find_chain,
    is_believed,
)
from dissector.stream.columns import DATA, RangeColumns

# Bytes before a chain are worth dropping where they are many, and most of the run.
DROPPED_BYTES: Final = RESYNC_HOLD_BYTES // 16
_HOLD_NS: Final = RESYNC_HOLD_MS * 1_000_000


class Following(NamedTuple):
    """Ranges, some of which follow one in its connection.

    next_rows: by range the next one of its connection, -1 if none; before: what the ranges were
    when they came for the first time, none if they do now; sources: where bytes lie.
    """

    ranges: RangeColumns
    next_rows: Int64Array
    before: Pieces
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray]


class Content(NamedTuple):
    """What a run holds. data: uint8[], its bytes, `size` of them; pieces: its ranges, `rows`;
    rows: negative where there is no run."""

    data: ByteArray
    pieces: Pieces
    size: int
    rows: int


class Gathered(NamedTuple):
    """size, rows: of the run that waits; order, row: of the last range that was taken; is_full: a
    run has no room for the next one."""

    size: int
    rows: int
    order: int
    row: int
    is_full: bool


@inlined
def _append(following: Following, row: int, order: int, run: Content) -> bool:
    """Add a range of DATA to a run; False if it has no room."""
    ranges, before, pieces, piece = following.ranges, following.before, run.pieces, run.rows
    length = ranges.length[row]
    if run.size + length > len(run.data) or piece >= len(pieces.kind):
        return False
    source = following.sources[ranges.source[row]]
    at = ranges.offset[row]
    for index in range(length):
        run.data[run.size + index] = source[at + index]
    is_first_time = len(before.kind) == 0
    pieces.stream_offset[piece] = ranges.stream_offset[row]
    pieces.length[piece] = length
    pieces.packet[piece] = ranges.packet[row]
    pieces.ts_ns[piece] = ranges.ts_ns[row]
    pieces.flags[piece] = ranges.flags[row]
    pieces.kind[piece] = DATA
    pieces.order[piece] = order if is_first_time else before.order[row]
    pieces.cause[piece] = 0
    pieces.starts_chain[piece] = 0 if is_first_time else before.starts_chain[row]
    pieces.is_judged[piece] = 0 if is_first_time else before.is_judged[row]
    ranges.kind[row] = GATHERED
    return True


@inlined
def is_worth_dropping(before: int, size: int) -> bool:
    """Whether the bytes before the chain of a run shall be dropped. size: of the run."""
    return 2 * before > max(size, DROPPED_BYTES)


@kernel
def waits_too_long(pieces: Pieces, size: int, ts_ns: int) -> bool:
    """Whether a run has waited for the other direction's as long, or with as much, as it may."""
    return size > MAX_WAIT_BYTES or ts_ns - pieces.ts_ns[0] > _HOLD_NS


@kernel
def gather(
    following: Following, row: int, order: int, searched: tuple[int, Searched, Rule], waits: Content
) -> Gathered:
    """Add what follows a range, which itself is taken, to the runs of its connection.

    Args:
        order: of the last range that came for the first time. searched: the side that is searched,
            its run, which has a chain, and how frames are judged. waits: the other side's run.
    """
    ranges = following.ranges
    side, run, rule = searched
    search = run.search
    size, rows = waits.size, waits.rows
    is_full = is_due = False
    while not is_due:
        index = following.next_rows[row]
        if index < 0 or ranges.kind[index] != DATA:
            break
        is_searched = ranges.side[index] == side
        if rows < 0 and not is_searched:
            break
        content = Content(waits.data, waits.pieces, size, rows)
        if is_searched:
            content = Content(run.data, run.pieces, search[SIZE], search[PIECES])
        is_full = not _append(following, index, order + 1, content)
        if is_full:
            break
        row = index
        order += len(following.before.kind) == 0
        if is_searched:
            search[SIZE] += ranges.length[row]
            search[PIECES] += 1
            status = find_chain(run, rule)
            is_due = status != LIVE or is_believed(run, status, ranges.ts_ns[row], 0)
            is_due |= is_worth_dropping(search[RESUME], search[SIZE])
        else:
            size += ranges.length[row]
            rows += 1
            is_due = waits_too_long(waits.pieces, size, ranges.ts_ns[row])
    if is_due:
        ranges.kind[row] = DUE
    return Gathered(size, rows, order, row, is_full)
