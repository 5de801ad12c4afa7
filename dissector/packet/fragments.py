"""Fragments to packets, of IPv4 and IPv6, inside tunnels as well; rare, so that no kernel does it.

Fragments belong together by addresses, identification, protocol (IPv4) and the tunnels around them.
They may come in any order, more than once and overlapping. Where two say different things, nothing
is invented: the packet is dropped, with what comes of it later. A fragment is counted as one,
`ip_fragment`; the one that completes its packet counts as what the packet is, and the packet has
its number and time. Fragments cut by the snap length fill their place; the packet is then cut where
the first byte is missing.

A packet is given up (notices fragments_missing, fragments_limit) when its first fragment is
FRAGMENT_TIMEOUT_MS old by the largest capture time seen, or when too many packets or bytes wait:
the oldest first. The identification is used again soon, so that a contradiction after half a
second is a new packet. Copies by the tap come within DUPLICATE_WINDOW_MS: for so long a packet that
was complete is remembered, and fragments that repeat it change nothing.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray
from dissector.capture.columns import CaptureNotice
from dissector.limits import (
    DUPLICATE_WINDOW_MS,
    FRAGMENT_TIMEOUT_MS,
    MAX_EXTENSION_HEADERS,
    MAX_FRAGMENT_BYTES,
    MAX_FRAGMENTED_PACKETS,
    NULL,
)
from dissector.packet.ip import AUTHENTICATION, FRAGMENT_HEADER
from dissector.packet.reasons import FRAGMENT, FRAGMENT_CONFLICT, FRAGMENT_MALFORMED, IP_CUT
from dissector.packet.walk import (
    AT_IP,
    Walk,
)

REBUILT: Final = -1  # not a reason: the fragment completed its packet
_NS_PER_MS: Final = 1_000_000
_STALE_NS: Final = 500 * _NS_PER_MS
_WINDOW_NS: Final = DUPLICATE_WINDOW_MS * _NS_PER_MS
_TIMEOUT_NS: Final = FRAGMENT_TIMEOUT_MS * _NS_PER_MS
_LONGEST: Final = 65_535  # bytes of an IP packet
_FIRST_BYTES: Final = 2048
_CHARGE: Final = 64
_THERE: Final = 1  # on the wire, not captured
_KNOWN: Final = 2
_NOTICES: Final = ("fragments_limit", "fragments_missing", "fragments_conflict")

Key = tuple[int, bytes, int, int]


class Fragment(NamedTuple):
    """One fragment. head: headers before the payload, as they are in a packet that is whole;
    start, end: its place in the payload, bytes on the wire; payload: what was captured of it.
    """

    key: Key
    head: bytes
    start: int
    end: int
    is_last: bool
    payload: ByteArray


def _fragment_v4(data: ByteArray, offset: int, end: int, tunnels: int) -> Fragment | int:
    """The fragment whose IPv4 header, known to be whole, is at offset; or a reason."""
    head_bytes = (int(data[offset]) & 15) * 4
    head = bytearray(data[offset : offset + head_bytes].tobytes())
    size = int.from_bytes(head[2:4], "big") - head_bytes
    word = int.from_bytes(head[6:8], "big")
    start = (word & 0x1FFF) * 8
    is_last = not word & 0x2000
    if size <= 0 or (size % 8 and not is_last) or start + size + head_bytes > _LONGEST:
        return FRAGMENT_MALFORMED
    key = (tunnels, bytes(head[12:20]), int.from_bytes(head[4:6], "big"), head[9])
    head[6:8] = b"\0\0"
    first = offset + head_bytes
    payload = data[first : max(first, min(end, first + size))]
    return Fragment(key, bytes(head), start, start + size, is_last, payload)


def _fragment_v6(data: ByteArray, offset: int, end: int, tunnels: int) -> Fragment | int:
    """The fragment whose IPv6 header, known to be whole, is at offset; or a reason."""
    protocol, at = int(data[offset + 6]), offset + 40
    for _ in range(MAX_EXTENSION_HEADERS):
        if protocol == FRAGMENT_HEADER or end - at < 2:
            break
        words = int(data[at + 1])
        size = (words + 2) * 4 if protocol == AUTHENTICATION else (words + 1) * 8
        protocol, at = int(data[at]), at + size
    if end - at < 8:
        return IP_CUT
    head = bytearray(data[offset : at + 8].tobytes())
    size = int.from_bytes(head[4:6], "big") + 40 - len(head)
    word = int.from_bytes(head[-6:-4], "big")
    start = word & 0xFFF8
    is_last = not word & 1
    if size <= 0 or (size % 8 and not is_last) or start + size + len(head) - 48 > _LONGEST:
        return FRAGMENT_MALFORMED
    key = (tunnels, bytes(head[8:40]), int.from_bytes(head[-4:], "big"), -1)
    head[-6:-4] = b"\0\0"  # a fragment header on a whole packet is skipped
    payload = data[at + 8 : max(at + 8, min(end, at + 8 + size))]
    return Fragment(key, bytes(head), start, start + size, is_last, payload)


def fragment_at(data: ByteArray, offset: int, end: int, tunnels: int) -> Fragment | int:
    """The fragment whose IP header, known to be whole, is at offset; or a reason."""
    read = _fragment_v4 if int(data[offset]) >> 4 == 4 else _fragment_v6
    return read(data, offset, end, tunnels)


class _Waiting:
    """A packet of which fragments came.

    first_ns, last_ns: clock of its first and last fragment; first_packet: number of the first;
    head: of the fragment that begins it; total: its payload bytes, -1 unknown; seen: how many of
    them were on the wire; state: by byte; is_dropped: fragments contradicted each other.
    """

    def __init__(self, clock: int, packet: int) -> None:
        self.first_ns = self.last_ns = clock
        self.first_packet = packet
        self.head = b""
        self.total = -1
        self.top = 0
        self.seen = 0
        self.content: ByteArray = np.zeros(0, np.uint8)
        self.state: ByteArray = np.zeros(0, np.uint8)
        self.is_dropped = False

    @property
    def charge(self) -> int:
        """Bytes that count against the bound."""
        return 2 * len(self.content) + len(self.head) + _CHARGE

    def contradicts(self, piece: Fragment) -> bool:
        """Whether a fragment says something else than those before."""
        if piece.is_last and (self.top > piece.end or self.total not in (-1, piece.end)):
            return True
        if self.total != -1 and piece.end > self.total:
            return True
        count = min(len(piece.payload), len(self.content) - piece.start)
        if count <= 0:
            return False
        there = slice(piece.start, piece.start + count)
        is_other = self.content[there] != piece.payload[:count]
        return bool((is_other & (self.state[there] == _KNOWN)).any())

    def put(self, piece: Fragment) -> None:
        """Put a fragment in that contradicts nothing."""
        if piece.end > len(self.content):
            size = max(_FIRST_BYTES, 1 << (piece.end - 1).bit_length())
            for name in ("content", "state"):
                longer = np.zeros(size, np.uint8)
                shorter = getattr(self, name)
                longer[: len(shorter)] = shorter
                setattr(self, name, longer)
        state = self.state[piece.start : piece.end]
        self.seen += int(np.count_nonzero(state == 0))
        np.maximum(state, _THERE, out=state)
        known = piece.start + len(piece.payload)
        self.content[piece.start : known] = piece.payload
        self.state[piece.start : known] = _KNOWN
        self.top = max(self.top, piece.end)
        if piece.is_last:
            self.total = piece.end
        if piece.start == 0 and not self.head:
            self.head = piece.head

    def clear(self) -> None:
        """Forget its bytes."""
        self.content = self.state = np.zeros(0, np.uint8)
        self.is_dropped = True


class Fragments:
    """Fragments of one capture on their way to packets.

    side: rebuilt packets of the block being read; the walk points there when one is complete.
    """

    def __init__(
        self, packets: int = MAX_FRAGMENTED_PACKETS, held_bytes: int = MAX_FRAGMENT_BYTES
    ) -> None:
        self.side: ByteArray = np.zeros(1, np.uint8)
        self._used = 0
        self._waiting: dict[Key, _Waiting] = {}
        self._complete: dict[Key, _Waiting] = {}
        self._held = 0
        self._packet_limit, self._byte_limit = packets, held_bytes
        self._clock = NULL
        self._notices: dict[str, CaptureNotice] = {}

    def start_block(self) -> None:
        """Forget the packets rebuilt for the block before."""
        self._used = 0

    def add(self, data: ByteArray, walk: Walk) -> int:
        """Add the fragment whose IP header the walk stands at.

        Args:
            data: the array that is walked.

        Returns:
            The reason for which the fragment's packet counts; or REBUILT, and the walk stands at
            the whole packet in `side`.
        """
        position = walk.position
        offset, end = int(position.offset[0]), int(min(position.end[0], position.wire_end[0]))
        piece = fragment_at(data, offset, end, int(position.tunnel_hash[0]))
        if isinstance(piece, int):
            return piece
        self._clock = max(self._clock, int(position.ts_ns[0]))
        self._expire()
        done = self._complete.get(piece.key)
        if done is not None:
            if done.total >= piece.end and not done.contradicts(piece):
                return FRAGMENT
            self._forget(piece.key)
        waiting = self._waiting_for(piece, int(position.packet[0]))
        if waiting.is_dropped:
            return FRAGMENT_CONFLICT
        self._held -= waiting.charge
        waiting.put(piece)
        self._held += waiting.charge
        waiting.last_ns = self._clock
        if waiting.seen == waiting.total and waiting.head:
            self._rebuild(waiting, walk)
            del self._waiting[piece.key]
            self._complete[piece.key] = waiting
            waiting.first_ns = self._clock
            self._bound()
            return REBUILT
        self._bound()
        return FRAGMENT

    def finish(self) -> list[CaptureNotice]:
        """The capture ends: what was never complete, dropped or given up."""
        for waiting in self._waiting.values():
            self._count_missing(waiting)
        self._waiting.clear()
        return [self._notices[code] for code in _NOTICES if code in self._notices]

    def _note(self, code: str, packet: int) -> None:
        """One more finding of a kind; its notice names the first packet."""
        before = self._notices.get(code, CaptureNotice(code, packet, value=0))
        self._notices[code] = before._replace(value=before.value + 1)

    def _waiting_for(self, piece: Fragment, packet: int) -> _Waiting:
        """The packet that a fragment belongs to, dropped if the fragment contradicts it."""
        waiting = self._waiting.get(piece.key)
        if waiting is not None:
            is_stale = self._clock - waiting.last_ns > _STALE_NS
            if waiting.is_dropped or waiting.contradicts(piece):
                if is_stale:
                    self._give_up(piece.key)
                    waiting = None
                elif not waiting.is_dropped:
                    self._held -= waiting.charge
                    waiting.clear()
                    self._held += waiting.charge
                    self._note("fragments_conflict", packet)
        if waiting is None:
            waiting = self._waiting[piece.key] = _Waiting(self._clock, packet)
            self._held += waiting.charge
        return waiting

    def _rebuild(self, waiting: _Waiting, walk: Walk) -> None:
        """Write a packet to the side; the walk goes on at its IP header."""
        position = walk.position
        head = bytearray(waiting.head)
        holes = np.flatnonzero(waiting.state[: waiting.total] != _KNOWN)
        known = int(holes[0]) if len(holes) else waiting.total
        if head[0] >> 4 == 4:
            head[2:4] = (len(head) + waiting.total).to_bytes(2, "big")
        else:
            size = len(head) - 40 + waiting.total
            # Eight bytes too many for the field at most: then the length of the walk counts.
            head[4:6] = (size if size <= _LONGEST else 0).to_bytes(2, "big")
        start = self._used
        end = start + len(head) + known
        if end > len(self.side):
            longer = np.zeros(max(2 * len(self.side), 1 << end.bit_length()), np.uint8)
            longer[:start] = self.side[:start]
            self.side = longer
        self.side[start : start + len(head)] = np.frombuffer(bytes(head), np.uint8)
        self.side[start + len(head) : end] = waiting.content[:known]
        self._used = end
        position.layer[0] = AT_IP
        position.source[0] = 1
        position.offset[0] = start
        position.end[0] = end
        wire_end = start + len(head) + waiting.total
        position.wire_end[0] = position.packet_end[0] = position.stated_end[0] = wire_end

    def _expire(self) -> None:
        """Give up what is too old; both tables are in the order of age."""
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if self._clock - oldest.first_ns <= _TIMEOUT_NS:
                break
            self._give_up(key)
        while self._complete:
            key, oldest = next(iter(self._complete.items()))
            if self._clock - oldest.first_ns <= _WINDOW_NS:
                break
            self._forget(key)

    def _bound(self) -> None:
        """Forget packets until the limits hold, complete ones first."""
        while self._held > self._byte_limit or len(self._waiting) > self._packet_limit:
            if self._complete:
                self._forget(next(iter(self._complete)))
                continue
            key, oldest = next(iter(self._waiting.items()))
            self._held -= oldest.charge
            del self._waiting[key]
            self._note("fragments_limit", oldest.first_packet)

    def _give_up(self, key: Key) -> None:
        waiting = self._waiting.pop(key)
        self._held -= waiting.charge
        self._count_missing(waiting)

    def _count_missing(self, waiting: _Waiting) -> None:
        if not waiting.is_dropped:
            self._note("fragments_missing", waiting.first_packet)

    def _forget(self, key: Key) -> None:
        self._held -= self._complete.pop(key).charge
