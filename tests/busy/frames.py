"""Frames by the thousand: a template's bytes, with numbers of a fixed width put in by columns.

A number's width is that of its varint: ids count from `FROM`, so that all of a capture have four
bytes, and all frames of one template are equally long.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple

import crc32c
import lz4.block
import numpy as np

from captures.make.traffic import number, simple, text, varint

FROM: Final = 1 << 21  # ids count from here; their varints have four bytes up to 2^28
ID_BYTES: Final = 4
TIME_BYTES: Final = 6  # of a varint of milliseconds since 1970
NO_PARTITION: Final = number(3, 2**64 - 1)

Matrix = np.ndarray  # uint8, a row per frame
Ids = np.ndarray  # int64


class Hole(NamedTuple):
    """A number of a template. at: where its bytes begin; width: how many there are."""

    at: int
    width: int


class Template:
    """Bytes with holes: `make` is called once with numbers that are then looked for."""

    def __init__(self, make: Callable[..., bytes], widths: Sequence[int]) -> None:
        marks = [_mark(place, width) for place, width in enumerate(widths)]
        made = make(*marks)
        self._row = np.frombuffer(made, np.uint8)
        self._holes = []
        for mark, width in zip(marks, widths, strict=True):
            said = varint(mark)
            assert len(said) == width and made.count(said) == 1, (mark, width)
            self._holes.append(Hole(made.index(said), width))

    def fill(self, *columns: Ids) -> Matrix:
        """Rows of the template with these numbers, a column for each hole."""
        filled = np.repeat(self._row[None, :], len(columns[0]), axis=0)
        for hole, values in zip(self._holes, columns, strict=True):
            put_varints(filled, hole, values)
        return filled


def _mark(place: int, width: int) -> int:
    """A number whose varint has so many bytes and looks like no other part of a frame."""
    digits = [0x2A + place // 64, 0x35 + place % 64, 0x6B, 0x55, 0x4D, 0x39][:width]
    return sum(digit << 7 * index for index, digit in enumerate(digits))


def put_varints(rows: Matrix, hole: Hole, values: Ids) -> None:
    """Write numbers as varints into rows; each has just the hole's width."""
    at, width = hole
    if len(values):
        assert values.min() >> 7 * (width - 1) and not values.max() >> 7 * width
    if width == ID_BYTES:
        found = (
            values & 0x7F | (values & 0x3F80) << 1 | (values & 0x1FC000) << 2 | values >> 21 << 24
        )
        rows[:, at : at + 4] = (found | 0x808080).astype("<u4").view(np.uint8).reshape(-1, 4)
        return
    for index in range(width):
        more = 128 if index < width - 1 else 0
        rows[:, at + index] = values >> 7 * index & 127 | more


class Entries:
    """What a producer publishes: metadata and payload under a checksum, a row per entry.

    Args:
        name: of the producer. size: bytes of a message's payload. messages: in each entry.
        has_key: whether messages have a key: "key-" and four digits. is_lz4: whether payloads are
            compressed; all are the same then, so that all are equally long.
    """

    def __init__(
        self, name: bytes, size: int, messages: int, has_key: bool, is_lz4: bool = False
    ) -> None:
        self._size, self._messages, self._has_key = size, messages, has_key
        body, self._starts = self._body()
        whole_bytes = len(body)
        if is_lz4:
            for start in self._starts:
                letters = np.random.default_rng(start).integers(96, 112, size, np.uint8)
                body = body[:start] + letters.tobytes() + body[start + size :]
            body, self._starts = lz4.block.compress(body, store_size=False), []

        def make(sequence: int, published: int) -> bytes:
            told = text(1, name) + number(2, sequence) + number(3, published)
            if has_key:
                told += text(6, b"key-0000")
            if is_lz4:
                told += number(8, 1)
            if messages > 1 or is_lz4:
                told += number(9, whole_bytes)
            if messages > 1:
                told += number(11, messages)
            return b"\x0e\x01\0\0\0\0" + len(told).to_bytes(4, "big") + told + body

        self._template = Template(make, (ID_BYTES, TIME_BYTES))
        row = make(FROM, 1 << 40)
        self._body_at = len(row) - len(body)
        self._key_at = row.index(b"key-0000") + 4 if has_key else 0

    def _body(self) -> tuple[bytes, list[int]]:
        """The payload, and where the messages' own bytes begin in it."""
        if self._messages == 1:
            return bytes(self._size), [0]
        own = number(3, self._size)
        one = len(own).to_bytes(4, "big") + own + bytes(self._size)
        return one * self._messages, [
            index * len(one) + 4 + len(own) for index in range(self._messages)
        ]

    def make(
        self, sequences: Ids, published_ms: Ids, keys: Ids, chance: np.random.Generator
    ) -> Matrix:
        """One entry for each sequence id, with letters as payload, checksums in place."""
        rows = self._template.fill(sequences, published_ms)
        shape = (len(rows), self._size)
        for start in self._starts:
            at = self._body_at + start
            letters = np.frombuffer(chance.bytes(shape[0] * shape[1]), np.uint8) & 15 | 96
            rows[:, at : at + self._size] = letters.reshape(shape)
        if self._has_key:
            for digit in range(4):
                rows[:, self._key_at + 3 - digit] = keys // 10**digit % 10 + 48
        covered = np.ascontiguousarray(rows[:, 6:])
        view, width = memoryview(covered.reshape(-1)), covered.shape[1]
        sums = [crc32c.crc32c(view[at : at + width]) for at in range(0, len(view), width)]
        rows[:, 2:6] = np.array(sums, ">u4").view(np.uint8).reshape(-1, 4)
        return rows


class Head:
    """What stands before the entry in SEND and MESSAGE: the command behind its sizes."""

    def __init__(self, make: Callable[..., bytes], widths: Sequence[int]) -> None:
        """make: the BaseCommand."""

        def framed(*values: int) -> bytes:
            said = make(*values)
            return bytes(4) + len(said).to_bytes(4, "big") + said

        self._template = Template(framed, widths)

    def before(self, entries: Matrix, *columns: Ids) -> Matrix:
        """Whole frames of these entries."""
        rows = self._template.fill(*columns)
        total = rows.shape[1] - 4 + entries.shape[1]
        rows[:, :4] = np.frombuffer(total.to_bytes(4, "big"), np.uint8)
        return np.hstack((rows, entries))


def command(kind: int, body: bytes) -> bytes:
    """A BaseCommand: its type, and the message in the field of the same number."""
    return number(1, kind) + text(kind, body)


def place(ledger: int, entry: int, more: bytes = b"") -> bytes:
    """A message id."""
    return number(1, ledger) + number(2, entry) + NO_PARTITION + more


@cache
def send_head(messages: int) -> Head:
    """SEND; holes: sequence id."""
    batched = number(3, messages) if messages > 1 else b""
    return Head(
        lambda sequence: command(6, number(1, 1) + number(2, sequence) + batched), (ID_BYTES,)
    )


@cache
def message_head(ledger: int) -> Head:
    """MESSAGE for the first time; holes: entry id."""
    return Head(lambda entry: command(9, number(1, 1) + text(2, place(ledger, entry))), (ID_BYTES,))


@cache
def redelivered_head(ledger: int) -> Head:
    """MESSAGE again; holes: entry id, redelivery count."""
    return Head(
        lambda entry, count: command(
            9, number(1, 1) + text(2, place(ledger, entry)) + number(3, count)
        ),
        (ID_BYTES, 1),
    )


@cache
def receipt(ledger: int) -> Template:
    """SEND_RECEIPT; holes: sequence id, entry id."""
    return Template(
        lambda sequence, entry: simple(
            7, number(1, 1) + number(2, sequence) + text(3, place(ledger, entry))
        ),
        (ID_BYTES, ID_BYTES),
    )


@cache
def ack(ledger: int, ids: int = 1, is_cumulative: bool = False, is_asked: bool = False) -> Template:
    """ACK of so many entries; holes: their ids, and with is_asked a request id."""

    def make(*values: int) -> bytes:
        entries = values[:ids]
        told = b"".join(text(3, place(ledger, entry)) for entry in entries)
        asked = number(8, values[ids]) if is_asked else b""
        return simple(10, number(1, 1) + number(2, int(is_cumulative)) + told + asked)

    return Template(make, (ID_BYTES,) * (ids + is_asked))


@cache
def part_ack(ledger: int, messages: int, left: int) -> Template:
    """ACK of a batch but for the messages whose bits are set in `left`; holes: entry id."""
    more = number(5, left) + number(6, messages)
    return Template(
        lambda entry: simple(10, number(1, 1) + number(2, 0) + text(3, place(ledger, entry, more))),
        (ID_BYTES,),
    )


@cache
def ack_response() -> Template:
    """ACK_RESPONSE; holes: request id."""
    return Template(lambda request: simple(38, number(1, 1) + number(6, request)), (ID_BYTES,))


@cache
def redeliver(ledger: int, ids: int) -> Template:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES of so many entries; holes: their ids."""
    return Template(
        lambda *entries: simple(
            20, number(1, 1) + b"".join(text(2, place(ledger, entry)) for entry in entries)
        ),
        (ID_BYTES,) * ids,
    )


def rows_of(frame: bytes, count: int) -> Matrix:
    """The same frame so many times."""
    return np.repeat(np.frombuffer(frame, np.uint8)[None, :], count, axis=0)
