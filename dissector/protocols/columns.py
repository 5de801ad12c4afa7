"""The columns of frames: protocols fill them, facts read them, the lake stores them."""

import enum
from collections.abc import Iterator
from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Bundle, spread_rows
from dissector.limits import NULL
from dissector.schemas.enums import CHECKSUM_ABSENT as CHECKSUM_ABSENT
from dissector.schemas.enums import CHECKSUM_MISMATCH as CHECKSUM_MISMATCH
from dissector.schemas.enums import CHECKSUM_NOT_EVALUATED as CHECKSUM_NOT_EVALUATED
from dissector.schemas.enums import CHECKSUM_OK as CHECKSUM_OK
from dissector.schemas.enums import CHECKSUMS, DIRECTIONS, NAME_SOURCES, STATUSES
from dissector.schemas.enums import COMPLETE as COMPLETE
from dissector.schemas.enums import CUT_BY_END as CUT_BY_END
from dissector.schemas.enums import CUT_BY_GAP as CUT_BY_GAP
from dissector.schemas.enums import CUT_BY_SNAPLEN as CUT_BY_SNAPLEN
from dissector.schemas.enums import MALFORMED as MALFORMED
from dissector.schemas.enums import NAME_BACKFILLED as NAME_BACKFILLED
from dissector.schemas.enums import NAME_LEDGER_JOIN as NAME_LEDGER_JOIN
from dissector.schemas.enums import NAME_OBSERVED as NAME_OBSERVED
from dissector.schemas.enums import NAME_UNKNOWN as NAME_UNKNOWN
from dissector.schemas.enums import TO_BROKER as TO_BROKER
from dissector.schemas.enums import TO_CLIENT as TO_CLIENT
from dissector.schemas.enums import UNKNOWN_DIRECTION as UNKNOWN_DIRECTION
from dissector.schemas.frames import TABLE

# Words by number, see schemas.words.
DIRECTION_NAMES: Final = tuple(DIRECTIONS)
STATUS_NAMES: Final = tuple(STATUSES)
CHECKSUM_NAMES: Final = tuple(CHECKSUMS)
NAME_SOURCE_NAMES: Final = tuple(NAME_SOURCES)


class FrameEvent(enum.IntEnum):
    """Events between frames: `command` has one of these, frame_no is null. They are rows of the
    frame columns, so that facts see them in order, and the rows of the table `events`."""

    GAP = -102  # bytes of this direction are missing here (frame_bytes: how many)
    SKIPPED = -103  # captured bytes in which no frame was found
    FIN = -104  # this direction is complete
    CLOSE = -105  # the connection ended; `status` has stream.columns.ENDED_*


class Lifecycle(enum.IntEnum):
    """The effect of a frame on its producer or consumer (`handle_*`), set by the registry."""

    NONE = 0
    OPENING = 1  # PRODUCER or SUBSCRIBE opened a new incarnation
    REPEATED = 2  # PRODUCER or SUBSCRIBE for an id that is open: no new incarnation
    READY = 3  # the success that answers the opening
    INTERIM = 4  # PRODUCER_SUCCESS with producer_ready false
    REFUSED = 5  # the error that answers the opening
    CLOSING_BY_CLIENT = 6  # CLOSE_* (or UNSUBSCRIBE) of the client, not answered yet
    CLOSED_BY_CLIENT = 7  # the success that answers CLOSING_BY_CLIENT
    CLOSED_BY_BROKER = 8  # CLOSE_* of the broker


class FramingColumns(Bundle):
    """The columns that the framing sets; see FrameColumns."""

    connection_id: Int64Array
    endpoint_index: Int64Array
    direction: Int64Array
    broker: Int64Array
    is_two_way: Int64Array
    protocol: Int64Array
    command: Int64Array
    first_ts_ns: Int64Array
    last_ts_ns: Int64Array
    first_packet: Int64Array
    last_packet: Int64Array
    release_packet: Int64Array
    stream_offset: Int64Array
    frame_bytes: Int64Array
    status: Int64Array
    retransmitted: Int64Array
    frame_no: Int64Array
    source: Int64Array
    data_offset: Int64Array
    data_bytes: Int64Array
    frames_missing: Int64Array  # of a GAP: 0 if it lies in one frame that has a row, else 1


class _ReadColumns(FramingColumns):
    """Further columns that code reads by name; see FrameColumns."""

    # -- fields of the wire
    request_id: Int64Array
    producer_id: Int64Array
    consumer_id: Int64Array
    sequence_id: Int64Array
    highest_sequence_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    partition: Int64Array
    permits: Int64Array
    redelivery_count: Int64Array
    producer_epoch: Int64Array
    error_code: Int64Array
    ack_type: Int64Array
    validation_error: Int64Array
    txn_most_bits: Int64Array
    txn_least_bits: Int64Array
    message_count: Int64Array
    checksum: Int64Array
    checksum_note: Int64Array  # of schemas.words.CHECKSUM_NOTES
    crc32c_stored: Int64Array
    crc32c_computed: Int64Array
    metadata_bytes: Int64Array
    payload_bytes: Int64Array
    compression: Int64Array
    uncompressed_bytes: Int64Array
    is_batch: Int64Array
    is_encrypted: Int64Array
    publish_time_ms: Int64Array
    event_time_ms: Int64Array
    deliver_at_ms: Int64Array
    chunk_id: Int64Array
    chunk_count: Int64Array
    marker_type: Int64Array
    repl_source_ledger_id: Int64Array
    repl_source_entry_id: Int64Array
    reconsume_times: Int64Array
    # -- text: spans in the frame's source
    error_text_at: Int64Array
    error_text_bytes: Int64Array
    chunk_uuid_at: Int64Array
    chunk_uuid_bytes: Int64Array
    schema_version_hex_at: Int64Array
    schema_version_hex_bytes: Int64Array
    # -- text: codes of the name table
    wire_topic: Int64Array  # the frame's own field
    wire_subscription: Int64Array
    wire_producer_name: Int64Array  # command's, else metadata's
    wire_consumer_name: Int64Array
    replicated_from: Int64Array
    real_topic: Int64Array
    real_subscription: Int64Array
    # -- set by the registry of producers and consumers
    incarnation: Int64Array
    topic: Int64Array
    subscription: Int64Array
    producer_name: Int64Array
    consumer_name: Int64Array
    name_source: Int64Array
    # -- what follows is not in the table frames
    handle_kind: Int64Array  # 0 none, 1 producer, 2 consumer
    handle_id: Int64Array  # producer_id or consumer_id that this frame is about
    handle_incarnation: Int64Array
    lifecycle: Int64Array  # Lifecycle
    is_chunk: Int64Array
    is_marker: Int64Array  # SEND.marker
    message_permits: Int64Array
    subscription_type: Int64Array
    is_durable: Int64Array
    initial_position: Int64Array
    priority_level: Int64Array
    key_shared_at: Int64Array  # SUBSCRIBE's KeySharedMeta
    key_shared_bytes: Int64Array
    access_mode: Int64Array
    topic_epoch: Int64Array
    is_ready: Int64Array  # PRODUCER_SUCCESS.producer_ready
    is_active: Int64Array  # ACTIVE_CONSUMER_CHANGE
    response: Int64Array  # LOOKUP_RESPONSE and PARTITIONED_METADATA_RESPONSE .response
    last_sequence_id: Int64Array  # PRODUCER_SUCCESS
    available_permits: Int64Array  # CONSUMER_STATS_RESPONSE
    unacked_messages: Int64Array
    txn_action: Int64Array  # END_TXN: 0 commit, 1 abort
    watcher_id: Int64Array  # watcher_id, watch_id or session_id: key of pushes
    first_id: Int64Array  # ACK and REDELIVER: first row in the block's IdColumns
    id_count: Int64Array  # 0 if none
    ack_set_at: Int64Array  # MESSAGE: first word in the block's words, count null if absent
    ack_set_count: Int64Array
    payload_at: Int64Array  # SEND and MESSAGE: first payload byte in the frame's source
    metadata_at: Int64Array  # first byte of the MessageMetadata
    answered_frame_no: Int64Array  # set by exchanges on a response: its request's frame_no
    answered_last_ns: Int64Array  # set by exchanges on a response: its request's last_ts_ns
    answered_command: Int64Array  # set by exchanges on a response: its request's command
    has_property: Int64Array  # bits: 1 RECONSUMETIMES, 2 REAL_TOPIC, 4 REAL_SUBSCRIPTION, 8 repl
    # -- metadata that the table messages reads
    partition_key_at: Int64Array
    partition_key_bytes: Int64Array
    is_key_base64: Int64Array
    ordering_key_at: Int64Array
    ordering_key_bytes: Int64Array
    is_null_value: Int64Array
    compacted_at: Int64Array  # batch indexes that compaction kept: first word, count null if absent
    compacted_count: Int64Array
    chunked_bytes: Int64Array  # all chunks of the message together, as they are on the wire


def _others() -> Iterator[str]:
    """Columns of the table `frames` that are wire fields and that no code reads by name."""
    for column in TABLE.columns:
        cells = (f"{column.name}_at", f"{column.name}_bytes")
        if column.wire.paths and not {column.name, *cells} & {*_ReadColumns._fields}:
            yield from cells if column.type == "string" and not column.repeats else [column.name]


class FrameColumns(_ReadColumns, more=tuple(_others())):
    """Frames of one block in order of release; every column is int64[rows] and null is NULL.

    All columns are the rows of one matrix (`new_frame_columns`), so that a column plan can write
    by column number. Every cell is null until it is set.

    Set by the framing: FramingColumns. endpoint_index is 0 or 1 as in the streams; direction
    DIRECTION_NAMES; broker: a hash of its address and port; is_two_way: 1 once packets of both
    directions of the connection were captured, else 0; protocol: index in PROTOCOLS; command: the
    protocol's own number (Pulsar: BaseCommand.type), a FrameEvent, or null if the type was not
    captured; status STATUS_NAMES; retransmitted 0 or 1; frame_no null on events. source 0: input
    buffer, 1: the stream's heap, 2: the packets' side buffer, 3: the framing's arena; data_offset:
    the frame's first byte there; data_bytes: its captured bytes from its start on (= frame_bytes if
    complete).

    Fields with text: *_at and *_bytes are spans in the same source; topic, subscription and names
    are codes of the capture's name table. Columns of the table `frames` have the same names here;
    all others are for facts.
    """


FRAME_COLUMN_COUNT: Final = len(FrameColumns._fields)
COLUMN_NUMBER: Final = {name: number for number, name in enumerate(FrameColumns._fields)}


class IdColumns(Bundle):
    """The message ids of ACK and REDELIVER frames of one block; rows of one matrix, int64[rows].

    parent: row of the frame in its FrameColumns.
    ack_set_at, ack_set_count: words of the ack_set in the block's words array (count null if
        absent).
    """

    parent: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    partition: Int64Array
    batch_index: Int64Array
    batch_size: Int64Array
    ack_set_at: Int64Array
    ack_set_count: Int64Array


def new_frame_columns(rows: int) -> tuple[Int64Array, FrameColumns]:
    """A matrix int64[FRAME_COLUMN_COUNT, rows or a few more], all null, and its bundle."""
    matrix = np.full((FRAME_COLUMN_COUNT, spread_rows(rows)), NULL, np.int64)
    return matrix, FrameColumns(matrix)


def new_id_columns(rows: int) -> tuple[Int64Array, IdColumns]:
    """A matrix int64[columns, rows], all null, and the bundle of its rows."""
    matrix = np.full((len(IdColumns._fields), rows), NULL, np.int64)
    return matrix, IdColumns(matrix)
