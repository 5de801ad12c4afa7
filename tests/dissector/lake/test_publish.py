"""Tables of other tools hold what a lake does, however it changes, and whoever publishes."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.blocks import TableBlock
from dissector.errors import InputError, OutputError, UsageError
from dissector.lake import publish as publishing
from dissector.lake import publish_delta, publish_iceberg
from dissector.lake.compact import compact
from dissector.lake.landing import Landing
from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.lake.publish import LakeFile, held_lake, leaves_of, publish
from dissector.lake.reader import open_lake, remove, verify
from dissector.lake.retention import keep
from dissector.lake.settings import SETTINGS
from dissector.lake.writer import LakeWriter
from dissector.limits import PUBLISH_ATTEMPTS
from dissector.schemas import TABLES
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.lake.landed import TABLES_MADE, content, land, tree
from tests.dissector.lake.older_versions import as_version_1, as_version_2, as_version_3
from tests.dissector.lake.published import (
    READERS,
    Reader,
    all_tables,
    assert_equal,
    few_tables,
    of_polars,
    once_before,
    published,
    rows,
    rows_of_lake,
)
from tests.dissector.lake.samples import landed
from tests.dissector.lake.test_retention import HOUR, JANUARY, land_at
from tests.dissector.schemas.made import made_block

__all__ = ["all_tables", "few_tables"]

pytestmark = pytest.mark.usefixtures("few_tables")

DAY_HOURS = 24
SIZES = (300, 400, 500)
MODULES = {"iceberg": publish_iceberg, "delta": publish_delta}


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


@pytest.fixture
def module(reader: Reader) -> Any:
    """The module of the format."""
    return next(MODULES[name] for name, each in READERS.items() if each is reader)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of all kinds of columns, of three days and of none."""
    lake = tmp_path_factory.mktemp("made") / "lake"
    for size in SIZES:
        land(lake, f"n{size}", content(size))
    land_at(lake, "today", 1)
    land_at(lake, "yesterday", 1 - DAY_HOURS)
    land_at(lake, "empty", None)
    return lake


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(made, tmp_path / "lake"))


def table_of(lake: Path, table: str) -> pa.Table:
    with open_lake(lake) as opened:
        return opened.table(table)


def own(lake: Path) -> dict[str, bytes]:
    """The files of a lake without those that publishing adds."""
    added = ("_iceberg", "_delta_log")
    return {path: data for path, data in tree(lake).items() if not {*added} & {*path.split("/")}}


@pytest.mark.usefixtures("all_tables")
def test_every_row_is_read_and_the_lake_is_as_it_was(lake: Path, reader: Reader) -> None:
    before = own(lake)
    made = published(lake, reader)
    assert own(lake) == before
    assert_equal(lake, reader)
    assert set(made) == set(TABLES)
    for table, each in made.items():
        files = f"read_parquet('{lake}/{table}/*/*/*.parquet')"
        ((count,),) = duckdb.sql(f"select count(*) from {files}").fetchall()
        assert (each.rows, each.added, each.removed) == (count, each.files, 0)
    assert made["frames"].files == 6 and made["deliveries"].files == 0, "files without rows"
    with open_lake(lake) as opened:
        assert verify(opened) == []


@pytest.mark.usefixtures("all_tables")
def test_real_captures_sum_up_to_the_same(tmp_path: Path, reader: Reader) -> None:
    lake = landed(tmp_path / "lake")
    published(lake, reader)
    for table in TABLES:
        exchanges = f"read_parquet('{lake}/{table}/*/*/*.parquet')"
        numbers = [c.name for c in TABLES[table].columns if c.type == "bigint"]
        sums = ", ".join(f"sum({name}::hugeint)::varchar, count({name})" for name in numbers)
        read = reader.arrow(lake, table)
        assert read.num_rows
        (wanted,) = duckdb.sql(f"select count(*), {sums} from {exchanges}").fetchall()
        (found,) = duckdb.sql(f"select count(*), {sums} from read").fetchall()
        assert found == wanted, table


@pytest.mark.usefixtures("all_tables")
def test_polars_reads_delta_tables(tmp_path: Path) -> None:
    lake = landed(tmp_path / "lake")
    published(lake, READERS["delta"])
    for table in TABLES:
        assert of_polars(lake, table).num_rows == len(rows_of_lake(lake, table))
    for table in ("exchanges", "frames"):
        assert rows(of_polars(lake, table), table) == rows_of_lake(lake, table)


def test_publishing_again_tells_the_difference(lake: Path, reader: Reader) -> None:
    published(lake, reader)

    def again(added: int, removed: int) -> None:
        commits = reader.commits(lake, "frames")
        made = published(lake, reader)["frames"]
        assert (made.added, made.removed) == (added, removed)
        assert reader.commits(lake, "frames") == commits + (1 if added or removed else 0)
        assert_equal(lake, reader)

    again(0, 0)
    land_at(lake, "tomorrow", 1 + DAY_HOURS)
    again(1, 0)
    remove(lake, ["c-n300*"])
    again(0, 1)
    (group,) = compact(lake, ("c-n*",)).groups
    again(1, 2)
    land_at(lake, "later", 2 + DAY_HOURS)
    assert keep(lake, JANUARY).gone == (group.capture_id,)
    again(1, 1)
    remove(lake, ["*"])
    again(0, 5)
    assert not reader.arrow(lake, "frames").num_rows
    land_at(lake, "tomorrow", 1 + DAY_HOURS)
    again(1, 0)


def test_a_condition_opens_files_of_its_day_and_range(tmp_path: Path, reader: Reader) -> None:
    lake = tmp_path / "lake"
    for day in range(4):
        with Landing(lake, f"d{day}") as landing:
            landing.digest.update(bytes([day]))
            landing.digest.end_file("f.pcap")
            first = np.array([JANUARY + day * DAY_HOURS * HOUR], np.int64)
            span = {"first_ts_ns": first, "last_ts_ns": first, "packets": np.array([8])}
            landing.write(TableBlock("capture_files", 1, span))
            frames = np.arange(8) + 100 * day
            topics = [f"persistent://public/default/a-long-name-{day}"] * 8
            known: dict[str, Any] = {"frame_no": frames, "topic": topics, "ts": frames * 1000}
            landing.write(TableBlock("frames", 8, known))
            landing.commit({})
    published(lake, reader)

    def opened(condition: str | None) -> int:
        return reader.files(lake, "frames", condition)

    assert opened(None) == 4
    assert opened("day = '2026-02-01'") == 1 and opened("day >= '2026-02-01'") == 3
    assert opened("frame_no >= 200") == 2 and opened("frame_no = 107") == 1
    assert opened("frame_no > 307") == 0
    assert opened("topic = 'persistent://public/default/a-long-name-2'") == 1
    assert opened("day = '2026-02-01' and frame_no > 200") == 0


@pytest.mark.parametrize("seed", range(4 if LOOKS_AT_ALL else 1))
def test_no_condition_hides_a_row(
    tmp_path: Path, reader: Reader, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values at the ends of what a file holds, over several row groups: the file is opened."""
    monkeypatch.setattr(LakeWriter.__init__, "__defaults__", (4, SETTINGS.part_bytes))
    monkeypatch.setattr(publishing, "TABLES", TABLES_MADE)
    lake = tmp_path / "lake"
    with Landing(lake, "one") as landing:
        landing.digest.update(b"one")
        landing.digest.end_file("f.pcap")
        for table in TABLES_MADE:
            landing.write(made_block(table, 12, seed))
        landing.write(TableBlock("capture_files", 1, {"packets": np.array([1])}))
        landing.commit({})
    published(lake, reader)
    asked = 0
    for table in TABLES_MADE:
        rows = table_of(lake, table)
        for column in TABLES[table].columns:
            if column.type not in ("bigint", "string"):
                continue
            values = {v for v in rows.column(column.name).to_pylist() if v is not None}
            # Each library reads a backslash in its own way.
            there = sorted(value for value in values if "\\" not in str(value))
            for value in {*there[:1], *there[-1:]}:
                quoted = f"'{value}'" if isinstance(value, str) else value
                assert reader.files(lake, table, f"{column.name} = {quoted}") == 1
                asked += 1
    assert asked > 100


@pytest.mark.parametrize("version", [as_version_2, as_version_3])
def test_older_layouts_lie_in_their_days(lake: Path, reader: Reader, version: Any) -> None:
    version(lake, *(path.stem for path in (lake / MANIFEST_FOLDER).glob("c-[ny]*")))
    published(lake, reader)
    assert_equal(lake, reader)
    compact(lake)
    published(lake, reader)
    assert_equal(lake, reader)


def test_files_that_name_no_capture_are_left_out(lake: Path, reader: Reader) -> None:
    (old,) = (path.stem for path in (lake / MANIFEST_FOLDER).glob("c-n300*"))
    as_version_1(lake, old)
    with held_lake(lake) as held:
        assert held.left_out() == [old]
        made = {each.table: each for each in publish(held, reader.to(lake))}
    assert made["frames"].files == 5
    assert old not in reader.arrow(lake, "frames").column("capture").to_pylist()
    compact(lake)
    published(lake, reader)
    assert_equal(lake, reader)


def test_a_file_that_changed_under_its_path_is_known_anew(tmp_path: Path, reader: Reader) -> None:
    lake = tmp_path / "lake"

    def land_numbers(first: int) -> Path:
        with Landing(lake, "same") as landing:
            landing.digest.update(b"the same bytes")
            landing.digest.end_file("f.pcap")
            landing.write(TableBlock("capture_files", 1, {"packets": np.array([1])}))
            landing.write(TableBlock("frames", 3, {"frame_no": np.arange(first, first + 3)}))
            landing.commit({"option": first})
        (path,) = (lake / "frames").rglob("landing=*/*.parquet")
        return path

    size = land_numbers(1000).stat().st_size
    published(lake, reader)
    assert land_numbers(2000).stat().st_size == size, "neither size nor rows tell"
    made = published(lake, reader)
    assert (made["frames"].added, made["frames"].removed, made["frames"].files) == (1, 1, 1)
    assert_equal(lake, reader)
    assert reader.files(lake, "frames", "frame_no = 2001") == 1
    assert reader.files(lake, "frames", "frame_no = 1001") == 0


class Killed(BaseException):
    """The end of a process."""


def test_whoever_is_killed_between_tables_is_made_up_for(
    lake: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(lake, reader)
    remove(lake, ["c-n300*"])
    land_at(lake, "tomorrow", 1 + DAY_HOURS)
    with held_lake(lake) as held, pytest.raises(Killed):
        for each in publish(held, reader.to(lake)):
            if each.table == "frames":
                raise Killed
    assert_equal(lake, reader, ("capture_files", "frames"))
    assert published(lake, reader)["frames"].added == 0
    assert_equal(lake, reader)


def test_a_commit_that_comes_between_is_seen(
    lake: Path, reader: Reader, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that publish at once, one is told no, and looks again: no file is listed twice."""
    commit = {"iceberg": "_change", "delta": "_commit"}[module.__name__.rpartition("_")[2]]
    published(lake, reader)
    remove(lake, ["c-n300*"])
    land_at(lake, "tomorrow", 1 + DAY_HOURS)
    with once_before(monkeypatch, module, commit, lambda: published(lake, reader)):
        made = published(lake, reader)
    assert all((each.added, each.removed) == (0, 0) for each in made.values())
    assert_equal(lake, reader)


def test_of_two_that_make_a_table_one_does(
    lake: Path, reader: Reader, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name = (
        (publish_iceberg.Iceberg, "_created")
        if module is publish_iceberg
        else (publish_delta, "_create")
    )
    with once_before(monkeypatch, where, name, lambda: published(lake, reader)):
        published(lake, reader)
    assert_equal(lake, reader)


def test_what_was_landed_and_published_since_stays(lake: Path, reader: Reader) -> None:
    with held_lake(lake) as held:
        land_at(lake, "tomorrow", 1 + DAY_HOURS)
        published(lake, reader)
        made = list(publish(held, reader.to(lake)))
    assert all(each.removed == 0 for each in made)
    assert_equal(lake, reader)


def test_commits_that_never_end_are_given_up(
    lake: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    class Busy:
        name = "busy"

        def publish(self, table: str, held: object) -> publishing.Published:
            tried.append(table)
            raise publishing.ConflictError

    with held_lake(lake) as held, pytest.raises(OutputError, match="publish the lake again"):
        list(publish(held, Busy()))
    assert tried == ["capture_files"] * PUBLISH_ATTEMPTS


def test_columns_that_come_later_are_added(
    lake: Path, reader: Reader, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.arrow_schema

    def before(table: str) -> pa.Schema:
        kept = [field for field in real(table) if field.name not in ("ack_set", "topic")]
        return pa.schema(kept)

    # What an older program published: it had neither these columns, nor files that have them.
    leaves = publishing.leaves_of

    def without(file: LakeFile) -> Any:
        found, begins = leaves(file)
        return {path: leaf for path, leaf in found.items()
                if path.partition(".")[0] not in ("ack_set", "topic")}, begins  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(module, "arrow_schema", before)
        patch.setattr(module, "leaves_of", without)
        published(lake, reader)
        assert "topic" not in reader.columns(lake, "frames")
    land_at(lake, "tomorrow", 1 + DAY_HOURS)
    published(lake, reader)
    assert_equal(lake, reader)
    commits = reader.commits(lake, "frames")
    published(lake, reader)
    assert reader.commits(lake, "frames") == commits


def test_a_lake_that_lost_a_file_is_named(lake: Path, reader: Reader) -> None:
    (path,) = (lake / "frames").glob("*/landing=c-n300*/*.parquet")
    data = path.read_bytes()
    for damaged in (None, data[:-10], data[:-4] + b"PAR2", b"", data + b"x"):
        path.unlink(missing_ok=True)
        if damaged is not None:
            path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"part-00000\.parquet.*lake verify"):
            published(lake, reader)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="a link"):
        published(lake, reader)
    path.unlink()
    path.write_bytes(data)
    published(lake, reader)
    assert_equal(lake, reader)


def test_a_newer_program_s_lake_is_refused(lake: Path) -> None:
    path = next((lake / MANIFEST_FOLDER).glob("c-n300*"))
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"schema_version": 999}))
    with pytest.raises(InputError, match="999"), held_lake(lake):
        pass


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b"])
def test_paths_that_mean_something_else_in_addresses_are_refused(
    tmp_path: Path, made: Path, name: str
) -> None:
    lake = shutil.copytree(made, tmp_path / name)
    with pytest.raises(UsageError, match="rename the folder"), held_lake(lake):
        pass


def test_a_path_with_other_characters_is_fine(
    tmp_path: Path, made: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "näch te & co")
    monkeypatch.chdir(tmp_path)
    lake = Path("näch te & co")
    published(lake, reader)
    assert_equal(lake, reader)


def test_no_range_is_told_where_a_row_group_has_none(tmp_path: Path) -> None:
    """Else a reader would skip what is in that group."""
    path = tmp_path / "t" / "day=2026-01-31" / "landing=c-x" / "part-00000.parquet"
    path.parent.mkdir(parents=True)
    table = pa.table({"a": [1, 2, 3, 4], "b": ["x", "y", None, None], "c": [7, None, None, 9]})
    table = table.append_column("d", pa.array([None] * 4, pa.int64()))
    chance = random.Random(1)
    with pq.ParquetWriter(path, table.schema, write_statistics=["a", "b", "c", "d"]) as writer:
        for begin in (0, 2):
            writer.write_table(table.slice(begin, 2))
    file = LakeFile("c-x", "day=2026-01-31/landing=c-x", path, None, 4, os.stat(path).st_size)
    leaves, begins = leaves_of(file)
    assert chance and begins == sorted(begins) and len(begins) == 2
    assert {name: leaf[2:] for name, leaf in leaves.items()} == {
        "a": (0, 1, 4), "b": (2, "x", "y"), "c": (2, 7, 9), "d": (4, None, None),
    }  # fmt: skip
    with pq.ParquetWriter(path, table.schema, write_statistics=["b"]) as writer:
        writer.write_table(table)
    leaves, _ = leaves_of(file._replace(bytes=os.stat(path).st_size))
    assert leaves["a"][2:] == (None, None, None) and leaves["b"][2:] == (2, "x", "y")
    shutil.rmtree(path.parent)
