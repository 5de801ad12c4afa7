"""Reads TLS key logs from the file of an option or of the environment variable."""

import os
import stat
from collections.abc import Iterable
from functools import lru_cache
from typing import IO, Final

import numpy as np

from dissector import limits
from dissector.dissection import Dissection
from dissector.errors import InputError, needs
from dissector.options import Options
from dissector.sources.files import readable
from dissector.tls.keylog import KeyLog

VARIABLE: Final = "SSLKEYLOGFILE"
_READ_BYTES: Final = 1 << 24


def path_of(options: Options) -> str | None:
    """Return the key log of the options, else the environment's if that file exists."""
    if options.keylog is not None:
        return options.keylog
    named = os.environ.get(VARIABLE)
    return named if named and os.path.isfile(named) else None


def _unreadable(path: str, error: OSError) -> InputError:
    reason = error.strerror or str(error)
    return InputError(f"{readable(path)}: the key log cannot be read ({reason}); check the path")


def _needed() -> None:
    """Check that the library for decryption is installed.

    Raises:
        DependencyError: the library is missing.
    """
    with needs("tls", "without --keylog all commands work, and count TLS connections"):
        import dissector.tls.ciphers  # noqa: F401 - whoever names a key log wants to decrypt


@lru_cache(maxsize=1)
def _loaded(path: str, size: int, changed_ns: int) -> KeyLog:
    """Read a key log; cached as long as its size and mtime do not change."""
    keys = KeyLog()
    with open(path, "rb") as file:
        left = limits.MAX_KEY_LOG_BYTES
        while left > 0 and (part := file.read(min(_READ_BYTES, left))):
            keys.add(part, is_whole=False)
            left -= len(part)
    keys.add(b"")
    return keys


def keys_of(options: Options) -> KeyLog | None:
    """Return the key log of a run, read once; None if there is none.

    Raises:
        InputError: it cannot be read.
        DependencyError: the library for decryption is not installed.
    """
    path = path_of(options)
    if path is None:
        return None
    _needed()
    try:
        status = os.stat(path)
        return _loaded(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise _unreadable(path, error) from None


class FollowedKeyLog:
    """A key log that a running client extends while packets arrive.

    keys: the secrets so far.

    Raises:
        InputError: it cannot be read.
        DependencyError: what decrypts is not installed.
    """

    def __init__(self, path: str) -> None:
        _needed()
        self.keys = KeyLog(may_grow=True)
        self._path = path
        self._file: IO[bytes] | None = None
        try:
            self._open()
        except OSError as error:
            raise _unreadable(path, error) from None

    @classmethod
    def of(cls, options: Options) -> "FollowedKeyLog | None":
        """Return the key log of a run; None if there is none."""
        path = path_of(options)
        return None if path is None else cls(path)

    def _open(self) -> None:
        self._file = open(self._path, "rb")  # noqa: SIM115 - it stays open
        self._read()

    def _read(self) -> None:
        while self._file is not None and (part := self._file.read(_READ_BYTES)):
            self.keys.add(part, is_whole=False)

    def read(self) -> None:
        """Read the lines added since; a removed or shortened file is read from its start."""
        try:
            if self._file is None or os.stat(self._path).st_size < self._file.tell():
                self.close()
                self._open()
            else:
                self._read()
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def key_lines(capture: bytearray, options: Options, others: Iterable[bytes] = ()) -> str:
    """Return the lines of the key log that decrypt connections of a capture in memory.

    Args:
        others: further key logs.

    Raises:
        InputError: the key log cannot be read.
        DependencyError: what decrypts is not installed.
    """
    given = keys_of(options)
    keys = KeyLog() if given is None else given.widened()
    for text in others:
        keys.add(text)
    dissection = Dissection(options, keys=keys)
    dissection.start_file()
    dissection.feed(np.frombuffer(capture, np.uint8), 0, len(capture), True)
    dissection.end_file()
    dissection.finish()
    return "".join(f"{line}\n" for line in dissection.keys_used)


def complaints(options: Options) -> list[str]:
    """Return sentences about problems of the key log.

    Raises:
        InputError: it cannot be read.
        DependencyError: what decrypts is not installed.
    """
    keys, path = keys_of(options), path_of(options)
    if keys is None or path is None:
        return []
    name = readable(path)
    said: list[str] = []
    if os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        said.append(f"{name}: others can read these keys; chmod 600 closes it")
    if keys.broken_lines:
        numbers = ", ".join(map(str, keys.broken))
        more = " …" if keys.broken_lines > len(keys.broken) else ""
        many = "1 line is" if keys.broken_lines == 1 else f"{keys.broken_lines} lines are"
        said.append(f"{name}: {many} not a key log's and passed over: line {numbers}{more}")
    if not len(keys):
        said.append(f"{name}: holds no key of a connection")
    return said
