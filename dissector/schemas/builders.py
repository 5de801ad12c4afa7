"""Builders that collect the values of one column, one class per kind of column.

Each builder reuses arrays of `capacity` rows. `append` copies values of a block to the rows from
`at` on, `skip` sets rows to null, `finish` returns an Arrow array over the collected values and
resets the builder. A column without any value so far is not live: it allocates and copies nothing,
as is usual for most columns of a wide table.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dissector.blocks import Coded, Column, Int64Array, Lists, Spans
from dissector.limits import NULL
from dissector.schemas import column as declaration
from dissector.schemas import text as schemas_text
from dissector.schemas.arrow import ARROW_TYPES, in_memory_type

_Cell = TypeVar("_Cell", bound=np.generic)

_NS_PER_US: Final = 1000
_FIRST_ROWS: Final = 1024
_GROWTH: Final = 8
# Dictionaries of our own enums (commands, outcomes) are short and fixed: written whole.
_WHOLE_DICTIONARY: Final = 512


class Numbers(NamedTuple):
    """Rows of a column of integers: int64[rows] with NULL, in ns if is_time."""

    values: Int64Array
    is_time: bool


class Flags(NamedTuple):
    """Rows of a column of flags: bool[rows] each; rows that are not `present` are null."""

    values: npt.NDArray[np.bool_]
    present: npt.NDArray[np.bool_]


class Codes(NamedTuple):
    """Rows of a text column: int32[rows], indices in names; negative is null."""

    codes: npt.NDArray[np.int32]
    names: Sequence[bytes] | Sequence[str]


# The rows of a column in a builder: None if all are null; an Arrow array of strings, lists or maps
# if no simpler form is possible. Valid until the next append.
ColumnValues: TypeAlias = Numbers | Flags | Codes | pa.Array | None


def column_values_of(array: pa.Array) -> ColumnValues:
    """Convert a column that was read from a file to the form that builders return."""
    rows, kind = len(array), array.type
    if array.null_count == rows:
        return None
    if pa.types.is_boolean(kind):
        return Flags(bits_of(array, 1), bits_of(array))
    if pa.types.is_primitive(kind):
        return Numbers(number_values(array), False)
    # A sliced list array shares its parent's elements: copy it, so that they begin at 0.
    is_slice = pa.types.is_nested(kind) and array.offset
    return array.take(pa.array(range(rows))) if is_slice else array


def number_values(array: pa.Array) -> Int64Array:
    """Return the 64-bit numbers or times of an array, with NULL; not by to_numpy, which imports
    pandas: 0.1 s."""
    rows, data = len(array), array.buffers()[1]
    if data is None:
        return np.full(rows, NULL)
    values = np.frombuffer(data, np.int64, array.offset + rows)[array.offset :]
    return np.where(bits_of(array), values, NULL)


def bits_of(array: pa.Array, number: int = 0) -> npt.NDArray[np.bool_]:
    """Unpack a bit buffer of an array (default: the validity); all true if it is missing."""
    bits = array.buffers()[number]
    if bits is None:
        return np.ones(len(array), np.bool_)
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return flags[array.offset : array.offset + len(array)].view(np.bool_)


def numbers(values: Column, start: int, stop: int) -> Int64Array:
    """Return rows of a column of numbers or flags as int64 with NULL."""
    if isinstance(values, np.ndarray):
        return values[start:stop]
    assert not isinstance(values, Coded | Spans | Lists), "numbers are expected"
    objects: Sequence[Any] = values[start:stop]
    integers = [NULL if value is None else int(value) for value in objects]
    return np.array(integers, np.int64)


def validity_bitmap(present: npt.NDArray[np.bool_]) -> tuple[pa.Buffer | None, int]:
    """Return the Arrow validity bitmap, None if no row is null, and the number of nulls."""
    nulls = len(present) - int(np.count_nonzero(present))
    if nulls == 0:
        return None, 0
    return pa.py_buffer(np.packbits(present, bitorder="little")), nulls


def number_array(
    values: Int64Array,
    kind: pa.DataType = ARROW_TYPES["bigint"],
    *,
    is_ns: bool = False,
    has_nulls: bool = True,
) -> pa.Array:
    """Convert numbers to Arrow.

    Args:
        is_ns: round ns down to µs. has_nulls: NULL means null; else it is a number.
    """
    validity, nulls = validity_bitmap(values != NULL) if has_nulls else (None, 0)
    if is_ns:
        values = values // _NS_PER_US
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)], nulls)


def _reserved(store: npt.NDArray[_Cell], rows: int, capacity: int) -> npt.NDArray[_Cell]:
    """Return the array, or a longer copy for at least `rows` rows. Not allocated at full capacity:
    a small capture fills few rows of a page, and 200 full columns cost a tenth of a short run."""
    if rows <= len(store):
        return store
    longer = np.empty(min(capacity, max(rows, _GROWTH * len(store), _FIRST_ROWS)), store.dtype)
    longer[: len(store)] = store
    return longer


class ColumnBuilder(ABC):
    """Collects the rows of one column."""

    def __init__(self, column: declaration.Column, capacity: int) -> None:
        self._name = column.name
        self._type = in_memory_type(column)
        self._capacity = capacity
        self.is_live = False
        self._nulls = pa.nulls(0, self._type)

    @abstractmethod
    def append(self, values: Column, start: int, stop: int, at: int) -> None:
        """Copy the block's rows [start, stop) to the rows from `at` on."""

    @abstractmethod
    def skip(self, at: int, rows: int) -> None:
        """Set `rows` rows from `at` on to null."""

    def take(self, rows: int) -> ColumnValues:
        """Return the first rows without conversion, valid until the next append; reset."""
        if not self.is_live:
            return None
        self.is_live = False
        return self._taken(rows)

    def finish(self, rows: int) -> pa.Array:
        """Return the first rows as an Arrow array, valid until the next append; reset."""
        taken = self.take(rows)
        if taken is not None:
            return self._array(taken)
        if len(self._nulls) != rows:
            self._nulls = pa.nulls(rows, self._type)
        return self._nulls

    @abstractmethod
    def _taken(self, rows: int) -> ColumnValues:
        """Return the first rows of a live column."""

    def _array(self, taken: Any) -> pa.Array:
        """Convert the result of `_taken` to Arrow."""
        return taken


class NumberBuilder(ColumnBuilder):
    """Integers, and times: appended in ns, rounded down to µs in Arrow."""

    def __init__(self, column: declaration.Column, capacity: int) -> None:
        super().__init__(column, capacity)
        self._is_time = column.type.startswith("timestamp")
        self._store: Int64Array = np.empty(0, np.int64)

    def append(self, values: Column, start: int, stop: int, at: int) -> None:
        integers = numbers(values, start, stop)
        if not self.is_live:
            if schemas_text.all_null(integers, NULL):
                return
            self.is_live = True
            self.skip(0, at)
        self._reserve(at + len(integers))
        self._store[at : at + len(integers)] = integers

    def skip(self, at: int, rows: int) -> None:
        if self.is_live:
            self._reserve(at + rows)
            self._store[at : at + rows] = NULL

    def _reserve(self, rows: int) -> None:
        self._store = _reserved(self._store, rows, self._capacity)

    def _taken(self, rows: int) -> Numbers:
        return Numbers(self._store[:rows], self._is_time)

    def _array(self, taken: Numbers) -> pa.Array:
        return number_array(taken.values, self._type, is_ns=self._is_time)


class FlagBuilder(ColumnBuilder):
    """Flags, appended as integers: 0 is false, all others are true."""

    def __init__(self, column: declaration.Column, capacity: int) -> None:
        super().__init__(column, capacity)
        self._store: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._present: npt.NDArray[np.bool_] = np.empty(0, np.bool_)

    def append(self, values: Column, start: int, stop: int, at: int) -> None:
        integers = numbers(values, start, stop)
        if not self.is_live:
            if schemas_text.all_null(integers, NULL):
                return
            self.is_live = True
            self.skip(0, at)
        end = at + len(integers)
        self._reserve(end)
        np.not_equal(integers, 0, out=self._store[at:end])
        np.not_equal(integers, NULL, out=self._present[at:end])

    def skip(self, at: int, rows: int) -> None:
        if self.is_live:
            self._reserve(at + rows)
            self._store[at : at + rows] = False
            self._present[at : at + rows] = False

    def _reserve(self, rows: int) -> None:
        self._store = _reserved(self._store, rows, self._capacity)
        self._present = _reserved(self._present, rows, self._capacity)

    def _taken(self, rows: int) -> Flags:
        return Flags(self._store[:rows], self._present[:rows])

    def _array(self, taken: Flags) -> pa.Array:
        validity, nulls = validity_bitmap(taken.present)
        bits = pa.py_buffer(np.packbits(taken.values, bitorder="little"))
        return pa.Array.from_buffers(self._type, len(taken.present), [validity, bits], nulls)


class _Run(NamedTuple):
    """Consecutive rows of a text column in one form.

    stop: the row after them.
    names: of their codes; empty if all are null.
    array: their text, if they have no codes.
    """

    stop: int
    names: Sequence[bytes] | Sequence[str]
    array: pa.Array | None


class TextBuilder(ColumnBuilder):
    """Text: codes of names, spans of wire bytes, or Python texts.

    Nearly always all rows of a batch have one list of names; then its codes are the Arrow codes.
    Only the names in use are written, so that the file does not depend on the list's length at that
    time.
    """

    def __init__(self, column: declaration.Column, capacity: int) -> None:
        super().__init__(column, capacity)
        self._repeats = column.repeats
        self._codes: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._runs: list[_Run] = []
        self._last_names: Sequence[bytes] | Sequence[str] = ()
        self._last_used: npt.NDArray[np.intp] = np.empty(0, np.intp)
        self._last_texts = pa.nulls(0, pa.string())

    def append(self, values: Column, start: int, stop: int, at: int) -> None:
        rows = stop - start
        if isinstance(values, Coded):
            codes = values.codes[start:stop]
            if rows == 0 or (codes[0] < 0 and codes.max() < 0):
                self.skip(at, rows)
                return
            self._prepare(at, rows)
            # Narrowed to int32: codes are far below 2**31, and NULL remains negative.
            self._codes[at : at + rows] = codes
            self._add_codes(at + rows, values.names)
            return
        array = _plain_array(values, start, stop)
        if array.null_count == rows:
            self.skip(at, rows)
            return
        self._prepare(at, rows)
        self._runs.append(_Run(at + rows, (), array))

    def skip(self, at: int, rows: int) -> None:
        if self.is_live and rows:
            self._codes = _reserved(self._codes, at + rows, self._capacity)
            self._codes[at : at + rows] = -1
            self._add_codes(at + rows, ())

    def _taken(self, rows: int) -> Codes | pa.Array:
        runs, self._runs = self._runs, []
        if len(runs) == 1 and runs[0].array is None:
            codes = Codes(self._codes[:rows], runs[0].names)
            return codes if self._repeats else schemas_text.coded_array(*codes)
        parts, start = [], 0
        for run in runs:
            if run.array is not None:
                parts.append(run.array)
            elif len(run.names) == 0:
                parts.append(pa.nulls(run.stop - start, pa.string()))
            else:
                parts.append(schemas_text.coded_array(self._codes[start : run.stop], run.names))
            start = run.stop
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _array(self, taken: Codes | pa.Array) -> pa.Array:
        if isinstance(taken, Codes):
            return self._coded(*taken)
        return taken.dictionary_encode() if self._repeats else taken

    def _prepare(self, at: int, rows: int) -> None:
        if not self.is_live:
            self.is_live = True
            self.skip(0, at)
        self._codes = _reserved(self._codes, at + rows, self._capacity)

    def _add_codes(self, stop: int, names: Sequence[bytes] | Sequence[str]) -> None:
        """Extend the last run of codes, or append one if its names differ."""
        if self._runs and self._runs[-1].array is None:
            last = self._runs[-1]
            if len(names) == 0 or last.names is names or len(last.names) == 0:
                self._runs[-1] = _Run(stop, names if len(last.names) == 0 else last.names, None)
                return
        self._runs.append(_Run(stop, names, None))

    def _coded(
        self, codes: npt.NDArray[np.int32], names: Sequence[bytes] | Sequence[str]
    ) -> pa.DictionaryArray:
        least, most = int(codes.min()), int(codes.max())
        assert most < len(names), f"{self._name}: code {most} of {len(names)} names"
        validity, nulls = validity_bitmap(codes >= 0) if least < 0 else (None, 0)
        if isinstance(names, tuple) and len(names) <= _WHOLE_DICTIONARY:
            used = np.arange(len(names))
        elif least == most:
            used = np.array([most], np.intp)
            codes = np.zeros(len(codes), np.int32)
        else:
            seen = np.zeros(len(names), np.bool_)
            seen[codes[codes >= 0]] = True
            used = np.flatnonzero(seen)
            positions = np.zeros(len(names), np.int32)
            positions[used] = np.arange(len(used), dtype=np.int32)
            codes = positions[np.maximum(codes, 0)]
        rows = len(codes)
        indices = pa.Array.from_buffers(pa.int32(), rows, [validity, pa.py_buffer(codes)], nulls)
        return pa.DictionaryArray.from_arrays(indices, self._texts(names, used), safe=False)

    def _texts(
        self, names: Sequence[bytes] | Sequence[str], used: npt.NDArray[np.intp]
    ) -> pa.Array:
        """Return the names in use as Arrow text; converts only if they differ from the last."""
        if names is not self._last_names or not np.array_equal(used, self._last_used):
            self._last_names, self._last_used = names, used
            self._last_texts = schemas_text.text_array([names[number] for number in used.tolist()])
        return self._last_texts


def _plain_array(values: Column, start: int, stop: int) -> pa.Array:
    if isinstance(values, Spans):
        if schemas_text.all_null(np.sign(values.lengths[start:stop]), -1):
            return pa.nulls(stop - start, pa.string())
        return schemas_text.spans_array(values, start, stop)
    assert not isinstance(values, np.ndarray | Coded | Lists), "text is expected"
    texts: Sequence[Any] = values[start:stop]
    return schemas_text.text_array(texts)


class ListBuilder(ColumnBuilder):
    """Lists of integers."""

    def __init__(self, column: declaration.Column, capacity: int) -> None:
        super().__init__(column, capacity)
        self._counts: Int64Array = np.empty(0, np.int64)
        self._values: list[Int64Array] = []

    def append(self, values: Column, start: int, stop: int, at: int) -> None:
        if isinstance(values, Lists):
            counts = values.counts[start:stop]
            if len(counts) == 0 or (counts[0] < 0 and counts.max() < 0):
                self.skip(at, len(counts))
                return
            elements = schemas_text.gathered(values.values, values.starts[start:stop], counts)
        else:
            assert not isinstance(values, np.ndarray | Coded | Spans), "lists are expected"
            lists: Sequence[Any] = values[start:stop]
            counts = np.array([-1 if v is None else len(v) for v in lists], np.int64)
            elements = np.array([n for v in lists if v is not None for n in v], np.int64)
        if not self.is_live:
            self.is_live = True
            self.skip(0, at)
        self._counts = _reserved(self._counts, at + len(counts), self._capacity)
        self._counts[at : at + len(counts)] = counts
        self._values.append(elements)

    def skip(self, at: int, rows: int) -> None:
        if self.is_live:
            self._counts = _reserved(self._counts, at + rows, self._capacity)
            self._counts[at : at + rows] = -1

    def _taken(self, rows: int) -> pa.Array:
        elements = number_array(np.concatenate(self._values), has_nulls=False)
        self._values.clear()
        return _list_array(self._type, self._counts[:rows], elements)


class ObjectBuilder(ColumnBuilder):
    """Maps and lists of text: rare, so buffered as Python objects."""

    def __init__(self, column: declaration.Column, capacity: int) -> None:
        super().__init__(column, capacity)
        self._objects: list[Any] = []

    def append(self, values: Column, start: int, stop: int, at: int) -> None:
        assert not isinstance(values, np.ndarray | Coded | Spans | Lists), "objects are expected"
        objects = values[start:stop]
        if not self.is_live:
            if all(members is None for members in objects):
                return
            self.is_live = True
            self._objects = [None] * at
        self._objects.extend(objects)

    def skip(self, at: int, rows: int) -> None:
        if self.is_live:
            self._objects.extend([None] * rows)

    def _taken(self, rows: int) -> pa.Array:
        objects, self._objects = self._objects, []
        counts = np.array(
            [-1 if members is None else len(members) for members in objects], np.int64
        )
        present = [members for members in objects if members is not None]
        if not pa.types.is_map(self._type):
            elements = schemas_text.text_array([text for members in present for text in members])
            return _list_array(self._type, counts, elements)
        pairs = [pair for members in present for pair in dict(members).items()]
        keys, values = (
            schemas_text.text_array([key for key, _ in pairs]),
            [value for _, value in pairs],
        )
        if pa.types.is_string(self._type.item_type):
            items = schemas_text.text_array(values)
        else:
            items = number_array(np.array(values, np.int64), has_nulls=False)
        entry = pa.struct([self._type.key_field, self._type.item_field])
        entries = pa.Array.from_buffers(entry, len(pairs), [None], 0, children=[keys, items])
        return _list_array(self._type, counts, entries)


def _list_array(kind: pa.DataType, counts: Int64Array, elements: pa.Array) -> pa.Array:
    """Build lists or maps over concatenated elements; a negative count is null."""
    validity, nulls = validity_bitmap(counts >= 0)
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(np.maximum(counts, 0), out=bounds[1:])
    buffers = [validity, pa.py_buffer(bounds)]
    return pa.Array.from_buffers(kind, len(counts), buffers, nulls, children=[elements])


def builder_for(column: declaration.Column, capacity: int) -> ColumnBuilder:
    """Return the builder for a column of the schema."""
    if column.type in ("bigint", "timestamp[us, UTC]"):
        return NumberBuilder(column, capacity)
    if column.type == "boolean":
        return FlagBuilder(column, capacity)
    if column.type == "string":
        return TextBuilder(column, capacity)
    if column.type == "array<bigint>":
        return ListBuilder(column, capacity)
    return ObjectBuilder(column, capacity)
