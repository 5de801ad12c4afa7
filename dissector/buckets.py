"""Latency buckets: from a duration to the number of its bucket and back.

A duration of 0 to 63 ns is its own bucket. From there on every octave (a power of two to the next)
is cut into 32 buckets of equal width, so a bucket is at most 1/32 of its values wide and its middle
is at most 1.6 % off. Only integers and shifts are used: the command line, the live tap and Spark
get the same number for the same duration, on every machine. Histograms over the same buckets merge
by addition, over any set of captures and nights.
"""

from typing import Final

from dissector.jit import kernel
from dissector.limits import NULL, SUB_BUCKET_BITS, SUB_BUCKETS

# The last bucket ends at 2^63: 31 small ones and 0, then 58 octaves.
BUCKETS: Final = (63 - SUB_BUCKET_BITS + 1) * SUB_BUCKETS


@kernel
def bucket_of(duration_ns: int) -> int:
    """The bucket of a duration, NULL for a negative one (or null)."""
    if duration_ns < 0:
        return NULL
    octave = 0
    rest = duration_ns >> SUB_BUCKET_BITS
    for shift in (32, 16, 8, 4, 2, 1):
        if rest >> shift:
            octave += shift
            rest >>= shift
    return (octave << SUB_BUCKET_BITS) + (duration_ns >> octave)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """The smallest and the largest duration of a bucket, ns, both inside it."""
    assert 0 <= bucket < BUCKETS, "no such bucket"
    octave = max(0, (bucket >> SUB_BUCKET_BITS) - 1)
    low = (bucket - (octave << SUB_BUCKET_BITS)) << octave
    return low, low + (1 << octave) - 1


def bucket_middle(bucket: int) -> int:
    """The duration that stands for a bucket, ns: the middle of its bounds, rounded down."""
    low, high = bucket_bounds(bucket)
    return low + ((high - low) >> 1)
