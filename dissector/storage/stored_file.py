"""A file in a store, read in order: ranges that grow, the next ones on their way meanwhile."""

import io
from collections import deque
from concurrent.futures import Future
from threading import Thread
from typing import Final

from dissector.limits import STORE_RANGE_BYTES, STORE_RANGES_AHEAD
from dissector.storage.addresses import parsed
from dissector.storage.store import Entry, Store
from dissector.storage.stores import entry_of, store_of

_FIRST_BYTES: Final = 1 << 16  # what shows whether a file is a capture
_GROWTH: Final = 4


class StoredFile(io.RawIOBase):
    """The bytes of one version of a file.

    Ranges begin with _FIRST_BYTES and grow to STORE_RANGE_BYTES as long as reading goes on where it
    was; STORE_RANGES_AHEAD of the largest are then asked for before they are wanted.

    Raises:
        OSError: it is not there, was changed since it was first seen, or cannot be read.
        DependencyError: the library for its store is not installed.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._store: Store = store_of(parsed(path))
        self._entry: Entry = entry_of(path)
        self._position = 0
        self._range = memoryview(b"")  # what is left of the range that is read
        self._size = _FIRST_BYTES  # of the next range
        self._asked = 0  # up to where ranges were asked for
        self._ahead: deque[Future[bytes]] = deque()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; ranges grow anew from there."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.size}[whence]
        position = max(0, base + offset)
        if position != self._position:
            self._range, self._size = memoryview(b""), _FIRST_BYTES
            self._ahead.clear()
            self._position = self._asked = position
        return position

    def readinto(self, view: "memoryview | bytearray") -> int:  # type: ignore[override]
        """Fill some of view; returns how much, 0 at the end."""
        if not self._range:
            self._range = self._next_range()
        count = min(len(self._range), len(view))
        memoryview(view).cast("B")[:count] = self._range[:count]
        self._range = self._range[count:]
        self._position += count
        return count

    def close(self) -> None:
        """Forget what is on its way."""
        self._ahead.clear()
        self._range = memoryview(b"")
        super().close()

    def _next_range(self) -> memoryview:
        is_large = self._size == STORE_RANGE_BYTES
        if not self._ahead:
            self._ask()
        if not self._ahead:
            return memoryview(b"")
        wanted = self._ahead.popleft()
        while is_large and len(self._ahead) < STORE_RANGES_AHEAD and self._ask():
            pass
        return memoryview(wanted.result())

    def _ask(self) -> bool:
        """Ask for one more range; False at the end of the file."""
        start, end = self._asked, min(self._asked + self._size, self._entry.size)
        if start >= end:
            return False
        answer: Future[bytes] = Future()
        self._ahead.append(answer)
        self._asked = end
        if self._size < STORE_RANGE_BYTES:  # read by whoever waits for it
            _read(answer, self._store, self._entry, start, end)
        else:
            arguments = (answer, self._store, self._entry, start, end)
            Thread(target=_read, args=arguments, name="range of a store", daemon=True).start()
        self._size = min(self._size * _GROWTH, STORE_RANGE_BYTES)
        return True


def _read(answer: Future[bytes], store: Store, entry: Entry, start: int, end: int) -> None:
    try:
        answer.set_result(store.read(entry, start, end))
    except BaseException as error:
        answer.set_exception(error)
