"""Sends without an answer although later ones of the same producer got theirs, row by row.

A broker answers the sends of a producer in order. One that is missing in between is no matter of
the capture's end: it was dropped on its way, or its answer was.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.limits import NULL
from dissector.report.frame_rows import PacketMemory
from dissector.report.parts import ANSWERED, PASSED_OUTCOMES, PASSED_OVER
from dissector.report.rows import Rows, codes, nullable
from dissector.report.tallies import concat

MAX_WAITING: Final = 1 << 16  # unanswered sends
_PRODUCER: Final = ("connection_id", "producer_id", "incarnation")


class PassedOver:
    """Unanswered sends, and the last send of each producer that was answered."""

    def __init__(self, packets: PacketMemory) -> None:
        self._packets = packets
        self._answered: dict[tuple[Any, ...], int] = {}
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self.left_out = 0

    def add(self, rows: Rows) -> None:
        """Take in rows of `exchanges`."""
        rows = rows.where(rows.equals("kind", "publish") & rows.known("request_frame_no"))
        # A refusal overtakes receipts: only receipts say that what was sent before is settled.
        answered = rows.where(rows.equals("outcome", *ANSWERED))
        if len(answered):
            code, first = codes(*(answered.column(name) for name in _PRODUCER))
            last = np.full(len(first), NULL, np.int64)
            np.maximum.at(last, code, answered.numbers("request_frame_no"))
            chosen = answered.take(first)
            keys = zip(*(chosen.numbers(name).tolist() for name in _PRODUCER), strict=True)
            for key, frame_no in zip(keys, last.tolist(), strict=True):
                who = (rows.capture, *key)
                self._answered[who] = max(self._answered.get(who, frame_no), frame_no)
        waiting = rows.where(rows.equals("outcome", *PASSED_OUTCOMES))
        room = MAX_WAITING - self._rows
        self.left_out += max(0, len(waiting) - room)
        waiting = waiting.take(np.arange(min(room, len(waiting)), dtype=np.int64))
        if len(waiting):
            at_ns = nullable(waiting.numbers("request_last_ns"))
            packet = self._packets.last(waiting, "request_frame_no")
            kept = waiting.kept(PASSED_OVER, at_ns=at_ns, request_packet=packet)
            self._waiting.append(kept)
            self._rows += len(waiting)

    def table(self) -> pa.Table:
        """Those that a later answer passed over (PASSED_OVER)."""
        table = concat(self._waiting, PASSED_OVER)
        names = ("capture", *_PRODUCER, "request_frame_no")
        columns = [
            pa.array([NULL if each is None else each for each in table.column(name).to_pylist()])
            for name in names
        ]
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        passed = [row[-1] < self._answered.get(row[:-1], row[-1]) for row in rows]
        return table.filter(pa.array(passed, pa.bool_()))
