"""Counts as people read them."""

import pytest

from dissector.report.formatting import count_text, many, percentile_ms, time_text


def test_counts_have_commas_and_nouns_that_agree() -> None:
    assert count_text(1234567) == "1,234,567"
    assert many(1, "send") == "1 send" and many(2000, "send") == "2,000 sends"


@pytest.mark.parametrize(
    ("value", "is_exact", "text"),
    [(4.391, False, "4.4"), (4.391, True, "4.391"), (1.5, False, "1.500"), (20.0, False, "20.000"),
     (None, False, "-")],
)  # fmt: skip
def test_percentiles_of_buckets_have_two_digits_and_values_have_all(value, is_exact, text):
    assert percentile_ms({"min": 1.5, "p50": value, "max": 20.0}, "p50", is_exact) == text
    assert percentile_ms({}, "p50") == "-"


@pytest.mark.parametrize(
    ("name", "is_exact", "text"),
    [("p50", False, "4.4 ms"), ("p50", True, "4.39 ms"), ("p99", False, "20 ms"),
     ("mean", False, "4.57 ms"), ("max", False, "20 ms"), ("p95", False, None)],
)  # fmt: skip
def test_times_with_units_have_the_digits_that_percentiles_have(name, is_exact, text):
    times = {"min": 1.5, "p50": 4.391, "p95": None, "p99": 20.0, "max": 20.0, "mean": 4.567}
    assert time_text(times, name, is_exact) == text
    assert time_text({}, name) is None
