"""Columns of Spark as the passes of a dissection want them: numbers, codes, running numbers."""

from collections.abc import Callable, Iterable, Sequence

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

    @classmethod
    def resumed(cls, memory: Int64Array) -> "FrameNumbers":
        """Numbers that go on behind those of an earlier object. memory: its `memory`."""
        frame_numbers = cls()
        frame_numbers._next, *last = memory[0].tolist()
        frame_numbers._last = (last[0], last[1])
        frame_numbers._starts, frame_numbers._ranks, frame_numbers._first = memory[1:].T.tolist()
        return frame_numbers

    def memory(self, mentioned: Iterable[Int64Array]) -> Int64Array:
        """int64[1 + runs, 3]: the next number and the last frame; first number, rank and frame of
        each run of frames that follow each other, if one of its numbers is mentioned."""
        starts = np.asarray(self._starts, np.int64)
        is_wanted = np.zeros(len(starts), bool)
        is_wanted[-1:] = True  # frames that come next go on from it
        for values in mentioned:
            known = values[(values > 0) & (values < self._next)]
            is_wanted[np.searchsorted(starts, known, "right") - 1] = True
        runs = np.asarray([self._starts, self._ranks, self._first], np.int64).T[is_wanted]
        return np.concatenate((np.asarray([[self._next, *self._last]], np.int64), runs))

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


class Names:
    """Codes of texts, as the passes want them."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self.texts: list[bytes] = []

    @classmethod
    def resumed(cls, texts: Sequence[bytes]) -> "Names":
        """Names that go on behind those of an earlier object, which had these texts."""
        names = cls()
        names.texts = list(texts)
        names._codes = {text.decode(): code for code, text in enumerate(texts)}
        return names

    def codes(self, column: pa.Array) -> Int64Array:
        """The code of each text, NULL where there is none."""
        coded = pc.dictionary_encode(column)
        codes = []
        for text in coded.dictionary.to_pylist():
            code = self._codes.setdefault(text, len(self.texts))
            if code == len(self.texts):
                self.texts.append(text.encode())
            codes.append(code)
        indices = numbers(coded.indices)
        if not codes:
            return indices
        return np.where(indices == NULL, NULL, np.asarray(codes, np.int64)[np.maximum(indices, 0)])


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
