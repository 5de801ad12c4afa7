"""The schema in words: docs/lake.md.

python -m dissector.lake.document            print docs/lake.md
python -m dissector.lake.document FILE       write it
"""

import sys
from pathlib import Path
from typing import Final

from dissector.limits import PART_ROWS, ROW_GROUP_ROWS
from dissector.schemas.column import NEVER
from dissector.schemas.tables import SCHEMA_VERSION, TABLES

_OPENING: Final = """\
# The lake

`dissector land` writes one Parquet dataset per table, `LAKE/<table>/capture=<capture>/`, and for
each capture a manifest, `LAKE/_manifest/<capture>.json`. A capture without a manifest does not
exist. This page is generated from the declarations that the writer uses; `dissector fields` prints
the same. Schema version {version}.

## Reading it

- `capture` is the partition column: readers that know Hive folders (Spark, pyarrow, DuckDB) add it.
- A row's identity is (coalesce(origin_capture, capture), connection_id, frame_no).
- All numbers are 64-bit and signed; wire ids beyond 2^63 appear negative (2^64-1 is -1). Columns
  that end in `_ns` are nanoseconds, since 1970 or long; `ts` is a timestamp of microseconds, UTC.
- Null means not present, not applicable or not observable; the last column says when.
- Text that is not UTF-8 shows odd bytes as `\\xNN`.
- Names, incarnations and balances are those that were known when a row was written; `producers`
  and `consumers` hold what became known later.
- Files are compressed with zstd; integers are delta-packed, names dictionary-encoded. A row group
  holds {group_rows} rows (fewer where they hold much text), a file up to {part_rows}. Every table
  has at least one file, also without rows.

## Landing again

Landing the same bytes with the same options writes the same files. A capture that has grown (its
earlier bytes are a prefix of the new ones, and the files have the same base name) replaces the
shorter one; a shorter one is not landed when the longer is there. That a shorter one is a prefix is
told by digests kept in the manifest: exactly at the ends of files, elsewhere up to the last
thousandth of the longer capture (at least 256 bytes). Files that are part of another capture of
the same base name are named on landing. A report counts files once, whatever their names: it leaves
out a capture whose files are all in another one. Of several inputs of one command, those with the
same bytes, or with the beginning of another's, are read once.

## Crashes

Files are first written below `LAKE/_tmp`. A capture that is complete there is installed by the next
command that opens the lake, an incomplete one is deleted. Readers share a lock on `LAKE/_lock`;
installing and removing take it alone.
"""


def lake_page() -> str:
    """The text of docs/lake.md."""
    rows = {"group_rows": f"{ROW_GROUP_ROWS:,}", "part_rows": f"{PART_ROWS:,}"}
    lines = [_OPENING.format(version=SCHEMA_VERSION, **rows)]
    for table in TABLES.values():
        lines += [f"## {table.name}", "", f"One row is {table.row}.", ""]
        lines += ["| column | type | unit | meaning | null |", "|---|---|---|---|---|"]
        lines += [
            f"| `{c.name}` | {c.type} | {c.unit} | {c.meaning} | {_null_rule(c.null)} |"
            for c in table.columns
        ]
        lines.append("")
    return "\n".join(lines)


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
