"""Messages while kernels are compiled: the reason at once, then the progress.

After an installation without compiled code the first command compiles the kernels that it needs;
later commands load these from the cache.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from dissector.cli.terminal import NORMAL, Messages, draw_line

# Kernels that `doctor --warm` compiles; a test holds the number. Half of the time goes into five of
# them, so what is left is no proportion.
KERNELS: Final = 84
# On two idle processors: 30 seconds on the fastest machine that was measured, 100 on the slowest.
_TIME: Final = "one or two minutes"
_EVERY_SECONDS: Final = 20.0


def is_all_kept() -> bool:
    """Whether the package or the cache has the compiled code of all kernels as they are now."""
    from dissector.native.code import kept_list
    from dissector.native.digests import program_digest

    return bool(kept_list(program_digest()).names)


def can_be_kept() -> bool:
    """Whether the next process can load code that this one compiles."""
    from dissector.jit import cache_folder
    from dissector.native import trust

    try:
        with trust.folder(cache_folder(), make=True) as folder:
            return os.access(".", os.W_OK | os.X_OK, dir_fd=folder)
    except (OSError, trust.DistrustedError):
        return False


def is_needed() -> bool:
    """Whether compiling everything beforehand saves other processes work."""
    from dissector.jit import compiled

    return compiled() and not is_all_kept() and can_be_kept()


class Compiling:
    """Reports the compiler's progress on standard error: one changing line on a terminal, else a
    line now and then.

    Args:
        words: prints messages at the user's level.
        is_drawn: whether a line may change on a terminal.
        clock: seconds.
    """

    def __init__(
        self,
        words: Messages,
        is_drawn: bool,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._words = words
        self._is_drawn = is_drawn
        self._stream = stream
        self._clock = clock
        self._done: int | None = None  # kernels compiled by now; None: not looked yet
        self._is_silent = False
        self._reported_at = 0.0

    def __call__(self, name: str | None) -> None:
        """Report that a kernel's compilation begins; None: that it has ended."""
        if self._words.loudness < NORMAL or self._is_silent:
            return
        if name is None:
            self._done = (self._done or 0) + 1
            self._draw("")
        else:
            self._begin(name)

    def _begin(self, name: str) -> None:
        if self._done is None and not self._introduce():
            return
        assert self._done is not None
        number = self._done + 1
        # Rare argument types need further kernels.
        text = f"compiling kernel {number} of about {max(KERNELS, number)}"
        if self._draw(f"dissector: {text}: {name.removeprefix('dissector.')}"):
            return
        if self._clock() - self._reported_at >= _EVERY_SECONDS:
            self._reported_at = self._clock()
            self._words.say(text)

    def _introduce(self) -> bool:
        """Announce a compilation unless all other kernels are cached; return whether it did."""
        if is_all_kept():
            self._is_silent = True
            return False
        self._done = 0
        self._reported_at = self._clock()
        text = "compiling kernels for this processor"
        if can_be_kept():
            text += f", once; all {KERNELS} take {_TIME}"
            text += ": `dissector doctor --warm` does it beforehand"
        else:
            text += f"; all {KERNELS} take {_TIME}, and each run compiles again"
        self._words.say(text)
        return True

    def _draw(self, text: str) -> bool:
        """Replace the last line of the terminal; empty: erase it. False if there is no terminal."""
        return self._is_drawn and draw_line(text, self._stream or sys.stderr)
