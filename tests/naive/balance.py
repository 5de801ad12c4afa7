"""The permit balance of consumers over time: one forward walk over the rows of `permits`.

State of one consumer incarnation, moved by its rows in order:
- inactive until its first grant above zero, and again from a reset on; active while its balance is
  known. Only active time is observed: it counts as occupied by (first grant - balance, at least 0)
  permits, and as exhausted while the balance is 0 or less.
- a stall begins when the balance of an active consumer falls to 0 or less, and ends with the grant
  that lifts it above 0. The next delivery decides whether it is confirmed: soon after the grant
  (CONFIRM_US) messages must have waited for it. Another stall before it leaves it unconfirmed.
- silence begins with a balance above 0 that no delivery follows, and ends with the next delivery.
Times are microseconds; a row that is older than the one before it moves no time. To this walk are
held the queries over a lake (`dissector/queries/permits.sql`) and, for what it needs, the tap's own
(`dissector/tap/permit_walk.py`).
"""

from typing import Final

import numpy as np

from dissector.blocks import Int64Array
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
UNACKED: Final = 4
AT_US: Final = 5
FRAME_NO: Final = 6
INPUTS: Final = 7

# Columns of the state int64[consumers, STATES]; the first ones are results.
RESULTS: Final = (
    "grants",
    "granted",
    "deliveries",
    "delivered",
    "known_rows",
    "unknown_rows",
    "known_granted",
    "known_delivered",
    "start_balance",
    "first_grant",
    "available_min",
    "available_max",
    "unacked_max",
    "observed_us",
    "occupied",
    "exhausted_us",
    "open_stall_us",
    "quiets",
    "quiet_us",
    "quiet_max_us",
    "open_stall_frame",
    "open_stall_start_us",
)
GRANTS: Final = 0
GRANTED: Final = 1
DELIVERIES: Final = 2
DELIVERED: Final = 3
KNOWN_ROWS: Final = 4
UNKNOWN_ROWS: Final = 5
KNOWN_GRANTED: Final = 6
KNOWN_DELIVERED: Final = 7
START_BALANCE: Final = 8
FIRST_GRANT: Final = 9
AVAILABLE_MIN: Final = 10
AVAILABLE_MAX: Final = 11
UNACKED_MAX: Final = 12
OBSERVED_US: Final = 13
OCCUPIED: Final = 14
EXHAUSTED_US: Final = 15
OPEN_STALL_US: Final = 16
QUIETS: Final = 17
QUIET_US: Final = 18
QUIET_MAX_US: Final = 19
OPEN_STALL_FRAME: Final = 20
OPEN_STALL_START_US: Final = 21
IS_STARTED: Final = 22
IS_ACTIVE: Final = 23
BALANCE: Final = 24
LAST_US: Final = 25
STALL_START_US: Final = 26
STALL_START_FRAME: Final = 27
QUIET_START_US: Final = 28
ENDED_START_US: Final = 29  # a stall that a grant ended, until the next delivery judges it
ENDED_START_FRAME: Final = 30
ENDED_US: Final = 31
ENDED_FRAME: Final = 32
STATES: Final = 33

# Columns of the stalls int64[rows, STALL_COLUMNS].
STALL_COLUMNS: Final = 6  # slot, start frame, end frame, start us, duration us, confirmed


def new_state(consumers: int) -> Int64Array:
    """The state of consumers of which nothing was seen yet."""
    state = np.zeros((consumers, STATES), np.int64)
    for column in (AVAILABLE_MIN, AVAILABLE_MAX, STALL_START_US, QUIET_START_US, ENDED_US):
        state[:, column] = NULL
    for column in (UNACKED_MAX, OPEN_STALL_FRAME, OPEN_STALL_START_US):
        state[:, column] = NULL
    return state


def _count(one: Int64Array, event: int, delta: int, available: int, unacked: int) -> None:
    """Sums that need no time: grants, deliveries, extremes. Writes `one`, a row of the state."""
    if event == RESET:
        return
    if unacked != NULL and (one[UNACKED_MAX] == NULL or unacked > one[UNACKED_MAX]):
        one[UNACKED_MAX] = unacked
    if available == NULL:
        one[UNKNOWN_ROWS] += 1
    else:
        if one[KNOWN_ROWS] == 0:
            one[START_BALANCE] = available - delta
        one[KNOWN_ROWS] += 1
        if one[AVAILABLE_MIN] == NULL or available < one[AVAILABLE_MIN]:
            one[AVAILABLE_MIN] = available
        if one[AVAILABLE_MAX] == NULL or available > one[AVAILABLE_MAX]:
            one[AVAILABLE_MAX] = available
    if event == GRANT:
        one[GRANTS] += 1
        one[GRANTED] += delta
        if available != NULL:
            one[KNOWN_GRANTED] += delta
        if one[FIRST_GRANT] == 0 and delta > 0:
            one[FIRST_GRANT] = delta
    else:
        one[DELIVERIES] += 1
        one[DELIVERED] -= delta
        if available != NULL:
            one[KNOWN_DELIVERED] -= delta


def _pass_time(one: Int64Array, at_us: int) -> None:
    """Let the time since the last row count under the balance it had."""
    if one[IS_ACTIVE] == 1 and at_us > one[LAST_US]:
        passed = at_us - one[LAST_US]
        one[OBSERVED_US] += passed
        if one[FIRST_GRANT] > one[BALANCE]:
            one[OCCUPIED] += (one[FIRST_GRANT] - one[BALANCE]) * passed
        if one[BALANCE] <= 0:
            one[EXHAUSTED_US] += passed
    one[LAST_US] = at_us


def _end_silence(one: Int64Array, at_us: int, long_us: int) -> None:
    """Close a silence, and count it if it was long."""
    if one[QUIET_START_US] == NULL:
        return
    passed = at_us - one[QUIET_START_US]
    one[QUIET_START_US] = NULL
    if passed >= long_us:
        one[QUIETS] += 1
        one[QUIET_US] += passed
        one[QUIET_MAX_US] = max(one[QUIET_MAX_US], passed)


def _judge_stall(one: Int64Array, stalls: Int64Array, row: int, slot: int, confirmed: int) -> int:
    """Write the stall that waits for its verdict; returns the rows written to `stalls` so far."""
    if one[ENDED_US] == NULL:
        return row
    stalls[row, 0] = slot
    stalls[row, 1] = one[ENDED_START_FRAME]
    stalls[row, 2] = one[ENDED_FRAME]
    stalls[row, 3] = one[ENDED_START_US]
    stalls[row, 4] = one[ENDED_US] - one[ENDED_START_US]
    stalls[row, 5] = confirmed
    one[ENDED_US] = NULL
    return row + 1


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
        _pass_time(one, at_us)
        _count(one, event, 0 if delta == NULL else delta, available, rows[UNACKED, row])
        if event != GRANT and one[ENDED_US] != NULL:
            is_soon = event == DELIVERY and at_us - one[ENDED_US] <= confirm_us
            found = _judge_stall(one, stalls, found, slot, 1 if is_soon else 0)
        if event == RESET:
            one[IS_STARTED] = 0
        elif event == GRANT and delta != NULL and delta > 0:
            one[IS_STARTED] = 1
        is_active = one[IS_STARTED] == 1 and available != NULL and event != RESET
        if one[QUIET_START_US] != NULL and (event != GRANT or not is_active or available <= 0):
            _end_silence(one, at_us, long_us)
        if is_active and available > 0 and one[QUIET_START_US] == NULL:
            one[QUIET_START_US] = at_us
        if one[STALL_START_US] != NULL:
            if not is_active or available > 0:
                if is_active and event == GRANT and at_us - one[STALL_START_US] >= long_us:
                    one[ENDED_START_US] = one[STALL_START_US]
                    one[ENDED_START_FRAME] = one[STALL_START_FRAME]
                    one[ENDED_US] = at_us
                    one[ENDED_FRAME] = rows[FRAME_NO, row]
                one[STALL_START_US] = NULL
        elif is_active and available <= 0:
            found = _judge_stall(one, stalls, found, slot, 0)
            one[STALL_START_US] = at_us
            one[STALL_START_FRAME] = rows[FRAME_NO, row]
        one[IS_ACTIVE] = 1 if is_active else 0
        one[BALANCE] = available if is_active else 0
    return found


def finish(state: Int64Array, ends_us: Int64Array, stalls: Int64Array, long_us: int) -> int:
    """End every consumer's time: at ends_us int64[consumers], NULL = with its last row.

    Returns:
        The number of stalls written: those whose verdict never came.
    """
    found = 0
    for slot in range(state.shape[0]):
        one = state[slot]
        end_us = max(ends_us[slot], one[LAST_US])
        _pass_time(one, end_us)
        found = _judge_stall(one, stalls, found, slot, 0)
        _end_silence(one, end_us, long_us)
        if one[STALL_START_US] != NULL and end_us - one[STALL_START_US] >= long_us:
            one[OPEN_STALL_US] = end_us - one[STALL_START_US]
            one[OPEN_STALL_FRAME] = one[STALL_START_FRAME]
            one[OPEN_STALL_START_US] = one[STALL_START_US]
        one[IS_ACTIVE] = 0
    return found
