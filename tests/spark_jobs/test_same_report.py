"""Spark and DuckDB write the same report, byte for byte, of whatever lies in a lake."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.joining.closing import CLOSED
from dissector.spark.engine import SparkEngine
from tests import reports
from tests.dissector.findings.samples import RULES
from tests.reports import SOME_RULES, differences
from tests.spark_jobs.conftest import Both

# The fixture asks all of them.
reported = partial(reports.reported, rules=SOME_RULES)
# Half of the rows by chance are before it.
SINCE = "2025-06-15T15:06:42"


def test_the_report_of_everything(both: Both) -> None:
    """The numbers are held against others in tests/dissector/report; here that there are some.

    DuckDB read the lake before captures became one group, Spark after.
    """
    mine, theirs = ((folder / "report.json").read_bytes() for folder in (both.spark, both.duckdb))
    assert mine == theirs
    found = both.report
    assert found["closing"]["total"]["captures_joined"] == 9
    assert found["closing"]["total"]["exchanges_answered_later"] > 0
    sends = found["send_latency"]["total"]
    assert sends["sends"] > 500 and sends["resent"] > 0
    assert sends["logical_latency_ms"]["count"] > 0
    assert found["permit_utilization"]["total"]["stalls"]["count"] > 0
    assert found["checksum_failures"]["total"]["confirmed_by_peer"] > 0
    assert found["coverage"]["total"]["tls_opaque_connections"] > 0
    causes = found["redelivery"]["total"]["by_cause"].keys()
    assert causes >= {"unload", "explicit", "rebalance"}
    assert found["ack_latency"]["total"]["lag_delivered_max"] >= 1 << 31


@pytest.mark.parametrize("table", CLOSED)
def test_the_rows_of_joined_captures(both: Both, table: str) -> None:
    mine, theirs = (
        pq.read_table(folder / "tables" / f"closed_{table}").to_pylist()
        for folder in (both.spark, both.duckdb)
    )
    assert sorted(mine, key=repr) == sorted(theirs, key=repr) != []


def test_the_findings(both: Both) -> None:
    """The texts of rules as they are find the same with both, each in its sample capture."""
    tables = [
        pq.read_table(folder / "tables" / "findings_findings").to_pylist()
        for folder in (both.spark, both.duckdb)
    ]
    assert tables[0] == tables[1]
    assert {row["code"] for row in tables[0]} >= {rule.code for rule in RULES if rule.fires}
    assert both.report["findings"]["total"]["rules_failed"] == 0


def test_the_report_of_a_topic_and_a_time_with_exact_percentiles(
    spark: Any, both: Both, tmp_path: Path
) -> None:
    """Nothing of it is kept: each engine reads all rows again."""
    topics = tuple(
        row["topic"] for row in both.report["send_latency"]["by_topic"] if row["topic"] is not None
    )
    captures = tuple(
        row["capture"] for row in both.report["sources"]
        if row["capture"].startswith(("c-made", "c-odd", "c-java-j74", "c-java-j12"))
    )  # fmt: skip
    asked: dict[str, Any] = {"since": SINCE, "topics": topics[::2], "exact": True}
    asked["captures"] = captures
    theirs = reported(both.lake, tmp_path / "duckdb", **asked)
    mine = reported(both.lake, tmp_path / "spark", lambda _: SparkEngine(spark), **asked)
    assert differences(mine, theirs) == []
    texts = [(tmp_path / name / "report.json").read_bytes() for name in ("spark", "duckdb")]
    assert texts[0] == texts[1]
    sends = mine["send_latency"]["total"]["sends"]
    assert 0 < sends < both.report["send_latency"]["total"]["sends"]
    assert mine["send_latency"]["total"]["latency_ms"]["p99"] is not None
