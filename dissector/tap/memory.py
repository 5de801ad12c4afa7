"""Memory of a tap: how much is in use, and when open state must be discarded to free it."""

import ctypes
import gc
import re
import sys
from collections.abc import Callable
from typing import Final

_PAGE_BYTES: Final = 4096
_SPARE: Final = 4  # discard again only after growth by this part of the memory left in use


def resident_bytes() -> int:
    """Resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def available_bytes() -> int | None:
    """Available memory of the system in bytes, None if it does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            match = re.search(r"^MemAvailable:\s+(\d+) kB", file.read(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def give_back() -> None:
    """Return free memory from the allocator to the system."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class MemoryLimit:
    """A limit on the memory of a tap.

    The minimum that a tap needs may exceed it (the ring, the recorder's packets, tables at their
    first size). Discarding open state repeatedly would then be useless: after the first time it is
    repeated only when memory has grown by a quarter of what was left in use.
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
        """The bytes in use if they exceed the limit even after free memory was returned."""
        if self._measure() <= self._limit:
            return None
        self._free()
        in_use = self._measure()
        return in_use if in_use > self._limit else None

    def begin_anew(self) -> None:
        """Note that open state was discarded."""
        self._free()
        left = self._measure()
        self._limit = max(self._limit, left + left // _SPARE)
