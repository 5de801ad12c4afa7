"""The permit balance of consumers while rows of `permits` come: time without permits, and stalls.

State of one consumer incarnation, moved by its rows in order:
- inactive until its first grant above zero, and again from a reset on; active while its balance is
  known. It is exhausted while it is active and the balance is 0 or less.
- a stall begins when the balance of an active consumer falls to 0 or less, and ends with the grant
  that lifts it above 0. The next delivery decides whether it is confirmed: soon after the grant
  messages must have waited for it. Another stall before it leaves it unconfirmed.
Times are microseconds; a row that is older than the one before it moves no time.
`dissector/queries/permits.sql` says the same of a lake; tests hold both to one plain walk.
"""

from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.limits import NULL

# Events of a permits row.
GRANT: Final = 0
DELIVERY: Final = 1
RESET: Final = 2

# Columns of the input matrix int64[INPUTS, rows].
SLOT: Final = 0  # which row of the state; negative: the row is left out
EVENT: Final = 1
DELTA: Final = 2
AVAILABLE: Final = 3  # NULL while the baseline is unknown
AT_US: Final = 4
FRAME_NO: Final = 5
INPUTS: Final = 6

# Columns of the state int64[consumers, STATES].
EXHAUSTED_US: Final = 0
IS_STARTED: Final = 1
IS_ACTIVE: Final = 2
BALANCE: Final = 3
LAST_US: Final = 4
STALL_START_US: Final = 5
ENDED_START_US: Final = 6  # a stall that a grant ended, until the next delivery judges it
ENDED_US: Final = 7
ENDED_FRAME: Final = 8
STATES: Final = 9

# Columns of the stalls int64[rows, STALL_COLUMNS].
STALL_COLUMNS: Final = 5  # slot, end frame, start us, duration us, confirmed


def new_state(consumers: int) -> Int64Array:
    """The state of consumers of which nothing was seen yet."""
    state = np.zeros((consumers, STATES), np.int64)
    state[:, (STALL_START_US, ENDED_US)] = NULL
    return state


@kernel
def _judge_stall(one: Int64Array, stalls: Int64Array, row: int, slot: int, confirmed: int) -> int:
    """Write the stall that waits for its verdict; returns the rows written to `stalls` so far."""
    if one[ENDED_US] == NULL:
        return row
    stalls[row, 0] = slot
    stalls[row, 1] = one[ENDED_FRAME]
    stalls[row, 2] = one[ENDED_START_US]
    stalls[row, 3] = one[ENDED_US] - one[ENDED_START_US]
    stalls[row, 4] = confirmed
    one[ENDED_US] = NULL
    return row + 1


@kernel
def walk(
    rows: Int64Array, state: Int64Array, stalls: Int64Array, long_us: int, confirm_us: int
) -> int:
    """Walk rows in order.

    Args:
        rows: int64[INPUTS, rows].
        state: int64[consumers, STATES], written.
        stalls: int64[at least rows, STALL_COLUMNS], written.
        long_us, confirm_us: what is a stall, and what confirms one.

    Returns:
        The number of stalls written.
    """
    found = 0
    for row in range(rows.shape[1]):
        slot = rows[SLOT, row]
        if slot < 0:
            continue
        one = state[slot]
        event = rows[EVENT, row]
        delta = rows[DELTA, row]
        available = rows[AVAILABLE, row]
        at_us = rows[AT_US, row]
        if one[IS_ACTIVE] == 1 and one[BALANCE] <= 0:
            one[EXHAUSTED_US] += max(0, at_us - one[LAST_US])
        one[LAST_US] = at_us
        if event != GRANT and one[ENDED_US] != NULL:
            is_soon = event == DELIVERY and at_us - one[ENDED_US] <= confirm_us
            found = _judge_stall(one, stalls, found, slot, 1 if is_soon else 0)
        if event == RESET:
            one[IS_STARTED] = 0
        elif event == GRANT and delta != NULL and delta > 0:
            one[IS_STARTED] = 1
        is_active = one[IS_STARTED] == 1 and available != NULL and event != RESET
        if one[STALL_START_US] != NULL:
            if not is_active or available > 0:
                if is_active and event == GRANT and at_us - one[STALL_START_US] >= long_us:
                    one[ENDED_START_US] = one[STALL_START_US]
                    one[ENDED_US] = at_us
                    one[ENDED_FRAME] = rows[FRAME_NO, row]
                one[STALL_START_US] = NULL
        elif is_active and available <= 0:
            found = _judge_stall(one, stalls, found, slot, 0)
            one[STALL_START_US] = at_us
        one[IS_ACTIVE] = 1 if is_active else 0
        one[BALANCE] = available if is_active else 0
    return found


@kernel
def finish(state: Int64Array, stalls: Int64Array) -> int:
    """Write the stalls whose verdict never came; returns how many.

    Args:
        stalls: int64[at least consumers, STALL_COLUMNS], written.
    """
    found = 0
    for slot in range(state.shape[0]):
        found = _judge_stall(state[slot], stalls, found, slot, 0)
    return found
