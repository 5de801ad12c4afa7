"""Parts of a lake by time and topic, on hand-made rows."""

import argparse
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from spark_jobs.selection import Selection, full_name, selected, selection_of, time_ns

from dissector.cli.main import run
from dissector.errors import UsageError
from tests.spark_jobs.cutting import SAMPLES

T = "persistent://public/default/t"
S = 1_000_000_000


def rows(spark: Any, given: list[tuple[Any, ...]]) -> Any:
    columns = "capture string, connection_id bigint, producer_id bigint, incarnation bigint"
    return spark.createDataFrame(given, f"{columns}, topic string, ts timestamp")


def nobody(spark: Any, number: str, given: list[tuple[Any, ...]] | None = None) -> Any:
    columns = f"capture string, connection_id bigint, {number} bigint, incarnation bigint"
    return spark.createDataFrame(given or [], f"{columns}, topic string")


def at(second: int) -> datetime:
    return datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC)


def test_since_is_in_and_until_is_not(spark: Any) -> None:
    given = rows(spark, [("a", 0, 1, 0, T, at(second)) for second in range(5)])
    names = nobody(spark, "producer_id"), nobody(spark, "consumer_id")
    found = selected(given, "exchanges", Selection(1 * S, 3 * S), *names)
    assert sorted(row["ts"].second for row in found.collect()) == [1, 2]
    assert selected(given, "exchanges", Selection(), *names).count() == 5


def test_a_topic_comes_with_its_partitions_and_with_names_learnt_late(spark: Any) -> None:
    topics = [T, f"{T}-partition-12", f"{T}-partition-x", f"{T}2", None]
    given = rows(spark, [("a", 0, n, 0, name, at(n)) for n, name in enumerate(topics)])
    producers = nobody(spark, "producer_id", [("a", 0, 4, 0, T)])
    found = selected(
        given, "exchanges", Selection(topics=(T,)), producers, nobody(spark, "consumer_id")
    )
    assert sorted(row["producer_id"] for row in found.collect()) == [0, 1, 4]


def test_connections_count_that_had_a_packet_in_the_time(spark: Any) -> None:
    given = spark.createDataFrame(
        [(0, 1 * S), (1 * S, 3 * S), (4 * S, 9 * S), (5 * S, 6 * S)],
        "first_ts_ns bigint, last_ts_ns bigint",
    )
    names = nobody(spark, "producer_id"), nobody(spark, "consumer_id")
    found = selected(given, "connections", Selection(2 * S, 5 * S), *names).collect()
    assert sorted(row["first_ts_ns"] for row in found) == [1 * S, 4 * S]


def test_options_are_read() -> None:
    args = argparse.Namespace(since="1970-01-01T00:00:02", until="1970-01-01T02:00+01:00",
                              topic=["t", "x/y/z", T])  # fmt: skip
    found = selection_of(args)
    assert (found.since_ns, found.until_ns) == (2 * S, 3600 * S)
    assert found.topics == (T, "persistent://x/y/z")
    assert full_name("non-persistent://a/b/c") == "non-persistent://a/b/c"
    assert selection_of(argparse.Namespace()).is_everything
    with pytest.raises(UsageError, match="--since"):
        time_ns("--since", "yesterday")


def test_a_real_capture_landed_twice_is_cut_by_topic_and_time(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted by eye in the list of frames: `dissector frames java-j16_dlq_retry.pcap`."""
    for name in ("night.pcap", "the-same-night.pcap"):
        shutil.copy(SAMPLES / "java-j16_dlq_retry.pcap", tmp_path / name)
        assert run(["land", str(tmp_path / name), "--lake", str(tmp_path / "lake"), "-q"]) == 0
    capsys.readouterr()
    # From the third SEND on, that included, up to two redeliveries, these not.
    part = ["--since", "2026-11-21T09:46:56.210296", "--until", "2026-11-21T10:46:56.612932+01:00"]
    paths = ["--lake", str(tmp_path / "lake"), "-o", str(tmp_path / "out")]
    assert run(["report", *paths, "--topic", "j16", *part]) == 0
    (first, second) = sorted(path.stem for path in (tmp_path / "lake" / "_manifest").iterdir())
    assert f"{second} is not counted: all its files are in {first}" in capsys.readouterr().err
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert report["coverage"]["not_counted"] == [{"capture": second, "held_by": first}]
    assert report["selection"]["topics"] == ["persistent://public/default/j16"]
    sends = report["send_latency"]["total"]
    assert (sends["sends"], sends["messages"], sends["outcomes"]) == (4, 4, {"ok": 4})
    latency = sends["latency_ms"]
    assert (latency["min"], latency["max"], latency["mean"]) == (3.647, 4.271, 4.024)
    for window, begin in (("minute", "09:46:00"), ("hour", "09:00:00"), ("day", "00:00:00")):
        (only,) = sends[f"per_{window}"]
        assert only[window] == f"2026-11-21T{begin}.000000Z" and only["sends"] == 4
    total = report["redelivery"]["total"]
    assert (total["deliveries"], total["redelivered"]) == (4, 0)
    assert [row["topic"] for row in report["send_latency"]["by_topic"]] == [
        "persistent://public/default/j16"
    ]
