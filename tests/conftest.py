"""Fixtures that several test folders share: one Spark session for all of them."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from dissector.errors import DependencyError

# An example that compiles a kernel takes seconds, the next one microseconds: time says nothing.
settings.register_profile("dissector", deadline=None)
settings.load_profile("dissector")


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
