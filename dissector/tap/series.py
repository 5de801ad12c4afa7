"""Sums per set of labels, bounded: what a metric is made of.

Rows are counted by the block: the distinct combinations of a block are few, so that Python's part
of the work does not grow with rows. Label sets beyond the bound are counted under `other`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.buckets import SUB_BUCKET_BITS
from dissector.schemas.text import plain_text
from dissector.tap.grouping import added_up, group_rows

Key = tuple[str, ...]
Texts = Sequence[bytes] | Sequence[str]

UNKNOWN: Final = "unknown"  # what was not seen, such as a topic opened before the tap began
OTHER: Final = "other"  # the sum of all label sets beyond the bound
MAX_SERIES: Final = 1000  # default: label sets of one metric

# Histograms have the octaves of the lake's buckets as bounds, from 2^17 ns (131 us) to 2^36 ns
# (69 s): what is faster is in the first, what is slower in the last.
FIRST_OCTAVE: Final = 17
LAST_OCTAVE: Final = 36
BOUNDS_NS: Final = tuple((1 << power) - 1 for power in range(FIRST_OCTAVE, LAST_OCTAVE + 1))


def octaves_of(buckets: Int64Array) -> Int64Array:
    """The place in BOUNDS_NS (one more: above all) of buckets of the lake."""
    # Bucket 32 * n + k holds durations from 2^(n + 4) to below 2^(n + 5), n from 1 on.
    places = (buckets >> SUB_BUCKET_BITS) + SUB_BUCKET_BITS - FIRST_OCTAVE
    found: Int64Array = np.clip(places, 0, len(BOUNDS_NS))
    return found


def column_codes(values: Column | None, rows: int) -> tuple[Int64Array, Texts]:
    """A text column as codes, -1 where it is null, and the texts."""
    if values is None:
        return np.full(rows, -1, np.int64), ()
    if isinstance(values, Coded):
        return np.maximum(values.codes, -1), values.names
    assert isinstance(values, list), "labels are texts"
    texts = sorted({value for value in values if value is not None})
    places = {text: place for place, text in enumerate(texts)}
    return np.array([places.get(value, -1) for value in values], np.int64), texts


def grouped(block: TableBlock, names: Sequence[str]) -> tuple[list[Key], Int64Array]:
    """The distinct labels of a block, and for each row which of them it has."""
    tables = [column_codes(block.columns.get(name), block.rows) for name in names]
    first, groups = group_rows([codes for codes, _ in tables])
    keys = [
        tuple(
            plain_text(texts[codes[row]]) if codes[row] >= 0 else UNKNOWN for codes, texts in tables
        )
        for row in first.tolist()
    ]
    return keys, groups


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

    def add_rows(
        self, keys: Sequence[Key], groups: Int64Array, values: Int64Array | None = None
    ) -> None:
        """Add a column up by the groups of `grouped`; without one, count rows."""
        for key, count in zip(keys, added_up(values, groups, len(keys)), strict=True):
            self.add(key, count)


class Histograms:
    """Durations per set of labels: int64[len(BOUNDS_NS) + 1] counts and their sum, ns."""

    def __init__(self, labels: Sequence[str], limit: int = MAX_SERIES) -> None:
        self.sums = Counts(labels, limit)
        self.counts: dict[Key, Int64Array] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels."""
        return self.sums.labels

    def add_rows(
        self, keys: Sequence[Key], groups: Int64Array, durations_ns: Int64Array, buckets: Int64Array
    ) -> None:
        """Add durations by the groups of `grouped`; nulls are left out.

        Args:
            buckets: of the lake, for each duration.
        """
        there = durations_ns >= 0
        width = len(BOUNDS_NS) + 1
        places = groups[there] * width + octaves_of(buckets[there])
        matrix = np.bincount(places, minlength=len(keys) * width).reshape(len(keys), width)
        sums = added_up(durations_ns[there], groups[there], len(keys))
        for number, key in enumerate(keys):
            if not matrix[number].any():
                continue
            key = self.sums.key(key)
            self.sums.values[key] = self.sums.values.get(key, 0) + sums[number]
            known = self.counts.get(key)
            self.counts[key] = matrix[number] if known is None else known + matrix[number]
