"""Scans: packets of which each makes a connection cost what other packets cost.

Steps are counted in the tables whose length the input decides, calls where Python works row by row,
so a slow machine changes nothing. What time they take is in `python -m tests.bench --floods`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dissector.dissection import Dissection, Options
from dissector.protocols.framing_state import COUNTER_SLOT_STEPS
from dissector.report.summary import Summary
from tests.hard.floods import SCANS, Flood, as_pcap

_MAKERS = pytest.mark.parametrize("make", SCANS.values(), ids=SCANS)


class Read:
    """What a whole dissection of a flood came to, and its summary."""

    def __init__(self, flood: Flood) -> None:
        data = np.frombuffer(bytearray(as_pcap(flood)), np.uint8)
        dissection, self.summary = Dissection(Options()), Summary()
        self.rows = 0
        dissection.start_file()
        _, blocks = dissection.feed(data, 0, len(data), True)
        self._take(blocks)
        dissection.end_file()
        self._take(dissection.finish())
        self.packets = len(flood[0].packet)
        self.connections = dissection.connections_seen
        self.slot_steps = int(dissection._framing.state.counters[COUNTER_SLOT_STEPS])
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
    assert found.slot_steps <= 8 * found.packets
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
