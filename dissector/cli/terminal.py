"""A run's output beside its data: messages and progress on stderr, colours, safe text."""

import os
import re
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from dissector.codecs.printable import safe_text as safe_text
from dissector.report.formatting import many

if TYPE_CHECKING:
    from rich.console import Console

MIN_COLUMNS: Final = 40  # narrower terminals get lines of this width
UNKNOWN_COLUMNS: Final = 80  # of a terminal of unknown width
QUIET_SECONDS: Final = 20.0  # without a terminal: the time before the first message of progress
QUIET: Final = 0  # errors, and what is missing
NORMAL: Final = 1
VERBOSE: Final = 2

_MAYBE_WIDE: Final = re.compile("[\u1100-\u1fff\u2300-\U0010ffff]")  # none of the others is

counted: Final = many  # the only function for counted nouns, under the name used here

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")
_STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def bytes_text(count: int) -> str:
    """A size for people: 1.09 MB; units of 1000 bytes."""
    size = float(count)
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1000
    raise AssertionError("the last unit takes everything")


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Columns in which lines wrap: COLUMNS if it is set, else the terminal's.

    None for a pipe or a file: each sentence stays one line there, for grep and for comparing.
    """
    if os.environ.get("COLUMNS", "").isdecimal():
        return max(int(os.environ["COLUMNS"]), MIN_COLUMNS)
    target = stream or sys.stdout
    if not target.isatty():
        return None
    return max(shutil.get_terminal_size((UNKNOWN_COLUMNS, 24)).columns, MIN_COLUMNS)


def wrapped(text: str, width: int | None, indent: str = "", keeps: int = 0) -> list[str]:
    """Wrap a text. The first line keeps the text's own indent, further lines begin with `indent`.

    A number stays on one line with its noun if both fit; a word longer than a line is broken,
    numbers never are, since they are shorter than any line.

    Args:
        keeps: characters at the text's start that stay unchanged.
    """
    if width is None or len(text) <= width:
        return [text]
    start = text[: max(keeps, len(text) - len(text.lstrip()))]
    # "12.3 ms" and "99 %" stay together.
    body = re.sub(r"(\d) (%|[a-zµ]{1,2}\b|[KMG]iB)", "\\1\N{NO-BREAK SPACE}\\2", text[len(start) :])
    lines = textwrap.wrap(
        body, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def columns_of(text: str) -> int:
    """The width of a text in terminal columns; East Asian letters have two."""
    if text.isascii() or not _MAYBE_WIDE.search(text):
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(one) in "WF" for one in text)


def clipped(text: str, width: int | None) -> str:
    """A text cut to a line's width, with … at the cut."""
    if width is None or columns_of(text) <= width:
        return text
    text = text[: width - 1]
    while columns_of(text) >= width:
        text = text[:-1]
    return f"{text.rstrip()}…"


class Messages:
    """Prints messages of the user's level on stderr, one line each."""

    def __init__(self, loudness: int = NORMAL, stream: TextIO | None = None) -> None:
        self.loudness = loudness
        self._stream = stream

    def say(self, text: str, at: int = NORMAL) -> None:
        """Print a line if the user's level includes `at`."""
        if self.loudness >= at:
            print(f"dissector: {safe_text(text)}", file=self._stream or sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """Print a line that only -v shows."""
        self.say(text, VERBOSE)

    def missing(self, text: str) -> None:
        """Print a line that -q shows too: something of the input is not in the output."""
        self.say(text, QUIET)


class Paint:
    """Colours text for standard output, or returns it unchanged."""

    def __init__(self, choice: str = "auto", stream: TextIO | None = None) -> None:
        target = stream or sys.stdout
        has_color = target.isatty() and not os.environ.get("NO_COLOR")
        if os.environ.get("TERM") == "dumb":
            has_color = False
        self.is_on = choice == "always" or (choice == "auto" and has_color)

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.is_on else text


class StepReport(Protocol):
    """Called with the number of finished parts, of all parts, and the name of the current one."""

    def __call__(self, done: int, total: int, what: str) -> None: ...


class ByteProgress(Protocol):
    """Called with the number of bytes read so far, of all inputs together."""

    def __call__(self, bytes_read: int) -> None: ...


def no_progress(bytes_read: int) -> None:
    """Shows nothing."""


class WordsOfProgress:
    """Progress where there is no terminal: a line after QUIET_SECONDS, each pause twice as long."""

    def __init__(
        self,
        title: str,
        total_bytes: int,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._of = f" of {bytes_text(total_bytes)}" if total_bytes else ""
        self._title, self._say, self._clock = title, say, clock
        self._began = clock()
        self._due = self._pause = QUIET_SECONDS

    def __call__(self, bytes_read: int) -> None:
        passed = self._clock() - self._began
        if passed >= self._due:
            self._pause *= 2
            self._due = passed + self._pause
            read = f"{bytes_text(bytes_read)}{self._of} of input"
            self._say(f"still {self._title} after {passed:.0f} s: {read} read so far")


class _Shown:
    """The bar on the terminal, if any: only one line can change at a time."""

    instead: Callable[[str], None] | None = None


def shown_instead(text: str) -> bool:
    """Show a text in place of the bar's title; empty: restore the title. Returns False without a
    bar."""
    if _Shown.instead is None:
        return False
    _Shown.instead(text)
    return True


def draw_line(text: str, stream: TextIO) -> bool:
    """Replace the last line of a terminal, through the bar if there is one; empty: erase it.
    Returns False without a terminal."""
    if not stream.isatty():
        return False
    if not shown_instead(text):
        stream.write(f"\r\x1b[K{text[:100]}")
        stream.flush()
    return True


def show_fetching(done: int, total: int, where: str) -> None:
    """Show on a terminal how much of a store has been downloaded."""
    text = f"fetching {bytes_text(done)} of {bytes_text(total)} from {safe_text(where)}"
    draw_line(text if done < total else "", sys.stderr)


def _console(color: str) -> "Console":
    """The terminal of a bar, with colours as `Paint` has them."""
    from rich.console import Console

    is_colored = Paint(color, sys.stderr).is_on
    system: Final = "auto" if is_colored else None
    return Console(stderr=True, color_system=system, no_color=not is_colored)


@contextmanager
def progress_bar(
    title: str, total_bytes: int, is_shown: bool, color: str
) -> Iterator[ByteProgress]:
    """A bar with percent and bytes on stderr while the body runs.

    Args:
        total_bytes: size of all inputs on disk, 0 if unknown.
        is_shown: the user did not turn it off. Without a terminal, few messages replace the bar.
        color: see `Paint`.
    """
    if not is_shown:
        yield no_progress
        return
    if not sys.stderr.isatty():
        yield WordsOfProgress(title, total_bytes, Messages().say)
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>5.1f} %"),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=_console(color), transient=True) as bar:
        task = bar.add_task(title, total=total_bytes or None)
        _Shown.instead = lambda text: bar.update(task, description=text or title)
        try:
            yield lambda bytes_read: bar.update(task, completed=bytes_read)
        finally:
            _Shown.instead = None


def no_step(done: int, total: int, what: str) -> None:
    """Shows nothing."""


@contextmanager
def steps_bar(unit: str, is_shown: bool, color: str) -> Iterator[StepReport]:
    """A bar on stderr that counts parts while the body runs: 3 of 11 sections, and at which it is.

    Args:
        unit: what is counted. is_shown: the user did not turn it off; it still needs a terminal.
        color: see `Paint`.
    """
    if not is_shown or not sys.stderr.isatty():
        yield no_step
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed} of {task.total} " + unit + ", now {task.description}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=_console(color), transient=True) as bar:
        task = bar.add_task("", total=0)
        at = ""

        def step(done: int, total: int, what: str) -> None:
            nonlocal at
            at = safe_text(what)
            bar.update(task, completed=done, total=total, description=at, refresh=True)

        _Shown.instead = lambda text: bar.update(task, description=text or at, refresh=True)
        try:
            yield step
        finally:
            _Shown.instead = None
