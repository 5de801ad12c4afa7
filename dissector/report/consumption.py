"""Consuming, row by row: deliveries, requests to deliver again, and the walk over permits."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.limits import NULL
from dissector.report import balance
from dissector.report.foremost import Foremost, foremost
from dissector.report.frame_rows import PacketMemory
from dissector.report.names import Names, legs_of
from dissector.report.numbers import NS_PER_US
from dissector.report.parts import CONSUMERS, MAX_EXAMPLES, REDELIVERED, REDELIVERED_ORDER, STALLS
from dissector.report.rows import Rows, codes, nullable
from dissector.report.sections.permit_utilization import CONFIRM_US, STALL_US
from dissector.report.tallies import (
    BALANCES,
    DELIVERIES,
    LAST_BITS,
    LAST_ZERO,
    PLACEHOLDERS,
    REDELIVER_REQUESTS,
    Accumulator,
    concat,
)
from dissector.report.time_cells import TimeCells

MAX_KEYS: Final = 1 << 19
MAX_CONSUMERS: Final = 1 << 18  # incarnations whose balance is followed
MAX_BALANCE_KEYS: Final = 1 << 17  # points of the balances, all consumers together
MAX_STALL_ROWS: Final = 1 << 17

_CONSUMER: Final = ("connection_id", "consumer_id", "incarnation")
_NAMED: Final = (*_CONSUMER, "topic", "subscription")
_EVENTS: Final = (
    ("grant", balance.GRANT),
    ("delivery", balance.DELIVERY),
    ("reset", balance.RESET),
)


class Deliveries:
    """Everything about redelivery that the report needs from rows of deliveries and acks."""

    def __init__(self, packets: PacketMemory) -> None:
        self._packets = packets
        self._deliveries = Accumulator(DELIVERIES, MAX_KEYS)
        self._requests = Accumulator(REDELIVER_REQUESTS, MAX_KEYS)
        self._placeholders = Accumulator(PLACEHOLDERS, MAX_KEYS)
        group = ("capture", "connection_id")
        self._examples = Foremost(REDELIVERED, group, REDELIVERED_ORDER, MAX_EXAMPLES)

    def add(self, rows: Rows) -> None:
        """Take in rows of `deliveries`."""
        if len(rows) == 0:
            return
        counts = rows.numbers("message_count")
        by_broker = rows.numbers("redelivery_count") > 0
        columns = rows.columns(
            *_NAMED, "subscription_type", "is_redelivered", "redelivery_cause", "outcome"
        )
        counted = {
            "deliveries": pa.array(np.ones(len(rows), np.int64)),
            "messages": nullable(counts),
            "counts_unknown": pa.array((counts == NULL).astype(np.int64)),
            "counted_by_broker": pa.array(by_broker.astype(np.int64)),
            "seen_before": pa.array((rows.numbers("previous_frame_no") != NULL).astype(np.int64)),
            "redelivery_count": rows.column("redelivery_count"),
        }
        self._deliveries.add({**columns, **counted})
        self._add_examples(rows.where(rows.flags("is_redelivered")))

    def _add_examples(self, again: Rows) -> None:
        """Keep the first redelivered rows of each connection (rows come as they close)."""
        if len(again) == 0:
            return
        at_us = nullable(again.numbers("ts"))
        table = again.kept(REDELIVERED, at_us=at_us, packet=pa.nulls(len(again)))
        table = table.append_column("place", pa.array(np.arange(len(again))))
        table = foremost(table, ("capture", "connection_id"), REDELIVERED_ORDER, MAX_EXAMPLES)
        rows = again.take(table.column("place").to_numpy())
        at_us = nullable(rows.numbers("ts"))
        packet = self._packets.last(rows, "frame_no")
        self._examples.add(rows.kept(REDELIVERED, at_us=at_us, packet=packet))

    def add_acks(self, rows: Rows) -> None:
        """Take in rows of `acks`: of them, the ids that shall be delivered again."""
        rows = rows.where(rows.equals("action", "redeliver"))
        if len(rows) == 0:
            return
        is_all = rows.numbers("ledger_id") == NULL
        self._requests.add(
            {
                **rows.columns(*_NAMED),
                "ids_requested": pa.array((~is_all).astype(np.int64)),
                "requests_for_all": pa.array(is_all.astype(np.int64)),
            }
        )

    def add_messages(self, rows: Rows) -> None:
        """Take in rows of `messages`: of them, delivered ones that a compaction took away."""
        rows = rows.where(rows.flags("is_compacted_out") & rows.equals("direction", "to_client"))
        if len(rows):
            ones = pa.array(np.ones(len(rows), np.int64))
            columns = rows.columns("connection_id", "topic")
            self._placeholders.add({**columns, "placeholders": ones})

    def tables(self) -> dict[str, pa.Table]:
        """The tallies and the examples."""
        return {
            "placeholders": self._placeholders.settle(),
            "deliveries": self._deliveries.settle(),
            "redeliver_requests": self._requests.settle(),
            "redelivered": self._examples.table(),
        }

    def limits(self) -> dict[str, int]:
        """Keys left out."""
        tallies = (self._deliveries, self._requests, self._placeholders)
        return {"summary_keys_limit": sum(tally.left_out for tally in tallies)}


def _last(matrix: Int64Array) -> pa.Array:
    """What tells the last balance of a point (see tallies.LAST_BITS)."""
    balance_there = np.clip(matrix[balance.AVAILABLE], -LAST_ZERO, LAST_ZERO - 1) + LAST_ZERO
    return pa.array((matrix[balance.FRAME_NO] << LAST_BITS) + balance_there)


class Permits:
    """The balance of every consumer incarnation, from rows of `permits` in order."""

    def __init__(self, packets: PacketMemory) -> None:
        self._packets = packets
        # Consumers whose closing frame may still come, and how often it was looked for.
        self._closings: list[tuple[Rows, int]] = []
        self._closed_us: dict[tuple[Any, ...], int] = {}
        self._slots: dict[tuple[Any, ...], int] = {}
        self._names: list[list[Any]] = []
        self._state = balance.new_state(64)
        self._stalls: list[Int64Array] = []
        self._stall_rows = 0
        self._left_out = 0
        self._balances: dict[str, TimeCells] = {}

    def add(self, rows: Rows) -> None:
        """Take in rows of `permits`, in the order in which they were written."""
        if len(rows) == 0:
            return
        events = np.full(len(rows), -1, np.int64)
        for name, number in _EVENTS:
            events[rows.equals("event", name)] = number
        at_us = rows.numbers("ts")
        slots = np.where(events < 0, -1, self._slots_of(rows))
        matrix = np.stack(
            (
                slots,
                events,
                rows.numbers("delta"),
                rows.numbers("available_after"),
                rows.numbers("unacked_after"),
                at_us,
                rows.numbers("frame_no"),
            )
        )
        self._walk(matrix)
        drawn = (events != balance.RESET) & (matrix[balance.AVAILABLE] != NULL)
        if drawn.any():
            shown = rows.where(drawn)
            columns = shown.columns(*_CONSUMER, "available_after")
            columns["last"] = _last(matrix[:, drawn])
            self._balances_of(rows.capture).add(columns, at_us[drawn] * NS_PER_US)

    def add_consumers(self, rows: Rows) -> None:
        """Take in rows of `consumers`: what is closed by a frame is observed until then."""
        rows = rows.where(rows.known("closed_frame_no"))
        if len(rows):
            self._closings.append((rows, 0))
            self.find_closings()

    def find_closings(self) -> None:
        """Look up when consumers closed, to be called when more frames were seen."""
        closings, self._closings = self._closings, []
        for rows, tries in closings:
            at_us = self._packets.times_us(rows, "closed_frame_no")
            keys = zip(*(rows.numbers(name).tolist() for name in _CONSUMER), strict=True)
            for key, closed_us in zip(keys, at_us.tolist(), strict=True):
                if closed_us != NULL:
                    self._closed_us[(rows.capture, *key)] = closed_us
            if tries == 0 and (at_us == NULL).any():
                self._closings.append((rows.where(at_us == NULL), 1))

    def _balances_of(self, capture: str) -> TimeCells:
        """The balances of a capture, in points of its own width; all captures share the bound."""
        if capture not in self._balances:
            used = sum(cells.rows for cells in self._balances.values())
            self._balances[capture] = TimeCells(BALANCES, max(0, MAX_BALANCE_KEYS - used))
        return self._balances[capture]

    def _walk(self, matrix: Int64Array) -> None:
        stalls = np.zeros((matrix.shape[1], balance.STALL_COLUMNS), np.int64)
        found = balance.walk(matrix, self._state, stalls, STALL_US, CONFIRM_US)
        self._keep(stalls[:found])

    def _keep(self, stalls: Int64Array) -> None:
        room = MAX_STALL_ROWS - self._stall_rows
        self._left_out += max(0, len(stalls) - room)
        if len(stalls) and room > 0:
            self._stalls.append(stalls[:room].copy())
            self._stall_rows += len(self._stalls[-1])

    def _slots_of(self, rows: Rows) -> Int64Array:
        """The state's row of each row's consumer; -1 beyond the bound."""
        columns = [rows.column(name) for name in _CONSUMER]
        names = ("topic", "subscription", "subscription_type")
        code, first = codes(*columns, *(rows.column(name) for name in names))
        chosen = rows.take(first)
        found = zip(*(chosen.numbers(name).tolist() for name in _CONSUMER), strict=True)
        labels = zip(*(chosen.column(name).to_pylist() for name in names), strict=True)
        slots = []
        for ids, label in zip(found, labels, strict=True):
            key = (rows.capture, *ids)
            slot = self._slots.get(key)
            if slot is None:
                slot = self._new_slot(key)
            if slot >= 0:
                known = self._names[slot]
                for place, text in enumerate(label):
                    known[place] = max(known[place] or "", text or "") or None
            slots.append(slot)
        return np.asarray(slots, np.int64)[code]

    def _new_slot(self, key: tuple[Any, ...]) -> int:
        if len(self._slots) >= MAX_CONSUMERS:
            self._left_out += 1
            return -1
        slot = len(self._slots)
        self._slots[key] = slot
        self._names.append([None, None, None])
        if slot == len(self._state):
            self._state = np.concatenate((self._state, balance.new_state(len(self._state))))
        return slot

    def tables(self, names: Names, steps: Mapping[str | None, int]) -> dict[str, pa.Table]:
        """End every consumer; consumers, stalls and balances over time.

        A consumer ends with the frame that closed it, else (also where that frame was forgotten
        before it was asked for) with its connection.

        steps: width of a capture's points, no finer than those of `steps` here.
        """
        self.find_closings()
        legs = legs_of(names, (key[:2] for key in self._slots), "last_ts_ns")
        ends = {place: leg["last_ts_ns"] for place, leg in legs.items()}
        state = self._state[: len(self._slots)].copy()
        ends_us = np.full(len(state), NULL, np.int64)
        for slot, key in enumerate(self._slots):
            last = ends.get(key[:2])
            if key in self._closed_us:
                ends_us[slot] = self._closed_us[key]
            elif last is not None:
                ends_us[slot] = last // NS_PER_US
        stalls = np.zeros((len(state), balance.STALL_COLUMNS), np.int64)
        found = balance.finish(state, ends_us, stalls, STALL_US)
        self._keep(stalls[:found])
        return {
            "consumers": self._consumers(state),
            "stalls": self._stall_table(),
            "balances": concat(
                [cells.table(steps[name]) for name, cells in self._balances.items()],
                BALANCES.schema(),
            ),
        }

    def steps(self) -> dict[str | None, int]:
        """The finest step that the balances of each capture still have."""
        return {name: cells.step for name, cells in self._balances.items()}

    def _identity(self, slots: Int64Array) -> list[pa.Array]:
        keys = list(self._slots)
        chosen = [keys[slot] for slot in slots.tolist()]
        captures = pa.array([key[0] for key in chosen], pa.string())
        ids = (np.asarray([key[n] for key in chosen], np.int64) for n in (1, 2, 3))
        return [captures, *(nullable(values) for values in ids)]

    def _consumers(self, state: Int64Array) -> pa.Table:
        names = [pa.array([row[n] for row in self._names], pa.string()) for n in range(3)]
        results = [nullable(state[:, n]) for n in range(len(balance.RESULTS))]
        made = dict(zip(balance.RESULTS, results, strict=True))
        identity = self._identity(np.arange(len(state)))
        arrays = [*identity, *names, *(made[name] for name in CONSUMERS.names[7:])]
        return pa.table(arrays, schema=CONSUMERS)

    def _stall_table(self) -> pa.Table:
        if not self._stalls:
            return STALLS.empty_table()
        stalls = np.concatenate(self._stalls)
        numbers = [nullable(np.ascontiguousarray(stalls[:, n])) for n in range(1, 5)]
        confirmed = pa.array(stalls[:, 5] == 1)
        return pa.table([*self._identity(stalls[:, 0]), *numbers, confirmed], schema=STALLS)

    def limits(self) -> dict[str, int]:
        """What was left out."""
        return {
            "summary_consumers_limit": self._left_out,
            "summary_keys_limit": sum(cells.left_out for cells in self._balances.values()),
        }
