"""TCP of made traffic: frames with the time from which they can be sent become packets."""

from collections.abc import Sequence
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from tests.busy.frames import Matrix

SEGMENT_BYTES: Final = 1448
FIN, SYN, PUSH, ACK = 1, 2, 8, 16
_GAP_NS: Final = 2_000  # between packets of one direction

# A record of a pcap file up to the TCP payload, as the card takes it: checksums are left to it.
_HEADER: Final = np.dtype(
    [
        ("seconds", "<u4"), ("nanoseconds", "<u4"), ("captured", "<u4"), ("wire", "<u4"),
        ("ethernet", "V14"),
        ("version", "u1"), ("service", "u1"), ("ip_bytes", ">u2"), ("ip_id", ">u2"),
        ("fragment", ">u2"), ("ttl", "u1"), ("transport", "u1"), ("ip_sum", ">u2"),
        ("source", ">u4"), ("target", ">u4"),
        ("source_port", ">u2"), ("target_port", ">u2"), ("sequence", ">u4"), ("ack", ">u4"),
        ("header", "u1"), ("flags", "u1"), ("window", ">u2"), ("tcp_sum", ">u2"),
        ("urgent", ">u2"), ("options", "V12"),
    ]
)  # fmt: skip
_ETHERNET: Final = np.void(b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0")
_OPTIONS: Final = np.void(b"\1\1\x08\x0a\0\0\0\1\0\0\0\1")
_RECORD_BYTES: Final = 16


class Run(NamedTuple):
    """Frames of one length. ready_ns: from when each can be sent, in any order."""

    frames: Matrix
    ready_ns: np.ndarray


class _Piece(NamedTuple):
    """Segments: where in `data` they lie, the first byte's number in the stream, times, flags."""

    data: memoryview
    starts: np.ndarray
    ends: np.ndarray
    sequence: int
    times: np.ndarray
    flags: int


class Direction:
    """One direction of a connection: runs of frames in, segments kept until they are written."""

    def __init__(self, source: tuple[int, int], target: tuple[int, int], first: int = 1000) -> None:
        """source, target: IPv4 address and port; first: sequence number of its first packet."""
        self.source, self.target = source, target
        self._sequence = first
        self._last_ns = 0
        self._pieces: list[_Piece] = []

    def bare(self, at_ns: int, flags: int) -> int:
        """A packet without payload; returns its time."""
        at_ns = max(at_ns, self._last_ns + _GAP_NS)
        nothing = np.zeros(1, np.int64)
        self._pieces.append(
            _Piece(memoryview(b""), nothing, nothing, self._sequence, np.array([at_ns]), flags)
        )
        self._sequence += bool(flags & SYN) + bool(flags & FIN)
        self._last_ns = at_ns
        return at_ns

    def say(self, frame: bytes, at_ns: int) -> int:
        """One frame that fits a packet; returns its time."""
        run = Run(np.frombuffer(frame, np.uint8)[None, :], np.array([at_ns]))
        return int(self.push([run], None)[0][0])

    def push(self, runs: Sequence[Run], chance: np.random.Generator | None) -> list[np.ndarray]:
        """Send frames in the order in which they are ready.

        Args:
            chance: cuts the bytes at random, full segments among them; None: behind each frame
                that is ready later than the one before it.

        Returns:
            For each run when the last byte of each frame is captured.
        """
        counts = [len(run.frames) for run in runs]
        ready = np.concatenate([run.ready_ns for run in runs])
        if not len(ready):
            return [ready for _ in runs]
        order = np.argsort(ready, kind="stable")
        sizes = np.repeat([run.frames.shape[1] for run in runs], counts)[order]
        ends = np.cumsum(sizes)
        ready = np.maximum(ready[order], self._last_ns + _GAP_NS)
        data = _in_order(runs, order, ends - sizes, int(ends[-1]))
        cuts = _cuts(ends, ready, chance)
        # No byte of a frame is sent before it is ready, so the last frame of a segment decides.
        times = ready[np.searchsorted(ends, cuts)] + np.arange(len(cuts)) * _GAP_NS
        starts = np.concatenate(([0], cuts[:-1]))
        self._pieces.append(
            _Piece(memoryview(data), starts, cuts, self._sequence, times, PUSH | ACK)
        )
        self._sequence += int(ends[-1])
        self._last_ns = int(times[-1])
        arrived = np.empty(len(order), np.int64)
        arrived[order] = times[np.searchsorted(cuts, ends)]
        return np.split(arrived, np.cumsum(counts)[:-1])

    def taken(self) -> list[_Piece]:
        """All segments since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    @property
    def next_sequence(self) -> int:
        """The number of the byte that comes next."""
        return self._sequence


def _in_order(runs: Sequence[Run], order: np.ndarray, starts: np.ndarray, size: int) -> np.ndarray:
    """The frames of all runs as bytes, one behind the other."""
    if sum(len(run.frames) > 0 for run in runs) == 1:
        (rows,) = (run.frames for run in runs if len(run.frames))
        is_sorted = bool((order[1:] > order[:-1]).all())
        return (rows if is_sorted else rows[order]).reshape(-1)
    data = np.empty(size, np.uint8)
    at = np.empty(len(order), np.int64)
    at[order] = starts
    first = 0
    for run in runs:
        count, width = run.frames.shape
        data[at[first : first + count, None] + np.arange(width)] = run.frames
        first += count
    return data


def _cuts(ends: np.ndarray, ready: np.ndarray, chance: np.random.Generator | None) -> np.ndarray:
    """Where segments end."""
    size = int(ends[-1])
    if chance is None:
        behind = ends[:-1][ready[1:] > ready[:-1]]
        full = np.arange(SEGMENT_BYTES, size, SEGMENT_BYTES)
        # A long run without a pause is cut at full segments too, so that none is longer.
        return np.unique(np.concatenate((behind, full, [size])))
    most = size // 300 + 2
    sizes = np.minimum(chance.integers(300, 2 * SEGMENT_BYTES, most), SEGMENT_BYTES)
    cuts = np.cumsum(sizes)
    return np.concatenate((cuts[cuts < size], [size]))


class Connection:
    """Both directions of a connection."""

    def __init__(self, client: tuple[int, int], broker: tuple[int, int]) -> None:
        """client, broker: IPv4 address and port."""
        self.to_broker = Direction(client, broker)
        self.to_client = Direction(broker, client, 5000)

    def open(self, at_ns: int) -> int:
        """The three packets of a handshake; returns when the last was captured."""
        at_ns = self.to_broker.bare(at_ns, SYN)
        at_ns = self.to_client.bare(at_ns + 40_000, SYN | ACK)
        return self.to_broker.bare(at_ns + 200_000, ACK)

    def ask(self, frame: bytes, at_ns: int, answer: bytes = b"") -> int:
        """A frame and the answer to it, if one is given; returns when the last was captured."""
        at_ns = self.to_broker.say(frame, at_ns + 100_000)
        return self.to_client.say(answer, at_ns + 700_000) if answer else at_ns

    def close(self, at_ns: int) -> None:
        """FIN from both sides."""
        at_ns = self.to_broker.bare(at_ns, FIN | ACK)
        at_ns = self.to_client.bare(at_ns + 50_000, FIN | ACK)
        self.to_broker.bare(at_ns + 200_000, ACK)

    def rename(self) -> None:
        """From now on it looks like another connection, of which the beginning is missing."""
        address, port = self.to_broker.source
        self.to_broker.source = self.to_client.target = address, 1024 + (port + 1000) % 60_000

    def taken(self) -> tuple[list[np.ndarray], list[np.ndarray], list[memoryview]]:
        """All packets since the last call: times, headers (bytes, a row each), payloads."""
        sides = (self.to_broker, self.to_client)
        pieces = [side.taken() for side in sides]
        known = [_known(found, side) for found, side in zip(pieces, sides, strict=True)]
        times, headers, payloads = [], [], []
        for side, found, peer in zip(sides, pieces, reversed(known), strict=True):
            for piece in found:
                times.append(piece.times)
                headers.append(_headers(side, piece, peer))
                bounds = zip(piece.starts.tolist(), piece.ends.tolist(), strict=True)
                payloads += [piece.data[first:last] for first, last in bounds]
        return times, headers, payloads


def _known(pieces: Sequence[_Piece], side: Direction) -> tuple[np.ndarray, np.ndarray]:
    """When a side's bytes were captured, and the number that acknowledges them; a first row is
    what was before."""
    if not pieces:
        return np.array([0]), np.array([side.next_sequence])
    more = [bool(piece.flags & (SYN | FIN)) for piece in pieces]
    times = [np.array([0])] + [piece.times for piece in pieces]
    ends = [np.array([pieces[0].sequence])]
    ends += [piece.sequence + piece.ends + one for piece, one in zip(pieces, more, strict=True)]
    return np.concatenate(times), np.concatenate(ends)


def _headers(side: Direction, piece: _Piece, peer: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    rows = np.zeros(len(piece.times), _HEADER)
    size = piece.ends - piece.starts
    rows["seconds"], rows["nanoseconds"] = np.divmod(piece.times, 1_000_000_000)
    rows["captured"] = rows["wire"] = _HEADER.itemsize - _RECORD_BYTES + size
    rows["ethernet"], rows["options"] = _ETHERNET, _OPTIONS
    rows["version"], rows["fragment"], rows["ttl"], rows["transport"] = 0x45, 0x4000, 64, 6
    rows["ip_bytes"] = 52 + size
    (rows["source"], rows["source_port"]), (rows["target"], rows["target_port"]) = (
        side.source, side.target,
    )  # fmt: skip
    rows["sequence"] = piece.sequence + piece.starts & 0xFFFF_FFFF
    rows["ip_id"] = rows["sequence"] & 0xFFFF
    rows["header"], rows["flags"], rows["window"] = 0x80, piece.flags, 4096
    if piece.flags & ACK:
        times, ends = peer
        rows["ack"] = ends[np.searchsorted(times, piece.times, "right") - 1] & 0xFFFF_FFFF
    # As bytes: joined as they are, numbers would lose their byte order.
    return rows.view(np.uint8).reshape(-1, _HEADER.itemsize)


def write(file: BinaryIO, connections: Sequence[Connection], lost: int = 0) -> int:
    """Write what the connections sent since the last call, by time; returns the packets.

    Args:
        lost: of so many packets one is left out; 0: none.
    """
    times, headers, payloads = [], [], []
    for connection in connections:
        for found, more in zip((times, headers, payloads), connection.taken(), strict=True):
            found += more
    order = np.argsort(np.concatenate(times), kind="stable").tolist()
    if lost:
        del order[lost - 1 :: lost]
    view, width = memoryview(np.concatenate(headers).reshape(-1)), _HEADER.itemsize
    out: list[memoryview] = []
    for row in order:
        out += (view[row * width : (row + 1) * width], payloads[row])
    file.write(b"".join(out))
    return len(order)
