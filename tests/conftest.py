"""Fixtures that several test folders share, and which tests run in one process."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from dissector.errors import DependencyError

# An example that compiles a kernel takes seconds, the next one microseconds: time says nothing.
settings.register_profile("dissector", deadline=None)
settings.load_profile("dissector")


_THRESHOLDS = gc.get_threshold()


@pytest.fixture(autouse=True, scope="module")
def garbage() -> Iterator[None]:
    """The command looks for garbage rarely, as its process ends soon; this one does not."""
    gc.set_threshold(*_THRESHOLDS)
    yield
    gc.set_threshold(*_THRESHOLDS)
    gc.collect()


@pytest.fixture(autouse=True)
def kept_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tap that runs inside this process would take its rights away from all later tests."""
    monkeypatch.setattr("dissector.tap.privileges.drop_all_but_capturing", lambda: False)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark session; tests that want it are skipped where there is no Java."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from spark_jobs import session

    try:
        found = session.start("local[2]", name="tests")
    except DependencyError as error:
        pytest.skip(str(error))
    yield found
    found.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares something costly or a name of the machine runs in one process.

    Rows of a capture are kept by the file of tests; Spark's session is one; taps and servers of
    metrics make interfaces and ports.
    """
    root = Path(__file__).parent
    longest: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        parts = item.path.relative_to(root).parts
        if "spark" in getattr(item, "fixturenames", ()):
            group = "spark"
        else:
            group = "tap" if {"tap", "dashboards"} & set(parts) else "/".join(parts)
        item.add_marker(pytest.mark.xdist_group(group))
        # The longest begin first, or all wait for them at the end.
        (longest if parts[0] == "spark_jobs" else others).append(item)
    items[:] = longest + others
