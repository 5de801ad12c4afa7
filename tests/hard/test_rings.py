"""Captures over several files, and what the capture itself lost."""

import gzip
import itertools
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_OK, EXIT_OUTPUT, EXIT_PARTIAL
from dissector.dissection import Options
from dissector.lake.land import land_chain
from dissector.lake.reader import open_lake
from dissector.sources.dissect import dissect
from dissector.sources.files import Buffer, ChainReader
from dissector.sources.rings import chains
from tests.disks import disk_of
from tests.dissector.cli.conftest import Command
from tests.hard import source_cases as made
from tests.hard.odd import check_codes, content, same, whole
from tests.hard.tape import START_NS, Tables, capture, codes, commands, dissected
from tests.plain import rows_of_block
from tests.wire.captures import Record, interface, pcap_header, section

# -- B54


def ring(folder: Path, names: list[str], contents: list[bytes]) -> list[str]:
    paths = [folder / name for name in names]
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
    return [str(path) for path in paths]


def pieces() -> list[bytes]:
    return [content("B54", f"ring_{number}") for number in range(made.RING_FILES)]


RING_NAMES = ["tap.pcap1", "tap.pcap2", "tap.pcap0"]  # the ring went round: 1 is the oldest


def tables_of(paths: list[str]) -> list[Tables]:
    """The rows of each capture that the files make up."""
    found = []
    for chain in chains(paths).chains:
        tables: Tables = {}
        for part in dissect(chain, Options()):
            tables.setdefault(part.table, []).extend(rows_of_block(part))
        found.append(tables)
    return found


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_b54_ring_files_in_any_order_are_the_whole(tmp_path: Path, order: list[int]) -> None:
    paths = ring(tmp_path, RING_NAMES, pieces())
    (tables,) = tables_of([paths[number] for number in order])
    assert same(tables, whole())
    assert [row["file_name"] for row in tables["capture_files"]] == RING_NAMES


@pytest.mark.parametrize("name", ["copy.pcap", "tap.pcap1.gz", "tap (1).pcap1", "tap.pcap7"])
def test_b54_a_file_that_is_there_twice_counts_once(tmp_path: Path, name: str) -> None:
    paths = ring(tmp_path, RING_NAMES, pieces())
    data = pieces()[0]
    twice = gzip.compress(data) if name.endswith(".gz") else data
    paths += ring(tmp_path, [name], [twice])
    for mode_paths in (paths, paths[::-1]):
        (tables,) = tables_of(mode_paths)
        assert same(tables, whole())
    assert "read once" in chains(paths).repeated[0]


def test_b54_a_copy_made_while_the_file_grew_counts_once(tmp_path: Path) -> None:
    data = capture(made.records())
    for size in (len(data) // 2, 24 + 16 + len(made.records()[0].data) + 40):
        paths = ring(tmp_path, ["early.pcap", "night.pcap"], [data[:size], data])
        for order in (paths, paths[::-1]):
            (tables,) = tables_of(order)
            assert same(tables, whole())


def test_b54_a_file_still_being_written_is_landed_again_when_it_has_grown(tmp_path: Path) -> None:
    data, path, lake = capture(made.records()), tmp_path / "night.pcap", tmp_path / "lake"
    found = []
    for size in (len(data) // 3, len(data) // 2, len(data)):
        path.write_bytes(data[:size])
        (chain,) = chains([str(path)]).chains
        account, landed = land_chain(chain, lake, Options())
        found.append(landed.capture_id)
        assert account.is_partial == (size < len(data))
        with open_lake(lake) as opened:
            assert [each.capture_id for each in opened.captures] == [landed.capture_id]
    assert len(set(found)) == 3


def test_b54_damage_in_the_middle_file_leaves_the_others_whole(
    tmp_path: Path, command: Command
) -> None:
    parts = pieces()
    parts[1] = parts[1][:24] + bytes(len(parts[1]) - 24)
    paths = ring(tmp_path, RING_NAMES, parts)
    (tables,) = tables_of(paths)
    records = made.records()
    edges = [len(records) * n // 3 for n in range(4)]
    (expected,) = tables_of(
        ring(tmp_path, ["tap.cap0"], [capture(records[: edges[1]] + records[edges[2] :])])
    )
    assert [row["command"] for row in tables["frames"]] == commands(expected)
    assert "corrupt_record" in codes(tables)
    assert command("summary", *paths).code == EXIT_PARTIAL


def test_b54_files_of_a_chain_may_be_compressed_each_in_its_way(tmp_path: Path) -> None:
    packed = [compress(data) for compress, data in zip(
        (made.COMPRESSORS["gzip"], made.COMPRESSORS["zstd"], bytes), pieces(), strict=True
    )]  # fmt: skip
    names = ["tap.pcap1.gz", "tap.pcap2.zst", "tap.pcap3"]
    (tables,) = tables_of(ring(tmp_path, names, packed))
    assert same(tables, whole())
    assert [row["compressed"] for row in tables["capture_files"]] == ["gzip", "zstd", None]


@pytest.mark.parametrize("arguments", [["summary", "--json"], ["land", "--lake", "LAKE"]])
def test_b54_numbers_of_a_doubled_file_are_those_of_one(
    tmp_path: Path, command: Command, arguments: list[str]
) -> None:
    (tmp_path / "other").mkdir()
    data = capture(made.records())
    paths = ring(tmp_path, ["night.pcap", "other/night.pcap", "third.pcap"], [data] * 3)
    given = [tmp_path / "lake" if each == "LAKE" else each for each in arguments]
    ended = command(*given, *paths)
    alone = command(*given, paths[0])
    assert ended.code == EXIT_OK and ended.out == alone.out
    assert ended.err.count("read once") == 2


# -- B61


def test_b61_drops_of_the_interface_are_told(
    command: Command, written: Callable[..., Path]
) -> None:
    data = content("B61", "interface_drops")
    tables = dissected(data)
    assert tables["capture_files"][0]["dropped_by_interface"] == made.DROPPED
    (notice,) = [each for each in tables["notices"] if each["code"] == "interface_drops"]
    assert str(made.DROPPED) in notice["text"]
    (connection,) = tables["connections"]
    assert connection["gaps_to_broker"] == 1
    path = written(data)
    report = json.loads(command("summary", path, "--json").out)
    assert report["coverage"]["total"]["dropped_by_interface"] == made.DROPPED
    assert str(made.DROPPED) in command("summary", path).out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little; only root can make one."""
    with disk_of("16k", tmp_path) as folder:
        yield folder


@pytest.mark.root
def test_b61_a_full_disk_leaves_whole_captures_or_none(
    command: Command, written: Callable[..., Path], small_disk: Path
) -> None:
    lake = small_disk / "lake"
    ended = command("land", written(capture(made.records())), "--lake", lake)
    assert ended.code == EXIT_OUTPUT and "No space left" in ended.err
    assert not list(lake.glob("_manifest/*")) and not list(lake.glob("_tmp/*"))


def test_b61_a_slow_consumer_holds_the_reader_back(tmp_path: Path) -> None:
    """While nobody takes buffers, only the two that there are get filled."""
    path = tmp_path / "large.pcap"
    chance = random.Random(1).randbytes(1 << 16)
    path.write_bytes(capture(Record(START_NS + n, chance) for n in range(1000)))
    with ChainReader([str(path)]) as source:
        events = iter(source)
        next(events)
        buffer = next(events)
        assert isinstance(buffer, Buffer)
        for thread in threading.enumerate():
            if thread.name == "reading":
                thread.join(0.3)
        held = source.stored_bytes
        assert buffer.end - buffer.start <= held <= 2 * (buffer.end - buffer.start)
        assert held < os.path.getsize(path) / 2


def test_b61_a_reader_that_goes_ends_the_command_quietly(
    written: Callable[..., Path], tmp_path: Path
) -> None:
    many = b"".join(made.records()[0].data for _ in range(2))
    path = written(capture([*made.records()] + [Record(START_NS, many)] * 3))
    program = f"{sys.executable} -m dissector frames {path} -T jsonl | head -c 10"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert done.stderr == "" or "Traceback" not in done.stderr


# -- B62


def test_b62_a_capture_filter_that_let_nothing_pass_is_told(
    command: Command, written: Callable[..., Path]
) -> None:
    data = content("B62", "filter_without_packets")
    tables = dissected(data)
    assert codes(tables) == ["filter_matched_nothing"]
    assert "tagged" in tables["notices"][0]["text"]
    check_codes(command, written(data), EXIT_OK)
    assert "filter_matched_nothing" in command("summary", written(data), "--json").out


def test_b62_tagged_packets_are_read_without_any_filter() -> None:
    tables = dissected(content("B62", "filter_with_tags"))
    assert commands(tables) == commands(whole())
    assert tables["connections"][0]["vlan_ids"] == [7]
    assert tables["notices"] == []
    # An empty file without a filter is only empty.
    assert codes(dissected(section() + interface())) == []
    assert "frames" not in dissected(pcap_header())
