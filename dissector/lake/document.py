"""The schema in words: docs/lake.md.

python -m dissector.lake.document            print docs/lake.md
python -m dissector.lake.document FILE       write it
"""

import re
import sys
import textwrap
from pathlib import Path
from typing import Final

from dissector.lake.queries import JOINS, QUERIES, VIEW
from dissector.lake.settings import SETTINGS, settings_table
from dissector.limits import MAX_DAY_LANDINGS, PUBLISH_HISTORY_DAYS
from dissector.schemas.column import NEVER
from dissector.schemas.enums import EXPLAINED
from dissector.schemas.tables import OF_REPORTS, SCHEMA_VERSION, TABLES

_OPENING: Final = """\
# The lake

`dissector land` writes one Parquet dataset per table,
`LAKE/<table>/day=2026-01-31/landing=<id>/part-*.parquet`, and for each landing a manifest,
`LAKE/_manifest/<id>.json`. A landing is a capture, or a group that `lake compact` made of several
of a day; without a manifest it does not exist. This page is generated from
the declarations that the writer uses; `dissector fields` prints the same. Schema version {version}.

## Reading it

- `capture` is in the files of every table. (capture, connection_id, frame_no) names a frame, and
  joins its rows in all tables, before and after `lake compact`, in DuckDB, pandas, Polars and
  Spark alike. `day` and `landing`, which readers that know Hive folders add, are no part of any
  key.
- All numbers are 64-bit and signed; wire ids beyond 2^63 appear negative (2^64-1 is -1). Columns
  that end in `_ns` are nanoseconds, since 1970 or long; `ts` is a timestamp of microseconds, UTC.
- Null means not present, not applicable or not observable: never 0, never "no". The last column of
  the tables below says when. A count over a column (`count(latency_ns)`) counts what was observed,
  `count(*)` all rows; `x <> 'ok'` leaves nulls out, `x is distinct from 'ok'` does not.
- Text that is not UTF-8 shows odd bytes as `\\xNN`.
- Names, incarnations and balances are those that were known when a row was written; `producers`
  and `consumers` hold what became known later.
- Files are compressed with zstd; integers are delta-packed, names dictionary-encoded. Every table
  has at least one file, also without rows.
- A condition on a column skips what cannot fit: each row group has the least and the most of every
  number, flag, time and name and how many rows are null, each page too where a row group has
  several, and a Bloom filter tells which topics and connection keys are in none. Rows of a landing
  are in the order of `frame_no`, nearly always in that of `ts`; where they are, the row group says
  that it is sorted so.

### Ids

The id of a capture is `c-`, the name of its (first) file in plain letters without the suffixes of
rings and compression, and 12 digits of the SHA-256 of its bytes. Letters and digits of ASCII stay,
in lower case, other characters of ASCII are a hyphen each. Letters with marks lose them; Greek,
Cyrillic, kana and Hangul are written in Latin letters; every other character is its code point:
`u591c-u95f4` is the name of two Chinese characters. The name ends after 160 characters. The id of a
tap's rotation is `c-<interface>-<start of the tap in ns>-<number>`; ids of groups begin with
`compact-`. A capture landed with `--max-packets N` is named `first-N-<name>`, its digits are of
the bytes up to its last packet; it is compared only with captures cut at the same N, so that it
and the whole capture stand side by side.

### Which rows belong together

{joins}

A frame's number is its own within a capture: where a connection is not known, (capture, frame_no)
is enough. Numbers of connections, frames and packets count within a capture. Rotations of a tap go
on counting: they are captures of their own, and their rows join by (tap_run, connection_id,
frame_no), with `tap_run` from `capture_files`. Captures of one connection landed apart have
different numbers for it; `connections.connection_key` is equal in both, and `dissector report`
joins them. A row names nothing that lies in a capture landed apart (the delivery before, the
answer): those columns are null in it, and the report's `tables/closed_*` fill them.

### Days

- `day=2026-01-31`: captures whose first packet is of that day, UTC, with all of their rows
- `day=__HIVE_DEFAULT_PARTITION__`: captures without a packet; readers take it for null
- `landing=<id>`: the files of one capture or group; `part-00001` begins behind {part_size}

A condition on `day` opens only the folders of these days: `where day >= date '2026-01-01'`. Rows of
a capture that goes on over midnight stay in the day of its first packet, so ask for the day before,
too, and by `ts` for the time itself. `dissector sql` has this `day`, of all lakes, as a date.
Nothing ever moves to another day, and groups are of one day.

- **Size.** Compacted days have files of {part_size} and, as the last of a table, what is left.
  Small captures of a day are compacted by `land`, `report` and a tap by themselves, when the day
  holds more than {most_landings} landings; those that are larger than all smaller ones together
  stay as they are, so that a row is written anew a few times at most. What reports kept of captures
  serves on. While somebody reads the lake, that waits for the next command.
- **Retention.** `dissector lake keep LAKE 30d` (`lake rm LAKE --before 30d`, `tap --keep-lake 30d`)
  removes whole days, all of whose captures ended before the last 30 days began, today included. By
  hand, a day is removed by its landings (`lake list`, `lake rm`): a folder that is deleted leaves
  manifests that name it.
- **Older lakes** have no days. They are read as they are; `lake compact` moves them. A group that
  was made over several days lies in its first day, alone, and is removed when its last one is old.

### Tables of Iceberg and Delta Lake

`dissector lake publish LAKE --iceberg CATALOG`, or `--delta`, or both, makes each table of the lake
a table of that format: a list of the lake's own files, where they lie. No row is copied, and
nothing of the lake is written. `pip install 'pulsar-dissector[publish]'` brings the libraries.

    dissector lake publish lake --iceberg sqlite:////data/catalog.db    # dissector.exchanges, …
    dissector lake publish lake --delta                                 # lake/exchanges, …

- **Again.** Publishing again adds what was landed since and takes off what has gone, by one commit
  for each table; where nothing differs there is none. A reader sees a table before or after, each
  table by itself: the commits of twelve tables are not one. Publish after `lake rm`, `lake keep`
  and `lake compact`, and after `land`, `report` and taps, which compact crowded days: until then
  the list names files that have gone, and queries that want these fail; none leaves them out.
- **Whoever is killed** leaves tables that are before or after; the next run does the others. Two
  that publish at once both end well: who comes second looks again.
- **Iceberg.** CATALOG is a name that pyiceberg is configured for (`~/.pyiceberg.yaml`,
  `PYICEBERG_CATALOG__NAME__URI`), or the address of one: of SQLite, PostgreSQL, REST, Hive. Under
  an address it has the name `default`, as in pyiceberg's own commands. Tables are of format
  version 2 in the namespace `dissector` (`--namespace`), one for each lake, partitioned by `day`.
  `day` is in no file; its value stands in the list, as the specification has it for tables of
  Hive. Columns are found by name. Lists lie where the catalog says, else below `LAKE/_iceberg`.
  Snapshots are kept for {history} days, their files only as long as the lake has them. The property
  `gc.enabled` is false, so that no engine deletes files of the lake.
- **Delta Lake.** Each `LAKE/<table>` is a table, `_delta_log` its list; partitions are `day` and
  `landing`. Paths in it are relative, so that a lake may be moved. VACUUM deletes nothing that is
  younger than ten years; never tell it less.
- **In a store.** `lake publish s3://bucket/lake` lists files by their addresses there; lists lie
  beside them: [storage.md](storage.md#tables-of-iceberg-and-delta-lake).
- **Types** are those below: bigint is long, timestamps are of microseconds with UTC, lists and maps
  are what they are; no column is unsigned or of nanoseconds. Lists have the least and the most of
  columns and the number of nulls, as files have them: a condition on `day`, `topic`, `ts` or a
  number opens only the files that may fit.
- **Older lakes.** Captures of schema versions 2 and 3 are listed under their day; columns that they
  lack are null. Files of version 1 do not name their capture: these are left out, named, and the
  exit code is 3 until `lake compact` wrote them anew. (Polars takes partitions from names of
  folders: `scan_delta` wants all captures in days.)
- **Rights.** Lists hold names of topics and addresses: `_delta_log` and `_iceberg` are for you and
  your group. `#`, `?` and `%` may not be in the path of the lake.
- **Following a table.** A rotation of a tap is a landing: published, it is an append. A commit that
  takes files off, too, is an overwrite, by which the streaming readers of both formats stop, or
  which they pass over with all that it adds: compact and publish apart from landing.

```python
from pyiceberg.catalog import load_catalog

catalog = load_catalog(uri="sqlite:////data/catalog.db")
catalog.load_table("dissector.exchanges").scan("day >= '2026-01-31'").to_arrow()

import deltalake, polars

deltalake.DeltaTable("lake/exchanges").to_pyarrow_table(filters=[("kind", "=", "publish")])
polars.scan_delta("lake/exchanges").filter(polars.col("latency_ns") > 1_000_000).collect()
```

### In Spark, Athena and Trino without publishing

In Spark, `spark.read.parquet("LAKE/exchanges")` has the columns `day` and `landing`. Athena and
Trino read the folders as a table of Hive. Athena's types are written as below, `timestamp[us, UTC]`
is `timestamp`; columns are found by name, so that any may be left out, in any order:

```sql
{athena}

msck repair table exchanges;
```

Trino says `varchar` for string and has brackets for lists and maps, `array(bigint)`,
`map(varchar, bigint)`; for microseconds `set session hive.timestamp_precision = 'MICROSECONDS'`
(Athena and else Trino show whole milliseconds; columns in `_ns` are exact):

```sql
{trino}

call system.sync_partition_metadata('default', 'exchanges', 'FULL');
```

Partitions are told again after each landing and after what takes landings away; `FULL` drops
those that have gone, in Athena `alter table … drop partition` does.
Of a lake in a store they also see files that belong to no capture any more, until `lake tidy`
removes them: publish such a lake instead.

### In DuckDB

    {view}

A view for each table, so written, makes these run, which answer what people ask:

{queries}

### In pandas

`pandas.read_parquet("LAKE/exchanges")` makes floats of every column of integers that holds a null,
and floats round above 2^53: ids, offsets and times in ns lose their last digits. Ask for types that
hold nulls:

    pandas.read_parquet("LAKE/exchanges", dtype_backend="pyarrow")          # or "numpy_nullable"

Polars (`polars.read_parquet("LAKE/exchanges/*/*/*.parquet", hive_partitioning=True)`) and Spark
(`spark.read.parquet("LAKE/exchanges")`) have such types always.

### How the files are written

Manifests hold these, too (`settings`), and the versions of what the bytes depend on (`versions`):
as long as they are the same, the same rows are the same bytes.

{settings}

## Words

{words}

## Schema versions 1 to 3

Version 3 differs in its folders alone, `LAKE/<table>/landing=<id>`: by hand, read it by
`LAKE/exchanges/**/*.parquet`, together with days. In version 1 folders were named `capture=<id>`,
and files had no column `capture`: readers took it from the folder. In a group that was the group's
id, so that joins multiplied rows unless they used `coalesce(origin_capture, capture)`, which still
gives the same. Every command reads lakes of any version, and of several; `lake compact` writes
captures of older versions anew, whatever their size and number, and landing a capture again puts
this version in its place. By hand, read version 1 apart: DuckDB refuses a pattern with both kinds
of folders. Version 2 lacks columns that came since (`exchanges.publish_time_ms`,
`messages.key_hash`, `consumers.key_shared_mode` and `frames.message_permits` with those behind
them): by hand, read it with `union_by_name = true`. Captures of versions 1 and 2 have no rows of
`events`.

## Removing

`lake rm` removes all the captures that it was asked for, or none: what a killed run left of it, the
next command that opens the lake does. A compacted group is removed as a whole, by its id or by
`--before` when all of it is older; `lake keep` removes whole days. `lake verify` names folders that
belong to no capture and manifests that cannot be read; `lake rm` removes either by id, landing the
capture again mends it. A manifest that cannot be read, or that a newer program wrote, hides no
other capture: `lake list`, `lake verify` and `report` name it, go on, and exit 3; what changes a
lake refuses one that a newer program wrote to. `_tmp`, `_sums`, `_manifest`, the locks and the
folders of tables may not be symbolic links; `LAKE` itself may.

## Landing again

Landing the same bytes with the same options writes the same files. So what is there already is
read and hashed, not dissected; what the manifest says of it (`account`) is said again, with the
same exit code. With `--strict`, from standard input, where TLS was decrypted, or with a key log
where it was not, it is dissected again. A capture that has grown (its
earlier bytes are a prefix of the new ones, and the files have the same base name) replaces the
shorter one; a shorter one is not landed when the longer is there. That a shorter one is a prefix is
told by digests kept in the manifest: exactly at the ends of files, elsewhere up to the last
thousandth of the longer capture (at least 256 bytes). Files that are part of another capture of
the same base name are named on landing. A report counts files once, whatever their names: it leaves
out a capture whose files are all in another one. Of several inputs of one command, those with the
same bytes, or with the beginning of another's, are read once.

A landing looks at the captures of its own base name, and at groups that hold some: their ids tell,
so that it takes as long among 10,000 captures as in an empty lake. If another landing of the same
name came in between, it decides by what is there then.

## Reading and changing at once

| who | holds | waits for |
|---|---|---|
| reads: `report`, `sql`, `lake publish` | `_lock`, shared, while it reads | who takes away |
| adds: `land`, a tap | `_lock_commit`, `_lock` shared, to install | who adds or takes away |
| takes away: `lake rm`, `lake keep`, a grown capture | `_lock` alone, to install | all of them |
| `lake compact` | `_lock` shared to write, then alone to install | who reads or adds |
| `land`, `report`, a tap that compact by themselves | the same | nobody: it is left for later |

What was there when a reader came stays until it goes, and what is added meanwhile it does not see.
So nobody waits for a report to land a new capture; a capture that has grown takes files away, and
waits. A tap waits for nobody: a rotation that cannot be added at once is complete below `_tmp`, and
whoever opens or changes the lake next adds it. Nothing is read, decoded or written to disk while a
lock is held alone, but for the last steps: renaming. A lake on a shared file system needs `flock`.
What reads the files without these locks, such as DuckDB by a pattern, may see tables of a capture
that is just being installed, one after the other.

`_lock` holds the highest schema version that was ever landed: a program that knows only lower ones
adds nothing. `_sums` holds numbers that reports keep for the next one, below `reports` a few whole
reports of what the lake holds and the figures of their pages, and below `stretches` what stood open
at ends of captures whose connections go on. They belong to no table, and whoever misses them makes
them again: `lake verify` passes them over, and lists of published tables (`_iceberg`,
`_delta_log`). `_findings` holds what a tap that runs, or that crashed, found: `dissector findings
--lake` lists it until all rows of the run are in the lake.

## Crashes

Files are first written below `LAKE/_tmp`. A capture that is complete there is installed by the next
command that opens the lake, an incomplete one is deleted, also by the next landing. Commands that
write single files write them as `.NAME.*.unfinished` first; what a killed run left there, the next
one that writes NAME removes, and a tap what another left among its recordings.

## Paths

Lakes lie in folders of this machine (mounted ones included), or in stores; captures, too
([storage.md](storage.md) says how a lake lies there). Whatever else is named lies on this machine:
addresses such as `s3a://bucket/report` are refused with exit code 1; `file:///lake` is `/lake`. A
name with a colon is no address, but for a slash behind the first one: `./s3:/lake` names such a
folder.
"""


def lake_page() -> str:
    """The text of docs/lake.md."""
    parts = {
        "joins": "\n".join(_joins()),
        "view": VIEW.format(table="exchanges", lake="LAKE"),
        "queries": "\n".join(_queries()),
        "settings": "\n".join(settings_table()),
        "part_size": f"{SETTINGS.part_bytes >> 20} MiB",
        "most_landings": f"{MAX_DAY_LANDINGS}",
        "history": f"{PUBLISH_HISTORY_DAYS}",
        "athena": athena_table("exchanges", "s3://BUCKET/LAKE") + ";",
        "trino": trino_table("exchanges", "s3://BUCKET/LAKE") + ";",
        "words": "\n".join(_words()),
    }
    lines = [_OPENING.format(version=SCHEMA_VERSION, **parts)]
    for table in (TABLES | OF_REPORTS).values():
        lines += [f"## {table.name}", "", f"One row is {table.row}.", ""]
        lines += ["| column | type | unit | meaning | null |", "|---|---|---|---|---|"]
        lines += [
            f"| `{c.name}` | {c.type} | {c.unit} | {c.meaning} | {_null_rule(c.null)} |"
            for c in table.columns
        ]
        lines.append("")
    return "\n".join(lines)


def hive_columns(table: str) -> list[str]:
    """The columns of a table and their types as Hive, Athena and Spark write them."""
    types = {"timestamp[us, UTC]": "timestamp"}
    return [f"{c.name} {types.get(c.type, c.type)}" for c in TABLES[table].columns]


def athena_table(table: str, lake: str) -> str:
    """The statement by which Athena, or Hive, reads the files of a table."""
    return (
        f"create external table {table} (\n{_wrapped(hive_columns(table))})\n"
        "partitioned by (day date, landing string)\n"
        f"stored as parquet location '{lake}/{table}/'"
    )


def trino_table(table: str, lake: str) -> str:
    """The same of Trino."""
    columns = []
    for column in hive_columns(table):
        name, type = column.split(" ", 1)
        type = re.sub(r"<(.*)>", r"(\1)", type).replace("string", "varchar").replace(",", ", ")
        columns.append(f"{name} {'timestamp(6)' if type == 'timestamp' else type}")
    return (
        f"create table {table} (\n{_wrapped([*columns, 'day date', 'landing varchar'])})\n"
        f"with (format = 'PARQUET', external_location = '{lake}/{table}/',\n"
        "  partitioned_by = array['day', 'landing'])"
    )


def _wrapped(columns: list[str]) -> str:
    """Columns in lines, none of them over two."""
    text = ", ".join(column.replace(" ", "\0") for column in columns)
    filled = textwrap.fill(text, 96, initial_indent="  ", subsequent_indent="  ")
    return filled.replace("\0", " ")


def _joins() -> list[str]:
    """Which columns of which table name which row, as a table."""
    lines = ["| from | by | to |", "|---|---|---|"]
    return lines + [f"| {join.table} | {join.by} | {join.to} |" for join in JOINS]


def _queries() -> list[str]:
    lines = []
    for number, query in enumerate(QUERIES, 1):
        lines += [f"{number}. {query.question}", "", "```sql", f"{query.sql};", "```", ""]
    return lines[:-1]


def _words() -> list[str]:
    """What the words of columns mean."""
    lines = []
    for columns, words in EXPLAINED.items():
        lines += [f"`{columns}`".replace(", ", "`, `") + ":", ""]
        lines += [f"- `{word}`: {meaning}" for word, meaning in words.items()]
        lines.append("")
    return lines[:-1]


def _null_rule(rule: str) -> str:
    return "" if rule == NEVER else rule


def main(arguments: list[str]) -> None:
    """Print the page, or write it to the file that is named; options are no names."""
    if arguments and not arguments[0].startswith("-"):
        Path(arguments[0]).write_text(lake_page(), "utf-8")
    else:
        sys.stdout.write(lake_page())


if __name__ == "__main__":
    main(sys.argv[1:])
