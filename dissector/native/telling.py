"""Who is told that a kernel is being compiled, which takes seconds: the command line says so."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Takes the name of a kernel when its compiling begins, and None when it is over.
Listener = Callable[[str | None], None]


class _Told:
    """The one listener of the process; nobody at first."""

    listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Tell this one from now on, in the place of who was told so far."""
    _Told.listener = listener


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Tell that a kernel is compiled while the body runs."""
    listener = _Told.listener
    if listener is None:
        yield
        return
    listener(name)
    try:
        yield
    finally:
        listener(None)
