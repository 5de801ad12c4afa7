"""Reads small inputs with kernels in plain Python, if none is compiled yet.

Kernels are the same text either way, and so are the rows (`dissector.jit`). Compiling takes half a
minute, once; a few hundred packets take seconds without.
"""

import array
import fcntl
import glob
import os
import select
import stat
import sys
import termios
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from dissector.cli.terminal import Messages
from dissector.limits import MAX_UNCOMPILED_BYTES

# So many times larger what is in a compressed file is taken to be; captures are seldom more.
_UNPACKED: Final = 20
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\xfd7zXZ")
_WRITER_MS: Final = 300  # for the writer of a pipe to be through
_SWITCH: Final = "NUMBA_DISABLE_JIT"  # also for the processes that this one starts
# Where kernels are declared; from then on it is too late to choose.
_STANDARD_INPUT: Final = "/dev/stdin"
_DECLARING: Final = "dissector.jit"


def choose(inputs: Sequence[str], words: Messages) -> None:
    """Run kernels as plain Python in this process, and say so, if none is compiled and the inputs
    are small."""
    if not inputs:
        return
    if _DECLARING in sys.modules or _SWITCH in os.environ or _is_some_code_kept():
        return
    size = size_of(inputs)
    if size is None or size > MAX_UNCOMPILED_BYTES:
        return
    os.environ[_SWITCH] = "1"
    words.say(
        "no compiled kernels yet: an input as small as this is read without, slowly; "
        "`dissector doctor --warm` compiles them"
    )


def _is_some_code_kept() -> bool:
    from dissector.native.code import has_code

    return has_code()


def size_of(inputs: Iterable[str]) -> int | None:
    """The size of the inputs, bytes; None if it is unknown, or there are none."""
    sizes = []
    if any("://" in text for text in inputs):
        return None  # to ask a store costs more than to know
    for path in _files(inputs):
        with suppress(OSError):
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                sizes.append(status.st_size * (_UNPACKED if _is_compressed(path) else 1))
            elif path == _STANDARD_INPUT and (waiting := _last_of_pipe()) is not None:
                sizes.append(waiting)
            else:
                return None
    return sum(sizes) if sizes else None


def _last_of_pipe() -> int | None:
    """The bytes waiting in standard input, without reading them; None if more may follow."""
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    if not any(events & select.POLLHUP for _, events in poll.poll(_WRITER_MS)):
        return None
    count = array.array("i", [0])
    fcntl.ioctl(0, termios.FIONREAD, count)
    return count[0]


def _files(inputs: Iterable[str]) -> Iterator[str]:
    """Files that inputs may stand for: what decides on that (`sources.inputs`) declares kernels."""
    for text in inputs:
        for path in [text] if os.path.lexists(text) else glob.glob(text, recursive=True):
            if os.path.isdir(path):
                for folder, _, names in os.walk(path):
                    yield from (os.path.join(folder, name) for name in names)
            else:
                yield path
        if text == "-":
            yield _STANDARD_INPUT


def _is_compressed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(6).startswith(_COMPRESSED)
