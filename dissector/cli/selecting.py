"""The options that select a part of what is read, declared once for all commands that read.

Packets are never left out: the whole input is dissected, as earlier packets decide what the rows of
a time mean. A command without rows refuses the options with a sentence that names one with rows.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final

import click

from dissector.cli.local_time import is_local
from dissector.cli.options import Command, with_options
from dissector.cli.terminal import Messages, counted
from dissector.errors import UsageError

if TYPE_CHECKING:
    from dissector.cli.reading import Reading
    from dissector.lake.reader import Lake
    from dissector.queries.selected_rows import SelectedRows
    from dissector.queries.selection import Asked, Selection

SELECTING: Final = {
    "since": click.option(
        "--since", metavar="T", help="Read from then on: 2026-01-31T12:00 (UTC), or -30m."
    ),
    "until": click.option(
        "--until", metavar="T", help="Read up to then; -30m is before the last packet."
    ),
    "topics": click.option(
        "--topic", "topics", multiple=True, metavar="NAME",
        help="Read this topic and its partitions only. Repeatable.",
    ),
    "subscriptions": click.option(
        "--subscription", "subscriptions", multiple=True, metavar="NAME",
        help="Read rows of this subscription only. Repeatable.",
    ),
    "clients": click.option(
        "--client", "clients", multiple=True, metavar="ADDRESS",
        help="Read this client only: 10.0.0.5[:51234] or 10.0.0.0/8.",
    ),
}  # fmt: skip


class Selected:
    """The options of `SELECTING`; the input's end, once known, makes a selection of them.

    Raises:
        UsageError: a time or an address is malformed.
    """

    def __init__(self, **given: Any) -> None:
        self._given = given
        self._is_local = is_local()
        if not self.is_everything:
            self._asked.check()

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return not any(self._given.values())

    @cached_property
    def _asked(self) -> "Asked":
        from dissector.queries.selection import Asked  # with pyarrow: usage errors come before

        return Asked(**self._given, is_local=self._is_local)

    def of(self, lake: "Lake", captures: Sequence[str] = ()) -> "Selection":
        """The selection over captures of a lake; times such as -30m count back from their last
        packet.

        Args:
            captures: ids, none for all.
        """
        read = (one for one in lake.captures if not captures or one.capture_id in captures)
        return self._asked.selection(lake._replace(captures=tuple(read)).last_ts_ns)

    def of_files(self, reading: "Reading") -> "Selection":
        """The selection over captures that are read in one pass.

        Raises:
            UsageError: a time counts back from the end of a pipe, which is unknown.
        """
        return self._asked.selection(reading.last_ts_ns() if self._asked.is_relative else None)

    def of_reports(self) -> tuple[str, ...]:
        """The selected topics: numbers of a report can be selected by nothing else.

        Raises:
            UsageError: another option is given.
        """
        if any(self._asked._replace(topics=(), is_local=False)):
            raise UsageError("a report has numbers, no rows: only --topic selects from it")
        return self._asked.selection().topics


def say_unnamed(rows: "SelectedRows | None", words: Messages) -> None:
    """Print how many frames are not shown because the selected name was learnt after them."""
    if rows is not None and rows.are_frames and rows.unnamed:
        words.missing(
            f"without {counted(rows.unnamed, 'frame')} whose topic or subscription was told only "
            "behind them: dissector sql with the same selection has all in its table frames"
        )


def _selecting(names: Sequence[str], command: Command) -> Command:
    @wraps(command)
    def collected(**values: Any) -> Any:
        return command(selected=Selected(**{name: values.pop(name) for name in names}), **values)

    decorated: Any = with_options(*(SELECTING[name] for name in names))(collected)
    result: Command = decorated
    return result


def selecting_options(command: Command) -> Command:
    """Add the options that select a part of the input, as `selected`."""
    return _selecting(tuple(SELECTING), command)


def names_options(command: Command) -> Command:
    """Add the options that select by names and addresses."""
    return _selecting(("topics", "subscriptions", "clients"), command)


def times_options(command: Command) -> Command:
    """Add the options that select by time alone."""
    return _selecting(("since", "until"), command)


def no_selecting_options(instead: str, *names: str) -> Callable[[Command], Command]:
    """Refuse some of these options with a sentence on what to use instead.

    Args:
        names: keys of SELECTING, none: all.
    """

    def refuse(_: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            raise UsageError(f"{parameter.opts[0]}: {instead}")

    def decorate(command: Command) -> Command:
        for name in names or SELECTING:
            command = SELECTING[name](command)
            option = command.__click_params__[-1]  # type: ignore[attr-defined]
            option.hidden, option.expose_value, option.callback = True, False, refuse
        return command

    return decorate
