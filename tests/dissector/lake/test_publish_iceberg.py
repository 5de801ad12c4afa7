"""Tables of Iceberg: what their lists say, where they lie, and what is refused."""

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from dissector.errors import DependencyError, OutputError, UsageError
from dissector.lake import publish, publish_iceberg, reader
from dissector.lake.compact import compact
from dissector.lake.publish_iceberg import Iceberg
from dissector.limits import PUBLISH_HISTORY_DAYS
from tests.dissector.lake.published import (
    READERS,
    address,
    assert_equal,
    catalog,
    iceberg_table,
    once_before,
    published,
)
from tests.dissector.lake.rest_catalog import serving
from tests.dissector.lake.samples import SAMPLES, landed

ICEBERG = READERS["iceberg"]
SOME = ("capture_files", "frames", "acks", "exchanges", "permits")
DAY_NS = 86_400_000_000_000


@pytest.fixture(autouse=True)
def some_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table is published by itself: those that are looked at are."""
    monkeypatch.setattr(publish, "TABLES", SOME)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return landed(tmp_path / "lake", SAMPLES[:2])


def test_the_list_is_as_the_specification_says(lake: Path) -> None:
    published(lake, ICEBERG)
    table = iceberg_table(lake, "exchanges")
    assert table.metadata.format_version == 2
    (field,) = table.spec().fields
    assert (field.name, str(field.transform)) == ("day", "identity")
    assert table.schema().find_field("latency_ns").doc, "engines show what columns mean"
    files = table.inspect.files().to_pylist()
    assert len(files) == 2
    for file in files:
        path = Path(file["file_path"].removeprefix("file://"))
        assert path.is_relative_to(lake) and path.stat().st_size == file["file_size_in_bytes"]
        landing = path.parent.name.partition("=")[2]
        assert f"{file['partition']['day']}" == path.parent.parent.name.partition("=")[2]
        with reader.open_lake(lake) as opened:
            rows = [
                row for row in opened.table("exchanges").to_pylist() if row["capture"] == landing
            ]
        assert file["record_count"] == len(rows)
        for name in ("latency_ns", "request_frame_no", "topic", "broker_ip", "chunk_id", "ts"):
            values = [row[name] for row in rows if row[name] is not None]
            metrics = file["readable_metrics"][name]
            assert metrics["value_count"] == len(rows)
            assert metrics["null_value_count"] == len(rows) - len(values)
            assert metrics["lower_bound"] == (min(values) if values else None)
            assert metrics["upper_bound"] == (max(values) if values else None)


def test_no_engine_may_delete_what_is_the_lake_s(lake: Path) -> None:
    """Neither by forgetting snapshots nor with the table: the property says so to all of them."""
    published(lake, ICEBERG)
    assert iceberg_table(lake, "frames").properties["gc.enabled"] == "false"


def test_lists_lie_in_the_lake_unless_the_catalog_has_a_place(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(lake, ICEBERG)
    inside = lake / "_iceberg" / "dissector" / "frames"
    assert iceberg_table(lake, "frames").location() == f"file://{inside}"
    assert (lake / "_iceberg").stat().st_mode & 0o027 == 0
    for name, value in (("URI", address(lake)), ("WAREHOUSE", f"file://{tmp_path}/house")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__NIGHT__{name}", value)
    monkeypatch.setattr(
        "pyiceberg.catalog._ENV_CONFIG", __import__("pyiceberg.utils.config").utils.config.Config()
    )
    to = ICEBERG._replace(to=lambda lake: Iceberg("night", "a.b"))
    published(lake, to)
    from pyiceberg.catalog import load_catalog

    table = load_catalog("night").load_table(("a", "b", "frames"))
    assert table.location() == f"file://{tmp_path}/house/a.b/frames"
    assert table.scan().count() == iceberg_table(lake, "frames").scan().count() > 0


def test_old_snapshots_go_with_their_lists(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(lake, ICEBERG)
    for name in SAMPLES[2:5]:
        landed(lake, [name])
        published(lake, ICEBERG)
    folder = lake / "_iceberg" / "dissector" / "frames" / "metadata"
    assert len(iceberg_table(lake, "frames").metadata.snapshots) == 4
    real = time.time_ns
    later_ns = (PUBLISH_HISTORY_DAYS + 2) * DAY_NS
    monkeypatch.setattr(publish_iceberg.time, "time_ns", lambda: real() + later_ns)
    published(lake, ICEBERG)
    table = iceberg_table(lake, "frames")
    (snapshot,) = table.metadata.snapshots
    wanted = {snapshot.manifest_list, *(m.manifest_path for m in snapshot.manifests(table.io))}
    assert {f"file://{path}" for path in folder.glob("*.avro")} == wanted
    assert_equal(lake, ICEBERG, ("frames",))


def test_a_table_of_another_lake_is_not_touched(lake: Path, tmp_path: Path) -> None:
    published(lake, ICEBERG)
    other = landed(tmp_path / "other", SAMPLES[2:3])
    same = ICEBERG._replace(to=lambda _: Iceberg(address(lake), "dissector"))
    with pytest.raises(OutputError, match=f"is of file://{lake}, not of .*--namespace"):
        published(other, same)
    apart = ICEBERG._replace(to=lambda _: Iceberg(address(lake), "other"))
    assert published(other, apart)["frames"].rows
    assert_equal(lake, ICEBERG, ("frames",))
    catalog(lake).create_namespace("mine")
    schema = iceberg_table(lake, "acks").schema()
    catalog(lake).create_table(("mine", "capture_files"), schema, f"file://{tmp_path}/mine")
    mine = ICEBERG._replace(to=lambda _: Iceberg(address(lake), "mine"))
    with pytest.raises(OutputError, match="of no lake"):
        published(lake, mine)


def test_a_catalog_that_speaks_rest_has_the_same_tables(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "server") as (uri, behind):
        rest = ICEBERG._replace(
            to=lambda _: Iceberg(uri, "night"),
            arrow=lambda _, table: behind.load_table(("night", table)).scan().to_arrow(),
        )
        published(lake, rest)
        assert_equal(lake, rest)
        assert behind.load_table(("night", "acks")).location().endswith("server/house/night/acks")
        landed(lake, SAMPLES[2:3])
        # Another is faster: the server says 409, and what it has is looked at again.
        with once_before(monkeypatch, publish_iceberg, "_change", lambda: published(lake, rest)):
            made = published(lake, rest)
        assert made["frames"][1:] == (3, made["frames"].rows, 0, 0)
        compact(lake)
        assert published(lake, rest)["frames"][3:] == (1, 3)
        assert_equal(lake, rest)


def test_rows_that_another_deleted_are_back(lake: Path) -> None:
    published(lake, ICEBERG)
    iceberg_table(lake, "permits").delete("event = 'grant'")
    made = published(lake, ICEBERG)["permits"]
    assert made.added and made.removed
    assert_equal(lake, ICEBERG, ("permits",))


def test_rows_that_another_added_go(lake: Path) -> None:
    """A table holds what the lake does."""
    published(lake, ICEBERG)
    table = iceberg_table(lake, "permits")
    table.append(table.scan().to_arrow().slice(0, 3))
    assert published(lake, ICEBERG)["permits"].removed == 1
    assert_equal(lake, ICEBERG, ("permits",))


def test_catalogs_that_are_not_there_are_named(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"nowhere.*PYICEBERG_CATALOG__NOWHERE__URI"):
        Iceberg("nowhere", "dissector")
    with pytest.raises(UsageError, match="ftp"):
        Iceberg("ftp://host/x", "dissector")
    with pytest.raises(OutputError, match="unable to open database file"):
        Iceberg(f"sqlite:///{tmp_path}/missing/c.db", "dissector")
    (tmp_path / "c.db").write_bytes(b"no database" * 1000)
    with pytest.raises(OutputError, match="not a database"):
        Iceberg(f"sqlite:///{tmp_path}/c.db", "dissector")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))  # and does not listen
        port = listening.getsockname()[1]
        with pytest.raises(OutputError) as told:
            Iceberg(f"http://user:secret@127.0.0.1:{port}", "dissector")
    assert "127.0.0.1" in str(told.value) and "secret" not in str(told.value)


def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_iceberg, "_TIMES", (1, 1))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(OutputError, match="Read timed out"):
            Iceberg(f"http://127.0.0.1:{listening.getsockname()[1]}", "dissector")


def test_what_cannot_be_written_is_said(lake: Path, tmp_path: Path) -> None:
    (lake / "_iceberg").symlink_to(tmp_path)
    with pytest.raises(OutputError, match="symbolic link"):
        published(lake, ICEBERG)
    (lake / "_iceberg").unlink()
    (lake / "_iceberg").write_text("no folder")
    with pytest.raises(OutputError, match="_iceberg"):
        published(lake, ICEBERG)
    os.unlink(lake / "_iceberg")
    published(lake, ICEBERG)
    assert_equal(lake, ICEBERG, ("frames",))


def test_the_extra_is_named_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyiceberg", "pyiceberg.catalog"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DependencyError, match=r"pip install 'pulsar-dissector\[publish\]'"):
        Iceberg("x", "dissector")
