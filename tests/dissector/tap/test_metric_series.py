"""Sums per set of labels: bounded, and histograms of the lake's buckets."""

import pytest

from dissector.buckets import bucket_bounds, bucket_of
from dissector.tap.metric_series import BOUNDS_NS, OTHER, UNKNOWN, Counts, Histograms, label_text


def histogram_of(*durations: int) -> list[int]:
    """Counts of durations of one label set, up to each bound."""
    histograms = Histograms(("topic",))
    for each in durations:
        histograms.add(("a",), bucket_of(each), 1, each, each, each)
    return histograms.octaves(("a",))


@pytest.mark.parametrize("bound", range(len(BOUNDS_NS)))
def test_bounds_are_octaves_of_the_lakes_buckets(bound):
    last = BOUNDS_NS[bound]
    counts = histogram_of(last, last + 1)
    assert (counts[bound], counts[bound + 1]) == (1, 2) and sum(counts[:bound]) == 0
    # A bucket of the lake never lies on both sides of a bound.
    assert bucket_bounds(bucket_of(last))[1] == last


def test_the_shortest_and_the_longest_are_counted_too():
    assert histogram_of(0, 1, 63, 64)[0] == 4
    assert histogram_of(1 << 40, (1 << 63) - 1)[-2:] == [0, 2]


def test_sets_beyond_the_bound_are_counted_together():
    counts = Counts(("topic",), limit=2)
    for name, count in (("a", 1), ("b", 2), ("c", 3), ("a", 4), ("d", 5), ("e", 0)):
        counts.add((name,), count)
    assert counts.values == {("a",): 5, ("b",): 2, (OTHER,): 8} and counts.left_out == 2


def test_histograms_keep_sums_and_the_least_and_greatest():
    histograms = Histograms(("topic",))
    histograms.add(("a",), 70, 2, 300, 100, 200)
    histograms.add(("a",), 71, 1, 50, 50, 50)
    assert histograms.sums.values == {("a",): 350}
    assert histograms.buckets == {("a",): {70: 2, 71: 1}}
    assert (histograms.least, histograms.greatest) == ({("a",): 50}, {("a",): 200})


def test_labels_are_printable_and_what_was_not_seen_is_said():
    """A topic's name must not clear the screen of whoever reads a scrape, nor end it twice."""
    assert label_text("a\x1b[2J\x7f\r") == "a\\x1b[2J\\x7f\\x0d"
    assert label_text("b\u202e") == "b\\u202e" and label_text(None) == UNKNOWN
