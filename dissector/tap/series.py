"""Sums per set of labels, bounded: what a metric is made of.

Rows are counted by the block: the distinct combinations of a block are few, so that Python's part
of the work does not grow with rows. Label sets beyond the bound are counted under `other`.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.codecs.printable import safe_text
from dissector.limits import MAX_SERIES, NULL
from dissector.schemas.builders import numbers
from dissector.schemas.text import plain_text
from dissector.tap.grouping import added_up, group_rows, tallied

Key = tuple[str, ...]
Texts = Sequence[bytes] | Sequence[str]

UNKNOWN: Final = "unknown"  # what was not seen, such as a topic opened before the tap began
OTHER: Final = "other"  # the sum of all label sets beyond the bound

# Histograms have the octaves of the lake's buckets as bounds, from 2^17 ns (131 us) to 2^36 ns
# (69 s): what is faster is in the first, what is slower in the last.
FIRST_OCTAVE: Final = 17
LAST_OCTAVE: Final = 36
BOUNDS_NS: Final = tuple((1 << power) - 1 for power in range(FIRST_OCTAVE, LAST_OCTAVE + 1))


def column_codes(values: Column | None, rows: int) -> tuple[Int64Array, Texts]:
    """A text column as codes, -1 where it is null, and the texts."""
    if values is None:
        return np.full(rows, -1, np.int64), ()
    if isinstance(values, Coded):
        return np.maximum(values.codes, -1), values.names
    assert isinstance(values, list), "labels are texts"
    texts = sorted({value for value in values if value is not None})
    indices = {text: index for index, text in enumerate(texts)}
    return np.array([indices.get(value, -1) for value in values], np.int64), texts


def label_text(value: bytes | str) -> str:
    """A text as a label has it: printable. Scrapes are read in terminals, too."""
    return safe_text(plain_text(value))


def column(block: TableBlock, name: str) -> Int64Array:
    """A column of numbers, limits.NULL where it is null."""
    values: Any = block.columns.get(name)
    if values is None:
        return np.full(block.rows, NULL, np.int64)
    return numbers(values, 0, block.rows)


class Groups:
    """The rows of a block by some of its text columns: what all sums over a table start from.

    cells: the texts of each group, None where null; rows: how many it has.
    """

    def __init__(self, block: TableBlock, names: Sequence[str]) -> None:
        self._names = tuple(names)
        tables = [column_codes(block.columns.get(name), block.rows) for name in names]
        first, self.of_row = group_rows([codes for codes, _ in tables])
        texts = [
            [label_text(known[code]) if code >= 0 else None for code in codes[first].tolist()]
            for codes, known in tables
        ]
        self.cells: list[tuple[str | None, ...]] = list(zip(*texts, strict=True))
        self.rows = added_up(None, self.of_row, len(self.cells))

    def sums(self, values: Int64Array) -> list[int]:
        """A column added up by group, nulls left out."""
        return added_up(values, self.of_row, len(self.cells))

    def where(self, name: str, texts: Collection[str | None], is_one: bool = True) -> list[int]:
        """The groups whose text in a column is one of some texts, or is none of them."""
        index = self._names.index(name)
        return [
            number for number, cells in enumerate(self.cells) if (cells[index] in texts) == is_one
        ]

    def keys(self, names: Sequence[str]) -> list[Key]:
        """The labels of each group in some of the columns."""
        indices = [self._names.index(name) for name in names]
        return [
            tuple([UNKNOWN if (text := cells[index]) is None else text for index in indices])
            for cells in self.cells
        ]


class Counts:
    """Numbers per set of labels. left_out: times that a set beyond the bound was counted."""

    def __init__(self, labels: Sequence[str], limit: int = MAX_SERIES) -> None:
        self.labels = tuple(labels)
        self.values: dict[Key, int] = {}
        self.left_out = 0
        self._limit = limit

    def key(self, key: Key) -> Key:
        """The set under which this one is counted."""
        if key in self.values or len(self.values) < self._limit:
            return key
        self.left_out += 1
        return (OTHER,) * len(self.labels)

    def add(self, key: Key, count: int) -> None:
        """Count on."""
        if count:
            key = self.key(key)
            self.values[key] = self.values.get(key, 0) + count

    def add_groups(
        self,
        groups: Groups,
        names: Sequence[str],
        amounts: Sequence[int],
        chosen: Sequence[int] | None = None,
    ) -> None:
        """Count what groups of rows come to.

        Args:
            names: the columns that are our labels; amounts: of each group; chosen: groups, all if
                None.
        """
        keys = groups.keys(names)
        sums: dict[Key, int] = {}
        for number in range(len(keys)) if chosen is None else chosen:
            sums[keys[number]] = sums.get(keys[number], 0) + amounts[number]
        for key, amount in sums.items():
            self.add(key, amount)


class Histograms:
    """Durations per set of labels: int64[len(BOUNDS_NS) + 1] counts and their sum, ns."""

    def __init__(self, labels: Sequence[str], limit: int = MAX_SERIES) -> None:
        self.sums = Counts(labels, limit)
        self.counts: dict[Key, Int64Array] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels."""
        return self.sums.labels

    def add_groups(
        self,
        groups: Groups,
        names: Sequence[str],
        durations_ns: Int64Array,
        chosen: Sequence[int] | None = None,
    ) -> None:
        """Add a column of durations; nulls are left out.

        Args:
            names: the columns that are our labels; chosen: groups, all if None.
        """
        keys = groups.keys(names)
        rows = list(range(len(keys)) if chosen is None else chosen)
        indices = {key: index for index, key in enumerate(dict.fromkeys(keys[n] for n in rows))}
        numbers = np.full(len(keys), -1, np.int64)
        for number in rows:
            numbers[number] = indices[keys[number]]
        matrix, sums = tallied(
            durations_ns, groups.of_row, numbers, FIRST_OCTAVE, len(BOUNDS_NS) + 1
        )
        for key, index in indices.items():
            if not matrix[index].any():
                continue
            key = self.sums.key(key)
            self.sums.values[key] = self.sums.values.get(key, 0) + sums[index]
            known = self.counts.get(key)
            self.counts[key] = matrix[index] if known is None else known + matrix[index]
