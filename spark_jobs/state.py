"""What `report --new` keeps: the rows that a report was made from, for each of its captures.

REPORT/state/state.json says which captures they are of, under which options and which program they
were found. It lies in the report's folder and goes into place with it, so a report and what it was
made from are always of one run. Files are never changed: what is still right is linked from one
report to the next, and only files of which a part is not right any more are written again.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dissector.errors import OutputError
from dissector.report.output import TABLES, read_report
from dissector.report.result import REPORT_VERSION
from dissector.schemas import SCHEMA_VERSION
from spark_jobs.planning import Unit

STATE: Final = "state"
# It steps when rows that are kept get other columns, or mean something else.
STATE_VERSION: Final = 1
_FILE: Final = "state.json"
# More files than this of a table become one.
MAX_FILES: Final = 64
_AT_A_TIME: Final = 1 << 16  # rows


class Memory(NamedTuple):
    """What an earlier run left.

    folder: of copies of its files, None if there is nothing; captures: digest by name; units: what
    is known of them; reason: why nothing is used, empty if there was nothing.
    """

    folder: Path | None
    captures: Mapping[str, str]
    units: Mapping[str, tuple[str, ...]]
    reason: str = ""

    def rows(self, table: str, schema: pa.Schema, captures: frozenset[str]) -> pa.Table:
        """The rows of a small table that are of some captures."""
        if self.folder is None:
            return schema.empty_table()
        return read(self.folder / table, schema, captures)


NOTHING: Final = Memory(None, {}, {})


def settings(selection: Mapping[str, Any], schemas: Mapping[str, pa.Schema]) -> dict[str, Any]:
    """What rows that are kept depend on, beside their captures.

    selection: of a report; schemas: of the tables that are kept.
    """
    shapes = "\n".join(f"{name}: {schema}" for name, schema in sorted(schemas.items()))
    return {
        "state_version": STATE_VERSION,
        "report_version": REPORT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "program": _program(),
        "tables": hashlib.sha256(shapes.encode()).hexdigest(),
        "selection": dict(selection),
    }


def _program() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pulsar-dissector")
    except PackageNotFoundError:
        return "unknown"


def recall(output: Path, wanted: Mapping[str, Any], folder: Path) -> Memory:
    """What the last run with the same settings left in a report's folder.

    Args:
        output: the report.
        wanted: of `settings`.
        folder: where links to its files are made, so that another run cannot take them away.
    """
    try:
        said = json.loads((output / STATE / _FILE).read_text("utf-8"))
        read_report(output)
        found = said["settings"]
        if found != wanted:
            return NOTHING._replace(reason=_difference(found, wanted))
        for name, size in said["files"].items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(output / _place(name), target)
            if target.stat().st_size != size:
                return NOTHING._replace(reason=f"{name} is damaged")
        units = {digest: tuple(captures) for digest, captures in said["units"].items()}
        return Memory(folder, dict(said["captures"]), units)
    except FileNotFoundError as error:
        is_first = not (output / STATE / _FILE).exists()
        return NOTHING._replace(reason="" if is_first else f"{error.filename} is missing")
    except OutputError as error:
        return NOTHING._replace(reason=str(error))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return NOTHING._replace(reason=f"{_FILE} cannot be read ({error})")


def _place(name: str) -> str:
    """Where a file is in a report: closed rows are among its tables."""
    return f"{TABLES}/{name}" if name.startswith("closed_") else f"{STATE}/{name}"


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    other = [name for name in wanted if found.get(name) != wanted[name]]
    if other == ["selection"]:
        return "it is of another --since, --until or --topic"
    return "another version of this program wrote it"


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # not every file system has links
        shutil.copyfile(source, target)


def read(folder: Path, schema: pa.Schema, captures: frozenset[str] | None = None) -> pa.Table:
    """All rows of a small table, or those of some captures."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        rows = pq.ParquetFile(path).read(columns=schema.names).cast(schema)
        found.append(rows if captures is None else _of(rows, captures))
    return pa.concat_tables(found) if found else schema.empty_table()


def _of(rows: pa.Table, captures: frozenset[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows.column("capture"), pa.array(sorted(captures), pa.string())))


def write(rows: pa.Table, folder: Path) -> None:
    """Write a small table."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / "part-00000.parquet", compression="zstd")


def extend(folder: Path, old: Path | None, captures: frozenset[str], new: Path | None) -> None:
    """Make a large table: what is kept of an old one, and new rows as Spark wrote them.

    Args:
        folder: where it goes.
        old, new: folders of Parquet files, if there are any; those of `new` are moved.
        captures: whose rows of the old one are kept.
    """
    folder.mkdir(parents=True)
    sources = sorted(old.glob("*.parquet")) if old is not None else []
    for path in sources:
        there = pq.ParquetFile(path).read(columns=["capture"]).column("capture")
        is_kept = pc.is_in(there, pa.array(sorted(captures), pa.string()))
        if not pc.any(is_kept).as_py():
            continue
        target = _next_in(folder)
        if pc.all(is_kept).as_py():
            _link(path, target)
        else:
            _rewrite([path], target, captures)
    for path in sorted(new.glob("*.parquet")) if new is not None else []:
        if pq.read_metadata(path).num_rows or not any(folder.iterdir()):
            path.rename(_next_in(folder))
    parts = sorted(folder.glob("*.parquet"))
    if len(parts) > MAX_FILES:
        _rewrite(parts, folder / "all", None)
        for path in parts:
            path.unlink()
        (folder / "all").rename(parts[0])


def _next_in(folder: Path) -> Path:
    return folder / f"part-{sum(1 for _ in folder.iterdir()):05d}.parquet"


def _rewrite(paths: Sequence[Path], target: Path, captures: frozenset[str] | None) -> None:
    writer = None
    for path in paths:
        source = pq.ParquetFile(path)
        schema = source.schema_arrow if writer is None else writer.schema
        writer = writer or pq.ParquetWriter(target, schema, compression="zstd")
        for batch in source.iter_batches(_AT_A_TIME):
            rows = pa.Table.from_batches([batch]).cast(schema)
            writer.write_table(rows if captures is None else _of(rows, captures))
    if writer is not None:
        writer.close()


def save(
    folder: Path, wanted: Mapping[str, Any], captures: Mapping[str, str], units: Sequence[Unit]
) -> None:
    """Say what the files of a folder are: state, and closed rows beside it."""
    files = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*.parquet"))
    }
    content = {
        "settings": dict(wanted),
        "captures": dict(captures),
        "units": {unit.digest: list(unit.captures) for unit in units},
        "files": files,
    }
    (folder / _FILE).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", "utf-8")
