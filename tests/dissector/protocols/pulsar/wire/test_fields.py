"""Wire fields: kernels against protobuf objects, on real and made traffic, and hostile bytes."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.names import NameTable
from dissector.jit import compiled
from dissector.limits import MAX_IDS_PER_ACK, NULL
from dissector.protocols import columns as c
from dissector.protocols.columns import FrameColumns, FrameEvent
from dissector.protocols.pulsar.wire.commands import COMMANDS
from dissector.protocols.pulsar.wire.fields import FieldDecoder, Fields
from dissector.schemas.enums import CHECKSUM_NOTES
from tests.naive.pulsar_fields import frame_fields, signed
from tests.wire import pulsar
from tests.wire.blocks import Sources, block_of, cut
from tests.wire.pcaps import pulsar_frames

CAPTURES = Path(__file__).resolve().parents[5] / "captures" / "pulsar-apache"
FIRST = c.COLUMN_NUMBER["request_id"]
SET_LATER = ("first_id", "metadata_at", "payload_at", "checksum_note")
NAMES = {
    "wire_topic", "wire_subscription", "wire_producer_name", "wire_consumer_name",
    "replicated_from", "real_topic", "real_subscription",
}  # fmt: skip


def read(
    frames: list[bytes], names: NameTable | None = None
) -> tuple[FrameColumns, Sources, Fields, NameTable, FieldDecoder]:
    table = names or NameTable(4096, 1 << 20)
    columns, sources = block_of(frames)
    decoder = FieldDecoder(table, 0)
    return columns, sources, decoder.decode(columns, len(frames), sources), table, decoder


def words(found: Fields, at: int, count: int) -> list[int]:
    return found.words[at : at + count].tolist()


def row_of(
    columns: FrameColumns, sources: Sources, found: Fields, names: NameTable, row: int
) -> dict[str, Any]:
    """The filled columns of a row, with texts as bytes: what the naive twin gives."""
    out: dict[str, Any] = {"command": int(columns.command[row])}
    data = sources[int(columns.source[row])]
    for number in range(FIRST, c.FRAME_COLUMN_COUNT):
        name = columns._fields[number]
        value = int(columns.matrix[number, row])
        if value == NULL or name in SET_LATER:
            continue
        if name in NAMES:
            out[name] = names.name_of(value)
        elif name.endswith("_at"):
            stem = name.removesuffix("_at")
            if f"{stem}_bytes" in columns._fields:
                length = int(columns.matrix[number + 1, row])
                out[stem] = data[value : value + length].tobytes()
            else:
                out[stem] = words(found, value, int(columns.matrix[number + 1, row]))
        elif name in ("ack_set_count", "compacted_count") or (
            name.endswith("_bytes")
            and f"{name.removesuffix('_bytes')}_at" in columns._fields
            and name not in ("payload_bytes", "metadata_bytes")
        ):
            continue
        else:
            out[name] = c.CHECKSUM_NAMES[value] if name == "checksum" else value
    if columns.id_count[row] != NULL:
        first = int(columns.first_id[row])
        out["ids"] = [id_row(found, first + k, row) for k in range(int(columns.id_count[row]))]
    return out


def id_row(found: Fields, number: int, parent: int) -> dict[str, Any]:
    ids = found.ids
    assert ids.parent[number] == parent
    out: dict[str, Any] = {}
    for name in ("ledger_id", "entry_id", "partition", "batch_index", "batch_size"):
        value = int(getattr(ids, name)[number])
        if value != NULL:
            out[name] = value
    if ids.ack_set_count[number] != NULL:
        out["ack_set"] = words(found, int(ids.ack_set_at[number]), int(ids.ack_set_count[number]))
    return out


def codes(decoder: FieldDecoder) -> list[tuple[int, str]]:
    """What was noticed, with the row of the frame."""
    return [(notice.frame_no - 1, notice.code) for notice in decoder.notices.rows()]


def assert_as_the_twin(frames: list[bytes]) -> None:
    columns, sources, found, names, decoder = read(frames)
    assert codes(decoder) == []
    for row, frame in enumerate(frames):
        assert row_of(columns, sources, found, names, row) == frame_fields(frame)


@pytest.mark.parametrize(
    "name",
    [
        "java-j03_batch_lz4", "java-j12_nack", "java-j16_dlq_retry", "java-j23_errors",
        "java-j24_unload", "java-j61_txn_abort", "java-j74_corrupt",
    ],
)  # fmt: skip
def test_real_traffic_reads_as_protobuf_objects_read_it(name: str) -> None:
    frames = [frame for each in pulsar_frames(CAPTURES / f"{name}.pcap") for frame in each]
    assert len(frames) > 20
    assert_as_the_twin(frames)


@pytest.mark.parametrize("name", pulsar.VECTORS)
def test_hand_made_frames_read_as_they_were_meant(name: str) -> None:
    assert_as_the_twin([pulsar.vector(name)])


def test_a_receipt_keeps_its_minus_one_but_not_as_a_partition() -> None:
    frame = pulsar.simple(
        pulsar.command(
            "SEND_RECEIPT", producer_id=1, sequence_id=5, highest_sequence_id=-1,
            message_id={"ledgerId": -1, "entryId": -1, "partition": -1},
        )
    )  # fmt: skip
    columns, *_ = read([frame])
    assert columns.ledger_id[0] == columns.entry_id[0] == columns.highest_sequence_id[0] == -1
    assert columns.partition[0] == NULL


SMALL = st.integers(0, 300)
WIDE = st.one_of(SMALL, st.integers(0, (1 << 64) - 1), st.just((1 << 64) - 1))
TEXTS = st.text(max_size=12)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    1: st.floats(allow_nan=False), 3: st.integers(-(1 << 63), (1 << 63) - 1), 4: WIDE,
    5: st.integers(-(1 << 31), (1 << 31) - 1), 8: st.booleans(), 9: TEXTS,
    12: st.binary(max_size=9), 13: st.integers(0, (1 << 32) - 1),
}  # fmt: skip


@st.composite
def messages(draw: st.DrawFn, name: str, depth: int = 0) -> dict[str, Any]:
    """Any message of a type, with any fields present."""
    out: dict[str, Any] = {}
    for field in pulsar.classes()[name].DESCRIPTOR.fields:
        if depth > 3 or not draw(st.booleans()):
            continue
        if field.message_type is not None:
            strategy = messages(field.message_type.name, depth + 1)
        elif field.enum_type is not None:
            strategy = st.sampled_from([value.number for value in field.enum_type.values])
        else:
            strategy = SCALARS[field.type]
        repeated = st.lists(strategy, max_size=3)
        out[field.name] = draw(repeated if field.is_repeated else strategy)
    return out


@st.composite
def any_frame(draw: st.DrawFn) -> bytes:
    number = draw(st.sampled_from([command.number for command in COMMANDS]))
    base = pulsar.classes()["BaseCommand"].DESCRIPTOR
    name = base.fields_by_name["type"].enum_type.values_by_number[number].name
    body = base.fields_by_number[number].message_type.name
    command = pulsar.command(name, **draw(messages(body)))
    if number not in (6, 9):
        return pulsar.simple(command)
    metadata = draw(messages("MessageMetadata"))
    keys = [b"RECONSUMETIMES", b"REAL_TOPIC", b"REAL_SUBSCRIPTION"]
    if draw(st.booleans()):
        metadata["properties"] = [
            {"key": key.decode(), "value": draw(st.sampled_from(["3", "12x", "", "-7", "a"]))}
            for key in draw(st.lists(st.sampled_from(keys), unique=True))
        ] + [
            {
                "key": "__MSG_PROP_REPL_SOURCE_POSITION",
                "value": draw(st.sampled_from(["5:7", "5", ":", "5:x", "-1:-1"])),
            }
        ]
    broker_entry = draw(st.none() | messages("BrokerEntryMetadata"))
    return pulsar.entry(
        command,
        pulsar.body("MessageMetadata", **metadata),
        draw(st.binary(max_size=40)),
        draw(st.sampled_from([True, False, 77])),
        None if broker_entry is None else pulsar.body("BrokerEntryMetadata", **broker_entry),
    )


@given(st.lists(any_frame(), min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_command_with_any_fields_reads_as_protobuf_objects_read_it(frames: list[bytes]) -> None:
    assert_as_the_twin(frames)


@given(any_frame(), st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_frames_are_malformed_where_protobuf_says_so(
    frame: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(10, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    columns, *_, decoder = read([bytes(damaged)])
    if columns.command[0] not in (6, 9) and b"\x0b" not in damaged[10:]:
        size = int.from_bytes(damaged[4:8], "big")
        try:
            pulsar.classes()["BaseCommand"]().MergeFromString(bytes(damaged[8 : 8 + size]))
        except DecodeError:
            pass  # stricter: it also reads the messages inside those that have no column
        else:
            is_group = any((byte & 7) in (3, 4) for byte in damaged[10:])
            assert is_group or columns.status[0] == c.COMPLETE
    assert (columns.status[0] == c.MALFORMED) == (codes(decoder) == [(0, "malformed_frame")])


def test_flipped_bytes_mismatch_only_where_the_checksum_looks() -> None:
    command = pulsar.command("MESSAGE", consumer_id=1, message_id={"ledgerId": 5, "entryId": 7})
    broker_entry = pulsar.body("BrokerEntryMetadata", broker_timestamp=1000, index=42)
    half = len(pulsar.checked_half(pulsar.metadata(), b"hi"))
    for block in (None, broker_entry):
        frame = pulsar.entry(command, pulsar.metadata(), b"hi", True, block)
        flipped = []
        for offset in (len(frame) - 1, len(frame) - half + 6, 13):  # payload, metadata, command
            other = bytearray(frame)
            other[offset] ^= 1
            flipped.append(bytes(other))
        columns, *_ = read([frame, *flipped])
        verdicts = [c.CHECKSUM_NAMES[number] for number in columns.checksum]
        assert verdicts == ["ok", "mismatch", "mismatch", "ok"]
        assert (columns.status == c.COMPLETE).all()


def test_damaged_metadata_under_a_wrong_checksum_is_a_mismatch_and_nothing_is_made_up() -> None:
    frame = bytearray(pulsar.send())
    frame[-9] = 0xFF  # a length inside the metadata
    columns, *_, decoder = read([bytes(frame)])
    assert columns.status[0] == c.COMPLETE and codes(decoder) == []
    assert c.CHECKSUM_NAMES[columns.checksum[0]] == "mismatch"
    assert columns.sequence_id[0] == 0
    assert columns.message_count[0] == columns.compression[0] == NULL


def test_the_same_damage_without_a_checksum_makes_the_frame_malformed() -> None:
    command = pulsar.command("SEND", producer_id=1, sequence_id=0)
    frame = pulsar.entry(command, b"\x0a\x7fp", b"hi", checksum=False)
    columns, *_, decoder = read([pulsar.send(), frame])
    assert columns.status.tolist() == [c.COMPLETE, c.MALFORMED]
    assert codes(decoder) == [(1, "malformed_frame")]
    assert columns.message_count[1] == NULL and columns.sequence_id[1] == 0


@pytest.mark.parametrize("status", [c.CUT_BY_GAP, c.CUT_BY_SNAPLEN, c.CUT_BY_END])
def test_a_cut_frame_keeps_what_can_be_read(status: int) -> None:
    frame = pulsar.send(b"x" * 50, sequence_id=9, metadata_fields={"sequence_id": 9})
    size = int.from_bytes(frame[4:8], "big")
    metadata_end = len(frame) - 50
    for length in range(1, len(frame)):
        columns, sources = block_of([frame])
        cut(columns, 0, length, status)
        decoder = FieldDecoder(NameTable(10, 100), 0)
        decoder.decode(columns, 1, sources)
        assert columns.status[0] == status and codes(decoder) == []
        knows_type = length >= 10
        assert columns.command[0] == (6 if knows_type else NULL)
        assert columns.sequence_id[0] == (9 if length >= 8 + size else NULL)
        assert columns.message_count[0] == (1 if length >= metadata_end else NULL)
        if knows_type:
            assert c.CHECKSUM_NAMES[columns.checksum[0]] == "not_evaluated"
            note = CHECKSUM_NOTES[columns.checksum_note[0]]
            assert note == {1: "gap", 2: "snaplen", 3: "capture_end"}[status]
        payload = columns.payload_bytes[0]
        assert payload == (50 if length >= 8 + size + 6 + 4 else NULL)


def test_a_large_ack_gets_room_and_loses_nothing() -> None:
    ids = [{"ledgerId": 1, "entryId": k, "ack_set": [k, -k]} for k in range(20_000)]
    frames = [
        pulsar.simple(pulsar.command("ACK", consumer_id=1, ack_type=0, message_id=part))
        for part in (ids[:3000], ids, [])
    ] + [pulsar.vector("FLOW")]
    columns, _, fields, *_ = read(frames)
    assert fields.id_count == 23_000 and fields.word_count == 46_000
    assert columns.id_count.tolist() == [3000, 20_000, 0, NULL]
    assert columns.first_id.tolist()[:2] == [0, 3000]
    assert fields.ids.entry_id[:23_000].tolist() == [*range(3000), *range(20_000)]
    at = fields.ids.ack_set_at[22_999]
    assert words(fields, int(at), 2) == [19_999, -19_999]


@pytest.mark.skipif(not compiled(), reason="a million ids take minutes uncompiled")
def test_ids_above_the_limit_are_left_out_with_a_notice() -> None:
    one = b"\x1a\x04\x08\x01\x10\x02"
    body = b"\x08\x01\x10\x00" + one * (MAX_IDS_PER_ACK + 5)
    command = b"\x08\x0a\x52" + pulsar.varint(len(body)) + body
    columns, sources = block_of([pulsar.simple(command)])
    decoder = FieldDecoder(NameTable(10, 100), 0)
    fields = decoder.decode(columns, 1, sources)
    assert columns.id_count[0] == fields.id_count == MAX_IDS_PER_ACK
    assert codes(decoder) == [(0, "ids_limit")]


def test_names_above_the_limit_are_null_with_a_notice() -> None:
    frames = [
        pulsar.simple(pulsar.command("LOOKUP", topic=f"topic-{k}", request_id=k)) for k in range(4)
    ]
    columns, *_, names, decoder = read([*frames, frames[0]], NameTable(3, 1000))
    assert columns.wire_topic.tolist() == [0, 1, 2, NULL, 0]
    assert codes(decoder) == [(4, "names_limit")]
    assert names.names == [b"topic-0", b"topic-1", b"topic-2"]


def test_events_and_other_protocols_are_left_alone() -> None:
    columns, sources = block_of([pulsar.send(), pulsar.send(), pulsar.send()])
    columns.protocol[1] = 1
    columns.request_id[1] = 55
    columns.command[2], columns.frame_no[2] = FrameEvent.GAP, NULL
    FieldDecoder(NameTable(10, 100), 0).decode(columns, 3, sources)
    assert columns.producer_id.tolist() == [1, NULL, NULL]
    assert columns.request_id[1] == 55
    assert columns.command.tolist() == [6, NULL, FrameEvent.GAP]


def test_a_migrated_topic_names_a_producer_or_a_consumer() -> None:
    frames = [
        pulsar.simple(pulsar.command("TOPIC_MIGRATED", resource_id=7, resource_type=kind))
        for kind in ("Producer", "Consumer")
    ]
    columns, *_ = read(frames)
    assert columns.producer_id.tolist() == [7, NULL]
    assert columns.consumer_id.tolist() == [NULL, 7]
    assert columns.response.tolist() == [NULL, NULL]


def test_unknown_commands_are_kept_without_fields() -> None:
    columns, *_, decoder = read([pulsar.simple(bytes([8, 83, 0x9A, 5, 2, 8, 1]))])
    assert columns.command[0] == 83 and columns.status[0] == c.COMPLETE
    assert codes(decoder) == []
    assert (columns.matrix[FIRST:, 0] == NULL).all()


def test_permits_of_brokers_to_come_are_read() -> None:
    body = bytes([8, 1, 0x12, 4, 8, 5, 0x10, 7, 0x30, 3])
    command = bytes([8, 9, 0x4A, len(body)]) + body
    columns, *_ = read([pulsar.entry(command, pulsar.metadata(), b"x")])
    assert columns.message_permits[0] == 3


def test_ids_read_as_signed_numbers() -> None:
    assert signed((1 << 64) - 1) == -1


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.sampled_from([6, 9, 10, 5]))
@settings(max_examples=200, deadline=None)
def test_noise_never_raises_and_never_reads_outside(parts: list[bytes], number: int) -> None:
    frames = []
    for part in parts:
        command = bytes([8, number, (number << 3 | 2) & 0x7F, len(part)]) + part
        noise = command + part[::-1]
        sizes = struct.pack(">II", len(noise) + 4, len(command))
        frames.append(sizes + noise)
    columns, *_ = read(frames)
    assert np.isin(columns.status, (c.COMPLETE, c.MALFORMED)).all()
