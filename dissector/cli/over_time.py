"""summary --over-time: the option, and its table as text."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any, Final

import click

from dissector.cli.local_time import shown_time
from dissector.cli.spans import seconds_of
from dissector.cli.terminal import Paint

_OPTION: Final = "--over-time"
_CHOSEN: Final = "auto"
_NS: Final = 1_000_000_000
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_BARS: Final = " ▁▂▃▄▅▆▇█"
# Heading of a column and the path of its number; columns without any number are left out.
_COLUMNS: Final = (
    ("sends", "sends"), ("receipts", "receipts"), ("refused", "refused"),
    ("p50 ms", "p50"), ("p99 ms", "p99"), ("deliveries", "deliveries"), ("acks", "acks"),
    ("permits", "permits"), ("unacked", "unacked"), ("opened", "opened"), ("closed", "closed"),
    ("lost bytes", "lost_bytes"),
)  # fmt: skip
HELD: Final = ("permits", "unacked")
_ALWAYS: Final = ("sends", "receipts", "deliveries", "acks")
_HELD_WORDS: Final = "permits, unacked: of all consumers together at the end of a step, where known"


class CommandOverTime(click.Command):
    """A command whose option --over-time may be followed by a step or by an input."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        left, words = iter(args), []
        for word in left:
            if word == _OPTION:
                following = next(left, None)
                is_step = following is not None and seconds_of(following) is not None
                if is_step and not Path(str(following)).exists():
                    words.append(f"{_OPTION}={following}")
                    continue
                words.append(f"{_OPTION}={_CHOSEN}")
                words += [] if following is None else [following]
                continue
            words.append(word)
            if word == "--":
                words += left
        return super().parse_args(ctx, words)


def _width(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Parse a step, ns; 0: choose one, None: no table."""
    if value is None or value == _CHOSEN:
        return None if value is None else 0
    seconds = seconds_of(value)
    width = round(1000 * seconds) * (_NS // 1000) if seconds else 0
    if not width:
        raise click.BadParameter(f"{value!r} is no step; write 1m, 30s or 500ms", param=parameter)
    return width


over_time_option = click.option(
    _OPTION,
    "width_ns",
    metavar="[=STEP]",
    callback=_width,
    help="Add a table over time: by a step that fits, or 1m, 30s.",
)


def table_lines(over_time: dict[str, Any], paint: Paint, *, has_bars: bool) -> Iterator[str]:
    """The table as lines.

    Args:
        over_time: of the report. has_bars: add to each number a bar relative to its column's
            maximum.
    """
    rows = [row | row["latency_ms"] for row in over_time["rows"]]
    if not rows:
        yield "over time: no packet has a time"
        return
    shown = [shown_time(row["ts_ns"], 3) for row in rows]
    zone = "UTC" if shown[0].endswith("Z") else shown[0][23:]
    yield paint(
        f"over time, in steps of {_step_text(over_time['step_ms'])}, from {shown[0][:10]} {zone}",
        "bold",
    )
    columns = [["time", *_times(shown, is_whole=over_time["step_ms"] % 1000 == 0)]]
    for head, name in _COLUMNS:
        values = [row[name] for row in rows]
        if name in _ALWAYS or any(values):
            columns.append([head + "  " * has_bars, *_cells(values, has_bars)])
    widths = [max(map(len, column)) for column in columns]
    lines = ["  ".join(map(str.rjust, cells, widths)) for cells in zip(*columns, strict=True)]
    yield f"  {lines[0].rstrip()}"
    for is_captured, run in groupby(range(len(rows)), key=lambda at: rows[at]["is_captured"]):
        places = [*run]
        if is_captured:
            yield from (f"  {lines[at + 1].rstrip()}" for at in places)
            continue
        first, last = (columns[0][places[at] + 1] for at in (0, -1))
        to = "" if first == last else f" to {last}"
        yield paint(f"  {first}{to}: nothing was captured", "yellow")
    if any(row[name] for row in rows for name in HELD):
        yield f"  {_HELD_WORDS}"


def _step_text(step_ms: float) -> str:
    unit, size = next((each for each in _UNITS if step_ms % each[1] == 0), ("ms", 1))
    return f"{step_ms / size:g} {unit}"


def _times(shown: Sequence[str], *, is_whole: bool) -> list[str]:
    """The times of rows, with days if there are several."""
    days = 5 if len({text[:10] for text in shown}) > 1 else 11
    return [text[days : 19 if is_whole else 23].replace("T", " ") for text in shown]


def _cells(values: Sequence[float | None], has_bars: bool) -> list[str]:
    is_whole = all(isinstance(value, int | None) for value in values)
    most = max((value for value in values if value), default=0)
    cells = []
    for value in values:
        text = "-" if value is None else f"{value:,}" if is_whole else f"{value:,.3f}"
        height = ceil((len(_BARS) - 1) * max(value or 0, 0) / most) if most > 0 else 0
        cells.append(f"{text} {_BARS[height]}" if has_bars else text)
    return cells
