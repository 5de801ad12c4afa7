"""Converts text from the wire to Arrow strings: invalid UTF-8 becomes \\xNN, bytes hex digits.

Arrays are always built from buffers: `pyarrow.array` on Python objects and Arrow's compute
functions import pandas and more, which would cost every run a third of a second.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dissector.blocks import ByteArray, Int64Array, Spans
from dissector.schemas.spans import gather_spans


def plain_text(value: bytes | str) -> str:
    """Return valid UTF-8 text: escapes invalid bytes and lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value.decode("utf-8", "backslashreplace")


def plain_bytes(values: Iterable[bytes | str]) -> list[bytes]:
    """Return the UTF-8 bytes of `plain_text` of each; fast, as a flood names a topic per packet."""
    return [
        (value if isinstance(value, bytes) else value.encode())
        if value.isascii()
        else plain_text(value).encode()
        for value in values
    ]


def text_array(values: Sequence[bytes | str | None]) -> pa.Array:
    """Build an array of strings from texts, bytes and None."""
    present = [value for value in values if value is not None]
    try:
        joined = "".join(present)  # type: ignore[arg-type]  # most are ASCII texts
    except TypeError:  # some are bytes
        joined = "\xff"
    if joined.isascii():
        data, sizes = joined.encode(), [*map(len, present)]
    else:
        texts = plain_bytes(present)
        data, sizes = b"".join(texts), [*map(len, texts)]
    lengths = np.full(len(values), -1, np.int64)
    lengths[[value is not None for value in values]] = sizes
    return _string_array(np.frombuffer(data, np.uint8), lengths)


def coded_array(codes: npt.NDArray[Any], names: Sequence[bytes] | Sequence[str]) -> pa.Array:
    """Build strings of coded rows; converts each name once; a negative code is null."""
    used, inverse = np.unique(codes, return_inverse=True)
    texts = plain_bytes([names[code] if code >= 0 else b"" for code in used.tolist()])
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    starts = np.cumsum(lengths) - lengths
    lengths[used < 0] = -1
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    return _string_array(gathered(data, starts[inverse], lengths[inverse]), lengths[inverse])


def spans_array(spans: Spans, start: int, stop: int) -> pa.Array:
    """Build strings of the rows [start, stop) of a spans column."""
    starts, lengths = spans.starts[start:stop], spans.lengths[start:stop]
    data = gathered(spans.data, starts, lengths)
    if spans.is_hex:
        digits = _HEX_DIGITS[data].view(np.uint8)
        return _string_array(digits, np.where(lengths < 0, lengths, lengths * 2))
    array = _string_array(data, lengths)
    if len(data) == 0 or data.max() < 0x80 or _is_utf8(array):
        return array
    return text_array(array.view(pa.binary()).to_pylist())


def all_null(array: npt.NDArray[Any], null: int) -> bool:
    """Whether every value is the null number; the first value decides most cases."""
    return len(array) == 0 or (array[0] == null and bool((array == null).all()))


def gathered(values: npt.NDArray[Any], starts: Int64Array, counts: Int64Array) -> npt.NDArray[Any]:
    """Concatenate the values of ranges; keeps the dtype; a range with negative count is empty."""
    used = counts > 0
    if not used.any():
        return np.empty(0, values.dtype)
    starts, counts = starts[used], counts[used]
    assert starts.min() >= 0 and (starts + counts).max() <= len(values), "a range outside its data"
    total = int(counts.sum())
    if total == int(starts[-1] + counts[-1] - starts[0]) and bool(
        (starts[1:] == (starts + counts)[:-1]).all()
    ):
        return values[starts[0] : starts[0] + total]
    width = values.dtype.itemsize
    out = np.empty(total, values.dtype)
    data = np.ascontiguousarray(values).view(np.uint8)
    gather_spans(data, starts * width, counts * width, out.view(np.uint8))
    return out


def _is_utf8(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _string_array(data: ByteArray, lengths: Int64Array) -> pa.Array:
    """Build strings over concatenated bytes; a negative length is null."""
    rows = len(lengths)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    present = lengths >= 0
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


_HEX_DIGITS = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.dtype("<u2"))
