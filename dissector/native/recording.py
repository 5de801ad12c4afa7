"""Records the argument kinds of kernel calls from Python, to compile the kernels ahead.

While a process records, kernels that it declares run as plain Python, and each call that does not
come from another kernel is passed to the recorder. So the kernels to compile are known before any
is compiled, and several processes can compile them.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, Final

from dissector.native.arguments import FUNCTION, Kind, append

# Called with module and name of a kernel, and its argument kinds or the text of its signature.
Recorder = Callable[[str, str, tuple[Kind, ...] | str], None]

_recorders: list[Recorder] = []
_depth: Final = threading.local()


def record(recorder: Recorder) -> None:
    """Start recording, in the kernels of modules that are imported afterwards."""
    _recorders.append(recorder)


def is_recording() -> bool:
    """Whether kernels run as recorded plain Python."""
    return bool(_recorders)


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel to run as Python and record; keywords and defaults become positional."""
    count = function.__code__.co_argcount
    names = function.__code__.co_varnames[:count]

    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        if getattr(_depth, "value", 0) == 0:
            defaults = function.__defaults__ or ()
            others = dict(zip(names[count - len(defaults) :], defaults, strict=True)) | named
            values = [*arguments, *(others[name] for name in names[len(arguments) :])]
            kinds = tuple([append(value, []) for value in values])
            _recorders[0](function.__module__, function.__qualname__, kinds)
        _depth.value = getattr(_depth, "value", 0) + 1
        try:
            return function(*arguments, **named)
        finally:
            _depth.value -= 1

    run.py_func = function  # type: ignore[attr-defined]
    return run


class RecordedCallback:
    """A function that kernels take as a value."""

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self._run = recorded(function)
        self._kind: Kind = (FUNCTION, signature)
        _recorders[0](function.__module__, function.__qualname__, signature)

    def __call__(self, *arguments: Any) -> Any:
        return self._run(*arguments)

    def append_to(self, words: list[int]) -> Kind:
        """Pass it to a kernel."""
        words.append(0)
        return self._kind
