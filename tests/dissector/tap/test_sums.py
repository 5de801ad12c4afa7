"""Series of metrics are tallies: what they name is there, and rows become what they say."""

from dissector.queries.catalogue import catalogue
from dissector.tap.metrics import COUNTERS, HISTOGRAMS
from dissector.tap.sums import DURATIONS, SERIES, Sums
from dissector.tap.windows import Window


def test_every_series_names_a_tally_its_keys_and_its_sums():
    known = {**catalogue(), **catalogue("live")}
    for each in (*SERIES, *DURATIONS):
        query = known[each.tally]
        named = {*each.labels.values(), *(key for key, _ in (*each.where, *each.unless))}
        assert named <= {*query.keys}, each
        assert {*each.sums} <= {*query.merging}, each
    assert all("bucket" in known[each.tally].keys for each in DURATIONS)


def test_every_metric_has_its_sums():
    sums = Sums()
    assert {name for _, name, _ in COUNTERS} <= {*sums.counts}
    assert {name for _, name, _ in HISTOGRAMS} == {*sums.durations}
    assert all(not counts.values for _, counts in sums.all_counts())


def test_numbers_that_are_missing_are_said():
    sums = Sums()
    sums.fail(Window("run", (), 0, 0), MemoryError("no more of it"))
    assert sums.problem == "numbers of a window are missing: MemoryError: no more of it"
