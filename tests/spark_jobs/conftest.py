"""A lake of all that reports are made of, and what both engines say about it, made once."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dissector.lake.cache import SUMS
from dissector.lake.compact import compact
from tests.dissector.findings.samples import land_samples, that_fire_all
from tests.dissector.report.apart import CUTS, land_apart
from tests.dissector.report.made import RandomCapture, Tables, write_lake
from tests.dissector.report.odd import odd_captures
from tests.reports import EVERY_RULE, reported

# TLS, a start in the middle, packets cut short, a rebalance.
MORE = ("java-j35_tls.pcap", "java-j72_midstream.pcap", "mut-snap200-java-j03_batch_lz4.pcap",
        "go-crash_redelivery_streaming.pcap")  # fmt: skip
# What two captures saw alike is one finding, and either of them may be named.
IN_PARTS = (*(Path(name).name for name in CUTS), "mut-loss1-java-j24_unload.pcap")
# Put into one group before Spark reads them: captures that are joined, and some that stand alone.
COMPACTED = ("c-java-j24*", "c-cpp-*")


class Both(NamedTuple):
    """lake: what Spark reported about it is kept there, and some captures are one group; spark,
    duckdb: folders of reports, by Spark's tasks and without it, before the lake was compacted."""

    lake: Path
    spark: Path
    duckdb: Path
    report: dict[str, Any]


def made_captures() -> dict[str, Tables]:
    """Rows by chance, ordinary and odd ones, of clusters that have nothing in common."""
    captures = {"c-made-0": RandomCapture(1).tables, **odd_captures(3)}
    for name, tables in captures.items():
        for row in tables["capture_files"]:
            row["cluster"] = name
    return captures


@contextmanager
def default_elsewhere(spark: Any) -> Iterator[None]:
    """As on a cluster whose files are in an HDFS that cannot be reached."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", "hdfs://nowhere.invalid:8020")
    try:
        yield
    finally:
        settings.set("fs.defaultFS", before)


@pytest.fixture(scope="session")
def both(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Of captures that were cut, landed apart and are joined; of those in which rules find what
    they are for, and of others; of rows by chance."""
    from dissector.spark.engine import SparkEngine

    root = tmp_path_factory.mktemp("both")
    lake = root / "lake [1] n\u00e4chte 100%"
    land_apart(lake, root)
    land_samples(lake, sorted({*that_fire_all(IN_PARTS), *MORE}))
    write_lake(lake, made_captures())
    reported(lake, root / "duckdb", rules=EVERY_RULE)
    groups = compact(lake, COMPACTED).groups
    assert sum(len(group.replaces) for group in groups) > 5
    shutil.rmtree(lake / SUMS)  # nothing of it is left for the other engine
    by_spark = root / "spark {2}"
    with default_elsewhere(spark):
        report = reported(lake, by_spark, lambda _: SparkEngine(spark), rules=EVERY_RULE)
    return Both(lake, by_spark, root / "duckdb", report)
