"""Streams: all connections of a capture, from segments to ranges in order. No I/O, no clock."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.limits import NULL
from dissector.packet.columns import PacketBuffers, SegmentColumns, new_segment_columns
from dissector.stream import layout
from dissector.stream.columns import NoticeColumns, RangeColumns
from dissector.stream.connections import find_slots
from dissector.stream.history import history_text
from dissector.stream.reassembly import advance, end_all
from dissector.stream.state import (
    StreamOptions,
    add_heap,
    add_nodes,
    add_rows,
    free_retired,
    new_state,
)

_SMALLEST_BLOCK = 64


class SideRows(NamedTuple):
    """One direction of connections, int64[rows] each; limits.NULL where not known.

    stream_bytes = data + gap_bytes + snaplen_cut_bytes, all of what left. payload_bytes: of all
    packets, those sent again and copies included. first_seq: sequence number of the first packet
    captured; last_seq: of the byte after the last one that left. late_*: data of closed streams;
    stray_packets: far outside the stream, old SYNs, RSTs from outside the window.
    """

    packets: Int64Array
    payload_bytes: Int64Array
    stream_bytes: Int64Array
    retransmitted_packets: Int64Array
    duplicate_packets: Int64Array
    out_of_order_packets: Int64Array
    keepalive_packets: Int64Array
    gaps: Int64Array
    gap_bytes: Int64Array
    snaplen_cut_bytes: Int64Array
    conflict_bytes: Int64Array
    zero_window_ns: Int64Array
    isn: Int64Array
    first_seq: Int64Array
    last_seq: Int64Array
    late_packets: Int64Array
    late_bytes: Int64Array
    stray_packets: Int64Array


class ConnectionRows(NamedTuple):
    """Connections, int64[rows] each unless said otherwise; limits.NULL where not known.

    Endpoints are those of side 0 (opened it, or seen first) and side 1: addresses as in
    SegmentColumns. tunnel: number of the first one seen, 0 none; native: 1 if a packet was seen
    outside any; started_by_syn: 0 or 1; ended: ENDED_* or NULL; closed_first, opener: side or
    NULL. history: one text per row. sides: side 0, side 1.
    """

    connection_id: Int64Array
    ip_version: Int64Array
    address_high: tuple[Int64Array, Int64Array]
    address_low: tuple[Int64Array, Int64Array]
    port: tuple[Int64Array, Int64Array]
    tunnel: Int64Array
    native: Int64Array
    vlans: Int64Array
    started_by_syn: Int64Array
    ended: Int64Array
    closed_first: Int64Array
    opener: Int64Array
    first_ts_ns: Int64Array
    last_ts_ns: Int64Array
    first_packet: Int64Array
    last_packet: Int64Array
    handshake_rtt_ns: Int64Array
    history: list[str]
    sides: tuple[SideRows, SideRows]


_SIDE_CELLS = {
    "packets": layout.PACKETS,
    "payload_bytes": layout.PAYLOAD_BYTES,
    "stream_bytes": layout.STREAM_BYTES,
    "retransmitted_packets": layout.RETRANSMITTED_PACKETS,
    "duplicate_packets": layout.DUPLICATE_PACKETS,
    "out_of_order_packets": layout.OUT_OF_ORDER_PACKETS,
    "keepalive_packets": layout.KEEPALIVE_PACKETS,
    "gaps": layout.GAPS,
    "gap_bytes": layout.GAP_BYTES,
    "snaplen_cut_bytes": layout.SNAPLEN_CUT_BYTES,
    "conflict_bytes": layout.CONFLICT_BYTES,
    "zero_window_ns": layout.ZERO_WINDOW_NS,
    "isn": layout.ISN,
    "first_seq": layout.FIRST_SEQ,
    "late_packets": layout.LATE_PACKETS,
    "late_bytes": layout.LATE_BYTES,
    "stray_packets": layout.STRAY_PACKETS,
}


class Streams:
    """Segments in, ranges out, block by block.

    `advance` and `finish` yield blocks; each must be used before the next is asked for, because
    its arrays, and the bytes in `heap` that its ranges name, are used again. When `advance` is
    exhausted nothing points into the caller's buffers any more. Connections that are over wait in
    `retired` until `recycle` says that their rows were written.
    """

    def __init__(self, options: StreamOptions | None = None) -> None:
        chosen = StreamOptions() if options is None else options
        self._state = new_state(chosen._replace(block_rows=max(chosen.block_rows, _SMALLEST_BLOCK)))
        self._no_segments = new_segment_columns(0)
        self._no_buffers = PacketBuffers(np.empty(0, np.uint8), np.empty(0, np.uint8))

    @property
    def heap(self) -> ByteArray:
        """The bytes that ranges with source 1 point into; ask anew with every block."""
        return self._state.heap

    @property
    def connections_seen(self) -> int:
        """How many connection ids were given."""
        return int(self._state.registers[layout.NEXT_ID])

    @property
    def held_bytes(self) -> int:
        """Bytes waiting now, each waiting segment charged in addition."""
        return int(self._state.registers[layout.HELD_TOTAL])

    @property
    def steps(self) -> int:
        """Steps taken so far along lists whose length the input decides: a measure of cost."""
        return int(self._state.registers[layout.STEPS])

    def advance(
        self, segments: SegmentColumns, rows: int, buffers: PacketBuffers
    ) -> Iterator[tuple[RangeColumns, int]]:
        """Take in the first `rows` segments; yield what leaves: ranges and how many there are.

        buffers: what the segments' source and offset point into (writable arrays).
        """
        state = self._state
        registers = state.registers
        registers[layout.ROW] = 0
        while True:
            if registers[layout.HEAP_LIVE] == 0:
                registers[layout.HEAP_USED] = 0
            registers[layout.ROWS_OUT] = 0
            registers[layout.NOTICES_OUT] = 0
            status = advance(state, segments, rows, buffers)
            if registers[layout.ROWS_OUT] or registers[layout.NOTICES_OUT]:
                yield state.ranges, int(registers[layout.ROWS_OUT])
            if status == layout.DONE:
                return
            self._make_room(status, segments)

    def take_notices(self) -> tuple[NoticeColumns, int]:
        """The notices that came with the block last yielded, and how many there are."""
        return self._state.notices, int(self._state.registers[layout.NOTICES_OUT])

    def finish(self) -> Iterator[tuple[RangeColumns, int]]:
        """End the capture: everything waiting leaves or is given up, every connection closes."""
        end_all(self._state)
        yield from self.advance(self._no_segments, 0, self._no_buffers)

    def retired(self) -> Int64Array:
        """Slots of connections that are over, in the order in which they were; see `recycle`."""
        count = int(self._state.registers[layout.RETIRED])
        return self._state.retired[:count] // layout.ROW_CELLS

    def recycle(self) -> None:
        """Forget the retired connections: their rows have been written."""
        free_retired(self._state)

    def slots_of(self, connection_ids: Int64Array) -> Int64Array:
        """Slots of connections that were not recycled, -1 for others."""
        slots = np.empty(len(connection_ids), np.int64)
        find_slots(self._state, connection_ids, slots)
        return slots

    def open_gaps(self) -> tuple[int, int]:
        """Holes that were given up, and their bytes, of all connections that are still open."""
        bases = self._state.ids[self._state.ids >= 0]
        found = []
        for cell in (layout.GAPS, layout.GAP_BYTES):
            places = [layout.CONNECTION_CELLS + side * layout.SIDE_CELLS + cell for side in (0, 1)]
            found.append(sum(int(self._state.cells[bases + place].sum()) for place in places))
        return found[0], found[1]

    def ports_of(self, connection_id: int) -> tuple[int, int]:
        """The ports of side 0 and side 1 of a connection that was not recycled."""
        slot = int(self.slots_of(np.array([connection_id]))[0])
        base = slot * layout.ROW_CELLS
        ports = int(self._state.cells[base + layout.PORTS])
        lower, upper = ports >> 16 & 0xFFFF, ports & 0xFFFF
        is_upper = self._state.cells[base + layout.BITS] & layout.CONNECTION_SIDE0_IS_UPPER
        return (upper, lower) if is_upper else (lower, upper)

    def connection_rows(self, slots: Int64Array) -> ConnectionRows:
        """What is known of connections, copied. slots: as `retired` gives them."""
        rows = self._state.cells.reshape(-1, layout.ROW_CELLS)[slots]
        bits = rows[:, layout.BITS]
        upper = bits & layout.CONNECTION_SIDE0_IS_UPPER
        ports = rows[:, layout.PORTS]
        endpoints = [
            (rows[:, layout.LOWER_HIGH], rows[:, layout.UPPER_HIGH]),
            (rows[:, layout.LOWER_LOW], rows[:, layout.UPPER_LOW]),
            (ports >> 16 & 0xFFFF, ports & 0xFFFF),
        ]
        high, low, port = (
            (np.where(upper, second, first), np.where(upper, first, second))
            for first, second in endpoints
        )
        return ConnectionRows(
            connection_id=rows[:, layout.CONNECTION_ID],
            ip_version=ports >> 32,
            address_high=high,
            address_low=low,
            port=port,
            tunnel=rows[:, layout.TUNNEL],
            native=(bits & layout.CONNECTION_NATIVE) // layout.CONNECTION_NATIVE,
            vlans=rows[:, layout.VLANS],
            started_by_syn=(bits & layout.CONNECTION_FROM_SYN) // layout.CONNECTION_FROM_SYN,
            ended=_null_if_negative(rows[:, layout.CLOSING] - 1),
            closed_first=_null_if_negative(rows[:, layout.CLOSED_FIRST]),
            opener=_null_if_negative(rows[:, layout.OPENER]),
            first_ts_ns=rows[:, layout.FIRST_TS],
            last_ts_ns=rows[:, layout.LAST_TS],
            first_packet=rows[:, layout.FIRST_PACKET],
            last_packet=rows[:, layout.LAST_PACKET],
            handshake_rtt_ns=rows[:, layout.HANDSHAKE_RTT],
            history=[
                history_text(first, second, length)
                for first, second, length in rows[
                    :, layout.HISTORY : layout.HISTORY_LENGTH + 1
                ].tolist()
            ],
            sides=(_side_rows(rows, 0), _side_rows(rows, 1)),
        )

    def _make_room(self, status: int, segments: SegmentColumns) -> None:
        state = self._state
        row = int(state.registers[layout.ROW])
        if status == layout.NEED_HEAP:
            add_heap(state, int(segments.captured_bytes[row]))
        elif status == layout.NEED_NODES:
            have = len(state.nodes) // layout.NODE_CELLS
            add_nodes(state, have)
        elif status == layout.NEED_ROWS:
            add_rows(state, len(state.cells) // layout.ROW_CELLS)


def _null_if_negative(values: Int64Array) -> Int64Array:
    return np.where(values < 0, NULL, values)


def _side_rows(rows: Int64Array, side_no: int) -> SideRows:
    """The columns of one side of connections."""
    start = layout.CONNECTION_CELLS + side_no * layout.SIDE_CELLS
    side = rows[:, start : start + layout.SIDE_CELLS]
    seen = side[:, layout.SIDE_BITS] & layout.SIDE_HAS_ORIGIN
    last = (side[:, layout.ORIGIN] + side[:, layout.NEXT]) & 0xFFFF_FFFF
    return SideRows(
        last_seq=np.where(seen, last, NULL),
        **{name: side[:, cell] for name, cell in _SIDE_CELLS.items()},
    )
