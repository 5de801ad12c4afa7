"""Counts as people read them."""

from dissector.report.formatting import count_text, many


def test_counts_have_commas_and_nouns_that_agree() -> None:
    assert count_text(1234567) == "1,234,567"
    assert many(1, "send") == "1 send" and many(2000, "send") == "2,000 sends"
