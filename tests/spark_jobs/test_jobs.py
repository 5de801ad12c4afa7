"""Real captures through a lake and Spark: the report equals the summary; each job by itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from spark_jobs.counting import collected
from spark_jobs.joined import CLOSED
from spark_jobs.tables import bucket, floor_div

from dissector.cli.main import run
from dissector.lake.reader import open_lake
from spark_jobs import (
    checksum,
    coverage,
    errors,
    job,
    latency,
    lifetimes,
    permits,
    redelivery,
    report,
    round_trips,
)
from spark_jobs.schemas import SPARK_TYPES, spark_schema
from tests.dissector.lake.samples import landed
from tests.spark_jobs.test_report import differences, reported

SAMPLES = Path(__file__).resolve().parents[2] / "captures" / "pulsar-apache"
CURSUS = "../cursus/go-crash_redelivery_streaming.pcap"
NAMES = (
    "java-j74_corrupt.pcap", "java-j24_unload.pcap", "java-j12_nack.pcap",
    "java-j40_slow_consumer.pcap", "java-j17_blocked_unacked.pcap", "java-j23_errors.pcap",
    "java-j61_txn_abort.pcap", "java-j16_dlq_retry.pcap", "java-j72_midstream.pcap",
    "cpp-s08_nack-proxy-any.pcap", "mut-snap200-java-j03_batch_lz4.pcap",
    "../pulsar/tap-caploss.pcap", "java-j35_tls.pcap", CURSUS,
    "../cursus/raw-commands_all.pcap",
)  # fmt: skip

Main = Callable[[list[str]], int]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of real captures, with a proxied pair, TLS, damage and a start in the middle."""
    folder = tmp_path_factory.mktemp("real") / "lake"
    code = run(["land", *(str(SAMPLES / name) for name in NAMES), "--lake", str(folder), "-q"])
    assert code == 0
    return folder


@pytest.fixture(scope="module")
def whole(spark: Any, lake: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Spark reports about it."""
    folder = tmp_path_factory.mktemp("report") / "out"
    found = reported(spark, lake, folder, page=True)
    for table in CLOSED:  # nothing was joined
        assert pq.read_table(folder / "tables" / f"closed_{table}").num_rows == 0
    return found


def summary(capsys: pytest.CaptureFixture[str], *names: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["summary", "--json", "-q", *(str(SAMPLES / name) for name in names)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_report_of_real_captures_is_their_summary(
    whole: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    joined = {key: value for key, value in whole.items() if key != "closing"}
    assert differences(joined, summary(capsys, *NAMES)) == []
    assert whole["closing"]["total"]["captures_joined"] == 0
    total = whole["coverage"]["total"]
    assert total["captures"] == len(NAMES) and total["tls_opaque_connections"] > 0
    assert whole["checksum_failures"]["total"]["confirmed_by_peer"] == 1
    assert whole["redelivery"]["total"]["by_cause"].keys() >= {"unload", "explicit", "txn_abort"}


@pytest.mark.parametrize("name", ["java-j40_slow_consumer.pcap", "java-j24_unload.pcap", CURSUS])
def test_the_report_of_one_capture_is_its_summary(
    spark: Any, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    alone = summary(capsys, name)
    capture = alone["sources"][0]["capture"]
    found = reported(spark, lake, tmp_path / "out", capture=[capture])
    assert differences(found, alone) == []
    if name == CURSUS:
        assert found["permit_utilization"]["total"]["not_applicable"]
        assert found["redelivery"]["total"]["by_cause"]["rebalance"] > 0
    else:
        assert len(found["permit_utilization"]["balance_over_time"]["points"]) >= 7


@pytest.mark.parametrize(
    ("main", "sections"),
    [
        (coverage.main, ["coverage"]),
        (latency.main, ["send_latency"]),
        (permits.main, ["permit_utilization"]),
        (redelivery.main, ["redelivery"]),
        (checksum.main, ["checksum_failures"]),
        (errors.main, ["errors", "slowest"]),
        (lifetimes.main, list(lifetimes.SECTIONS)),
        (round_trips.main, list(round_trips.SECTIONS)),
    ],
    ids=[
        "coverage",
        "latency",
        "permits",
        "redelivery",
        "checksum",
        "errors",
        "lifetimes",
        "round_trips",
    ],
)
def test_each_job_by_itself_writes_its_sections(
    spark: Any, lake: Path, tmp_path: Path, whole: dict[str, Any], main: Main, sections: list[str]
) -> None:
    assert main(["--lake", str(lake), "-o", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert sorted(found) == sorted(["schema_version", "sources", *sections])
    for section in sections:
        # The text of a section speaks of others as well; it is made for whole reports.
        alone = {key: value for key, value in whole[section].items() if key != "about"}
        assert differences(found[section], alone) == []
    assert not (tmp_path / "out" / "report.html").exists()


def test_all_jobs_together_cover_every_section(whole: dict[str, Any]) -> None:
    others = ("schema_version", "sources", "verdicts", "closing")
    assert list(report.SECTIONS) == [key for key in whole if key not in others]


def test_a_job_ends_with_one_line_where_there_is_no_lake(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert latency.main(["--lake", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "is not a lake" in capsys.readouterr().err


def test_captures_that_cannot_be_read_are_named_and_the_others_read(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = landed(tmp_path / "lake", ["pulsar-apache/java-j12_nack.pcap"])
    (lake / "_manifest" / "c-other.json").write_text("{")
    read: list[str] = []

    def run_job(spark: Any, args: Any) -> dict[str, Any]:
        with open_lake(Path(args.lake)) as opened:
            read.extend(capture.capture_id for capture in opened.captures)
        return {}

    options = ["--lake", str(lake), "-o", str(tmp_path / "out")]
    assert job.main(options, run_job, "a job") == job.PARTIAL == 3
    assert "c-other.json" in capsys.readouterr().err and len(read) == 1
    assert job.main([*options, "--capture", *read], run_job, "a job") == 0


def test_a_capture_that_is_not_there_is_named(
    spark: Any, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = job.main(
        ["--lake", str(lake), "-o", str(tmp_path / "out"), "--capture", "c-none"],
        latency.run, "a job",
    )  # fmt: skip
    assert code == 1 and "c-none" in capsys.readouterr().err


def test_exact_percentiles_are_values_that_occurred(
    spark: Any, lake: Path, tmp_path: Path, whole: dict[str, Any]
) -> None:
    found = reported(spark, lake, tmp_path / "out", exact=True)
    with open_lake(lake) as opened:
        rows = [row for path in opened.part_paths("exchanges")
                for row in pq.read_table(path, partitioning=None).to_pylist()]  # fmt: skip
    topics = {row["topic"]: row for row in found["send_latency"]["by_topic"]}
    for topic in ("persistent://public/default/j12", "persistent://public/default/j40"):
        values = sorted(
            row["latency_ns"] for row in rows
            if row["topic"] == topic and row["kind"] == "publish" and row["outcome"] == "ok"
        )  # fmt: skip
        exact = topics[topic]["latency_ms"]
        for name, permille in (("p50", 500), ("p90", 900), ("p99", 990)):
            rank = -(-len(values) * permille // 1000)
            assert exact[name] == pytest.approx(values[rank - 1] / 1e6, abs=0.0006), (topic, name)
        near = {row["topic"]: row for row in whole["send_latency"]["by_topic"]}[topic]
        assert near["latency_ms"]["p50"] == pytest.approx(exact["p50"], rel=0.016)


def test_every_column_of_the_lake_has_a_spark_type(spark: Any) -> None:
    from dissector.schemas import TABLES

    for name, table in TABLES.items():
        assert [field.name for field in spark_schema(name)] == [
            column.name for column in table.columns
        ]
        assert all(column.type in SPARK_TYPES for column in table.columns)


def test_integer_arithmetic_is_that_of_python(spark: Any) -> None:
    import pyarrow as pa

    from dissector.buckets import bucket_of

    values = [0, 1, 63, 64, 65, 1_000_000, 10**12, (1 << 62) + 12345, -1, -7, -13]
    rows = spark.createDataFrame([(value,) for value in values], "value bigint")
    rows = rows.select("value", floor_div(rows["value"], 7).alias("seventh"),
                       bucket(rows["value"]).alias("bucket"))  # fmt: skip
    schema = pa.schema([(name, pa.int64()) for name in ("value", "seventh", "bucket")])
    for row in collected(rows, schema).to_pylist():
        assert row["seventh"] == row["value"] // 7
        known = int(bucket_of(row["value"])) if row["value"] >= 0 else None
        assert row["bucket"] == known
