"""Captures that appear in a folder, as a stream: each complete one once, whatever becomes of it."""

import gzip
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from dissector.errors import InputError
from spark_jobs.capture_stream import CaptureStream
from spark_jobs.read_options import ReadOptions, inputs_of
from tests.dissector.joining.cutting import SAMPLES

ALL = ReadAllAvailable()
BATCHES = SAMPLES / "java-j03_batch_lz4.pcap"
NACK = SAMPLES / "java-j12_nack.pcap"
UNLOAD = SAMPLES / "java-j24_unload.pcap"


def stream_of(folder: Path | str, **options: str) -> CaptureStream:
    return CaptureStream(ReadOptions(options), inputs_of({"path": str(folder)}), ["frame_no"])


def put(source: Path | bytes, path: Path, age: float = 3600) -> Path:
    path.write_bytes(source if isinstance(source, bytes) else source.read_bytes())
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def names(stream: CaptureStream, start: Any, end: Any) -> list[list[str]]:
    return sorted(
        [Path(file).name for file in partition.value.files]
        for partition in stream.partitions(start, end)
    )


def test_a_capture_comes_once_when_nobody_writes_to_it_any_more(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ALL) == start, "an empty folder is the usual beginning"
    put(BATCHES, tmp_path / "a.pcap")
    put(NACK, tmp_path / "b.pcap", age=5)
    put(b"notes", tmp_path / "notes.txt")
    first = stream.latestOffset(start, ALL)
    assert names(stream, start, first) == [["a.pcap"]]
    put(NACK, tmp_path / "b.pcap")
    second = stream.latestOffset(first, ALL)
    assert names(stream, first, second) == [["b.pcap"]]
    assert stream.latestOffset(second, ALL) == second
    again = stream_of(tmp_path)
    assert names(again, first, second) == [["b.pcap"]], "a query that was restarted asks once more"
    assert names(again, start, second) == [["a.pcap"], ["b.pcap"]]


def test_a_file_that_is_compressed_moved_or_copied_is_the_same_one(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    start = stream.initialOffset()
    path = put(BATCHES, tmp_path / "a.pcap")
    first = stream.latestOffset(start, ALL)
    put(gzip.compress(path.read_bytes()), tmp_path / "a.pcap.gz")
    path.unlink()
    assert stream.latestOffset(first, ALL) == first
    assert names(stream, start, first) == [["a.pcap.gz"]], "its rows are there under a new name"
    shutil.copy2(tmp_path / "a.pcap.gz", tmp_path / "copy.pcap.gz")
    put(BATCHES.read_bytes()[:9000], tmp_path / "beginning.pcap")
    put(NACK, tmp_path / "a.pcap")  # a ring uses the name again
    second = stream.latestOffset(first, ALL)
    assert names(stream, first, second) == [["a.pcap"]]


@pytest.mark.parametrize("size", [700, 9000])
def test_a_file_that_grows_after_it_was_read_ends_the_stream(tmp_path: Path, size: int) -> None:
    path = put(BATCHES.read_bytes()[:size], tmp_path / "a.pcap")
    stream = stream_of(tmp_path)
    first = stream.latestOffset(stream.initialOffset(), ALL)
    put(BATCHES, path)
    with pytest.raises(InputError, match=r"grew after it was read.*settled_seconds \(60\)"):
        stream.latestOffset(first, ALL)


def test_files_of_a_ring_are_one_capture_when_all_are_complete(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    start = stream.initialOffset()
    put(BATCHES, tmp_path / "tap.pcap")
    put(NACK, tmp_path / "tap.pcap1", age=5)
    assert stream.latestOffset(start, ALL) == start
    put(NACK, tmp_path / "tap.pcap1")
    assert names(stream, start, stream.latestOffset(start, ALL)) == [["tap.pcap", "tap.pcap1"]]
    each = stream_of(tmp_path, chain="none")
    assert len(names(each, start, each.latestOffset(start, ALL))) == 2


def test_as_many_files_come_at_once_as_are_wanted(tmp_path: Path) -> None:
    for age, source in ((30, BATCHES), (20, NACK), (10, UNLOAD)):
        put(source, tmp_path / f"{source.stem}.pcap", age=age)
    stream = stream_of(tmp_path, settled_seconds="0", max_files_per_trigger="2")
    assert stream.getDefaultReadLimit() == ReadMaxFiles(2)
    start = stream.initialOffset()
    first = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert names(stream, start, first) == [[BATCHES.name], [NACK.name]], "the oldest"
    second = stream.latestOffset(first, ReadMaxFiles(2))
    assert names(stream, first, second) == [[UNLOAD.name]]
    stream.prepareForTriggerAvailableNow()
    put(CUT := SAMPLES / "java-j35_tls.pcap", tmp_path / CUT.name, age=-1)
    assert stream.latestOffset(second, ALL) == second, "what comes later is for the next run"


def test_what_cannot_be_read_is_told_or_left_out(tmp_path: Path) -> None:
    put(b"", tmp_path / "new.pcap", age=1)
    stream = stream_of(tmp_path)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ALL) == start, "a file that was just made is empty"
    put(b"no capture at all", tmp_path / "broken.pcap")
    os.mkfifo(tmp_path / "pipe.pcap")
    with pytest.raises(InputError, match=r"broken.pcap: not a capture.*'strict', 'false'"):
        stream.latestOffset(start, ALL)
    put(BATCHES, tmp_path / "a.pcap")
    loose = stream_of(tmp_path, strict="false")
    end = loose.latestOffset(start, ALL)
    assert names(loose, start, end) == [["a.pcap"]]
    (tmp_path / "a.pcap").unlink()
    assert names(loose, start, end) == []
    (tmp_path / "broken.pcap").unlink()
    (tmp_path / "pipe.pcap").unlink()
    with pytest.raises(InputError, match="1 of 1 files that were complete are gone"):
        stream.partitions(start, end)
    with pytest.raises(InputError, match="there is no such file"):
        stream_of(tmp_path / "nowhere").initialOffset()


def test_files_that_are_gone_are_forgotten_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offset is written for every batch: a ring that runs for years must not make it grow."""
    monkeypatch.setattr("spark_jobs.capture_stream.MAX_GONE_FILES", 2)
    stream = stream_of(tmp_path)
    offset = stream.initialOffset()
    for number in range(6):
        path = tmp_path / "a.pcap"
        put(BATCHES.read_bytes()[:24] + bytes([number]) * 5 + BATCHES.read_bytes()[29:], path)
        offset = stream.latestOffset(offset, ALL)
        assert len(offset["files"]) == min(number + 1, 3)


def test_a_query_that_is_restarted_has_every_row_once(spark: Any, tmp_path: Path) -> None:
    """By what the batch source reads of the same files."""
    folder = tmp_path / "taps"
    folder.mkdir()
    source = spark.readStream.format("pulsar_pcap").schema("capture string, frame_no bigint")
    for path in (BATCHES, NACK):
        put(path, folder / path.name)
        frames = source.option("max_files_per_trigger", "1").load(str(folder))
        written = frames.writeStream.format("parquet").option(
            "checkpointLocation", f"{tmp_path}/at"
        )
        written.trigger(availableNow=True).start(f"{tmp_path}/out").awaitTermination(120)
        put(gzip.compress(path.read_bytes()), folder / f"{path.name}.gz")
        (folder / path.name).unlink()
    streamed = Counter(map(tuple, spark.read.parquet(f"{tmp_path}/out").collect()))
    batch = spark.read.format("pulsar_pcap").schema("capture string, frame_no bigint")
    assert streamed == Counter(map(tuple, batch.load(f"{folder}/*").collect()))
    with pytest.raises(Exception, match="settled_seconds is an option of readStream alone"):
        batch.option("settled_seconds", "5").load(str(folder)).count()
    # A wrong column or option is said, in the first run and in one that goes on.
    for schema, options, place, what in (
        ("frame_no string", {}, "at", "the column frame_no of frames is bigint, not string"),
        ("color string", {}, "new", "the table frames has no column color"),
        ("frame_no bigint", {"tabel": "frames"}, "new", "no option tabel; there are"),
    ):
        asked = spark.readStream.format("pulsar_pcap").schema(schema).options(**options)
        written = asked.load(str(folder)).writeStream.format("parquet")
        run = written.option("checkpointLocation", f"{tmp_path}/{place}").trigger(availableNow=True)
        with pytest.raises(Exception, match=what) as told:
            run.start(f"{tmp_path}/more").awaitTermination(120)
        assert "Traceback" not in str(told.value)
