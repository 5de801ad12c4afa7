"""Dissection: bytes of one capture in, rows of its tables out. It opens no file, reads no clock.

For each file of the capture, a driver calls `start_file`, `feed` until the end of the file, and
`end_file`; then `finish`. Every call returns the rows that closed, in their tables' order. The
state between two calls is bounded. The rows are the same however the input is cut: into one file,
ring files or packets of a live tap.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector import limits
from dissector.blocks import ByteArray, Coded, Int64Array, TableBlock
from dissector.capture.reader import CaptureReader, FileFacts
from dissector.dissection.connection_rows import ConnectionTable
from dissector.dissection.conversation import AS_CAPTURED, Conversation
from dissector.dissection.copied_connections import CopiedConnections
from dissector.dissection.event_rows import EventRows
from dissector.dissection.frame_stages import FrameStages
from dissector.dissection.merging import interleaved, merged
from dissector.dissection.redactor import Redactor
from dissector.dissection.without_timestamp import RowsWithoutTimestamp
from dissector.endpoints import Endpoint
from dissector.errors import UsageError
from dissector.limits import MAX_NOTICES, NULL
from dissector.notice_log import NoticeLog, of_limits
from dissector.notice_rows import Notice
from dissector.options import Options
from dissector.packet.columns import PacketBuffers, PacketColumns
from dissector.packet.reader import PacketCounts, PacketReader
from dissector.protocols import PROTOCOLS
from dissector.protocols.columns import MALFORMED
from dissector.protocols.frame_table import common_columns, first_of_clients, with_copies
from dissector.protocols.framing import Framing, FramingOptions
from dissector.protocols.interface import (
    PROXY_LEG,
    ConnectionFacts,
    Decoded,
    DecoderOptions,
    FrameBlock,
    ProtocolDecoder,
    Specs,
)
from dissector.stream.columns import RangeColumns, RangeSource
from dissector.stream.state import StreamOptions
from dissector.stream.streams import Streams
from dissector.tls.keylog import KeyLog
from dissector.tls.room import TlsRoom

_CLOSED_ROWS: Final = 4096  # connections in one block of rows
_EMPTY: Final = np.zeros(1, np.uint8)


def _held_bytes(options: Options) -> int:
    """Limit of bytes held behind holes: a quarter of the memory limit, or the default."""
    if options.memory_limit is None:
        return limits.MAX_HELD_BYTES
    return max(1 << 20, min(limits.MAX_HELD_BYTES, options.memory_limit // 4))


def _number_of(specs: Specs, name: str) -> int:
    for protocol, spec in enumerate(specs):
        if spec.name == name:
            return protocol
    known = ", ".join(spec.name for spec in specs)
    raise UsageError(f"{name}: no such protocol; choose one of {known}")


class Dissection:
    """Runs all passes over one capture.

    capture: the reader of its records (packet numbers, interfaces), for a driver's reports.
    packets: the reader of its packets (unknown link types), for a driver's reports.
    """

    def __init__(
        self, options: Options, specs: Specs = PROTOCOLS, keys: KeyLog | None = None
    ) -> None:
        """keys: secrets of TLS connections, in addition to those in the capture; ignored if the
        bytes of connections are wanted AS_CAPTURED."""
        self._specs = specs
        self._names = tuple(spec.name for spec in specs)
        self.capture = CaptureReader(max_packets=options.max_packets)
        self.packets = PacketReader(options.verify_checksums, key=options.hash_key)
        held = _held_bytes(options)
        self._streams = Streams(
            StreamOptions(
                reorder_window_ms=options.reorder_window_ms,
                overlap=options.overlap,
                held_bytes=held,
                held_bytes_per_connection=min(held, limits.MAX_HELD_BYTES_PER_CONNECTION),
                connections=options.bounded(limits.MAX_CONNECTIONS),
                brief_connections=options.bounded(limits.MAX_BRIEF_CONNECTIONS),
                notes_places=options.follow_connection == AS_CAPTURED,
                hash_key=options.hash_key,
            )
        )
        forced = {port: _number_of(specs, name) for port, name in options.decode_as.items()}
        only = None if options.protocol == "auto" else _number_of(specs, options.protocol)
        self._framing = Framing(
            specs,
            self._handle_frames,
            FramingOptions(options.max_frame_bytes, forced, only, options.hash_key),
        )
        self._decoders: list[ProtocolDecoder] = [
            spec.new_facts(DecoderOptions(**vars(options), protocol_number=protocol))
            for protocol, spec in enumerate(specs)
        ]
        self._notices = NoticeLog()
        self._held_notices = 0  # since the last block of them
        self._files = 0
        self._opens_tls = options.follow_connection != AS_CAPTURED
        self._tls = TlsRoom(
            keys if self._opens_tls else None, options.bounded(limits.MAX_TLS_CONNECTIONS)
        )
        self._connections = ConnectionTable(
            self._streams, self._framing, specs, self.packets.tunnel_names, self._tls,
            options.hash_key,
        )  # fmt: skip
        self._conversation = (
            None if options.follow_connection is None else Conversation(options.follow_connection)
        )
        self._wants_clients = options.want_clients
        self._out: list[TableBlock] = []
        self._ready: list[TableBlock] = []
        self._redactor = Redactor() if options.redact else None
        self._without_timestamp = RowsWithoutTimestamp(self.capture.without_timestamp)
        self._events = EventRows(len(specs))
        self._stages = FrameStages(self._decoders, self._frame_rows, self._add_rows)
        self._fed_blocks = 0  # of frames, by this call of `feed`, and by the one before
        self._fed_before = 0
        self._repeated: tuple[set[int], set[int]] = (set(), set())
        self._copies = CopiedConnections()
        self._is_in_file = False
        self._is_side_lasting = False

    # -- the driver's calls

    def start_file(self) -> None:
        """Begin the next file of the capture."""
        self.capture.start_file()
        self._is_in_file = True

    def feed(
        self, data: ByteArray, start: int, end: int, is_last: bool, *, stays: bool = False
    ) -> tuple[int, list[TableBlock]]:
        """Dissect bytes of the current file, data[start:end].

        Args:
            data: uint8[], writable, valid until the call returns.
            is_last: the file ends at `end`.
            stays: data stays valid until two more calls have returned, so that rows of its frames
                may be built meanwhile; these calls are `feed` as well, unless the file ends.

        Returns:
            The position after the consumed bytes (the next call begins with the rest), and the rows
            that closed.
        """
        position = start
        self._repeated = (set(), self._repeated[0])
        self._fed_before, self._fed_blocks = self._fed_blocks, 0
        while True:
            scan = self.capture.feed(data, position, end, is_last)
            position = scan.consumed
            if self.capture.may_hold_keys:
                self._add_key_logs()
            if scan.rows:
                self._handle_packets(data, self.capture.packets, scan.rows, scan.first_packet)
            if not scan.is_more:
                break
        self._framing.flush()
        lent = stays and not is_last
        self._stages.finish_reading(but=self._fed_blocks + self._fed_before if lent else 0)
        return position, self._drain_rows()

    def feed_packets(self, data: ByteArray, packets: PacketColumns, rows: int) -> list[TableBlock]:
        """Dissect packets that a driver has parsed, as in the ring of a network interface.

        Their interfaces are described in `capture.interfaces`.

        Args:
            data: uint8[], writable, valid until the call returns. rows: at most
                limits.PACKET_BLOCK_ROWS.

        Returns:
            The rows that closed.
        """
        self._repeated = (set(), self._repeated[0])
        if rows:
            first_packet = self.capture.count_packets(packets.ts_ns[:rows])
            self._handle_packets(data, packets, rows, first_packet)
        self._framing.flush()
        self._stages.finish_reading()
        return self._drain_rows()

    def settle(self) -> list[TableBlock]:
        """Wait for the stages of all frames so far and return their rows; useful when no packets
        arrive, since the next calls return the rows anyway."""
        self._stages.finish()
        return self._drain_rows()

    def rotate(self) -> tuple[FileFacts | None, PacketCounts, list[TableBlock]]:
        """End a part of a continuing capture: return all rows that closed in it, and its notices.

        Numbers, connections and all open state continue, so that the rows of all parts are those of
        the whole. Notices are sorted at the end of a capture; here they are sorted part by part,
        because an endless input must not collect them.

        Returns:
            The facts of the part, as `end_file` returns them for a file (None between two files),
            and the rows.
        """
        self._stages.finish()
        self._notices.add_rows(self._connections.decided_notices())
        for decoder in self._decoders:
            self._notices.take(decoder.notices)
        self._drain_notices(self.capture.notices)
        self._note_hidden()
        self._out.append(self._notices.block())
        self._held_notices = 0
        part = self.capture.split_file() if self._is_in_file else None
        return part, self.packets.finish_file(), self._drain_rows()

    def end_file(self, is_damaged: bool = False) -> tuple[FileFacts, PacketCounts]:
        """End the current file and return its facts.

        Args:
            is_damaged: the compressed data of the file was cut or corrupt.
        """
        facts = self.capture.finish_file()
        self._is_in_file = False
        if is_damaged:
            last = self.capture.next_packet - 1
            self._notices.note(
                "damaged_compression",
                packet=last if last else NULL,
                ts_ns=facts.last_ts_ns if facts.last_ts_ns is not None else NULL,
                value=self._files,
            )
        self._files += 1
        return facts, self.packets.finish_file()

    def abandon(self) -> None:
        """End the threads where an error or interrupt ends the run; harmless after `finish`."""
        self._stages.abandon()

    def finish(self) -> list[TableBlock]:
        """End the input: close everything that is open and return the last rows."""
        buffers = PacketBuffers(_EMPTY, _EMPTY)
        for ranges, count in self._streams.finish():
            self._handle_ranges(ranges, count, buffers)
        self._framing.flush()
        self._framing.close()
        self._stages.close()
        # Rows of unanswered requests have the addresses of their connections, too.
        self._out.extend(
            self._with_addresses(merged([decoder.finish() for decoder in self._decoders]))
        )
        self._close_connections()
        for decoder in self._decoders:
            self._notices.take(decoder.notices)
        self._notices.add_rows(self._connections.remaining_notices())
        self._notices.add(of_limits(self._framing.state, crowded=self._streams.crowded))
        self._drain_notices(self.capture.finish())
        self._drain_notices(self.packets.finish())
        self._notices.add(self._tls.last_notices())
        self._note_hidden()
        self._out.append(self._notices.block())
        return self._drain_rows()

    def open_rows(self) -> list[TableBlock]:
        """The open rows, as if the input had ended after the last rotation; changes nothing.

        Connections without frames, as in a scan, have none. Unfinished frames are not counted, and
        last sequence numbers are unknown.
        """
        blocks = self._with_addresses(merged([decoder.open_rows() for decoder in self._decoders]))
        rows = self._connections.open_rows()
        numbers, of_open = rows.connections.connection_id.tolist(), dict[int, ConnectionFacts]()
        for decoder in self._decoders:
            of_open |= decoder.open_facts(numbers)
        blocks.append(self._connections.block(rows, of_open))
        if self._redactor is not None:
            counted = self._redactor.texts, self._redactor.hidden
            blocks = self._redactor.clean(blocks)
            self._redactor.texts, self._redactor.hidden = counted
        return self._without_timestamp.cleared(blocks)

    def repeated(self) -> set[int]:
        """Connections whose facts repeat another one's: the proxy's side of a pair, and copies.

        They are open or closed recently, as their last rows may be returned after they closed.
        """
        of_decoders = (decoder.repeated() for decoder in self._decoders)
        return self._copies.open.union(*self._repeated, *of_decoders)

    def open_gaps(self) -> tuple[int, int]:
        """Number and bytes of holes in connections whose rows are not written yet."""
        return self._streams.open_gaps()

    def ends_of(self, connection: int) -> tuple[Endpoint, Endpoint] | None:
        """Client and broker of an open connection, else None."""
        return self._connections.ends_of(connection)

    @property
    def keys_used(self) -> list[str]:
        """Lines of a key log with the secrets that decrypted connections so far."""
        return self._tls.keys_used()

    @property
    def connections_seen(self) -> int:
        """Connections that began so far."""
        return self._streams.connections_seen

    def pending_bytes(self) -> int:
        """Bytes held for unfinished frames and searches."""
        return self._framing.pending_bytes()

    # -- inside

    def _handle_packets(
        self, data: ByteArray, packets: PacketColumns, rows: int, first_packet: int
    ) -> None:
        """Run all passes over one block of packets, whose bytes are in data."""
        link_types = self.capture.interfaces.columns.link_type
        segments, segment_count = self.packets.read(data, packets, rows, first_packet, link_types)
        buffers = PacketBuffers(data, self.packets.assembled)
        for ranges, count in self._streams.advance(segments, segment_count, buffers):
            self._handle_ranges(ranges, count, buffers)
            self._close_connections()
        if self._conversation is not None:
            self._out.extend(self._conversation.places(segments, segment_count))

    def _add_key_logs(self) -> None:
        """Add the TLS secrets that are in the capture itself."""
        self._tls.may_wait = self._opens_tls
        for text in self.capture.key_logs if self._opens_tls else ():
            for line in self._tls.add_keys(text):
                self._notices.note("key_log_broken", value=line)
        self.capture.key_logs.clear()

    def _drain_rows(self) -> list[TableBlock]:
        self._redact()
        drained, self._ready = self._ready, []
        return self._without_timestamp.cleared(drained)

    def _redact(self) -> None:
        """Remove secrets from the rows so far."""
        rows, self._out = self._out, []
        self._ready.extend(rows if self._redactor is None else self._redactor.clean(rows))

    def _note_hidden(self) -> None:
        """Add a notice with the number of texts with secrets in the rows so far."""
        self._redact()
        if self._redactor is None:
            return
        hidden = [self._redactor.drain(), *(decoder.drain_hidden() for decoder in self._decoders)]
        texts, size = (sum(each) for each in zip(*hidden, strict=True))
        if texts:
            self._notices.note("redacted", bytes=size, value=texts)

    def _handle_ranges(self, ranges: RangeColumns, rows: int, buffers: PacketBuffers) -> None:
        sources = (buffers.block, self._streams.heap, buffers.assembled)
        if self.capture.without_timestamp:
            # Before the first timestamp: protocols compute with times; results are cleared later.
            times = ranges.ts_ns[:rows]
            times[times == NULL] = 0
        notices = self._streams.notices()
        self._copies.note(notices)
        self._hold_notices(notices)
        ranges, rows, sources = self._tls.advance(ranges, rows, sources)
        self._is_side_lasting = sources[RangeSource.SIDE] is not buffers.assembled
        self._hold_notices(self._tls.notices())
        if self._conversation is not None:
            self._out.extend(self._conversation.rows(ranges, rows, sources))
        self._framing.advance(ranges, rows, sources)
        self._framing.flush()

    def _drain_notices(self, of_capture: list[Notice]) -> None:
        """Move the notices of the framing and of a reader to the log."""
        self._notices.take(self._framing.notices)
        self._notices.add(of_capture)
        of_capture.clear()

    def _hold_notices(self, rows: Int64Array) -> None:
        """Hold notices of a side of a connection until its direction is known."""
        accepted = min(len(rows), MAX_NOTICES - self._held_notices)
        self._held_notices += accepted
        self._notices.count(len(rows) - accepted)
        self._connections.hold(rows[:accepted])

    def _handle_frames(self, block: FrameBlock) -> None:
        """Start the stages of a block of frames.

        The next packets overwrite the heap and the side buffer, so frames in them are copied;
        frames in the arena or in decrypted bytes are not.
        """
        is_overwritten = np.isin(
            block.frames.source[: block.rows],
            [RangeSource.HEAP] if self._is_side_lasting else [RangeSource.HEAP, RangeSource.SIDE],
        )
        copied = with_copies(block, np.flatnonzero(is_overwritten), RangeSource.HEAP)
        hosts = self._connections.hosts(first_of_clients(block))
        self._stages.begin(copied._replace(copies=self._copies.take_new(), hosts=hosts))
        self._fed_blocks += 1

    def _add_rows(
        self, block: FrameBlock | None, rows: list[TableBlock], notices: Sequence[NoticeLog]
    ) -> None:
        """Handle the output of the stages: rows, notices, and a block whose bytes are done."""
        if block is not None:
            self._count_malformed(block)
        if notices:
            self._notices.take(*notices)
        self._out.extend(self._with_addresses(rows))

    def _close_connections(self) -> None:
        """Write the rows of closed connections that can have no further packets.

        A connection stays in the streams after its last frame: the ACK of its last FIN is one of
        its packets, wherever the input is cut.
        """
        connection_indexes = self._streams.retired()
        if len(connection_indexes):
            self._stages.finish()
        for first in range(0, len(connection_indexes), _CLOSED_ROWS):
            closed = self._streams.connection_rows(connection_indexes[first : first + _CLOSED_ROWS])
            facts = self._facts_of(closed.connections.connection_id)
            rows, notices = self._connections.close(closed, facts)
            self._out.append(rows)
            self._notices.add_rows(notices)
        self._streams.recycle()

    def _facts_of(self, connections: Int64Array) -> dict[int, ConnectionFacts]:
        """The facts of closed connections from all protocols, which drop their state."""
        numbers = self._connections.with_frames(connections).tolist()
        facts_of: dict[int, ConnectionFacts] = {}
        for decoder in self._decoders:
            facts_of |= decoder.connection_facts(numbers)
        self._repeated[0].update(
            number for number, facts in facts_of.items() if facts.leg == PROXY_LEG
        )
        self._repeated[0].update(self._copies.close(connections))
        return facts_of

    def _count_malformed(self, block: FrameBlock) -> None:
        """Subtract the block's malformed frames, which the framing counted as decoded."""
        frames = block.frames
        bad = np.flatnonzero(
            (frames.status[: block.rows] == MALFORMED) & (frames.frame_no[: block.rows] != NULL)
        )
        for row in bad.tolist():
            self._connections.count_malformed(
                int(frames.connection_id[row]),
                int(frames.endpoint_index[row]),
                int(frames.frame_bytes[row]),
            )

    def _with_addresses(self, blocks: list[TableBlock]) -> list[TableBlock]:
        """Blocks with addresses added to exchanges; if clients are wanted, the clients of frames'
        connections come first."""
        clients: list[TableBlock] = []
        for block in blocks:
            if block.table == "exchanges" or (self._wants_clients and block.table == "frames"):
                numbers = block.columns["connection_id"]
                assert isinstance(numbers, np.ndarray), "a connection is named by its number"
                if block.table == "frames":
                    clients.append(self._connections.clients(np.unique(numbers)))
                else:
                    block.columns.update(self._connections.addresses(numbers))
        return clients + blocks

    def _frame_rows(self, block: FrameBlock, decoded: list[Decoded]) -> list[TableBlock]:
        """The rows of `frames` as one block, in order of their numbers, then the events."""
        blocks: list[TableBlock] = []
        numbers = block.frames.frame_no[: block.rows]
        protocols = block.frames.protocol[: block.rows]
        events = self._events.rows(block)
        rows = np.flatnonzero(numbers != NULL)
        if not len(rows):
            return events
        first = int(protocols[rows[0]])
        is_one = bool((protocols[rows] == first).all())
        for protocol in [first] if is_one else np.unique(protocols[rows]).tolist():
            part = rows[protocols[rows] == protocol]
            columns = common_columns(block, part)
            columns["protocol"] = Coded(protocols[part], self._names)
            own_columns = self._decoders[protocol].frame_columns(block, decoded[protocol], part)
            columns.update(own_columns)
            blocks.append(TableBlock("frames", len(part), columns))
        if len(blocks) > 1:
            blocks = [interleaved([[part] for part in blocks])]
        return blocks + events
