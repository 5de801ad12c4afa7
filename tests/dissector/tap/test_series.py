"""Sums per set of labels: bounded, and the same as adding rows up one by one."""

import numpy as np
import pytest

from dissector.blocks import Coded, TableBlock
from dissector.buckets import bucket_bounds, bucket_of
from dissector.limits import NULL
from dissector.tap.series import (
    BOUNDS_NS,
    OTHER,
    UNKNOWN,
    Counts,
    Groups,
    Histograms,
)


def histogram_of(*durations: int) -> list[int]:
    """Counts of durations of one label set."""
    histograms = Histograms(("topic",))
    block = TableBlock("exchanges", len(durations), {"topic": ["a"] * len(durations)})
    histograms.add_groups(Groups(block, ("topic",)), ("topic",), np.array(durations, np.int64))
    return histograms.counts[("a",)].tolist()


@pytest.mark.parametrize("bound", range(len(BOUNDS_NS)))
def test_bounds_are_octaves_of_the_lakes_buckets(bound):
    last = BOUNDS_NS[bound]
    counts = histogram_of(last, last + 1)
    assert (counts[bound], counts[bound + 1]) == (1, 1) and sum(counts) == 2
    # A bucket of the lake never lies on both sides of a bound.
    assert bucket_bounds(bucket_of(last))[1] == last


def test_the_shortest_and_the_longest_are_counted_too():
    assert histogram_of(0, 1, 63, 64)[0] == 4
    assert histogram_of(1 << 40, (1 << 63) - 1)[-1] == 2


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
    groups = Groups(a_block(), ("topic", "outcome"))
    keys = groups.keys(("topic", "outcome"))
    assert [keys[group] for group in groups.of_row] == [
        ("a\\xff", "ok"),
        ("b", UNKNOWN),
        ("a\\xff", "ok"),
        (UNKNOWN, "ok"),
        ("b", "lost"),
    ]
    assert groups.rows == [2, 1, 1, 1]
    assert groups.keys(("outcome",)) == [("ok",), (UNKNOWN,), ("ok",), ("lost",)]
    assert groups.sums(np.array([1, 2, 3, NULL, 5])) == [4, 2, 0, 5]


def test_groups_are_chosen_by_a_text_or_by_its_absence():
    groups = Groups(a_block(), ("topic", "outcome"))
    assert groups.where("outcome", ("ok", "lost")) == [0, 2, 3]
    assert groups.where("outcome", ("ok",), is_one=False) == [1, 3]
    assert groups.where("topic", (None,)) == [2]
    assert groups.where("topic", (UNKNOWN,)) == []  # what is null is not called so


def test_chosen_groups_are_counted_under_fewer_labels():
    counts = Counts(("outcome",))
    groups = Groups(a_block(), ("topic", "outcome"))
    counts.add_groups(groups, ("outcome",), groups.rows)
    assert counts.values == {("ok",): 3, (UNKNOWN,): 1, ("lost",): 1}
    counts.add_groups(groups, ("outcome",), groups.rows, groups.where("topic", ("b",)))
    assert counts.values == {("ok",): 3, (UNKNOWN,): 2, ("lost",): 2}


def test_sets_beyond_the_bound_are_counted_together():
    counts = Counts(("topic",), limit=2)
    for name, count in (("a", 1), ("b", 2), ("c", 3), ("a", 4), ("d", 5), ("e", 0)):
        counts.add((name,), count)
    assert counts.values == {("a",): 5, ("b",): 2, (OTHER,): 8} and counts.left_out == 2


def test_histograms_leave_out_nulls_and_keep_sums():
    histograms = Histograms(("topic",))
    durations = np.array([1000, NULL, 10**9, 10**12, 2**17, NULL])
    block = TableBlock("exchanges", 6, {"topic": ["a", "a", "a", "b", "b", "c"]})
    groups = Groups(block, ("topic",))
    histograms.add_groups(groups, ("topic",), durations)
    histograms.add_groups(groups, ("topic",), durations, groups.where("topic", ("c",)))
    assert set(histograms.counts) == {("a",), ("b",)}
    assert histograms.sums.values == {("a",): 10**9 + 1000, ("b",): 10**12 + 2**17}
    first = histograms.counts[("a",)]
    assert first[0] == 1 and first.sum() == 2 and first[13] == 1
    assert histograms.counts[("b",)][-1] == 1 and histograms.counts[("b",)][1] == 1
    histograms.add_groups(groups, ("topic",), durations, groups.where("topic", ("b",)))
    assert histograms.counts[("b",)].sum() == 4 and histograms.counts[("a",)].sum() == 2


def test_labels_are_printable_and_names_that_are_shown_alike_are_one():
    """A topic's name must not clear the screen of whoever reads a scrape, nor end it twice."""
    names = [b"a\x1b[2J\x7f\r", "b‮".encode(), b"a\\x1b[2J\\x7f\\x0d"]
    block = TableBlock("exchanges", 3, {"topic": Coded(np.array([0, 1, 2]), names)})
    counts = Counts(("topic",))
    groups = Groups(block, ("topic",))
    counts.add_groups(groups, ("topic",), groups.rows)
    assert counts.values == {("a\\x1b[2J\\x7f\\x0d",): 2, ("b\\u202e",): 1}
