"""What is known of topics' logs: how far they reach, what was published when, and how often."""

from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple

from dissector.limits import NULL

MAX_REMEMBERED: Final = 1 << 17  # batches whose sending is remembered, for attempts and latencies

Place = tuple[int, int]  # topic, partition


class Sent(NamedTuple):
    """What makes a batch the same when it is sent again."""

    topic: int
    partition: int
    producer: int
    epoch: int
    seq_start: int
    seq_end: int


class Attempts:
    """How often each batch was sent, and whether one of its copies was stored; the last ones."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._known: dict[Sent, list[int]] = {}

    def begin(self, sent: Sent) -> int:
        """The number of this sending, from 1."""
        known = self._known.get(sent)
        if known is None:
            if len(self._known) >= self._limit:
                del self._known[next(iter(self._known))]
            known = self._known[sent] = [0, 0]
        known[0] += 1
        return known[0]

    def is_stored(self, sent: Sent) -> bool:
        """Whether a copy was acknowledged before; from now on one was."""
        known = self._known.get(sent)
        if known is None:
            return False
        before, known[1] = known[1], 1
        return before == 1


class Sequences:
    """Where each producer stands in each partition: its epoch and last sequence number."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._known: dict[tuple[int, int, int], tuple[int, int]] = {}

    def follow(self, sent: Sent) -> tuple[int, int] | None:
        """A batch came; returns epoch and last sequence number before it, None for the first."""
        key = sent[:3]
        known = self._known.get(key)
        if known is None and len(self._known) >= self._limit:
            del self._known[next(iter(self._known))]
        if known is None or sent.epoch > known[0]:
            self._known[key] = (sent.epoch, sent.seq_end)
        elif sent.epoch == known[0]:
            self._known[key] = (sent.epoch, max(known[1], sent.seq_end))
        return known


class Published:
    """When the batches of each producer were sent, to be found by the sequence of one record."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._order: deque[tuple[int, int, int, int]] = deque()
        self._starts: dict[tuple[int, int, int, int], list[int]] = {}
        self._ends: dict[tuple[int, int, int, int], list[tuple[int, int]]] = {}

    def add(self, sent: Sent, last_ns: int) -> None:
        """A batch was sent; only rising sequences are remembered, the first of several copies."""
        key = sent[:4]
        starts = self._starts.setdefault(key, [])
        if starts and starts[-1] >= sent.seq_start:
            return
        starts.append(sent.seq_start)
        self._ends.setdefault(key, []).append((sent.seq_end, last_ns))
        self._order.append(key)
        if len(self._order) > self._limit:
            self._forget(self._order.popleft())

    def _forget(self, key: tuple[int, int, int, int]) -> None:
        """Forget the oldest batch of a producer."""
        del self._starts[key][0], self._ends[key][0]
        if not self._starts[key]:
            del self._starts[key], self._ends[key]

    def last_ns(self, key: tuple[int, int, int, int], seq_num: int) -> int:
        """When the batch that held a record was complete on the wire; NULL if that is not known."""
        starts = self._starts.get(key)
        if not starts:
            return NULL
        at = bisect_right(starts, seq_num) - 1
        if at < 0:
            return NULL
        seq_end, last_ns = self._ends[key][at]
        return last_ns if seq_num <= max(seq_end, starts[at]) else NULL


class Ends:
    """How far logs reach: the offset that the next record will have, as last seen."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._known: dict[Place, int] = {}

    def see(self, topic: int, partition: int, following: int) -> None:
        """The log reaches so far at least."""
        place = (topic, partition)
        known = self._known.get(place)
        if known is None and len(self._known) >= self._limit:
            del self._known[next(iter(self._known))]
        if known is None or following > known:
            self._known[place] = following

    def lag(self, topic: int, partition: int, following: int) -> int:
        """How many records there are from an offset on; NULL where the end was not seen."""
        known = self._known.get((topic, partition))
        return NULL if known is None else max(known - following, 0)


class Intervals:
    """A set of offsets as intervals that do not touch, in rising order."""

    def __init__(self) -> None:
        self._edges: list[int] = []  # first, behind the last, first, behind the last, ...

    def covered(self, first: int, last: int) -> bool:
        """Whether some offset from first to last is in the set."""
        at = bisect_right(self._edges, first)
        if at & 1:
            return True
        return at < len(self._edges) and self._edges[at] <= last

    def add(self, first: int, last: int) -> None:
        """Put the offsets from first to last in."""
        edges = self._edges
        stop = last + 1
        if edges and edges[-1] == first:
            edges[-1] = stop
            return
        low = bisect_right(edges, first - 1)
        high = bisect_right(edges, stop)
        between: list[int] = []
        if not low & 1:
            between.append(first)
        if not high & 1:
            between.append(stop)
        if low & 1 and edges[low - 1] <= first and edges[low] >= stop:
            return
        edges[low:high] = between

    def __len__(self) -> int:
        return len(self._edges) // 2
