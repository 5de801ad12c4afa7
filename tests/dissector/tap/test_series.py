"""Sums per set of labels: bounded, and the same as adding rows up one by one."""

import numpy as np
import pytest

from dissector.blocks import Coded, TableBlock
from dissector.buckets import bucket_of, buckets_of
from dissector.limits import NULL
from dissector.tap.series import (
    BOUNDS_NS,
    OTHER,
    UNKNOWN,
    Counts,
    Histograms,
    grouped,
    octaves_of,
)


@pytest.mark.parametrize("bound", range(len(BOUNDS_NS)))
def test_bounds_are_octaves_of_the_lakes_buckets(bound):
    last = BOUNDS_NS[bound]
    below, above = (octaves_of(np.array([bucket_of(each)]))[0] for each in (last, last + 1))
    assert (below, above) == (bound, bound + 1)


def test_the_shortest_and_the_longest_are_counted_too():
    assert octaves_of(buckets_of(np.array([0, 1, 63, 64]))).tolist() == [0, 0, 0, 0]
    assert (
        octaves_of(buckets_of(np.array([1 << 40, (1 << 63) - 1]))).tolist() == [len(BOUNDS_NS)] * 2
    )


def a_block() -> TableBlock:
    return TableBlock(
        "exchanges",
        5,
        {
            "topic": Coded(np.array([0, 1, 0, NULL, 1]), [b"a\xff", b"b"]),
            "outcome": ["ok", None, "ok", "ok", "lost"],
        },
    )


def test_rows_are_grouped_by_their_texts():
    keys, groups = grouped(a_block(), ("topic", "outcome"))
    assert [keys[group] for group in groups] == [
        ("a\\xff", "ok"),
        ("b", UNKNOWN),
        ("a\\xff", "ok"),
        (UNKNOWN, "ok"),
        ("b", "lost"),
    ]


def test_sets_beyond_the_bound_are_counted_together():
    counts = Counts(("topic",), limit=2)
    for name, count in (("a", 1), ("b", 2), ("c", 3), ("a", 4), ("d", 5), ("e", 0)):
        counts.add((name,), count)
    assert counts.values == {("a",): 5, ("b",): 2, (OTHER,): 8} and counts.left_out == 2


def test_histograms_leave_out_nulls_and_keep_sums():
    histograms = Histograms(("topic",))
    durations = np.array([1000, NULL, 10**9, 10**12, 2**17])
    groups = np.array([0, 0, 0, 1, 1])
    histograms.add_rows([("a",), ("b",)], groups, durations, buckets_of(durations))
    histograms.add_rows([("c",)], np.zeros(1, np.int64), np.array([NULL]), np.array([NULL]))
    assert set(histograms.counts) == {("a",), ("b",)}
    assert histograms.sums.values == {("a",): 10**9 + 1000, ("b",): 10**12 + 2**17}
    first = histograms.counts[("a",)]
    assert first[0] == 1 and first.sum() == 2 and first[13] == 1
    assert histograms.counts[("b",)][-1] == 1 and histograms.counts[("b",)][1] == 1
