"""Notice of bytes that come from a store: the command line shows how far it is."""

from collections.abc import Callable

# Takes the bytes that are here, of how many, and from where; they are equal when it is over.
Listener = Callable[[int, int, str], None]

_listeners: list[Listener] = []  # one for the whole process, or none


def listen(listener: Listener | None) -> None:
    """Call this listener from now on, in the place of the one before; None: nobody."""
    _listeners[:] = [listener] if listener else []


def tell(done: int, total: int, where: str) -> None:
    """Notify the listener."""
    for listener in _listeners:
        listener(done, total, where)
