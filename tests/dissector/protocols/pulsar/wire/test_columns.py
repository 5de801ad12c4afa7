"""Which fields have columns: every one is on the wire and has a column."""

from dissector.protobuf.descriptors import descriptors
from dissector.protobuf.plan import column_paths
from dissector.protocols.columns import FrameColumns, IdColumns
from dissector.protocols.pulsar.wire.columns import (
    COMMAND_EXTRA,
    ROOT_BROKER_ENTRY,
    ROOT_COMMAND,
    ROOT_METADATA_OF_MESSAGE,
    ROOT_METADATA_OF_SEND,
    ROOTS,
    field_of,
    frame_plan,
)
from dissector.schemas.frames import TABLE


def test_the_roots_stand_at_their_numbers() -> None:
    names = [root.message for root in ROOTS]
    assert names[ROOT_COMMAND] == "BaseCommand"
    assert names[ROOT_BROKER_ENTRY] == "BrokerEntryMetadata"
    assert names[ROOT_METADATA_OF_SEND] == names[ROOT_METADATA_OF_MESSAGE] == "MessageMetadata"


def test_every_wanted_field_is_on_the_wire_and_has_a_column() -> None:
    columns = {*FrameColumns._fields, *IdColumns._fields}
    announced = {extra.field.name for extra in COMMAND_EXTRA}
    for root in ROOTS:
        for path, wanted in column_paths(root).items():
            fields = descriptors().messages[root.message]
            for step in path[:-1]:
                field = next(each for each in fields.values() if each.name == step)
                fields = descriptors().messages[field.of]
            assert path[-1] in {each.name for each in fields.values()} | announced, path
            name = wanted.column.removeprefix("ids.")
            spellings = {name, f"{name}_at"}
            assert spellings & columns or name == "ids", wanted


def test_ids_that_name_a_frame_come_from_every_command_that_has_them() -> None:
    wanted = {each.column for each in ROOTS[ROOT_COMMAND].fields}
    assert {"request_id", "producer_id", "consumer_id", "sequence_id"} <= wanted


def test_the_plan_is_made_once() -> None:
    assert frame_plan() is frame_plan()


# Columns since version 3, of fields that facts read: they stay in `detail`, as in older lakes.
IN_DETAIL_TOO = {
    "message_permits", "ack_set", "watcher_id", "is_ready", "is_active", "txn_action",
    "available_permits",
}  # fmt: skip


def test_every_column_of_the_table_that_names_a_field_is_filled() -> None:
    filled = {each.column for root in ROOTS for each in root.fields}
    for column in TABLE.columns:
        is_filled = column.name in filled - IN_DETAIL_TOO
        assert is_filled == bool(column.wire.paths), column
        for path in column.wire.paths:
            part = path.split(".")[0]
            assert part in ("command", "broker_entry", "metadata", "metadata_of_message"), path


def test_what_no_code_reads_by_name_is_a_column_all_the_same() -> None:
    assert {"broker_index", "broker_timestamp_ms"} <= {*FrameColumns._fields}
    assert len(set(FrameColumns._fields)) == len(FrameColumns._fields)


def test_the_field_of_a_column() -> None:
    found = field_of("error_code"), field_of("compression"), field_of("schema_version_hex")
    assert [each and (each.of or each.type_name) for each in found] == [
        "ServerError", "CompressionType", "bytes"
    ]  # fmt: skip
    assert field_of("frame_bytes") is None
