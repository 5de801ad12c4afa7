"""Text from the wire: escapes, hex digits, scattered ranges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.blocks import Spans
from dissector.schemas.text import gathered, plain_text, spans_array, text_array
from tests.naive.rows import escaped


@given(st.binary(max_size=12))
def test_bytes_that_are_not_utf8_are_escaped_one_by_one(data: bytes) -> None:
    assert plain_text(data) == escaped(data)


def test_lone_surrogates_are_escaped() -> None:
    assert text_array(["a\udcffb", None, "c"]).to_pylist() == ["a\\udcffb", None, "c"]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=8), st.booleans())
def test_spans_in_any_order_become_text(texts: list[bytes | None], is_hex: bool) -> None:
    data, starts = b"", []
    for text in reversed(texts):
        starts.append(len(data))
        data += text or b""
    lengths = np.array([-1 if text is None else len(text) for text in texts], np.int64)
    spans = Spans(np.frombuffer(data, np.uint8), np.array(starts[::-1], np.int64), lengths, is_hex)
    array = spans_array(spans, 0, len(texts))
    array.validate(full=True)
    show = bytes.hex if is_hex else escaped
    assert array.to_pylist() == [None if text is None else show(text) for text in texts]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64], ids=["bytes", "numbers"])
@given(ranges=st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 6)), max_size=8))
def test_gathered_joins_ranges(dtype: type, ranges: list[tuple[int, int]]) -> None:
    values = np.arange(16).astype(dtype)
    starts = np.array([start for start, _ in ranges], np.int64)
    counts = np.array([count for _, count in ranges], np.int64)
    wanted = [v for start, count in ranges for v in values[start : start + max(count, 0)].tolist()]
    assert gathered(values, starts, counts).tolist() == wanted
