"""Kernel: parse the entries of SEND and MESSAGE frames, batches included, into rows of messages.

An entry whose metadata has a message count is a batch; decompressed, it holds for each message
SIZE(4) SingleMessageMetadata PAYLOAD. Without the count the entry is one message. The kernel cannot
decompress batches or join chunks: it returns at such a row, and its caller does so and calls again.
"""

import enum
from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.compression import Codec, Sources, UnpackResult
from dissector.codecs.integers import be32, byte, varint
from dissector.jit import inlined, kernel
from dissector.limits import MAX_BATCH_MESSAGES, MAX_ENTRY_BYTES, NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protobuf.scan import Span, SpanResult, walk
from dissector.protocols.columns import CHECKSUM_MISMATCH, COMPLETE, FrameColumns
from dissector.protocols.frame_notices import note_frame
from dissector.protocols.pulsar.messages import state
from dissector.protocols.pulsar.messages.keys import hash_keys
from dissector.protocols.pulsar.messages.state import MessageColumns, ParserState
from dissector.protocols.pulsar.wire.commands import MESSAGE, SEND


class RowsStatus(enum.IntEnum):
    """Why the kernel stopped."""

    DONE = 0
    FULL = 1  # no room for the messages of this row; none of them is written
    PACKED = 2  # the batch in this row must be decompressed first
    CHUNK = 3  # the frame in this row is a chunk of a message


SPOILT: Final = 4  # the row's messages are discarded; a notice says why
_NO_ROOM: Final = -2

OPENED_SOURCE: Final = 4  # number of the buffer of decompressed batches, after the frame sources

# Tags of SingleMessageMetadata that every plain message has; a test holds them to the definition.
_PARTITION_KEY: Final = 0x12
_PAYLOAD_SIZE: Final = 0x18
_EVENT_TIME: Final = 0x28
_PARTITION_KEY_B64_ENCODED: Final = 0x30
_SEQUENCE_ID: Final = 0x40
_LARGE: Final = 1 << 31

_ENTRY_NOT_OPENED: Final = NOTICE_NUMBER["entry_not_opened"]
_BATCH_MALFORMED: Final = NOTICE_NUMBER["batch_malformed"]
_ENCRYPTED_BATCH: Final = NOTICE_NUMBER["encrypted_batch"]


@inlined
def _copy_text(parser: ParserState, data: ByteArray, at: int, length: int) -> int:
    """Append bytes to the messages' text, which has room; return their offset there."""
    start = parser.cursor[state.CURSOR_TEXT]
    for k in range(length):
        parser.text[start + k] = data[at + k]
    parser.cursor[state.CURSOR_TEXT] = start + length
    return int(start)


@inlined
def _redeliveries(frames: FrameColumns, row: int) -> int:
    """The redelivery count of a MESSAGE, 0 if the field is missing; NULL for a SEND."""
    if frames.command[row] != MESSAGE:
        return NULL
    return int(max(frames.redelivery_count[row], 0))


@inlined
def _fill_from_frame(messages: MessageColumns, count: int, frames: FrameColumns, row: int) -> None:
    """Fill a single message's columns from its frame; columns of batches become NULL."""
    messages.connection_id[count] = frames.connection_id[row]
    messages.frame_no[count] = frames.frame_no[row]
    messages.direction[count] = frames.direction[row]
    messages.topic[count] = frames.topic[row]
    messages.producer_name[count] = frames.producer_name[row]
    messages.publish_time_ms[count] = frames.publish_time_ms[row]
    messages.ledger_id[count] = frames.ledger_id[row]
    messages.entry_id[count] = frames.entry_id[row]
    messages.partition[count] = frames.partition[row]
    messages.ts[count] = frames.last_ts_ns[row]
    messages.redelivery_count[count] = _redeliveries(frames, row)
    messages.row[count] = row
    messages.batch_index[count] = NULL
    messages.batch_size[count] = NULL
    messages.is_compacted_out[count] = NULL
    messages.metadata_at[count] = NULL
    messages.metadata_bytes[count] = NULL


@inlined
def _open_single(parser: ParserState, frames: FrameColumns, row: int, data: ByteArray) -> int:
    """Write the one message of an entry that is no batch: DONE or FULL."""
    messages = parser.messages
    count = parser.cursor[state.CURSOR_COUNT]
    key = frames.partition_key_bytes[row]
    ordering = frames.ordering_key_bytes[row]
    version = frames.schema_version_hex_bytes[row]
    needed = max(key, 0) + max(ordering, 0) + max(version, 0)
    if count >= len(messages.row) or needed > len(parser.text) - parser.cursor[state.CURSOR_TEXT]:
        return RowsStatus.FULL
    _fill_from_frame(messages, count, frames, row)
    messages.sequence_id[count] = frames.sequence_id[row]
    messages.event_time_ms[count] = frames.event_time_ms[row]
    messages.reconsume_times[count] = frames.reconsume_times[row]
    messages.real_topic[count] = frames.real_topic[row]
    messages.is_null_value[count] = frames.is_null_value[row]
    messages.is_key_base64[count] = NULL
    messages.partition_key_bytes[count] = key
    messages.ordering_key_bytes[count] = ordering
    messages.schema_version_bytes[count] = version
    if key >= 0:
        messages.partition_key_at[count] = _copy_text(
            parser, data, frames.partition_key_at[row], key
        )
        messages.is_key_base64[count] = max(frames.is_key_base64[row], 0)
    if ordering >= 0:
        text_at = _copy_text(parser, data, frames.ordering_key_at[row], ordering)
        messages.ordering_key_at[count] = text_at
    hash_keys(messages, count, parser.text)
    if version >= 0:
        text_at = _copy_text(parser, data, frames.schema_version_hex_at[row], version)
        messages.schema_version_at[count] = text_at
    messages.source[count] = frames.source[row]
    messages.payload_at[count] = frames.payload_at[row]
    size = frames.payload_bytes[row]
    if frames.is_encrypted[row] == 1:
        size = NULL
    elif frames.compression[row] != Codec.NONE:
        size = frames.uncompressed_bytes[row]
    messages.payload_bytes[count] = size
    parser.cursor[state.CURSOR_COUNT] = count + 1
    return RowsStatus.DONE


@inlined
def _read_plain_item(messages: MessageColumns, number: int, data: ByteArray, span: Span) -> bool:
    """Parse the metadata of a message in a batch if it has only the usual fields; else False.

    Then the field plan parses it from the start: with the same result, in three times the time (45
    and 15 ns for a message without a key). Most messages of a busy cluster are in batches.
    """
    at = span.at
    while at < span.end:
        tag = byte(data, at)
        value = varint(data, at + 1, span.end)
        if value.next < 0:
            return False
        at = value.next
        if tag == _SEQUENCE_ID:
            messages.sequence_id[number] = value.value
        elif tag == _EVENT_TIME:
            messages.event_time_ms[number] = value.value if value.value != 0 else NULL
        elif tag == _PARTITION_KEY_B64_ENCODED:
            messages.is_key_base64[number] = 1 if value.value != 0 else 0
        elif value.value < 0 or value.value >= _LARGE:
            return False
        elif tag == _PAYLOAD_SIZE:
            messages.payload_bytes[number] = value.value
        elif tag == _PARTITION_KEY and value.value <= span.end - at:
            messages.partition_key_at[number] = at
            messages.partition_key_bytes[number] = value.value
            at += value.value
        else:
            return False
    return True


@inlined
def _open_item(parser: ParserState, number: int, data: ByteArray, at: int, end: int) -> int:
    """Parse one message of a batch, from its size field on, into a row that was reset.

    Returns the offset behind it, -1 if it is malformed, or _NO_ROOM.
    """
    messages = parser.messages
    if end - at < 4:
        return -1
    size = be32(data, at)
    at += 4
    if size > end - at:
        return -1
    messages.metadata_at[number] = at
    messages.metadata_bytes[number] = size
    span = Span(at, at + size, 0)
    is_read = _read_plain_item(messages, number, data, span)
    if not is_read and walk(parser.plan, parser.out, number, data, span) != SpanResult.READ:
        return -1
    at += size
    length = messages.payload_bytes[number]
    if length < 0 or length > end - at:  # a missing size is null, which is negative
        return -1
    messages.payload_at[number] = at
    key = messages.partition_key_bytes[number]
    ordering = messages.ordering_key_bytes[number]
    if max(key, 0) + max(ordering, 0) > len(parser.text) - parser.cursor[state.CURSOR_TEXT]:
        return _NO_ROOM
    if key >= 0:
        text_at = _copy_text(parser, data, messages.partition_key_at[number], key)
        messages.partition_key_at[number] = text_at
        messages.is_key_base64[number] = max(messages.is_key_base64[number], 0)
    else:
        messages.is_key_base64[number] = NULL
    if ordering >= 0:
        text_at = _copy_text(parser, data, messages.ordering_key_at[number], ordering)
        messages.ordering_key_at[number] = text_at
    hash_keys(messages, number, parser.text)
    return int(at + length)


@inlined
def _reset_items(messages: MessageColumns, first: int, stop: int) -> None:
    """Reset rows to the values of a message whose metadata is empty."""
    messages.sequence_id[first:stop] = NULL
    messages.event_time_ms[first:stop] = NULL
    messages.reconsume_times[first:stop] = NULL
    messages.real_topic[first:stop] = NULL
    messages.is_key_base64[first:stop] = NULL
    messages.payload_bytes[first:stop] = NULL
    messages.partition_key_bytes[first:stop] = NULL
    messages.ordering_key_bytes[first:stop] = NULL
    messages.is_compacted_out[first:stop] = 0
    messages.is_null_value[first:stop] = 0
    messages.has_property[first:stop] = 0


@inlined
def _fill_items(
    messages: MessageColumns, first: int, stop: int, frames: FrameColumns, row: int
) -> None:
    """Fill the columns that all messages of a batch share."""
    messages.connection_id[first:stop] = frames.connection_id[row]
    messages.frame_no[first:stop] = frames.frame_no[row]
    messages.direction[first:stop] = frames.direction[row]
    messages.topic[first:stop] = frames.topic[row]
    messages.producer_name[first:stop] = frames.producer_name[row]
    messages.publish_time_ms[first:stop] = frames.publish_time_ms[row]
    messages.ledger_id[first:stop] = frames.ledger_id[row]
    messages.entry_id[first:stop] = frames.entry_id[row]
    messages.partition[first:stop] = frames.partition[row]
    messages.ts[first:stop] = frames.last_ts_ns[row]
    messages.redelivery_count[first:stop] = _redeliveries(frames, row)
    messages.row[first:stop] = row
    messages.batch_size[first:stop] = frames.message_count[row]
    messages.schema_version_bytes[first:stop] = frames.schema_version_hex_bytes[row]


@inlined
def _number_items(
    parser: ParserState, frames: FrameColumns, row: int, first: int, items: int, words: Int64Array
) -> bool:
    """Write the batch index of each message; False if their number is not the announced one.

    Compaction may remove messages: then the metadata lists the indexes of the remaining ones.
    """
    messages = parser.messages
    remaining = frames.compacted_count[row]
    is_listed = remaining != NULL and items == remaining
    if items != frames.message_count[row] and not is_listed:
        return False
    for k in range(items):
        index = words[frames.compacted_at[row] + k] if is_listed else k
        messages.batch_index[first + k] = index
    return True


@inlined
def _copy_version(parser: ParserState, frames: FrameColumns, row: int, data: ByteArray) -> int:
    """Copy an entry's schema version to the text; its offset, NULL if it has none, or _NO_ROOM."""
    size = frames.schema_version_hex_bytes[row]
    if size < 0:
        return NULL
    if size > len(parser.text) - parser.cursor[state.CURSOR_TEXT]:
        return _NO_ROOM
    return _copy_text(parser, data, frames.schema_version_hex_at[row], size)


@inlined
def _open_batch(
    parser: ParserState,
    frames: FrameColumns,
    row: int,
    data: ByteArray,
    span: Span,
    words: Int64Array,
) -> int:
    """Write all messages of a batch: DONE, FULL, SPOILT. span.root: the schema version's offset."""
    cursor = parser.cursor
    messages = parser.messages
    first = cursor[state.CURSOR_COUNT]
    size = frames.message_count[row]
    if size > MAX_BATCH_MESSAGES:
        note_frame(parser.notices, _ENTRY_NOT_OPENED, frames, row, UnpackResult.TOO_LARGE, NULL)
        return SPOILT
    at = span.at
    # A message has at least four bytes: this bounds the announced number.
    most = max(min(size, (span.end - at) // 4), 0)
    if most > len(messages.row) - first:
        return RowsStatus.FULL
    _reset_items(messages, first, first + most)
    read = 0
    while read < size and at >= 0 and (at < span.end or frames.compacted_count[row] == NULL):
        at = _open_item(parser, first + read, data, at, span.end)
        read += 1
    if at == _NO_ROOM:
        return RowsStatus.FULL
    if at < 0:
        read -= 1
    is_whole = at >= 0 and _number_items(parser, frames, row, first, read, words)
    if not is_whole or at < span.end:
        note_frame(parser.notices, _BATCH_MALFORMED, frames, row, size, read)
    if not is_whole:
        return SPOILT
    stop = first + read
    _fill_items(messages, first, stop, frames, row)
    messages.source[first:stop] = (
        OPENED_SOURCE if frames.compression[row] != Codec.NONE else frames.source[row]
    )
    messages.schema_version_at[first:stop] = span.root
    cursor[state.CURSOR_COUNT] = stop
    return RowsStatus.DONE


@inlined
def _opened_batch(parser: ParserState, row: int) -> int:
    """The index in parser.batches of the compressed batch in a row; -1 if it is not listed."""
    cursor = parser.cursor
    batches = parser.batches
    index = cursor[state.CURSOR_BATCH]
    while index < cursor[state.CURSOR_BATCHES] and batches.row[index] < row:
        index += 1
    cursor[state.CURSOR_BATCH] = index
    return int(index) if index < cursor[state.CURSOR_BATCHES] and batches.row[index] == row else -1


@inlined
def _open_entry(
    parser: ParserState,
    frames: FrameColumns,
    row: int,
    data: ByteArray,
    opened: ByteArray,
    words: Int64Array,
) -> int:
    """Write the messages of one entry: DONE, FULL, SPOILT, PACKED or CHUNK."""
    if frames.marker_type[row] != NULL or frames.is_marker[row] == 1:
        return RowsStatus.DONE  # a marker between brokers, no application message
    ready = parser.cursor[state.CURSOR_JOINED]
    is_chunk = frames.chunk_count[row] > 1
    if is_chunk or frames.is_batch[row] != 1:
        if is_chunk and ready < 0:
            return RowsStatus.CHUNK
        status = _open_single(parser, frames, row, data)
        if is_chunk and status == RowsStatus.DONE and frames.is_encrypted[row] != 1:
            parser.messages.payload_bytes[parser.cursor[state.CURSOR_COUNT] - 1] = ready
        return status
    if frames.is_encrypted[row] == 1:
        note_frame(parser.notices, _ENCRYPTED_BATCH, frames, row, frames.message_count[row], NULL)
        return RowsStatus.DONE
    at = frames.payload_at[row]
    size = frames.payload_bytes[row]
    is_packed = frames.compression[row] != Codec.NONE
    if is_packed:
        index = _opened_batch(parser, row)
        if index < 0:
            return RowsStatus.PACKED
        at = parser.batches.at[index]
        size = parser.batches.size[index]
        if at < 0:
            return SPOILT
    version = _copy_version(parser, frames, row, data)
    if version == _NO_ROOM:
        return RowsStatus.FULL
    batch_data = opened if is_packed else data
    return _open_batch(parser, frames, row, batch_data, Span(at, at + size, version), words)


@inlined
def _is_readable(frames: FrameColumns, row: int, protocol: int) -> bool:
    """Whether a row is a whole, undamaged entry with parsed metadata."""
    return (
        frames.protocol[row] == protocol
        and frames.command[row] in (SEND, MESSAGE)
        and frames.status[row] == COMPLETE
        and frames.checksum[row] != CHECKSUM_MISMATCH
        and frames.message_count[row] != NULL
        and frames.frame_no[row] != NULL
    )


@kernel
def list_batches(parser: ParserState, frames: FrameColumns, most_bytes: int) -> int:
    """List compressed batches from the cursor's row on in parser.batches, in order.

    Args:
        most_bytes: bound of their decompressed bytes; the first batch is always listed.

    Returns:
        the sum of their announced decompressed bytes; batches above MAX_ENTRY_BYTES count 0.
    """
    cursor = parser.cursor
    batches = parser.batches
    row = cursor[state.CURSOR_ROW]
    count = 0
    total = 0
    while row < cursor[state.CURSOR_ROWS] and count < len(batches.row):
        if (
            _is_readable(frames, row, cursor[state.CURSOR_PROTOCOL])
            and frames.is_batch[row] == 1
            and frames.compression[row] != Codec.NONE
            and frames.is_encrypted[row] != 1
            and frames.chunk_count[row] <= 1
            and frames.marker_type[row] == NULL
            and frames.is_marker[row] != 1
        ):
            size = frames.uncompressed_bytes[row]
            if size < 0 or size > MAX_ENTRY_BYTES:
                size = 0  # will not be decompressed
            if count > 0 and size > most_bytes - total:
                break
            batches.row[count] = row
            batches.codec[count] = frames.compression[row]
            batches.source[count] = frames.source[row]
            batches.offset[count] = frames.payload_at[row]
            batches.length[count] = frames.payload_bytes[row]
            batches.size[count] = frames.uncompressed_bytes[row]
            total += size
            count += 1
        row += 1
    cursor[state.CURSOR_BATCH] = 0
    cursor[state.CURSOR_BATCHES] = count
    return int(total)


@kernel
def list_chunks(parser: ParserState, frames: FrameColumns, rows: Int64Array) -> int:
    """Write the rows of chunks from the cursor's row on, up to the next other entry, to `rows`.

    Returns:
        how many were written, at most len(rows).
    """
    cursor = parser.cursor
    count = 0
    for row in range(cursor[state.CURSOR_ROW], cursor[state.CURSOR_ROWS]):
        if count == len(rows):
            break
        if (
            _is_readable(frames, row, cursor[state.CURSOR_PROTOCOL])
            and frames.marker_type[row] == NULL
            and frames.is_marker[row] != 1
        ):
            if frames.chunk_count[row] <= 1:
                break
            rows[count] = row
            count += 1
    return count


@kernel
def open_entries(
    parser: ParserState,
    frames: FrameColumns,
    sources: Sources,
    opened: ByteArray,
    words: Int64Array,
) -> int:
    """Parse the entries from the cursor's row on; writes messages, text, notices and the cursor.

    If the next row has the last chunk of a message, cursor[CURSOR_JOINED] is the message's size.

    Args:
        opened: the decompressed batches that parser.batches lists.
        words: of the block: the batch indexes that compaction left.

    Returns:
        DONE; FULL, PACKED or CHUNK for the row at the cursor, which is not handled yet.
    """
    cursor = parser.cursor
    while cursor[state.CURSOR_ROW] < cursor[state.CURSOR_ROWS]:
        row = cursor[state.CURSOR_ROW]
        if _is_readable(frames, row, cursor[state.CURSOR_PROTOCOL]):
            count = cursor[state.CURSOR_COUNT]
            text = cursor[state.CURSOR_TEXT]
            data = sources[frames.source[row]]
            status = _open_entry(parser, frames, row, data, opened, words)
            if status in (RowsStatus.FULL, SPOILT):
                cursor[state.CURSOR_COUNT] = count
                cursor[state.CURSOR_TEXT] = text
            if status in (RowsStatus.FULL, RowsStatus.PACKED, RowsStatus.CHUNK):
                return status
        cursor[state.CURSOR_ROW] = row + 1
        cursor[state.CURSOR_JOINED] = -1
    return RowsStatus.DONE
