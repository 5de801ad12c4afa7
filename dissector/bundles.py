"""Bundles of int64 columns that are the rows of one matrix.

A NamedTuple of a hundred arrays costs a kernel one second of compile time and 20 us a call, since
every array is passed by its seven words. A bundle of this kind is passed as its matrix alone;
inside a kernel `bundle.name` is the row of that name, and in Python it is the same view. The number
of a column is its index in the class, so that a plan can also write by number:
`bundle.matrix[number]`.
"""

from collections.abc import Iterator, Sequence
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np

from dissector.blocks import Int64Array
from dissector.native.arguments import BUNDLE, RECORDS, Kind, array_words
from dissector.native.zeros import zeros

_LINE_ROWS: Final = 8  # int64 values in a cache line
_SPREAD_FROM: Final = 256  # columns of fewer rows stay close together


def spread_rows(rows: int) -> int:
    """Round `rows` up so that a long column fills an odd number of cache lines.

    Columns a power of two apart map to the same few sets of the processor's cache and evict each
    other: the packet pass took 88 ns per packet at 8192 rows and 33 ns at 8200.
    """
    if rows < _SPREAD_FROM:
        return rows
    lines = -(-rows // _LINE_ROWS)
    return (lines | 1) * _LINE_ROWS


def _filled(shape: tuple[int, int], value: int) -> Int64Array:
    """Return a matrix of one value; zeros are not written, so unused cells take no memory."""
    return zeros(shape) if value == 0 else np.full(shape, value, np.int64)


def _columns_of(base: type) -> Sequence[str]:
    return base._fields if issubclass(base, Bundle) else tuple(get_annotations(base))


class Bundle:
    """Base of all matrix bundles; a subclass appends its annotations to the base's columns.

    matrix: int64[columns, rows], C-contiguous.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _numbers: ClassVar[dict[str, int]] = {}
    _letter: ClassVar[str] = BUNDLE
    _kind: ClassVar[Kind]
    matrix: Int64Array

    def __init_subclass__(cls, more: Sequence[str] = (), **options: Any) -> None:
        """Columns are those of the bases, those that the class annotates, and `more`.

        A base that is no bundle gives the columns that it annotates.
        """
        super().__init_subclass__(**options)
        inherited = [name for base in cls.__bases__ for name in _columns_of(base)]
        own = [name for name in get_annotations(cls) if name[0] != "_"]
        cls._fields = (*inherited, *own, *more)
        cls._numbers = {name: number for number, name in enumerate(cls._fields)}
        cls._kind = (cls._letter, cls.__module__, cls.__qualname__)

    def __init__(self, matrix: Int64Array) -> None:
        assert matrix.shape[0] == len(self._fields) and matrix.flags.c_contiguous
        self.matrix = matrix
        self._words = array_words(matrix)

    if not TYPE_CHECKING:  # which knows the columns, and what is none

        def __getattr__(self, name: str) -> Int64Array:
            """Create a column's view on first access: most are used by kernels only."""
            number = self._numbers.get(name)
            if number is None:
                raise AttributeError(f"{type(self).__name__} has no column {name}")
            column = self._column(number)
            setattr(self, name, column)
            return column

    def _column(self, number: int) -> Int64Array:
        column: Int64Array = self.matrix[number]
        return column

    def append_to(self, words: list[int]) -> Kind:
        """Pass it to a kernel."""
        words += self._words
        return self._kind

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the matrix; the columns of the copy are views of it."""
        return type(self)(self.matrix.copy())

    @classmethod
    def new(cls, rows: int, value: int = 0) -> Self:
        """Allocate a bundle of at least `rows` rows, with every cell set to a value."""
        return cls(_filled((len(cls._fields), spread_rows(rows)), value))

    def __iter__(self) -> Iterator[Int64Array]:
        return iter(self.matrix)

    def grown(self, rows: int, value: int = 0) -> Self:
        """A larger copy; the new cells hold a value."""
        fresh = _filled((len(self._fields), spread_rows(rows)), value)
        fresh[:, : self.matrix.shape[1]] = self.matrix
        return type(self)(fresh)


class Records(Bundle):
    """A bundle whose matrix has a row per record, so that all of one record lies together.

    For tables with random access to single records: in a bundle of columns each field of a record
    would be a cache miss. Used like a Bundle; matrix: int64[rows, columns].
    """

    _letter: ClassVar[str] = RECORDS

    def __init__(self, matrix: Int64Array) -> None:
        assert matrix.shape[1] == len(self._fields) and matrix.flags.c_contiguous
        self.matrix = matrix
        self._words = array_words(matrix)

    def _column(self, number: int) -> Int64Array:
        return self.matrix[:, number]

    @classmethod
    def new(cls, rows: int, value: int = 0) -> Self:
        """Allocate records with every cell set to a value."""
        return cls(_filled((rows, len(cls._fields)), value))

    def __iter__(self) -> Iterator[Int64Array]:
        return iter(self.matrix.T)

    def grown(self, rows: int, value: int = 0) -> Self:
        """A larger copy; the new cells hold a value."""
        fresh = _filled((rows, len(self._fields)), value)
        fresh[: len(self.matrix)] = self.matrix
        return type(self)(fresh)
