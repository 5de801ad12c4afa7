"""Key logs of TLS from files."""

import os
import stat
from functools import lru_cache
from typing import Final

from dissector.errors import InputError
from dissector.options import Options
from dissector.sources.files import readable
from dissector.tls.keylog import KeyLog

VARIABLE: Final = "SSLKEYLOGFILE"
_MAX_BYTES: Final = 1 << 30
_READ_BYTES: Final = 1 << 24


@lru_cache(maxsize=1)
def _loaded(path: str, size: int, changed_ns: int) -> KeyLog:
    keys = KeyLog()
    with open(path, "rb") as file:
        left = _MAX_BYTES
        while left > 0 and (part := file.read(min(_READ_BYTES, left))):
            keys.add(part, is_whole=False)
            left -= len(part)
    keys.add(b"")
    return keys


def keys_of(options: Options) -> KeyLog | None:
    """The key log that options name, read once; None if they name none.

    Raises:
        InputError: it cannot be read.
    """
    if options.keylog is None:
        return None
    try:
        status = os.stat(options.keylog)
        return _loaded(options.keylog, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise InputError(
            f"{readable(options.keylog)}: the key log cannot be read "
            f"({error.strerror or error}); check the path"
        ) from None


def complaints(options: Options) -> list[str]:
    """What a user should know of a key log: each in one sentence.

    Raises:
        InputError: it cannot be read.
    """
    keys = keys_of(options)
    if keys is None or options.keylog is None:
        return []
    name = readable(options.keylog)
    said: list[str] = []
    if os.stat(options.keylog).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        said.append(f"{name}: others can read these keys; chmod 600 closes it")
    if keys.broken_lines:
        numbers = ", ".join(map(str, keys.broken))
        more = " …" if keys.broken_lines > len(keys.broken) else ""
        many = "1 line is" if keys.broken_lines == 1 else f"{keys.broken_lines} lines are"
        said.append(f"{name}: {many} not a key log's and passed over: line {numbers}{more}")
    if not len(keys):
        said.append(f"{name}: holds no key of a connection")
    return said
