"""Other copies of frames whose checksum does not match: the same entry, sent or delivered again.

An entry keeps its checksum from SEND to MESSAGE and over every repetition, so a copy is a publish
with the same sequence id, or a publish or delivery of the same ledger and entry, whose checksum is
the stored or the computed one. Publishes and deliveries seen last are remembered; what is forgotten
is looked through once more for checksums that were wanted by then.
"""

from collections import deque
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.limits import NULL
from dissector.report.parts import MISMATCHES
from dissector.report.rows import Rows

MAX_REMEMBERED: Final = 1 << 18  # publishes and deliveries
MAX_KEPT: Final = 1 << 16  # copies found among those that are forgotten
_PUBLISH: Final = ("crc32c_stored", "sequence_id", "ledger_id", "entry_id", "request_frame_no")
_DELIVERY: Final = ("crc32c_stored", "frame_no", "ledger_id", "entry_id", "frame_no")
_CRC, _SEQUENCE, _LEDGER, _ENTRY, _FRAME, _IS_SEND = range(6)


class Copies:
    """Publishes and deliveries by their checksum."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[str, Int64Array]] = deque()
        self._rows = 0
        self._wanted: set[int] = set()
        self._kept: list[tuple[str, Int64Array]] = []
        self._kept_rows = 0
        self.left_out = 0

    def add_frames(self, rows: Rows) -> None:
        """Take in rows of `frames`: the checksums of those that do not match."""
        rows = rows.where(rows.equals("checksum", "mismatch"))
        for name in ("crc32c_stored", "crc32c_computed"):
            self._wanted.update(rows.numbers(name).tolist())

    def add_publishes(self, rows: Rows) -> None:
        """Take in rows of `exchanges`."""
        self._add(rows.where(rows.equals("kind", "publish")), _PUBLISH, 1)

    def add_deliveries(self, rows: Rows) -> None:
        """Take in rows of `deliveries` whose checksum matches."""
        self._add(rows.where(rows.equals("checksum", "ok")), _DELIVERY, 0)

    def _add(self, rows: Rows, names: tuple[str, ...], is_send: int) -> None:
        rows = rows.where(rows.known("crc32c_stored") & rows.known(names[_FRAME]))
        if len(rows) == 0:
            return
        columns = [rows.numbers(name) for name in names]
        block = np.stack((*columns, np.full(len(rows), is_send, np.int64)))
        self._blocks.append((rows.capture, block))
        self._rows += len(rows)
        while self._rows > MAX_REMEMBERED and len(self._blocks) > 1:
            self._forget(*self._blocks.popleft())

    def _forget(self, capture: str, block: Int64Array) -> None:
        self._rows -= block.shape[1]
        found = self._of_interest(block)
        room = MAX_KEPT - self._kept_rows
        self.left_out += max(0, found.shape[1] - room)
        if found.shape[1] and room > 0:
            self._kept.append((capture, found[:, :room]))
            self._kept_rows += min(found.shape[1], room)

    def _of_interest(self, block: Int64Array) -> Int64Array:
        wanted = np.fromiter(self._wanted, np.int64, len(self._wanted))
        return block[:, np.isin(block[_CRC], wanted)]

    def filled(self, mismatches: pa.Table) -> pa.Table:
        """The rows of MISMATCHES with the first copy of each: copy_frame_no and copy_crc32c."""
        if mismatches.num_rows == 0:
            return mismatches
        copies: dict[tuple[str, int], list[list[int]]] = {}
        recent = [(capture, self._of_interest(block)) for capture, block in self._blocks]
        for capture, block in (*self._kept, *recent):
            for row in block.T.tolist():
                copies.setdefault((capture, row[_CRC]), []).append(row)
        rows = mismatches.to_pylist()
        bad = {(row["capture"], row["frame_no"]) for row in rows}
        for row in rows:
            found = []
            for crc in {row["crc32c_stored"], row["crc32c_computed"]}:
                for copy in copies.get((row["capture"], crc), []):
                    is_bad = (row["capture"], copy[_FRAME]) in bad
                    if not is_bad and _is_copy(row, copy):
                        found.append((copy[_FRAME], copy[_CRC]))
            if found:
                row["copy_frame_no"], row["copy_crc32c"] = min(found)
        return pa.Table.from_pylist(rows, schema=MISMATCHES)


def _is_copy(row: dict[str, Any], copy: list[int]) -> bool:
    """Whether a publish or delivery carries the entry of a mismatch."""
    if row["command"] == "SEND":
        return bool(copy[_IS_SEND]) and row["sequence_id"] == copy[_SEQUENCE]
    place = (row["ledger_id"], row["entry_id"])
    return NULL not in place and None not in place and place == (copy[_LEDGER], copy[_ENTRY])
