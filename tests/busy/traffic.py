"""A capture of eight producers and eight consumers, and of connections that come and go.

Four topics with two producers each: one with an Exclusive subscription that acknowledges
cumulatively; one with keys, under a Shared subscription (single ids by one consumer, groups of 64
by the other, both ask for some entries again) and a Key_Shared one (one of its consumers pauses);
one under Failover, whose ACKs are answered and which changes sides; one of batches, which are
acknowledged in part, then whole. What was sent is counted, so what is read can be held against it.
"""

import math
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from captures.make.traffic import number, simple
from tests.busy import streams
from tests.busy.frames import FROM, Entries
from tests.busy.roles import MS, Consumer, Counts, Habit, Producer, Stored, Subscription
from tests.busy.streams import Connection

START_NS: Final = 1_700_000_000_000_000_000
ROUND_NS: Final = 1000 * MS
BATCH: Final = 10
_BROKER: Final = (0x0A0000FE, 6650)
_ENTRIES: Final = 512  # of each producer in a round
_SWITCH_ROUNDS: Final = 30
_PING_ROUNDS: Final = 30
_BRIEF_MESSAGES: Final = 5
_BRIEF_TOPICS: Final = 200
# Frames that an entry of each topic costs, about.
_COST: Final = (3.03, 5.6, 3.25, 5.0)


# The header of a pcap file with nanoseconds.
FILE_HEADER: Final = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)


class Size(NamedTuple):
    """How much traffic.

    Args:
        frames: at least so many; a round more at most. connections: that come and go beside the
            sixteen. rows: deliveries of the consumer that has most; None: each topic has as many
            entries. message_bytes: of each message, by topic. batch: messages of each entry; None:
            one, and ten in the fourth topic. is_lz4: whether entries are compressed. bursts: in how
            many a producer's entries of a second come; 0: evenly. lost: of so many packets one is
            lost, which the counts do not know; 0: none. is_midstream: each second of a connection
            looks like another one, which began before the capture; nor do the counts know that.
    """

    frames: int
    connections: int = 0
    rows: int | None = None
    message_bytes: tuple[int, int, int, int] = (100, 100, 100, 100)
    batch: int | None = None
    is_lz4: bool = False
    bursts: int = 0
    lost: int = 0
    is_midstream: bool = False

    @property
    def batches(self) -> tuple[int, ...]:
        """Messages of each entry, by topic."""
        return (1, 1, 1, BATCH) if self.batch is None else (self.batch,) * 4


class Topic:
    """A topic: its producers, its ledger, its subscriptions."""

    def __init__(self, name: bytes, ledger: int, producers: list[Producer]) -> None:
        self.name, self.ledger, self.producers = name, ledger, producers
        self.subscriptions: list[Subscription] = []
        self._next = FROM

    def begin(self, at_ns: int, counts: Counts) -> int:
        """Everybody connects; returns when that was done."""
        ends = [each.begin(self.name, at_ns, counts) for each in self.producers]
        return max(ends + [each.begin(self.name, at_ns, counts) for each in self.subscriptions])

    def round(
        self, times: list[np.ndarray], start_ns: int, chance: np.random.Generator, counts: Counts
    ) -> None:
        """Entries of each producer are published at their times, stored, confirmed, delivered."""
        entries = len(times[0])
        sent = []
        for producer, ready in zip(self.producers, times, strict=True):
            sent.append(producer.send(ready, chance, counts))
        both = np.concatenate([stored.stored_ns for _, stored in sent])
        order = np.argsort(both, kind="stable")
        ids = np.empty(len(order), np.int64)
        ids[order] = self._next + np.arange(len(order))
        self._next += len(order)
        named = []
        for place, (producer, (sequences, stored)) in enumerate(
            zip(self.producers, sent, strict=True)
        ):
            stored = stored._replace(ids=ids[place * entries : (place + 1) * entries])
            told = producer.confirm(self.ledger, sequences, stored, chance)
            # Some are delivered before their receipt is seen.
            late = np.where(stored.keys % 10 == 0, stored.stored_ns, told)
            named.append(stored._replace(stored_ns=late))
        counts.update(SEND_RECEIPT=len(ids))
        together = Stored.joined(named).chosen(order)
        together = together._replace(stored_ns=np.maximum.accumulate(together.stored_ns))
        for subscription in self.subscriptions:
            subscription.give(together)
            for consumer in subscription.consumers:
                consumer.round(start_ns, chance, counts)


class Busy:
    """Traffic without end, round by round.

    Args:
        seed: of everything random, and of what captures of one broker do not share: ledgers, client
            ports.
    """

    def __init__(self, size: Size, seed: int = 0, start_ns: int = START_NS) -> None:
        self.counts: Counts = Counter()
        self._chance = np.random.default_rng(seed)
        self._seed, self._now_ns, self._size = seed, start_ns, size
        self._entries = [_ENTRIES] * 4
        if size.rows:
            rest = (size.frames - _COST[0] * size.rows) / sum(_COST[1:])  # entries of another topic
            self._entries[0] = max(1, round(_ENTRIES * size.rows / max(rest, size.rows / _ENTRIES)))
        few = size.frames / (4 * self._frames_per_round())
        if few < 1:  # small captures have some rounds too
            self._entries = [max(1, round(each * few)) for each in self._entries]
        self._brief_per_round = size.connections / math.ceil(size.frames / self._frames_per_round())
        self.brief = 0  # connections that came so far
        self._connections: list[Connection] = []
        self._topics = self._made_topics()

    def _frames_per_round(self) -> float:
        return sum(2 * each * cost for each, cost in zip(self._entries, _COST, strict=True))

    def _connection(self) -> Connection:
        place = len(self._connections)
        client = (0x0A000001 + place, 32768 + (self._seed * 16 + place) % 28000)
        found = Connection(client, _BROKER)
        self._connections.append(found)
        return found

    def _consumer(self, ledger: int, entries: int, messages: int, *habit: Any) -> Consumer:
        queue = max(20, 2 * entries * messages)
        return Consumer(self._connection(), ledger, messages, queue, Habit(*habit))

    def _producer(
        self, name: bytes, place: int, has_key: bool, connection: Connection | None = None
    ) -> Producer:
        """A producer as those of a topic are."""
        size, messages = self._size, self._size.batches[place]
        entries = Entries(name, size.message_bytes[place], messages, has_key, size.is_lz4)
        return Producer(connection or self._connection(), name, entries, messages)

    def _made_topics(self) -> list[Topic]:
        topics = []
        for place in range(4):
            producers = [
                self._producer(
                    b"standalone-%d-%d%s" % (self._seed % 1000, place, each), place, place == 1
                )
                for each in (b"a", b"b")
            ]
            name = b"persistent://public/default/busy-%d" % place
            topics.append(Topic(name, 20_000 + self._seed * 8 + place, producers))
        first, keyed, failing, batched = (
            (each.ledger, 2 * n, messages)
            for each, n, messages in zip(topics, self._entries, self._size.batches, strict=True)
        )
        topics[0].subscriptions = [
            Subscription(b"all", "Exclusive", [self._consumer(*first, "cumulative", 50)])
        ]
        topics[1].subscriptions = [
            Subscription(b"work", "Shared", [
                self._consumer(*keyed, "individual", 1, 0.01),
                self._consumer(*keyed, "grouped", 64, 0.005),
            ]),
            Subscription(b"by-key", "Key_Shared", [
                self._consumer(*keyed, "individual"),
                self._consumer(*keyed, "individual", 1, 0.0, 9),
            ]),
        ]  # fmt: skip
        topics[2].subscriptions = [
            Subscription(b"one", "Failover", [self._consumer(*failing, "asked", 8) for _ in "ab"])
        ]
        topics[3].subscriptions = [
            Subscription(b"batches", "Shared", [self._consumer(*batched, "partly")])
        ]
        return topics

    def rounds(self) -> Iterator[list[Connection]]:
        """Connections with what they sent in a round; endless."""
        start_ns = self._now_ns
        self._now_ns = max(each.begin(start_ns, self.counts) for each in self._topics) + MS
        self.counts["connections"] = len(self._connections)
        yield self._connections
        number = 0
        while True:
            number += 1
            for topic, entries in zip(self._topics, self._entries, strict=True):
                times = [self._times(entries) for _ in topic.producers]
                topic.round(times, self._now_ns, self._chance, self.counts)
            if number % _SWITCH_ROUNDS == 0:
                for subscription in self._topics[2].subscriptions:
                    subscription.switch(self._now_ns + ROUND_NS - MS, self.counts)
            if number % _PING_ROUNDS == 0:
                for connection in self._connections:
                    self._ping(connection)
            brief = []
            while self.brief < min(self._size.connections, number * self._brief_per_round):
                brief.append(self._brief_talk())
            self._now_ns += ROUND_NS
            yield self._connections + brief
            if self._size.is_midstream:
                for connection in self._connections:
                    connection.rename()

    def _times(self, entries: int) -> np.ndarray:
        """When a producer's entries of a round are published."""
        last = ROUND_NS - 100 * MS
        times = self._chance.integers(2 * MS, last, entries)
        if self._size.bursts:
            step = (last - 2 * MS) // self._size.bursts
            times = 2 * MS + times // step * step + times % step // 50
        return np.sort(times) + self._now_ns

    def _ping(self, connection: Connection) -> None:
        connection.ask(simple(18, b""), self._now_ns + ROUND_NS - 2 * MS, simple(19, b""))
        self.counts.update(PING=1, PONG=1)

    def close(self) -> list[Connection]:
        """All connections end."""
        for connection in self._connections:
            connection.close(self._now_ns)
        return self._connections

    def _brief_talk(self) -> Connection:
        """A connection that publishes a few messages and goes."""
        place, self.brief = self.brief, self.brief + 1
        client = (0x0A010000 + place // 500, 20_000 + place % 500)
        connection, counts = Connection(client, _BROKER), self.counts
        name = b"standalone-%d-x%06d" % (self._seed % 1000, place)
        producer = self._producer(name, 0, False, connection)
        topic = b"persistent://public/default/brief-%03d" % (place % _BRIEF_TOPICS)
        at_ns = self._now_ns + int(self._chance.integers(0, ROUND_NS // 2))
        at_ns = producer.begin(topic, at_ns, counts)
        ready = at_ns + MS * np.arange(1, _BRIEF_MESSAGES + 1)
        sequences, stored = producer.send(ready, self._chance, counts)
        ids = FROM + place // _BRIEF_TOPICS * _BRIEF_MESSAGES + np.arange(_BRIEF_MESSAGES)
        ledger = 90_000 + place % _BRIEF_TOPICS
        producer.confirm(ledger, sequences, stored._replace(ids=ids), self._chance)
        at_ns = int(stored.stored_ns[-1]) + MS
        at_ns = connection.ask(
            simple(15, number(1, 1) + number(2, 9)), at_ns, simple(13, number(1, 9))
        )
        connection.close(at_ns)
        counts.update(SEND_RECEIPT=_BRIEF_MESSAGES, CLOSE_PRODUCER=1, SUCCESS=1, connections=1)
        return connection


# What is counted beside frames.
SUMS: Final = (
    "connections", "packets", "messages", "delivered", "redelivered", "permits", "frames",
)  # fmt: skip


def write_capture(path: Path, size: Size, seed: int = 0, start_ns: int = START_NS) -> Counts:
    """Write a capture.

    Returns:
        Frames by command; and under the names of SUMS: connections, packets, messages published,
        messages delivered (again, too), entries delivered again, permits given, frames in all.
    """
    traffic = Busy(size, seed, start_ns)
    counts = traffic.counts
    with path.open("wb") as file:
        file.write(FILE_HEADER)
        for connections in traffic.rounds():
            counts["packets"] += streams.write(file, connections, size.lost)
            counts["frames"] = sum(n for name, n in counts.items() if name not in SUMS)
            if counts["frames"] >= size.frames and traffic.brief >= size.connections:
                break
        counts["packets"] += streams.write(file, traffic.close(), size.lost)
    return counts
