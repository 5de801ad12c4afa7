"""Commands that read captures and show their contents: frames, connections, follow, fields."""

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain as one_after_other
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from dissector.cli import (
    connection_lines,
    expression,
    frame_lines,
    options,
    render,
    select,
    selecting,
)
from dissector.cli.exits import EXIT_INTERRUPTED
from dissector.cli.options import INPUT_NAME, Common, LocalPath, Whole
from dissector.cli.render import Row
from dissector.cli.terminal import Paint, counted, safe_text, terminal_width
from dissector.errors import UsageError
from dissector.schemas import OF_REPORTS, TABLES
from dissector.schemas.shared import CAPTURE, ORIGIN_CAPTURE

if TYPE_CHECKING:
    from dissector.blocks import TableBlock
    from dissector.cli.live import LiveReading
    from dissector.cli.reading import Reading
    from dissector.cli.slicing import Slice
    from dissector.queries.selected_rows import SelectedRows

CAPTURE_COLUMN: Final = "capture"  # shown first where rows of several captures are mixed
_KINDS: Final = {
    "bigint": "number",
    "boolean": "flag",
    "string": "text",
    "timestamp[us, UTC]": "time",
}


def column_kinds(table: str) -> dict[str, str]:
    """The columns of a table, and the types with which selections can compare them."""
    return {
        column.name: _KINDS.get(column.type, "list")
        for column in TABLES[table].columns
        if column != CAPTURE
    }


class Listing(NamedTuple):
    """The output format of a table's rows.

    table: name.
    kind: one of FORMATS.
    fields: columns that the user named.
    selection: parsed -Y, or None.
    limit: rows at most, or None.
    is_long: every field.
    """

    table: str
    kind: str
    fields: tuple[str, ...]
    selection: expression.Node | None
    limit: int | None
    is_long: bool

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of a line for people."""
        return frame_lines.COLUMNS if self.table == "frames" else connection_lines.COLUMNS

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to show."""
        if self.fields:
            return self.fields
        if self.kind == "text" and not self.is_long:
            return self.text_columns
        # Only rows of a lake have a value in the last ones.
        of_lakes = (CAPTURE, ORIGIN_CAPTURE)
        return tuple(c.name for c in TABLES[self.table].columns if c not in of_lakes)


def make_listing(
    table: str, kind: str, fields: Sequence[str], condition: str | None, limit: int | None,
    is_long: bool = False,
) -> Listing:  # fmt: skip
    """Check the requested columns and expression against the table.

    Raises:
        UsageError: an unknown column, an expression that cannot be read.
    """
    kinds = column_kinds(table)
    names = [name.strip() for each in fields for name in each.split(",") if name.strip()]
    for name in names:
        if name not in kinds:
            raise UsageError(f"-e {name}: {select.no_column(name, kinds)}")
    if kind == "fields" and not names:
        raise UsageError("-T fields needs at least one -e FIELD; see dissector fields")
    selection = None
    if condition is not None:
        selection = expression.parse(condition)
        select.check(condition, selection, kinds)
    return Listing(table, kind, tuple(names), selection, limit, is_long)


def selected_batches(
    listing: Listing,
    blocks: Iterator[tuple[Any, "TableBlock"]],
    rows: "SelectedRows | None" = None,
    slice: "Slice | None" = None,
) -> Iterator[tuple[Any, Any]]:
    """The chains, and the record batches of the listing's table that `rows` and the selection keep.

    Ends after `limit` rows, unless a slice has to see the blocks of other tables, too.
    """
    from dissector.schemas.rows import arrow_batch

    left = listing.limit
    for chain, block in blocks:
        if slice is not None:
            slice.watch(chain, block)
        if not block.rows or left == 0:
            continue
        batch = None if rows is None else rows.of(chain, block)
        if block.table != listing.table:
            continue
        batch = arrow_batch(block) if batch is None else batch
        if listing.selection is not None:
            batch = batch.filter(select.mask(listing.selection, batch))
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        if batch.num_rows:
            yield chain, batch
        if left == 0 and slice is None:
            return


class _Printer:
    """Formats rows as lines, with the heading before the first ones.

    left_out: headings of columns for which a terminal has no room.
    """

    def __init__(self, listing: Listing, paint: Paint, has_capture: bool) -> None:
        self.left_out: Sequence[str] = ()
        self._listing = listing
        self._columns = (CAPTURE_COLUMN, *listing.columns) if has_capture else listing.columns
        self._is_first = True
        self._lines = self._fields
        if listing.kind == "text" and not listing.fields:
            width = terminal_width()
            self._of_frames = frame_lines.FrameLines(paint, width or frame_lines.LINE_COLUMNS)
            # A pipe gets all columns, whatever COLUMNS says.
            room = width if sys.stdout.isatty() else None
            self._of_connections = connection_lines.ConnectionLines(paint, room)
            self._lines = self._frames if listing.table == "frames" else self._connections

    def lines(self, rows: Iterable[Row], above: str | None = None) -> Iterator[str]:
        """The lines of some rows. above: a line before them."""
        yield from self._lines(rows, () if above is None else (above,))
        self._is_first = False

    def heading(self) -> Iterator[str]:
        """The lines above the first rows, if there were none."""
        return self.lines(()) if self._is_first else iter(())

    def _fields(self, rows: Iterable[Row], above: Sequence[str]) -> Iterator[str]:
        listing = self._listing
        if listing.kind == "csv" and self._is_first:
            yield render.csv_line(self._columns)
        yield from above
        make_line = render.line_maker(listing.kind, self._columns, bool(listing.fields))
        for row in rows:
            yield make_line(row)
            if listing.is_long and listing.kind == "text":
                yield from render.detail_lines(row)

    def _frames(self, rows: Iterable[Row], above: Sequence[str]) -> Iterator[str]:
        waiting = iter(rows)
        if self._is_first:
            row = next(waiting, None)
            yield self._of_frames.heading(row)
            waiting = waiting if row is None else one_after_other((row,), waiting)
        yield from above
        for row in waiting:
            yield from self._of_frames.lines(row)
            if self._listing.is_long:
                yield from render.detail_lines(row)

    def _connections(self, rows: Iterable[Row], above: Sequence[str]) -> Iterator[str]:
        listed, made = [*rows], self._of_connections
        made.widen(listed)
        if self._is_first:
            yield made.heading()
            self.left_out = made.left_out
        yield from above
        yield from map(made.line, listed)


def show_rows(
    listing: Listing,
    reading: "Reading | LiveReading",
    common: Common,
    selected: selecting.Selected | None = None,
    slice: "Slice | None" = None,
    **core: Any,
) -> int:
    """Print the rows of a table; returns the exit code.

    Args:
        selected: the part of the captures whose rows are shown.
        slice: receives the shown rows, too; then the input is read to its end.

    Raises:
        UsageError: the selection keeps no row.
    """
    from dissector.cli.reading import LineOutput, Reading
    from dissector.queries.selected_rows import SelectedRows
    from dissector.queries.selection import EVERYTHING

    part = selected_part = None
    if selected is not None and isinstance(reading, Reading):
        part = selected.of_files(reading)
        core |= {"want_clients": bool(part.clients)}
        selected_part = None if part.is_everything else SelectedRows(part, listing.table)
    is_selecting = selected_part is not None or listing.selection is not None
    is_mixed = len(reading.chains) > 1
    printer = _Printer(listing, Paint(common.color), is_mixed and listing.kind in ("jsonl", "csv"))
    shown, is_interrupted = 0, False
    with LineOutput(common.is_strict) as output:
        current: Any = None
        blocks = reading.blocks("reading", is_quiet=sys.stdout.isatty(), **core)
        try:
            for chain, batch in selected_batches(listing, blocks, selected_part, slice):
                name = None
                if is_mixed and chain is not current and listing.kind == "text":
                    name = f"# {safe_text(chain.base_name)}"
                current = chain
                rows = (
                    {CAPTURE_COLUMN: chain.base_name, **row}
                    for row in render.rows_of(batch, listing.columns)
                )
                for line in printer.lines(rows, name):
                    output.line(line)
                output.flush()
                shown += batch.num_rows
                if slice is not None:
                    slice.add(chain, batch)
        except KeyboardInterrupt:
            is_interrupted = True
        if not is_selecting:  # a selection without a hit prints nothing
            for line in printer.heading():
                output.line(line)
        if shown == listing.limit and slice is None and not is_interrupted:
            common.words.say(f"stopped after {counted(shown, 'row')}, as -c says")
            code = 0
        else:
            code = reading.end(is_interrupted)
            selecting.say_unnamed(selected_part, common.words)
        output.release()
    if printer.left_out:
        common.words.say(f"no room for {', '.join(printer.left_out)}; -T csv shows all columns")
    if shown == 0 and is_selecting and not is_interrupted:
        raise select.no_row(listing.table, listing.selection, part or EVERYTHING)
    return code


def _write_by_line(_: click.Context, __: click.Parameter, is_asked: bool) -> None:
    """Flush each line at once, not with the others from the same input."""
    if is_asked and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


_format_option = click.option(
    "-T",
    "--format",
    "kind",
    type=click.Choice(render.FORMATS),
    default="text",
    show_default=True,
    help="Choose lines, JSON lines, safe CSV or tab-separated.",
)
_field_option = click.option(
    "-e",
    "--field",
    "fields",
    multiple=True,
    metavar="FIELD",
    help="Print only this column. Repeatable.",
)
_line_option = click.option(
    "-l",
    "--line-buffered",
    is_flag=True,
    expose_value=False,
    callback=_write_by_line,
    help="Write each line by itself, as tcpdump -l.",
)
_count_option = click.option(
    "-c", "--count", type=Whole(1, 1 << 62), metavar="N", help="Stop after N printed rows."
)


@click.command(
    epilog=options.example(
        "dissector frames night.pcap -Y 'command == \"SEND\" and frame_bytes > 100_000'\n"
        "dissector frames -i eth1 --bpf 'tcp port 6650'\n"
        "dissector frames night.pcap -T fields -e frame_no -e topic -e checksum\n"
        "dissector frames night.pcap -Y 'checksum == \"mismatch\"' -w bad.pcapng"
    )
)
@click.argument("inputs", nargs=-1, type=INPUT_NAME, metavar="[INPUT]...")
@click.option(
    "-i",
    "--interface",
    "interfaces",
    multiple=True,
    metavar="IFACE",
    help="Capture from this network interface or any. Repeatable.",
)
@click.option("--bpf", metavar="EXPR", help="Let the kernel pass only these, as tcpdump does.")
@_format_option
@_field_option
@options.select_option
@selecting.selecting_options
@_count_option
@_line_option
@click.option("-V", "--long", "is_long", is_flag=True, help="Print every decoded field.")
@click.option(
    "-w",
    "--write",
    "slice_path",
    type=LocalPath(dir_okay=False),
    metavar="FILE.pcapng",
    help="Write the packets behind these, raw without --redact.",
)
@click.option(
    "--with-secrets",
    "has_secrets",
    is_flag=True,
    help="Include the keys of decrypted connections in the file.",
)
@options.force_option
@options.chain_option
@options.dissecting_options
def frames(
    common: Common,
    inputs: tuple[str, ...],
    interfaces: tuple[str, ...],
    bpf: str | None,
    kind: str,
    fields: tuple[str, ...],
    condition: str | None,
    selected: selecting.Selected,
    count: int | None,
    is_long: bool,
    slice_path: str | None,
    has_secrets: bool,
    force: bool,
    chain: str,
) -> int:
    """Print one line per protocol frame.

    A line shows frame number, time, packets, connection, direction (> to the broker, < to the
    client), command, bytes and subject of the frame, in the width of the terminal or 100 columns;
    -V, -T jsonl and -e omit nothing. A topic is shown as clients accept it: x is
    persistent://public/default/x. Columns: dissector fields frames.

    Frames of -i are printed as they arrive, until SIGINT (Ctrl-C) or SIGTERM: exit code 130. So are
    those from a pipe, within 0.2 s: tcpdump -U -w - port 6650 | dissector frames -

    The file of -w contains the original bytes, for its owner alone (mode 0600). With --redact
    given, secrets in it are hidden at equal length and checksums corrected. Bytes of TLS stay
    encrypted; of a connection that was decrypted all packets up to the last selected one are
    written, and with --with-secrets its keys, so that Wireshark opens the file.
    """
    listing = make_listing("frames", kind, fields, condition, count, is_long)
    detail = "all" if is_long or "detail" in listing.fields else "rare"
    if bool(inputs) == bool(interfaces):
        raise click.UsageError("give INPUT... or -i IFACE" + (", not both" if inputs else ""))
    if interfaces:
        if not selected.is_everything:
            raise click.UsageError("-Y selects frames of -i; other selections are for captures")
        return _show_live(listing, interfaces, bpf, common, slice_path, want_detail=detail)
    if bpf is not None:
        raise click.UsageError("--bpf does nothing without -i IFACE; -Y selects frames")
    from dissector.cli.reading import Reading, rereadable
    from dissector.cli.slicing import Slice

    if slice_path is None:
        if has_secrets:
            raise click.UsageError("--with-secrets does nothing without -w FILE.pcapng")
        reading = Reading(inputs, common, chain)
        return show_rows(listing, reading, common, selected, want_detail=detail)
    redacted = common.core_options() if options.is_redact_asked() else None
    if redacted is not None and has_secrets:
        raise click.UsageError("--redact hides what --with-secrets opens: give one of them")
    decrypting = common.core_options() if has_secrets else None
    slice = Slice(slice_path, inputs, force, redacted, decrypting)
    with rereadable(inputs) as files:
        reading = Reading(files, common, chain)
        code = show_rows(listing, reading, common, selected, slice, want_detail=detail)
        if code != EXIT_INTERRUPTED:  # else not all its packets are known
            common.words.say(slice.write())
        return code


def _show_live(
    listing: Listing,
    interfaces: Sequence[str],
    bpf: str | None,
    common: Common,
    slice_path: str | None,
    **core: Any,
) -> int:
    """Print the frames of interfaces as they arrive; returns the exit code."""
    if slice_path is not None:
        raise click.UsageError(
            "-w needs packets that can be read twice; capture them: tcpdump -i "
            f"{interfaces[0]} -w FILE, or dissector tap --record DIR"
        )
    from dissector.cli.live import LiveReading

    with ExitStack() as stack:
        reading = LiveReading(interfaces, bpf, common, stack)
        # An interface has no end at which something could be missing: lines need not wait for it.
        return show_rows(listing, reading, common._replace(is_strict=False), **core)


@click.command(
    epilog=options.example(
        "dissector connections night.pcap\n"
        "dissector connections night.pcap -T csv -Y 'gap_bytes_to_broker > 0'"
    )
)
@options.inputs_argument
@_format_option
@_field_option
@options.select_option
@selecting.selecting_options
@_count_option
@_line_option
@options.chain_option
@options.dissecting_options
def connections(
    common: Common,
    inputs: tuple[str, ...],
    kind: str,
    fields: tuple[str, ...],
    condition: str | None,
    selected: selecting.Selected,
    count: int | None,
    chain: str,
) -> int:
    """Print one line per TCP connection, as Zeek does.

    Pairs a/b count the direction to the broker and the one to the client.
    """
    from dissector.cli.reading import Reading

    listing = make_listing("connections", kind, fields, condition, count)
    return show_rows(listing, Reading(inputs, common, chain), common, selected, want_detail="none")


@click.command(epilog=options.example("dissector fields\ndissector fields frames exchanges"))
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@options.json_option("Print JSON lines, one per column.")
@options.speaking_options
def fields(common: Common, tables: tuple[str, ...], is_json: bool) -> int:
    """List every table and column with type, unit and meaning."""
    from dissector.cli.render import json_line

    known = TABLES | OF_REPORTS
    for name in tables:
        if name not in known:
            raise UsageError(f"no table {name}; there are {', '.join(known)}")
    paint = Paint(common.color)
    for number, name in enumerate(tables or tuple(known)):
        table = known[name]
        if is_json:
            for column in table.columns:
                cells = {**column._asdict(), "wire": None}  # of the program itself
                print(json_line({"table": name, **cells}, keeps_nulls=False))
            continue
        print(("\n" if number else "") + paint(name, "bold") + f": {table.row}")
        width = max(len(column.name) for column in table.columns)
        for column in table.columns:
            kind = column.type + (f" ({column.unit})" if column.unit else "")
            null = "" if column.null == "never" else f" Null: {column.null}."
            print(f"  {column.name:<{width}}  {kind}. {column.meaning}{null}")
    return 0
