"""Real captures in a lake, landed once for all tests that query it."""

import functools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dissector.dissection import Options
from dissector.lake.compact import compact
from dissector.lake.land import land_chain
from dissector.sources.rings import chains

CAPTURES = Path(__file__).resolve().parents[3] / "captures"
SAMPLES = (
    "pulsar-apache/java-j12_nack.pcap",
    "pulsar-apache/java-j16_dlq_retry.pcap",
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/java-j40_slow_consumer.pcap",
    "pulsar-apache/cpp-c40_killed_Failover.pcap",
    "cursus/go-group_rebalance_two_consumers.pcap",
)


def landed(folder: Path, names: Sequence[str] = SAMPLES) -> Path:
    """A lake of some samples, or what is there already and these."""
    if not folder.exists():
        return Path(shutil.copytree(_landed(tuple(names)), folder))
    return _land(folder, names)


@functools.cache
def _landed(names: tuple[str, ...]) -> Path:
    """The same for all tests, which copy it."""
    _kept.append(kept := tempfile.TemporaryDirectory())
    return _land(Path(kept.name) / "lake", names)


_kept: list[tempfile.TemporaryDirectory[str]] = []  # they go with the process


def _land(folder: Path, names: Sequence[str]) -> Path:
    plan = chains([str(CAPTURES / name) for name in names], "none")
    for chain in plan.chains:
        land_chain(chain, folder, Options())
    return folder


def compacted(lake: Path, folder: Path) -> Path:
    """A copy of a lake in one group."""
    shutil.copytree(lake, folder)
    assert compact(folder).groups
    return folder
