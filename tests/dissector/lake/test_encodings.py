"""Encoded pages, decoded one value at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.lake.encodings import (
    code_page,
    delta_run,
    flag_page,
    level_run,
    number_page,
    text_page,
)
from dissector.limits import NULL
from tests.naive.parquet import read_bits, read_deltas, read_hybrid, read_levels

EXTREMES = (0, 1, -1, 2**62, -(2**62), 2**63 - 1, -(2**63), -(2**63) + 1)
NUMBERS = st.one_of(st.none(), st.sampled_from(EXTREMES), st.integers(-300, 300))


def space(rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(rows + 136, 77, np.int64), np.full(10 * rows + 1024, 99, np.uint8)


def with_null(values: list[int | None]) -> np.ndarray:
    return np.array([NULL if value is None else value for value in values], np.int64)


@given(st.lists(NUMBERS, min_size=1, max_size=300), st.booleans())
def test_numbers_come_back(values: list[int | None], is_time: bool) -> None:
    scratch, out = space(len(values))
    page = number_page(with_null(values), is_time, scratch, out)
    data = out[: page.size].tobytes()
    present, at = read_levels(data, 0, len(values), 1)
    found, at = read_deltas(data, at)
    wanted = [v // 1000 if is_time else v for v in values if v is not None]
    assert present == [int(v is not None) for v in values]
    assert found == wanted and page.values == len(wanted) and at == page.size
    if wanted:
        assert (page.least, page.most) == (min(wanted), max(wanted))
    else:
        assert page.least > page.most


@pytest.mark.parametrize("width", range(1, 65))
def test_deltas_of_every_width_come_back(width: int) -> None:
    steps = np.array([(1 << width) - 1, 0, 1, (1 << (width - 1)) + 1] * 50, dtype=object)
    total, values = 0, []
    for step in steps:
        total = (total + step) % (1 << 64)
        values.append(total - (1 << 64) if total >> 63 else total)
    _, out = space(len(values))
    size = delta_run(np.array(values, np.int64), np.empty(128, np.int64), out)
    assert read_deltas(out[:size].tobytes(), 0) == (values, size)


@pytest.mark.parametrize("rows", [1, 2, 31, 32, 33, 128, 129, 130, 257, 1000])
def test_pages_of_any_length_come_back(rows: int) -> None:
    scratch, out = space(rows)
    values = (np.arange(rows) * 7919) % 1009
    page = number_page(values, False, scratch, out)
    data = out[: page.size].tobytes()
    assert read_deltas(data, read_levels(data, 0, rows, 1)[1]) == (values.tolist(), page.size)


@given(
    st.lists(
        st.lists(st.one_of(st.just(-1), st.integers(0, 70)), min_size=1, max_size=60), max_size=4
    ),
    st.integers(1, 71),
)
def test_codes_become_places_in_order_of_first_use(pages: list[list[int]], names: int) -> None:
    indices = np.full(names, -1, np.int32)
    used = np.full(names, -5, np.int64)
    count, order = 0, []
    for codes in pages:
        codes = [code if code < names else -1 for code in codes]
        scratch, out = space(len(codes))
        page = code_page(np.array(codes, np.int32), indices, used, count, scratch, out)
        count = page.used
        data = out[: page.size].tobytes()
        present, at = read_levels(data, 0, len(codes), 1)
        assert present == [int(code >= 0) for code in codes]
        wanted = [code for code in codes if code >= 0]
        order += [code for code in dict.fromkeys(wanted) if code not in order]
        found, at = read_hybrid(data, at + 1, len(wanted), data[at])
        assert [order[index] for index in found] == wanted
        assert at == page.size and page.values == len(wanted)
        assert {order[index] for index in scratch[: page.indices]} == {*wanted}
    assert used[:count].tolist() == order


@given(st.lists(st.sampled_from([None, True, False]), min_size=1, max_size=70))
def test_flags_come_back(flags: list[bool | None]) -> None:
    out = np.full(len(flags) + 1024, 99, np.uint8)
    page = flag_page(
        np.array([bool(f) for f in flags], np.bool_),
        np.array([f is not None for f in flags], np.bool_),
        out,
    )
    data = out[: page.size].tobytes()
    present, at = read_levels(data, 0, len(flags), 1)
    wanted = [int(f) for f in flags if f is not None]
    assert present == [int(f is not None) for f in flags]
    assert read_bits(data, at, len(wanted), 1) == (wanted, page.size)


def test_texts_stand_behind_their_lengths() -> None:
    out = np.zeros(32, np.uint8)
    data = np.frombuffer(b"..abcde", np.uint8)
    bounds, present = np.array([2, 5, 5, 7]), np.array([1, 0, 1], np.uint8)
    size = text_page(data, bounds, present, out)
    assert out[:size].tobytes() == b"\3\0\0\0abc\2\0\0\0de"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_levels_come_back(levels: list[int]) -> None:
    padded = np.zeros(len(levels) + -len(levels) % 8, np.int64)
    padded[: len(levels)] = levels
    out = np.zeros(200, np.uint8)
    size = level_run(padded, 2, out)
    assert read_levels(out[:size].tobytes(), 0, len(levels), 2)[0] == levels
