"""What was left behind while later ones of its kind were settled, row by row.

A broker answers the sends of a producer in order, and a client takes what was put in its queue in
order. One that is missing in between is no matter of the capture's end: it was dropped on its way,
or its answer was; a delivery may also be one that the application keeps.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.limits import NULL
from dissector.report.frame_rows import PacketMemory
from dissector.report.parts import (
    ANSWERED,
    LEFT_OUTCOMES,
    PASSED_DELIVERIES,
    PASSED_OUTCOMES,
    PASSED_OVER,
)
from dissector.report.rows import Rows, codes, nullable
from dissector.report.tallies import concat

MAX_PASSED: Final = 1 << 16  # rows that were passed over, and as many that still may be
DISCARDED: Final = "discarded"  # by the consumer, as damaged: left behind whatever comes later


class Kind(NamedTuple):
    """One kind of rows: frame is the column that orders those of the same owner.

    settled, left: outcomes; when, packet: columns of its table for time and packet of the frame.
    """

    owner: tuple[str, ...]
    frame: str
    settled: tuple[str, ...]
    left: tuple[str, ...]
    table: pa.Schema
    when: tuple[str, str]
    packet: str


SENDS: Final = Kind(
    ("connection_id", "producer_id", "incarnation"),
    "request_frame_no",
    ANSWERED,
    PASSED_OUTCOMES,
    PASSED_OVER,
    ("at_ns", "request_last_ns"),
    "request_packet",
)
DELIVERIES: Final = Kind(
    ("connection_id", "consumer_id", "incarnation"),
    "frame_no",
    ("acked",),
    LEFT_OUTCOMES,
    PASSED_DELIVERIES,
    ("at_us", "ts"),
    "packet",
)


class PassedOver:
    """Rows that were left behind, and the last row of each owner that was settled."""

    def __init__(self, packets: PacketMemory, kind: Kind = SENDS) -> None:
        self._packets = packets
        self._kind = kind
        self._settled: dict[tuple[Any, ...], int] = {}
        self._passed: list[pa.Table] = []
        # Rows come as they are settled or end, so hardly one of these is passed over later.
        self._later: list[tuple[pa.Table, list[tuple[Any, ...]]]] = []
        self._rows = 0
        self._later_rows = 0
        self.left_out = 0

    def add(self, rows: Rows) -> None:
        """Take in rows of `exchanges` or `deliveries`."""
        if self._kind is SENDS:
            rows = rows.where(rows.equals("kind", "publish") & rows.known("request_frame_no"))
        self._settle(rows.where(rows.equals("outcome", *self._kind.settled)))
        left = rows.where(rows.equals("outcome", *self._kind.left))
        if len(left) == 0:
            return
        owners, owner = self._owners(left)
        last = np.asarray([self._settled.get(each, NULL) for each in owners], np.int64)[owner]
        is_passed = left.numbers(self._kind.frame) < last
        is_passed |= left.equals("outcome", DISCARDED)
        chosen = np.flatnonzero(is_passed)
        room = MAX_PASSED - self._rows
        self.left_out += max(0, len(chosen) - room)
        self._keep(left, chosen[: max(0, room)], self._passed.append)
        self._rows += min(room, len(chosen))
        later = np.flatnonzero(~is_passed)[: max(0, MAX_PASSED - self._later_rows)]
        self._later_rows += len(later)
        whose = [owners[number] for number in owner[later].tolist()]
        self._keep(left, later, lambda table: self._later.append((table, whose)))

    def _owners(self, rows: Rows) -> tuple[list[tuple[Any, ...]], Int64Array]:
        """The distinct owners of rows, and the number of each row's."""
        code, first = codes(*(rows.column(name) for name in self._kind.owner))
        chosen = rows.take(first)
        keys = zip(*(chosen.numbers(name).tolist() for name in self._kind.owner), strict=True)
        return [(rows.capture, *key) for key in keys], code

    def _settle(self, rows: Rows) -> None:
        # A refusal overtakes receipts: only these say that what was sent before is settled.
        if len(rows) == 0:
            return
        owners, owner = self._owners(rows)
        last = np.full(len(owners), NULL, np.int64)
        np.maximum.at(last, owner, rows.numbers(self._kind.frame))
        for who, frame_no in zip(owners, last.tolist(), strict=True):
            self._settled[who] = max(self._settled.get(who, frame_no), frame_no)

    def _keep(
        self, rows: Rows, places: npt.NDArray[np.int64], put: Callable[[pa.Table], None]
    ) -> None:
        if len(places) == 0:
            return
        rows = rows.take(places)
        name, source = self._kind.when
        filled = {
            name: nullable(rows.numbers(source)),
            self._kind.packet: self._packets.last(rows, self._kind.frame),
        }
        put(rows.kept(self._kind.table, **filled))

    def table(self) -> pa.Table:
        """Those that a later one passed over."""
        found = list(self._passed)
        for table, owners in self._later:
            frames = table.column(self._kind.frame).to_pylist()
            passed = [frame_no < self._settled.get(who, frame_no)
                      for frame_no, who in zip(frames, owners, strict=True)]  # fmt: skip
            found.append(table.filter(pa.array(passed, pa.bool_())))
        return concat(found, self._kind.table)
