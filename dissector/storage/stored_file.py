"""Reads a file of a store sequentially, in growing ranges, and requests the next ranges ahead."""

import io
from collections import deque
from concurrent.futures import Future
from threading import Thread
from typing import Final

from dissector.limits import STORE_RANGE_BYTES, STORE_RANGES_AHEAD
from dissector.storage.addresses import parsed
from dissector.storage.store import Entry, Store
from dissector.storage.stores import entry_of, store_of

_FIRST_BYTES: Final = 1 << 16  # enough to recognize a capture
_GROWTH: Final = 4


class StoredFile(io.RawIOBase):
    """The bytes of one version of a file.

    Ranges grow from _FIRST_BYTES to STORE_RANGE_BYTES while reading is sequential; then
    STORE_RANGES_AHEAD of the largest are requested ahead.

    Raises:
        OSError: the file is missing, has changed since it was first seen, or cannot be read.
        DependencyError: the library for its store is not installed.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._store: Store = store_of(parsed(path))
        self._entry: Entry = entry_of(path)
        self._position = 0
        self._range = memoryview(b"")  # unread rest of the current range
        self._size = _FIRST_BYTES  # of the next range
        self._requested = 0  # end offset of the ranges requested
        self._ahead: deque[Future[bytes]] = deque()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; a new position resets the range size."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.size}[whence]
        position = max(0, base + offset)
        if position != self._position:
            self._range, self._size = memoryview(b""), _FIRST_BYTES
            self._ahead.clear()
            self._position = self._requested = position
        return position

    def readinto(self, view: "memoryview | bytearray") -> int:  # type: ignore[override]
        """Fill a part of view; return its size in bytes, 0 at the end."""
        if not self._range:
            self._range = self._next_range()
        count = min(len(self._range), len(view))
        memoryview(view).cast("B")[:count] = self._range[:count]
        self._range = self._range[count:]
        self._position += count
        return count

    def close(self) -> None:
        """Discard pending ranges."""
        self._ahead.clear()
        self._range = memoryview(b"")
        super().close()

    def _next_range(self) -> memoryview:
        is_large = self._size == STORE_RANGE_BYTES
        if not self._ahead:
            self._request()
        if not self._ahead:
            return memoryview(b"")
        response = self._ahead.popleft()
        while is_large and len(self._ahead) < STORE_RANGES_AHEAD and self._request():
            pass
        return memoryview(response.result())

    def _request(self) -> bool:
        """Request one more range; return False at the end of the file."""
        start, end = self._requested, min(self._requested + self._size, self._entry.size)
        if start >= end:
            return False
        response: Future[bytes] = Future()
        self._ahead.append(response)
        self._requested = end
        if self._size < STORE_RANGE_BYTES:  # read in this thread
            _read(response, self._store, self._entry, start, end)
        else:
            arguments = (response, self._store, self._entry, start, end)
            Thread(target=_read, args=arguments, name="range of a store", daemon=True).start()
        self._size = min(self._size * _GROWTH, STORE_RANGE_BYTES)
        return True


def _read(response: Future[bytes], store: Store, entry: Entry, start: int, end: int) -> None:
    try:
        response.set_result(store.read(entry, start, end))
    except BaseException as error:
        response.set_exception(error)
