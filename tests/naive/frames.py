"""The frames that a damaged capture still has, derived from the undamaged one: slow and plain.

The undamaged capture gives every stream and, frame by frame, the positions of its frames. Of the
damaged one only the packets' sequence numbers are read: a frame is present if each of its bytes is
in some packet. No protocol detection, search or reordering is needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.naive.packets import NaiveSegment

SYN = 2
_HALF = 1 << 31

Flow = tuple[str, int, str, int]  # source and its port, destination and its port
Span = tuple[int, int]  # first offset in the undamaged stream, and the one behind the last


@dataclass
class Stream:
    """One direction of the undamaged capture. origin: sequence number of its first byte."""

    origin: int
    data: bytearray = field(default_factory=bytearray)
    frames: list[Span] = field(default_factory=list)

    def offset(self, sequence: int) -> int:
        """Where a sequence number lies; streams here are shorter than 2 GiB."""
        return (sequence - self.origin + _HALF) % (1 << 32) - _HALF


class Verdict(NamedTuple):
    """A dissection of a damaged capture, compared with the frames present in it.

    there: frames whose bytes were all present; missed: present frames that were not decoded whole;
    invented: whole decoded frames that the undamaged streams lack.
    """

    there: int
    missed: list[tuple[Flow, Span]]
    invented: list[tuple[Flow, Span, int]]


def flow_of(segment: NaiveSegment) -> Flow:
    """The sender and receiver of a packet."""
    return (segment.source, segment.source_port, segment.destination, segment.destination_port)


def frames_in(data: bytes | bytearray) -> list[Span]:
    """The frames of a stream that begins with one, by their lengths alone."""
    frames = []
    at = 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        frames.append((at, end))
        at = end
    return frames


def streams_of(segments: Iterable[NaiveSegment]) -> dict[Flow, Stream]:
    """The streams of an undamaged capture, each seen from its SYN, and their frames."""
    streams: dict[Flow, Stream] = {}
    for each in segments:
        flow = flow_of(each)
        if each.flags & SYN:
            streams[flow] = Stream((each.sequence + 1) & 0xFFFF_FFFF)
            continue
        stream = streams[flow]
        at = stream.offset(each.sequence)
        if 0 <= at <= len(stream.data) < at + len(each.payload):
            stream.data += each.payload[len(stream.data) - at :]
    for stream in streams.values():
        stream.frames = frames_in(stream.data)
    return streams


def surviving(
    streams: Mapping[Flow, Stream], segments: Iterable[NaiveSegment]
) -> dict[Flow, bytearray]:
    """For each byte of each stream whether some packet of the damaged capture holds it."""
    bytes_left = {flow: bytearray(len(stream.data)) for flow, stream in streams.items()}
    for each in segments:
        if each.flags & SYN:
            continue
        at = streams[flow_of(each)].offset(each.sequence)
        mask = bytes_left[flow_of(each)]
        first, last = max(at, 0), min(at + len(each.payload), len(mask))
        if first < last:
            mask[first:last] = b"\1" * (last - first)
    return bytes_left


def whole(stream: Stream, mask: bytearray) -> set[Span]:
    """The frames of a stream whose bytes are all there."""
    return {span for span in stream.frames if mask.find(0, *span) < 0}


def headed(stream: Stream, mask: bytearray, header_bytes: int = 4) -> set[Span]:
    """The frames of a stream whose first bytes are there."""
    return {span for span in stream.frames if mask.find(0, span[0], span[0] + header_bytes) < 0}


def placed(
    streams: Mapping[Flow, Stream], tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[tuple[Flow, Span, Mapping[str, Any]]]:
    """Rows of frames with their positions in the undamaged streams."""
    frames_placed = []
    connections = {row["connection_id"]: row for row in tables["connections"]}
    for row in tables.get("frames", ()):
        of = connections[row["connection_id"]]
        client, broker = (of["client_ip"], of["client_port"]), (of["broker_ip"], of["broker_port"])
        way = "to_client" if row["direction"] == "to_client" else "to_broker"
        if row["direction"] == "unknown":
            # Either direction: the one whose undamaged stream has such a frame, else the first.
            options = [("to_broker", (*client, *broker)), ("to_client", (*broker, *client))]
        else:
            options = [(way, (*client, *broker) if way == "to_broker" else (*broker, *client))]
        spans = [(flow, _span(streams[flow], of, side, row)) for side, flow in options]
        known = [each for each in spans if each[1] in streams[each[0]].frames]
        frames_placed.append((*(known or spans)[0], row))
    return frames_placed


def _span(stream: Stream, of: Mapping[str, Any], way: str, row: Mapping[str, Any]) -> Span:
    isn, first = of[f"isn_{way}"], of[f"first_seq_{way}"]
    if isn is None and first is None:
        return (-1, -1)
    base = stream.offset(first if isn is None else isn + 1)
    start = base + row["stream_offset"]
    return (start, start + row["frame_bytes"])


def judge(
    streams: Mapping[Flow, Stream],
    damaged: Iterable[NaiveSegment],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Verdict:
    """Compare the rows of a damaged capture with the undamaged streams."""
    masks = surviving(streams, damaged)
    there = {(flow, span) for flow in streams for span in whole(streams[flow], masks[flow])}
    rows = [each for each in placed(streams, tables) if each[2]["status"] == "complete"]
    out = {(flow, span) for flow, span, _ in rows}
    truth = {(flow, span) for flow in streams for span in streams[flow].frames}
    return Verdict(
        len(there),
        sorted(there - out),
        sorted(
            {(flow, span, row["connection_id"]) for flow, span, row in rows
             if (flow, span) not in truth}
        ),
    )  # fmt: skip
