"""Captures in which much stays open: sends, deliveries, connections.

Sends without a receipt and deliveries without an ACK are made ten thousand at a time; connections
began before the capture and go on behind it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from captures.make.traffic import number, simple, text
from tests.busy import streams
from tests.busy.frames import FROM, Entries, message_head
from tests.busy.roles import Counts, Producer, introduced
from tests.busy.streams import Connection, Run
from tests.busy.traffic import FILE_HEADER, START_NS

_TOPIC: Final = b"persistent://public/default/open"
_CLIENT, _BROKER = (0x0A000001, 40_000), (0x0A0000FE, 6650)
_LEDGER: Final = 7
_PART: Final = 10_000
_STEP_NS: Final = 10_000  # between entries
_MESSAGE_BYTES: Final = 100
_TURNS: Final = 4  # of a connection that lives


def outstanding_sends(connection: Connection, count: int) -> Iterator[None]:
    """A producer whose broker stores nothing, step by step."""
    counts: Counts = Counter()
    chance = np.random.default_rng(1)
    producer = Producer(connection, b"open-1", Entries(b"open-1", _MESSAGE_BYTES, 1, False), 1)
    begun = producer.begin(_TOPIC, START_NS, counts)
    yield
    for first in range(0, count, _PART):
        ready = begun + _STEP_NS * np.arange(first, min(first + _PART, count))
        producer.send(ready, chance, counts)
        yield


def open_deliveries(connection: Connection, count: int) -> Iterator[None]:
    """A consumer with permits for all entries, which acknowledges none, step by step."""
    begun = introduced(connection, START_NS, Counter())
    asked = text(1, _TOPIC) + text(2, b"open") + number(3, 1) + number(4, 1) + number(5, 1)
    begun = connection.ask(simple(4, asked), begun, simple(13, number(1, 1)))
    begun = connection.ask(simple(11, number(1, 1) + number(2, count)), begun)
    yield
    entries = Entries(b"open-1", _MESSAGE_BYTES, 1, False)
    chance = np.random.default_rng(1)
    for first in range(0, count, _PART):
        numbers = np.arange(first, min(first + _PART, count))
        ids, ready = FROM + numbers, begun + _STEP_NS * (numbers + 1)
        made = entries.make(ids, ready // 1_000_000, ids, chance)
        rows = message_head(_LEDGER).before(made, ids)
        connection.to_client.push([Run(rows, ready)], chance)
        yield


PENDING: Final[dict[str, Callable[[Connection, int], Iterator[None]]]] = {
    "outstanding sends": outstanding_sends,
    "open deliveries": open_deliveries,
}


def write_pending(path: Path, kind: str, count: int) -> int:
    """Write a capture of one kind with so many entries; returns its packets."""
    connection = Connection(_CLIENT, _BROKER)
    with path.open("wb") as file:
        file.write(FILE_HEADER)
        return sum(streams.write(file, [connection]) for _ in PENDING[kind](connection, count))


def write_live(path: Path, count: int) -> int:
    """Write a capture from within so many connections, each with lookups by turns; returns its
    packets."""
    connections = [
        Connection((_CLIENT[0] + (row >> 15), 1024 + (row & 0x7FFF)), _BROKER)
        for row in range(count)
    ]
    asked, answered = text(1, _TOPIC), text(1, b"pulsar://10.0.0.254:6650") + number(3, 1)
    for turn in range(_TURNS):
        for row, connection in enumerate(connections):
            # A byte more each time: packets of equal size would be no proof of frames.
            lookup = simple(23, asked + number(2, turn) + text(6, b"x" * turn))
            answer = simple(24, answered + number(4, turn) + text(7, b"x" * turn))
            connection.ask(lookup, START_NS + (turn * count + row) * _STEP_NS, answer)
    with path.open("wb") as file:
        file.write(FILE_HEADER)
        return streams.write(file, connections)
