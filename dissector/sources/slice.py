"""Writes the packets of chosen frames to a capture file, in a second pass.

A frame's packets are those of its connection and direction, with payload, from the packet of its
first byte to the one that completed it. Their bytes, times and wire lengths do not change.
"""

from typing import BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.blocks import Int64Array
from dissector.endpoints import Endpoint, FlowKey
from dissector.packet.columns import SegmentColumns
from dissector.schemas.enums import BOTH_DIRECTIONS
from dissector.sources.packet_blocks import PacketWriter, Progress, packet_blocks
from dissector.sources.rings import Chain

_OPENING_OR_CLOSING: Final = 7  # FIN, SYN, RST
_ACK: Final = 16
_SYN_ACK: Final = 18


def flows_of(client: Endpoint, broker: Endpoint, direction: str = "") -> tuple[FlowKey, ...]:
    """Return the flow of a connection in a direction; both flows if that is unknown."""
    to_broker = FlowKey.between(client, broker)
    flows = dict(zip(BOTH_DIRECTIONS, (to_broker, to_broker.mirrored()), strict=True))
    return (flows[direction],) if direction in flows else tuple(flows.values())


class FlowSpan(NamedTuple):
    """A time span of a flow whose packets are selected, also those without payload; is_flagged:
    only packets that open or close a connection, and the acknowledgement of the SYN-ACK."""

    flow: FlowKey
    first_ns: int
    last_ns: int
    is_flagged: bool


class PacketSelection:
    """Ranges of packet numbers per direction of a connection, and time spans.

    taken: numbers of the written packets, in order.
    key_logs: secrets from the capture's own blocks.
    """

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.key_logs: list[bytes] = []
        self.spans: list[FlowSpan] = []
        self._firsts: dict[FlowKey, list[int]] = {}
        self._lasts: dict[FlowKey, list[int]] = {}
        self._merged: dict[FlowKey, tuple[Int64Array, Int64Array]] = {}
        self._answered: set[FlowSpan] = set()  # whose SYN is, and nothing came since

    def add(self, flow: FlowKey, first_packet: int, last_packet: int) -> None:
        """Select the packets of a frame."""
        self._firsts.setdefault(flow, []).append(first_packet)
        self._lasts.setdefault(flow, []).append(last_packet)

    def merge(self) -> None:
        """Sort the ranges and merge overlapping ones; call it once, after all are added."""
        for flow, firsts in self._firsts.items():
            first = np.array(firsts, np.int64)
            order = np.argsort(first, kind="stable")
            first = first[order]
            last = np.maximum.accumulate(np.array(self._lasts[flow], np.int64)[order])
            begins = np.concatenate([[True], first[1:] > last[:-1]])
            ends = np.concatenate([begins[1:], [True]])
            self._merged[flow] = (first[begins], last[ends])

    def rows(self, segments: SegmentColumns, count: int) -> Int64Array:
        """Return which of the first `count` segments are selected."""
        chosen = np.zeros(count, bool)
        if count:
            low, high = int(segments.packet[0]), int(segments.packet[count - 1])
            for flow, (first, last) in self._merged.items():
                if first[0] <= high and low <= last[-1]:
                    chosen |= of_flow(segments, count, flow) & _within(
                        segments.packet[:count], first, last
                    )
        chosen &= segments.wire_bytes[:count] > 0
        for span in self.spans:
            chosen |= _in_span(segments, count, span)
            if span.is_flagged:
                chosen[self._acknowledging(segments, count, span)] = True
        return np.flatnonzero(chosen)

    def _acknowledging(self, segments: SegmentColumns, count: int, span: FlowSpan) -> Int64Array:
        """Return the packets of a flow that follow a SYN-ACK of its peer: they end the handshake
        and its round trip, even if they carry data."""
        flags = segments.flags[:count]
        is_answer = _in_span(segments, count, span._replace(flow=span.flow.mirrored()))
        answers = np.flatnonzero(is_answer & (flags & _SYN_ACK == _SYN_ACK))
        if span in self._answered:
            answers = np.append(-1, answers)
        if not len(answers):
            return answers
        is_own = _in_span(segments, count, span._replace(is_flagged=False))
        own = np.flatnonzero(is_own & (flags & _ACK != 0))
        following = np.searchsorted(own, answers)
        if following[-1] == len(own):
            self._answered.add(span)
        else:
            self._answered.discard(span)
        return own[following[following < len(own)]]


def _in_span(segments: SegmentColumns, count: int, span: FlowSpan) -> np.ndarray:
    times = segments.ts_ns[:count]
    inside = (times >= span.first_ns) & (times <= span.last_ns)
    if span.is_flagged:
        inside &= (segments.flags[:count] & _OPENING_OR_CLOSING) != 0
    return inside & of_flow(segments, count, span.flow) if inside.any() else inside


def of_flow(segments: SegmentColumns, count: int, flow: FlowKey) -> npt.NDArray[np.bool_]:
    """Return which of the first `count` segments are of a flow, bool[count]."""
    matches = np.ones(count, np.bool_)
    for name, value in flow._asdict().items():
        matches &= getattr(segments, name)[:count] == value
    return matches


def _within(packets: Int64Array, first: Int64Array, last: Int64Array) -> np.ndarray:
    """Return which packet numbers are in one of the ranges."""
    index = np.searchsorted(first, packets, side="right") - 1
    inside = packets <= last[np.maximum(index, 0)]
    return np.asarray(inside & (index >= 0))


def write_slice(
    chain: Chain,
    wanted: PacketSelection,
    sink: BinaryIO,
    has_comments: bool = True,
    progress: Progress | None = None,
) -> int:
    """Write the selected packets of a capture as pcapng; a comment has the original number.

    Args:
        has_comments: keep those of the original's packets and interfaces.

    Returns:
        The number of packets written.
    """
    wanted.merge()
    writer = PacketWriter(sink, has_names=True, has_comments=has_comments)
    for block in packet_blocks(chain, progress):
        rows = wanted.rows(block.segments, block.segment_count)
        for number in block.segments.packet[rows].tolist():
            row = number - block.first_packet
            comments = [f"packet {number}"]
            comments += block.reader.comments(block.data, row) if has_comments else ()
            writer.packet(block, row, comments)
            wanted.taken.append(number)
        wanted.key_logs += block.reader.key_logs
        block.reader.key_logs.clear()
    return writer.packets
