"""Find the first frame again in a run of bytes whose beginning is not a known frame's start.

A header alone proves little: payloads may hold whole frames. A candidate is an offset with a strict
header; it is followed from frame end to frame end. Where an end that is known in sequence space
meets bytes that are no header, the candidate is contradicted, and so are all offsets that it has
visited: they lead to the same place. The lowest candidate that nothing contradicts is the chain,
and whoever holds the run decides how long it must stand before it is believed.

Bytes may be missing inside a run: a hole ends no chain whose next header lies behind it. A chain
whose next header lies in a hole is blind: nothing will confirm or contradict it any more.

The cost is linear in the bytes of a run, whatever they are: each offset is a candidate once, and
visited by one chain at most; sums over payloads have a budget.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel

# Results of a search.
NOTHING: Final = 0  # no candidate; bytes below RESUME can start no frame
LIVE: Final = 1  # a chain that runs to the end of what is there
BLIND: Final = 2  # a chain whose next header lies in a hole
_BROKEN: Final = 3

# Cells of a search. Offsets count from the run's first byte.
AT: Final = 0  # first byte of the chain, -1 none
CURSOR: Final = 1  # how far the chain is followed
TO_GO: Final = 2  # bytes from there to the end of the chain's last frame, holes included
HOLE: Final = 3  # first hole behind the cursor
FRAMES: Final = 4  # headers of the chain
PROOFS: Final = 5  # right checksums among them
LAST: Final = 6  # where the last header stands
TOTAL: Final = 7  # bytes of its frame
IS_HOLED: Final = 8  # bytes of that frame are missing
IS_OPEN: Final = 9  # its end has not been looked at yet
SECOND: Final = 10  # where the second frame starts, -1 not known
THIRD: Final = 11
RESUME: Final = 12  # offsets below it start no chain
RESUME_HOLE: Final = 13  # first hole behind it
SUMMED: Final = 14  # bytes whose checksum was computed
COMBED: Final = 15  # bytes of doubtful frames that were searched
STEPS: Final = 16  # headers looked at, for those who count the cost
SIZE: Final = 17  # bytes of the run, set before each call
HOLES: Final = 18  # and its holes
_CELLS: Final = 19

# What a header that a hole cuts off must show to be taken for one: both sizes, the command and the
# tag of its body.
HEADER_EVIDENCE: Final = 12
# Checksums are computed, and doubtful frames searched, over this many times the bytes of a run.
_BUDGET: Final = 4
_BUDGET_BYTES: Final = 1 << 16
# How strictly headers are judged: of a chain, and of the frame with which one may begin.
STRICT: Final = 1
STRICTEST: Final = 2
_VISITED: Final = 1
_COMBED_MARK: Final = 2


class Searched(NamedTuple):
    """A run as a search sees it.

    data: uint8[], its bytes; marks: uint8[], 0 behind what was searched; search: the cells; holes:
    int64[2, n], rising offsets of holes in data, and their lengths. search[SIZE] and
    search[HOLES] say how much of them is used.
    """

    data: ByteArray
    marks: ByteArray
    search: Int64Array
    holes: Int64Array


class Rule(NamedTuple):
    """How headers and frames are judged: callbacks and which of them, direction, longest frame.

    direction: 0 to_broker, 1 to_client, 2 unknown; limit: bytes; is_final: no byte will follow.
    """

    check: tuple  # type: ignore[type-arg]
    prove: tuple  # type: ignore[type-arg]
    protocol: int
    direction: int
    limit: int
    is_final: int


@inlined
def _judge(run: Searched, offset: int, end: int, rule: Rule, level: int) -> int:
    run.search[STEPS] += 1
    return int(rule.check[rule.protocol](run.data, offset, end, rule.direction, rule.limit, level))


def new_search() -> Int64Array:
    """The cells of a search that has not begun."""
    cells = np.zeros(_CELLS, np.int64)
    cells[AT] = -1
    return cells


@inlined
def _is_sound(run: Searched, rule: Rule) -> int:
    """The verdict on the chain's last frame, which is whole: 1 proven, 0 not known, -1 wrong."""
    search = run.search
    if search[SUMMED] + search[TOTAL] > _BUDGET * search[SIZE] + _BUDGET_BYTES:
        return 0
    search[SUMMED] += search[TOTAL]
    return int(rule.prove[rule.protocol](run.data, search[LAST], search[TOTAL]))


@kernel
def _holds_chain(run: Searched, rule: Rule) -> bool:
    """Whether the chain's last frame, whose sum is wrong, is a chain of proven frames inside.

    Then it is no frame: it began in a payload, and its end is a frame's end by chance.
    """
    search = run.search
    marks = run.marks
    start = search[LAST]
    end = start + search[TOTAL]
    if search[COMBED] + search[TOTAL] > _BUDGET * search[SIZE] + _BUDGET_BYTES:
        return False
    search[COMBED] += search[TOTAL]
    for offset in range(start + 1, end):
        position = offset
        proofs = 0
        while position < end and marks[position] == 0:
            total = _judge(run, position, end, rule, STRICT)
            if total <= 0 or total > end - position:
                break
            marks[position] = _COMBED_MARK
            if search[SUMMED] + total <= _BUDGET * search[SIZE] + _BUDGET_BYTES:
                search[SUMMED] += total
                proofs += rule.prove[rule.protocol](run.data, position, total) == 1
            position += total
        if position == end and proofs > 0:
            return True
    return False


@inlined
def _next_candidate(run: Searched, rule: Rule) -> bool:
    """Look for the next strict header; False if there is none yet."""
    search = run.search
    holes = run.holes
    marks = run.marks
    hole = search[RESUME_HOLE]
    count = search[HOLES]
    for offset in range(search[RESUME], search[SIZE]):
        while hole < count and holes[0, hole] <= offset:
            hole += 1
        if marks[offset] == _VISITED:
            continue
        end = holes[0, hole] if hole < count else search[SIZE]
        total = _judge(run, offset, end, rule, STRICTEST)
        if total < 0:
            continue
        if total == 0 and hole == count and rule.is_final == 0:
            search[RESUME] = offset
            search[RESUME_HOLE] = hole
            return False
        if total == 0 and end - offset < HEADER_EVIDENCE:
            continue
        search[RESUME] = offset
        search[RESUME_HOLE] = hole
        search[AT] = offset
        search[CURSOR] = offset
        search[TO_GO] = 0
        search[HOLE] = hole
        search[FRAMES] = 0
        search[PROOFS] = 0
        search[LAST] = offset
        search[IS_OPEN] = 0
        search[SECOND] = -1
        search[THIRD] = -1
        return True
    search[RESUME] = max(search[RESUME], search[SIZE])
    search[RESUME_HOLE] = hole
    return False


@inlined
def _reach_end(run: Searched) -> int:
    """Move the cursor on to the end of the chain's last frame; LIVE there or where bytes end."""
    search = run.search
    holes = run.holes
    count = search[HOLES]
    while search[TO_GO] > 0 and search[HOLE] < count:
        hole = search[HOLE]
        step = holes[0, hole] - search[CURSOR]
        if search[TO_GO] < step:
            break
        search[CURSOR] += step
        search[TO_GO] -= step
        if search[TO_GO] < holes[1, hole]:
            return BLIND
        search[TO_GO] -= holes[1, hole]
        search[IS_HOLED] = 1
        search[HOLE] = hole + 1
    step = min(search[TO_GO], search[SIZE] - search[CURSOR])
    search[CURSOR] += step
    search[TO_GO] -= step
    return LIVE


@inlined
def _follow(run: Searched, rule: Rule) -> int:
    """Follow the chain from where it stands to the end of the bytes."""
    search = run.search
    holes = run.holes
    marks = run.marks
    count = search[HOLES]
    while True:
        if _reach_end(run) == BLIND:
            return BLIND
        if search[TO_GO] > 0:
            return LIVE
        if search[IS_OPEN] == 1:
            search[IS_OPEN] = 0
            verdict = 0
            if search[IS_HOLED] == 0:
                verdict = _is_sound(run, rule)
            if verdict == 1:
                search[PROOFS] += 1
            elif verdict < 0 and _holds_chain(run, rule):
                return _BROKEN
            if search[FRAMES] == 1:
                search[SECOND] = search[CURSOR]
            elif search[FRAMES] == 2:
                search[THIRD] = search[CURSOR]
        at = search[CURSOR]
        hole = search[HOLE]
        if hole < count and holes[0, hole] == at:
            return BLIND
        if at >= search[SIZE]:
            return LIVE
        if marks[at] == _VISITED:
            return _BROKEN
        end = holes[0, hole] if hole < count else search[SIZE]
        total = _judge(run, at, end, rule, STRICT)
        if total < 0:
            return _BROKEN
        if total == 0:
            return BLIND if hole < count or rule.is_final == 1 else LIVE
        marks[at] = _VISITED
        search[FRAMES] += 1
        search[LAST] = at
        search[TOTAL] = total
        search[TO_GO] = total
        search[IS_HOLED] = 0
        search[IS_OPEN] = 1


@kernel
def find_chain(run: Searched, rule: Rule) -> int:
    """Go on with the search of a run; NOTHING, LIVE or BLIND."""
    search = run.search
    while True:
        if search[AT] < 0 and not _next_candidate(run, rule):
            return NOTHING
        status = _follow(run, rule)
        if status != _BROKEN:
            return status
        search[RESUME] = search[AT] + 1
        search[AT] = -1
