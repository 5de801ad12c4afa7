"""The lake that a command reads: the named one, or a temporary one of the named captures."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dissector.cli.options import Common
from dissector.cli.terminal import bytes_text
from dissector.errors import UsageError

if TYPE_CHECKING:
    from dissector.cli.reading import Reading
    from dissector.lake.reader import Lake


class OpenLake(NamedTuple):
    """An open lake.

    reading: of the captures landed in it; None for a named lake.
    is_interrupted: the user stopped the landing.
    """

    lake: "Lake"
    reading: "Reading | None"
    is_interrupted: bool

    def end(self, common: Common) -> int:
        """Print the account of what was read; return the exit code."""
        from dissector.cli.lake import exit_of_unread

        say_fetched(common, self.lake.folder)
        if self.reading is None:
            return exit_of_unread(common, self.lake)
        return self.reading.end(self.is_interrupted)


def shown_lake(lake: Path | None) -> str | None:
    """A lake's path or address as the user wrote it."""
    from dissector.lake.mirror import shown

    return None if lake is None else shown(lake)


def say_fetched(common: Common, lake: Path) -> None:
    """Print how much of a lake in a store was transferred over the network."""
    from dissector.lake.fetching import fetched
    from dissector.lake.mirror import shown
    from dissector.report.formatting import many

    size, of, requests = fetched(lake)
    if requests:
        how_much = f"{bytes_text(size)} of {bytes_text(of)}"
        how = f" in {many(requests, 'request')}"
    elif size:
        how_much, how = bytes_text(size), ""
    else:
        return
    common.words.say(f"{how_much} fetched from {shown(lake)}{how}")


def need_inputs_or_lake(
    inputs: Sequence[str], lake: Path | None, captures: Sequence[str] = (), *, both: bool = False
) -> None:
    """Refuse a command line that names nothing to read.

    Args:
        captures: ids, of --capture. both: the command reads captures beside a lake.

    Raises:
        UsageError: there are neither captures nor a lake, or both, or ids without a lake.
    """
    if inputs and lake is not None and not both:
        raise UsageError(f"name captures or a lake, not both: {inputs[0]} and --lake {lake}")
    if not inputs and lake is None:
        raise UsageError("name captures, or a lake with --lake")
    if captures and lake is None:
        raise UsageError("--capture chooses from a lake: name it with --lake")


@contextmanager
def opened_lake(
    inputs: Sequence[str],
    lake: Path | None,
    common: Common,
    mode: str,
    want: dict[str, bool] | None = None,
    *,
    may_be_partial: bool = False,
) -> Iterator[OpenLake]:
    """Open a lake, or land captures in a temporary one, which is removed after the body.

    Args:
        mode: how files become captures. want: columns that are null by default, by the name of
            the core's option. may_be_partial: run the body even if the user stopped the landing.
    """
    from dissector.cli.land import temporary_lake
    from dissector.lake.reader import open_lake

    with ExitStack() as stack:
        reading, is_interrupted = None, False
        if lake is None:
            landed = temporary_lake(inputs, common, mode, want)
            lake, reading, is_interrupted = stack.enter_context(landed)
            if is_interrupted and not may_be_partial:
                raise KeyboardInterrupt
        yield OpenLake(stack.enter_context(open_lake(lake)), reading, is_interrupted)
