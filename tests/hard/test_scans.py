"""Scans: packets of which each makes a connection cost what other packets cost.

Steps are counted in the tables whose length the input decides, calls where Python works row by row,
so a slow machine changes nothing. What time they take is in `python -m tests.bench --floods`.
"""

import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dissector.dissection import Dissection, Options
from tests.hard.floods import SCANS, Flood, as_pcap
from tests.numbers import Numbers

ROOT = Path(__file__).resolve().parents[2]
_MAKERS = pytest.mark.parametrize("make", SCANS.values(), ids=SCANS)


class Read:
    """What a whole dissection of a flood came to, and its summary."""

    def __init__(self, flood: Flood) -> None:
        data = np.frombuffer(bytearray(as_pcap(flood)), np.uint8)
        dissection, self.summary = Dissection(Options()), Numbers()
        self.rows = 0
        dissection.start_file()
        _, blocks = dissection.feed(data, 0, len(data), True)
        self._take(blocks)
        dissection.end_file()
        self._take(dissection.finish())
        self.packets = len(flood[0].packet)
        self.connections = dissection.connections_seen
        self.steps = dissection._streams.steps

    def _take(self, blocks: list[Any]) -> None:
        for block in blocks:
            self.summary.add_block(block)
            self.rows += block.rows if block.table == "connections" else 0


def calls_of(work: Callable[[], object]) -> int:
    """How many functions of Python were called."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@_MAKERS
def test_every_scan_costs_the_same_steps_a_packet_and_a_row_each(
    make: Callable[[int], Flood],
) -> None:
    found = Read(make(30_000))
    assert found.rows == found.connections >= 30_000 // 3
    # As many as are open at once lie in the tables: a walk along them would be thousands.
    assert found.steps <= 20 * found.packets


@pytest.mark.parametrize("name", ["slow syns", "answered syns", "refused syns", "fins"])
def test_a_connection_more_is_no_call_more(name: str) -> None:
    few, many = SCANS[name](6_000), SCANS[name](18_000)
    Read(few)  # whatever is done once
    calls = [calls_of(lambda flood=flood: Read(flood).summary.result()) for flood in (few, many)]
    assert calls[1] - calls[0] < 12_000


def test_a_summary_names_the_scan() -> None:
    section = Read(SCANS["refused syns"](2_000)).summary.result()["connecting"]["total"]
    assert (section["connections"], section["not_established"]) == (1_000, 1_000)


def test_real_traffic_beside_a_scan_of_ten_thousand_a_second_loses_nothing() -> None:
    """Every row that was there without the scan is there with it."""
    own = (ROOT / "captures" / "pulsar" / "cpp-s03_batch_none.pcap").read_bytes()
    records = [own[start:end] for start, end in record_bounds(own)]
    times = [struct.unpack("<II", each[:8]) for each in records]
    nanoseconds = [1000 * fraction + 10**9 * second for second, fraction in times]
    flood = SCANS["slow syns"](20_000)
    flood[0].ts_ns[:] += min(nanoseconds) - flood[0].ts_ns[0]
    scan = as_pcap(flood)[24:]
    rest = [
        (int(ns), scan[70 * n : 70 * n + 4] + struct.pack("<I", int(ns) % 10**9 // 1000)
         + scan[70 * n + 8 : 70 * n + 70])
        for n, ns in enumerate(flood[0].ts_ns.tolist())
    ]  # fmt: skip
    mixed = sorted([*zip(nanoseconds, records, strict=True), *rest], key=lambda pair: pair[0])
    alone, beside = (rows_by_table(own[:24] + b"".join(parts)) for parts in (
        records, [record for _, record in mixed],
    ))  # fmt: skip
    assert beside.pop("connections") == alone.pop("connections") + 20_000
    assert beside == alone and alone["messages"] > 0


def record_bounds(data: bytes) -> list[tuple[int, int]]:
    """Where the records of a little-endian pcap file begin and end."""
    found, at = [], 24
    while at < len(data):
        end = at + 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        found.append((at, end))
        at = end
    return found


def rows_by_table(data: bytes) -> dict[str, int]:
    """How many rows each table gets of a capture."""
    dissection, rows = Dissection(Options()), Counter[str]()
    dissection.start_file()
    array = np.frombuffer(bytearray(data), np.uint8)
    _, blocks = dissection.feed(array, 0, len(array), True)
    dissection.end_file()
    for block in (*blocks, *dissection.finish()):
        rows[block.table] += block.rows
    return dict(rows)
