"""CaptureReader: buffers of the files of one capture in, packet columns out. It opens nothing.

A file starts in FORMAT (its first bytes decide) and then is RECORDS; between damage and the next
place where records are credible (`capture.search`) it is SEARCH. OVER: it is no capture. What was
found out about the file comes from `finish_file`, what concerns the whole capture from `finish`.
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
from dissector.capture.without_timestamp import UntimedPackets
from dissector.limits import MAX_PACKETLESS_BYTES, NULL, PACKET_BLOCK_ROWS, UNSTEADY_CLOCK_MS
from dissector.notice_rows import Notice, notice_of
from dissector.packet.columns import PacketColumns

PCAP: Final = "pcap"
PCAPNG: Final = "pcapng"
LIVE: Final = "live"  # packets of a network interface
HEAD_BYTES: Final = 12  # enough to tell the format
_LEAP, _LEAP_NS = notice_of("clock_unsteady").kind, UNSTEADY_CLOCK_MS * 1_000_000
_LONGEST_HEADER: Final = 28  # of a pcap file
_FORMAT, _RECORDS, _SEARCH, _OVER = range(4)


def capture_format(head: bytes) -> str | None:
    """PCAP or PCAPNG by the first bytes of a file (HEAD_BYTES of them), or None."""
    if is_pcap(int.from_bytes(head[:4], "big")) and len(head) >= 4:
        return PCAP
    if head[:4] == b"\n\r\r\n" and read_section(head[:HEAD_BYTES]) is not None:
        return PCAPNG
    return None


class Scan(NamedTuple):
    """What one feed gave.

    rows: packets in `CaptureReader.packets`; first_packet: number of the first of them in the
    capture; consumed: position in the buffer after all of them; is_more: feed again at once from
    `consumed` (otherwise more bytes are needed, or the file is through).
    """

    rows: int
    first_packet: int
    consumed: int
    is_more: bool


class ReadProblem(NamedTuple):
    """Something wrong with a file. code: a notice; offset: byte in the (uncompressed) file."""

    code: str
    offset: int


class FileFacts(NamedTuple):
    """What the records of one file told; None where there is nothing to tell.

    packets: records of the file; first_packet: the capture's number of the first; link_types: in
    order of appearance; snaplen: smallest of its interfaces; first_ts_ns, last_ts_ns: earliest and
    latest time; clock_steps: packets earlier than the one before, also across a file's border.
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
    """What is known of the file being read."""

    def __init__(self, index: int, first_packet: int, first_interface: int, drops: int) -> None:
        self.index = index
        self.first_packet = first_packet
        self.first_interface = first_interface
        self.drops_before = drops
        self.drops_reported = 0  # of those that interface statistics say, in parts that ended
        self.format: str | None = None
        self.phase = _FORMAT
        self.offset = 0  # of the next byte to be fed
        self.damaged_at = 0
        self.packets_end = 0  # where the last packet ended, as the search for the next one counts
        self.layout: PcapLayout | None = None
        self.section: PcapngSection | None = None
        self.lost_section: PcapngSection | None = (
            None  # the one in which damage is searched through
        )
        self.is_resumed = False  # this section goes on behind damage
        self.first_ts_ns: int | None = None
        self.last_ts_ns: int | None = None
        self.clock_steps = 0
        self.problems: list[ReadProblem] = []


class CaptureReader:
    """Reads the files of one capture in order: start_file, feed until through, finish_file, finish.

    packets: the columns that feed fills, valid until the next feed. interfaces: all so far;
    without_timestamp: packets without a time, in whose place stands that of the packet before.
    next_packet: number of the next packet, from 1. notices: so far, in order.
    key_logs: secrets before the packets of the last feed; whoever takes them clears the list.
    may_hold_keys: a file was of a format that has a place for them.
    max_packets: with so many, at least 1, the capture `is_full`, and is fed no more.
    """

    def __init__(self, block_rows: int = PACKET_BLOCK_ROWS, max_packets: int | None = None) -> None:
        self.packets = PacketColumns.new(block_rows)
        self._max_packets = max_packets or 1 << 62
        self.is_full = False
        self.interfaces = Interfaces()
        self.without_timestamp = UntimedPackets()
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
        """Begin the next file of the capture."""
        drops = int(self._state.packet_drops[0])
        self._file = _File(self._files, self.next_packet, self.interfaces.count, drops)
        self._files += 1

    def feed(self, data: ByteArray, start: int, end: int, is_last: bool) -> Scan:
        """Read packets from data[start:end], the bytes of the file from where the last feed ended.

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
        """Whether no packet has come for too long; notes where the last of these rows ended.

        It depends on the places of packets alone, not on how the file was cut into buffers.
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
        """Whether nothing more is taken from the file."""
        return self._file.phase == _OVER

    def start_live(self) -> None:
        """What began is no file but a live capture: `count_packets` is told of its packets."""
        self._file.format = LIVE
        self._file.phase = _OVER

    def count_packets(self, times_ns: Int64Array) -> int:
        """Number packets that a driver found itself, from their times; gives the first number."""
        first_packet = self.next_packet
        if len(times_ns):
            self._note_times(times_ns, self.without_timestamp.fill(times_ns, first_packet))
        self.next_packet += len(times_ns)
        return first_packet

    def split_file(self) -> FileFacts:
        """The facts about the file so far; what follows in it counts as a file of its own."""
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
        """The facts about the file that was just read."""
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
        """The comments of one of the packets that the last feed gave, from the buffer it was given.

        Only packet blocks of pcapng have any.
        """
        section = self._file.section
        at = int(self.packets.offset[row]) - pcapng.PACKET_OFFSET
        if self._file.layout is not None or section is None or at < 0:
            return []
        order = ">" if section.is_big_endian else "<"
        kind, size = struct.unpack(f"{order}II", data[at : at + 8].tobytes())
        # A simple packet's bytes begin earlier in its block: then this is inside another one.
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
        """All notices of the capture, those that concern it as a whole last."""
        if self.clock_steps:
            kind = _LEAP if self._largest_step.value >= _LEAP_NS else self._largest_step.kind
            self.notices.append(self._largest_step._replace(kind=kind, value2=self.clock_steps))
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
        """Read the file header; returns the position after it and whether it was all there."""
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
        """Call the compiled scan once, and do what it leaves to Python."""
        file = self._file
        self._state.next_packet[0] = self.next_packet
        if file.layout is not None:
            done: ScanProgress = scan_pcap(
                data, position, end, file.layout, self.packets, self._state
            )
            if done.status == capture_columns.CORRUPT and done.rows == 0:
                return (0, *self._start_search(position))
            return (
                done.rows,
                done.consumed,
                done.status in (capture_columns.FULL, capture_columns.CORRUPT),
            )
        if file.section is None:
            return (0, *self._start_section(data, position, end))
        done = pcapng.scan_pcapng(
            data, (position, end), file.section, self.interfaces.columns, self.packets, self._state
        )
        # What stands before this block is over with first: notices name the byte where it begins.
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
        """Read a block that describes; returns the position after it and whether to go on."""
        file = self._file
        order = ">" if section.is_big_endian else "<"
        kind, size = struct.unpack(f"{order}II", data[position : position + 8].tobytes())
        if kind == BlockType.SECTION_HEADER:
            return self._start_section(data, position, end)
        block = data[position : position + size].tobytes()
        if kind == BlockType.INTERFACE_DESCRIPTION and file.is_resumed:
            # Whether one was lost before it is not known, so neither is its number.
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
        """Read a section header: it sets the byte order, and interfaces are numbered anew."""
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
        """Begin to search behind a damaged record for where records are credible again."""
        file = self._file
        file.phase = _SEARCH
        file.lost_section, file.section = file.section, None
        file.damaged_at = file.offset
        self._add_problem("corrupt_record", file.offset)
        return position, True

    def _search(self, data: ByteArray, position: int, end: int, is_last: bool) -> tuple[int, bool]:
        """Look for credible records; returns where to go on and whether they are there."""
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
        """The next place from which records can be read."""
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
        """Whether the record that the end of the file cuts is what it seems: a length that was
        damaged swallows what follows, and records are found in there."""
        file = self._file
        if file.phase != _RECORDS or (file.layout is None and file.section is None):
            return True
        file.lost_section = file.section
        return self._next_place(data, position + 1, end, True).answer == NOT_HERE

    def _note_times(self, times: Int64Array, is_timed: np.ndarray) -> None:
        """Note the earliest and latest time of the packets just read, and steps back in time."""
        file = self._file
        known = times if is_timed.all() else times[is_timed]
        if not len(known):
            return
        earliest, latest = int(known.min()), int(known.max())
        file.first_ts_ns = min(earliest, latest if file.first_ts_ns is None else file.first_ts_ns)
        file.last_ts_ns = max(latest, earliest if file.last_ts_ns is None else file.last_ts_ns)
        if self._previous_ts_ns is None:
            # What has no time before the first time is not before it.
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
