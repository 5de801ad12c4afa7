"""A test that never ends ends its process, with a message that names it and says where it is.

A timer's thread waits beside the test: kernels run without the interpreter's lock, so it runs
beside a kernel that loops for ever, too. Behind it waits a thread of `faulthandler`, which needs no
lock.
"""

import faulthandler
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

PATIENCE: Final = "TEST_PATIENCE_SECONDS"  # of the environment: how long one test may take
PATIENCE_SECONDS: Final = 900  # compiling on a busy machine included
EXIT_CODE: Final = 70
_BEHIND_SECONDS: Final = 10


def own_stderr() -> TextIO:
    """A copy of standard error that nobody captures."""
    return os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")


def patience() -> float:
    """How many seconds a test may take."""
    return float(os.environ.get(PATIENCE, PATIENCE_SECONDS))


def _end(name: str, seconds: float, stream: TextIO) -> None:
    print(f"\n{name} took more than {seconds:g} s and was ended. It was here:", file=stream)
    faulthandler.dump_traceback(file=stream, all_threads=True)
    os._exit(EXIT_CODE)


@contextmanager
def watched(name: str, seconds: float, stream: TextIO) -> Iterator[None]:
    """End the process if what is inside takes longer; `stream` has a file descriptor."""
    timer = threading.Timer(seconds, _end, (name, seconds, stream))
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + _BEHIND_SECONDS, exit=True, file=stream)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()
