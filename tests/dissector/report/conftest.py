"""A lake of captures that belong together, and its report, made once."""

import pytest

from tests.dissector.report.apart import Apart, reported_apart


@pytest.fixture(scope="session")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    return reported_apart(tmp_path_factory.mktemp("apart"))
