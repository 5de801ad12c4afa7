"""A lake of captures that belong together, and what Spark reports about it, made once."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.spark_jobs.cutting import land, land_cut, read

# Cut where no frame straddles: behind whole frames of both directions.
CUTS = {
    "java-j24_unload.pcap": (203, 300), "java-j74_corrupt.pcap": (51,),
    "cpp-c40_killed_Failover.pcap": (19,),
    "../cursus/go-group_rebalance_two_consumers.pcap": (331,),
}  # fmt: skip
WHOLE = ("java-j23_errors.pcap",)


class Apart(NamedTuple):
    """lake: of CUTS in parts, and of WHOLE; folder, report: what Spark reports about it."""

    lake: Path
    folder: Path
    report: dict[str, Any]


@pytest.fixture(scope="session")
def apart(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Apart:
    from tests.spark_jobs.test_report import reported

    root = tmp_path_factory.mktemp("apart")
    for name, places in CUTS.items():
        land_cut(name, places, root / "lake", root)
    for name in WHOLE:
        land(read(name), name.partition(".")[0], root / "lake", root)
    report = reported(spark, root / "lake", root / "report")
    return Apart(root / "lake", root / "report", report)
