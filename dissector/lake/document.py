"""The schema in words: docs/lake.md.

python -m dissector.lake.document            print docs/lake.md
python -m dissector.lake.document FILE       write it
"""

import sys
from pathlib import Path
from typing import Final

from dissector.lake.queries import JOINS, QUERIES, VIEW
from dissector.lake.settings import SETTINGS, settings_table
from dissector.limits import MAX_DAY_LANDINGS
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
too, and by `ts` for the time itself. Nothing ever moves to another day, and groups are of one day.

- **Size.** Compacted days have files of {part_size} and, as the last of a table, what is left.
  Small captures of a day are put together by `land`, `report` and a tap by themselves, when the day
  holds more than {most_landings} landings; those that are larger than all smaller ones together
  stay as they are, so that a row is written anew a few times at most. What reports kept of captures
  serves on. While somebody reads the lake, that waits for the next command.
- **Retention.** `dissector lake keep LAKE 30d` (`lake rm LAKE --before 30d`, `tap --keep-lake 30d`)
  removes whole days, all of whose captures ended before the last 30 days began, today included. By
  hand, a day is removed by its landings (`lake list`, `lake rm`): a folder that is deleted leaves
  manifests that name it.
- **Older lakes** have no days. They are read as they are; `lake compact` moves them. A group that
  was made over several days lies in its first day, alone, and is removed when its last one is old.

In Spark, `spark.read.parquet("LAKE/exchanges")` has the columns `day` and `landing`. In Athena and
Trino:

```sql
create external table exchanges (
  connection_id bigint, kind string, topic string, outcome string, latency_ns bigint,
  ts timestamp, capture string)   -- and whatever else of the columns below, in any order
partitioned by (day date, landing string)
stored as parquet location 's3://BUCKET/LAKE/exchanges/';

msck repair table exchanges;      -- Trino: call system.sync_partition_metadata(...)
```

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
| reads: `report`, `sql`, `lake verify` | `_lock`, shared, while it reads | who takes away |
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
adds nothing. `_sums` holds numbers that reports keep for the next one, and below `stretches` what
stood open at ends of captures whose connections go on. They belong to no table, and whoever misses
them makes them again: `lake verify` passes them over. `_findings` holds what a tap that runs, or
that crashed, found: `dissector findings --lake` lists it until all rows of the run are in the lake.

## Crashes

Files are first written below `LAKE/_tmp`. A capture that is complete there is installed by the next
command that opens the lake, an incomplete one is deleted, also by the next landing. Commands that
write single files write them as `.NAME.*.unfinished` first; what a killed run left there, the next
one that writes NAME removes, and a tap what another left among its recordings.

## Paths

A lake and whatever is written lie in folders of this machine (mounted ones included); captures
may lie in stores ([storage.md](storage.md)). Elsewhere addresses such as `s3a://bucket/lake` or
`hdfs://…` are refused with exit code 1; `file:///lake` is `/lake`. A name with a colon is no
address, but for a slash behind the first one: `./s3:/lake` names such a folder.
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
