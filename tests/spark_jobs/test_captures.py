"""Captures as a data source of Spark: the rows that landing writes, found by the format's name."""

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")


from dissector.cli.main import run
from dissector.errors import InputError, UsageError
from dissector.lake.reader import open_lake
from dissector.schemas import TABLES
from dissector.sources.rings import chains
from spark_jobs.capture_rows import capture_of, rows_of
from spark_jobs.captures import CapturesReader
from spark_jobs.read_options import ReadOptions, inputs_of
from tests.dissector.joining.cutting import SAMPLES

FORMAT = "pulsar_pcap"
CURSUS = SAMPLES.parent / "cursus" / "go-group_rebalance_two_consumers.pcap"
BATCHES = SAMPLES / "java-j03_batch_lz4.pcap"
CUT = SAMPLES / "mut-snap200-java-j03_batch_lz4.pcap"


def landed(lake: Path, table: str) -> list[dict[str, Any]]:
    with open_lake(lake) as opened:
        rows: list[dict[str, Any]] = opened.table(table).to_pylist()
    return rows


def read_here(path: Path, table: str, **options: str) -> list[dict[str, Any]]:
    """What a task would read, without Spark."""
    asked = ReadOptions({"table": table, **options})
    names = [column.name for column in TABLES[table].columns]
    reader = CapturesReader(asked, inputs_of({"path": str(path)}), names)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def test_spark_finds_the_format_by_name_and_reads_what_landing_writes(
    spark: Any, tmp_path: Path
) -> None:
    assert run(["land", "-q", str(BATCHES), "--lake", str(tmp_path / "lake")]) == 0
    source = spark.read.format(FORMAT)
    for table in ("capture_files", "connections", "messages", "exchanges"):
        rows = source.option("table", table).load(str(BATCHES)).toArrow().to_pylist()
        assert rows == landed(tmp_path / "lake", table), table
    chosen = spark.read.format(FORMAT).schema("frame_no bigint, command string")
    frames = chosen.load([str(BATCHES), f"file:{CURSUS}"])
    assert frames.columns == ["frame_no", "command"] and frames.rdd.getNumPartitions() == 2
    assert frames.where("command = 'SEND'").count() > 0
    for path, table, what in (
        (SAMPLES / "none.pcap", "frames", "there is no such file; check the path"),
        (BATCHES, "frame", "table cannot be 'frame'; choose one of"),
    ):
        with pytest.raises(Exception, match=what):
            spark.read.format(FORMAT).option("table", table).load(str(path)).count()


def test_the_example_of_the_documentation_runs(spark: Any, tmp_path: Path) -> None:
    page = (SAMPLES.parents[1] / "docs" / "spark.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    for name, data in (("night.pcap", BATCHES.read_bytes()), ("morning.pcap.gz", b"")):
        path = tmp_path / "captures" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data or gzip.compress(CURSUS.read_bytes()))
    found: dict[str, Any] = {"spark": spark}
    exec(example.replace('"captures/', f'"{tmp_path}/captures/'), found)
    assert {row["command"] for row in found["commands"].collect()} >= {"CONNECT", "SEND"}
    assert found["slow"].columns == ["capture", "topic", "outcome", "latency_ns"]
    assert all(row["latency_ns"] > 2_000_000 for row in found["slow"].collect())


def test_errors_are_one_line(spark: Any) -> None:
    """They say what to do, which a trace would hide."""
    with pytest.raises(Exception, match="no option tabel; there are") as told:
        spark.read.format(FORMAT).option("tabel", "frames").load(str(BATCHES))
    assert "Traceback" not in str(told.value)
    with pytest.raises(Exception, match=r"broken.pcap: no such file|there is no such") as told:
        spark.read.format(FORMAT).load("broken.pcap").count()
    assert "Traceback" not in str(told.value)
    for schema, what in (
        ("command string, frame_no string", "column frame_no of frames is bigint, not string"),
        ("color string", "the table frames has no column color"),
    ):
        with pytest.raises(Exception, match=what) as told:
            spark.read.format(FORMAT).schema(schema).load(str(BATCHES)).count()
        assert "Traceback" not in str(told.value)


def test_tables_of_a_lake_are_a_stream_as_the_documentation_says(
    spark: Any, tmp_path: Path
) -> None:
    page = (SAMPLES.parents[1] / "docs" / "spark.md").read_text("utf-8")
    (advice,) = re.findall(r"`(spark\.readStream\.schema.*\))`", page)
    lake = tmp_path / "lake"
    assert run(["land", "-q", str(BATCHES), "--lake", str(lake)]) == 0
    stream = eval(advice.replace("LAKE", str(lake)), {"spark": spark})
    target = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "at"))
    rows = []
    for name in (BATCHES, CURSUS):
        assert run(["land", "-q", str(name), "--lake", str(lake)]) == 0
        target.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(120)
        rows.append(spark.read.parquet(str(tmp_path / "out")).count())
    assert rows == [52, len(landed(lake, "frames"))] and rows[1] > 52


@pytest.mark.parametrize("path", [BATCHES, CURSUS, CUT], ids=lambda path: path.stem)
def test_all_tables_are_those_that_landing_writes(path: Path, tmp_path: Path) -> None:
    run(["land", "-q", str(path), "--lake", str(tmp_path / "lake"), "--cluster", "blue"])
    for table in TABLES:
        expected = landed(tmp_path / "lake", table)
        assert read_here(path, table, cluster="blue") == expected, table


def test_files_of_a_ring_are_one_capture_and_others_partitions(tmp_path: Path) -> None:
    data = BATCHES.read_bytes()
    for name in ("ring.pcap", "alone.pcap.gz"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "ring.pcap1").write_bytes(CURSUS.read_bytes())
    (tmp_path / "notes.txt").write_text("no capture, and not named like one")
    reader = CapturesReader(ReadOptions({"chain": "none"}), [str(tmp_path)], ["frame_no"])
    assert len(reader.partitions()) == 2, "the copy is read once"
    options = ReadOptions({"chain": "all"})
    reader = CapturesReader(options, [str(tmp_path / "*pcap*")], ["frame_no"])
    (only,) = reader.partitions()
    assert [Path(name).is_absolute() for name in only.value.files] == [True, True]


def test_what_cannot_be_read_is_told_and_left_out_only_if_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "good.pcap").write_bytes(BATCHES.read_bytes())
    (tmp_path / "broken.pcap").write_bytes(b"not a capture at all")
    (tmp_path / "empty.pcap").write_bytes(b"")
    with pytest.raises(InputError, match=r"broken.pcap: not a capture.*strict.*reads the other"):
        read_here(tmp_path, "frames")
    assert len(read_here(tmp_path, "frames", strict="false")) == 52
    with pytest.raises(InputError, match="is empty; no capture was written to it"):
        read_here(tmp_path / "empty.pcap", "frames", strict="false")
    (tmp_path / "no").mkdir()
    with pytest.raises(InputError, match="there is no file in it"):
        read_here(tmp_path / "no", "frames")


def test_damage_inside_a_capture_gives_what_is_there_and_a_notice(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(BATCHES.read_bytes()[:-700])
    frames = read_here(cut, "frames")
    assert 0 < len(frames) < 52
    assert read_here(cut, "capture_files")[0]["is_truncated"] is True
    header_only = tmp_path / "header.pcap"
    header_only.write_bytes(BATCHES.read_bytes()[:24])
    assert read_here(header_only, "frames") == []


def test_a_capture_that_grows_meanwhile_is_no_other_one(tmp_path: Path) -> None:
    path = tmp_path / "grows.pcap"
    data = BATCHES.read_bytes()
    path.write_bytes(data[:-700])
    (chain,) = chains([str(path)]).chains
    rows = rows_of(chain, ReadOptions({"table": "capture_files"}), ["capture", "packets"])
    before = capture_of(chain)
    path.write_bytes(data)
    assert capture_of(chain) != before
    assert next(rows).column("capture").to_pylist() == [capture_of(chain)]


def test_options_are_those_of_landing() -> None:
    asked = ReadOptions({"decode_as": "7000=pulsar, 7001=cursus", "REDACT": "False",
                   "max_frame_bytes": "1000", "memory_limit": "2000000",
                   "want_detail": "all"})  # fmt: skip
    assert asked.options.decode_as == {7000: "pulsar", 7001: "cursus"}
    assert not asked.options.redact and asked.options.max_frame_bytes == 1000
    assert asked.options.memory_limit == 2_000_000 and asked.options.want_detail == "all"
    for given, what in (
        ({"tabel": "frames"}, "no option tabel; there are table"),
        ({"redact": "maybe"}, "redact cannot be 'maybe'"),
        ({"protocol": "kafka"}, "protocol cannot be 'kafka'"),
        ({"max_frame_bytes": "-1"}, "write a whole number"),
        ({"decode_as": "7000"}, "no port and protocol"),
        ({"decode_as": "7000=kafka"}, "choose one of pulsar, cursus"),
    ):
        with pytest.raises(UsageError, match=what):
            ReadOptions(given)
    assert inputs_of({"path": "s3a://bucket/x.pcap"}) == ["s3://bucket/x.pcap"]
    assert inputs_of({"path": "file:/a%20b/x.pcap"}) == ["/a b/x.pcap"]
    for path, said in (("ftp://host/x", "is an address"), ("-", "not standard input")):
        with pytest.raises(InputError, match=said):
            inputs_of({"path": path})
    with pytest.raises(InputError, match="no capture is named"):
        inputs_of({})
