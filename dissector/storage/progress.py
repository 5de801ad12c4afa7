"""Reports the progress of fetching from a store to the command line."""

from collections.abc import Callable

# Called with bytes fetched, total bytes, and the address; both numbers are equal at the end.
Listener = Callable[[int, int, str], None]

_listeners: list[Listener] = []  # one for the whole process, or none


def listen(listener: Listener | None) -> None:
    """Replace the listener; None removes it."""
    _listeners[:] = [listener] if listener else []


def tell(done: int, total: int, where: str) -> None:
    """Notify the listener."""
    for listener in _listeners:
        listener(done, total, where)
