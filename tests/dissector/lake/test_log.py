"""The log of a lake in a store: one order, read in few requests, whatever bundles there are."""

import errno
import random
from collections.abc import Sequence
from contextlib import suppress

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dissector.errors import InputError
from dissector.lake.log import Change, Log, decoded, encoded
from dissector.lake.manifest import NewerLake
from tests.dissector.lake.stored import ADDRESS, MemoryStore

IDS = [f"c-{number}" for number in range(6)]
CHANGES = st.builds(
    lambda removed, added: Change(removed, {name: f"{name} {salt}" for name, salt in added}),
    st.frozensets(st.sampled_from(IDS), max_size=2),
    st.lists(st.tuples(st.sampled_from(IDS), st.integers(0, 99)), max_size=2),
)


def log_of(store: MemoryStore) -> Log:
    return Log(store, "some/lake/", ADDRESS)


def fill(store: MemoryStore, changes: Sequence[Change]) -> Log:
    log = log_of(store)
    for number, change in enumerate(changes):
        assert log.append(number, encoded(change._replace(by=f"stage {number}")))
        log.bundle(number + 1)
    return log


def replayed(changes: Sequence[Change]) -> dict[str, str]:
    """What is there after some changes, one by one."""
    there: dict[str, str] = {}
    for change in changes:
        for name in change.removed:
            there.pop(name, None)
        there.update(change.added)
    return there


@given(st.lists(CHANGES, max_size=50), st.data())
def test_a_lake_is_what_its_entries_make_it_in_their_order(
    changes: list[Change], data: st.DataObject
) -> None:
    store = MemoryStore()
    log = fill(store, changes)
    start = data.draw(st.integers(0, len(changes)))
    until = data.draw(st.integers(start, len(changes)))
    for name in data.draw(st.sets(st.sampled_from(sorted(store.files) or [""]))):
        if name and "/_log/0/" not in name:
            if data.draw(st.booleans()):
                del store.files[name]  # a bundle that nobody wrote
            else:
                store.files[name] = b"damaged", 0.0
    assert log.read(0).end == len(changes)
    assert log.read(0).change.added == replayed(changes)
    first, then = log.read(0, start), log.read(start, until)
    assert (first.end, then.end) == (start, until)
    assert first.change.then(then.change).added == replayed(changes[:until])


def test_ten_thousand_captures_are_read_in_twenty_requests() -> None:
    store = MemoryStore()
    log = fill(store, [Change(frozenset(), {f"c-{n}": "{}"}) for n in range(10_000)])
    store.asked.clear()
    assert len(log.read(0).change.added) == 10_000
    assert len(store.asked) <= 20
    store.asked.clear()
    assert log.read(10_000).end == 10_000
    assert len(store.asked) <= 4


def test_one_number_is_one_entry() -> None:
    store = MemoryStore()
    ours, theirs = (encoded(Change(frozenset(), {"c-a": "{}"}, by=by)) for by in "ab")
    assert log_of(store).append(0, ours)
    assert not log_of(store).append(0, theirs)
    assert log_of(store).append(0, ours), "what is there may be ours, whose answer was lost"


@pytest.mark.parametrize("is_written", [False, True])
def test_a_lost_answer_is_looked_for(is_written: bool) -> None:
    store = MemoryStore()

    def fail(what: str, _: str) -> None:
        if what == "put_new":
            raise OSError(errno.EIO, "the store does not answer: 503")

    setattr(store, "after" if is_written else "before", fail)
    if is_written:
        assert log_of(store).append(0, b"x")
    else:
        with pytest.raises(OSError, match="503"):
            log_of(store).append(0, b"x")


def test_a_store_that_no_lake_can_lie_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, said in ((True, "knows no conditional writes"), (False, "that is not there")):
        monkeypatch.setattr(MemoryStore, "put_new", lambda *_, answer=answer: answer)
        with pytest.raises(OSError, match=said):
            log_of(MemoryStore()).append(0, b"x")


def test_damage_is_said() -> None:
    whole = encoded(Change(frozenset({"c-b"}), {"c-a": "{}"}, by="x"))
    assert decoded(whole, "log").added == {"c-a": "{}"}
    chance = random.Random(1)
    for size in range(len(whole)):
        with pytest.raises(InputError, match="log is damaged"):
            decoded(whole[:size], "log")
    for _ in range(2000):
        data = bytearray(whole)
        data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(InputError):
            decoded(bytes(data), "log")
    compress = zstandard.ZstdCompressor().compress
    for text in ("[]", "{}", "1", '{"version": 1}', "[" * 100_000,
                 '{"version": 1, "removed": ["../x"], "added": {}, "schema_version": 1, "by": ""}',
                 '{"version": 1, "removed": [], "added": {"a": 1}, "schema_version": 1, "by": ""}',
                 '{"version": 1, "removed": [], "added": [1], "schema_version": 1, "by": ""}',
                 '{"version": 1, "removed": 7, "added": {}, "schema_version": "x", "by": ""}',
                 ):  # fmt: skip
        with pytest.raises(InputError, match="log is damaged"):
            decoded(compress(text.encode()), "log")
    with pytest.raises(NewerLake, match="has version 2"):
        decoded(compress(b'{"version": 2}'), "log")
