"""TCP packets as a tap sees them, reassembled directly, and the emitted ranges and rows.

Every run checks invariants of any input: ranges of a stream are contiguous, sums agree, each
connection opens and closes once.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dissector.limits import NULL
from dissector.notice_rows import Notice
from dissector.packet.columns import PacketBuffers, SegmentColumns
from dissector.stream.columns import ENDED_NAMES, RETRANSMITTED, RangeKind
from dissector.stream.records import Directions
from dissector.stream.state import StreamOptions
from dissector.stream.streams import Streams
from tests.wire.packets import ACK, RST, SYN, tcp
from tests.wire.packets import FIN as FIN_FLAG

MS = 1_000_000
START_NS = 1_700_000_000_000_000_000
SMALL = StreamOptions(block_rows=64)
SYN_ACK = SYN | ACK
FIN_ACK = FIN_FLAG | ACK
RST_ACK = RST | ACK


class Packet(NamedTuple):
    """A TCP packet. ms: capture time; endpoint_index: 0 the client sends; sequence,
    acknowledgement: any integers, taken modulo 2^32; captured: payload bytes that the snap length
    leaves (None: all);
    ip_id: None gives every packet one of its own; port: the client's, tells connections apart;
    checksum: `right` or `wrong` puts a TCP header before the payload, else there is none; scale: of
    the window, which a SYN with such a header names (None: it scales none).
    """

    ms: float
    endpoint_index: int
    sequence: int
    payload: bytes = b""
    acknowledgement: int = 0
    flags: int = ACK
    captured: int | None = None
    window: int = 65535
    ip_id: int | None = None
    tsval: int = -1
    port: int = 40000
    vlans: int = 0
    checksum: str = ""
    scale: int | None = None


class StreamRange(NamedTuple):
    """A range of a stream. kind: data, lost or cut; length: bytes; data: their values."""

    kind: str
    start: int
    length: int
    data: bytes = b""


_KINDS = {RangeKind.DATA: "data", RangeKind.GAP_LOST: "lost", RangeKind.GAP_CUT: "cut"}


@dataclass
class Released:
    """The output: rows of ranges and notices as dicts, rows of connections by id.

    held: the most buffered bytes after any block.
    """

    ranges: list[dict[str, Any]] = field(default_factory=list)
    notices: list[dict[str, Any]] = field(default_factory=list)
    connections: dict[int, dict[str, Any]] = field(default_factory=dict)
    held: int = 0

    def stream_ranges(self, connection: int = 0, endpoint_index: int = 0) -> list[StreamRange]:
        """The stream of a side; neighbours of one kind are one range."""
        joined: list[StreamRange] = []
        for row in self.ranges:
            if (row["connection"], row["endpoint_index"]) != (connection, endpoint_index) or row[
                "kind"
            ] not in _KINDS:
                continue
            kind = _KINDS[row["kind"]]
            if joined and joined[-1].kind == kind:
                last = joined.pop()
                joined.append(
                    StreamRange(
                        kind, last.start, last.length + row["length"], last.data + row["data"]
                    )
                )
            else:
                joined.append(StreamRange(kind, row["stream_offset"], row["length"], row["data"]))
        return joined

    def data(self, connection: int = 0, endpoint_index: int = 0) -> bytes:
        """The emitted bytes of a side, without gaps."""
        return b"".join(each.data for each in self.stream_ranges(connection, endpoint_index))

    def direction(self, connection: int = 0, endpoint_index: int = 0) -> dict[str, int]:
        """The counters of a side."""
        return self.connections[connection]["sides"][endpoint_index]  # type: ignore[no-any-return]

    def counted(self, connection: int = 0, endpoint_index: int = 0) -> dict[str, int]:
        """The counters of a side for anomalous packets, if not 0."""
        names = ("retransmitted", "duplicate", "out_of_order", "keepalive", "late", "stray")
        values = self.direction(connection, endpoint_index)
        return {name: values[f"{name}_packets"] for name in names if values[f"{name}_packets"]}

    def codes(self) -> list[str]:
        """The codes of all notices, in order."""
        return [row["code"] for row in self.notices]

    def times(self, kind: int, endpoint_index: int = 0, connection: int = 0) -> list[int]:
        """Numbers of the packets at which ranges of a kind were emitted."""
        return [
            row["release_packet"]
            for row in self.ranges
            if (row["connection"], row["endpoint_index"], row["kind"])
            == (connection, endpoint_index, kind)
        ]


def columns_of(packets: Sequence[Packet]) -> tuple[Any, PacketBuffers]:
    """Segments and the buffer that holds their payloads."""
    segments = SegmentColumns.new(max(1, len(packets)))
    data = bytearray(b"\0")
    for row, packet in enumerate(packets):
        payload = packet.payload[: packet.captured]
        head = _header(packet)
        data += head
        client = (0x0A000001, packet.port)
        broker = (0x0A000002, 6650)
        source, destination = (client, broker) if packet.endpoint_index == 0 else (broker, client)
        values = {
            "packet": row + 1,
            "ts_ns": START_NS + round(packet.ms * MS),
            "source": 0,
            "offset": len(data),
            "captured_bytes": len(payload),
            "wire_bytes": len(packet.payload),
            "ip_version": 4,
            "source_high": 0,
            "source_low": source[0],
            "destination_high": 0,
            "destination_low": destination[0],
            "source_port": source[1],
            "destination_port": destination[1],
            "tunnel": 0,
            "vlans": packet.vlans,
            "sequence": packet.sequence & 0xFFFFFFFF,
            "acknowledgement": packet.acknowledgement & 0xFFFFFFFF,
            "flags": packet.flags | len(head) // 4 << 12,
            "window": packet.window,
            "ip_id": row + 1 if packet.ip_id is None else packet.ip_id,
            "hop_limit": 64,
            "tsval": packet.tsval,
            "tsecr": -1,
        }
        for name, value in values.items():
            getattr(segments, name)[row] = value
        data += payload
    return segments, PacketBuffers(
        np.frombuffer(bytes(data), np.uint8).copy(), np.zeros(1, np.uint8)
    )


def _header(packet: Packet) -> bytes:
    """A TCP header whose checksum is right or wrong, if the packet is to have one."""
    if not packet.checksum:
        return b""
    whole = tcp(
        packet.payload,
        sequence=packet.sequence,
        acknowledgement=packet.acknowledgement,
        flags=packet.flags,
        addresses=("10.0.0.1", "10.0.0.2"),
        window=77,
        options=b"" if packet.scale is None else bytes([3, 3, packet.scale, 0]),
    )
    wrong = bytes([whole[16] ^ 1]) if packet.checksum == "wrong" else whole[16:17]
    return whole[:16] + wrong + whole[17 : len(whole) - len(packet.payload)]


def streamed(
    packets: Sequence[Packet],
    options: StreamOptions = SMALL,
    cuts: Iterable[int] = (),
    *,
    is_finished: bool = True,
) -> Released:
    """Run packets, numbered from 1, through the streams.

    Args:
        cuts: rows at which the input is cut into calls.
        is_finished: the capture ends after them.
    """
    streams = Streams(options)
    released = Released()
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(packets)}), len(packets)]
    all_segments, all_buffers = columns_of(packets)
    for start, end in itertools.pairwise(edges):
        segments = SegmentColumns.new(end - start)
        segments.matrix[:, : end - start] = all_segments.matrix[:, start:end]
        # Each call has its own buffer, overwritten afterwards: nothing may point into it any more.
        buffers = PacketBuffers(all_buffers.block.copy(), all_buffers.assembled)
        for ranges, rows in streams.advance(segments, end - start, buffers):
            _collect(released, streams, ranges, rows, buffers)
        buffers.block[:] = 0xEE
    if is_finished:
        nothing = PacketBuffers(np.zeros(1, np.uint8), np.zeros(1, np.uint8))
        for ranges, rows in streams.finish():
            _collect(released, streams, ranges, rows, nothing)
        _collect_connections(released, streams)
        assert streams.held_bytes == 0
        check(released, packets)
    return released


def _collect(
    released: Released, streams: Streams, ranges: Any, rows: int, buffers: PacketBuffers
) -> None:
    sources = (buffers.block, streams.heap, buffers.assembled)
    for row in range(rows):
        cells: dict[str, Any] = {name: int(getattr(ranges, name)[row]) for name in ranges._fields}
        at = cells["offset"]
        is_data = cells["kind"] == RangeKind.DATA
        cells["data"] = (
            sources[cells["source"]][at : at + cells["length"]].tobytes() if is_data else b""
        )
        released.ranges.append(cells)
    for row in streams.notices().tolist():
        notice = Notice(*row)
        released.notices.append(notice._asdict() | {"code": notice.code})
    released.held = max(released.held, streams.held_bytes)
    _collect_connections(released, streams)


def _collect_connections(released: Released, streams: Streams) -> None:
    slots = streams.retired()
    rows = streams.connection_rows(slots)
    known = rows.connections
    for row in range(len(slots)):
        ended = int(known.closing[row])
        released.connections[int(known.connection_id[row])] = {
            "ended": ENDED_NAMES[ended] if ended >= 0 else None,
            "history": rows.history[row],
            "ports": [int(port[row]) for port in rows.port],
            "sides": [
                {name: int(getattr(endpoint_index, name)[row]) for name in Directions._fields}
                for endpoint_index in rows.directions
            ],
        } | {
            name: int(getattr(known, name)[row])
            for name in (
                "closed_first", "opener", "first_ts_ns", "last_ts_ns", "last_packet",
                "handshake_rtt_ns", "vlans",
            )
        }  # fmt: skip
    streams.recycle()


def check(streams: Released, packets: Sequence[Packet]) -> None:
    """Assert the invariants of a finished run."""
    by_connection: dict[int, list[dict[str, Any]]] = {}
    for row in streams.ranges:
        by_connection.setdefault(row["connection"], []).append(row)
    assert sorted(by_connection) == sorted(streams.connections) == list(range(len(by_connection)))
    released = [row["release_packet"] for row in streams.ranges]
    assert released == sorted(released)
    used = 0
    for connection, rows in by_connection.items():
        kinds = [row["kind"] for row in rows]
        assert kinds[-1] == RangeKind.CLOSE and kinds.count(RangeKind.CLOSE) == 1
        # What left before the SYN was known says so; else the side of the SYN.
        assert {row["opener"] for row in rows} <= {-1, streams.connections[connection]["opener"]}
        for endpoint_index in (0, 1):
            values = streams.connections[connection]["sides"][endpoint_index]
            used += values["packets"]
            _check_side([row for row in rows if row["endpoint_index"] == endpoint_index], values)
    assert used == len(packets)


def _check_side(rows: list[dict[str, Any]], values: dict[str, int]) -> None:
    sums = Counter[int]()
    end = None
    for row in rows:
        if row["kind"] == RangeKind.CLOSE:
            continue
        assert end is None or row["stream_offset"] == end, "ranges follow on each other"
        assert sums[RangeKind.FIN] == 0, "nothing follows a FIN"
        assert row["kind"] == RangeKind.FIN or row["length"] > 0
        assert row["packet"] == NULL or row["packet"] <= row["release_packet"]
        end = row["stream_offset"] + row["length"]
        sums[row["kind"]] += row["length"]
        if row["kind"] == RangeKind.FIN:
            sums[RangeKind.FIN] += 1
    gaps = [row for row in rows if row["kind"] == RangeKind.GAP_LOST]
    assert (
        values["stream_bytes"]
        == sums[RangeKind.DATA] + sums[RangeKind.GAP_LOST] + sums[RangeKind.GAP_CUT]
    )
    assert (values["gaps"], values["gap_bytes"]) == (len(gaps), sums[RangeKind.GAP_LOST])
    assert values["snaplen_cut_bytes"] == sums[RangeKind.GAP_CUT]
    # Every byte of payload was emitted in its stream, or dropped, or emitted before.
    assert values["dropped_bytes"] >= values["late_bytes"]
    again = ("retransmitted", "duplicate", "out_of_order", "keepalive")
    if not any(values[f"{name}_packets"] for name in again):
        used = sums[RangeKind.DATA] + sums[RangeKind.GAP_CUT] + values["dropped_bytes"]
        assert values["payload_bytes"] == used, "payload that nobody counts"


def handshake(
    isn: int = 1000, answer: int = 5000, *, ms: float = 0, port: int = 40000
) -> list[Packet]:
    """SYN, SYN-ACK and ACK, a millisecond apart."""
    return [
        Packet(ms, 0, isn, flags=SYN, port=port),
        Packet(ms + 1, 1, answer, acknowledgement=isn + 1, flags=SYN_ACK, port=port),
        Packet(ms + 2, 0, isn + 1, acknowledgement=answer + 1, port=port),
    ]


def is_again(row: dict[str, Any]) -> bool:
    """Whether a range is marked as sent again or out of order."""
    return bool(row["flags"] & RETRANSMITTED)
