"""The command sql: queries captures or a lake in SQL."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import click

from dissector.cli import options, selecting
from dissector.cli.lake_of_command import need_inputs_or_lake, opened_lake
from dissector.cli.local_time import shown_time, shown_value, time_text
from dissector.cli.options import INPUT_NAME, Common, Whole
from dissector.cli.render import csv_line, field_text, json_line
from dissector.cli.terminal import Messages, Paint, safe_text
from dissector.errors import InputError, NothingMatchesError, UsageError
from dissector.local_paths import is_utf8
from dissector.outputs import new_file, written

if TYPE_CHECKING:
    import pyarrow as pa

    from dissector.cli.lake_of_command import OpenLake
    from dissector.queries.sandbox import Sandbox, SandboxRows

    Show = Callable[[SandboxRows], None]

FORMATS: Final = ("table", "csv", "jsonl", "parquet")
_TABLE_ROWS: Final = 200
_WIDE: Final = 10_000  # columns of a table that no terminal shows: nothing is wrapped
_FOLDED: Final = 40  # characters that a wider column is folded to
_BETWEEN: Final = 3  # blanks between two columns
_LEFT_OUT: Final = "…"
_PROMPT: Final = "sql> "
_MORE: Final = "...> "
_PROMPT_HELP: Final = """\
A statement ends with `;`. .tables lists tables and views, .columns NAME the columns of one,
.quit or Ctrl-D ends."""


@click.command(
    epilog=options.example(
        "dissector sql night.pcap 'select topic, count(*) from sends group by topic'\n"
        "dissector sql --lake lake -f question.sql --format csv > answer.csv\n"
        "dissector sql night.pcap          # a prompt"
    )
)
@click.argument("inputs", nargs=-1, type=INPUT_NAME, metavar="[INPUT]... [QUERY]")
@options.lake_option("Ask this lake; captures are not read.")
@options.capture_option("Ask about this capture of the lake only. Repeatable.")
@selecting.selecting_options
@click.option(
    "-f", "--file", "path", type=options.FILE, metavar="FILE", help="Read the query from this file."
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True,
    help="Choose how rows are written.",
)  # fmt: skip
@click.option(
    "--rows", type=Whole(0, 1 << 40), default=_TABLE_ROWS, show_default=True, metavar="N",
    help="Show so many rows of a table, 0: all.",
)  # fmt: skip
@click.option(
    "--timeout", type=Whole(1, 1 << 31), metavar="SECONDS",
    help="Stop a statement after this time.  [default: never]",
)  # fmt: skip
@options.output_file_option(show_default="standard output")
@options.force_option
@options.chain_option
@options.dissecting_options
def sql(
    common: Common,
    inputs: tuple[str, ...],
    lake: Path | None,
    captures: tuple[str, ...],
    selected: selecting.Selected,
    path: Path | None,
    form: str,
    rows: int,
    timeout: int | None,
    output: Path | None,
    force: bool,
    chain: str,
) -> int:
    """Query captures or a lake in SQL.

    The tables are those of dissector fields, with the day of each capture (where day >=
    '2026-01-31'); docs/sql.md has common queries, and the ready views (sends, delivered, stalls,
    redeliveries, slow, ...). The SQL is DuckDB's. A query reads only its input and writes no file;
    from a lake in a store it reads only the needed parts of files. Without QUERY it is read from
    standard input; on a terminal there is a prompt.
    """
    names, text = _split(inputs, lake is not None, path)
    need_inputs_or_lake(names, lake, captures)
    is_prompt = text is None and sys.stdin.isatty()
    if text is None and not is_prompt:
        if "-" in names:
            raise UsageError("the capture comes from standard input: give the query, or -f FILE")
        text = sys.stdin.read()
    if text is not None and not is_utf8(text):
        raise UsageError("the query is not UTF-8")
    if output is not None and (text is None or form == "table"):
        raise UsageError("-o takes the rows of a query as --format csv, jsonl or parquet")
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise UsageError("Parquet is no text: name a file with -o")
    with ExitStack() as stack:
        file: BinaryIO = sys.stdout.buffer
        if output is not None:
            read = (*names, *([str(lake)] if lake is not None else ()))
            target = new_file(output, read, is_forced=force)
            file = stack.enter_context(written(target, is_forced=force))
        source = opened_lake(names, lake, common, chain, {"properties": True})
        asked = _Asked(captures, selected, timeout, text)
        engine, end = stack.enter_context(_engine(source, asked, lake, common))
        show = _writer(form, file, rows, common)
        if text is None:
            _converse(engine, show, common.words)
        else:
            for answer in engine.answers(text):
                show(answer)
        return end()


def _split(
    inputs: Sequence[str], has_lake: bool, path: Path | None
) -> tuple[tuple[str, ...], str | None]:
    """The captures and the query of a command line; the query is None if none was given."""
    if path is not None:
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            raise UsageError(f"{path} is no text: a query is UTF-8") from None
        if has_lake and inputs:
            raise UsageError("-f gives the query, --lake the rows: no other argument is read")
        return tuple(inputs), text
    if has_lake:
        if len(inputs) > 1:
            raise UsageError("with --lake there is one argument, the query: put it in quotes")
        return (), inputs[0] if inputs else None
    for index in reversed(range(len(inputs))):  # some write the query first
        if _is_query(inputs[index]):
            return (*inputs[:index], *inputs[index + 1 :]), inputs[index]
    return tuple(inputs), None


def _is_query(text: str) -> bool:
    """Whether an argument is SQL and not the name of a capture."""
    # Path.exists raises for a query that is longer than a path may be.
    return any(sign.isspace() or sign == ";" for sign in text) and not os.path.exists(text)


class _Asked(NamedTuple):
    """A request: captures, selection of rows, the time limit of a statement in seconds, and the
    query, None if it is entered later."""

    captures: Sequence[str]
    selected: selecting.Selected
    timeout: int | None
    text: str | None


@contextmanager
def _engine(
    source: "AbstractContextManager[OpenLake]", asked: _Asked, lake: Path | None, common: Common
) -> Iterator[tuple["Sandbox", Callable[[], int]]]:
    """An engine over a lake, or over captures in a temporary one.

    Yields:
        The engine, and a function that prints the account of reading and returns the exit code.
    """
    from dissector.queries.sandbox import sandbox_over
    from dissector.report.counted_captures import held_twice
    from dissector.report.workspace import temporary

    with source as opened:
        asked_lake, captures = opened.lake, asked.captures
        chosen = [one for one in asked_lake.captures if not captures or one.capture_id in captures]
        unknown = sorted(set(captures) - {one.capture_id for one in chosen})
        if unknown:
            shown = asked_lake.shown
            raise UsageError(f"{unknown[0]} is not in {shown}: dissector lake list shows what is")
        asked_lake = asked_lake._replace(captures=tuple(chosen))
        for line in held_twice(chosen):
            common.words.say(line)
        part = asked.selected.of(asked_lake)
        opening = partial(sandbox_over, asked_lake, asked.timeout, in_ranges=True)
        with temporary() as work, opening(work, part, asked.text) as engine:
            if not (part.is_everything or engine.has_rows()):
                raise NothingMatchesError(
                    f"nothing in the captures matches{part.words(shown_time)}", part.question
                )
            if not part.is_everything:
                common.words.say(f"selected{part.words(shown_time)}")
            yield engine, partial(opened.end, common)


# -- output


def _writer(form: str, file: BinaryIO, rows: int, common: Common) -> "Show":
    if form == "table":
        return partial(_show_table, most_rows=rows, common=common)
    return partial(_WRITERS[form], file=file)


def _write_json(answer: "SandboxRows", file: BinaryIO) -> None:
    names = _distinct(answer.schema.names)
    for batch in answer.batches():
        for values in _values(batch):
            row = dict(zip(names, values, strict=True))
            file.write(json_line(row, keeps_nulls=True).encode() + b"\n")


def _distinct(names: Sequence[str]) -> list[str]:
    """The names of columns; a further one of a name gets a number, as DuckDB names it: x, x_1."""
    distinct_names: list[str] = []
    for name in names:
        new, count = name, 0
        while new in distinct_names:
            count += 1
            new = f"{name}_{count}"
        distinct_names.append(new)
    return distinct_names


def _values(batch: "pa.RecordBatch") -> "Iterator[tuple[Any, ...]]":
    """The values of each row; columns may have equal names.

    Raises:
        UsageError: a time lies outside the years that a calendar knows.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns.append(_listed(column))
        except OverflowError:
            raise UsageError(
                f"{name} holds a time outside the years 1 to 9999: ask for {name}::varchar"
            ) from None
    return zip(*columns, strict=True)


def _listed(column: "pa.Array") -> list[Any]:
    """The values of a column; times in nanoseconds as text, which keeps all digits."""
    import pyarrow as pa

    if column.type == pa.timestamp("ns"):
        times = column.cast(pa.int64()).to_pylist()
        return [None if time is None else time_text(time, decimals=9) for time in times]
    values: list[Any] = column.to_pylist()
    return values


def _cells(
    batch: "pa.RecordBatch", shown: "Callable[[Any], Any]" = lambda value: value
) -> Iterator[list[str]]:
    """The cells of each row as text. shown: formats a value."""
    return ([field_text(shown(value)) for value in values] for values in _values(batch))


def _write_csv(answer: "SandboxRows", file: BinaryIO) -> None:
    file.write(csv_line(answer.schema.names).encode() + b"\n")
    for batch in answer.batches():
        for cells in _cells(batch):
            file.write(csv_line(cells).encode() + b"\n")


def _write_parquet(answer: "SandboxRows", file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = _distinct(answer.schema.names)
    schema = pa.schema(
        [field.with_name(name) for name, field in zip(names, answer.schema, strict=True)]
    )
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in answer.batches():
            writer.write_batch(batch.rename_columns(names))


_WRITERS: Final = {"csv": _write_csv, "jsonl": _write_json, "parquet": _write_parquet}


def _show_table(answer: "SandboxRows", most_rows: int, common: Common) -> None:
    """Rows as a table; those beyond the bound are counted, not shown."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    rows: list[list[str]] = []
    left_out = 0
    for batch in answer.batches():
        take = min(batch.num_rows, most_rows - len(rows)) if most_rows else batch.num_rows
        rows += _cells(batch.slice(0, take), shown_value)
        left_out += batch.num_rows - take
    width = None if sys.stdout.isatty() else _WIDE
    has_color = Paint(common.color).is_on
    console = Console(file=sys.stdout, width=width, highlight=False, force_terminal=has_color)
    names = [safe_text(field.name) for field in answer.schema]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    chosen = columns_that_fit(widths, console.width)
    for at in chosen:
        kind = "" if at is None else str(answer.schema.field(at).type)
        is_number = kind.startswith(("int", "uint", "double", "float", "decimal"))
        name = _LEFT_OUT if at is None else names[at]
        table.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    for cells in rows:
        table.add_row(*(Text(_LEFT_OUT if at is None else cells[at]) for at in chosen))
    console.print(table)
    if None in chosen:
        common.words.say(
            f"{len(chosen) - 1} of {len(names)} columns are shown: name those that you want, or "
            "--format csv writes all"
        )
    if left_out:
        common.words.say(f"{left_out:,} more rows; --rows 0 shows all, --format csv writes all")


def columns_that_fit(widths: Sequence[int], terminal_width: int) -> list[int | None]:
    """The columns of a table that fit a terminal, from both ends; None stands for omitted columns
    in the middle.

    Args:
        widths: of each column; a wide one counts with the width to which it can be folded.
    """
    needed = [min(width, _FOLDED) + _BETWEEN for width in widths]
    if sum(needed) - _BETWEEN <= terminal_width:
        return list(range(len(widths)))
    left = terminal_width - len(_LEFT_OUT)
    first, last = 0, len(widths)
    while first < last:
        at = first if first <= len(widths) - last else last - 1
        left -= needed[at]
        if left < 0:
            break
        first, last = (first + 1, last) if at == first else (first, last - 1)
    if first == 0:  # not even one fits: it is folded further
        first = 1
    if last <= first:
        return list(range(len(widths)))
    return [*range(first), None, *range(last, len(widths))]


# -- the prompt


def _converse(engine: "Sandbox", show: "Show", words: Messages) -> None:
    """Read statements from a terminal until its end; an invalid one does not end it."""
    history = _history()
    words.say(_PROMPT_HELP.replace("\n", " "))
    waiting = ""
    try:
        while True:
            try:
                line = input(_MORE if waiting else _PROMPT)
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                waiting = ""
                continue
            if not waiting and line.strip().startswith("."):
                if line.split()[0] in (".quit", ".exit"):
                    return
                line = _shorthand(line.split(), words)
            waiting = f"{waiting}\n{line}".strip()
            if waiting.endswith(";"):
                _ask(engine, waiting, show, words)
                waiting = ""
    finally:
        history()


def _shorthand(words: Sequence[str], out: Messages) -> str:
    """The statement of a dot command; nothing if it is unknown."""
    if words[0] == ".tables":
        return "SHOW TABLES;"
    if words[0] == ".columns" and len(words) == 2:
        return f'DESCRIBE "{words[1].replace(chr(34), "")}";'
    out.say(_PROMPT_HELP.replace("\n", " "))
    return ""


def _ask(engine: "Sandbox", text: str, show: "Show", words: Messages) -> None:
    try:
        for answer in engine.answers(text):
            show(answer)
    except (UsageError, InputError) as error:
        words.missing(str(error))
    except KeyboardInterrupt:
        words.missing("stopped")


def _history() -> Callable[[], None]:
    """Load the lines of earlier prompts for the arrow keys; the result stores those of this one.

    The file is readable by its owner alone: queries name topics and clients.
    """
    import os

    try:
        import readline
    except ImportError:
        return lambda: None
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(base) / "pulsar-dissector" / "sql_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        readline.read_history_file(path)
    except OSError:
        return lambda: None
    readline.set_history_length(1000)

    def keep() -> None:
        try:
            readline.write_history_file(path)
        except OSError:
            return

    return keep
