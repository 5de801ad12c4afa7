"""State of kernels between blocks: many arrays, passed to a kernel as one pointer.

A tuple of forty arrays costs each function with such a parameter half a second of compile time, and
each call two kilobytes of copying. A State passes the address of a table of its arrays' addresses;
inside a kernel `state.name` is the array, bundle or named tuple of that name, as fast as a separate
argument. Between two kernels `grow` replaces arrays by larger ones.
"""

from copy import deepcopy
from typing import Any, ClassVar, Self

import numpy as np

from dissector.blocks import Int64Array
from dissector.native.arguments import STATE, Kind, append, kept_kind


class State:
    """Base of all states; a subclass lists its fields as annotations.

    A field is a C-contiguous array of one or two dimensions, a Bundle, or a NamedTuple of these.
    pointers: int64[], address and shape of every array, for kernels; its own address is constant.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    pointers: Int64Array

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._fields = tuple(name for name in cls.__annotations__ if not name.startswith("_"))
        assert "pointers" not in cls._fields, "pointers is where a state keeps its pointers"

    def __init__(self, **values: Any) -> None:
        assert tuple(values) == self._fields, "a state needs its fields in their order"
        for name, value in values.items():
            setattr(self, name, value)
        words, self._kind = self._described()
        self.pointers = np.array(words, np.int64)
        self._address = self.pointers.ctypes.data

    def grow(self, **values: Any) -> None:
        """Replace the arrays of these fields by larger ones."""
        is_new = False
        for name, value in values.items():
            assert name in self._fields
            if getattr(self, name) is not value:
                setattr(self, name, value)
                is_new = True
        if is_new:
            self.pointers[:], self._kind = self._described()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy all arrays; `pointers` must hold the addresses of the copies."""
        return type(self)(**{name: deepcopy(getattr(self, name), memo) for name in self._fields})

    def _described(self) -> tuple[list[int], Kind]:
        words: list[int] = []
        kinds = tuple([append(getattr(self, name), words) for name in self._fields])
        cls = type(self)
        return words, kept_kind((STATE, cls.__module__, cls.__qualname__, kinds))

    def append_to(self, words: list[int]) -> Kind:
        """Pass it to a kernel."""
        words.append(self._address)
        return self._kind
