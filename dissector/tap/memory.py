"""Memory of a tap: how much is in use, and when open state must be given up for it."""

import ctypes
import gc
import re
import sys
from collections.abc import Callable
from typing import Final

_PAGE_BYTES: Final = 4096
_SPARE: Final = 4  # a restart is worth it where memory grew by this part of what the last one left


def resident_bytes() -> int:
    """Memory of this process that is in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def available_bytes() -> int | None:
    """Memory of the system that programs can still get, None where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            match = re.search(r"^MemAvailable:\s+(\d+) kB", file.read(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def give_back() -> None:
    """Give the system what is free; the allocator keeps it otherwise."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class MemoryLimit:
    """A number of bytes that a tap shall not use more of.

    What it needs at least may be more than that (the ring, the packets that are recalled, tables at
    their first size). Then giving up open state again and again would only lose it: after one time
    it is done again where memory has grown by a quarter of what was left in use.
    """

    def __init__(
        self,
        limit: int,
        measure: Callable[[], int] = resident_bytes,
        free: Callable[[], None] = give_back,
    ) -> None:
        self._limit = limit
        self._measure = measure
        self._free = free

    def passed(self) -> int | None:
        """The bytes in use if they are too many, also when what is free was given back."""
        if self._measure() <= self._limit:
            return None
        self._free()
        in_use = self._measure()
        return in_use if in_use > self._limit else None

    def begin_anew(self) -> None:
        """Open state was given up."""
        self._free()
        left = self._measure()
        self._limit = max(self._limit, left + left // _SPARE)
