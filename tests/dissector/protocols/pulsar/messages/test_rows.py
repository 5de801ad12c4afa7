"""Entries to messages: the kernel against protobuf objects, in any room, and on hostile bytes."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.names import NameTable
from dissector.jit import compiled
from dissector.limits import NULL
from dissector.notice_rows import new_notices
from dissector.notices import NOTICES
from dissector.protocols.columns import CUT_BY_GAP
from dissector.protocols.frame_table import filled_columns
from dissector.protocols.pulsar.messages import rows as message_rows
from dissector.protocols.pulsar.messages.rows import RowsStatus, open_entries
from dissector.protocols.pulsar.messages.state import (
    CURSOR_COUNT,
    CURSOR_JOINED,
    CURSOR_ROW,
    CURSOR_ROWS,
    CURSOR_TEXT,
    MessageColumns,
    double_room,
    new_parser_state,
)
from dissector.protocols.pulsar.wire.fields import FieldDecoder
from tests.naive.messages import messages_of
from tests.wire import pulsar
from tests.wire.blocks import block_of
from tests.wire.messages import Opened

EXAMPLES = 150 if compiled() else 15
NOT_ASKED = ("properties", "payload_sha256")


def expected(frames: list[bytes]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name not in NOT_ASKED}
        for row in messages_of(frames)
    ]


def message(payload: bytes = b"hi", metadata: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """A MESSAGE frame."""
    given = {"consumer_id": 1, "message_id": {"ledgerId": 5, "entryId": 7}, **fields}
    return pulsar.entry(
        pulsar.command("MESSAGE", **given), pulsar.metadata(**(metadata or {})), payload
    )


def batch_send(items: list[tuple[dict[str, Any], bytes]], **metadata: Any) -> bytes:
    """A SEND frame with a plain batch."""
    given = {"num_messages_in_batch": len(items), **metadata}
    return pulsar.send(pulsar.batch(items), metadata_fields=given)


ITEMS = [
    ({"partition_key": "k", "sequence_id": 4, "event_time": 99}, b"one"),
    ({"partition_key": "AAH/", "partition_key_b64_encoded": True, "ordering_key": b"\0z"}, b""),
    ({"null_value": True, "properties": [{"key": "RECONSUMETIMES", "value": "3"}]}, b""),
    ({"properties": [{"key": "REAL_TOPIC", "value": "persistent://a/b/c"}]}, b"x" * 300),
]
KINDS = {
    "single": pulsar.send(),
    "empty": pulsar.send(b""),
    "with everything": pulsar.send(
        b"abc",
        sequence_id=8,
        metadata_fields={
            "partition_key": "key", "ordering_key": b"\xff\0", "event_time": 12,
            "schema_version": b"\0\0\0\7", "null_value": True, "publish_time": 77,
            "properties": [{"key": "REAL_TOPIC", "value": "t"},
                           {"key": "RECONSUMETIMES", "value": "2"}],
        },
    ),
    "batch": batch_send(ITEMS, schema_version=b"\0\1"),
    "batch of one": batch_send(ITEMS[:1]),
    "message": message(metadata={"partition_key": "k", "partition_key_b64_encoded": False}),
    "redelivered in a partition": message(
        redelivery_count=3, message_id={"ledgerId": 5, "entryId": 7, "partition": 2}
    ),
    "batch delivered": message(
        pulsar.batch(ITEMS), {"num_messages_in_batch": 4, "sequence_id": 40}
    ),
    "compacted away": batch_send(
        [({"compacted_out": True}, b""), ({"sequence_id": 1, "partition_key": "b"}, b"left")]
    ),
    "compacted and listed": message(
        pulsar.batch(ITEMS[:2]), {"num_messages_in_batch": 4, "compacted_batch_indexes": [1, 3]}
    ),
    "encrypted": pulsar.send(
        metadata_fields={"encryption_keys": [{"key": "k", "value": b"v"}], "partition_key": "k"}
    ),
    "marker": pulsar.send(metadata_fields={"marker_type": 20}),
    "no checksum": pulsar.entry(
        pulsar.command("SEND", producer_id=1, sequence_id=2), pulsar.metadata(), b"x", False
    ),
    "wrong checksum": pulsar.entry(
        pulsar.command("SEND", producer_id=1, sequence_id=2), pulsar.metadata(), b"x", 12345
    ),
    "other commands": pulsar.vector("SEND_RECEIPT"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_the_messages_that_protobuf_objects_show(kind: str) -> None:
    opened = Opened().add([KINDS[kind]])
    assert opened.rows == expected([KINDS[kind]])
    assert not opened.notices()


def test_many_entries_come_in_the_order_of_their_frames() -> None:
    frames = list(KINDS.values()) * 3
    assert Opened().add(frames).rows == expected(frames)


def cells_of(columns: MessageColumns, count: int, text: bytes) -> list[dict[str, Any]]:
    """Rows with keys as bytes, wherever they lie."""
    hidden = ("row", "source", "payload_at", "metadata_at", "metadata_bytes", "has_property")
    rows = []
    for k in range(count):
        row: dict[str, Any] = {}
        for name in type(columns)._fields:
            value = int(getattr(columns, name)[k])
            if name.endswith("_at") or name in hidden:
                continue
            stem = name.removesuffix("_bytes")
            if name != "payload_bytes" and name.endswith("_bytes") and value >= 0:
                at = int(getattr(columns, f"{stem}_at")[k])
                row[stem] = text[at : at + value]
            else:
                row[name] = value
        rows.append(row)
    return rows


@pytest.mark.parametrize("room", [1, 3, 1000], ids=["one row", "three rows", "plenty"])
def test_the_same_rows_in_any_room(room: int) -> None:
    """Without room for a whole entry nothing of it is left behind, and it comes later."""
    frames = [KINDS["batch"], KINDS["with everything"], KINDS["single"], KINDS["batch delivered"]]
    block, sources = block_of(frames)
    names = NameTable(100, 10_000)
    fields = FieldDecoder(names, 0).decode(block, len(frames), sources)
    parser = new_parser_state(names.columns, room, max(room, 4), 0)
    parser.grow(notices=new_notices(5))
    parser.cursor[CURSOR_ROWS], parser.cursor[CURSOR_JOINED] = len(frames), -1
    nothing = np.zeros(1, np.uint8)
    rows: list[dict[str, Any]] = []
    status = -1
    for _ in range(100):
        status = open_entries(parser, block, sources, nothing, fields.words)
        count, used = int(parser.cursor[CURSOR_COUNT]), int(parser.cursor[CURSOR_TEXT])
        rows += cells_of(parser.messages, count, parser.text[:used].tobytes())
        parser.cursor[CURSOR_COUNT] = parser.cursor[CURSOR_TEXT] = 0
        if status == RowsStatus.DONE:
            break
        assert status == RowsStatus.FULL
        if count == 0:
            double_room(parser)
    assert status == RowsStatus.DONE and parser.cursor[CURSOR_ROW] == len(frames)
    assert [row["frame_no"] for row in rows] == [1] * 4 + [2, 3] + [4] * 4
    assert [row["batch_index"] for row in rows] == [0, 1, 2, 3, NULL, NULL, 0, 1, 2, 3]
    keys = [row.get("partition_key") for row in rows]
    assert keys == [b"k", b"AAH/", None, None, b"key", None, b"k", b"AAH/", None, None]
    assert rows[1]["ordering_key"] == b"\0z" and rows[4]["ordering_key"] == b"\xff\0"


texts = st.text(max_size=6)
own_fields = st.fixed_dictionaries(
    {},
    optional={
        "partition_key": texts,
        "partition_key_b64_encoded": st.booleans(),
        "ordering_key": st.binary(max_size=5),
        "event_time": st.integers(0, 1 << 45),
        "null_value": st.booleans(),
        "properties": st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(["a", "REAL_TOPIC", "RECONSUMETIMES"]),
                    "value": st.sampled_from(["", "7", "-3", "x1", "topic"]),
                }
            ),
            max_size=3,
        ),
    },
)
item_fields = st.tuples(
    own_fields,
    st.fixed_dictionaries(
        {}, optional={"sequence_id": st.integers(0, 1 << 62), "compacted_out": st.booleans()}
    ),
).map(lambda pair: pair[0] | pair[1])
shared_fields = st.fixed_dictionaries(
    {"publish_time": st.integers(0, 1 << 45), "producer_name": texts},
    optional={"schema_version": st.binary(max_size=9)},
)


@st.composite
def entries(draw: Any) -> bytes:
    """A SEND or MESSAGE with a single message or a batch."""
    metadata = draw(shared_fields)
    if draw(st.booleans()):
        items = draw(st.lists(st.tuples(item_fields, st.binary(max_size=9)), max_size=5))
        metadata["num_messages_in_batch"] = len(items)
        payload = pulsar.batch(items)
    else:
        metadata |= draw(own_fields)
        payload = draw(st.binary(max_size=9))
    if draw(st.booleans()):
        return pulsar.send(
            payload, metadata_fields=metadata, sequence_id=draw(st.integers(-1, 1 << 62))
        )
    message_id = {"ledgerId": draw(st.integers(-1, 1 << 62)), "entryId": draw(st.integers(-1, 99))}
    return message(
        payload, metadata, message_id=message_id, redelivery_count=draw(st.integers(0, 9))
    )


@given(st.lists(entries(), min_size=1, max_size=6))
@settings(max_examples=EXAMPLES)
def test_made_entries_read_as_protobuf_objects(frames: list[bytes]) -> None:
    assert Opened().add(frames).rows == expected(frames)


LIES = {
    "fewer than announced": (batch_send(ITEMS, num_messages_in_batch=5), 4, 0),
    "more than announced": (batch_send(ITEMS, num_messages_in_batch=3), 3, 3),
    "a negative number": (batch_send(ITEMS, num_messages_in_batch=-2), 0, 0),
    "cut inside a size": (
        pulsar.send(pulsar.batch(ITEMS[:1]) + b"\0\0",
                    metadata_fields={"num_messages_in_batch": 2}),
        1, 0,
    ),
    "a huge metadata size": (
        pulsar.send(struct.pack(">I", 0xFFFF_FFFF), metadata_fields={"num_messages_in_batch": 1}),
        0, 0,
    ),
    "a payload beyond the end": (
        pulsar.send(pulsar.batch([({"payload_size": 9}, b"x")]),
                    metadata_fields={"num_messages_in_batch": 1}),
        0, 0,
    ),
    "a negative payload": (
        pulsar.send(pulsar.batch([({"payload_size": -1}, b"x")]),
                    metadata_fields={"num_messages_in_batch": 1}),
        0, 0,
    ),
    "no protobuf": (
        pulsar.send(struct.pack(">I", 3) + b"\xff\xff\xff",
                    metadata_fields={"num_messages_in_batch": 1}),
        0, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_contradicts_itself_gives_a_notice_and_nothing_invented(lie: str) -> None:
    frame, read, kept = LIES[lie]
    opened = Opened().add([frame, KINDS["single"]])
    (notice,) = opened.drained()
    assert NOTICES[notice.kind].code == "batch_malformed"
    assert (notice.frame_no, notice.value2) == (1, read)
    assert [row["frame_no"] for row in opened.rows] == [1] * kept + [2]


@given(st.binary(max_size=60), st.integers(-3, 40), st.booleans())
@settings(max_examples=EXAMPLES)
def test_noise_instead_of_a_batch_never_raises(noise: bytes, count: int, is_listed: bool) -> None:
    metadata: dict[str, Any] = {"num_messages_in_batch": count}
    if is_listed:
        metadata["compacted_batch_indexes"] = [0, 1]
    frame = pulsar.send(noise, metadata_fields=metadata)
    assert Opened().add([frame]).rows == expected([frame])


def test_a_frame_that_is_not_whole_has_no_messages() -> None:
    frame = pulsar.send()
    for status in (CUT_BY_GAP, 4):
        assert not Opened().add([frame], status=status).rows
    assert not Opened().add([frame], protocol=1).rows


def test_null_columns_are_known() -> None:
    columns = MessageColumns.new(3, NULL)
    columns.entry_id[1] = -1
    assert {name: cells.tolist() for name, cells in filled_columns(columns, 3).items()} == {
        "entry_id": [NULL, -1, NULL]
    }
    assert not filled_columns(columns, 1)


def test_the_tags_of_plain_messages_are_those_of_the_definition() -> None:
    plain = ("payload_size", "sequence_id", "event_time", "partition_key")
    for name in (*plain, "partition_key_b64_encoded"):
        field = pulsar.classes()["SingleMessageMetadata"].DESCRIPTOR.fields_by_name[name]
        wire = 2 if field.type == field.TYPE_STRING else 0
        assert getattr(message_rows, f"_{name.upper()}") == field.number << 3 | wire


ODD_ITEMS = {
    "a payload size of 64 bits": b"\x18" + b"\xff" * 9 + b"\x01",
    "a payload size above 31 bits": b"\x18\x80\x80\x80\x80\x08",
    "a size said twice": b"\x18\x01\x18\x02",
    "a key said twice": b"\x12\x01a\x12\x01b\x18\x01",
    "a key, then an unknown field": b"\x12\x01a\x18\x01\xf8\x07\x05",
    "a key beyond the end": b"\x18\x01\x12\x09a",
    "a sequence id with the highest bit": b"\x18\x01\x40" + b"\xff" * 9 + b"\x01",
    "a tag in two bytes": b"\x98\x00\x02",
    "event times": b"\x18\x01\x28\x05\x28\x00",
    "a key that is and is not binary": b"\x12\x01a\x30\x07\x30\x00\x18\x01",
    "a very binary key": b"\x12\x01a\x30\xff\x01\x18\x01",
    "a cut number": b"\x18\x80",
}


@pytest.mark.parametrize("odd", ODD_ITEMS)
def test_odd_ways_to_say_plain_things_read_the_same(odd: str) -> None:
    own = ODD_ITEMS[odd]
    payload = struct.pack(">I", len(own)) + own + b"ab"
    frame = pulsar.send(payload, metadata_fields={"num_messages_in_batch": 1})
    assert Opened().add([frame]).rows == expected([frame])
