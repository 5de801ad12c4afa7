"""Tables of Delta Lake in the folders of a lake: what their logs say, and what they refuse."""

import json
import os
from pathlib import Path

import pytest

from dissector.errors import DependencyError, OutputError
from dissector.lake import reader
from dissector.lake.publish_delta import Delta
from tests.dissector.lake.published import READERS, delta_table, published
from tests.dissector.lake.samples import SAMPLES, landed

DELTA = READERS["delta"]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return landed(tmp_path / "lake", SAMPLES[:2])


def actions(lake: Path, table: str) -> list[dict[str, dict[str, object]]]:
    """What the first commit of a table says, line by line, as the protocol writes it."""
    log = lake / table / "_delta_log" / f"{0:020}.json"
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def test_the_log_is_as_the_protocol_says(lake: Path) -> None:
    """Paths are relative, so that a lake may be moved; statistics are of all columns."""
    published(lake, DELTA)
    found = actions(lake, "exchanges")
    (metadata,) = (each["metaData"] for each in found if "metaData" in each)
    assert metadata["partitionColumns"] == ["day", "landing"]
    added = [each["add"] for each in found if "add" in each]
    assert len(added) == 2
    for add in added:
        path = lake / "exchanges" / str(add["path"])
        assert add["size"] == path.stat().st_size
        landing = path.parent.name.partition("=")[2]
        day = path.parent.parent.name.partition("=")[2]
        assert add["partitionValues"] == {"day": day, "landing": landing}
        statistics = json.loads(str(add["stats"]))
        with reader.open_lake(lake) as opened:
            rows = [
                row for row in opened.table("exchanges").to_pylist() if row["capture"] == landing
            ]
        assert statistics["numRecords"] == len(rows)
        for name in ("latency_ns", "request_frame_no", "topic", "broker_ip", "chunk_id"):
            values = [row[name] for row in rows if row[name] is not None]
            assert statistics["nullCount"][name] == len(rows) - len(values)
            for key, of in (("minValues", min), ("maxValues", max)):
                assert statistics[key].get(name) == (of(values) if values else None)
        times = [row["ts"] for row in rows]
        assert statistics["minValues"]["ts"] == f"{min(times):%Y-%m-%dT%H:%M:%S.%f}Z"
        assert statistics["maxValues"]["ts"] == f"{max(times):%Y-%m-%dT%H:%M:%S.%f}Z"


def test_a_lake_that_moved_is_read_where_it_is(lake: Path) -> None:
    published(lake, DELTA)
    elsewhere = lake.with_name("elsewhere")
    lake.rename(elsewhere)
    assert delta_table(elsewhere, "frames").to_pyarrow_table().num_rows
    assert published(elsewhere, DELTA)["frames"][3:] == (0, 0)


def test_vacuum_takes_nothing_that_is_not_listed(lake: Path) -> None:
    """Landings that nobody published yet are files that the log does not name."""
    published(lake, DELTA)
    for path in landed(lake, SAMPLES[2:3]).glob("*/day=*/*/*.parquet"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    table = delta_table(lake, "frames")
    assert table.vacuum(dry_run=False, retention_hours=None) == []
    with pytest.raises(Exception, match="retention"):
        table.vacuum(dry_run=False, retention_hours=200)
    with reader.open_lake(lake) as opened:
        assert reader.verify(opened) == []


def test_logs_are_not_for_everybody(lake: Path) -> None:
    published(lake, DELTA)
    assert (lake / "frames" / "_delta_log").stat().st_mode & 0o027 == 0


def test_a_log_of_another_is_not_touched(lake: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(lake / "frames"), delta_like())
    with pytest.raises(OutputError, match="not of lake publish"):
        published(lake, DELTA)


def delta_like() -> object:
    import pyarrow as pa

    return pa.table({"a": [1]})


def test_what_cannot_be_written_is_said(lake: Path, tmp_path: Path) -> None:
    log = lake / "connections" / "_delta_log"
    log.symlink_to(tmp_path)
    with pytest.raises(OutputError, match="symbolic link"):
        published(lake, DELTA)
    log.unlink()
    log.write_text("no folder")
    with pytest.raises(OutputError, match="_delta_log"):
        published(lake, DELTA)
    log.unlink()
    log.mkdir()
    (log / f"{0:020}.json").write_text("no json")
    with pytest.raises(OutputError, match="connections"):
        published(lake, DELTA)


def test_the_extra_is_named_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(DependencyError, match=r"pip install 'pulsar-dissector\[publish\]'"):
        Delta()
