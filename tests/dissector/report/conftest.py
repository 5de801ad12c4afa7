"""A lake of captures that belong together, and its report, made once."""

import pytest

from tests.dissector.joining.remembering import Remembering
from tests.dissector.report.apart import Apart, reported_apart

CLOSE = "dissector.report.aggregation_cache.close_group"


@pytest.fixture(scope="session")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Remembering:
    return Remembering(tmp_path_factory.mktemp("joined"))


@pytest.fixture(scope="session")
def apart(tmp_path_factory: pytest.TempPathFactory, remembering: Remembering) -> Apart:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CLOSE, remembering.close)
        return reported_apart(tmp_path_factory.mktemp("apart"))


@pytest.fixture
def joined_once(remembering: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports do not join again what any test joined: a half of the time of small ones."""
    monkeypatch.setattr(CLOSE, remembering.close)
