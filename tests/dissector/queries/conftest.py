"""A lake of several sample captures, for questions in SQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.queries.duckdb_engine import DuckdbEngine

SAMPLES = Path(__file__).resolve().parents[3] / "captures" / "pulsar-apache"
NAMES = (
    "java-j12_nack.pcap", "java-j74_corrupt.pcap", "java-j03_batch_lz4.pcap",
    "java-j40_slow_consumer.pcap", "java-j23_errors.pcap", "java-j24_unload.pcap",
    "cpp-s30_latency_mix-wireloss.pcap.gz",
)  # fmt: skip
DAMAGED = "mut-snap200-java-j03_batch_lz4.pcap"  # cut by a snap length: it has notices
STUCK = "../pulsar/fake-f20_stuck_consumer.pcap"  # messages wait until its consumer grants again
STICKY = "../threads/t04-sticky-range-twin.pcap"  # two Key_Shared consumers, each with its range


@pytest.fixture
def db() -> Iterator[DuckdbEngine]:
    with DuckdbEngine() as engine:
        yield engine


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The lake; tests only read it."""
    folder = tmp_path_factory.mktemp("sql") / "lake"
    captures = [str(SAMPLES / name) for name in (*NAMES, DAMAGED, STUCK, STICKY)]
    assert run(["land", *captures, "--lake", str(folder)]) == 0
    yield folder
