"""Columns of Arrow as the passes of a dissection want them: numbers, codes, running numbers."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.blocks import Int64Array
from dissector.limits import NULL


class FrameNumbers:
    """One running number for the frames of all captures, and the way back to capture and number."""

    def __init__(self) -> None:
        self._next = 1
        self._starts: list[int] = []
        self._ranks: list[int] = []
        self._first: list[int] = []
        self._last = (-1, -1)

    def number(self, ranks: Int64Array, frame_nos: Int64Array) -> Int64Array:
        """Number frames that come next."""
        serials = self._next + np.arange(len(ranks), dtype=np.int64)
        before_rank = np.concatenate(([self._last[0]], ranks[:-1]))
        before = np.concatenate(([self._last[1]], frame_nos[:-1]))
        for row in np.flatnonzero((ranks != before_rank) | (frame_nos != before + 1)).tolist():
            self._starts.append(int(serials[row]))
            self._ranks.append(int(ranks[row]))
            self._first.append(int(frame_nos[row]))
        if len(ranks):
            self._last = (int(ranks[-1]), int(frame_nos[-1]))
            self._next += len(ranks)
        return serials

    def resolve(self, serials: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The rank of the capture and the own number of each frame; NULL stays."""
        if not self._starts:
            return serials, serials
        known = serials != NULL
        at = np.searchsorted(np.asarray(self._starts), np.where(known, serials, 1), "right") - 1
        own = np.asarray(self._first)[at] + serials - np.asarray(self._starts)[at]
        return np.where(known, np.asarray(self._ranks)[at], NULL), np.where(known, own, NULL)


def numbers(column: pa.Array) -> Int64Array:
    """Integers or flags, NULL where there is none."""
    filled = pc.fill_null(pc.cast(column, pa.int64()), NULL)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def index_in(column: pa.Array, names: Sequence[str]) -> Int64Array:
    """The place of each text among names."""
    indices: Int64Array = numbers(pc.index_in(column, pa.array(names)))
    return indices


def by_text(column: pa.Array, number: Callable[[str], int]) -> Int64Array:
    """A number for each text, asked for once per text."""
    coded = pc.dictionary_encode(column)
    known = np.asarray([number(text) for text in coded.dictionary.to_pylist()] or [NULL], np.int64)
    indices = numbers(coded.indices)
    return np.where(indices == NULL, NULL, known[np.maximum(indices, 0)])
