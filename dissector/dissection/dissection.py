"""Dissection: bytes of one capture in, rows of its tables out. It opens nothing, reads no clock.

A driver calls `start_file`, `feed` until the file is through, `end_file`, for each file of the
capture, then `finish`; every call returns rows that closed meanwhile, in their tables' order. What
is known between two calls is bounded and the same whether the bytes come from one file, from ring
files or from a wire: however the input is cut, the rows are the same.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector import limits
from dissector.blocks import ByteArray, Coded, Int64Array, TableBlock
from dissector.capture.reader import CaptureReader, FileFacts
from dissector.dissection.connection_rows import ConnectionTable
from dissector.dissection.conversation import AS_CAPTURED, Conversation
from dissector.dissection.event_rows import EventRows
from dissector.dissection.frame_stages import FrameStages
from dissector.dissection.merging import interleaved, merged
from dissector.dissection.redactor import Redactor
from dissector.dissection.without_timestamp import UntimedRows
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
from dissector.protocols.frame_table import common_columns, with_copies
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
    """How much may wait behind holes: a quarter of what the user gives, or the default."""
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
    """One capture on its way through all passes.

    capture: the reader of its records (packet numbers, interfaces).
    packets: the reader of its packets (unknown link types); both for what a driver reports beside
        the rows.
    """

    def __init__(
        self, options: Options, specs: Specs = PROTOCOLS, keys: KeyLog | None = None
    ) -> None:
        """keys: secrets of TLS connections, to which those of the capture itself are added; none is
        used where the bytes of connections are wanted AS_CAPTURED."""
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
        self._facts: list[ProtocolDecoder] = [
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
        self._without_timestamp = UntimedRows(self.capture.without_timestamp)
        self._events = EventRows(len(specs))
        self._stages = FrameStages(self._facts, self._frame_rows, self._take_rows)
        self._fed_blocks = 0  # of frames, by this call of `feed`, and by the one before
        self._fed_before = 0
        self._repeated: tuple[set[int], set[int]] = (set(), set())
        self._is_in_file = False
        self._is_side_lasting = False

    # -- the driver's calls

    def start_file(self) -> None:
        """The next file of the capture begins."""
        self.capture.start_file()
        self._is_in_file = True

    def feed(
        self, data: ByteArray, start: int, end: int, is_last: bool, *, stays: bool = False
    ) -> tuple[int, list[TableBlock]]:
        """Take bytes of the current file, data[start:end].

        Args:
            data: uint8[], writable, valid until the call returns.
            is_last: the file ends at `end`.
            stays: data is valid until two more calls have returned, too, so that rows of its frames
                may be made meanwhile; these calls are `feed` as well, unless the file ends.

        Returns:
            The position after the bytes that are not needed again (the next call begins with the
            rest), and the rows that closed.
        """
        position = start
        self._repeated = (set(), self._repeated[0])
        self._fed_before, self._fed_blocks = self._fed_blocks, 0
        while True:
            scan = self.capture.feed(data, position, end, is_last)
            position = scan.consumed
            if self.capture.may_hold_keys:
                self._take_key_logs()
            if scan.rows:
                self._handle_packets(data, self.capture.packets, scan.rows, scan.first_packet)
            if not scan.is_more:
                break
        self._framing.flush()
        lent = stays and not is_last
        self._stages.finish_reading(but=self._fed_blocks + self._fed_before if lent else 0)
        return position, self._taken()

    def feed_packets(self, data: ByteArray, packets: PacketColumns, rows: int) -> list[TableBlock]:
        """Take packets that a driver found itself, as in the ring of a network interface.

        Their interfaces are described in `capture.interfaces`.

        Args:
            data: uint8[], writable, valid until the call returns. rows: at most as many as the
                packet reader takes at once (limits.PACKET_BLOCK_ROWS).

        Returns:
            The rows that closed.
        """
        self._repeated = (set(), self._repeated[0])
        if rows:
            first_packet = self.capture.count_packets(packets.ts_ns[:rows])
            self._handle_packets(data, packets, rows, first_packet)
        self._framing.flush()
        self._stages.finish_reading()
        return self._taken()

    def settle(self) -> list[TableBlock]:
        """Rows of the last frames that are still being put together; worth a wait when no packets
        come, otherwise they come with the next ones."""
        self._stages.finish()
        return self._taken()

    def rotate(self) -> tuple[FileFacts | None, PacketCounts, list[TableBlock]]:
        """End a part of a capture that goes on: all rows that closed in it, its notices too.

        Counting, connections and everything open go on, so that the rows of all parts are those of
        the whole. Notices wait for the end of a capture, so that they come in order; here they come
        in order part by part, as an input without end must not gather them.

        Returns:
            What the part held, as `end_file` says it of a file (None between two files), and the
            rows.
        """
        self._stages.finish()
        self._notices.add_rows(self._connections.decided())
        for facts in self._facts:
            self._notices.take(facts.notices)
        self._drain_notices(self.capture.notices)
        self._note_hidden()
        self._out.append(self._notices.block())
        self._held_notices = 0
        part = self.capture.split_file() if self._is_in_file else None
        return part, self.packets.finish_file(), self._taken()

    def end_file(self, is_damaged: bool = False) -> tuple[FileFacts, PacketCounts]:
        """The current file is through: what was in it.

        Args:
            is_damaged: the compressed data around it was cut or corrupt.
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

    def finish(self) -> list[TableBlock]:
        """No more input: everything that is open closes. Returns the last rows."""
        buffers = PacketBuffers(_EMPTY, _EMPTY)
        for ranges, count in self._streams.finish():
            self._handle_ranges(ranges, count, buffers)
        self._framing.flush()
        self._framing.close()
        self._stages.close()
        # Requests that nothing answered name the addresses of their connections, too.
        self._out.extend(self._addressed(merged([facts.finish() for facts in self._facts])))
        self._close_connections()
        for facts in self._facts:
            self._notices.take(facts.notices)
        self._notices.add_rows(self._connections.rest())
        self._notices.add(of_limits(self._framing.state, crowded=self._streams.crowded))
        self._drain_notices(self.capture.finish())
        self._drain_notices(self.packets.finish())
        self._notices.add(self._tls.last_notices())
        self._note_hidden()
        self._out.append(self._notices.block())
        return self._taken()

    def open_rows(self) -> list[TableBlock]:
        """The rows of what is open, as they would be if the input ended after the last rotation.

        Nothing changes. Of connections without frames, as a scan makes them, there are none. Of the
        others, a frame that is not whole counts for nothing; last sequence numbers are not known.
        """
        blocks = self._addressed(merged([facts.open_rows() for facts in self._facts]))
        rows = self._connections.open_rows()
        numbers, of_open = rows.connections.connection_id.tolist(), dict[int, ConnectionFacts]()
        for facts in self._facts:
            of_open |= facts.open_facts(numbers)
        blocks.append(self._connections.block(rows, of_open))
        if self._redactor is not None:
            counted = self._redactor.texts, self._redactor.hidden
            blocks = self._redactor.clean(blocks)
            self._redactor.texts, self._redactor.hidden = counted
        return self._without_timestamp.cleared(blocks)

    def repeated(self) -> set[int]:
        """Connections whose facts repeat another one's: the proxy's leg of a pair.

        Those that are open, and those that closed lately, whose last rows may just come.
        """
        return set().union(*self._repeated, *(facts.repeated() for facts in self._facts))

    def open_gaps(self) -> tuple[int, int]:
        """Holes of connections whose rows are still to come: how many, and their bytes."""
        return self._streams.open_gaps()

    def ends_of(self, connection: int) -> tuple[Endpoint, Endpoint] | None:
        """Client and broker of a connection that is open, None for others."""
        return self._connections.ends_of(connection)

    @property
    def keys_used(self) -> list[str]:
        """Lines of a key log with the secrets that opened connections so far."""
        return self._tls.keys_used()

    @property
    def connections_seen(self) -> int:
        """Connections that began so far."""
        return self._streams.connections_seen

    def pending_bytes(self) -> int:
        """Bytes held for frames and searches that are not complete."""
        return self._framing.pending_bytes()

    # -- inside

    def _handle_packets(
        self, data: ByteArray, packets: PacketColumns, rows: int, first_packet: int
    ) -> None:
        """The passes over one block of packets, which lie in data."""
        link_types = self.capture.interfaces.columns.link_type
        segments, segment_count = self.packets.read(data, packets, rows, first_packet, link_types)
        buffers = PacketBuffers(data, self.packets.assembled)
        for ranges, count in self._streams.advance(segments, segment_count, buffers):
            self._handle_ranges(ranges, count, buffers)
            self._close_connections()
        if self._conversation is not None:
            self._out.extend(self._conversation.places(segments, segment_count))

    def _take_key_logs(self) -> None:
        """Secrets that the capture itself holds."""
        self._tls.may_wait = self._opens_tls
        for text in self.capture.key_logs if self._opens_tls else ():
            for line in self._tls.add_keys(text):
                self._notices.note("key_log_broken", value=line)
        self.capture.key_logs.clear()

    def _taken(self) -> list[TableBlock]:
        self._clean()
        taken, self._ready = self._ready, []
        return self._without_timestamp.cleared(taken)

    def _clean(self) -> None:
        """Take secrets out of the rows so far."""
        rows, self._out = self._out, []
        self._ready.extend(rows if self._redactor is None else self._redactor.clean(rows))

    def _note_hidden(self) -> None:
        """Say how many texts of the rows so far held a secret, beside those of frames' details."""
        self._clean()
        if self._redactor is None:
            return
        hidden = [self._redactor.drain(), *(facts.drain_hidden() for facts in self._facts)]
        texts, size = (sum(each) for each in zip(*hidden, strict=True))
        if texts:
            self._notices.note("redacted", bytes=size, value=texts)

    def _handle_ranges(self, ranges: RangeColumns, rows: int, buffers: PacketBuffers) -> None:
        sources = (buffers.block, self._streams.heap, buffers.assembled)
        if self.capture.without_timestamp:
            # Before the first time: the protocols reckon with times, what comes of it is taken out.
            times = ranges.ts_ns[:rows]
            times[times == NULL] = 0
        self._hold_notices(self._streams.notices())
        ranges, rows, sources = self._tls.advance(ranges, rows, sources)
        self._is_side_lasting = sources[RangeSource.SIDE] is not buffers.assembled
        self._hold_notices(self._tls.notices())
        if self._conversation is not None:
            self._out.extend(self._conversation.rows(ranges, rows, sources))
        self._framing.advance(ranges, rows, sources)
        self._framing.flush()

    def _drain_notices(self, of_capture: list[Notice]) -> None:
        """Notices of the framing and of the capture's reader, which forget them."""
        self._notices.take(self._framing.notices)
        self._notices.add(of_capture)
        of_capture.clear()

    def _hold_notices(self, rows: Int64Array) -> None:
        """Notices of a side of a connection wait until its direction is known."""
        kept = min(len(rows), MAX_NOTICES - self._held_notices)
        self._held_notices += kept
        self._notices.count(len(rows) - kept)
        self._connections.hold(rows[:kept])

    def _handle_frames(self, block: FrameBlock) -> None:
        """Start the stages of a block of frames.

        Bytes of the heap and of the side buffer change with the next packets, so frames that lie
        there are copied; those of the framing, and what was decrypted, do not.
        """
        is_brief = np.isin(
            block.frames.source[: block.rows],
            [RangeSource.HEAP] if self._is_side_lasting else [RangeSource.HEAP, RangeSource.SIDE],
        )
        self._stages.begin(with_copies(block, np.flatnonzero(is_brief), RangeSource.HEAP))
        self._fed_blocks += 1

    def _take_rows(
        self, block: FrameBlock | None, rows: list[TableBlock], notices: Sequence[NoticeLog]
    ) -> None:
        """What stages made; a block whose frames are read."""
        if block is not None:
            self._count_malformed(block)
        if notices:
            self._notices.take(*notices)
        self._out.extend(self._addressed(rows))

    def _close_connections(self) -> None:
        """The rows of connections that are over and to which nothing more can be added.

        A connection whose last frame has passed lingers in the streams: the ACK of its last FIN is
        one of its packets, wherever the input is cut.
        """
        connection_indexes = self._streams.retired()
        if len(connection_indexes):
            self._stages.finish()
        for first in range(0, len(connection_indexes), _CLOSED_ROWS):
            over = self._streams.connection_rows(connection_indexes[first : first + _CLOSED_ROWS])
            known = self._facts_of(over.connections.connection_id)
            rows, notices = self._connections.close(over, known)
            self._out.append(rows)
            self._notices.add_rows(notices)
        self._streams.recycle()

    def _facts_of(self, connections: Int64Array) -> dict[int, ConnectionFacts]:
        """What the protocols know of connections that are over."""
        numbers = self._connections.with_frames(connections).tolist()
        facts_of: dict[int, ConnectionFacts] = {}
        for facts in self._facts:
            facts_of |= facts.connection_facts(numbers)
        self._repeated[0].update(
            number for number, known in facts_of.items() if known.leg == PROXY_LEG
        )
        return facts_of

    def _count_malformed(self, block: FrameBlock) -> None:
        """A frame that was whole for the framing and cannot be read is not decoded."""
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

    def _addressed(self, blocks: list[TableBlock]) -> list[TableBlock]:
        """A protocol's rows, its exchanges with the addresses of their connections; before frames
        the clients of theirs, if they are wanted."""
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
        """The rows of `frames` as one block, in the order of their numbers, then the events."""
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
            own = self._facts[protocol].frame_columns(block, decoded[protocol], part)
            columns.update(own)
            blocks.append(TableBlock("frames", len(part), columns))
        if len(blocks) > 1:
            blocks = [interleaved([[part] for part in blocks])]
        return blocks + events
