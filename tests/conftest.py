"""Fixtures that several test folders share, and which tests run in one process."""

import gc
import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from dissector.errors import DependencyError
from tests.disks import quick_folder
from tests.grouping import Groups, place_of
from tests.watchdog import own_stderr, patience, watched

ROOT = Path(__file__).resolve().parents[1]
# An example that compiles a kernel takes seconds, the next one microseconds: time says nothing.
# Examples are the same in every run, so that a suite that passes here passes with everybody. New
# ones are drawn by `make fuzz` (--hypothesis-profile nightly), which keeps those that fail and
# tries them first the next time.
settings.register_profile("dissector", deadline=None, derandomize=True, database=None)
settings.register_profile(
    "nightly",
    deadline=None,
    derandomize=False,  # which the library sets by itself where it sees CI
    print_blob=True,
    database=DirectoryBasedExampleDatabase(ROOT / "build" / "fuzz" / "examples"),
)
settings.load_profile("dissector")


_THRESHOLDS = gc.get_threshold()


@pytest.fixture(autouse=True, scope="module")
def garbage() -> Iterator[None]:
    """The command looks for garbage rarely, as its process ends soon; this one does not.

    What is alive between two modules mostly stays: to look at it again costs 0.2 s each time.
    """
    gc.set_threshold(*_THRESHOLDS)
    yield
    gc.set_threshold(*_THRESHOLDS)
    gc.collect()
    gc.freeze()


_STDERR = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    """Standard error is nobody's here; while tests run, it is captured. Temporary files lie in
    memory, unless somebody says where. What a shell starts in the background does not hear an
    interrupt, nor does what that starts: here it does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_STDERR] = own_stderr()
    if "TMPDIR" not in os.environ and (folder := quick_folder()):
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Tests that are collected stay: to look for garbage among them costs every process 0.6 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that never ends, its fixtures included, ends the run and is named."""
    with watched(item.nodeid, patience(), item.config.stash[_STDERR]):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """What was set aside goes away with all else, as libraries look at the end."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def kept_rights() -> Iterator[None]:
    """A tap that runs inside this process would take its rights away from all later tests. Threads
    of it that let others go first would wait for whatever else the machine does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dissector.tap.privileges.drop_all_but_capturing", lambda: False)
        for module in ("judging", "windows"):
            patch.setattr(f"dissector.tap.{module}.step_back", lambda nice: None)
        yield


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their plots, which take nine tenths of their time."""
    monkeypatch.setattr("dissector.report.figures.Figures.of", lambda *_: defaultdict(lambda: None))


@pytest.fixture
def few_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summaries and reports of commands without most of the rules, which take a third of their
    time: for tests that ask nothing of findings."""
    from dissector.report import pipeline
    from tests.reports import SOME_RULES

    monkeypatch.setattr(pipeline, "Scope", partial(pipeline.Scope, rules=SOME_RULES))


# Rows that tests ask Spark for are few, and compared with those of others.
FEW_ROWS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local Spark session; tests that want it are skipped where there is no Java."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from dissector.spark import session

    if "PYTEST_XDIST_WORKER" in os.environ:  # it takes half a minute: one process has one for all
        (tmp_path_factory.getbasetemp().parent / "spark").touch(exist_ok=False)

    try:
        found = session.start("local[2]", name="tests", more=FEW_ROWS)
    except DependencyError as error:
        pytest.skip(str(error))
    yield found
    found.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups that take longest begin first."""
    items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What shares something costly or a name of the machine runs in one process."""
    return None if config.getvalue("dist") == "each" else Groups(config, log)
