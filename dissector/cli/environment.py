"""Settings of the command's process: keep freed memory, rarely collect garbage, one algebra thread.

Imported before anything that imports numpy; the library itself never does this.
Measured on 300 MB of small frames, in processor time: memory given back to the system and asked for
again cost 0.3 s, searches for garbage among the objects of a start 0.2 s, threads of an algebra
library that nothing here uses 0.05 s.
"""

import signal

try:
    # Until all modules are imported the system ends the process, with no traceback of an import.
    _is_deaf = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if _is_deaf:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except ValueError:
    _is_deaf = False  # only the main thread may change that

import atexit
import gc
import os
import sys
from contextlib import suppress
from typing import Final

_TURN_SECONDS: Final = 0.0005
_YOUNG_OBJECTS: Final = 200_000
_KEPT_BYTES: Final = 256 << 20
# Parameters of glibc's mallopt: keep free memory at the heap's end; use the heap up to a size; one
# heap for all threads, as memory freed by one is mostly reused by another (30 of 580 MB).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGEST_MMAP_THRESHOLD: Final = 32 << 20


def _keep_memory() -> None:
    """Keep freed memory in the process between two blocks, if the allocator is glibc's."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # takes long, see below

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_ARENA_MAX, 1)


def hear_interrupts() -> None:
    """Let interrupts raise KeyboardInterrupt again: all modules of the command are imported."""
    if _is_deaf:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave_with(code: int) -> None:
    """Let the process end with this exit code: the command is over, and all output is written."""
    _codes.append(code)


def _leave() -> None:
    """Exit without freeing objects one by one: saves 0.03 s, after a report 0.2 s.

    Runs after all other exit handlers, as it was registered first.
    """
    if _codes:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(_codes[-1])


for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
_keep_memory()
# The interval at which threads switch; kernels that run without the GIL wait for it less.
sys.setswitchinterval(_TURN_SECONDS)
gc.set_threshold(_YOUNG_OBJECTS, 50, 100)
_codes: Final[list[int]] = []
atexit.register(_leave)
