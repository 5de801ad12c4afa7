"""With what arguments kernels are called from Python: what has to be compiled beforehand.

Once a process records, kernels that are declared in it run as plain Python, and each call that does
not come from another kernel is passed to the recorder: what is compiled for it is then known
before anything is compiled, so several processes can share the work.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, Final

from dissector.native.arguments import FUNCTION, Kind, append

# Takes module and name of a kernel, and the kinds of its arguments or the text of its signature.
Recorder = Callable[[str, str, tuple[Kind, ...] | str], None]

_recorders: list[Recorder] = []
_depth: Final = threading.local()


def record(recorder: Recorder) -> None:
    """Record from now on, in the kernels of modules that are imported from now on."""
    _recorders.append(recorder)


def is_recording() -> bool:
    """Whether kernels are plain Python that is recorded."""
    return bool(_recorders)


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that runs as Python; named arguments and defaults count as those they stand for."""
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
