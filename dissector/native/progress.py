"""Notice of each kernel that is being compiled, which takes seconds: the command line shows it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Takes the name of a kernel when its compiling begins, and None when it is over.
Listener = Callable[[str | None], None]

_listeners: list[Listener] = []  # one for the whole process, or none


def listen(listener: Listener | None) -> None:
    """Call this listener from now on, in the place of the one before; None: nobody."""
    _listeners[:] = [listener] if listener else []


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Notify the listener that a kernel is compiled while the body runs."""
    if not _listeners:
        yield
        return
    listener = _listeners[0]
    listener(name)
    try:
        yield
    finally:
        listener(None)
