"""Runs of sample captures, as the command reads them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from dissector.compare.lake_run import run_of_lake
from dissector.compare.runs import Run
from dissector.dissection import Options
from dissector.lake.land import land_chain
from dissector.lake.reader import open_lake
from dissector.queries.selection import Selection
from dissector.sources.rings import Chain

SAMPLES = Path(__file__).resolve().parents[3] / "captures"
QUIET = SAMPLES / "pulsar" / "cpp-s30_latency_mix.pcap"
LOSSY = SAMPLES / "pulsar-apache" / "cpp-s30_latency_mix-wireloss.pcap.gz"

RunOf = Callable[..., Run]


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """Gives the run of captures that land in one lake; each is a capture of its own. What was asked
    before is not read again."""

    @cache
    def read(*paths: Path, what: Selection = Selection()) -> Run:  # noqa: B008 - a tuple
        folder = tmp_path_factory.mktemp("run")
        for path in paths:
            land_chain(Chain((str(path),), path.name), folder / "lake", Options())
        (folder / "work").mkdir()
        with open_lake(folder / "lake") as lake:
            return run_of_lake(lake, paths[0].name, folder / "work", 1, what)

    return read


@pytest.fixture(scope="session")
def quiet(run_of: RunOf) -> Run:
    return run_of(QUIET)


@pytest.fixture(scope="session")
def lossy(run_of: RunOf) -> Run:
    return run_of(LOSSY)
