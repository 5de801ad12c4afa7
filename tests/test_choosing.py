"""A few samples show what all of them show."""

import pytest

from tests import choosing
from tests.choosing import covering

SHOWN = {"a": "xyz", "b": "vw", "c": "vwx", "d": "vw", "e": ""}


def test_the_fewest_and_cheapest_that_show_all() -> None:
    assert covering(SHOWN) == ["a", "b"]
    assert covering(SHOWN, lambda name: name in "bc") == ["a", "d"]
    assert covering({}) == covering({"e": ""}) == []


def test_all_are_looked_at_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "LOOKS_AT_ALL", True)
    assert covering(SHOWN) == [*"abcde"]
