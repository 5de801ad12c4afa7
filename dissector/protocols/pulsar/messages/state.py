"""The state of the kernel of messages: output rows, their text, and the cursor."""

from functools import cache
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle
from dissector.codecs.lz4_blocks import PackedEntries
from dissector.codecs.names import NameColumns
from dissector.limits import NULL
from dissector.notice_rows import Notices, new_notices
from dissector.protobuf import plan as protobuf_plan
from dissector.protobuf.plan import FieldColumn, FieldPlan, KeyValueColumn, PairValue, Root
from dissector.protobuf.scan import ScanOutput, new_output
from dissector.states import State

# Indexes into ParserState.cursor.
CURSOR_ROW: Final = 0  # next row of the frames
CURSOR_ROWS: Final = 1  # rows of the block
CURSOR_PROTOCOL: Final = 2
CURSOR_JOINED: Final = 3  # bytes of the message whose last chunk is in the next row, -1: none is
CURSOR_COUNT: Final = 4  # messages written
CURSOR_TEXT: Final = 5  # bytes of text written
CURSOR_BATCH: Final = 6  # next index in ParserState.batches
CURSOR_BATCHES: Final = 7  # number of ParserState.batches
CURSOR_LENGTH: Final = 8

BATCHES: Final = 256  # compressed batches that are decompressed at once


class MessageColumns(Bundle):
    """Messages before they are written to their table; int64[rows] each, NULL where not known.

    Columns as in the table; text as spans of `ParserState.text`; `topic`, `producer_name` and
    `real_topic` as codes of the name table. From `row` on, columns that are not in the table:

    row: of the frame in its block; source, payload_at: position of the payload.
    metadata_at, metadata_bytes: of a message in a batch, its SingleMessageMetadata.
    has_property: bits of known properties.
    """

    connection_id: Int64Array
    frame_no: Int64Array
    batch_index: Int64Array
    batch_size: Int64Array
    direction: Int64Array
    topic: Int64Array
    producer_name: Int64Array
    sequence_id: Int64Array
    is_key_base64: Int64Array
    event_time_ms: Int64Array
    publish_time_ms: Int64Array
    payload_bytes: Int64Array
    is_null_value: Int64Array
    is_compacted_out: Int64Array
    redelivery_count: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    partition: Int64Array
    reconsume_times: Int64Array
    real_topic: Int64Array
    ts: Int64Array
    partition_key_at: Int64Array
    partition_key_bytes: Int64Array
    ordering_key_at: Int64Array
    ordering_key_bytes: Int64Array
    key_hash: Int64Array
    schema_version_at: Int64Array
    schema_version_bytes: Int64Array
    row: Int64Array
    source: Int64Array
    payload_at: Int64Array
    metadata_at: Int64Array
    metadata_bytes: Int64Array
    has_property: Int64Array


class ParserState(State):
    """The kernel's state between calls.

    messages: output rows.
    text: uint8[], their keys and schema versions.
    out: output of the scan of batch items; its matrix is that of messages.
    notices: about entries.
    batches: compressed batches of a block, in order; `row` is that of the frame.
    cursor: int64[CURSOR_LENGTH].
    """

    plan: FieldPlan
    messages: MessageColumns
    text: ByteArray
    out: ScanOutput
    notices: Notices
    batches: PackedEntries
    cursor: Int64Array


_ITEM_FIELDS: Final = (
    FieldColumn("partition_key", "partition_key"),
    FieldColumn("payload_size", "payload_bytes"),
    FieldColumn("compacted_out", "is_compacted_out"),
    FieldColumn("event_time", "event_time_ms", null=0),
    FieldColumn("partition_key_b64_encoded", "is_key_base64"),
    FieldColumn("ordering_key", "ordering_key"),
    FieldColumn("sequence_id", "sequence_id"),
    FieldColumn("null_value", "is_null_value"),
)
_ITEM_PAIRS: Final = (
    KeyValueColumn(
        "properties",
        b"RECONSUMETIMES",
        PairValue.DECIMAL,
        "reconsume_times",
        "",
        "has_property",
        1,
    ),
    KeyValueColumn(
        "properties", b"REAL_TOPIC", PairValue.TEXT, "real_topic", "", "has_property", 2
    ),
)


@cache
def item_plan() -> FieldPlan:
    """The field plan for the metadata of one message in a batch."""
    root = Root("SingleMessageMetadata", _ITEM_FIELDS, _ITEM_PAIRS, ())
    return protobuf_plan.build_plan([root], MessageColumns._fields)


def new_parser_state(names: NameColumns, rows: int, text_bytes: int, protocol: int) -> ParserState:
    """A state with room for `rows` messages and `text_bytes` of text."""
    messages = MessageColumns.new(rows, NULL)
    cursor = np.zeros(CURSOR_LENGTH, np.int64)
    cursor[CURSOR_PROTOCOL] = protocol
    cursor[CURSOR_JOINED] = -1
    return ParserState(
        plan=item_plan(),
        messages=messages,
        text=np.zeros(text_bytes, np.uint8),
        out=new_output(messages.matrix, 1, names),
        notices=new_notices(1),
        batches=PackedEntries.new(BATCHES),
        cursor=cursor,
    )


def double_room(parser: ParserState) -> None:
    """Double the room for messages and their text; both are empty then."""
    messages = MessageColumns.new(2 * parser.messages.matrix.shape[1], NULL)
    parser.grow(
        messages=messages,
        text=np.zeros(2 * len(parser.text), np.uint8),
        out=parser.out._replace(cells=messages.matrix),
    )
