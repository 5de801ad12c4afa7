"""A tally over time whose step grows with the span of time, so that it never holds many points."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.report.numbers import NS_PER_MS, STEPS_MS, step_ns
from dissector.report.tallies import Accumulator, Tally


class TimeCells:
    """Rows summed up by `point` = time / step; steps are multiples, so points add up exactly."""

    def __init__(self, tally: Tally, limit: int) -> None:
        self._cells = Accumulator(tally, limit)
        self._first = 0
        self._last = 0
        self._is_empty = True
        self.step = STEPS_MS[0] * NS_PER_MS

    @property
    def left_out(self) -> int:
        """Keys beyond the bound."""
        return self._cells.left_out

    @property
    def rows(self) -> int:
        """How many cells there are."""
        return int(self._cells.settle().num_rows)

    def add(self, columns: Mapping[str, pa.Array], at_ns: Int64Array) -> None:
        """Sum up rows at their times, ns since 1970."""
        if len(at_ns) == 0:
            return
        first, last = int(at_ns.min()), int(at_ns.max())
        self._first = first if self._is_empty else min(first, self._first)
        self._last = last if self._is_empty else max(last, self._last)
        self._is_empty = False
        self._coarsen(step_ns(self._first, self._last))
        self._cells.add({**columns, "point": pa.array(at_ns // self.step)})

    def _coarsen(self, step: int) -> None:
        if step <= self.step:
            return
        table = self._cells.settle()
        factor = step // self.step
        self.step = step
        if table.num_rows:
            points = table.column("point").to_numpy() // factor
            at = table.schema.get_field_index("point")
            self._cells.replace(table.set_column(at, "point", pa.array(points.astype(np.int64))))

    def table(self, step: int) -> pa.Table:
        """Everything by points of this step, which is not finer than what has gathered."""
        self._coarsen(step)
        return self._cells.settle()
