"""Floods in the streams are what they say: each packet gives the rows that it should."""

from collections import Counter

import numpy as np
import pytest

from dissector.dissection import Dissection, Options
from tests.hard.stream_floods import STREAM_FLOODS

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
