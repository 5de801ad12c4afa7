"""Spark and the summary give the same numbers for the same rows."""

import argparse
import json
from pathlib import Path
from typing import Any

from spark_jobs import report
from tests.dissector.report.made import RandomCapture, Tables, batch, write_lake
from tests.numbers import Numbers


def summarised(captures: dict[str, Tables], rows_at_once: int = 97) -> dict[str, Any]:
    """What the summary says about tables, fed in small batches, frames first."""
    summary = Numbers()
    for capture_id, tables in captures.items():
        for name in sorted(tables, key=lambda name: name != "frames"):
            rows = tables[name]
            for start in range(0, len(rows), rows_at_once):
                part = batch(name, rows[start : start + rows_at_once])
                summary.add(name, part, capture_id)
    return summary.result()


def reported(spark: Any, lake: Path, output: Path, **options: Any) -> dict[str, Any]:
    """What the Spark jobs write about a lake."""
    settings = {"capture": [], "exact": False, "master": None, "page": False, "tell": print}
    settings |= {"force": False} | options
    report.run(spark, argparse.Namespace(lake=str(lake), output=str(output), **settings))
    content: dict[str, Any] = json.loads((output / "report.json").read_text("utf-8"))
    return content


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as short texts."""
    if isinstance(left, dict) and isinstance(right, dict):
        found = [f"{path}: {key} on one side" for key in sorted(left.keys() ^ right.keys())]
        for key in left.keys() & right.keys():
            found += differences(left[key], right[key], f"{path}.{key}")
        return found
    if isinstance(left, list) and isinstance(right, list):
        found = [] if len(left) == len(right) else [f"{path}: {len(left)} and {len(right)} rows"]
        for place, (one, other) in enumerate(zip(left, right, strict=False)):
            found += differences(one, other, f"{path}[{place}]")
        return found
    return [] if left == right else [f"{path}: {left!r} and {right!r}"]


def test_spark_and_summary_agree_on_every_number_of_a_capture(spark: Any, tmp_path: Path) -> None:
    captures = {"c-made-0": RandomCapture(1).tables}
    lake = write_lake(tmp_path / "lake", captures)
    by_spark = reported(spark, lake, tmp_path / "report")
    by_summary = json.loads(json.dumps(summarised(captures)))
    assert differences(by_spark, by_summary) == []
    total = by_spark["send_latency"]["total"]
    assert total["sends"] > 100 and total["resent"] > 0 and total["logical_latency_ms"]["count"] > 0
    assert by_spark["permit_utilization"]["total"]["stalls"]["count"] > 0
    assert by_spark["checksum_failures"]["total"]["confirmed_by_peer"] > 0
    assert by_spark["slowest"]["publish"][0]["request_packet"] is not None


def test_spark_and_summary_agree_on_a_capture_of_cursus(spark: Any, tmp_path: Path) -> None:
    made = RandomCapture(4, 60, 40)
    for row in (*made.tables["connections"], *made.tables["frames"]):
        row["protocol"] = "cursus"
    for row in made.tables["exchanges"]:
        row["producer_id"] = None
    for place, row in enumerate((*made.tables["deliveries"], *made.tables["acks"])):
        lag = (None, 5, 0, 1 << 31)[place % 4]
        row |= {"consumer_id": None, "partition": place % 3, "lag": lag}
    made.tables["permits"].clear()
    captures = {"c-made-0": made.tables}
    by_spark = reported(spark, write_lake(tmp_path / "lake", captures), tmp_path / "report")
    assert differences(by_spark, json.loads(json.dumps(summarised(captures)))) == []
    assert by_spark["checksum_failures"]["total"]["not_applicable"]
    assert by_spark["ack_latency"]["total"]["lag_delivered_max"] == 1 << 31


def test_spark_and_summary_agree_on_several_captures_together(spark: Any, tmp_path: Path) -> None:
    captures = {f"c-made-{seed}": RandomCapture(seed, 60, 60).tables for seed in (2, 3)}
    for name, tables in captures.items():  # of clusters that have nothing to do with each other
        for row in tables["capture_files"]:
            row["cluster"] = name
        for row in tables["exchanges"][::9]:  # as texts of Cursus have it
            row["sequence_id"] = None
    lake = write_lake(tmp_path / "lake", captures)
    by_spark = reported(spark, lake, tmp_path / "report")
    assert by_spark.pop("closing")["total"]["groups"] == 0
    assert differences(by_spark, json.loads(json.dumps(summarised(captures, 31)))) == []
    assert by_spark["coverage"]["total"]["captures"] == 2
