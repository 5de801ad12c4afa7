"""Read the inputs of a command line as blocks of rows, with progress and an account."""

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn, Self, TextIO, cast

from dissector.cli.exits import EXIT_INTERRUPTED, EXIT_PARTIAL
from dissector.cli.options import Common
from dissector.cli.terminal import Messages, counted, progress_bar
from dissector.errors import InputError, UsageError

if TYPE_CHECKING:
    from dissector.blocks import TableBlock
    from dissector.sources.account import Account
    from dissector.sources.rings import Chain, ChainMode

STDIN: Final = "-"
STDIN_NAME: Final = "stdin"
_SPOOL_BYTES: Final = 8 << 20  # --strict keeps this much output in memory, then in a file


class Reading:
    """One pass over all captures of a command line.

    account: what was read, kept and lost so far.
    chains: the opened captures, in order; the account names the others.
    capture_ids: ids in a lake of the captures that were read to their end.
    """

    def __init__(self, inputs: Sequence[str], common: Common, mode: str = "auto") -> None:
        from dissector.sources.account import Account
        from dissector.sources.files import raise_if_nothing
        from dissector.sources.rings import chains

        self.common = common
        self.account = Account()
        plan = chains(inputs, cast("ChainMode", mode))
        self.chains: list[Chain] = plan.chains
        raise_if_nothing(plan.problems, len(plan.chains))
        for problem in plan.problems:
            self.account.miss(problem.text)
        for sentence in plan.repeated:
            common.words.say(sentence)
        self.total_bytes = sum(chain.stored_bytes for chain in self.chains)
        self.capture_ids: dict[Chain, str] = {}

    def files_of_captures(self) -> dict[str, tuple[str, ...]]:
        """The file paths of each capture that was read to its end, by capture id."""
        return {name: tuple(chain.files) for chain, name in self.capture_ids.items()}

    def last_ts_ns(self) -> int | None:
        """Time of the last packet of all captures; None without packets.

        Raises:
            UsageError: a capture is read from a pipe.
        """
        from dissector.sources.file_times import last_ts_ns

        paths = [chain.files[-1] for chain in self.chains]
        if any(map(_is_pipe, paths)):
            raise UsageError(
                "times such as -30m count back from the last packet, which a pipe does not tell: "
                "write 2026-01-31T12:00, or name a file"
            )
        times = map(last_ts_ns, paths)
        return max((each for each in times if each is not None), default=None)

    def refuse_if_partial(self) -> None:
        """Raise if a part of the input is missing and --strict is given."""
        if self.common.is_strict and self.account.is_partial:
            raise InputError(f"--strict: nothing written, {self.account.missing[0]}")

    def blocks(
        self, title: str, is_quiet: bool = False, **core: Any
    ) -> Iterator[tuple["Chain", "TableBlock"]]:
        """Dissect every capture; yield its blocks.

        Args:
            title: of the progress bar. is_quiet: draw none, as the terminal shows the output.
            core: further options of the core.

        Raises:
            InputError: none of the captures could be read.
        """
        from dissector.lake.digest import ChainDigest
        from dissector.lake.manifest import capture_id
        from dissector.sources.dissect import dissect

        options = self.common.core_options(**core)
        failures: list[InputError] = []
        shown = self.common.is_progress_shown and not is_quiet
        with progress_bar(title, self.total_bytes, shown, self.common.color) as progress:
            done = 0
            for chain in self.chains:
                try:
                    advance = _from(progress, done)
                    self.account.name = chain.base_name
                    self.account.file_names = chain.shown_names
                    digest = ChainDigest()
                    for block in dissect(chain, options, advance, digest=digest):
                        self.account.add(block)
                        yield chain, block
                    self.capture_ids[chain] = capture_id(chain.base_name, digest.sha256())
                except InputError as error:
                    failures.append(error)
                    self.account.miss(str(error))
                done += chain.stored_bytes
        if len(failures) == len(self.chains) or self.account.is_unreadable:
            raise_last_missing(self.account, self.common.words)

    def end(self, is_interrupted: bool = False) -> int:
        """Print what was read, kept and lost; return the exit code.

        Raises:
            InputError: a part of the input is missing and --strict is given.
        """
        words = self.common.words
        self.refuse_if_partial()
        tell_missing(self.account, words)
        sentence = self.account.sentence()
        if is_interrupted:
            words.say(f"interrupted; what was closed by then: {sentence}")
        elif self.account.is_partial:
            words.missing(sentence)
        else:
            words.say(sentence)
        if is_interrupted:
            return EXIT_INTERRUPTED
        return EXIT_PARTIAL if self.account.is_partial else 0


def tell_missing(account: "Account", words: Messages) -> None:
    """Print the parts of the input that were not read; with -q the first one alone."""
    _tell(account.missing, account.missing_count, words)


def _tell(sentences: Sequence[str], count: int, words: Messages) -> None:
    shown = sentences if words.loudness else sentences[:1]
    for sentence in shown:
        words.missing(sentence)
    left = count - len(shown)
    if left > 0:
        words.missing(f"… and {counted(left, 'more part')} of the input")


def raise_last_missing(account: "Account", words: Messages) -> NoReturn:
    """Nothing could be read: print the other inputs, then raise the last one's error.

    Raises:
        InputError: always.
    """
    if words.loudness:
        _tell(account.missing[:-1], account.missing_count - 1, words)
    raise InputError(account.missing[-1])


def _from(progress: Callable[[int], None], done: int) -> Callable[[int], None]:
    return lambda bytes_read: progress(done + bytes_read)


@contextmanager
def rereadable(inputs: Sequence[str]) -> Iterator[list[str]]:
    """Inputs that can be read twice: standard input and pipes are files while the body runs."""
    if not any(map(_is_pipe, inputs)):
        yield list(inputs)
        return
    from dissector.report.workspace import temporary
    from dissector.sources.files import COPIED

    with temporary() as folder:
        files = {name: folder / str(at) for at, name in enumerate(inputs) if _is_pipe(name)}
        for name, target in files.items():
            target.mkdir()
            files[name] = target / (STDIN_NAME if name == STDIN else os.path.basename(name))
            with files[name].open("wb") as file:
                _copy(name, file)
        COPIED.update((str(target), name) for name, target in files.items())
        yield [str(files.get(name, name)) for name in inputs]


def _copy(name: str, file: BinaryIO) -> None:
    """Copy standard input or a pipe to its end.

    Raises:
        InputError: it is closed, or cannot be opened.
    """
    if name == STDIN:
        try:
            shutil.copyfileobj(sys.stdin.buffer, file)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise  # of the file
            raise InputError("stdin: is closed; give it a capture, or name a file") from error
        return
    from dissector.sources.files import unreadable

    try:
        pipe = open(name, "rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise InputError(unreadable(name, error).text) from error
    with pipe:
        shutil.copyfileobj(pipe, file)


def _is_pipe(name: str) -> bool:
    """Whether an input is standard input or a pipe, as of mkfifo or `<(zcat night.pcap.gz)`."""
    try:
        return name == STDIN or stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False


class LineOutput:
    """Lines on standard output; with --strict they are buffered until the input is complete."""

    def __init__(self, is_strict: bool) -> None:
        self._spool: Any = None
        if is_strict:
            self._spool = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed in __exit__
                _SPOOL_BYTES, "w+", encoding="utf-8", newline=""
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._spool is not None:
            self._spool.close()

    @property
    def stream(self) -> TextIO:
        """The file that lines are written to at present."""
        return self._spool if self._spool is not None else sys.stdout

    def line(self, text: str) -> None:
        """Write one line."""
        self.stream.write(text + "\n")

    def flush(self) -> None:
        """Flush the lines so far, as the next may be late, unless --strict buffers them."""
        if self._spool is None:
            sys.stdout.flush()

    def release(self) -> None:
        """Write the buffered lines: the input was complete."""
        if self._spool is not None:
            self._spool.seek(0)
            for piece in iter(lambda: self._spool.read(1 << 20), ""):
                sys.stdout.write(piece)
        sys.stdout.flush()
