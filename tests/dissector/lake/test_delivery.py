"""What is complete on this machine and waits for a store gets there once, whoever is killed."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from dissector.dissection import Options
from dissector.errors import InputError
from dissector.lake import delivery, install, manifests, mirror
from dissector.lake.compact import compact
from dissector.lake.land import land_chains
from dissector.lake.landing import INSTALLED, Landing
from dissector.lake.locks import hold
from dissector.lake.log import Change, encoded
from dissector.lake.manifest import tap_capture_id
from dissector.lake.reader import open_lake
from dissector.schemas import SCHEMA_VERSION, TABLES
from tests.dissector.lake.landed import blocks_of, content, land
from tests.dissector.lake.stored import CHANGING, Dead, Machines, machines

__all__ = ["machines"]

NAMES = ["eth0", "eth0"]


def leave(lake: Path, number: int) -> None:
    """Complete a rotation of a tap."""
    with Landing(lake, "eth0", tap_capture_id("eth0", 77, number)) as landing:
        for block in blocks_of(content(400 + number)):
            landing.write(block)
        assert landing.commit({}).outcome == INSTALLED


def silence(what: str, name: str) -> None:
    raise OSError(errno.EIO, "the store does not answer: 503 Slow Down")


def listen(what: str, name: str) -> None:
    """The store answers."""


def test_it_waits_while_the_store_is_silent(machines: Machines) -> None:
    machines.store.before = silence
    with machines.on("tap") as lake:
        for number in range(2):
            leave(lake, number)
        with pytest.raises(OSError, match="503"):
            delivery.deliver(lake)
        with pytest.raises(InputError, match=r"s3://bucket/some/lake: .*503"), open_lake(lake):
            pass
        assert len(install.ready_stages(lake)) == 2 and machines.store.files == {}
        machines.store.before = listen
        assert delivery.deliver(lake) == []
        assert machines.seen("reader") == NAMES
        assert not (lake / "_tmp").exists() and machines.tidied() == set()
        machines.store.asked.clear()
        with open_lake(lake) as opened:
            assert opened.table("frames").num_rows > 0
        assert not any(asked.startswith("read") for asked in machines.store.asked), "it is here"


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_store_that_fails_at_any_request_has_it_once_in_the_end(
    machines: Machines, moment: str, is_dead: bool
) -> None:
    with machines.on("before") as lake:
        leave(lake, 0)
        delivery.deliver(lake)
    start = dict(machines.store.files)
    step, failed = 0, True
    while failed:
        step, failed = step + 1, False
        machines.store.files = dict(start)
        left = step

        def fail(what: str, name: str) -> None:
            nonlocal left, failed
            left -= moment == "before" or what in CHANGING
            if left == 0 or (is_dead and left < 0):
                failed = True
                raise Dead if is_dead else OSError(errno.EIO, "503")

        with machines.on(f"tap {step}") as lake:
            mirror.refresh(lake)
            leave(lake, step)
            setattr(machines.store, moment, fail)
            with suppress(OSError, Dead):
                delivery.deliver(lake)
            setattr(machines.store, moment, listen)
            assert machines.seen(f"first {step}") in (NAMES[:1], NAMES)
            assert delivery.deliver(lake) == []
            assert machines.seen(f"then {step}") == NAMES
            assert not (lake / "_tmp").exists()
        machines.tidied()
        assert machines.seen(f"later {step}") == NAMES
    assert step > len(TABLES)


def test_who_lands_or_reads_here_delivers_it(machines: Machines) -> None:
    with machines.on("tap") as lake:
        leave(lake, 0)
        assert list(land_chains([], lake, Options())) == []
        assert machines.seen("reader") == NAMES[:1]
        leave(lake, 1)
        with open_lake(lake) as opened:
            assert len(opened.captures) == 2
    assert machines.seen("reader") == NAMES


def test_what_is_there_already_or_in_a_group_is_not_put_there_again(machines: Machines) -> None:
    """The answer to its entry was lost, or whoever did it was killed before the stage went."""
    with machines.on("tap") as lake:
        for number in range(2):
            leave(lake, number)
            delivery.deliver(lake)
        leave(lake, 0)
        machines.store.asked.clear()
        delivery.deliver(lake)
        with machines.on("other") as there:
            mirror.refresh(there)
            compact(there)
        leave(lake, 1)
        delivery.deliver(lake)
        assert not (lake / "_tmp").exists()
        uploads = [each for each in machines.store.asked if "landing=c-eth0" in each]
        assert not any(each.startswith("upload") for each in uploads)
    assert machines.seen("reader") == NAMES


def test_an_entry_that_comes_late_is_the_same_landing(machines: Machines) -> None:
    """The first attempt's entry is written while the second one is about to write its own."""
    late: list[tuple[str, bytes]] = []
    put_new = machines.store.put_new

    def lose(name: str, data: bytes) -> bool:
        late.append((name, data))
        raise OSError(errno.EIO, "time-out")

    def come(name: str, data: bytes) -> bool:
        for each in late:
            put_new(*each)
        late.clear()
        return put_new(name, data)

    with machines.on("tap") as lake, pytest.MonkeyPatch.context() as patch:
        leave(lake, 0)
        patch.setattr(machines.store, "put_new", lose)
        with pytest.raises(OSError, match="is not known yet"):
            delivery.deliver(lake)
        patch.setattr(machines.store, "put_new", come)
        assert delivery.deliver(lake) == []
    assert machines.seen("reader") == NAMES[:1]
    assert machines.tidied() == set()


def test_who_may_only_read_reads_what_is_there(machines: Machines) -> None:
    def refuse(what: str, name: str) -> None:
        if what in ("put_new", "upload", "delete"):
            raise PermissionError(errno.EACCES, "the store refuses access")

    with machines.on("tap") as lake:
        leave(lake, 0)
        with open_lake(lake) as opened:
            assert len(opened.captures) == 1 and opened.waiting() == 0
        leave(lake, 1)
        machines.store.before = refuse
        with open_lake(lake) as opened:
            assert len(opened.captures) == 1 and opened.waiting() == 1
        machines.store.before = listen


def test_what_somebody_is_at_is_left_to_him(machines: Machines) -> None:
    with machines.on("tap") as lake:
        leave(lake, 0)
        (ready,) = install.ready_stages(lake)
        lock = hold(ready / install.WRITER_LOCK)
        assert lock is not None and delivery.deliver(lake) == [] and ready.exists()
        os.close(lock)
        delivery.deliver(lake)
    assert machines.seen("reader") == NAMES[:1]


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest", "text"])
def test_what_is_damaged_is_said_and_holds_up_nothing(machines: Machines, damage: str) -> None:
    with machines.on("tap") as lake:
        for number in range(2):
            leave(lake, number)
        ready = install.ready_stages(lake)[0]
        file = next(ready.glob("frames/*.parquet"))
        manifest = ready / install.MANIFEST
        if damage == "cut":
            file.write_bytes(file.read_bytes()[:-1])
        elif damage == "gone":
            file.unlink()
        else:
            manifest.write_bytes(b"{" if damage == "manifest" else b"\xff")
        (said,) = delivery.deliver(lake)
        assert said == f"{ready} waits for the store and is damaged: remove it"
        assert machines.seen("reader") == NAMES[:1]
        with open_lake(lake) as opened:
            assert len(opened.captures) == 1
        if damage == "manifest":
            manifest.unlink()  # as in a deletion that was cut short
            assert delivery.deliver(lake) == [] and not ready.exists()


def test_a_newer_lake_is_refused(machines: Machines) -> None:
    with machines.on("tap") as lake:
        leave(lake, 0)
        newer = Change(frozenset(), {}, SCHEMA_VERSION + 1, "x")
        machines.store.files["some/lake/_log/0/000000000000.zst"] = encoded(newer), 0.0
        with pytest.raises(InputError, match="has schema version"):
            delivery.deliver(lake)
        assert len(install.ready_stages(lake)) == 1


def test_a_lake_of_this_machine_waits_for_nothing(tmp_path: Path) -> None:
    land(tmp_path, "a", content(10))
    assert delivery.deliver(tmp_path) == [] and manifests.crowded_days(tmp_path) == []
