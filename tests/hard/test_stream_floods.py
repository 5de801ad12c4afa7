"""Floods in the streams are what they say: each packet gives its rows, at a bounded cost in calls.

What time they take is in `python -m tests.bench --only landed`.
"""

from collections import Counter

import numpy as np
import pytest

from dissector.blocks import ByteArray
from dissector.dissection import Dissection, Options
from dissector.sources.account import Account
from tests.hard.packet_floods import PACKET_FLOODS
from tests.hard.stream_floods import STREAM_FLOODS
from tests.hard.test_scans import calls_of

_COUNT = 200
ROWS = {
    "holes of pulsar": {"connections": 1, "frames": 1},
    "holes of unknown": {"connections": 1},
    "lone frames": {"connections": _COUNT, "frames": _COUNT},
    "lone frames elsewhere": {"connections": _COUNT, "frames": _COUNT},
    "lone packets": {"connections": _COUNT},
    "redirects": {"connections": 1, "frames": _COUNT},
    "endless chunks": {"connections": 1, "frames": _COUNT},
}


@pytest.mark.parametrize("name", STREAM_FLOODS)
def test_each_packet_of_a_flood_gives_its_rows(name: str) -> None:
    data = np.frombuffer(STREAM_FLOODS[name](_COUNT), np.uint8).copy()
    dissection = Dissection(Options())
    dissection.start_file()
    _, blocks = dissection.feed(data, 0, len(data), True)
    dissection.end_file()
    rows: Counter[str] = Counter()
    for block in (*blocks, *dissection.finish()):
        rows[block.table] += block.rows
    assert {table: rows[table] for table in ("connections", "frames") if rows[table]} == ROWS[name]


# Functions of Python that the main thread calls for one packet more, rounded up.
CALLS = {
    "lone frames": 1.5,
    "lone frames elsewhere": 1.5,
    "lone packets": 1.5,
    "redirects": 1.5,
    "endless chunks": 4,
    "tunnel ids": 4,
    "completed fragments": 10,
    "endless fragments": 12,
    "tiny fragments": 9,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_packet_more_is_few_calls_more(name: str) -> None:
    make = (PACKET_FLOODS | STREAM_FLOODS)[name]
    few, many = (np.frombuffer(make(count), np.uint8).copy() for count in (2_000, 6_000))
    dissected(few)  # whatever is done once
    calls = [calls_of(lambda data=data: dissected(data)) for data in (few, many)]
    assert calls[1] - calls[0] < CALLS[name] * 4_000


def dissected(data: ByteArray) -> None:
    """Dissect a capture and count its rows, as landing does."""
    dissection, account = Dissection(Options()), Account()
    dissection.start_file()
    _, blocks = dissection.feed(data, 0, len(data), True)
    dissection.end_file()
    for block in (*blocks, *dissection.finish()):
        account.add(block)
