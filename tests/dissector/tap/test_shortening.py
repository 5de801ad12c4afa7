"""Shortened names: they fit, and different ones stay different."""

import random

import pytest

from dissector.tap.shortening import common_folder, shortened


def test_what_all_names_share_is_found_up_to_a_slash():
    names = ["persistent://public/default/orders-1", "persistent://public/default/orders-2"]
    assert common_folder(names) == "persistent://public/default/"
    assert common_folder([*names, "persistent://public/other/x"]) == "persistent://public/"
    assert common_folder(names[:1]) == "persistent://public/default/"
    assert common_folder([*names, "unknown"]) == "persistent://public/default/"
    assert common_folder(["orders", "bills"]) == common_folder([]) == ""


def test_the_end_of_a_name_is_kept_if_it_tells_names_apart():
    names = [f"tenant/space/a-topic-with-a-long-name-{number}" for number in range(3)]
    assert shortened(names, 20) == [f"…ith-a-long-name-{number}"[-20:].rjust(20, "…") for number in
                                    range(3)] or all(
        name.endswith(f"-{number}") for number, name in enumerate(shortened(names, 20))
    )  # fmt: skip
    assert shortened(["short"], 20) == ["short"]


def test_names_that_differ_at_the_beginning_keep_it():
    names = [f"tenant-{number}/space/{'x' * 40}" for number in range(3)]
    short = shortened(names, 24)
    assert [name[:8] for name in short] == ["tenant-0", "tenant-1", "tenant-2"]


@pytest.mark.parametrize("width", [8, 13, 30])
def test_different_names_are_never_shown_alike(width):
    chance = random.Random(width)
    for _ in range(200):
        count = chance.randint(1, 15)
        names = ["".join(chance.choices("ab/", k=chance.randint(1, 60))) for _ in range(count)]
        short = shortened(names, width)
        assert all(len(name) <= width for name in short)
        assert len(set(short)) == len(set(names))
