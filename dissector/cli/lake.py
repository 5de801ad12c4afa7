"""Commands for the upkeep of a lake: list, verify, rm, keep, tidy, compact, publish."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dissector.cli import options
from dissector.cli.exits import EXIT_PARTIAL
from dissector.cli.local_time import shown_time
from dissector.cli.options import SIZE, CommandGroup, Common
from dissector.cli.render import json_line
from dissector.cli.select import read_time
from dissector.cli.spans import DAYS, days_of
from dissector.cli.terminal import bytes_text, counted, safe_text
from dissector.errors import OutputError, UsageError
from dissector.schemas import SCHEMA_VERSION

if TYPE_CHECKING:
    from dissector.lake.manifest import Manifest
    from dissector.lake.publish import Format
    from dissector.lake.reader import Lake, Removed

_lake_argument = click.argument("folder", metavar="LAKE", type=options.LAKE)


@click.group(cls=CommandGroup)
def lake() -> None:
    """List, verify, remove or compact the captures of a lake."""


def exit_of_unread(common: Common, opened: "Lake") -> int:
    """Print the unreadable captures of a lake; return the exit code."""
    for each in opened.unread:
        common.words.missing(each.text)
    return EXIT_PARTIAL if opened.unread else 0


def _facts(capture: "Manifest") -> dict[str, Any]:
    """The facts of a capture for --json."""
    return {
        "capture": capture.capture_id,
        "first_ts_ns": capture.first_ts_ns,
        "last_ts_ns": capture.last_ts_ns,
        "capture_bytes": capture.bytes,
        "parquet_bytes": sum(part.bytes for part in capture.files),
        "rows": capture.rows(),
        "files": [source.file_name for source in capture.sources],
        "schema_version": capture.schema_version,
        "captures": [inside.capture_id for inside in capture.captures()],
    }


@lake.command("list", epilog=options.example("dissector lake list lake"))
@_lake_argument
@click.option("--json", "is_json", is_flag=True, help="Print JSON lines, one per capture.")
@options.speaking_options
def list_captures(common: Common, folder: Path, is_json: bool) -> int:
    """List id, time, frames and size of the captures, those compacted below their group."""
    from dissector.lake.reader import open_lake

    with open_lake(folder) as opened:
        for capture in opened.captures:
            facts = _facts(capture)
            if is_json:
                print(json_line(facts, keeps_nulls=True))
                continue
            print(
                f"{safe_text(capture.capture_id)}  {shown_time(facts['first_ts_ns'], 3)}  "
                f"{shown_time(facts['last_ts_ns'], 3)}  "
                f"{counted(facts['rows']['frames'], 'frame')}  "
                # Captures of a tap have no input file.
                f"{bytes_text(capture.bytes) if capture.bytes else 'live'} -> "
                f"{bytes_text(facts['parquet_bytes'])}"
            )
            for inside in capture.replaces:
                print(
                    f"  {safe_text(inside.capture_id)}  {shown_time(inside.first_ts_ns, 3)}  "
                    f"{shown_time(inside.last_ts_ns, 3)}  {bytes_text(inside.bytes)}"
                )
        common.words.say(f"{counted(_number(opened), 'capture')} in {opened.shown}")
        if waiting := opened.waiting():
            common.words.missing(
                f"{counted(waiting, 'rotation')} on this disk, not in the store yet"
            )
        return exit_of_unread(common, opened)


def _number(opened: "Lake") -> int:
    """The number of captures in a lake, those in compacted groups included."""
    return sum(len(landed.captures()) for landed in opened.captures)


@lake.command(epilog=options.example("dissector lake verify lake"))
@_lake_argument
@options.speaking_options
def verify(common: Common, folder: Path) -> int:
    """Check every file of a lake.

    Compares sizes, digests, rows and columns with the manifests; exits 3 if something is wrong."""
    from dissector.lake.reader import open_lake
    from dissector.lake.reader import verify as verify_lake

    with open_lake(folder) as opened:
        problems = verify_lake(opened)
        for problem in problems:
            print(safe_text(f"{problem.capture_id}: {problem.path}: {problem.text}"))
        files = sum(len(capture.files) for capture in opened.captures)
    if problems:
        common.words.missing(
            f"{counted(len(problems), 'problem')} in {opened.shown}: "
            "land these captures again, or remove them with dissector lake rm"
        )
        return EXIT_PARTIAL
    common.words.say(f"{counted(files, 'file')} of {counted(_number(opened), 'capture')}: ok")
    return 0


@lake.command(
    epilog=options.example(
        "dissector lake rm lake c-night-0123456789ab\ndissector lake rm lake --before 2026-01-31\n"
        "dissector lake rm lake --before 30d"
    )
)
@_lake_argument
@click.argument("captures", nargs=-1, metavar="[CAPTURE]...")
@click.option(
    "--before",
    metavar="TIME",
    help="Remove what ended before: 2026-01-31T12:00 (UTC), or 30d.",
)
@options.speaking_options
def rm(common: Common, folder: Path, captures: tuple[str, ...], before: str | None) -> int:
    """Remove captures from a lake.

    By id, with the wildcards * and ?, or by age. A compacted group is removed as a whole: by its
    own id, or when all of its captures are older. Also removes, by id, captures whose manifest is
    damaged, and files that belong to no capture (see dissector lake verify). --before 30d equals
    dissector lake keep lake 30d.
    """
    if not captures and before is None:
        raise UsageError("name the captures to remove, or give --before; see dissector lake list")
    before_ns = None
    if before is not None and (days := days_of(before)) is not None:
        if captures:
            raise UsageError("--before with days removes whole days: name no captures beside it")
        return _keep(common, folder, days)
    if before is not None:
        try:
            before_ns = int(read_time(before).timestamp()) * 1_000_000_000
        except (ValueError, OverflowError):
            raise UsageError(
                f"--before {before!r} is no time; write 2026-01-31, 2026-01-31T12:00 or 30d"
            ) from None
    from dissector.lake.reader import remove

    return _tell(common, remove(folder, captures, before_ns))


def _tell(common: Common, removed: "Removed") -> int:
    for capture in removed.gone + removed.orphans:
        print(safe_text(capture))
    for note in removed.notes:
        common.words.missing(note)
    return 0


@lake.command(epilog=options.example("dissector lake keep lake 30d"))
@_lake_argument
@click.argument("days", type=DAYS, metavar="DAYS")
@options.speaking_options
def keep(common: Common, folder: Path, days: int) -> int:
    """Keep the last days of a lake, today included, and remove older ones.

    Days are whole ones, UTC; a capture belongs to the day of its first packet, and a day stays as
    long as one of its captures ends within the kept days. Prints the removed ids; having nothing to
    remove is no error.
    """
    return _keep(common, folder, days)


def _keep(common: Common, folder: Path, days: int) -> int:
    from dissector.lake.partitions import day_of
    from dissector.lake.retention import cutoff_ns
    from dissector.lake.retention import keep as keep_days

    before_ns = cutoff_ns(days)
    removed = keep_days(folder, before_ns)
    common.words.say(
        f"{counted(len(removed.gone), 'landing')} of days before {day_of(before_ns)} removed"
    )
    return _tell(common, removed)


_iceberg_options = options.with_options(
    click.option(
        "--iceberg",
        metavar="CATALOG",
        help="Tables of Iceberg in this catalog: a name or an address.",
    ),
    click.option(
        "--namespace",
        metavar="NAME",
        default="dissector",
        show_default=True,
        help="Where in the catalog.",
    ),
)


@lake.command(
    epilog=options.example(
        "dissector lake tidy s3://bucket/lake\n"
        "dissector lake tidy s3://bucket/lake --iceberg sqlite:////data/catalog.db"
    )
)
@_lake_argument
@_iceberg_options
@options.speaking_options
def tidy(common: Common, folder: Path, iceberg: str | None, namespace: str) -> int:
    """Remove files from a store that belong to no capture of its lake.

    These are the files of captures that were removed, replaced or compacted, and of landings that
    were cut short. They stay for a day, as others may still read them; on a disk they are removed
    at once. First names published tables that still list some of them: of Delta Lake if deltalake
    is installed, and of Iceberg in a named catalog.
    """
    from dissector.lake.mirror import shown
    from dissector.lake.mirror import tidy as tidy_lake

    formats = _formats(iceberg, namespace, is_delta=find_spec("deltalake") is not None)
    tidied = tidy_lake(folder, lambda names: _warn_of_tables(common, folder, formats, names))
    if tidied is None:
        common.words.say(
            f"{shown(folder)} lies on this machine, where files go at once; dissector lake verify "
            "names what else is left"
        )
        return 0
    removed = counted(tidied.files, "file")
    common.words.say(f"{removed} removed, {bytes_text(tidied.bytes)}")
    if tidied.young:
        common.words.say(f"{counted(tidied.young, 'file')} of the last day stay until it is over")
    return 0


def _formats(iceberg: str | None, namespace: str, *, is_delta: bool) -> "list[Format]":
    """The table formats that the options name."""
    formats: list[Format] = []
    if iceberg is not None:
        from dissector.lake.publish_iceberg import Iceberg

        formats.append(Iceberg(iceberg, namespace))
    if is_delta:
        from dissector.lake.publish_delta import Delta

        formats.append(Delta())
    return formats


def _warn_of_tables(
    common: Common, folder: Path, formats: "Sequence[Format]", names: Sequence[str]
) -> None:
    """Print which published tables list files that are about to be removed."""
    from dissector.lake.mirror import shown
    from dissector.lake.publish import still_listed

    for each in formats:
        try:
            for table, count in still_listed(each, folder, names):
                common.words.missing(
                    f"the {each.name} table {table} still lists {counted(count, 'file')} of what "
                    "is no longer in the lake, removed now: queries over it fail until it is "
                    f"published again (dissector lake publish {shown(folder)})"
                )
        except OutputError as error:
            common.words.missing(f"whether {each.name} tables list what goes is not known: {error}")


@lake.command(
    epilog=options.example("dissector lake compact lake\ndissector lake compact lake --below 10MB")
)
@_lake_argument
@click.argument("captures", nargs=-1, metavar="[CAPTURE]...")
@click.option(
    "--below", type=SIZE, metavar="SIZE", help="Take only captures with smaller Parquet files."
)
@options.private_option
@options.speaking_options
def compact(common: Common, folder: Path, captures: tuple[str, ...], below: int | None) -> int:
    """Put the many small captures of each day into few files.

    All of them, or the named ones, with the wildcards * and ?. Prints the id of the new group of
    each day; the column capture of its rows still names the capture of each. Captures that an older
    version landed (schema versions 1 to 3) are rewritten, whatever their size and number, and move
    to the folder of their day.
    """
    from dissector.lake.compact import ALL
    from dissector.lake.compact import compact as compact_lake
    from dissector.lake.partitions import day_of

    made = compact_lake(folder, captures or ALL, below)
    for capture in made.migrated:
        common.words.say(f"{capture} written anew as schema version {SCHEMA_VERSION}")
    for group in made.groups:
        print(safe_text(group.capture_id))
        day = day_of(group.first_ts_ns)
        common.words.say(f"{day}: {counted(len(group.replaces), 'capture')} compacted")
    if not made.groups:
        common.words.say("nothing compacted: fewer than two captures of a day fit")
    return 0


@lake.command(
    epilog=options.example(
        "dissector lake publish lake --delta\n"
        "dissector lake publish lake --iceberg sqlite:////data/catalog.db\n"
        "dissector lake publish lake --iceberg prod --namespace network.night"
    )
)
@_lake_argument
@_iceberg_options
@click.option("--delta", is_flag=True, help="Tables of Delta Lake: LAKE/<table>.")
@options.speaking_options
def publish(common: Common, folder: Path, iceberg: str | None, namespace: str, delta: bool) -> int:
    """List the files of a lake as tables of Iceberg or Delta Lake.

    The files stay unchanged in their place. Publishing again adds new files and delists removed
    ones, in one commit per table. Do it after commands that remove files (rm, keep, compact): until
    then readers miss these files. Prints the tables with their files and rows.
    """
    if iceberg is None and not delta:
        raise UsageError("name what to publish as: --iceberg CATALOG, --delta, or both")
    from dissector.lake.publish import held_lake
    from dissector.lake.publish import publish as publish_lake

    formats = _formats(iceberg, namespace, is_delta=delta)
    with held_lake(folder) as held:
        for each in formats:
            for table in publish_lake(held, each):
                print(
                    f"{each.name}  {table.table}  {counted(table.files, 'file')}  "
                    f"{counted(table.rows, 'row')}  +{table.added}  -{table.removed}"
                )
        left_out = held.left_out()
        for capture in left_out:
            common.words.missing(
                f"{capture} is in no table: its files, of schema version 1, do not name it; "
                f"dissector lake compact {held.lake.shown} writes them anew"
            )
        return exit_of_unread(common, held.lake) or (EXIT_PARTIAL if left_out else 0)
