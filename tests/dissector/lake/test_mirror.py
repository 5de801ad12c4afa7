"""A lake in a store: what it does when others change it, the store fails, or a run is killed."""

import errno
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dissector.errors import InputError, OutputError, UsageError
from dissector.lake import manifests, mirror, retention
from dissector.lake.compact import compact
from dissector.lake.fetching import fetched
from dissector.lake.landing import INSTALLED, SHORTER, UNCHANGED
from dissector.lake.log import Change, encoded
from dissector.lake.reader import open_lake, remove, verify
from dissector.lake.retention import compact_crowded, keep
from dissector.schemas import SCHEMA_VERSION, TABLES
from tests.choosing import covering
from tests.dissector.lake.landed import content, land
from tests.dissector.lake.stored import ADDRESS, CHANGING, Dead, Machines, machines

__all__ = ["machines"]

# What changes a lake in which `old` and `ring` are, and what is in it then.
CHANGES: list[tuple[str, Callable[[Path], object], list[str]]] = [
    ("new", lambda lake: land(lake, "new", content(600)), ["new", "old", "ring"]),
    ("grown", lambda lake: land(lake, "ring", content(900)), ["old", "ring"]),
    ("other", lambda lake: land(lake, "old", content(400), options={"x": 1}), ["old", "ring"]),
    ("rm", lambda lake: remove(lake, ["c-old-*"]), ["ring"]),
    ("keep", lambda lake: keep(lake, 10**18), []),
    ("compact", lambda lake: compact(lake), ["old", "ring"]),
    ("crowded", lambda lake: compact_crowded(lake), ["old", "ring"]),
]  # fmt: skip
NAMES, RUNS, RESULTS = zip(*CHANGES, strict=True)

# What they do to the captures of the lake.
KINDS = {
    "new": "adds", "grown": "replaces", "other": "replaces", "rm": "removes", "keep": "removes",
    "compact": "groups", "crowded": "groups",
}  # fmt: skip
# Pairs of changes at once: each change first and last, each kind beside each.
PAIRS = covering({
    f"{one} {other}": {("one", one), ("other", other), (KINDS[one], KINDS[other])}
    for one in NAMES
    for other in NAMES
})  # fmt: skip


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Days are crowded with two landings."""
    monkeypatch.setattr(manifests, "MAX_DAY_LANDINGS", 1)
    monkeypatch.setattr(retention, "MAX_DAY_LANDINGS", 4)


def begin(machines: Machines) -> None:
    with machines.on("first") as lake:
        assert land(lake, "old", content(400)).outcome == INSTALLED
        assert land(lake, "ring", content(500)).outcome == INSTALLED


def rows_of(lake: Path) -> dict[str, list[object]]:
    with open_lake(lake) as opened:
        return {table: opened.table(table).to_pylist() for table in TABLES}


def test_it_holds_what_a_lake_on_a_disk_holds(machines: Machines, tmp_path: Path) -> None:
    begin(machines)
    for name, size in (("old", 400), ("ring", 500)):
        land(tmp_path / "disk", name, content(size))
    for name, run, result in CHANGES[:3] + CHANGES[5:]:
        with machines.on(f"for {name}") as lake:
            mirror.refresh(lake)
            run(lake)
        run(tmp_path / "disk")
        assert set(machines.seen(f"after {name}")) >= set(result)
        with machines.on("reader") as lake:
            assert rows_of(lake) == rows_of(tmp_path / "disk")
            with open_lake(lake) as stored, open_lake(tmp_path / "disk") as plain:
                digests = [capture.digest() for capture in plain.captures]
                assert [capture.digest() for capture in stored.captures] == digests


def test_nothing_is_fetched_twice(machines: Machines) -> None:
    begin(machines)
    with machines.on("reader") as lake:
        assert fetched(lake).bytes == 0
        rows_of(lake)
        with open_lake(lake) as opened:
            size = sum(part.bytes for capture in opened.captures for part in capture.files)
        assert fetched(lake).bytes == size
        rows_of(lake)
        assert fetched(lake).bytes == size
    with machines.on("first") as lake:  # which landed them
        rows_of(lake)
        assert fetched(lake).bytes == 0


def test_landing_again_changes_nothing(machines: Machines) -> None:
    begin(machines)
    before = dict(machines.store.files)
    with machines.on("second") as lake:
        mirror.refresh(lake)
        assert land(lake, "old", content(400)).outcome == UNCHANGED
        assert land(lake, "ring", content(300)).outcome == SHORTER
    assert machines.store.files == before


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_store_that_fails_at_any_request_leaves_all_or_nothing(
    machines: Machines, name: str, is_dead: bool
) -> None:
    """It fails before or after what was asked is done, once or for good."""
    run, result = RUNS[NAMES.index(name)], RESULTS[NAMES.index(name)]
    begin(machines)
    start = dict(machines.store.files)
    steps = _requests_of(machines, run)
    moments = [("before", step) for step in steps]
    moments += [("after", step) for step, kind in steps.items() if kind in CHANGING]
    seen = set()
    for moment, step in moments:
        machines.store.files = dict(start)
        machine = f"{moment} {step}"
        with machines.on(machine) as lake:
            mirror.refresh(lake)
            setattr(machines.store, moment, _Failing(step, is_dead=is_dead))
            with suppress(OSError, InputError, OutputError, UsageError, Dead):
                run(lake)
            setattr(machines.store, moment, lambda what, name: None)
        there = sorted(machines.seen("reader"))
        assert sorted(machines.seen(machine)) == there
        assert there in (["old", "ring"], sorted(result))
        seen.add(tuple(there))
        machines.tidied()
        assert sorted(machines.seen("reader")) == there
        with machines.on(machine) as lake:
            mirror.refresh(lake)
            assert land(lake, "ring", content(1000)).outcome == INSTALLED
            assert not (lake / "_tmp").exists()
    assert seen == {("old", "ring"), tuple(sorted(result))}


def _requests_of(machines: Machines, run: Callable[[Path], object]) -> dict[int, str]:
    """The kinds of the requests of a run by their numbers, of those of many files the first and the
    last."""
    before = dict(machines.store.files)
    with machines.on("counter") as lake:
        mirror.refresh(lake)
        machines.store.asked.clear()
        run(lake)
    kinds = [asked.partition(" ")[0] for asked in machines.store.asked]
    machines.store.files = before
    return {
        number: kind
        for number, kind in enumerate(kinds, 1)
        if kind not in ("upload", "read") or kinds[number - 2 : number + 1] != [kind] * 3
    }


class _Failing:
    """Fails at a request; of a run that is dead every later one fails, too."""

    def __init__(self, step: int, *, is_dead: bool) -> None:
        self._left = step
        self._is_dead = is_dead

    def __call__(self, what: str, name: str) -> None:
        self._left -= 1
        if self._left == 0 or (self._is_dead and self._left < 0):
            if self._is_dead:
                raise Dead
            raise OSError(errno.EIO, "the store does not answer: 503 Slow Down")


@pytest.mark.parametrize("pair", PAIRS)
def test_two_that_change_it_at_once_do_so_one_after_the_other(
    machines: Machines, tmp_path: Path, pair: str
) -> None:
    """The other one is through between what the one decided by and its commit."""
    name, other = pair.split()
    begin(machines)
    is_through = False
    runs = RUNS[NAMES.index(other)], RUNS[NAMES.index(name)]

    def overtake(what: str, _: str) -> None:
        nonlocal is_through
        if what == "put_new" and not is_through:
            is_through = True
            with machines.on("other") as lake:
                mirror.refresh(lake)
                runs[0](lake)

    disk = tmp_path / "disk"
    land(disk, "old", content(400))
    land(disk, "ring", content(500))
    with machines.on("one") as lake, suppress(UsageError):
        mirror.refresh(lake)
        machines.store.before = overtake
        runs[1](lake)
    machines.store.before = lambda what, name: None
    for run in runs:
        with suppress(UsageError):  # nothing of it is left
            run(disk)
    assert is_through
    with open_lake(disk) as opened:
        names = [inside.base_name for c in opened.captures for inside in c.captures()]
    assert sorted(machines.seen("reader")) == sorted(names)
    machines.tidied()
    assert sorted(machines.seen("later")) == sorted(names)


def test_two_landers_of_one_capture_leave_it_once(machines: Machines) -> None:
    is_through = False
    outcomes = []

    def overtake(what: str, _: str) -> None:
        nonlocal is_through
        if what == "put_new" and not is_through:
            is_through = True
            with machines.on("other") as lake:
                outcomes.append(land(lake, "a", content(400)).outcome)

    machines.store.before = overtake
    with machines.on("one") as lake:
        outcomes.append(land(lake, "a", content(400)).outcome)
    assert outcomes == [INSTALLED, UNCHANGED]
    assert machines.seen("reader") == ["a"]
    assert machines.tidied() == set()  # what was written in vain is gone already


def test_a_reader_goes_on_while_what_it_reads_is_removed(machines: Machines) -> None:
    begin(machines)
    with machines.on("reader") as lake, open_lake(lake) as opened:
        with machines.on("other") as there:
            mirror.refresh(there)
            remove(there, ["*"])
            assert mirror.tidy(there) == mirror.Tidied(0, 0, 2 * len(TABLES))
        assert opened.table("frames").num_rows > 0
        assert len(machines.tidied()) == 2 * len(TABLES)
        with pytest.raises(InputError, match="was removed meanwhile, run it again"):
            opened.table("acks")
    assert machines.seen("reader") == []


def test_a_listing_that_is_late_takes_nothing_away(machines: Machines) -> None:
    begin(machines)
    for name, (data, _) in list(machines.store.files.items()):
        machines.store.files[name] = data, 0.0  # of long ago
    with machines.on("other") as there:
        mirror.refresh(there)
        remove(there, ["c-old-*"])
        land(there, "new", content(700))
        for late in (lambda name: "/_log/" in name, lambda name: name.endswith("2.zst")):
            machines.store.late = late
            mirror.tidy(there)
    assert sorted(machines.seen("reader")) == ["new", "ring"]


def test_damaged_files_are_found_and_not_read(machines: Machines) -> None:
    begin(machines)
    (name,) = (name for name in machines.store.files if "/frames/" in name and "c-old-" in name)
    data, changed_s = machines.store.files[name]
    machines.store.files[name] = data[:-1] + b"x", changed_s
    with machines.on("reader") as lake, open_lake(lake) as opened:
        (problem,) = verify(opened)
        assert "is not what its manifest says" in problem.text
        with pytest.raises(InputError, match="is not what its manifest says"):
            opened.table("frames")


def test_another_lake_at_the_same_address_is_not_taken_for_the_first(machines: Machines) -> None:
    begin(machines)
    assert sorted(machines.seen("reader")) == ["old", "ring"]
    machines.store.files.clear()
    assert machines.seen("reader") == []
    for size in (10, 20, 30):
        with machines.on("second") as lake:
            mirror.refresh(lake)
            land(lake, f"n{size}", content(size))
    assert sorted(machines.seen("reader")) == ["n10", "n20", "n30"]


def test_a_newer_lake_is_refused(machines: Machines) -> None:
    begin(machines)
    newer = Change(frozenset(), {}, SCHEMA_VERSION + 1, "x")
    machines.store.files["some/lake/_log/0/000000000002.zst"] = encoded(newer), 0.0
    with machines.on("second") as lake:
        mirror.refresh(lake)
        with pytest.raises(InputError, match=f"{ADDRESS} has schema version"):
            land(lake, "new", content(10))


def test_whether_it_may_be_changed_is_asked_without_changing_it(machines: Machines) -> None:
    begin(machines)

    def refuse(what: str, _: str) -> None:
        if what in ("put_new", "upload", "delete"):
            raise PermissionError(errno.EACCES, "the store refuses access")

    before = dict(machines.store.files)
    for name in ("first", "other"):
        with machines.on(name) as lake:
            mirror.refresh(lake)
            assert mirror.may_change(lake)
            machines.store.before = refuse
            assert not mirror.may_change(lake)
            machines.store.before = lambda what, name: None
    assert machines.store.files == before


def test_copies_are_kept_within_a_bound(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(machines)
    monkeypatch.setattr(mirror.limits, "STORED_LAKE_BYTES", 20_000)
    with machines.on("reader") as lake:
        rows_of(lake)
        copies = list(lake.rglob("*.parquet"))
        assert 0 < sum(path.stat().st_size for path in copies) <= 20_000
        rows_of(lake)


def test_a_folder_that_names_a_store_is_not_believed(machines: Machines, tmp_path: Path) -> None:
    begin(machines)
    stranger = tmp_path / "lakes" / "x"
    stranger.mkdir(parents=True)
    (stranger / "_store").write_text(ADDRESS)
    assert mirror.of(stranger) is None and mirror.shown(stranger) == str(stranger)


def test_a_folder_of_another_boot_is_read_anew(machines: Machines) -> None:
    begin(machines)
    with machines.on("reader") as lake:
        rows_of(lake)
        for path in (lake / "_manifest").iterdir():
            path.write_bytes(b"")  # as after a power failure
        head = json.loads((lake / "_head").read_text())
        (lake / "_head").write_text(json.dumps({**head, "boot": "another"}))
    assert sorted(machines.seen("reader")) == ["old", "ring"]
