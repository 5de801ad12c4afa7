"""Add the ranges of a connection to its runs ahead of their turn, as far as none decides anything.

A search may hold a thousand ranges of a direction, and as many of the other one, before its chain
is believed. Each of them is added to a run and the search goes on; nothing comes out and nothing
else is changed. So the ranges that follow in the same block are taken together, past those of other
connections. One at which there may be something to decide is marked as DUE, and handled when its
turn comes: the order of frames does not depend on what was gathered.
"""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import MAX_WAIT_BYTES, RESYNC_HOLD_BYTES
from dissector.protocols.framing.first_bytes import IN_A_ROW, NEXT, follow_records
from dissector.protocols.framing.replays import DUE, GATHERED, Pieces
from dissector.protocols.framing.resync import (
    AT,
    HOLD_NS,
    PIECES,
    RESUME,
    SIZE,
    Rule,
    Searched,
    find_chain,
    is_believed,
)
from dissector.stream.columns import DATA, STARTS_PACKET, RangeColumns

# Bytes before a chain are worth dropping where they are many, and most of the run.
DROPPED_BYTES: Final = RESYNC_HOLD_BYTES // 16

# What a direction has.
NO_RUN: Final = 0
WAITS: Final = 1
SEARCHED: Final = 2


class Following(NamedTuple):
    """Ranges, some of which follow one in its connection.

    next_rows: by range the next one of its connection, -1 if none; held_bytes: what runs hold more
    if they take all up to it; before: what the ranges were when they came for the first time, none
    if they do now; sources: where bytes lie.
    """

    ranges: RangeColumns
    next_rows: Int64Array
    held_bytes: Int64Array
    before: Pieces
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray]


class Side(NamedTuple):
    """A direction of the connection, and its run.

    has: NO_RUN, WAITS or SEARCHED; no run either where any range may decide something. first, stop:
    protocols of which there may be frames; runs: the run as a search for each protocol's frames
    sees it; rule: how they are judged, by any protocol. records: TLS records that are looked for,
    see `first_bytes`; without cells if they are not.
    """

    has: int
    first: int
    stop: int
    runs: tuple[Searched, ...]
    rule: Rule
    records: Int64Array


class Gathered(NamedTuple):
    """order, row: of the last range that was taken; is_full: a run has no room for the next one."""

    order: int
    row: int
    is_full: bool


@inlined
def _append(following: Following, row: int, order: int, run: Searched) -> bool:
    """Add a range of DATA to a run; False if it has no room."""
    ranges, before, pieces = following.ranges, following.before, run.pieces
    size, piece = run.search[SIZE], run.search[PIECES]
    length = ranges.length[row]
    if size + length > len(run.data) or piece >= len(pieces.kind):
        return False
    source = following.sources[ranges.source[row]]
    at = ranges.offset[row]
    for index in range(length):
        run.data[size + index] = source[at + index]
    for index in range(length if len(run.marks) else 0):  # of one that is searched
        run.marks[size + index] = 0
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
    run.search[SIZE] += length
    run.search[PIECES] += 1
    ranges.kind[row] = GATHERED
    return True


@inlined
def is_worth_dropping(before: int, size: int) -> bool:
    """Whether the bytes before the chain of a run shall be dropped. size: of the run."""
    return 2 * before > max(size, DROPPED_BYTES)


@kernel
def waits_too_long(pieces: Pieces, size: int, ts_ns: int) -> bool:
    """Whether a run has waited for the other direction's as long, or with as much, as it may."""
    return size > MAX_WAIT_BYTES or ts_ns - pieces.ts_ns[0] > HOLD_NS


@inlined
def _search_on(side: Side, ts_ns: int) -> bool:
    """Go on with the searches of a run behind a new range; whether that may decide something."""
    is_due = is_live = False
    size = side.runs[side.first].search[SIZE]
    resume = size
    for protocol in range(side.first, side.stop):
        run = side.runs[protocol]
        run.search[SIZE] = size
        run.search[PIECES] = side.runs[side.first].search[PIECES]
        rule = Rule(
            side.rule.check, side.rule.prove, protocol, side.rule.direction, side.rule.limit, 0,
            side.rule.is_open, side.rule.skipped,
        )  # fmt: skip
        is_due |= is_believed(run, rule, find_chain(run, rule), ts_ns)
        is_live |= run.search[AT] >= 0
        resume = min(resume, run.search[RESUME])
    return is_due or not is_live or is_worth_dropping(resume, size)


@inlined
def _is_due(side: Side, ranges: RangeColumns, row: int) -> bool:
    """Whether something may be to decide with a range, the last one of a run."""
    run, ts_ns = side.runs[side.first], ranges.ts_ns[row]
    if side.has == WAITS:
        return bool(waits_too_long(run.pieces, run.search[SIZE], ts_ns))
    is_due = _search_on(side, ts_ns)
    if len(side.records) == 0:
        return is_due
    length = ranges.length[row]
    starts_packet = ranges.flags[row] & STARTS_PACKET != 0
    found = follow_records(
        side.records, run.data, run.search[SIZE] - length, length,
        ranges.stream_offset[row], starts_packet,
    )  # fmt: skip
    if is_due or found.is_tls:
        return True  # whoever decides looks for records in this range, too
    side.records[NEXT] = found.next
    side.records[IN_A_ROW] = found.in_a_row
    return False


@kernel
def gather(
    following: Following, row: int, order: int, sides: tuple[Side, Side], most_held: int
) -> Gathered:
    """Add what follows a range, which itself is taken, to the runs of its connection.

    Args:
        order: of the last range that came for the first time. sides: of the connection. most_held:
            ranges up to which runs would hold more, by `held_bytes`, wait for their turn.
    """
    ranges = following.ranges
    is_full = is_due = False
    while not is_due:
        index = following.next_rows[row]
        if index < 0 or ranges.kind[index] != DATA or following.held_bytes[index] > most_held:
            break
        side = sides[ranges.side[index]]
        if side.has == NO_RUN:
            break
        is_full = not _append(following, index, order + 1, side.runs[side.first])
        if is_full:
            break
        row = index
        order += len(following.before.kind) == 0
        is_due = _is_due(side, ranges, row)
    if is_due:
        ranges.kind[row] = DUE
    return Gathered(order, row, is_full)
