"""Reports each kernel that is being compiled, which takes seconds, to the command line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Called with a kernel's name when its compilation begins, and with None when it ends.
Listener = Callable[[str | None], None]

_listeners: list[Listener] = []  # one for the whole process, or none


def listen(listener: Listener | None) -> None:
    """Replace the listener; None removes it."""
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
