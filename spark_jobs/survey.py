"""What is known of all captures of a report before its sections are computed, and what is kept.

A report reads all captures; `report --new` only those that landed since the last run, those that
belong together with one of them, and what it kept of all others.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dissector.lake.reader import Lake
from dissector.report.output import TABLES
from dissector.report.parts import FILES
from dissector.schemas.arrow import arrow_schema
from spark_jobs import links, planning, state
from spark_jobs.counting import collected
from spark_jobs.joined import CLOSED, closed_schema
from spark_jobs.links import Plan, Row
from spark_jobs.parts import KEPT, Found
from spark_jobs.planning import Unit
from spark_jobs.shared import got_of, sends_of
from spark_jobs.state import Memory
from spark_jobs.tables import LakeTables
from spark_jobs.uris import to_read
from spark_jobs.workspace import Workspace

_CONNECTIONS: Final = pa.schema([arrow_schema("connections").field(name) for name in links.COLUMNS])
SCHEMAS: Final[Mapping[str, pa.Schema]] = {**KEPT, "files": FILES, "ends": _CONNECTIONS}
# Folders of a workspace: what a report keeps, and new rows on their way there.
KEEP: Final = "keep"
_NEW: Final = "new"


class Survey(NamedTuple):
    """files: capture_files of all captures; connections: theirs, with links.COLUMNS; digests: of
    all captures by name; plan, units: which of them are read together."""

    files: pa.Table
    connections: pa.Table
    digests: Mapping[str, str]
    plan: Plan
    units: tuple[Unit, ...]

    @property
    def captures(self) -> frozenset[str]:
        """The names of all captures."""
        return frozenset(self.digests)

    def connections_of(self, captures: frozenset[str]) -> list[Row]:
        """The connections of some captures."""
        rows: list[Row] = self.connections.to_pylist()
        return [row for row in rows if row["capture"] in captures]


class Keeper:
    """What a report keeps for the next one with --new, beside what the last one kept."""

    def __init__(self, memory: Memory, work: Workspace, settings: Mapping[str, object]) -> None:
        self._memory = memory
        self._work = work
        self._settings = settings

    def survey(self, spark: SparkSession, lake: Lake, digests: Mapping[str, str]) -> Survey:
        """What is known of the captures of a lake; reads those that are new, or changed.

        digests: of planning.digests, of the captures that count.
        """
        known = self._memory.captures
        kept = frozenset(name for name in digests if known.get(name) == digests[name])
        fresh = frozenset(digests) - kept
        files = self._memory.rows("files", FILES, kept)
        connections = self._memory.rows("ends", _CONNECTIONS, kept)
        rows: dict[str, DataFrame] = {}
        if fresh:
            tables = LakeTables(spark, lake, fresh)
            read = (collected(tables.read("capture_files"), FILES),
                    collected(tables.read("connections"), _CONNECTIONS))  # fmt: skip
            files = pa.concat_tables([files, read[0]])
            connections = pa.concat_tables([connections, read[1]])
            rows = {"published": sends_of(tables.read("exchanges")),
                    "delivered": got_of(tables.read("deliveries"))}  # fmt: skip
        state.write(files, self._place("files"))
        state.write(connections, self._place("ends"))
        both = self._extended(spark, ("published", "delivered"), rows, kept)
        plan = planning.plan(files, connections, both["published"], both["delivered"])
        return Survey(files, connections, digests, plan, tuple(planning.units(plan, digests)))

    def to_read(self, survey: Survey) -> frozenset[str]:
        """The captures whose rows are wanted: those of units that are not known."""
        wanted = [unit for unit in survey.units if unit.digest not in self._memory.units]
        if not wanted and not self.is_settled(survey):
            # The sections are made of something: what is read least.
            wanted = [min(survey.units, key=lambda unit: (len(unit.captures), unit.captures))]
        return frozenset(name for unit in wanted for name in unit.captures)

    def is_settled(self, survey: Survey) -> bool:
        """Whether nothing changed since the last run."""
        return {unit.digest for unit in survey.units} == self._memory.units.keys()

    def rows_of_all(self, rows: Mapping[str, DataFrame], read: frozenset[str], survey: Survey) -> (
        dict[str, DataFrame]
    ):  # fmt: skip
        """Rows of the captures that were read (see `merged`), and of all others as they were kept.

        read: the captures that were read.
        """
        spark = next(iter(rows.values())).sparkSession
        return self._extended(spark, tuple(rows), rows, survey.captures - read)

    def parts_of_all(self, found: Found, read: frozenset[str], survey: Survey) -> Found:
        """Parts of the captures that were read, and of all others as they were kept."""
        complete = dict(found)
        for name, schema in KEPT.items():
            parts = [self._memory.rows(_folder(name), schema, survey.captures - read)]
            if name in found:
                parts.append(found[name].cast(schema))
            complete[name] = pa.concat_tables(parts)
            state.write(complete[name], self._place(_folder(name)))
        return complete

    def writers(
        self, read: frozenset[str], survey: Survey, *, is_joined: bool
    ) -> dict[str, Callable[[Path], None]]:
        """What puts the closed rows, and all that is kept, into a report.

        is_joined: whether there are new closed rows.
        """
        found = {}
        for name in CLOSED:
            new = self._work.folder(f"closed/{name}") if is_joined else None
            target = self._place(f"closed_{name}")
            self._extend(target.name, survey.captures - read, new)
            if not any(target.iterdir()):
                state.write(closed_schema(name).empty_table(), target)
            found[f"{TABLES}/{target.name}"] = _moved(target)
        folder = self._work.folder(KEEP)
        state.save(folder, self._settings, survey.digests, survey.units)
        return found | {state.STATE: _moved(folder)}

    def text(self, read: frozenset[str], survey: Survey) -> str:
        """What is read, and why, in one line."""
        count = len(survey.captures)
        if self._memory.reason:
            return f"all {count} captures are read: {self._memory.reason}"
        gone = len(self._memory.captures.keys() - survey.captures)
        left = f", {gone} that left the lake do not count any more" if gone else ""
        if not read:
            return f"nothing landed since the last run over {count}: the report stays as it is"
        again = read & self._memory.captures.keys()
        more = f", {len(again)} of them again" if again else ""
        return f"captures read: {len(read)} of {count}{more}{left}"

    def _place(self, name: str) -> Path:
        return self._work.folder(f"{KEEP}/{name}")

    def _extended(
        self, spark: SparkSession, names: tuple[str, ...], rows: Mapping[str, DataFrame],
        kept: frozenset[str],
    ) -> dict[str, DataFrame]:  # fmt: skip
        self._work.all_settled(rows, f"{_NEW}/")
        for name in names:
            new = self._work.folder(f"{_NEW}/{name}") if name in rows else None
            self._extend(name, kept, new)
        return {name: spark.read.parquet(to_read(self._place(name))) for name in names}

    def _extend(self, name: str, kept: frozenset[str], new: Path | None) -> None:
        old = self._memory.folder
        state.extend(self._place(name), old / name if old is not None else None, kept, new)


def _moved(source: Path) -> Callable[[Path], None]:
    def move(target: Path) -> None:
        source.rename(target)

    return move


def _folder(name: str) -> str:
    return name.replace(".", "_")


def surveyed(spark: SparkSession, lake: Lake, digests: Mapping[str, str]) -> Survey:
    """What is known of the captures of a lake, nothing of which is kept.

    digests: of planning.digests, of the captures that count.
    """
    tables = LakeTables(spark, lake, frozenset(digests))
    files = collected(tables.read("capture_files"), FILES)
    connections = collected(tables.read("connections"), _CONNECTIONS)
    plan = planning.plan(
        files, connections, sends_of(tables.read("exchanges")), got_of(tables.read("deliveries"))
    )
    return Survey(files, connections, digests, plan, tuple(planning.units(plan, digests)))
