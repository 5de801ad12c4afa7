"""Detects triggers of the flight recorder in rows, each with a reason and its packets.

A trigger's text has the connection and the frame, by which an operator finds it in the lake.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.blocks import Coded, Int64Array, TableBlock, numbers_of
from dissector.errors import UsageError
from dissector.limits import NULL
from dissector.schemas.text import plain_text
from dissector.tap.balances import Stall

CHECKSUM: Final = "checksum"
LATENCY: Final = "latency"
STALL: Final = "stall"
ERROR: Final = "error"
SIGNAL: Final = "signal"
NAMES: Final = (CHECKSUM, LATENCY, STALL, ERROR)
LATENCY_NS: Final = 1_000_000_000  # default threshold of a send's latency

_NS_PER_US: Final = 1000

BoolArray = npt.NDArray[np.bool_]


class Trigger(NamedTuple):
    """An event whose packets are recorded.

    connection_id: -1 for all connections.
    first_ns, last_ns: its range of time.
    packet: number of the packet that shows it, or NULL.
    """

    reason: str
    text: str
    connection_id: int
    first_ns: int
    last_ns: int
    packet: int = NULL


def of_signal(now_ns: int) -> Trigger:
    """The trigger of a signal: all buffered packets."""
    return Trigger(SIGNAL, "asked for by a signal: all packets in memory", -1, 0, now_ns)


class Triggers:
    """Detects triggers in blocks of rows.

    Args:
        names: of the triggers, from NAMES. latency_ns: threshold of slow sends.
    """

    def __init__(self, names: Sequence[str] = NAMES, latency_ns: int = LATENCY_NS) -> None:
        unknown = set(names) - set(NAMES)
        if unknown:
            known = ", ".join(NAMES)
            raise UsageError(f"--trigger {sorted(unknown)[0]}: choose of {known}")
        self._names = frozenset(names)
        self._latency_ns = latency_ns
        self.wants_stalls = STALL in self._names

    def of(self, block: TableBlock) -> Iterator[Trigger]:
        """Yield the triggers in a block of any table."""
        if not block.rows:
            return
        if block.table == "frames" and CHECKSUM in self._names:
            yield from self._checksums(block)
        elif block.table == "exchanges":
            yield from self._exchanges(block)

    def may_end_stall(self, block: TableBlock) -> bool:
        """Whether a block has a grant that raises a balance above 0; the duration of the stall is
        then in the balances of windows."""
        if not self.wants_stalls or block.table != "permits":
            return False
        available = numbers_of(block, "available_after")
        is_lifted = (available > 0) & (available <= numbers_of(block, "delta"))
        return bool((is_lifted & is_text(block, "event", "grant")).any())

    def _checksums(self, block: TableBlock) -> Iterator[Trigger]:
        wrong = is_text(block, "checksum", "mismatch")
        for row in np.flatnonzero(wrong).tolist():
            connection, frame, first_ns, last_ns, packet = _cells(
                block, row, "connection_id", "frame_no", "first_ts_ns", "last_ts_ns", "last_packet"
            )
            text = f"checksum mismatch: connection {connection}, frame {frame}"
            yield Trigger(CHECKSUM, text, connection, first_ns, last_ns, packet)

    def _exchanges(self, block: TableBlock) -> Iterator[Trigger]:
        if LATENCY in self._names:
            slow = is_text(block, "kind", "publish")
            slow &= numbers_of(block, "latency_ns") > self._latency_ns
            for row in np.flatnonzero(slow).tolist():
                yield _of_exchange(block, row, LATENCY)
        if ERROR in self._names:
            codes, names = _codes(block, "error_code")
            for row in np.flatnonzero(codes >= 0).tolist():
                yield _of_exchange(block, row, ERROR, plain_text(names[int(codes[row])]))


def of_stall(stall: Stall) -> Trigger:
    """The trigger of a consumer's stall."""
    first_ns = stall.start_us * _NS_PER_US
    text = (
        f"no permits for {stall.duration_us / 1e6:.3f} s: connection {stall.connection_id},"
        f" consumer {stall.consumer_id}, up to frame {stall.end_frame_no}"
    )
    last_ns = first_ns + stall.duration_us * _NS_PER_US
    return Trigger(STALL, text, stall.connection_id, first_ns, last_ns)


def is_text(block: TableBlock, name: str, text: str) -> BoolArray:
    """The rows in which a text column has this value: bool[rows]."""
    codes, names = _codes(block, name)
    # The last element stands for null, whose code is -1.
    is_wanted = np.array([plain_text(name) == text for name in names] + [False])
    is_row_wanted: BoolArray = is_wanted[codes]
    return is_row_wanted


def _codes(block: TableBlock, name: str) -> tuple[Int64Array, Sequence[bytes] | Sequence[str]]:
    """The codes of a text column, -1 for null, and its texts."""
    values = block.columns.get(name)
    if values is None:
        return np.full(block.rows, -1, np.int64), ()
    assert isinstance(values, Coded), "texts that repeat have codes"
    return np.maximum(values.codes, -1), values.names


def _cells(block: TableBlock, row: int, *names: str) -> list[int]:
    return [int(numbers_of(block, name)[row]) for name in names]


def _of_exchange(block: TableBlock, row: int, reason: str, code: str = "") -> Trigger:
    """The trigger of a request and its answer."""
    connection, request, response, first_ns, last_ns, latency_ns = _cells(
        block, row, "connection_id", "request_frame_no", "response_frame_no", "request_first_ns",
        "response_last_ns", "latency_ns",
    )  # fmt: skip
    if first_ns == NULL:
        first_ns = last_ns
    frames = f"frames {'?' if request == NULL else request} and {response}"
    what = f"refused with {code}" if code else f"answered after {latency_ns / 1e6:.3f} ms"
    return Trigger(reason, f"{what}: connection {connection}, {frames}", connection, first_ns,
                   last_ns)  # fmt: skip
