"""Who talks in made traffic: producers, the topics that store, and consumers with their habits."""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from captures.make.traffic import number, simple, text
from tests.busy import frames
from tests.busy.frames import FROM, Entries, Ids, Matrix
from tests.busy.streams import Connection, Run

MS: Final = 1_000_000
LEFT_OF_BATCH: Final = 0b11111  # the messages of a batch that its first ACK leaves
_CONNECT: Final = simple(2, text(1, b"Pulsar-Java-v4.0.6") + number(4, 21))
_CONNECTED: Final = simple(3, text(1, b"Pulsar Server4.0.6") + number(2, 21) + number(3, 5242880))
SUBSCRIPTION_TYPES: Final = {"Exclusive": 0, "Shared": 1, "Failover": 2, "Key_Shared": 3}

Counts = Counter[str]


class Stored(NamedTuple):
    """Entries of a topic in its order. stored_ns: when the broker had each."""

    ids: Ids
    entries: Matrix
    keys: Ids
    stored_ns: np.ndarray

    def chosen(self, rows: np.ndarray | slice) -> "Stored":
        """Some of them."""
        return Stored(*(each[rows] for each in self))

    @classmethod
    def joined(cls, parts: list["Stored"]) -> "Stored":
        """One behind the other."""
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def introduced(connection: Connection, at_ns: int, counts: Counts) -> int:
    """Open a connection, CONNECT and CONNECTED; returns when that was done."""
    counts.update(CONNECT=1, CONNECTED=1)
    return connection.ask(_CONNECT, connection.open(at_ns), _CONNECTED)


class Producer:
    """One producer on a connection of its own.

    Args:
        name: what the broker calls it. entries: what it publishes. messages: in each entry.
    """

    def __init__(
        self, connection: Connection, name: bytes, entries: Entries, messages: int
    ) -> None:
        self.connection = connection
        self.messages = messages
        self._name = name
        self._entries = entries
        self._next = FROM

    def begin(self, topic: bytes, at_ns: int, counts: Counts) -> int:
        """All up to the first SEND; returns when that was done."""
        at_ns = introduced(self.connection, at_ns, counts)
        asked = simple(21, text(1, topic) + number(2, 1))
        told = simple(22, number(1, 0) + number(2, 1) + number(3, 0))
        at_ns = self.connection.ask(asked, at_ns, told)
        asked = simple(5, text(1, topic) + number(2, 1) + number(3, 2))
        told = simple(17, number(1, 2) + text(2, self._name))
        counts.update(
            PARTITIONED_METADATA=1, PARTITIONED_METADATA_RESPONSE=1, PRODUCER=1, PRODUCER_SUCCESS=1
        )
        return self.connection.ask(asked, at_ns, told)

    def send(
        self, ready_ns: np.ndarray, chance: np.random.Generator, counts: Counts
    ) -> tuple[Ids, Stored]:
        """Publish an entry at each time; returns sequence ids, and entries as the broker stores
        them but for their ids."""
        count = len(ready_ns)
        sequences = self._next + self.messages * np.arange(count)
        self._next += self.messages * count
        keys = chance.integers(0, 1000, count)
        entries = self._entries.make(sequences, ready_ns // MS, keys, chance)
        rows = frames.send_head(self.messages).before(entries, sequences)
        (arrived,) = self.connection.to_broker.push([Run(rows, ready_ns)], chance)
        stored = (
            arrived + 300_000 + (chance.lognormal(0.3, 0.6, count).clip(0, 30) * MS).astype(int)
        )
        counts.update(SEND=count, messages=count * self.messages)
        return sequences, Stored(sequences, entries, keys, np.maximum.accumulate(stored))

    def confirm(
        self, ledger: int, sequences: Ids, stored: Stored, chance: np.random.Generator
    ) -> np.ndarray:
        """The receipts of what was stored; returns when each was captured."""
        rows = frames.receipt(ledger).fill(sequences, stored.ids)
        ready = stored.stored_ns + 50_000
        return self.connection.to_client.push([Run(rows, ready)], chance)[0]


class Habit(NamedTuple):
    """How a consumer behaves.

    Args:
        style: of its ACKs: individual, grouped, cumulative, asked (with request ids, which are
            answered) or partly (of a batch a part, then all).
        group: entries that one ACK names, or from one cumulative one to the next.
        nacked: the share of deliveries that is asked for again.
        pauses: in so many of each 20 rounds it gives no permits, as one does that is busy.
    """

    style: str
    group: int = 1
    nacked: float = 0.0
    pauses: int = 0


class Consumer:
    """One consumer on a connection of its own; it holds what its subscription gave it.

    Args:
        ledger: of its topic. messages: in each entry. queue: permits given at first.
    """

    def __init__(
        self, connection: Connection, ledger: int, messages: int, queue: int, habit: Habit
    ) -> None:
        self.connection = connection
        self._ledger, self._messages, self._queue, self._habit = ledger, messages, queue, habit
        self._waiting: list[Stored] = []
        self._again: list[tuple[Stored, Ids]] = []  # with their redelivery counts
        self._unacked = (np.zeros(0, np.int64), np.zeros(0, np.int64))  # ids, when they can go
        self._owed: list[Run] = []  # answers
        self._permits = self._used = 0  # messages: allowed, and delivered since the last FLOW
        self._rounds, self._is_paused = 0, False
        self._request = FROM

    def begin(
        self, topic: bytes, subscription: bytes, kind: int, at_ns: int, counts: Counts
    ) -> int:
        """All up to the first FLOW; returns when that was done."""
        at_ns = introduced(self.connection, at_ns, counts)
        asked = text(1, topic) + text(2, subscription) + number(3, kind) + number(4, 1)
        asked = simple(4, asked + number(5, 1) + text(6, b"reader-%d" % self._ledger))
        at_ns = self.connection.ask(asked, at_ns, simple(13, number(1, 1)))
        counts.update(SUBSCRIBE=1, SUCCESS=1, FLOW=1, permits=self._queue)
        self._permits = self._queue
        return self.connection.ask(simple(11, number(1, 1) + number(2, self._queue)), at_ns)

    def active(self, is_active: bool, at_ns: int, counts: Counts) -> None:
        """ACTIVE_CONSUMER_CHANGE."""
        counts.update(ACTIVE_CONSUMER_CHANGE=1)
        self.connection.to_client.say(simple(31, number(1, 1) + number(2, int(is_active))), at_ns)

    def take(self, stored: Stored) -> None:
        """Entries that this consumer shall get."""
        if len(stored.ids):
            self._waiting.append(stored)

    def round(self, start_ns: int, chance: np.random.Generator, counts: Counts) -> None:
        """What permits allow is delivered and acknowledged, and new permits are given."""
        self._is_paused = self._rounds % 20 in range(1, 1 + self._habit.pauses)
        self._rounds += 1
        allowed = self._permits // self._messages
        again, self._again = self._again, []
        for stored, times_delivered in again:
            self._deliver(stored, times_delivered, start_ns, chance, counts)
            allowed -= len(stored.ids)
        if not self._waiting:
            return
        waiting = Stored.joined(self._waiting)
        self._waiting = [waiting.chosen(slice(allowed, None))] if allowed < len(waiting.ids) else []
        # Answers go between deliveries, so these come in several turns.
        turns = 8 if self._habit.style == "asked" else 1
        for rows in np.array_split(np.arange(min(allowed, len(waiting.ids))), turns):
            fresh = waiting.chosen(rows)
            self._deliver(fresh, np.zeros(len(rows), np.int64), start_ns, chance, counts)

    def _deliver(
        self, stored: Stored, again: Ids, start_ns: int, chance: np.random.Generator, counts: Counts
    ) -> None:
        """Entries go out, all for the first time or all again, and what the client says of them."""
        ids = stored.ids
        ready = np.maximum(stored.stored_ns + 150_000, start_ns)
        if again.any():
            rows = frames.redelivered_head(self._ledger).before(stored.entries, ids, again)
        else:
            rows = frames.message_head(self._ledger).before(stored.entries, ids)
        owed, self._owed = self._owed, []
        times, *answers = self.connection.to_client.push([Run(rows, ready), *owed], chance)
        counts["ACK_RESPONSE"] += sum(map(len, answers))
        count = len(ids)
        self._permits -= count * self._messages
        counts.update(MESSAGE=count, delivered=count * self._messages)
        counts["redelivered"] += count * bool(again.any())
        is_nacked = (chance.random(count) < self._habit.nacked) & (again < 100)
        think = (chance.exponential(2.0, count).clip(0, 20) * MS).astype(np.int64)
        runs = self._acks(ids[~is_nacked], (times + 200_000 + think)[~is_nacked], counts)
        runs += self._flows(times, start_ns, counts)
        if is_nacked.any():
            self._again.append((stored.chosen(is_nacked), again[is_nacked] + 1))
            row = frames.redeliver(self._ledger, int(is_nacked.sum())).fill(
                *ids[is_nacked][:, None]
            )
            runs.append(Run(row, times[-1:] + MS))
            counts.update(REDELIVER_UNACKNOWLEDGED_MESSAGES=1)
        arrived = self.connection.to_broker.push(runs, None)
        if self._habit.style == "asked":
            self._answer(arrived[0])

    def _acks(self, ids: Ids, ready_ns: np.ndarray, counts: Counts) -> list[Run]:
        """ACKs in the consumer's style; what fills no group waits."""
        style, group = self._habit.style, self._habit.group
        ledger = self._ledger
        if style == "individual":
            counts.update(ACK=len(ids))
            return [Run(frames.ack(ledger).fill(ids), ready_ns)]
        if style == "partly":
            counts.update(ACK=2 * len(ids))
            first = frames.part_ack(ledger, self._messages, LEFT_OF_BATCH).fill(ids)
            return [Run(first, ready_ns), Run(frames.ack(ledger).fill(ids), ready_ns + 5 * MS)]
        ids = np.concatenate((self._unacked[0], ids))
        ready_ns = np.maximum.accumulate(np.concatenate((self._unacked[1], ready_ns)))
        whole = len(ids) - len(ids) % group
        self._unacked = ids[whole:], ready_ns[whole:]
        groups, ready_ns = ids[:whole].reshape(-1, group), ready_ns[:whole][group - 1 :: group]
        counts.update(ACK=len(groups))
        if style == "cumulative":
            return [Run(frames.ack(ledger, 1, True).fill(groups[:, -1]), ready_ns)]
        if style == "grouped":
            return [Run(frames.ack(ledger, group).fill(*groups.T), ready_ns)]
        requests = self._request + np.arange(len(groups))
        self._request += len(groups)
        return [Run(frames.ack(ledger, group, False, True).fill(*groups.T, requests), ready_ns)]

    def _answer(self, arrived_ns: np.ndarray) -> None:
        """The answers to the last ACKs are to go out."""
        requests = self._request - len(arrived_ns) + np.arange(len(arrived_ns))
        self._owed.append(Run(frames.ack_response().fill(requests), arrived_ns + 600_000))

    def _flows(self, times: np.ndarray, start_ns: int, counts: Counts) -> list[Run]:
        """FLOW for each half queue that was delivered, unless the client pauses."""
        half = self._queue // 2
        used = self._used + self._messages * np.arange(1, len(times) + 1)
        self._used += self._messages * len(times)
        if self._is_paused or self._used < half:
            return []
        given = self._used // half
        self._used -= given * half
        self._permits += given * half
        counts.update(FLOW=given, permits=given * half)
        reached = np.searchsorted(used, half * np.arange(1, given + 1))
        # After a pause there may be none to deliver: the permits come first.
        ready = times[reached] + 100_000 if len(times) else np.full(given, start_ns + MS)
        row = simple(11, number(1, 1) + number(2, half))
        return [Run(frames.rows_of(row, given), ready)]


class Subscription:
    """Who of its consumers gets which entries.

    Args:
        name: of it. kind: one of SUBSCRIPTION_TYPES.
    """

    def __init__(self, name: bytes, kind: str, consumers: list[Consumer]) -> None:
        self.name, self.kind, self.consumers = name, kind, consumers
        self._active = 0

    def begin(self, topic: bytes, at_ns: int, counts: Counts) -> int:
        """Subscribe all consumers; returns when that was done."""
        kind = SUBSCRIPTION_TYPES[self.kind]
        at_ns = max(each.begin(topic, self.name, kind, at_ns, counts) for each in self.consumers)
        if self.kind == "Failover":
            self._tell(at_ns, counts)
        return at_ns

    def give(self, stored: Stored) -> None:
        """Dispatch entries."""
        count = len(self.consumers)
        if self.kind == "Key_Shared":
            turn = stored.keys % count
        elif self.kind == "Shared":
            turn = stored.ids % count
        else:
            turn = np.full(len(stored.ids), self._active)
        for place, consumer in enumerate(self.consumers):
            consumer.take(stored.chosen(turn == place) if count > 1 else stored)

    def switch(self, at_ns: int, counts: Counts) -> None:
        """With Failover the next consumer becomes the active one."""
        if self.kind == "Failover":
            self._active = (self._active + 1) % len(self.consumers)
            self._tell(at_ns, counts)

    def _tell(self, at_ns: int, counts: Counts) -> None:
        for place, consumer in enumerate(self.consumers):
            consumer.active(place == self._active, at_ns, counts)
