"""Bounded sums per label set, the values of metrics.

Label sets beyond the bound are counted under `other`.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from dissector.codecs.printable import safe_text
from dissector.limits import MAX_SERIES, SUB_BUCKET_BITS

Key = tuple[str, ...]

UNKNOWN: Final = "unknown"  # an unknown name, such as of a topic opened before the tap began
OTHER: Final = "other"  # the sum of all label sets beyond the bound

# The bounds of histograms are the octaves of the lake's buckets, from 2^17 ns (131 us) to 2^36 ns
# (69 s); shorter durations are in the first bucket, longer ones in the last.
FIRST_OCTAVE: Final = 17
LAST_OCTAVE: Final = 36
BOUNDS_NS: Final = tuple((1 << power) - 1 for power in range(FIRST_OCTAVE, LAST_OCTAVE + 1))


def label_text(value: object) -> str:
    """A value as label text, with unprintable characters escaped."""
    return UNKNOWN if value is None else safe_text(str(value))


class Counts:
    """Sums per label set. left_out: how often a set beyond the bound was counted."""

    def __init__(self, labels: Sequence[str], limit: int = MAX_SERIES) -> None:
        self.labels = tuple(labels)
        self.values: dict[Key, int] = {}
        self.left_out = 0
        self._limit = limit

    def key(self, key: Key) -> Key:
        """The label set under which this one is counted: itself or `other`."""
        if key in self.values or len(self.values) < self._limit:
            return key
        self.left_out += 1
        return (OTHER,) * len(self.labels)

    def add(self, key: Key, count: int) -> None:
        """Add to the sum of a label set."""
        if count:
            key = self.key(key)
            self.values[key] = self.values.get(key, 0) + count


class Histograms:
    """Durations per label set.

    sums: total, ns.
    buckets: count by bucket of the lake.
    least, greatest: ns.
    """

    def __init__(self, labels: Sequence[str], limit: int = MAX_SERIES) -> None:
        self.sums = Counts(labels, limit)
        self.buckets: dict[Key, Counter[int]] = {}
        self.least: dict[Key, int] = {}
        self.greatest: dict[Key, int] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels."""
        return self.sums.labels

    def add(self, key: Key, bucket: int, count: int, total_ns: int, least: int, most: int) -> None:
        """Add durations of one bucket."""
        key = self.sums.key(key)
        self.sums.values[key] = self.sums.values.get(key, 0) + total_ns
        self.buckets.setdefault(key, Counter())[bucket] += count
        self.least[key] = min(least, self.least.get(key, least))
        self.greatest[key] = max(most, self.greatest.get(key, most))

    def octaves(self, key: Key) -> list[int]:
        """Cumulative counts up to each of BOUNDS_NS, and the total."""
        counts = [0] * (len(BOUNDS_NS) + 1)
        for bucket, count in self.buckets[key].items():
            # Bucket 32 * n + k holds durations from 2^(n + 4) to below 2^(n + 5), n from 1 on.
            octave = (bucket >> SUB_BUCKET_BITS) + SUB_BUCKET_BITS - FIRST_OCTAVE
            counts[min(max(octave, 0), len(BOUNDS_NS))] += count
        return [*accumulate(counts)]
