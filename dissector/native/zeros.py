"""Arrays of zeros of which only what is written takes time and memory, whenever they are made.

`numpy.zeros` promises that of a process that is young: later the C library gives memory out again
that was freed, and has to clear all of it. Each capture begins with some 60 MB of room, of which a
small one uses little: to clear it took 2 ms, as long as to read 200 frames.
"""

import math
import mmap
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_OWN_PAGES_FROM: Final = 1 << 19  # smaller ones are cleared sooner than they are mapped
_LARGE_PAGES_FROM: Final = 1 << 22  # as numpy has it


def zeros(shape: int | tuple[int, ...], kind: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """As `numpy.zeros`; a large array has pages of its own."""
    item = np.dtype(kind)
    size = item.itemsize * (shape if isinstance(shape, int) else math.prod(shape))
    if size < _OWN_PAGES_FROM:
        return np.zeros(shape, item)
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _LARGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without large pages refuses, and gives small ones
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, item).reshape(shape)
