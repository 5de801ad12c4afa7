"""Inspects a capture file before it is read: whether it is one, and which time it covers.

The first packet's time needs the beginning of the file. The last packet's time is needed only to
tell ring files from unrelated ones; it is read from the file's end if records can be located there,
otherwise the whole file is read.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.capture import pcap
from dissector.capture.pcap import LengthOrder, PcapLayout
from dissector.capture.reader import HEAD_BYTES, PCAP, CaptureReader, capture_format
from dissector.sources.decompress import InputBytes
from dissector.sources.files import FileProblem, not_a_capture, unreadable
from dissector.sources.locations import open_seekable

_FIRST_BYTES: Final = 1 << 16
BEGIN_BYTES: Final = 1 << 12  # of a file, kept to tell it from others without opening it again
_READ_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 1 << 19
_LOOK_ROWS: Final = 4096
_CONFIRMING: Final = 4  # records in a row that end where the next begins, up to the end of the file
_DAY_SECONDS: Final = 86_400


class Look(NamedTuple):
    """first_ts_ns: of the first packet, None if there is none; problem: why the file is no input;
    begin: its first BEGIN_BYTES, uncompressed, fewer only if it is shorter."""

    path: str
    first_ts_ns: int | None
    problem: FileProblem | None
    begin: bytes = b""
    is_compressed: bool = False


def _blocks(source: InputBytes, reader: CaptureReader, first_bytes: int) -> Iterator[int]:
    """Read a file block by block into reader.packets; yields the rows of each block.

    The buffer grows only if a record does not fit, so at most to the longest record.
    """
    data: ByteArray = np.empty(first_bytes, np.uint8)
    start = end = 0
    is_last = False
    reader.start_file()
    while True:
        if end == len(data):
            if start == 0:
                data = np.concatenate([data, np.empty_like(data)])
            else:
                data[: end - start] = data[start:end].copy()
                start, end = 0, end - start
        while end < len(data) and not is_last:
            count = source.read_into(data.data[end:])
            is_last = count == 0
            end += count
        while True:
            scan = reader.feed(data, start, end, is_last)
            start = scan.consumed
            if scan.rows:
                yield scan.rows
            if not scan.is_more:
                break
        if is_last or reader.is_over:
            return


def look(path: str) -> Look:
    """Read the beginning of a file: its format and the time of its first packet."""
    try:
        source = InputBytes(path)
    except OSError as error:
        return Look(path, None, unreadable(path, error))
    try:
        begin = next(_pieces(source, BEGIN_BYTES))
    except OSError as error:
        return Look(path, None, unreadable(path, error))
    finally:
        source.close()
    head = begin[:HEAD_BYTES]
    if len(head) < HEAD_BYTES or capture_format(head) is None:
        return Look(path, None, not_a_capture(path, head, source.problem))
    return Look(path, _first_ts_ns(path), None, begin, source.codec is not None)


def _first_ts_ns(path: str) -> int | None:
    """Return the time of the first packet of a capture file."""
    source = InputBytes(path)
    try:
        reader = CaptureReader(_LOOK_ROWS)
        for _ in _blocks(source, reader, _FIRST_BYTES):
            return int(reader.packets.ts_ns[0])
    except OSError:
        pass
    finally:
        source.close()
    return None


def last_ts_ns(path: str) -> int | None:
    """Return the time of the last packet of a capture file; None if there is none."""
    source = InputBytes(path)
    try:
        if source.codec is None and (ts_ns := _last_of_pcap(path)) is not None:
            return ts_ns
        reader = CaptureReader()
        last: int | None = None
        for rows in _blocks(source, reader, _READ_BYTES):
            last = int(reader.packets.ts_ns[rows - 1])
        return last
    except OSError:
        return None
    finally:
        source.close()


def _pieces(source: InputBytes, piece_bytes: int) -> Iterator[bytes]:
    """Yield the uncompressed bytes of an input in chunks of equal size, the last one shorter."""
    piece = bytearray(piece_bytes)
    while True:
        size = 0
        while size < len(piece):
            count = source.read_into(memoryview(piece)[size:])
            if count == 0:
                break
            size += count
        yield bytes(piece[:size])
        if size < len(piece):
            return


def longer_of(one: Look, other: Look) -> Look | None:
    """Return the file whose uncompressed bytes begin with all bytes of the other; `one` if equal.

    None if neither does, or if one cannot be read to its end. Files whose beginnings differ are not
    opened: of a thousand files that begin at the same time, each is compared with each.
    """
    if not _is_prefix_of_one(one.begin, other.begin):
        return None
    try:
        with closing(InputBytes(one.path)) as first, closing(InputBytes(other.path)) as second:
            both = zip(_pieces(first, _READ_BYTES), _pieces(second, _READ_BYTES), strict=False)
            for mine, theirs in both:
                if not _is_prefix_of_one(mine, theirs):
                    return None
                if len(mine) != len(theirs):
                    return one if len(mine) > len(theirs) else other
    except OSError:
        return None
    return one if first.problem is None or second.problem is not None else other


def _is_prefix_of_one(one: bytes, other: bytes) -> bool:
    return one.startswith(other) or other.startswith(one)


def _last_of_pcap(path: str) -> int | None:
    """Return the time of the last record of a large uncompressed pcap file, from its end alone.

    Records have no magic number, so every byte of the tail is tried as a start: its header must be
    credible, and consecutive records must lead exactly to the end of the file. None if no start
    satisfies this, or several do, as when the file is cut.
    """
    with open_seekable(path) as file:
        head = file.read(_FIRST_BYTES)
        size = file.seek(0, os.SEEK_END)
        if capture_format(head[:HEAD_BYTES]) != PCAP or size <= _TAIL_BYTES + len(head):
            return None
        file.seek(size - _TAIL_BYTES)
        tail = file.read(_TAIL_BYTES)
    layout = pcap.read_header(head).layout
    if layout.lengths != LengthOrder.IN_ORDER:
        return None
    at = pcap.header_bytes(int.from_bytes(head[:4], "big"))
    first = int.from_bytes(head[at : at + 4], "big" if layout.is_big_endian else "little")
    return _last_in_tail(tail, layout, first)


def _last_in_tail(tail: bytes, layout: PcapLayout, first_seconds: int) -> int | None:
    """Return the time of the last record in the last bytes of a pcap file."""
    count = len(tail) - layout.record_header_bytes + 1

    def words(offset: int) -> Int64Array:
        order = ">" if layout.is_big_endian else "<"
        return np.ndarray((count,), f"{order}u4", tail, offset, (1,)).astype(np.int64)

    seconds, fraction, captured, wire = words(0), words(4), words(8), words(12)
    is_credible = (
        (wire >= captured)
        & (wire <= pcap.LONGEST_WITHOUT_SNAPLEN)
        & (fraction < 1_000_000_000 // layout.unit_ns)
        & (seconds >= first_seconds - _DAY_SECONDS)
        & ((seconds | fraction | wire) != 0)  # as in the scan: zeros are damage
    )
    after = np.arange(count) + layout.record_header_bytes + captured
    after[~is_credible] = -1
    index = len(tail)
    last: int | None = None
    for _ in range(_CONFIRMING):
        starts = np.flatnonzero(after == index)
        if len(starts) != 1:
            return None
        index = int(starts[0])
        if last is None:
            last = int(seconds[index]) * 1_000_000_000 + int(fraction[index]) * layout.unit_ns
    return last
