"""Exchanges, row by row: the answers that refuse something, and the slowest of each connection."""

from typing import Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.limits import NULL
from dissector.report.foremost import Foremost, ranks
from dissector.report.frame_rows import PacketMemory
from dissector.report.parts import ERRORS, MAX_SLOW, SLOW, SLOW_ORDER
from dissector.report.rows import Rows, codes, nullable
from dissector.report.sections.slowest import LISTS
from dissector.report.tallies import concat

MAX_ERRORS: Final = 1 << 17  # answers that refuse something
MAX_ERROR_BYTES: Final = 32 << 20  # of their texts; then no more of them are kept


class Errors:
    """Answers that refuse something, one row each."""

    def __init__(self, packets: PacketMemory) -> None:
        self._packets = packets
        self._found: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0
        self._left_out = 0

    def add(self, rows: Rows) -> None:
        """Take in rows of `exchanges`."""
        at_ns = rows.numbers("response_last_ns")
        is_error = (rows.known("error_code") | rows.equals("outcome", "error")) & (at_ns != NULL)
        if not is_error.any():
            return
        room = MAX_ERRORS - self._rows if self._bytes < MAX_ERROR_BYTES else 0
        places = np.flatnonzero(is_error)
        self._left_out += max(0, len(places) - room)
        rows = rows.take(places[:room])
        at = nullable(rows.numbers("response_last_ns"))
        packet = self._packets.last(rows, "response_frame_no")
        kept = rows.kept(ERRORS, at_ns=at, packet=packet)
        self._found.append(kept)
        self._rows += len(rows)
        self._bytes += kept.column("error_text").nbytes

    def table(self) -> pa.Table:
        """All of them."""
        return concat(self._found, ERRORS)

    def limits(self) -> dict[str, int]:
        """What was left out."""
        return {"summary_errors_limit": self._left_out}


class Slowest:
    """The slowest exchanges of each connection: which connections count is known at the end."""

    def __init__(self, packets: PacketMemory) -> None:
        self._packets = packets
        self._found = {
            name: Foremost(SLOW, ("capture", "connection_id"), SLOW_ORDER, MAX_SLOW)
            for name in LISTS
        }

    def add(self, rows: Rows) -> None:
        """Take in rows of `exchanges`."""
        is_refused = rows.equals("kind", "publish") & rows.equals("outcome", "error")
        is_timed = rows.known("latency_ns") & ~is_refused
        for name, kinds in LISTS.items():
            chosen = rows.where(rows.equals("kind", *kinds) & is_timed)
            if len(chosen) == 0:
                continue
            chosen = chosen.take(_slowest(chosen))
            request = self._packets.last(chosen, "request_frame_no")
            response = self._packets.last(chosen, "response_frame_no")
            self._found[name].add(
                chosen.kept(SLOW, request_packet=request, response_packet=response)
            )

    def table(self) -> pa.Table:
        """The slowest of each connection and list."""
        return concat([found.table() for found in self._found.values()], SLOW)


def _slowest(rows: Rows) -> Int64Array:
    """Places of the slowest rows of each connection: SLOW_ORDER, by numbers alone."""
    code, _ = codes(rows.column("connection_id"))
    sent, frame_no = rows.numbers("request_last_ns"), rows.numbers("request_frame_no")
    order = np.lexsort((frame_no, sent, -rows.numbers("latency_ns"), code))
    return order[ranks(code[order]) < MAX_SLOW]
