"""Permit balances of consumers while they change, summed by subscription."""

from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import Column, Int64Array, TableBlock
from dissector.limits import MAX_FOLLOWED_CONSUMERS, MAX_NEW_STALLS, MAX_SERIES, NULL
from dissector.report.sections.permit_utilization import CONFIRM_US, STALL_US
from dissector.tap import permit_walk
from dissector.tap.grouping import group_rows
from dissector.tap.series import UNKNOWN, Counts, Groups, Key, column

_EVENTS: Final = {
    "grant": permit_walk.GRANT,
    "delivery": permit_walk.DELIVERY,
    "reset": permit_walk.RESET,
}
_IDENTITY: Final = ("connection_id", "consumer_id", "incarnation")
_NAMES: Final = ("topic", "subscription")
_NS_PER_US: Final = 1000


class Stall(NamedTuple):
    """A consumer had no permits for long: its place and time."""

    connection_id: int
    consumer_id: int
    end_frame_no: int
    start_us: int
    duration_us: int


class Balances:
    """Follows each consumer incarnation from its first row in `permits` to its row in `consumers`.

    granted, delivered, stalls: since the start, by topic and subscription (stalls by `confirmed`,
    too); left_out: consumers that were not followed.
    """

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self.granted = Counts(_NAMES, max_series)
        self.delivered = Counts(_NAMES, max_series)
        self.stalls = Counts((*_NAMES, "confirmed"), max_series)
        self.left_out = 0
        self._exhausted_us = Counts(_NAMES, max_series)
        self._slots: dict[tuple[int, ...], int] = {}
        self._free: list[int] = []
        self._closed: set[tuple[int, ...]] = set()
        self._labels: list[Key] = []
        self._consumers: list[tuple[int, ...]] = []
        self._new: list[Stall] = []
        self._state = permit_walk.new_state(64)

    def add(self, block: TableBlock) -> None:
        """Take in rows of `permits`, in the order in which they were written."""
        groups = Groups(block, (*_NAMES, "event"))
        delta = column(block, "delta")
        sums = groups.sums(delta)
        for counts, event, sign in ((self.granted, "grant", 1), (self.delivered, "delivery", -1)):
            counts.add_groups(
                groups, _NAMES, [sign * each for each in sums], groups.where("event", (event,))
            )
        matrix = np.stack(
            (
                self._slots_of(block, groups),
                _events(block.columns["event"]),
                delta,
                column(block, "available_after"),
                column(block, "ts") // _NS_PER_US,
                column(block, "frame_no"),
            )
        )
        stalls = np.zeros((block.rows, permit_walk.STALL_COLUMNS), np.int64)
        found = permit_walk.walk(matrix, self._state, stalls, STALL_US, CONFIRM_US)
        self._count_stalls(stalls[:found])

    def close(self, block: TableBlock) -> None:
        """Consumers whose incarnation is over, rows of `consumers`; rows of `permits` of the same
        frames may still come."""
        columns = (column(block, name).tolist() for name in _IDENTITY)
        self._closed.update(zip(*columns, strict=True))

    def forget(self) -> None:
        """All rows of consumers that are closed have come: their slots are free again."""
        slots = [self._slots.pop(key, -1) for key in sorted(self._closed)]
        self._closed.clear()
        slots = [slot for slot in slots if slot >= 0]
        if not slots:
            return
        state = self._state[slots].copy()
        stalls = np.zeros((len(slots), permit_walk.STALL_COLUMNS), np.int64)
        found = permit_walk.finish(state, stalls)
        stalls[:found, 0] = np.array(slots, np.int64)[stalls[:found, 0]]
        self._count_stalls(stalls[:found])
        exhausted = state[:, permit_walk.EXHAUSTED_US].tolist()
        for slot, exhausted_us in zip(slots, exhausted, strict=True):
            self._exhausted_us.add(self._labels[slot], exhausted_us)
            self._state[slot] = permit_walk.new_state(1)[0]
            self._free.append(slot)

    def now(self, now_us: int) -> dict[str, dict[Key, int]]:
        """What holds at this moment of capture time, by topic and subscription.

        Returns:
            available: permits of consumers whose balance is known; consumers: how many those are;
            exhausted_us: time without permits since the start; stalled: consumers that have waited
            for permits as long as makes a stall; empty: consumers without permits, however short.
        """
        found: dict[str, dict[Key, int]] = {
            "available": {}, "consumers": {}, "stalled": {}, "empty": {},
            "exhausted_us": dict(self._exhausted_us.values),
        }  # fmt: skip
        for consumer, slot in self._slots.items():
            one = self._state[slot]
            key = self._labels[slot]
            is_active = int(one[permit_walk.IS_ACTIVE]) == 1 and consumer not in self._closed
            exhausted = int(one[permit_walk.EXHAUSTED_US])
            if is_active:
                _add(found["consumers"], key, 1)
                _add(found["available"], key, int(one[permit_walk.BALANCE]))
                _add(found["empty"], key, int(one[permit_walk.BALANCE] <= 0))
                if one[permit_walk.BALANCE] <= 0:
                    exhausted += max(0, now_us - int(one[permit_walk.LAST_US]))
            start = int(one[permit_walk.STALL_START_US])
            is_stalled = is_active and start != NULL and now_us - start >= STALL_US
            _add(found["stalled"], key, int(is_stalled))
            _add(found["exhausted_us"], key, exhausted)
        return found

    def _count_stalls(self, stalls: Int64Array) -> None:
        for slot, end_frame, start_us, duration_us, confirmed in stalls.tolist():
            self.stalls.add((*self._labels[slot], "yes" if confirmed else "no"), 1)
            if len(self._new) < MAX_NEW_STALLS:
                connection, consumer = self._consumers[slot]
                self._new.append(Stall(connection, consumer, end_frame, start_us, duration_us))

    def drain_stalls(self) -> list[Stall]:
        """Stalls that were found since the last call, the first MAX_NEW_STALLS of them."""
        found, self._new = self._new, []
        return found

    def _slots_of(self, block: TableBlock, groups: Groups) -> Int64Array:
        """The state's row of each row's consumer; -1 beyond the bound."""
        keys = groups.keys(_NAMES)
        identity = [column(block, name) for name in _IDENTITY]
        first, consumers = group_rows(identity)
        slots = np.empty(len(first), np.int64)
        unique = zip(*(column[first].tolist() for column in identity), strict=True)
        of_first = groups.of_row[first].tolist()
        for number, (each, group) in enumerate(zip(unique, of_first, strict=True)):
            slots[number] = self._slot_of(each, keys[group])
        return slots[consumers]

    def _slot_of(self, consumer: tuple[int, ...], key: Key) -> int:
        slot = self._slots.get(consumer)
        if slot is None:
            if len(self._slots) >= MAX_FOLLOWED_CONSUMERS:
                self.left_out += 1
                return -1
            slot = self._free.pop() if self._free else len(self._labels)
            self._slots[consumer] = slot
            if slot == len(self._labels):
                self._labels.append(key)
                self._consumers.append((0, 0))
            if slot == len(self._state):
                self._state = np.concatenate((self._state, permit_walk.new_state(len(self._state))))
            self._labels[slot] = self.granted.key(key)
            self._consumers[slot] = consumer[:2]
        elif UNKNOWN in self._labels[slot] and UNKNOWN not in key:
            self._labels[slot] = self.granted.key(key)  # names learnt late
        return slot


def _add(sums: dict[Key, int], key: Key, count: int) -> None:
    sums[key] = sums.get(key, 0) + count


def _events(values: Column) -> Int64Array:
    codes: Any = values
    table = np.array([_EVENTS[str(name)] for name in codes.names], np.int64)
    found: Int64Array = table[codes.codes]
    return found
