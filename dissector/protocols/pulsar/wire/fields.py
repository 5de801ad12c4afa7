"""Wire fields of Pulsar frames: from the bytes of each frame to its columns, checksum included.

Three passes over the rows of a block. `locate` finds the protobuf parts of each frame and verifies
the checksum; `scan` parses all parts by the column plan; `finish_rows` sets the columns that depend
on both: malformed frames, unknown values. A cut frame has the columns of its whole parts: of the
command, and of the metadata.
"""

from collections import deque
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.crc32c import crc32c
from dissector.codecs.integers import be16, be32
from dissector.codecs.names import NameTable
from dissector.jit import inlined, kernel
from dissector.limits import FRAME_BLOCKS_AT_ONCE, NULL
from dissector.notice_log import NoticeLog
from dissector.notice_rows import NoticeRows, Notices, drained, new_notices
from dissector.notices import NOTICE_NUMBER
from dissector.protobuf import scan as protobuf_scan
from dissector.protobuf.odd_fields import ODD_COUNT, ODD_SLOTS
from dissector.protobuf.scan import SpanColumns, SpanResult
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns, IdColumns
from dissector.protocols.frame_notices import note_frame, notice_at
from dissector.protocols.interface import Sources
from dissector.protocols.pulsar.wire import columns as wire_columns
from dissector.protocols.pulsar.wire import headers
from dissector.protocols.pulsar.wire.commands import MESSAGE, SEND, TOPIC_MIGRATED
from dissector.protocols.pulsar.wire.unknown import Unknown

_SPANS_PER_FRAME: Final = 3
_RESOURCE_IS_CONSUMER: Final = 1

_MALFORMED_FRAME: Final = NOTICE_NUMBER["malformed_frame"]
_IDS_LIMIT: Final = NOTICE_NUMBER["ids_limit"]
_NAMES_LIMIT: Final = NOTICE_NUMBER["names_limit"]


class Fields(NamedTuple):
    """The values of a block that are not in its frame columns.

    ids: message ids of ACK and REDELIVER frames; id_count: their number.
    words: int64[], ack sets and compacted indexes; word_count: their number. Later blocks reuse the
        arrays.
    """

    ids: IdColumns
    id_count: int
    words: Int64Array
    word_count: int


class Extent(NamedTuple):
    """The position of a frame: data[at:end] was captured; the whole frame ends at frame_end."""

    at: int
    end: int
    frame_end: int


@inlined
def _add_span(
    spans: SpanColumns, count: int, row: int, source: int, extent: Extent, root: int
) -> int:
    spans.row[count] = row
    spans.source[count] = source
    spans.at[count] = extent.at
    spans.end[count] = extent.end
    spans.root[count] = root
    return count + 1


@inlined
def _judge_checksum(
    frames: FrameColumns, row: int, data: ByteArray, extent: Extent, has_checksum: bool
) -> None:
    """Write the checksum columns of a complete frame; extent.at is behind the checksum."""
    if not has_checksum:
        frames.checksum[row] = columns.CHECKSUM_ABSENT
        return
    computed = crc32c(data, extent.at, extent.end - extent.at)
    frames.crc32c_computed[row] = computed
    is_right = computed == frames.crc32c_stored[row]
    frames.checksum[row] = columns.CHECKSUM_OK if is_right else columns.CHECKSUM_MISMATCH


@inlined
def _locate_entry(
    frames: FrameColumns, row: int, data: ByteArray, extent: Extent, spans: SpanColumns, count: int
) -> int:
    """Locate the parts in the second half of a SEND or MESSAGE, which begins at extent.at.

    Returns the number of spans, or -1 minus it if the sizes contradict each other.
    """
    source = frames.source[row]
    at = extent.at
    end = extent.end
    if end - at >= 6 and be16(data, at) == headers.MAGIC_BROKER_ENTRY:
        size = be32(data, at + 2)
        if size > extent.frame_end - at - 6:
            return -1 - count
        if size > end - at - 6:
            return count
        part = Extent(at + 6, at + 6 + size, 0)
        count = _add_span(spans, count, row, source, part, wire_columns.ROOT_BROKER_ENTRY)
        at = part.end
    if end < extent.frame_end and end - at < 6:
        return count  # cut within a possible checksum
    has_checksum = end - at >= 6 and be16(data, at) == headers.MAGIC_CHECKSUM
    if has_checksum:
        frames.crc32c_stored[row] = be32(data, at + 2)
        at += 6
    if frames.status[row] == columns.COMPLETE:
        _judge_checksum(frames, row, data, Extent(at, end, 0), has_checksum)
    if end - at < 4:
        return count if extent.frame_end - at >= 4 else -1 - count
    size = be32(data, at)
    at += 4
    if size > extent.frame_end - at:
        return -1 - count
    frames.metadata_bytes[row] = size
    frames.metadata_at[row] = at
    frames.payload_at[row] = at + size
    frames.payload_bytes[row] = extent.frame_end - at - size
    if size <= end - at:
        is_send = frames.command[row] == SEND
        root = (
            wire_columns.ROOT_METADATA_OF_SEND if is_send else wire_columns.ROOT_METADATA_OF_MESSAGE
        )
        count = _add_span(spans, count, row, source, Extent(at, at + size, 0), root)
    return count


@inlined
def _locate_frame(
    frames: FrameColumns, row: int, data: ByteArray, spans: SpanColumns, count: int
) -> int:
    """Locate the parts of one frame; return the number of spans, -1 minus it if sizes are wrong."""
    at = frames.data_offset[row]
    end = at + frames.data_bytes[row]
    frame_end = at + frames.frame_bytes[row]
    command = frames.command[row]
    if command == NULL:
        command = headers.read_command(data, at, end)
        frames.command[row] = command
    is_entry = command in (SEND, MESSAGE)
    if is_entry and frames.status[row] != columns.COMPLETE:
        frames.checksum[row] = columns.CHECKSUM_NOT_EVALUATED
        frames.checksum_note[row] = frames.status[row]
    if end - at < 8:
        return count
    size = be32(data, at + 4)
    if size > frame_end - at - 8:
        return -1 - count
    if size > end - at - 8:
        return count
    part = Extent(at + 8, at + 8 + size, 0)
    count = _add_span(spans, count, row, frames.source[row], part, wire_columns.ROOT_COMMAND)
    if is_entry:
        return _locate_entry(frames, row, data, Extent(part.end, end, frame_end), spans, count)
    return count


@inlined
def _spoil(frames: FrameColumns, row: int, notices: Notices) -> None:
    """Mark a frame as malformed, with a notice; a cut frame keeps its status."""
    if frames.status[row] == columns.MALFORMED:
        return
    if frames.status[row] == columns.COMPLETE:
        frames.status[row] = columns.MALFORMED
    if frames.checksum[row] == NULL and frames.command[row] in (SEND, MESSAGE):
        frames.checksum[row] = columns.CHECKSUM_NOT_EVALUATED
        frames.checksum_note[row] = columns.MALFORMED
    note_frame(notices, _MALFORMED_FRAME, frames, row, NULL, NULL)


@kernel
def locate(
    frames: FrameColumns,
    sources: Sources,
    rows: int,
    protocol: int,
    spans: SpanColumns,
    notices: Notices,
) -> int:
    """Locate the parts of the frames in rows 0 to rows - 1 and verify their checksums.

    Writes command where it is null, the checksum, metadata and payload columns, spans and notices.

    Returns:
        The number of spans.
    """
    count = 0
    for row in range(rows):
        if frames.protocol[row] != protocol or frames.frame_no[row] == NULL:
            continue
        data = sources[frames.source[row]]
        count = _locate_frame(frames, row, data, spans, count)
        if count < 0:
            count = -1 - count
            _spoil(frames, row, notices)
    return count


@kernel
def finish_rows(frames: FrameColumns, spans: SpanColumns, count: int, notices: Notices) -> None:
    """Set the columns of frames that depend on the status of their spans.

    Metadata that cannot be parsed makes a frame malformed, unless its checksum is wrong anyway; the
    columns that have defaults without metadata become NULL.
    """
    for index in range(count):
        row = spans.row[index]
        status = spans.status[index]
        if status == SpanResult.BAD:
            is_command = spans.root[index] == wire_columns.ROOT_COMMAND
            if is_command or frames.checksum[row] != columns.CHECKSUM_MISMATCH:
                _spoil(frames, row, notices)
            if not is_command:
                frames.message_count[row] = NULL
                frames.is_batch[row] = NULL
                frames.is_encrypted[row] = NULL
                frames.compression[row] = NULL
        elif status == SpanResult.LIMITED:
            note_frame(notices, _IDS_LIMIT, frames, row, NULL, NULL)
        if spans.root[index] == wire_columns.ROOT_COMMAND and frames.command[row] == TOPIC_MIGRATED:
            if frames.response[row] == _RESOURCE_IS_CONSUMER:
                frames.consumer_id[row] = frames.producer_id[row]
                frames.producer_id[row] = NULL
            frames.response[row] = NULL


class FieldDecoder:
    """Fills the wire-field columns of Pulsar frames, block after block; adds notices."""

    def __init__(self, names: NameTable, protocol: int) -> None:
        """names: of the capture; protocol: Pulsar's number in frames.protocol."""
        self._names = names
        self._protocol = protocol
        self.unknown = Unknown(protocol)
        self._plan = wire_columns.frame_plan()
        self._spans = SpanColumns.new(0)
        self.notices = NoticeLog()
        self._notices = new_notices(0)
        # Later stages of a block still read its ids and words, so the outputs rotate.
        empty = np.zeros((columns.FRAME_COLUMN_COUNT, 0), np.int64)
        self._outs = deque(
            protobuf_scan.new_output(empty, len(IdColumns._fields), names.columns)
            for _ in range(FRAME_BLOCKS_AT_ONCE)
        )

    def decode(self, frames: FrameColumns, rows: int, sources: Sources) -> Fields:
        """Fill the columns of rows 0 to rows - 1 of a block.

        Args:
            frames: the columns that the framing sets; all others are null.
            sources: the byte arrays that frames.source selects.
        """
        if self._spans.matrix.shape[1] < _SPANS_PER_FRAME * rows:
            self._spans = SpanColumns.new(_SPANS_PER_FRAME * rows)
            self._notices = new_notices((_SPANS_PER_FRAME + 1) * rows)
        spans, notices = self._spans, self._notices
        count = locate(frames, sources, rows, self._protocol, spans, notices)
        out = self._outs.popleft()._replace(cells=frames.matrix)
        out.used[:] = 0
        first = protobuf_scan.scan(self._plan, out, sources, spans, 0, count)
        while first < count:
            out = protobuf_scan.doubled(out)
            first = protobuf_scan.scan(self._plan, out, sources, spans, first, count)
        self._outs.append(out)
        self._note_unknown(frames, rows, out.odd_fields)
        finish_rows(frames, spans, count, notices)
        if notices.used[0]:
            drained_rows = NoticeRows(drained(notices))
            order = np.argsort(drained_rows.frame_no, kind="stable")
            self.notices.add_rows(drained_rows.matrix[order])
        if self._names.drain_refused() and rows:
            self.notices.add([notice_at(_NAMES_LIMIT, frames, rows - 1)])
        return Fields(
            ids=IdColumns(out.ids),
            id_count=int(out.used[protobuf_scan.USED_IDS]),
            words=out.words,
            word_count=int(out.used[protobuf_scan.USED_WORDS]),
        )

    def _note_unknown(self, frames: FrameColumns, rows: int, table: Int64Array) -> None:
        """Count the unknown commands, fields and values of a block."""
        self.unknown.count_block(frames, rows)
        counts = table[ODD_COUNT]
        if not counts.any():
            return
        messages = wire_columns.frame_plan_messages()
        for slot in np.flatnonzero(counts[:ODD_SLOTS]):
            node, number, count, row = table[:, slot].tolist()
            self.unknown.add(frames, row, messages[node], number, count)
        self.unknown.add_others(int(counts[ODD_SLOTS]))
        counts[:] = 0
