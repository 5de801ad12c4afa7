"""Arguments of kernels as words of 64 bits, and the kinds that say what the words mean.

A kernel is called with one pointer to words: for a number itself, for an array its address and
shape, for bundles, states and tuples what is inside them. The *kind* of an argument is a tuple of
texts and numbers that says so; equal kinds take the same machine code, so kinds are also the key
under which code is kept. Neither needs the compiler, whose import alone takes 0.25 s.
"""

import copy
import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np

# (letter, ...): see the constants below.
Kind = tuple[Any, ...]

INTEGER: Final[Kind] = ("i",)
BOOLEAN: Final[Kind] = ("b",)
# ("a", dtype, dimensions, "C" or "A", is_readonly): address and shape, and strides in bytes if "A".
ARRAY: Final = "a"
BUNDLE: Final = "B"  # ("B", module, class): address and shape of its matrix
RECORDS: Final = "R"  # ("R", module, class): address and shape of its matrix, a row per record
STATE: Final = "S"  # ("S", module, class, kinds of its fields): address of its table of addresses
TUPLE: Final = "t"  # ("t", module, class, kinds of its elements): what they are made of
FUNCTION: Final = "F"  # ("F", signature): address

_classes: dict[tuple[str, str], type] = {}  # those that were passed

Appender = Callable[[Any, list[int]], Kind]


_MISSING_DIMENSIONS: Final = ((1, 1), (1,), ())  # by the number of those that are there
_address_of = ctypes.addressof
_first_byte = ctypes.c_char.from_buffer


def _address(array: Any) -> int:
    """Where an array that is C-contiguous lies."""
    try:
        # Three times as fast as `ctypes.data`; a call from Python passes five arrays.
        return _address_of(_first_byte(array))
    except (TypeError, ValueError):  # one that is empty or may not be written
        return int(array.ctypes.data)


def array_words(array: Any) -> list[int]:
    """Address and shape of a C-contiguous array of one or two dimensions: 3 words."""
    assert array.flags.c_contiguous and array.ndim <= 2
    return [_address(array), *array.shape, *_MISSING_DIMENSIONS[array.ndim]]


def _array_kind(array: Any, words: list[int]) -> Kind:
    flags, dimensions = array.flags, array.ndim
    if dimensions > 2:
        raise TypeError(f"a kernel takes arrays of at most two dimensions, not {dimensions}")
    if flags.c_contiguous:
        try:  # as in `_address`, a call of which each array would cost again
            words.append(_address_of(_first_byte(array)))
        except (TypeError, ValueError):
            words.append(int(array.ctypes.data))
        words += array.shape + _MISSING_DIMENSIONS[dimensions]
        return _contiguous_kind(array.dtype, dimensions, not flags.writeable)
    words += [array.ctypes.data, *array.shape, *array.strides]
    return (ARRAY, array.dtype.str, dimensions, "A", not flags.writeable)


@functools.cache
def _contiguous_kind(dtype: np.dtype[Any], dimensions: int, is_readonly: bool) -> Kind:
    return (ARRAY, dtype.str, dimensions, "C", is_readonly)


def _integer(value: Any, words: list[int]) -> Kind:
    words.append(int(value))
    return INTEGER


def _boolean(value: Any, words: list[int]) -> Kind:
    words.append(int(value))
    return BOOLEAN


def _tuple(value: Any, words: list[int]) -> Kind:
    cls = type(value)
    name = (cls.__module__, cls.__qualname__) if cls is not tuple else ("", "")
    known, kinds = _APPENDERS.get, []
    for part in value:
        of_part = type(part)
        kinds.append((known(of_part) or _appender_of(of_part))(part, words))
    return (TUPLE, *name, tuple(kinds))


_APPENDERS: Final[dict[type, Appender]] = {
    int: _integer,
    bool: _boolean,
    np.bool_: _boolean,
    np.ndarray: _array_kind,
    tuple: _tuple,
}


def _appender_of(cls: type) -> Appender:
    """How values of a class become words: what the class says itself, or what its base does."""
    own = getattr(cls, "append_to", None)
    if own is not None:
        appender: Appender = own
    elif issubclass(cls, tuple):
        appender = _tuple
    elif issubclass(cls, np.ndarray):
        appender = _array_kind
    elif issubclass(cls, int | np.integer):
        appender = _integer
    else:
        raise TypeError(f"a kernel cannot take a {cls.__module__}.{cls.__qualname__}")
    _APPENDERS[cls] = appender
    _classes[cls.__module__, cls.__qualname__] = cls
    return appender


def append(value: Any, words: list[int]) -> Kind:
    """Add the words of an argument; returns its kind.

    Raises:
        TypeError: kernels take no such thing.
    """
    cls = type(value)
    return (_APPENDERS.get(cls) or _appender_of(cls))(value, words)


class KeptKind(tuple[Any, ...]):
    """A kind that is looked up with each call: the hash of its hundreds of parts is found once."""

    _hash: int

    def __hash__(self) -> int:
        return self._hash


@functools.cache
def kept_kind(kind: Kind) -> Kind:
    """The one that stands for all kinds equal to it, which is found without comparing parts."""
    kept = KeptKind(kind)
    kept._hash = hash(kind)
    return kept


class Prepacked:
    """An argument whose words are found once, for what is passed again and again.

    Its arrays stay what they are; what is in them may change, and states that are in it may grow.
    """

    def __init__(self, value: Any) -> None:
        self.value = value  # its arrays must live as long
        words: list[int] = []
        self._kind = kept_kind(append(value, words))
        self._words = words

    def __getattr__(self, name: str) -> Any:
        """A field of it."""
        return getattr(self.value, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Prepacked":
        """Of a copy of it: its own words name arrays that are not the copy's."""
        return Prepacked(copy.deepcopy(self.value, memo))

    def append_to(self, words: list[int]) -> Kind:
        """Pass it to a kernel."""
        words += self._words
        return self._kind


def word_count(kind: Kind) -> int:
    """How many words an argument of this kind has."""
    letter = kind[0]
    if letter == ARRAY:
        return 3 if kind[3] == "C" else 1 + 2 * int(kind[2])
    if letter in (BUNDLE, RECORDS):
        return 3
    if letter == TUPLE:
        return sum(map(word_count, kind[3]))
    return 1


# -- results: ["i"] signed, ["u"] unsigned, ["b"] flag, ["n"] None, ["t", module, class, [parts]]

Maker = Callable[[Any, int], tuple[Any, int]]
_MASK_64: Final = (1 << 64) - 1


def class_named(module: str, name: str) -> Any:
    """A class by its module and name."""
    if (module, name) in _classes:
        return _classes[module, name]
    attribute: Any = importlib.import_module(module)
    for part in name.split("."):
        attribute = getattr(attribute, part)
    return attribute


def result_count(result: list[Any]) -> int:
    """How many words a result takes."""
    if result[0] == "t":
        return sum(map(result_count, result[3]))
    return 0 if result[0] == "n" else 1


def maker_of(result: list[Any]) -> Maker:
    """A function (words, index) -> the Python value of a result, and the index behind it."""
    letter = result[0]
    if letter == "n":
        return lambda words, index: (None, index)
    if letter == "i":
        return lambda words, index: (words[index], index + 1)
    if letter == "u":
        return lambda words, index: (words[index] & _MASK_64, index + 1)
    if letter == "b":
        return lambda words, index: (words[index] != 0, index + 1)
    makers = [maker_of(part) for part in result[3]]
    cls = class_named(result[1], result[2]) if result[2] else None

    def make(words: Any, index: int) -> tuple[Any, int]:
        parts = []
        for maker in makers:
            part, index = maker(words, index)
            parts.append(part)
        return (tuple(parts) if cls is None else cls(*parts)), index

    return make


def word_array(count: int) -> type[ctypes.Array[ctypes.c_int64]]:
    """The type of so many words behind each other."""
    return ctypes.c_int64 * count
