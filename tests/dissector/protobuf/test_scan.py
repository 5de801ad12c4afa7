"""Walking protobuf bytes: wire types, bounds, room, and what is malformed."""

import numpy as np
import pytest

from dissector.blocks import ByteArray
from dissector.codecs.names import NameTable
from dissector.limits import NULL
from dissector.protobuf.plan import FieldColumn, FieldPlan, Root, build_plan
from dissector.protobuf.scan import (
    USED_IDS,
    USED_WORDS,
    ScanOutput,
    SpanColumns,
    SpanResult,
    doubled,
    new_output,
    scan,
)

COLUMNS = (
    "ledger_id", "partition", "name", "text_at", "text_bytes", "first_id", "id_count", "flag",
    "set_at", "set_count", "permits",
)  # fmt: skip
CHILD = ("parent", "ledger_id", "ack_set_at", "ack_set_count")
COLUMN = {name: number for number, name in enumerate(COLUMNS)}


def plan() -> FieldPlan:
    wanted = [
        FieldColumn("send_receipt.message_id.ledgerId", "ledger_id"),
        FieldColumn("send_receipt.message_id.partition", "partition", null=-1),
        FieldColumn("lookupTopic.topic", "name"),
        FieldColumn("error.message", "text"),
        FieldColumn("ack.message_id", "ids"),
        FieldColumn("ack.message_id.ledgerId", "ids.ledger_id"),
        FieldColumn("ack.message_id.ack_set", "ids.ack_set"),
        FieldColumn("active_consumer_change.is_active", "flag"),
        FieldColumn("message.ack_set", "set"),
        FieldColumn("flow.messagePermits", "permits"),
    ]
    return build_plan([Root("BaseCommand", wanted)], COLUMNS, CHILD)


def run(parts: list[bytes]) -> tuple[np.ndarray, ScanOutput, list[int], NameTable]:
    """Every part into a row of its own."""
    names = NameTable(100, 1000)
    matrix = np.full((len(COLUMNS), len(parts)), NULL, np.int64)
    spans = SpanColumns(np.zeros((len(SpanColumns._fields), len(parts)), np.int64))
    data = np.frombuffer(bytearray(b"".join(parts) + b"\x01"), np.uint8)
    lengths = np.array([len(part) for part in parts])
    spans.row[:] = np.arange(len(parts))
    spans.end[:] = np.cumsum(lengths)
    spans.at[:] = spans.end - lengths
    empty: ByteArray = np.zeros(1, np.uint8)
    sources = (data, empty, empty, empty)
    out = new_output(matrix, len(CHILD), names.columns)
    wanted = plan()
    first = scan(wanted, out, sources, spans, 0, len(parts))
    while first < len(parts):
        out = doubled(out)
        first = scan(wanted, out, sources, spans, first, len(parts))
    return matrix, out, spans.status.tolist(), names


def value(part: bytes, column: str) -> int:
    matrix, _, status, _ = run([part])
    assert status == [SpanResult.READ]
    return int(matrix[COLUMN[column], 0])


def nested(number: int, body: bytes) -> bytes:
    tag = number << 3 | 2
    head = bytes([tag]) if tag < 0x80 else bytes([tag & 0x7F | 0x80, tag >> 7])
    return head + bytes([len(body)]) + body


MINUS_ONE = b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\x08\x05", 5),
        (b"\x08" + MINUS_ONE, -1),
        (b"\x08" + b"\x80" * 9 + b"\x01", -(1 << 63)),
        (b"\x08\x85\x00", 5),
        (b"\x08\x05\x08\x07", 7),
        (b"\x0a\x01x", NULL),
        (b"\x09" + bytes(8), NULL),
        (b"", NULL),
    ],
    ids=["one", "minus_one", "lowest", "long_form", "twice", "text", "eight_bytes", "absent"],
)
def test_a_number_of_64_bits(body: bytes, expected: int) -> None:
    assert value(nested(7, nested(3, body)), "ledger_id") == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"\x18\x03", 3), (b"\x18" + MINUS_ONE, NULL), (b"\x18\xfe\xff\xff\xff\x0f", -2)],
    ids=["plain", "null_value", "short_negative"],
)
def test_a_signed_number_of_32_bits_and_its_null(body: bytes, expected: int) -> None:
    assert value(nested(7, nested(3, body)), "partition") == expected


def test_unsigned_numbers_and_flags() -> None:
    assert value(nested(11, b"\x10" + MINUS_ONE), "permits") == 0xFFFF_FFFF
    assert value(nested(31, b"\x10\x80\x01"), "flag") == 1
    assert value(nested(31, b"\x10\x00"), "flag") == 0


def test_text_becomes_a_code_or_a_span() -> None:
    parts = [nested(23, b"\x0a\x02ab"), nested(14, b"\x1a\x03xyz"), nested(23, b"\x0a\x02ab")]
    matrix, _, _, names = run(parts)
    assert matrix[COLUMN["name"]].tolist() == [0, NULL, 0] and names.names == [b"ab"]
    at, length = matrix[COLUMN["text_at"], 1], matrix[COLUMN["text_bytes"], 1]
    assert b"".join(parts)[at : at + length] == b"xyz"


def test_repeated_numbers_are_read_packed_and_one_by_one() -> None:
    apart = nested(9, b"\x20\x05\x20\x81\x01")
    packed = nested(9, b"\x22\x03\x05\x81\x01")
    matrix, out, _, _ = run([apart, packed])
    assert out.words[:4].tolist() == [5, 129, 5, 129] and out.used[USED_WORDS] == 4
    assert matrix[COLUMN["set_at"]].tolist() == [0, 2]
    assert matrix[COLUMN["set_count"]].tolist() == [2, 2]


def test_children_get_rows_of_their_own_and_room_as_needed() -> None:
    one = nested(3, b"\x08\x05\x28\x07")
    body = b"\x08\x01" + one * 20
    parts = [nested(10, body)] * 500
    matrix, out, status, _ = run(parts)
    assert status == [SpanResult.READ] * 500 and out.used[USED_IDS] == 10_000
    assert matrix[COLUMN["first_id"]].tolist() == list(range(0, 10_000, 20))
    assert (matrix[COLUMN["id_count"]] == 20).all()
    assert out.ids[0, :10_000].tolist() == [row for row in range(500) for _ in range(20)]
    assert (out.ids[1, :10_000] == 5).all() and (out.words[:10_000] == 7).all()
    assert out.ids[2, :10_000].tolist() == list(range(10_000))


@pytest.mark.parametrize(
    "part",
    [
        b"\x08",
        b"\x08\x80",
        b"\x08" + b"\xff" * 10,
        b"\x3a\x05\x08",
        b"\x3a" + MINUS_ONE,
        b"\x00\x01",
        b"\x0b\x0c",
        b"\x0e\x01",
        b"\x09\x01\x02",
        b"\x0d\x01",
        nested(7, b"\x1a\x7f"),
        nested(9, b"\x22\x01\x80"),
        b"\xf8\xff\xff\xff\x7f\x01",
    ],
    ids=[
        "no_value", "cut_value", "value_too_long", "length_too_large", "length_negative",
        "field_zero", "group", "wire_type_6", "cut_eight", "cut_four", "inner", "cut_packed",
        "field_number_too_large",
    ],
)  # fmt: skip
def test_malformed_bytes_are_said_to_be(part: bytes) -> None:
    assert run([part])[2] == [SpanResult.BAD]


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    unknown = b"\x98\x06\x05" + b"\x99\x06" + bytes(8) + b"\x9a\x06\x02ab" + b"\x9d\x06" + bytes(4)
    assert value(unknown + nested(11, unknown + b"\x10\x05" + unknown), "permits") == 5
