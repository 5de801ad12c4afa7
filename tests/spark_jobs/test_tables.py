"""The tables of a lake: of either schema version; which captures count."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.errors import UsageError
from dissector.lake.digest import Marks, SourceFile
from dissector.lake.manifest import Contained, Manifest
from dissector.lake.reader import open_lake
from spark_jobs.tables import LakeTables, chosen_captures, held_elsewhere, names_in
from tests.dissector.lake.samples import compacted, landed
from tests.dissector.lake.version_1 import as_version_1


def capture(name: str, files: str, inside: Sequence[Manifest] = ()) -> Manifest:
    """A capture of files, each given by the letter that is its digest."""
    sources = tuple(SourceFile(f"{letter}.pcap", 1, letter, letter) for letter in files)
    held = tuple(Contained(*(getattr(each, f) for f in Contained._fields)) for each in inside)
    return Manifest(name, name, 1, 1, None, Marks(256), sources, 0, 1, (), {}, {}, held)


@pytest.mark.parametrize(
    ("captures", "twice"),
    [
        ({"a": "x", "b": "y"}, {}),
        ({"b": "x", "a": "x"}, {"b": "a"}),
        ({"a": "xy", "b": "x", "c": "y"}, {"b": "a", "c": "a"}),
        ({"a": "x", "b": "xy", "c": "xyz"}, {"a": "c", "b": "c"}),
        ({"a": "xy", "b": "yz"}, {}),
        ({"a": "", "b": ""}, {}),
    ],
)
def test_all_files_of_a_capture_may_be_in_another(
    captures: dict[str, str], twice: dict[str, str]
) -> None:
    assert held_elsewhere([capture(*each) for each in captures.items()]) == twice


def test_compacted_captures_are_looked_into() -> None:
    packed = capture("compact-1", "", [capture("c", "x"), capture("d", "y")])
    assert held_elsewhere([capture("a", "x"), packed]) == {"c": "a"}
    assert names_in(packed) == {"c", "d"}
    assert names_in(capture("c-eth0-17-00003", "")) == {"c-eth0-17"}


def test_captures_are_chosen_by_id() -> None:
    both = [capture("a", "x"), capture("b", "x")]
    assert chosen_captures(both, ["b", "b"]) == [both[1]]
    with pytest.raises(UsageError, match="no capture c "):
        chosen_captures(both, ["c"])
    packed = capture("compact-1", "", both)
    with pytest.raises(UsageError, match="b is in the compacted group compact-1"):
        chosen_captures([packed], ["b"])
    assert chosen_captures([packed], ["compact-1"]) == [packed]
    with pytest.raises(UsageError, match="has no captures"):
        chosen_captures([])


SAMPLES = ("pulsar-apache/java-j12_nack.pcap", "pulsar-apache/java-j24_unload.pcap")
NEW = {"previous_connection_id"}  # which version 1 did not have


def read(spark: Any, lake: Path, table: str) -> Counter[str]:
    """The rows of a table, without what differs between versions or in a group."""
    with open_lake(lake) as opened:
        rows = LakeTables(spark, opened).read(table).toArrow().to_pylist()
    for row in rows:
        row["origin_capture"] = None
        for name in NEW & row.keys():
            row[name] = None
    return Counter(str(sorted(row.items(), key=lambda item: item[0])) for row in rows)


def test_rows_are_the_same_in_either_version_in_both_and_in_a_group(
    spark: Any, tmp_path: Path
) -> None:
    new = landed(tmp_path / "new", SAMPLES)
    lakes = [compacted(new, tmp_path / "group")]
    with open_lake(new) as opened:
        first = opened.captures[0].capture_id
    for name, old in (("old", ()), ("both", (first,))):
        shutil.copytree(new, tmp_path / name)
        lakes.append(as_version_1(tmp_path / name, *old))
    shutil.copytree(lakes[0], tmp_path / "old-group")
    lakes.append(as_version_1(tmp_path / "old-group"))
    for table in ("frames", "deliveries"):
        wanted = read(spark, new, table)
        assert wanted.total() > 100
        for lake in lakes:
            assert read(spark, lake, table) == wanted, (lake.name, table)
    # By hand: one key, before and after, whatever the folders are called.
    counts = []
    for lake in (new, lakes[0]):
        frames, rows = (spark.read.parquet(str(lake / t)) for t in ("frames", "deliveries"))
        counts.append(rows.join(frames, ["capture", "connection_id", "frame_no"]).count())
        assert counts[-1] == rows.count()
    assert counts[0] == counts[1]


def test_files_of_other_captures_are_not_opened(spark: Any, tmp_path: Path) -> None:
    lake = landed(tmp_path, SAMPLES)
    with open_lake(lake) as opened:
        first, second = (capture.capture_id for capture in opened.captures)
        shutil.rmtree(lake / "frames" / f"landing={second}")
        rows = LakeTables(spark, opened, frozenset([first])).read("frames")
        assert {row["capture"] for row in rows.select("capture").distinct().collect()} == {first}
