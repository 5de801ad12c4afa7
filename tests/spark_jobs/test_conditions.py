"""Conditions on captures that Spark hands to the data source: rows and plans are those of Spark."""

import re
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.datasource import EqualTo

from dissector.sources.rings import chains
from spark_jobs.capture_rows import capture_of
from spark_jobs.captures import ConditionalReader
from spark_jobs.read_options import ReadOptions
from tests.dissector.joining.cutting import SAMPLES

FORMAT = "pulsar_pcap"
CURSUS = SAMPLES.parent / "cursus" / "go-group_rebalance_two_consumers.pcap"
BATCHES = SAMPLES / "java-j03_batch_lz4.pcap"


def test_conditions_that_the_source_takes_give_the_rows_that_spark_would(spark: Any) -> None:
    """By Spark's own evaluation of the same condition; its plan shows that it asks no more."""
    files = [str(BATCHES), str(CURSUS)]
    setting = "spark.sql.python.filterPushdown.enabled"
    name = capture_of(chains([str(CURSUS)]).chains[0])
    source = spark.read.format(FORMAT).schema(
        "capture string, frame_no bigint, command string, topic string, is_batch boolean"
    )
    whole = source.load(files).cache()
    asked = (
        "command = 'SEND'",
        "command IN ('SEND', 'ACK', NULL)",
        "NOT (command IN ('SEND', NULL))",
        "NOT (topic = 'x')",
        "topic IS NULL AND frame_no > 5",
        "topic IS NOT NULL AND frame_no <= 20 AND frame_no >= 3",
        "topic <=> NULL",
        "NOT (topic <=> 'x')",
        "command LIKE 'SEND%' OR command LIKE '%ACK'",
        "command LIKE 'SEND%'",
        "command LIKE '%CK'",
        "command LIKE '%ONNE%' AND NOT is_batch",
        f"capture = '{name}'",
        f"capture IN ('{name}', 'c-none-000000000000')",
        "capture = 'c-none-000000000000'",
        "command < 'P' AND command >= 'C'",
    )
    spark.conf.set(setting, "true")
    try:
        for condition in asked:
            pushed = source.load(files).where(condition)
            rows = sorted(map(str, pushed.collect()))
            assert rows == sorted(map(str, whole.where(condition).collect())), condition
            plan = pushed._jdf.queryExecution().executedPlan().toString()
            if " OR " not in condition:
                assert re.search(r"\bFilter \(", plan) is None, plan
    finally:
        spark.conf.unset(setting)
        whole.unpersist()


def test_the_name_of_a_capture_decides_before_it_is_read() -> None:
    options, columns = ReadOptions({}), ["capture", "frame_no"]
    reader = ConditionalReader(options, [str(BATCHES), str(CURSUS)], columns)
    other = EqualTo(("capture", "x"), "y")
    name = capture_of(chains([str(CURSUS)]).chains[0])
    assert list(reader.pushFilters([EqualTo(("capture",), name), other])) == [other]
    assert len(reader.partitions()) == 1
