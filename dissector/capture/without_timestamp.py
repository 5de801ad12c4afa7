"""Packets without a time: simple packet blocks have none, and a damaged stamp says none.

Inside the program such a packet stands at the time of the one before it, as timers need one (NULL
before the first time); its number is kept here, so that no row says a time that nobody measured.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from dissector.blocks import Int64Array
from dissector.limits import MAX_TIMELESS_RANGES, NULL

BoolArray = npt.NDArray[np.bool_]

_FOR_EVER: Final = 0x7FFF_FFFF_FFFF_FFFF


class NumberRanges:
    """A set of growing numbers, as at most limits.MAX_TIMELESS_RANGES ranges. The last one then
    has no end."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._arrays: tuple[Int64Array, Int64Array] | None = None

    def __bool__(self) -> bool:
        return bool(self._starts)

    def add(self, numbers: Int64Array) -> None:
        """Add numbers in ascending order, none less than those before."""
        if not len(numbers):
            return
        edges = np.flatnonzero(np.diff(numbers) > 1)
        starts = numbers[np.concatenate([[0], edges + 1])].tolist()
        ends = numbers[np.concatenate([edges, [len(numbers) - 1]])].tolist()
        for start, end in zip(starts, ends, strict=True):
            if self._ends and start <= self._ends[-1] + 1:
                self._ends[-1] = max(end, self._ends[-1])
            elif len(self._starts) < MAX_TIMELESS_RANGES:
                self._starts.append(start)
                self._ends.append(end)
            else:
                self._ends[-1] = _FOR_EVER
        self._arrays = None

    def holds(self, numbers: Int64Array) -> BoolArray:
        """Which of some numbers are in the set; NULL is not."""
        if self._arrays is None:
            self._arrays = np.array(self._starts, np.int64), np.array(self._ends, np.int64)
        starts, ends = self._arrays
        if not len(starts):
            return np.zeros(len(numbers), bool)
        index = np.searchsorted(starts, numbers, side="right") - 1
        return np.asarray((index >= 0) & (numbers <= ends[np.maximum(index, 0)]))


class PacketsWithoutTimestamp(NumberRanges):
    """The numbers of packets without a time. has_time: some packet of the capture had one."""

    def __init__(self) -> None:
        super().__init__()
        self.has_time = False
        self._last_ts_ns = NULL

    def fill(self, times: Int64Array, first_packet: int) -> BoolArray:
        """Replace NULL by the time of the packet before, and keep the numbers of these packets.

        Args:
            times: of packets in order, changed. first_packet: number of the first of them.

        Returns:
            bool[]: which had a time.
        """
        is_timed: BoolArray = times != NULL
        if not is_timed.all():
            self.add(first_packet + np.flatnonzero(~is_timed))
            rows = np.where(is_timed, np.arange(len(times)), -1)
            latest = np.maximum.accumulate(rows)
            times[:] = np.where(latest >= 0, times[np.maximum(latest, 0)], self._last_ts_ns)
        self.has_time |= bool(is_timed.any())
        self._last_ts_ns = int(times[-1])
        return is_timed
