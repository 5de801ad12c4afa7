"""CaptureReader converts buffers of the files of one capture to packet columns, without I/O.

A file is in state FORMAT until its first bytes are parsed, then in RECORDS; after damage it is in
SEARCH until credible records follow (`capture.search`). OVER: the rest of the file is ignored.
`finish_file` returns the facts of a file, `finish` the notices of the whole capture.
"""

import struct
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.capture import columns as capture_columns
from dissector.capture import pcapng
from dissector.capture.columns import ScanProgress
from dissector.capture.interfaces import Interfaces, add_key_log, packet_comments, read_section
from dissector.capture.pcap import PcapLayout, header_bytes, is_pcap, read_header, scan_pcap
from dissector.capture.pcapng import BlockType, PcapngSection
from dissector.capture.search import HERE, NOT_HERE, SearchResult, find_blocks, find_records
from dissector.capture.without_timestamp import PacketsWithoutTimestamp
from dissector.limits import MAX_PACKETLESS_BYTES, NULL, PACKET_BLOCK_ROWS, UNSTEADY_CLOCK_MS
from dissector.notice_rows import Notice, notice_of
from dissector.packet.columns import PacketColumns

PCAP: Final = "pcap"
PCAPNG: Final = "pcapng"
LIVE: Final = "live"  # packets of a network interface
HEAD_BYTES: Final = 12  # enough to identify the format
_UNSTEADY, _UNSTEADY_NS = notice_of("clock_unsteady").kind, UNSTEADY_CLOCK_MS * 1_000_000
_LONGEST_HEADER: Final = 28  # of a pcap file
_FORMAT, _RECORDS, _SEARCH, _OVER = range(4)


def capture_format(head: bytes) -> str | None:
    """Return PCAP, PCAPNG or None by the first HEAD_BYTES of a file."""
    if is_pcap(int.from_bytes(head[:4], "big")) and len(head) >= 4:
        return PCAP
    if head[:4] == b"\n\r\r\n" and read_section(head[:HEAD_BYTES]) is not None:
        return PCAPNG
    return None


class Scan(NamedTuple):
    """Result of one feed.

    rows: packets in `CaptureReader.packets`; first_packet: packet number of row 0 in the capture;
    consumed: position in the buffer after the last packet; is_more: feed again at once from
    `consumed` (false: more bytes are needed, or the file has ended).
    """

    rows: int
    first_packet: int
    consumed: int
    is_more: bool


class ReadProblem(NamedTuple):
    """A defect of a file. code: of a notice; offset: byte in the (uncompressed) file."""

    code: str
    offset: int


class FileFacts(NamedTuple):
    """Facts from the records of one file; None if unknown.

    packets: number of records; first_packet: packet number of the first in the capture; link_types:
    in order of appearance; snaplen: smallest of its interfaces; first_ts_ns, last_ts_ns: earliest
    and latest time; clock_steps: packets earlier than their predecessor, also in the file before.
    """

    format: str | None
    packets: int
    first_packet: int
    link_types: tuple[int, ...]
    snaplen: int | None
    first_ts_ns: int | None
    last_ts_ns: int | None
    is_truncated: bool
    dropped_by_interface: int | None
    clock_steps: int
    problems: tuple[ReadProblem, ...]


class _File:
    """State of the file that is being read."""

    def __init__(self, index: int, first_packet: int, first_interface: int, drops: int) -> None:
        self.index = index
        self.first_packet = first_packet
        self.first_interface = first_interface
        self.drops_before = drops
        self.drops_reported = 0  # by interface statistics, in parts that `split_file` ended
        self.format: str | None = None
        self.phase = _FORMAT
        self.offset = 0  # of the next byte to be fed
        self.damaged_at = 0
        self.packets_end = 0  # offset after the last packet
        self.layout: PcapLayout | None = None
        self.section: PcapngSection | None = None
        self.lost_section: PcapngSection | None = None  # the damaged one, during SEARCH
        self.is_resumed = False  # this section continues after damage
        self.first_ts_ns: int | None = None
        self.last_ts_ns: int | None = None
        self.clock_steps = 0
        self.problems: list[ReadProblem] = []


class CaptureReader:
    """Reads the files of one capture in order: start_file, feed repeatedly, finish_file, finish.

    packets: the columns that feed fills, valid until the next feed. interfaces: all so far;
    without_timestamp: packets without a time, which have that of the packet before.
    next_packet: number of the next packet, from 1. notices: so far, in order.
    key_logs: secrets before the packets of the last feed; the caller clears the list.
    may_hold_keys: a file has a format that can contain key logs.
    max_packets: limit, at least 1; then the capture `is_full`, and must not be fed.
    """

    def __init__(self, block_rows: int = PACKET_BLOCK_ROWS, max_packets: int | None = None) -> None:
        self.packets = PacketColumns.new(block_rows)
        self._max_packets = max_packets or 1 << 62
        self.is_full = False
        self.interfaces = Interfaces()
        self.without_timestamp = PacketsWithoutTimestamp()
        self.next_packet = 1
        self.notices: list[Notice] = []
        self.key_logs: list[bytes] = []
        self.may_hold_keys = False
        self.clock_steps = 0
        self._state = capture_columns.new_scan_state()
        self._largest_step = notice_of("clock_step", value=0)
        self._previous_ts_ns: int | None = None
        self._dropped: int | None = None
        self._files = 0
        self._file = _File(0, 1, 0, 0)

    def start_file(self) -> None:
        """Start the next file of the capture."""
        drops = int(self._state.packet_drops[0])
        self._file = _File(self._files, self.next_packet, self.interfaces.count, drops)
        self._files += 1

    def feed(self, data: ByteArray, start: int, end: int, is_last: bool) -> Scan:
        """Read packets from data[start:end], the file's bytes after those that were consumed.

        Args:
            is_last: the file ends at `end`.
        """
        file = self._file
        position = start
        rows = 0
        is_more = True
        left = self._max_packets + 1 - self.next_packet
        if left < len(self.packets.offset):
            self.packets = PacketColumns(self.packets.matrix[:, :left].copy())
        while is_more and rows == 0:
            before = position
            if file.phase == _FORMAT:
                position, is_more = self._read_format(data, position, end)
            elif file.phase == _SEARCH:
                position, is_more = self._search(data, position, end, is_last)
            elif file.phase == _OVER:
                position, is_more = end, False
            else:
                rows, position, is_more = self._scan(data, position, end)
            file.offset += position - before
            if self._is_without_packets(rows, position):
                file.phase = _OVER
                self._add_problem("packetless_limit", file.packets_end, MAX_PACKETLESS_BYTES)
                rows, position, is_more = 0, end, False
        if rows:
            times = self.packets.ts_ns[:rows]
            self._note_times(times, self.without_timestamp.fill(times, self.next_packet))
        first_packet = self.next_packet
        self.next_packet += rows
        self.is_full = self.next_packet > self._max_packets
        if self.is_full:
            return Scan(rows, first_packet, position, False)
        if is_last and not is_more and position < end:
            if not self._is_cut_only(data, position, end):
                self._start_search(position)
                return Scan(rows, first_packet, position, True)
            self._add_problem("truncated_tail", file.offset)
            position = end
        return Scan(rows, first_packet, position, is_more)

    def _is_without_packets(self, rows: int, position: int) -> bool:
        """Whether MAX_PACKETLESS_BYTES passed without a packet; records the end of the last row.

        Depends on the offsets of packets alone, not on the buffer sizes.
        """
        file = self._file
        if file.phase == _OVER:
            return False
        if not rows:
            return file.offset - file.packets_end > MAX_PACKETLESS_BYTES
        here = file.offset - position  # of the buffer in the file
        first, last = int(self.packets.offset[0]), int(self.packets.offset[rows - 1])
        if here + first - file.packets_end > MAX_PACKETLESS_BYTES:
            return True
        file.packets_end = here + last + int(self.packets.captured_bytes[rows - 1])
        return False

    @property
    def is_over(self) -> bool:
        """Whether the rest of the file is ignored."""
        return self._file.phase == _OVER

    def start_live(self) -> None:
        """Mark the started file as a live capture, whose packets `count_packets` numbers."""
        self._file.format = LIVE
        self._file.phase = _OVER

    def count_packets(self, times_ns: Int64Array) -> int:
        """Number packets that a driver received, from their times; return the first number."""
        first_packet = self.next_packet
        if len(times_ns):
            self._note_times(times_ns, self.without_timestamp.fill(times_ns, first_packet))
        self.next_packet += len(times_ns)
        return first_packet

    def split_file(self) -> FileFacts:
        """Return the facts of the file so far; the rest of it counts as another file."""
        facts = self.finish_file()
        file = self._file
        file.first_packet = self.next_packet
        file.drops_before = int(self._state.packet_drops[0])
        file.drops_reported = self.interfaces.dropped_from(file.first_interface) or 0
        file.first_ts_ns = file.last_ts_ns = None
        file.clock_steps = 0
        file.problems = []
        return facts

    def finish_file(self) -> FileFacts:
        """Return the facts of the file that was read."""
        file = self._file
        first, count = file.first_interface, self.interfaces.count
        columns = self.interfaces.columns
        snaplens = [int(snaplen) for snaplen in columns.snaplen[first:count] if snaplen > 0]
        dropped = self.interfaces.dropped_from(first)
        if dropped is not None:
            dropped -= file.drops_reported
        packet_drops = int(self._state.packet_drops[0]) - file.drops_before
        if packet_drops:
            dropped = (dropped or 0) + packet_drops
        if dropped is not None:
            self._dropped = (self._dropped or 0) + dropped
        if self.next_packet == file.first_packet and self._is_filtered(first, count):
            self.notices.append(notice_of("filter_matched_nothing", value2=file.index))
        return FileFacts(
            file.format,
            self.next_packet - file.first_packet,
            file.first_packet,
            tuple(dict.fromkeys(columns.link_type[first:count].tolist())),
            min(snaplens, default=None),
            file.first_ts_ns,
            file.last_ts_ns,
            any(problem.code != "skipped_section" for problem in file.problems),
            dropped,
            file.clock_steps,
            tuple(file.problems),
        )

    def comments(self, data: ByteArray, row: int) -> list[str]:
        """Return the comments of a packet of the last feed. data: the buffer of that feed.

        Only packet blocks of pcapng have comments.
        """
        section = self._file.section
        at = int(self.packets.offset[row]) - pcapng.PACKET_OFFSET
        if self._file.layout is not None or section is None or at < 0:
            return []
        order = ">" if section.is_big_endian else "<"
        kind, size = struct.unpack(f"{order}II", data[at : at + 8].tobytes())
        # A simple packet's data starts earlier in its block: then `at` is inside another block.
        captured = int(self.packets.captured_bytes[row])
        if (
            kind not in (BlockType.ENHANCED_PACKET, BlockType.OLD_PACKET)
            or size < pcapng.PACKET_OFFSET + captured + 4
        ):
            return []
        rest = data[
            at + pcapng.PACKET_OFFSET + captured + (-captured % 4) : at + size - 4
        ].tobytes()
        return packet_comments(rest, order)

    def _is_filtered(self, first: int, count: int) -> bool:
        """Whether one of these interfaces had a capture filter."""
        known = [self.interfaces.texts.get(number) for number in range(first, count)]
        return any(texts.capture_filter for texts in known if texts is not None)

    def finish(self) -> list[Notice]:
        """Return all notices of the capture, those of the whole capture last."""
        if self.clock_steps:
            step = self._largest_step
            kind = _UNSTEADY if step.value >= _UNSTEADY_NS else step.kind
            self.notices.append(step._replace(kind=kind, value2=self.clock_steps))
        oddities = self._state.oddities
        for code, first, count in zip(
            capture_columns.ODDITY_CODES,
            oddities.first_packet.tolist(),
            oddities.packets.tolist(),
            strict=True,
        ):
            if count:
                self.notices.append(notice_of(code, packet=first, value=count))
        if self._dropped:
            self.notices.append(notice_of("interface_drops", value=self._dropped))
        return self.notices

    def _add_problem(self, code: str, offset: int, size: int = NULL) -> None:
        self._file.problems.append(ReadProblem(code, offset))
        self.notices.append(
            notice_of(
                code,
                packet=self.next_packet - 1 if self.next_packet > 1 else NULL,
                ts_ns=int(self._state.last_ts_ns[0]),
                value=offset,
                value2=self._file.index,
                bytes=size,
            )
        )

    def _read_format(self, data: ByteArray, position: int, end: int) -> tuple[int, bool]:
        """Parse the file header; return the position after it and whether it was complete."""
        file = self._file
        file.format = capture_format(data[position : min(end, position + HEAD_BYTES)].tobytes())
        if file.format == PCAPNG:
            file.phase, self.may_hold_keys = _RECORDS, True
            return position, True
        if file.format is None:
            if end - position < HEAD_BYTES:
                return position, False
            file.phase = _OVER
            self._add_problem("corrupt_record", file.offset)
            return position, True
        head = data[position : min(end, position + _LONGEST_HEADER)].tobytes()
        size = header_bytes(int.from_bytes(head[:4], "big"))
        if len(head) < size:
            return position, False
        header = read_header(head)
        interface = self.interfaces.add(header.link_type, header.snaplen)
        file.layout = header.layout._replace(interface=interface)
        file.phase = _RECORDS
        return position + size, True

    def _scan(self, data: ByteArray, position: int, end: int) -> tuple[int, int, bool]:
        """Call the compiled scan once, and handle the status that it returns."""
        file = self._file
        self._state.next_packet[0] = self.next_packet
        if file.layout is not None:
            done: ScanProgress = scan_pcap(
                data, position, end, file.layout, self.packets, self._state
            )
            if done.status == capture_columns.CORRUPT and done.rows == 0:
                return (0, *self._start_search(position))
            if done.status == capture_columns.BLOCK and done.rows == 0:
                file.phase = _FORMAT
            return (done.rows, done.consumed, done.status != capture_columns.NEED_DATA)
        if file.section is None:
            return (0, *self._start_section(data, position, end))
        done = pcapng.scan_pcapng(
            data, (position, end), file.section, self.interfaces.columns, self.packets, self._state
        )
        # Return earlier rows first, so that the file offset of a notice is this block's start.
        if done.rows == 0 and done.consumed == position:
            if done.status == capture_columns.CORRUPT:
                return (0, *self._start_search(position))
            if done.status == capture_columns.BLOCK:
                return (0, *self._read_block(data, position, end, file.section))
        return (
            done.rows,
            done.consumed,
            done.status in (capture_columns.FULL, capture_columns.CORRUPT, capture_columns.BLOCK),
        )

    def _read_block(
        self, data: ByteArray, position: int, end: int, section: PcapngSection
    ) -> tuple[int, bool]:
        """Parse a block other than a packet; return the position after it and whether to go on."""
        file = self._file
        order = ">" if section.is_big_endian else "<"
        kind, size = struct.unpack(f"{order}II", data[position : position + 8].tobytes())
        if kind == BlockType.SECTION_HEADER:
            return self._start_section(data, position, end)
        block = data[position : position + size].tobytes()
        if kind == BlockType.INTERFACE_DESCRIPTION and file.is_resumed:
            # The damage may have removed an earlier description, so the number is unknown.
            self._add_problem("skipped_section", file.offset)
            file.section = section._replace(is_skipped=1)
        elif kind == BlockType.INTERFACE_DESCRIPTION:
            if not self.interfaces.describe(block, order):
                return self._start_search(position)
            file.section = section._replace(interfaces=section.interfaces + 1)
        elif kind == BlockType.DECRYPTION_SECRETS:
            add_key_log(self.key_logs, block, order)
        else:
            self.interfaces.count_drops(block, order, section.first_interface)
        return position + size, True

    def _start_section(self, data: ByteArray, position: int, end: int) -> tuple[int, bool]:
        """Parse a section header: it sets the byte order and restarts interface numbering."""
        file = self._file
        if end - position < pcapng.SHORTEST_SECTION_BYTES:
            return position, False
        header = read_section(data[position : position + pcapng.SHORTEST_SECTION_BYTES].tobytes())
        if header is None:
            return self._start_search(position)
        after = position + header.block_bytes
        if after > end:
            return position, False
        if data[after - 4 : after].tobytes() != data[position + 4 : position + 8].tobytes():
            return self._start_search(position)
        if not header.is_known:
            self._add_problem("skipped_section", file.offset)
        file.is_resumed = False
        file.section = PcapngSection(
            int(header.order == ">"), int(not header.is_known), self.interfaces.count, 0
        )
        return after, True

    def _start_search(self, position: int) -> tuple[int, bool]:
        """Start the search for credible records after a damaged one."""
        file = self._file
        file.phase = _SEARCH
        file.lost_section, file.section = file.section, None
        file.damaged_at = file.offset
        self._add_problem("corrupt_record", file.offset)
        return position, True

    def _search(self, data: ByteArray, position: int, end: int, is_last: bool) -> tuple[int, bool]:
        """Search for credible records; return the next position and whether records follow."""
        file = self._file
        here = position + int(file.offset == file.damaged_at)
        place = self._next_place(data, min(here, end), end, is_last)
        if place.answer != HERE:
            return place.position, False
        at = file.offset + place.position - position
        if at - file.packets_end > MAX_PACKETLESS_BYTES:
            return place.position, False
        skipped = at - file.damaged_at
        self._add_problem("skipped_section", file.damaged_at, skipped)
        file.phase = _RECORDS
        file.section, file.is_resumed = file.lost_section, True
        return place.position, True

    def _next_place(self, data: ByteArray, position: int, end: int, is_last: bool) -> SearchResult:
        """Return the next position from which records are credible."""
        file = self._file
        bounds = position, end
        if file.layout is None:
            order = -1 if file.lost_section is None else file.lost_section.is_big_endian
            place: SearchResult = find_blocks(data, bounds, order, int(is_last))
            return place
        last_ts_ns = int(self._state.last_ts_ns[0])
        last = NULL if last_ts_ns == NULL else last_ts_ns // 1_000_000_000
        place = find_records(data, bounds, file.layout, last, int(is_last))
        return place

    def _is_cut_only(self, data: ByteArray, position: int, end: int) -> bool:
        """Whether the last record is only cut by the end of the file. If credible records follow
        inside it, its length is damaged."""
        file = self._file
        if file.phase != _RECORDS or (file.layout is None and file.section is None):
            return True
        file.lost_section = file.section
        return self._next_place(data, position + 1, end, True).answer == NOT_HERE

    def _note_times(self, times: Int64Array, is_timed: np.ndarray) -> None:
        """Update earliest and latest time by the packets just read, and count clock steps."""
        file = self._file
        known = times if is_timed.all() else times[is_timed]
        if not len(known):
            return
        earliest, latest = int(known.min()), int(known.max())
        file.first_ts_ns = min(earliest, latest if file.first_ts_ns is None else file.first_ts_ns)
        file.last_ts_ns = max(latest, earliest if file.last_ts_ns is None else file.last_ts_ns)
        if self._previous_ts_ns is None:
            # Packets before the first timestamp are no clock step.
            times = times[int(is_timed.argmax()) :]
            self._previous_ts_ns = int(times[0])
        steps = -np.diff(times, prepend=np.int64(self._previous_ts_ns))
        self._previous_ts_ns = int(times[-1])
        count = int(np.count_nonzero(steps > 0))
        if count:
            file.clock_steps += count
            self.clock_steps += count
            index = int(steps.argmax())
            if steps[index] > self._largest_step.value:
                self._largest_step = notice_of(
                    "clock_step",
                    packet=self.next_packet + len(is_timed) - len(times) + index,
                    ts_ns=int(times[index]),
                    value=int(steps[index]),
                )
