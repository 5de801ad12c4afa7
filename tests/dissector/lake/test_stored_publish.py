"""Tables of a lake in a bucket: other libraries read there what the lake's own reader gives."""

import os
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import obstore
import polars as pl
import pytest
from deltalake import DeltaTable
from obstore.store import S3Store
from pyiceberg.catalog import load_catalog

from dissector.cli.exits import EXIT_INPUT, EXIT_USAGE
from dissector.cli.main import run
from dissector.errors import DependencyError, InputError, OutputError, UsageError
from dissector.lake import mirror, publish_delta, publish_iceberg
from dissector.lake import publish as publishing
from dissector.lake.compact import compact
from dissector.lake.copies import copies_of
from dissector.lake.mirror import folder_of
from dissector.lake.publish import held_lake, publish
from dissector.lake.reader import open_lake, remove
from dissector.schemas import TABLES
from tests.dissector.lake.landed import content, land
from tests.dissector.lake.published import (
    FEW,
    READERS,
    Reader,
    assert_equal,
    few_tables,
    once_before,
    published,
    rows,
    rows_of_lake,
)
from tests.dissector.storage.servers import BUCKET, SECRET, failing_bucket

__all__ = ["few_tables"]

# On a disk each of them is published.
pytestmark = pytest.mark.usefixtures("few_tables")

LAKE = f"s3://{BUCKET}/some/lake"
MODULES = {"iceberg": publish_iceberg, "delta": publish_delta}


class Bucket:
    """An empty bucket, and machines that know nothing of it.

    store: what is in it. options: what other libraries reach it with.
    """

    def __init__(self, server: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.store = S3Store(BUCKET, endpoint=server, client_options={"allow_http": True})
        self.options = {"AWS_ENDPOINT_URL": server, "AWS_ALLOW_HTTP": "true"}
        self.catalog = f"sqlite:///{folder}/catalog.db"
        self._server, self._folder, self._patch = server, folder, patch
        obstore.delete(self.store, self.names())

    def on(self, machine: str) -> Path:
        """Work on a machine; gives the folder of the lake there."""
        self._patch.setattr(mirror, "_base", lambda: self._folder / machine / "lakes")
        return folder_of(LAKE)

    def names(self) -> list[str]:
        return sorted(each["path"] for page in obstore.list(self.store) for each in page)

    def copies(self) -> list[Path]:
        return list(self._folder.rglob("*.parquet"))

    def table(self, name: str) -> Any:
        # (Without a region the library asks for that of the bucket, outside.)
        options = {"s3.endpoint": self._server, "s3.region": "us-east-1"}
        its = load_catalog(uri=self.catalog, **options)
        return its.load_table(("dissector", name))

    def delta(self, name: str) -> DeltaTable:
        return DeltaTable(f"{LAKE}/{name}", storage_options=self.options)

    def reader(self, name: str) -> Reader:
        """How a format's tables are read over S3, by others."""
        if name == "delta":
            return READERS[name]._replace(
                arrow=lambda _, table: self.delta(table).to_pyarrow_table(),
                commits=lambda _, table: self.delta(table).version() + 1,
            )
        return READERS[name]._replace(
            to=lambda _: publish_iceberg.Iceberg(self.catalog, "dissector"),
            arrow=lambda _, table: self.table(table).scan().to_arrow(),
            commits=lambda _, table: len(self.table(table).metadata.snapshots),
        )


@pytest.fixture
def bucket(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(server, tmp_path, monkeypatch)


@pytest.fixture(params=MODULES)
def name(request: pytest.FixtureRequest) -> str:
    """Of a format."""
    return str(request.param)


def made(bucket: Bucket, *sizes: int) -> Path:
    """A lake of rows of all kinds of columns, of which a second machine has no copy."""
    lake = bucket.on("first")
    mirror.refresh(lake)
    for size in sizes:
        land(lake, f"n{size}", content(size))
    shutil.rmtree(lake)
    return bucket.on("second")


def test_tables_hold_what_the_lake_does(
    bucket: Bucket, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, reader = made(bucket, 300, 400), bucket.reader(name)
    data = {each for each in bucket.names() if each.endswith(".parquet")}
    before = published(lake, reader)
    assert bucket.copies() == [], "only the ends of files were asked for"
    assert {each for each in bucket.names() if "/landing=" in each} == data
    assert_equal(lake, reader)
    for table, each in before.items():
        files = f"read_parquet('{lake}/{table}/*/*/*.parquet')"
        ((count,),) = duckdb.sql(f"select count(*) from {files}").fetchall()
        assert (each.rows, each.added, each.removed) == (count, each.files, 0)

    def again(added: int, removed: int) -> None:
        commits = reader.commits(lake, "frames")
        told = published(lake, reader)["frames"]
        assert (told.added, told.removed) == (added, removed)
        assert reader.commits(lake, "frames") == commits + (1 if added or removed else 0)
        assert_equal(lake, reader)

    again(0, 0)
    land(lake, "n500", content(500))
    remove(lake, ["c-n300*"])
    again(1, 1)
    was = rows_of_lake(lake, "frames")
    compact(lake)
    # Until it is published again, the list names files that tidying leaves for a day.
    assert rows(reader.arrow(lake, "frames"), "frames") == was
    again(1, 2)
    lists = {each for each in bucket.names() if "/landing=" not in each}
    tidied = mirror.tidy(lake, grace_s=-60)
    assert tidied is not None and tidied.files == 3 * len(TABLES)
    assert {each for each in bucket.names() if "/landing=" not in each} == lists
    assert any(f"/_{'delta_log' if name == 'delta' else 'iceberg'}/" in each for each in lists)
    assert_equal(lake, reader)
    remove(lake, ["*"])
    again(0, 1)


def test_who_tidies_is_told_which_tables_list_what_goes(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mirror, "tidy", partial(mirror.tidy, grace_s=-60))
    tidy = ["lake", "tidy", LAKE, "--iceberg", bucket.catalog]
    lake = made(bucket, 300, 400)
    assert run(["lake", "publish", LAKE, "--delta", "--iceberg", bucket.catalog]) == 0
    remove(lake, ["c-n300*"])
    before = set(bucket.names())
    capsys.readouterr()
    assert run(tidy) == 0
    said = capsys.readouterr()[1]
    with held_lake(lake) as held:
        kept = {each.inner for each in held.files("frames")}
    for name in MODULES:
        assert f"the {name} table frames still lists 1 file of what is no longer in" in said
    assert f"published again (dissector lake publish {LAKE})" in said
    gone = before - set(bucket.names())
    assert len(gone) == len(TABLES)
    for to in (publish_delta.Delta(), publish_iceberg.Iceberg(bucket.catalog, "dissector")):
        assert to.listed("frames", LAKE) > kept and to.listed("frames", f"{LAKE}/x") == set()
    remove(lake, ["*"])
    assert run(["lake", "publish", LAKE, "--delta", "--iceberg", bucket.catalog]) == 0
    capsys.readouterr()
    assert run(tidy) == 0
    assert "still lists" not in capsys.readouterr()[1]


def test_commands_say_no_secret(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(bucket, 300)
    assert run(["lake", "publish", LAKE, "--delta", "--iceberg", bucket.catalog]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 2 * len(FEW) and err == "" and "  1 file  " in out
    found = {each: bytes(obstore.get(bucket.store, each).bytes()) for each in bucket.names()}
    found |= {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert not [each for each, data in found.items() if SECRET.encode() in data]
    assert not [each for each, data in found.items() if str(tmp_path / "second").encode() in data]
    assert str(tmp_path / "catalog.db") in found
    ((landing,),) = {tuple(each.landing for each in captures(bucket))}
    polars = pl.scan_delta(f"{LAKE}/frames", storage_options=bucket.options).collect().to_arrow()
    assert rows(polars, "frames") == rows_of_lake(bucket.on("second"), "frames")
    assert landing in str(bucket.delta("frames").file_uris())


def captures(bucket: Bucket) -> list[publishing.LakeFile]:
    with held_lake(bucket.on("second")) as held:
        return held.files("frames")


def test_whoever_is_first_on_another_machine_is_seen(
    bucket: Bucket, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another took out and off while we looked, we do not list again."""
    lake, reader = made(bucket, 300, 400), bucket.reader(name)
    published(lake, reader)
    land(lake, "n500", content(500))

    def elsewhere() -> None:
        there = bucket.on("third")
        mirror.refresh(there)
        published(there, reader)
        remove(there, ["c-n500*", "c-n300*"])
        land(there, "n600", content(600))
        published(there, reader)
        bucket.on("second")

    commit = {"iceberg": "_change", "delta": "_commit"}[name]
    with held_lake(lake) as held, once_before(monkeypatch, MODULES[name], commit, elsewhere):
        told = {each.table: each for each in publish(held, reader.to(lake))}
    assert (told["frames"].files, told["frames"].added, told["frames"].removed) == (2, 0, 0)
    assert_equal(lake, reader)


def test_what_another_machine_published_since_the_lake_was_opened_stays(
    bucket: Bucket, name: str
) -> None:
    lake, reader = made(bucket, 300), bucket.reader(name)
    with held_lake(lake) as held:
        there = bucket.on("third")
        mirror.refresh(there)
        land(there, "n400", content(400))
        remove(there, ["c-n300*"])
        published(there, reader)
        bucket.on("second")
        told = list(publish(held, reader.to(lake)))
    assert all((each.added, each.removed) == (0, 0) for each in told)
    assert_equal(lake, reader)


def test_of_two_that_make_a_table_one_does(
    bucket: Bucket, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, reader = made(bucket, 300), bucket.reader(name)
    where: Any = publish_iceberg.Iceberg if name == "iceberg" else publish_delta
    create = {"iceberg": "_created", "delta": "_create"}[name]
    with once_before(monkeypatch, where, create, lambda: published(lake, reader)):
        published(lake, reader)
    assert_equal(lake, reader)


def test_a_footer_that_is_longer_is_asked_for_once_more(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = made(bucket, 300)
    with held_lake(lake) as held:
        (file,) = held.files("frames")
    whole = publishing.leaves_of(file)
    asked: list[int] = []
    real = mirror.Mirror.end_of

    def end_of(stored: mirror.Mirror, path: Path, size: int, wanted: int) -> bytes:
        asked.append(wanted)
        return real(stored, path, size, wanted)

    monkeypatch.setattr(mirror.Mirror, "end_of", end_of)
    monkeypatch.setattr(publishing, "FOOTER_BYTES", 8)
    assert publishing.leaves_of(file) == whole and asked[0] == 8 < asked[1] < file.bytes
    mirror.fetch(lake, [copy for capture in opened(lake) for copy in copies_of(capture)])
    assert publishing.leaves_of(file) == whole and len(asked) == 2, "a copy is enough"


def opened(lake: Path) -> tuple[Any, ...]:
    with open_lake(lake) as read:
        return read.captures


def test_a_file_that_is_damaged_or_gone_is_named(bucket: Bucket, name: str) -> None:
    lake, reader = made(bucket, 300), bucket.reader(name)
    (path,) = (each for each in bucket.names() if "/frames/" in each)
    data = bytes(obstore.get(bucket.store, path).bytes())
    damage = (data[:-10], data[:-8] + b"\xff" * 4 + b"PAR1", b"x", b"", None)
    for damaged in damage:
        obstore.delete(bucket.store, path)
        if damaged is not None:
            obstore.put(bucket.store, path, damaged)
        with pytest.raises(InputError, match=rf"{BUCKET}/{path}: .*lake verify {LAKE}"):
            published(lake, reader)
    obstore.put(bucket.store, path, data)
    published(lake, reader)
    assert_equal(lake, reader)


def test_what_cannot_be_is_one_line(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.on("second")
    for code, address, words in (
        (EXIT_INPUT, LAKE, "is not a lake"),
        (EXIT_INPUT, "s3://none/lake", "there is no such bucket"),
        (EXIT_USAGE, f"s3://{BUCKET}/a#b", "use another name"),
    ):
        assert run(["lake", "publish", address, "--delta"]) == code
        out, err = capsys.readouterr()
        assert out == "" and words in err and SECRET not in err and err.count("\n") == 1, err


@pytest.mark.parametrize("status", [403, 500, "cut"])
def test_a_bucket_that_may_only_be_read_is_said(
    tmp_path: Path, name: str, status: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(method: str, path: str) -> int | str:
        return (
            status if method in ("PUT", "POST") and "/_" in path and "_log/0/" not in path else ""
        )

    monkeypatch.setattr(mirror, "_base", lambda: tmp_path / "lakes")
    with failing_bucket(fails):
        lake = folder_of(LAKE)
        mirror.refresh(lake)
        land(lake, "n300", content(300))
        monkeypatch.setattr(publish_delta, "_OF_S3", publish_delta._OF_S3 | {"max_retries": "1"})
        catalog = f"sqlite:///{tmp_path}/catalog.db"
        to = {
            "delta": lambda _: publish_delta.Delta(),
            "iceberg": lambda _: publish_iceberg.Iceberg(catalog, "dissector"),
        }
        with pytest.raises(OutputError) as told:
            published(lake, READERS[name]._replace(to=to[name]))
    text = str(told.value)
    assert "\n" not in text and "\x1b" not in text and SECRET not in text
    said = {403: r"403 Forbidden; it is as|says ACCESS_DENIED to", 500: "500",
            "cut": "no answer, and|says NETWORK_CONNECTION to"}  # fmt: skip
    assert "cannot write" in text and re.search(said[status], text), text


def test_a_bucket_whose_server_fails_each_request_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is lost is asked for again; then the commit is found to be there already."""
    kinds: tuple[int | str, ...] = ("lost", 503, "cut", 429)
    seen: set[tuple[str, str]] = set()

    def fails(method: str, path: str) -> int | str:
        if (method, path) in seen:
            return ""
        seen.add((method, path))
        return kinds[len(seen) % len(kinds)] if method != "PUT" else "lost"

    monkeypatch.setattr(mirror, "_base", lambda: tmp_path / "lakes")
    soon = {"backoff_config.init_backoff": "5ms", "backoff_config.max_backoff": "50ms"}
    monkeypatch.setattr(publish_delta, "_OF_S3", publish_delta._OF_S3 | soon)
    with failing_bucket(fails) as files:
        lake = folder_of(LAKE)
        for size in (300, 400):
            land(lake, f"n{size}", content(size))
            published(lake, READERS["delta"])
        logs = [name for name in files if "/frames/_delta_log/" in name]
        assert [name[-7:] for name in sorted(logs)] == ["00.json", "01.json"]
        endpoint = os.environ["AWS_ENDPOINT_URL"]
        options = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", **soon}
        table = DeltaTable(f"{LAKE}/frames", storage_options=options)
        assert rows(table.to_pyarrow_table(), "frames") == rows_of_lake(lake, "frames")


def test_stores_that_iceberg_cannot_reach_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for root, error, words in (
        ("az://taps/lake", UsageError, "write abfss://"),
        ("hdfs://host:8020/lake", UsageError, "--delta"),
        ("abfss://c@a.dfs.core.windows.net/lake", DependencyError, "pyiceberg.adlfs."),
    ):
        with pytest.raises(error, match=words):
            publish_iceberg._must_be_reached(root)
    publish_iceberg._must_be_reached("gs://taps/lake")


def test_what_the_catalog_says_of_the_store_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:9000")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    found: dict[str, str] = {}
    publish_iceberg._add_server(found)
    assert (found["s3.endpoint"], found["s3.region"]) == ("http://here:9000", "us-east-1")
    assert found["s3.anonymous"] == "true"
    own = {"s3.endpoint": "http://there", "client.region": "eu-west-1", "s3.anonymous": "false"}
    found = dict(own)
    publish_iceberg._add_server(found)
    assert found.items() >= own.items() and "s3.region" not in found
