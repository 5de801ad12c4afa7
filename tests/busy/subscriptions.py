"""Captures of one consumer: of every subscription type, with every style of acknowledgement.

A quick consumer acknowledges each entry at once; a slow one so many entries later, and so holds
that many deliveries open all the time.
"""

from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from captures.make.traffic import number, simple, text
from tests.busy import frames, streams
from tests.busy.frames import FROM, Entries, message_head
from tests.busy.roles import SUBSCRIPTION_TYPES, Counts, introduced
from tests.busy.streams import Connection, Run
from tests.busy.traffic import FILE_HEADER, START_NS

STYLES: Final = ("individual", "grouped", "cumulative")
_TOPIC: Final = b"persistent://public/default/consumed"
_CLIENT, _BROKER = (0x0A000001, 40_000), (0x0A0000FE, 6650)
_LEDGER: Final = 7
_GROUP: Final = 20  # ids of one ACK
_PART: Final = 10_000
_STEP_NS: Final = 10_000  # between entries
_THINK_NS: Final = 200_000  # of the client, before its ACK
_MESSAGE_BYTES: Final = 100


class Consumed(NamedTuple):
    """What is consumed how. type: of the subscription; style: of STYLES; lag: entries that a slow
    consumer leaves open."""

    type: str
    style: str
    lag: int = 0

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.type}, {self.style}{', slow' if self.lag else ''}"


def every(lag: int) -> list[Consumed]:
    """Each type with each style, quick and so slow; the plainest first."""
    kinds = product(SUBSCRIPTION_TYPES, STYLES, (0, lag))
    return [Consumed(*each) for each in kinds]


def _acks(kind: Consumed, ids: np.ndarray, ready_ns: np.ndarray) -> Run:
    """The ACKs of entries, in a style."""
    if kind.style == "individual":
        return Run(frames.ack(_LEDGER).fill(ids), ready_ns)
    if kind.style == "cumulative":
        return Run(frames.ack(_LEDGER, 1, True).fill(ids), ready_ns)
    whole = len(ids) - len(ids) % _GROUP
    groups = ids[:whole].reshape(-1, _GROUP)
    return Run(frames.ack(_LEDGER, _GROUP).fill(*groups.T), ready_ns[:whole][_GROUP - 1 :: _GROUP])


def write_consumed(path: Path, kind: Consumed, count: int) -> int:
    """Write a capture of so many deliveries, a multiple of _GROUP; returns its packets."""
    connection = Connection(_CLIENT, _BROKER)
    begun = introduced(connection, START_NS, Counts())
    asked = text(1, _TOPIC) + text(2, b"s") + number(3, SUBSCRIPTION_TYPES[kind.type])
    asked += number(4, 1) + number(5, 1)
    begun = connection.ask(simple(4, asked), begun, simple(13, number(1, 1)))
    begun = connection.ask(simple(11, number(1, 1) + number(2, count)), begun)
    entries = Entries(b"consumed-1", _MESSAGE_BYTES, 1, False)
    chance = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(FILE_HEADER)
        packets = streams.write(file, [connection])
        for first in range(0, count, _PART):
            numbers = np.arange(first, min(first + _PART, count))
            ids, ready = FROM + numbers, begun + _STEP_NS * (numbers + 1)
            made = entries.make(ids, ready // 1_000_000, ids, chance)
            given = Run(message_head(_LEDGER).before(made, ids), ready)
            (arrived,) = connection.to_client.push([given], chance)
            acked = numbers >= kind.lag
            if acked.any():
                run = _acks(kind, ids[acked] - kind.lag, arrived[acked] + _THINK_NS)
                connection.to_broker.push([run], None)
            packets += streams.write(file, [connection])
    return packets
