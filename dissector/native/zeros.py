"""Arrays of zeros whose pages cost time and memory only when they are written.

`numpy.zeros` has this property only in a young process: later the C library reuses freed memory,
which it must clear. Each capture allocates some 60 MB, of which a small one uses little: clearing
them took 2 ms, as long as reading 200 frames.
"""

import math
import mmap
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_OWN_PAGES_FROM: Final = 1 << 19  # bytes; clearing a smaller array is faster than mapping it
_LARGE_PAGES_FROM: Final = 1 << 22  # bytes, as in numpy


def zeros(shape: int | tuple[int, ...], kind: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """As `numpy.zeros`, but large arrays are mapped anonymously."""
    item = np.dtype(kind)
    size = item.itemsize * (shape if isinstance(shape, int) else math.prod(shape))
    if size < _OWN_PAGES_FROM:
        return np.zeros(shape, item)
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _LARGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # an operating system without large pages refuses
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, item).reshape(shape)
