"""One capture is one: whole, in pieces, as ring files, from a pipe, landed again."""

import hashlib
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dissector.dissection import Dissection, Options
from dissector.lake.land import land_chain
from dissector.lake.reader import open_lake, verify
from dissector.sources.rings import Chain, chains
from tests.dissector.observed import (
    CAPTURES,
    TABLES,
    Case,
    Tables,
    few_cases,
    name_of,
    tables_of,
)
from tests.dissector.test_manifests import SPOILT
from tests.plain import rows_of_block

# One of each kind: batches, chunks, reconnects, unloads, damage of all sorts, odd formats.
SEVERAL = (
    "pulsar/cpp-s14_reconnect.pcap",
    "pulsar/cpp-s25_midstream.pcap",
    "pulsar/fake-f07_chunking64k.pcap",
    "pulsar/fake-f08_badcrc.pcap",
    "pulsar/tap-caploss.pcap",
    "pulsar/tap-duplicated.pcap",
    "pulsar/var-any-sll1.pcap",
    "pulsar/var-nano.pcap",
    "pulsar/var-snaplen96.pcap",
    "pulsar-apache/cpp-s08_nack-proxy-any.pcap",
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/java-j34_http_lookup.pcap",
    "pulsar-apache/java-j61_txn_abort.pcap",
    "pulsar-apache/java-j74_corrupt.pcap",
    "pulsar-apache/java-j80_geo-link.pcap",
    "pulsar-apache/mut-loss1-java-j24_unload.pcap",
    "pulsar-apache/mut-tsjitter-java-j60_txn_commit.pcap",
)
each_of_several = pytest.mark.parametrize("name", SEVERAL)
_HEADER_BYTES = 24


def differences(found: Tables, whole: Tables) -> list[str]:
    """Tables that are not the same, capture_files apart."""
    return [name for name in TABLES if name != "capture_files" and found[name] != whole[name]]


def records_of(data: bytes) -> Iterator[bytes]:
    """The records of a pcap file written by a little-endian machine."""
    at = _HEADER_BYTES
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at + 8)
        yield data[at : at + 16 + size]
        at += 16 + size


def ring_files(source: Path, folder: Path, count: int) -> list[str]:
    """A capture as so many files with about as many packets each."""
    data = source.read_bytes()
    records = list(records_of(data))
    edges = [len(records) * number // count for number in range(count + 1)]
    paths = []
    for number in range(count):
        path = folder / f"tap.pcap{number:02d}"
        part = b"".join(records[edges[number] : edges[number + 1]])
        path.write_bytes(data[:_HEADER_BYTES] + part)
        paths.append(str(path))
    return paths


@each_of_several
def test_ten_files_are_the_whole(name, tmp_path):
    whole = tables_of(str(CAPTURES / name))
    parts = tables_of(*ring_files(CAPTURES / name, tmp_path, 10))
    assert differences(parts, whole) == []
    assert [row["file_index"] for row in parts["capture_files"]] == list(range(10))
    assert sum(row["packets"] for row in parts["capture_files"]) == sum(
        row["packets"] for row in whole["capture_files"]
    )
    first = [row["first_packet"] for row in parts["capture_files"]]
    counts = [row["packets"] for row in parts["capture_files"]]
    assert first == [1 + sum(counts[:place]) for place in range(10)]


def test_ring_files_are_put_in_order_by_their_times():
    """tcpdump -C 1 -W 4 after its ring has gone round: .pcap3 is the oldest, .pcap2 the newest."""
    paths = [CAPTURES / "pulsar" / f"ring.pcap{number}" for number in range(4)]
    (chain,) = chains([str(path) for path in paths]).chains
    assert [Path(path).name[-1] for path in chain.files] == ["3", "0", "1", "2"]
    ring = tables_of(*chain.files)
    assert len(ring["connections"]) == 1
    apart = [tables_of(str(path)) for path in paths]
    for name in ("SEND", "SEND_RECEIPT", "MESSAGE", "ACK"):
        count = sum(row["command"] == name for row in ring["frames"])
        assert count >= sum(row["command"] == name for each in apart for row in each["frames"])
    # Only the first SEND whose receipt is there was before the ring began; boundaries lose nothing.
    publishes = [row for row in ring["exchanges"] if row["kind"] == "publish"]
    outcomes = [row["outcome"] for row in publishes]
    assert outcomes.count("orphan_response") == 1 and set(outcomes) == {"ok", "orphan_response"}


@contextmanager
def standard_input(data: bytes) -> Iterator[None]:
    """Bytes on file 0, as a program before a pipe writes them: a few at a time."""
    before = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            for at in range(0, len(data), 4093):
                pipe.write(data[at : at + 4093])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        writer.join()
        os.dup2(before, 0)
        os.close(before)


@each_of_several
def test_a_pipe_is_the_same(name):
    whole = tables_of(str(CAPTURES / name))
    with standard_input((CAPTURES / name).read_bytes()):
        found = tables_of.__wrapped__("-")
    assert differences(found, whole) == []
    (file,) = found["capture_files"]
    (told,) = whole["capture_files"]
    assert file.pop("file_name") == "stdin" and told["file_name"] == Path(name).name
    assert all(told[column] == value for column, value in file.items())


# In the smallest pieces all of them come, in others those that show something new.
PIECES = [(name, 61) for name in SEVERAL] + [
    (name_of(case), step)
    for case in few_cases([Case(*name.split("/")) for name in SEVERAL])
    for step in (1499, 65_537)
]


@pytest.mark.parametrize(("name", "step"), PIECES)
def test_bytes_may_come_in_pieces_of_any_size(name, step):
    if step < 1000 and (CAPTURES / name).stat().st_size > 60_000:
        step = 997
    data = np.fromfile(CAPTURES / name, np.uint8)
    dissection = Dissection(Options())
    blocks = []
    dissection.start_file()
    position = end = 0
    while end < len(data):
        end = min(end + step, len(data))
        position, closed = dissection.feed(data, position, end, end == len(data))
        blocks += [(block.table, rows_of_block(block)) for block in closed]
    dissection.end_file()
    blocks += [(block.table, rows_of_block(block)) for block in dissection.finish()]
    tables: Tables = {table: [] for table in TABLES}
    for table, rows in blocks:
        tables[table].extend(rows)
    assert differences(tables, tables_of(str(CAPTURES / name))) == []


def bytes_of(lake: Path) -> dict[str, str]:
    """Every file of a lake with a digest of its bytes."""
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(lake.rglob("*"))
        if path.is_file() and path.name != "_lock"
    }


def landed(names: tuple[str, ...], lake: Path) -> dict[str, str]:
    for chain in chains([str(CAPTURES / name) for name in names]).chains:
        land_chain(chain, lake, Options())
    with open_lake(lake) as opened:
        assert not verify(opened)
        assert len(opened.captures) == len(names)
    return bytes_of(lake)


def test_landing_again_gives_the_same_bytes(tmp_path):
    first = landed(SEVERAL, tmp_path / "one")
    assert landed(SEVERAL, tmp_path / "one") == first
    assert landed(SEVERAL[::-1], tmp_path / "other") == first


def test_a_pipe_lands_the_same_tables(tmp_path):
    name = "pulsar-apache/java-j74_corrupt.pcap"
    assert Path(name).name in SPOILT
    with standard_input((CAPTURES / name).read_bytes()):
        land_chain(Chain(("-",), "stdin"), tmp_path / "pipe", Options())
    land_chain(Chain((str(CAPTURES / name),), "tap"), tmp_path / "file", Options())
    found = []
    for lake in ("pipe", "file"):
        with open_lake(tmp_path / lake) as opened:
            found.append({table: opened.table(table).to_pylist() for table in TABLES[1:]})
    for rows in [rows for tables in found for rows in tables.values()]:
        for row in rows:
            row.pop("capture", None)
    assert found[0] == found[1]
