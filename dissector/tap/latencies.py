"""Send latencies by topic in the report's own buckets: percentiles that are 1.6 % off at most.

The histograms of metrics have one bucket per octave, so their percentiles may be off by a factor of
two: enough for alerts, not for somebody who looks. Only the view has these, of 15 KB per topic.
"""

from typing import Final

import numpy as np

from dissector.blocks import Int64Array, TableBlock
from dissector.buckets import BUCKETS, buckets_of
from dissector.limits import MAX_SERIES, NULL
from dissector.report.numbers import Row, durations
from dissector.tap.series import OTHER, Groups, column

MAX_TOPICS: Final = MAX_SERIES  # further ones are counted together, as `other`


class _Topic:
    """Latencies of one topic. counts: int64[BUCKETS]; total, low and high: ns."""

    def __init__(self) -> None:
        self.counts = np.zeros(BUCKETS, np.int64)
        self.total_ns = 0
        self.low_ns: int | None = None
        self.high_ns: int | None = None

    def add(self, latencies_ns: Int64Array) -> None:
        self.counts += np.bincount(buckets_of(latencies_ns), minlength=BUCKETS)
        self.total_ns += int(latencies_ns.sum())
        low, high = int(latencies_ns.min()), int(latencies_ns.max())
        self.low_ns = low if self.low_ns is None else min(low, self.low_ns)
        self.high_ns = high if self.high_ns is None else max(high, self.high_ns)


class Latencies:
    """How long confirmed sends took, by topic."""

    def __init__(self, max_topics: int = MAX_TOPICS) -> None:
        self._topics: dict[str, _Topic] = {}
        self._max_topics = max_topics

    def add(self, exchanges: TableBlock) -> None:
        """Take in rows of `exchanges`."""
        groups = Groups(exchanges, ("kind", "outcome", "topic"))
        latencies = column(exchanges, "latency_ns")
        is_timed = (latencies != NULL) & (latencies >= 0)
        for number, topic in enumerate(key for (key,) in groups.keys(("topic",))):
            if groups.cells[number][:2] != ("publish", "ok"):
                continue
            mine = latencies[is_timed & (groups.of_row == number)]
            if len(mine):
                self._of(topic).add(mine)

    def _of(self, topic: str) -> _Topic:
        if topic not in self._topics and len(self._topics) >= self._max_topics:
            topic = OTHER
        return self._topics.setdefault(topic, _Topic())

    def of(self, topic: str) -> Row:
        """Percentiles in ms as the report has them; None where nothing was timed."""
        one = self._topics.get(topic, _Topic())
        indices = np.flatnonzero(one.counts)
        buckets = dict(zip(indices.tolist(), one.counts[indices].tolist(), strict=True))
        return durations(buckets, one.total_ns, one.low_ns, one.high_ns)
