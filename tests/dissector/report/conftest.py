"""A lake of captures that belong together, and its report, made once."""

from collections import defaultdict

import pytest

from tests.dissector.report.apart import Apart, reported_apart


@pytest.fixture(scope="session")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Apart:
    return reported_apart(tmp_path_factory.mktemp("apart"))


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their plots, which take nine tenths of their time."""
    monkeypatch.setattr("dissector.report.figures.Figures.of", lambda *_: defaultdict(lambda: None))
