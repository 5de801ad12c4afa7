"""Landing: one capture or many, in one process or several, all or nothing, interrupted."""

import builtins
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dissector.blocks import TableBlock
from dissector.dissection import Options
from dissector.errors import InputError, OutputError
from dissector.lake import land
from dissector.lake.land import Outcome, land_chain, land_chains, land_strictly
from dissector.lake.reader import open_lake, verify
from dissector.sources.rings import Chain, chains

SAMPLES = Path(__file__).resolve().parents[3] / "captures" / "pulsar-apache"
NACKS = SAMPLES / "java-j12_nack.pcap"
ABORTS = SAMPLES / "java-j61_txn_abort.pcap"
OPTIONS = Options()


def chains_of(*paths: Path) -> list[Chain]:
    return chains([str(path) for path in paths], "none").chains


def files_of(lake: Path) -> dict[str, str]:
    """Every file of a lake with the digest of its bytes, the lock left out."""
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(lake.rglob("*"))
        if path.is_file() and not path.name.startswith("_lock")
    }


def captures_of(lake: Path) -> list[str]:
    with open_lake(lake) as opened:
        assert not verify(opened)
        return [capture.capture_id for capture in opened.captures]


def cut(path: Path, folder: Path) -> Path:
    """A copy without its last bytes."""
    target = folder / f"cut-{path.name}"
    target.write_bytes(path.read_bytes()[:-7])
    return target


def test_a_landing_that_was_overtaken_by_its_own_beginning_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, data = tmp_path / "ring.pcap", NACKS.read_bytes()
    whole.write_bytes(data)
    (chain,) = chains_of(whole)
    write, calls = land._write, []

    def late(*arguments: Any) -> Any:
        account = write(*arguments)
        calls.append(account)
        if len(calls) == 1:  # another process lands what the file was a moment ago
            whole.write_bytes(data[: len(data) // 2])
            land_chain(chain, tmp_path / "lake", OPTIONS)
            whole.write_bytes(data)
        return account

    monkeypatch.setattr(land, "_write", late)
    _, landed = land_chain(chain, tmp_path / "lake", OPTIONS)
    assert len(calls) == 3 and len(landed.replaced) == 1
    assert captures_of(tmp_path / "lake") == [landed.capture_id]


def test_what_a_capture_costs_does_not_grow_with_the_captures_of_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By files opened and synced; each lands in the same lake, behind those before it."""
    counts = [0]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            counts[-1] += 1
            return function(*arguments, **named)

        return called

    for owner, name in ((builtins, "open"), (io, "open"), (os, "open"), (os, "fsync")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    for number in range(12):
        copy = tmp_path / f"copy-{number}.pcap"
        copy.write_bytes(NACKS.read_bytes()[: -100 * number or None])
        (chain,) = chains_of(copy)
        counts.append(0)
        land_chain(chain, tmp_path / "lake", OPTIONS)
    assert max(counts[6:]) <= counts[3] < 150


def test_a_capture_is_landed_whole_and_counted(tmp_path: Path) -> None:
    (chain,) = chains_of(NACKS)
    account, landed = land_chain(chain, tmp_path, OPTIONS, cluster="east")
    digest = hashlib.sha256(NACKS.read_bytes()).hexdigest()
    assert landed.capture_id == f"c-java-j12_nack-pcap-{digest[:12]}"
    assert landed.outcome == "installed"
    assert captures_of(tmp_path) == [landed.capture_id]
    with open_lake(tmp_path) as lake:
        assert lake.table("frames").num_rows == landed.rows["frames"] == account.rows["frames"]
        (file,) = lake.table("capture_files").to_pylist()
    assert file["packets"] == account.packets == 97
    assert file["cluster"] == "east" and file["sha256"] == digest


def test_a_capture_that_is_cut_on_purpose_stands_beside_the_whole_one(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    growing = tmp_path / "ring.pcap"
    growing.write_bytes(NACKS.read_bytes()[:3000])
    (chain,) = chains_of(growing)
    wanted = [OPTIONS, *(Options(max_packets=count) for count in (5, 50, 5000))]
    first = [land_chain(chain, lake, options)[1] for options in wanted]
    ids = [landed.capture_id for landed in first]
    assert all(landed.replaced == () for landed in first) and captures_of(lake) == sorted(ids)
    # The file grows: of those that are longer now, each takes the place of its own beginning.
    growing.write_bytes(NACKS.read_bytes())
    again = [land_chain(chain, lake, options)[1] for options in reversed(wanted)]
    assert [landed.outcome for landed in again] == ["installed", "installed", "unchanged",
                                                    "installed"]  # fmt: skip
    assert [landed.replaced for landed in again] == [(ids[3],), (ids[2],), (), (ids[0],)]
    assert [landed.rows["frames"] > 0 for landed in again] == [True, True, True, True]
    assert captures_of(lake) == sorted(landed.capture_id for landed in again)
    land_chain(chain, lake, Options(max_packets=5000))
    assert captures_of(lake) == sorted(landed.capture_id for landed in again)


def test_landing_again_changes_no_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        list(land_chains(chains_of(NACKS, ABORTS), tmp_path / name, OPTIONS))
    before = files_of(tmp_path / "one")
    assert before == files_of(tmp_path / "two")
    outcomes = list(land_chains(chains_of(ABORTS, NACKS), tmp_path / "one", OPTIONS))
    assert [found.landed.outcome for found in outcomes if found.landed] == ["unchanged"] * 2
    assert files_of(tmp_path / "one") == before


def test_several_processes_give_the_same_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(land, "_WORTH_A_PROCESS", 1)
    missing = tmp_path / "missing.pcap"
    gone = Chain((str(missing),), "missing-pcap")
    told: list[int] = []
    paths = chains_of(NACKS, ABORTS)
    found = list(
        land_chains([*paths, gone], tmp_path / "many", OPTIONS, jobs=2, progress=told.append)
    )
    monkeypatch.undo()
    list(land_chains(paths, tmp_path / "one", OPTIONS))
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert sorted(outcome.number for outcome in found) == [0, 1, 2]
    assert [outcome.number for outcome in found if outcome.error] == [2]
    assert told[-1] == sum(chain.stored_bytes for chain in paths)


@pytest.mark.parametrize(
    ("sizes", "jobs", "processes"),
    [
        ([1 << 30], 8, 0),
        ([1 << 30] * 3, 1, 0),
        ([1 << 30] * 3, 2, 2),
        ([1 << 30] * 3, 8, 3),
        ([128 << 10] * 114, 2, 0),
        ([128 << 10] * 1000, 64, 16),
        ([1 << 30, 1], 2, 0),
    ],
)
def test_a_process_has_more_to_do_than_it_costs(
    tmp_path: Path, sizes: list[int], jobs: int, processes: int
) -> None:
    chains = []
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.pcap"
        with path.open("wb") as file:
            file.truncate(size)
        chains.append(Chain((str(path),), path.name))
    assert land.processes_for(chains, jobs) == processes
    assert land.processes_for([*chains, Chain(("-",), "stdin")], jobs) == 0


def test_what_a_lake_has_already_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = chains_of(NACKS, ABORTS)
    first = [*land_chains(paths, tmp_path / "lake", OPTIONS)]
    before = files_of(tmp_path / "lake")
    asked: list[int] = []
    monkeypatch.setattr(land, "processes_for", lambda chains, _: asked.append(len(chains)) or 2)
    monkeypatch.setattr(land, "_land_in_processes", lambda tasks, *_: iter(tasks))
    gone = Chain((str(tmp_path / "missing.pcap"),), "missing-pcap")
    *known, left = land_chains([*paths, gone], tmp_path / "lake", OPTIONS, jobs=2)
    assert asked == [3, 1] and left.number == 2
    assert [(each.number, each.landed and each.landed.capture_id) for each in known] == [
        (each.number, each.landed and each.landed.capture_id) for each in first
    ]
    assert files_of(tmp_path / "lake") == before


def test_what_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    gone = Chain((str(tmp_path / "missing.pcap"),), "missing-pcap")
    found = list(land_chains([gone, *chains_of(NACKS)], tmp_path / "lake", OPTIONS))
    assert isinstance(found[0].error, InputError) and found[0].landed is None
    assert found[1].landed is not None and found[1].error is None
    assert len(captures_of(tmp_path / "lake")) == 1
    assert not (tmp_path / "lake" / "_tmp").exists()


def test_strictly_is_all_or_nothing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    whole, part = chains_of(NACKS), chains_of(cut(ABORTS, tmp_path))
    with pytest.raises(InputError, match="--strict: nothing landed"):
        land_strictly([*whole, *part], lake, OPTIONS)
    assert not list(lake.rglob("*.parquet")) and not (lake / "_tmp").exists()
    found = land_strictly(whole, lake, OPTIONS)
    assert len(captures_of(lake)) == len(found) == 1
    list(land_chains(whole, tmp_path / "other", OPTIONS))
    assert files_of(lake) == files_of(tmp_path / "other")


def test_a_cut_tail_is_told_and_the_rest_is_landed(tmp_path: Path) -> None:
    (chain,) = chains_of(cut(NACKS, tmp_path))
    account, landed = land_chain(chain, tmp_path / "lake", OPTIONS)
    assert account.is_partial and account.packets == 96
    assert landed.rows["frames"] > 0 and landed.rows["notices"] > 0


def stopping(error: BaseException) -> Any:
    """A dissection that gives some rows and then ends with an error."""

    def dissect(chain: Chain, *_: Any, **__: Any) -> Iterator[TableBlock]:
        yield TableBlock("frames", 0, {})
        raise error

    return dissect


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), OSError(28, "No space left on device")],
    ids=["interrupt", "memory", "disk"],
)  # fmt: skip
def test_an_unfinished_capture_leaves_nothing_and_complete_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    list(land_chains(chains_of(NACKS), tmp_path, OPTIONS))
    before = files_of(tmp_path)
    monkeypatch.setattr(land, "dissect", stopping(error))
    with pytest.raises(type(error)):
        list(land_chains(chains_of(ABORTS), tmp_path, OPTIONS))
    assert files_of(tmp_path) == before
    assert len(captures_of(tmp_path)) == 1


def test_a_caller_that_stops_keeps_what_is_complete(tmp_path: Path) -> None:
    running = land_chains(chains_of(NACKS, ABORTS), tmp_path, OPTIONS)
    first = next(running)
    running.close()
    assert isinstance(first, Outcome) and first.landed is not None
    assert captures_of(tmp_path) == [first.landed.capture_id]


def test_a_caller_that_stops_ends_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(land, "_WORTH_A_PROCESS", 1)
    copies = []
    for number in range(6):
        copies.append(tmp_path / f"copy-{number}.pcap")
        shutil.copy(NACKS, copies[-1])
    running = land_chains(chains_of(*copies), tmp_path / "lake", OPTIONS, jobs=2)
    next(running)
    running.close()
    import multiprocessing

    assert not multiprocessing.active_children()
    assert 1 <= len(captures_of(tmp_path / "lake")) <= 6
    assert not (tmp_path / "lake" / "_tmp").exists()


def test_a_lake_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OutputError):
        list(land_chains(chains_of(NACKS), blocked / "lake", OPTIONS))
