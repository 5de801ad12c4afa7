"""Durations, sizes and shares as people read them."""

import pytest

from dissector.schemas.quantities import (
    about_text,
    bytes_text,
    duration_text,
    share_text,
    significant,
)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0"), (0.0000004, "0 ns"), (0.00085, "850 ns"), (0.0123, "12.3 µs"), (1.5, "1.5 ms"),
        (999.6, "1,000 ms"), (12_345, "12.3 s"), (60_000, "1 min 0 s"), (125_000, "2 min 5 s"),
        (3_600_000, "1 h 0 min"), (90_000_000, "25 h 0 min"),
    ],
)  # fmt: skip
def test_durations_have_the_unit_that_suits_them(ms: float, text: str) -> None:
    assert duration_text(ms) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1024, "1.00 KiB"), (5 << 30, "5.00 GiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [(0, "0 %"), (0.00001, "< 0.01 %"), (0.5, "50 %"), (0.99999, "> 99.99 %"), (1, "100 %")],
)
def test_what_is_not_quite_all_or_nothing_does_not_look_like_it(part: float, text: str) -> None:
    assert share_text(part) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.00001234, "0.000012"), (0.0999, "0.10"), (4.391, "4.4"), (9.96, "10"),
     (15.335, "15"), (1234.5, "1,200"), (99_999, "100,000")],
)  # fmt: skip
def test_two_digits_are_kept_and_no_exponent_is_shown(value: float, text: str) -> None:
    assert significant(value) == text


def test_what_a_bucket_says_has_two_digits_and_a_unit() -> None:
    assert about_text(4.391) == "4.4 ms" and about_text(0.01534) == "15 µs"
    assert about_text(197.3) == "200 ms" and about_text(125_000) == "2 min 5 s"
