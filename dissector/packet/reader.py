"""PacketReader converts packet columns to segment columns; it counts every packet once."""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import prepacked
from dissector.limits import MAX_TUNNEL_DEPTH, MAX_TUNNELS, PACKET_BLOCK_ROWS
from dissector.notice_rows import Notice, notice_of
from dissector.packet import reasons as packet_reasons
from dissector.packet import walk
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.decode import DONE, read_completed, read_packets, read_rebuilt
from dissector.packet.fragments import REBUILT, Fragments, Place
from dissector.packet.tunnel_names import tunnel_names
from dissector.packet.unread import ENCAPSULATION, ETHERTYPE, LINK_TYPE, UNREAD_CODES
from dissector.packet.walk import BlockPass, FoundFragments, PacketState, TunnelStack
from dissector.tables import TAKEN, new_hash_table, reserved

_FIRST_ROWS: Final = 1 << 10
_FEW_TUNNELS: Final = 64
NESTED_FRAGMENTS: Final = 8  # fragments whose packet is a fragment
_GATHERED_FRAGMENTS: Final = 512
# Reasons of packets of kinds that are not read.
_UNREAD: Final = {
    LINK_TYPE: (packet_reasons.UNKNOWN_LINK_TYPE,),
    ETHERTYPE: (packet_reasons.UNSUPPORTED_L2,),
    ENCAPSULATION: (packet_reasons.UDP, packet_reasons.OTHER_TRANSPORT, packet_reasons.NOT_IP),
}
_LIMITS: Final = {
    "interface_limit": (packet_reasons.INTERFACE_LIMIT,),
    "nesting_limit": (
        packet_reasons.VLAN_DEPTH,
        packet_reasons.EXTENSION_DEPTH,
        packet_reasons.TUNNEL_DEPTH,
    ),
}


class PacketCounts(NamedTuple):
    """Packet counts of one file by result. used + sum(ignored.values()) = packets read."""

    used: int
    ignored: dict[str, int]


class UnreadPackets(NamedTuple):
    """Unsupported packets of one kind: the kind, their count, and the packet number of the first.

    number: of the kind, see `unread`, or 0.
    """

    number: int
    packets: int
    first_packet: int


class PacketReader:
    """Decodes blocks of packets of one capture.

    segments: the columns that read fills, valid until the next read. assembled: rebuilt bytes that
        they point into.
    reasons: int64, for each packet of the block just read USED or its reason.
    """

    def __init__(
        self,
        verify_checksums: bool = False,
        block_rows: int = PACKET_BLOCK_ROWS,
        fragments: Fragments | None = None,
        key: int = 0,
    ) -> None:
        """block_rows: how many packets usually come at once, at most; fragments: what puts
        fragments together, None for the usual; key: of hash tables."""
        self._block_rows = block_rows
        self.segments: SegmentColumns = SegmentColumns.new(min(block_rows, _FIRST_ROWS))
        self.reasons: Int64Array = np.zeros(len(self.segments.packet), np.int64)
        self._counts: Int64Array = np.zeros(len(packet_reasons.IGNORED_REASONS), np.int64)
        self._fragments = fragments or Fragments()
        self._unread: dict[str, dict[int, UnreadPackets]] = {}
        self._state = PacketState(
            block_pass=BlockPass.new(1),
            walk=walk.new_walk(key),
            tunnels=new_hash_table(2 * _FEW_TUNNELS, key),
            stacks=TunnelStack.new(_FEW_TUNNELS * MAX_TUNNEL_DEPTH),
            segments=self.segments,
            reasons=self.reasons,
            fragments=FoundFragments.new(_GATHERED_FRAGMENTS),
        )
        self._state.block_pass.verify[0] = int(verify_checksums)

    @property
    def assembled(self) -> ByteArray:
        """The bytes of segments of source 1, valid until the next read."""
        return self._fragments.assembled

    def read(
        self,
        data: ByteArray,
        packets: PacketColumns,
        rows: int,
        first_packet: int,
        link_types: Int64Array,
    ) -> tuple[SegmentColumns, int]:
        """Decode the first `rows` packets, whose bytes are in data.

        Args:
            first_packet: number of the first of them in the capture. link_types: by interface.

        Returns:
            Segments in the order of their packets, and how many there are.
        """
        if rows > len(self.reasons):
            self._widen(rows)
        reasons = self.reasons[:rows]
        block_pass = self._state.block_pass
        block_pass.row[0], block_pass.rows[0] = 0, rows
        block_pass.segments[0], block_pass.first_packet[0] = 0, first_packet
        self._fragments.start_block()
        self._reserve(rows)
        status = DONE + 1
        while status != DONE:
            status = read_packets(data, packets, link_types, self._state)
            if block_pass.fragments[0]:
                self._add_fragments(data, packets, link_types)
        details = reasons >> packet_reasons.DETAIL_SHIFT
        reasons &= packet_reasons.REASON_MASK
        counts = np.bincount(reasons, minlength=len(packet_reasons.IGNORED_REASONS))
        self._counts += counts
        if rows and counts[TAKEN] < rows:
            self._note_unread(reasons, details, counts, first_packet)
        return self.segments, int(block_pass.segments[0])

    def tunnel_names(self, first: int, stop: int) -> list[str]:
        """What tunnels of the segments are called, from number `first`, which is not 0, to `stop`;
        none beyond the limit has a name."""
        bounds = [(number - 1) * MAX_TUNNEL_DEPTH for number in (first, min(stop, MAX_TUNNELS))]
        return tunnel_names(self._state.stacks.matrix[slice(*bounds)])

    def counts(self) -> PacketCounts:
        """Return the counts of the current file so far."""
        counts = {
            packet_reasons.IGNORED_REASONS[reason]: int(count)
            for reason, count in enumerate(self._counts)
            if count and reason != packet_reasons.USED
        }
        return PacketCounts(int(self._counts[TAKEN]), counts)

    def finish_file(self) -> PacketCounts:
        """Return the counts since the last call: those of the file that ended."""
        counts = self.counts()
        self._counts[:] = 0
        return counts

    def finish(self) -> list[Notice]:
        """Findings about the capture as a whole."""
        notices = [
            notice_of(code, packet=each.first_packet, value=each.number, value2=each.packets)
            for code in UNREAD_CODES
            for _, each in sorted(self._unread.get(code, {}).items())
        ]
        notices += [
            notice_of(code, packet=each.first_packet, value=each.packets)
            for code in _LIMITS
            for each in self._unread.get(code, {}).values()
        ]
        tunnels = int(self._state.tunnels.counts[TAKEN])
        if tunnels >= MAX_TUNNELS - 1:
            notices.append(notice_of("tunnels_limit", value=tunnels))
        block_pass = self._state.block_pass
        if block_pass.offloaded[0]:
            first, count = int(block_pass.first_offloaded[0]), int(block_pass.offloaded[0])
            notices.append(notice_of("checksum_offload", packet=first, value=count))
        if block_pass.shortened[0]:
            first, count = int(block_pass.first_shortened[0]), int(block_pass.shortened[0])
            size = int(block_pass.shortened_bytes[0])
            notices.append(
                notice_of("packets_shortened", packet=first, value=count, value2=size, bytes=size)
            )
        return notices + self._fragments.finish()

    def _add_fragments(
        self, data: ByteArray, packets: PacketColumns, link_types: Int64Array
    ) -> None:
        """Add the fragments that the pass found, and read the packets that they complete: many at
        once, but before the next fragment what may be one itself."""
        view, fragments, state = data.data, self._fragments, self._state
        block = prepacked((data, packets, link_types))
        held = state.fragments.matrix[: state.block_pass.fragments[0]].tolist()
        incomplete: list[int] = []
        fragment_reasons: list[int] = []
        completed: list[tuple[int, int, int, int]] = []
        for row, *cells in held:
            reason = fragments.add(view, Place._make(cells))
            if reason == REBUILT:
                completed.append((row, *fragments.rebuilt))
                if not fragments.is_tcp:
                    self._read_completed(block, completed)
            else:
                incomplete.append(row)
                fragment_reasons.append(reason)
        self._read_completed(block, completed)
        self.reasons[incomplete] = fragment_reasons

    def _read_completed(
        self,
        block: tuple[ByteArray, PacketColumns, Int64Array],
        completed: list[tuple[int, int, int, int]],
    ) -> None:
        """Decode completed packets, see `decode.read_completed`, and discard them."""
        if not completed:
            return
        whole, number = np.array(completed, np.int64), 0
        assembled = self._fragments.assembled
        while (number := read_completed(block, whole, number, assembled, self._state)) < len(whole):
            self.reasons[completed[number][0]] = self._read_nested()
            assembled = self._fragments.assembled
            number += 1
        completed.clear()

    def _read_nested(self) -> int:
        """The reason for which a packet counts that a fragment completed and that is a fragment
        itself, which the walk stands at."""
        fragments, position = self._fragments, self._state.walk.position
        for left in reversed(range(NESTED_FRAGMENTS)):
            place = Place(
                int(position.offset[0]),
                int(min(position.end[0], position.wire_end[0])),
                int(position.stated_end[0]),
                int(position.tunnel_hash[0]),
                int(position.ts_ns[0]),
                int(position.packet[0]),
                int(position.source[0]),
            )
            reason = fragments.add(fragments.assembled.data, place)
            if reason == REBUILT and left:
                reason = int(read_rebuilt(fragments.assembled, *fragments.rebuilt, self._state))
            if reason not in (REBUILT, walk.REACHED_FRAGMENT):
                return reason
        return packet_reasons.TUNNEL_DEPTH

    def _widen(self, rows: int) -> None:
        """Room for blocks of so many packets; for four times as many as before, while those are
        not all that usually come at once."""
        longer = max(rows, min(4 * len(self.reasons), self._block_rows))
        self.segments = SegmentColumns.new(longer)
        self.reasons = np.zeros(len(self.segments.packet), np.int64)
        self._state.grow(segments=self.segments, reasons=self.reasons)

    def _reserve(self, rows: int) -> None:
        """Make room for one more tunnel per packet of a block, up to the limit."""
        state = self._state
        used = int(state.tunnels.counts[TAKEN])
        most = min(used + rows, MAX_TUNNELS)
        if most * MAX_TUNNEL_DEPTH > len(state.stacks.matrix):
            capacity = min(2 * most, MAX_TUNNELS)
            state.grow(
                tunnels=reserved(state.tunnels, capacity - used),
                stacks=state.stacks.grown(capacity * MAX_TUNNEL_DEPTH),
            )

    def _note_unread(
        self, reasons: Int64Array, details: Int64Array, counts: Int64Array, first_packet: int
    ) -> None:
        """Count unsupported packets by kind, and limits that were reached."""
        if details.any():
            for code, kinds in _UNREAD.items():
                rows = np.flatnonzero((details > 0) & np.isin(reasons, kinds))
                self._note(code, rows, details[rows], first_packet)
        for code, kinds in _LIMITS.items():
            if counts[list(kinds)].any():
                rows = np.flatnonzero(np.isin(reasons, kinds))
                self._note(code, rows, np.zeros_like(rows), first_packet)

    def _note(self, code: str, rows: Int64Array, numbers: Int64Array, first_packet: int) -> None:
        known = self._unread.setdefault(code, {})
        unique_numbers, firsts, counts = np.unique(numbers, return_index=True, return_counts=True)
        for number, first, count in zip(unique_numbers.tolist(), firsts, counts, strict=True):
            seen = known.get(number, UnreadPackets(number, 0, first_packet + int(rows[first])))
            known[number] = seen._replace(packets=seen.packets + int(count))
