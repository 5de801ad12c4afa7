"""Time spans, rotations and speeds as users write them."""

import click
import pytest

from dissector.cli.spans import DURATION, ROTATE, SPEED, Rotate


@pytest.mark.parametrize(
    ("text", "rotate"),
    [
        ("60s", Rotate(60, None)),
        ("256MB", Rotate(None, 256_000_000)),
        ("5m,64KiB", Rotate(300, 65_536)),
        ("1MB,500ms", Rotate(0.5, 1_000_000)),
        ("2m", Rotate(120, None)),
    ],
)
def test_rotations_end_by_time_or_size(text, rotate):
    assert ROTATE.convert(text, None, None) == rotate


@pytest.mark.parametrize("text", ["", "0s", "0", "soon", "60s,x"])
def test_other_rotations_are_refused(text):
    with pytest.raises(click.BadParameter):
        ROTATE.convert(text, None, None)


def test_what_is_neither_time_nor_size_is_told_of_both():
    for text in ("10x", "256MB,10x"):
        with pytest.raises(click.BadParameter, match="'10x' is neither time nor size; write 60s"):
            ROTATE.convert(text, None, None)


def test_spans_have_units_and_speeds_names():
    assert DURATION.convert("1.5h", None, None) == 5400
    assert [SPEED.convert(text, None, None) for text in ("max", "real", "8")] == [0, 1, 8]
    for kind, text in ((DURATION, "5"), (DURATION, "0s"), (SPEED, "fast"), (SPEED, "-1")):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)
