"""A run reads the version of a file that it saw first."""

from collections.abc import Iterator

import pytest

from dissector.storage import stores
from dissector.storage.store import Entry
from dissector.storage.stores import entries_below, entry_of


class _Changing:
    """A store in which each question finds a newer version."""

    def __init__(self) -> None:
        self.version = 0

    def entry(self, name: str) -> Entry:
        self.version += 1
        return Entry(f"s3://b/{name}", 1, 0.0, str(self.version))

    def entries(self, folder: str) -> Iterator[Entry]:
        assert folder == "f"
        yield self.entry("f/y")
        yield self.entry("f/x")

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        raise AssertionError


def test_what_was_seen_stays_until_it_is_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _Changing()
    monkeypatch.setattr(stores, "store_of", lambda _: store)
    monkeypatch.setattr(stores, "_seen", {})
    assert entry_of("s3://b/f/x").version == entry_of("s3://b/f/x").version == "1"
    assert [entry.path for entry in entries_below("s3://b/f")] == ["s3://b/f/x", "s3://b/f/y"]
    assert entry_of("s3://b/f/x").version == "3"
    assert entry_of("s3://b/f/x", is_fresh=True).version == "4"


def test_memory_of_what_was_seen_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "store_of", lambda _: _Changing())
    monkeypatch.setattr(stores, "_seen", {})
    monkeypatch.setattr(stores, "MAX_SEEN_FILES", 10)
    for number in range(100):
        entry_of(f"s3://b/{number}")
        assert len(stores._seen) <= 11
