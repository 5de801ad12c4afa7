"""Reassembles fragments of IPv4 and IPv6, also inside tunnels; rare, so not in kernels.

The key of a packet is its addresses, identification, protocol (IPv4) and surrounding tunnels.
Fragments may arrive in any order, repeatedly and overlapping. If two contradict each other, the
packet is dropped with its later fragments. A fragment counts as `ip_fragment`; the one that
completes its packet counts as the packet does, and gives it its number and time. A fragment cut by
the snap length covers its whole range; the packet is then cut at its first missing byte.

A packet is discarded (notices fragments_missing, fragments_limit) when its first fragment is
FRAGMENT_TIMEOUT_MS old by the largest capture time so far, or when too many packets or bytes are
pending: the oldest first. Identifications are soon reused, so a contradiction after half a second
starts a new packet. Copies by the tap arrive within DUPLICATE_WINDOW_MS: a completed packet is kept
for that time, and fragments that repeat it change nothing.
"""

import struct
from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np

from dissector import limits
from dissector.blocks import ByteArray
from dissector.limits import NULL
from dissector.notice_rows import Notice, notice_of
from dissector.packet.ip import AUTHENTICATION, FRAGMENT_HEADER, TCP_PROTOCOL
from dissector.packet.reasons import FRAGMENT, FRAGMENT_CONFLICT, FRAGMENT_MALFORMED, IP_CUT

REBUILT: Final = -1  # not a reason: the fragment completed its packet
_NS_PER_MS: Final = 1_000_000
_STALE_NS: Final = 500 * _NS_PER_MS
_WINDOW_NS: Final = limits.DUPLICATE_WINDOW_MS * _NS_PER_MS
_TIMEOUT_NS: Final = limits.FRAGMENT_TIMEOUT_MS * _NS_PER_MS
_LATER: Final = 1 << 62
_LONGEST: Final = 65_535  # bytes of an IP packet
_CHARGE: Final = 512
_MISSING: Final = 0
_THERE: Final = 1  # on the wire, not captured
_KNOWN: Final = 2
_ALL_KNOWN: Final = bytes([_KNOWN]) * (_LONGEST + 1)
_NOTHING: Final = memoryview(bytes(_LONGEST + 1))
_NOTICES: Final = ("fragments_limit", "fragments_missing", "fragments_conflict")
# Version and length of the header, length, identification, flags and offset, protocol, addresses.
_V4: Final = struct.Struct(">BxHHHxB2x8s")
# Length, next header, addresses; of a fragment header offset and flag, identification.
_V6: Final = struct.Struct(">4xHBx32s")
_V6_FRAGMENT: Final = struct.Struct(">2xHI")

Key = tuple[int, bytes, int, int]


class Place(NamedTuple):
    """Position and origin of a fragment.

    offset: of its IP header.
    end: after its last captured byte.
    wire_end: after the last byte that headers around it state.
    tunnels: hash of the surrounding ones.
    ts_ns, packet: of the packet that contains it.
    source: 0 the input, else reassembled packets.
    """

    offset: int
    end: int
    wire_end: int
    tunnels: int
    ts_ns: int
    packet: int
    source: int


class Fragment(NamedTuple):
    """One fragment.

    head_bytes: of the headers before the payload, from its offset on.
    start, end: its range in the payload, bytes on the wire.
    first, known: offset of its payload, and captured size.
    """

    key: Key
    head_bytes: int
    start: int
    end: int
    is_last: bool
    first: int
    known: int


def _fragment_v4(data: memoryview, place: Place) -> Fragment | int:
    """The fragment whose IPv4 header, known to be whole, is at a place; or a reason."""
    offset, end, wire_end, tunnels = place[:4]
    version, total, identification, word, protocol, addresses = _V4.unpack_from(data, offset)
    head_bytes = (version & 15) * 4
    size = (total if offset + total <= wire_end else wire_end - offset) - head_bytes
    start = (word & 0x1FFF) * 8
    is_last = not word & 0x2000
    if size <= 0 or (size % 8 and not is_last) or start + size + head_bytes > _LONGEST:
        return FRAGMENT_MALFORMED
    first = offset + head_bytes
    known = size if first + size <= end else max(0, end - first)
    key = (tunnels, addresses, identification, protocol)
    return Fragment(key, head_bytes, start, start + size, is_last, first, known)


def _fragment_v6(data: memoryview, place: Place) -> Fragment | int:
    """The fragment whose IPv6 header, known to be whole, is at a place; or a reason."""
    offset, end, wire_end, tunnels = place[:4]
    length, protocol, addresses = _V6.unpack_from(data, offset)
    at = offset + 40
    for _ in range(limits.MAX_EXTENSION_HEADERS):
        if protocol == FRAGMENT_HEADER or end - at < 2:
            break
        words = data[at + 1]
        size = (words + 2) * 4 if protocol == AUTHENTICATION else (words + 1) * 8
        protocol, at = data[at], at + size
    if end - at < 8:
        return IP_CUT
    word, identification = _V6_FRAGMENT.unpack_from(data, at)
    head_bytes = at + 8 - offset
    size = min(length + 40, wire_end - offset) - head_bytes
    start = word & 0xFFF8
    is_last = not word & 1
    if size <= 0 or (size % 8 and not is_last) or start + size + head_bytes - 48 > _LONGEST:
        return FRAGMENT_MALFORMED
    key = (tunnels, addresses, identification, -1)
    known = max(0, min(end - at - 8, size))
    return Fragment(key, head_bytes, start, start + size, is_last, at + 8, known)


def fragment_at(data: memoryview, place: Place) -> Fragment | int:
    """The fragment whose IP header, known to be whole, is at a place; or a reason."""
    return (_fragment_v4 if data[place.offset] >> 4 == 4 else _fragment_v6)(data, place)


class FragmentedPacket:
    """A packet with pending fragments.

    first_ns, last_ns: clock at its first and last fragment.
    first_packet: packet number of the first.
    head: headers of the first fragment in the payload.
    total: payload size, -1 unknown.
    seen: payload bytes in fragments so far, as on the wire.
    base: payload offset of the first byte of content and state.
    is_dropped: fragments contradicted each other.
    """

    __slots__ = (
        "base", "content", "first_ns", "first_packet", "head", "is_dropped", "last_ns", "seen",
        "state", "top", "total",
    )  # fmt: skip

    def __init__(self, clock: int, packet: int) -> None:
        self.first_ns = self.last_ns = clock
        self.first_packet = packet
        self.head = b""
        self.total = -1
        self.top = 0
        self.seen = 0
        self.base = 0
        self.content = bytearray()
        self.state = bytearray()
        self.is_dropped = False

    @property
    def charge(self) -> int:
        """Return the bytes that count against the limit."""
        return 2 * len(self.content) + len(self.head) + _CHARGE

    def contradicts(self, fragment: Fragment, payload: memoryview) -> bool:
        """Whether a fragment contradicts the earlier ones."""
        if (
            fragment.start == self.top
            and self.total == -1
            and self.base + len(self.content) == self.top
        ):
            return False  # it goes on where they end
        if fragment.is_last and (self.top > fragment.end or self.total not in (-1, fragment.end)):
            return True
        if self.total != -1 and fragment.end > self.total:
            return True
        start = fragment.start - self.base
        if start < 0:
            payload = payload[-start:]
            start = 0
        count = min(len(payload), len(self.content) - start)
        if count <= 0:
            return False
        state = self.state[start : start + count]
        known = state.count(_KNOWN)
        if known == 0 or self.content[start : start + count] == payload[:count]:
            return False
        if known == count:
            return True
        there = np.frombuffer(self.content, np.uint8, count, start)
        is_other = there != np.frombuffer(payload, np.uint8, count)
        return bool((is_other & (np.frombuffer(state, np.uint8) == _KNOWN)).any())

    def put(self, fragment: Fragment, payload: memoryview) -> None:
        """Insert a fragment that contradicts no other."""
        content, state = self.content, self.state
        if not content:
            self.base = fragment.start
        elif fragment.start < self.base:
            before = self.base - fragment.start
            content[:0] = state[:0] = _NOTHING[:before]
            self.base = fragment.start
        start, end = fragment.start - self.base, fragment.end - self.base
        known = start + len(payload)
        if start == len(content):  # in order, as almost all come
            content += payload
            state += _ALL_KNOWN[: len(payload)]
            if known < end:
                content += _NOTHING[: end - known]
                state += b"\1" * (end - known)
            self.seen += end - start
            self.top = fragment.end
        else:
            if end > len(content):
                state += _NOTHING[: end - len(content)]
                content += _NOTHING[: end - len(content)]
            there = state[start:end]
            self.seen += there.count(_MISSING)
            state[start:end] = there.replace(b"\0", b"\1")
            content[start:known] = payload
            state[start:known] = _ALL_KNOWN[: len(payload)]
            self.top = max(self.top, fragment.end)
        if fragment.is_last:
            self.total = fragment.end

    def clear(self) -> None:
        """Discard its bytes."""
        self.content, self.state = bytearray(), bytearray()
        self.is_dropped = True


class Fragments:
    """Reassembles the fragments of one capture.

    assembled: reassembled packets of the current block.
    rebuilt: first byte, end and end on the wire of the last one.
    is_tcp: whether that is TCP in IP, which cannot be a fragment itself.
    traces: whether `_trace` is called; only in subclasses.
    packet_type: class of the packets, for subclasses.
    """

    traces = False
    packet_type = FragmentedPacket

    def __init__(
        self,
        packets: int = limits.MAX_FRAGMENTED_PACKETS,
        held_bytes: int = limits.MAX_FRAGMENT_BYTES,
    ) -> None:
        self.assembled: ByteArray = np.zeros(1, np.uint8)
        self._view = self.assembled.data
        self.rebuilt = (0, 0, 0)
        self.is_tcp = False
        self._used = 0
        # In the order of age, so that the oldest are found at once.
        self._waiting: OrderedDict[Key, FragmentedPacket] = OrderedDict()
        self._complete: OrderedDict[Key, FragmentedPacket] = OrderedDict()
        self._held = 0
        self._packet_limit, self._byte_limit = packets, held_bytes
        self._clock = NULL
        self._due = _LATER  # nothing is too old before
        self._notices: dict[str, list[int]] = {}

    def start_block(self) -> None:
        """Discard the packets reassembled for the previous block."""
        self._used = 0

    def add(self, data: memoryview, place: Place) -> int:
        """Add a fragment.

        Args:
            data: the bytes that contain it.

        Returns:
            The reason under which the fragment's packet counts; or REBUILT.
        """
        fragment = fragment_at(data, place)
        if isinstance(fragment, int):
            return fragment
        payload = data[fragment.first : fragment.first + fragment.known]
        if place.ts_ns > self._clock:
            self._clock = place.ts_ns
        if self._clock > self._due:
            self._expire()
        if self._complete:
            done = self._complete.get(fragment.key)
            if done is not None:
                if done.total >= fragment.end and not done.contradicts(fragment, payload):
                    if self.traces:
                        self._trace(done, fragment, place)
                    return FRAGMENT
                self._forget(fragment.key)
        waiting = self._waiting_for(fragment, payload, place.packet)
        if waiting.is_dropped:
            return FRAGMENT_CONFLICT
        before = len(waiting.content)
        waiting.put(fragment, payload)
        self._held += 2 * (len(waiting.content) - before)
        if fragment.start == 0 and not waiting.head:
            waiting.head = bytes(data[place.offset : place.offset + fragment.head_bytes])
            self._held += fragment.head_bytes
        waiting.last_ns = self._clock
        if self.traces:
            self._trace(waiting, fragment, place)
        status = FRAGMENT
        if waiting.seen == waiting.total and waiting.head:
            self._rebuild(waiting)
            del self._waiting[fragment.key]
            self._complete[fragment.key] = waiting
            waiting.first_ns = self._clock
            self._due = min(self._due, self._clock + _WINDOW_NS)
            status = REBUILT
        if self._held > self._byte_limit or len(self._waiting) > self._packet_limit:
            self._bound()
        return status

    def finish(self) -> list[Notice]:
        """End the capture: count packets that were incomplete, dropped or discarded."""
        for waiting in self._waiting.values():
            self._count_missing(waiting)
        self._waiting.clear()
        return [
            notice_of(code, packet=self._notices[code][0], value=self._notices[code][1])
            for code in _NOTICES
            if code in self._notices
        ]

    def _trace(self, of: FragmentedPacket, fragment: Fragment, place: Place) -> None:
        """Called for a fragment of a packet, or for one that repeats a completed packet's."""

    def _note(self, code: str, packet: int) -> None:
        """Count a packet for a notice, which names the first one."""
        self._notices.setdefault(code, [packet, 0])[1] += 1

    def _waiting_for(
        self, fragment: Fragment, payload: memoryview, packet: int
    ) -> FragmentedPacket:
        """Return the packet of a fragment; drops it if the fragment contradicts it."""
        waiting = self._waiting.get(fragment.key)
        if waiting is not None and (waiting.is_dropped or waiting.contradicts(fragment, payload)):
            if self._clock - waiting.last_ns > _STALE_NS:
                self._give_up(fragment.key)
                waiting = None
            elif not waiting.is_dropped:
                self._held -= waiting.charge
                waiting.clear()
                self._held += waiting.charge
                self._note("fragments_conflict", packet)
        if waiting is None:
            waiting = self._waiting[fragment.key] = self.packet_type(self._clock, packet)
            self._held += waiting.charge
            if self._clock + _TIMEOUT_NS < self._due:
                self._due = self._clock + _TIMEOUT_NS
        return waiting

    def _rebuild(self, waiting: FragmentedPacket) -> None:
        """Append a reassembled packet to `assembled`."""
        head = bytearray(waiting.head)
        known = waiting.total
        if waiting.state.count(_KNOWN) < known:
            known = len(waiting.state) - len(waiting.state.lstrip(_ALL_KNOWN[:1]))
        if head[0] >> 4 == 4:
            protocol = head[9]
            head[2:4] = (len(head) + waiting.total).to_bytes(2, "big")
            head[6:8] = b"\0\0"
        else:
            protocol = head[-8]
            head[-6:-4] = b"\0\0"  # a fragment header on a whole packet is skipped
            size = len(head) - 40 + waiting.total
            # Eight bytes too many for the field at most: then the length of the walk counts.
            head[4:6] = (size if size <= _LONGEST else 0).to_bytes(2, "big")
        start = self._used
        payload = start + len(head)
        end = payload + known
        if end > len(self.assembled):
            longer = np.zeros(max(2 * len(self.assembled), 1 << end.bit_length()), np.uint8)
            longer[:start] = self.assembled[:start]
            self.assembled, self._view = longer, longer.data
        self._view[start:payload] = head
        self._view[payload:end] = memoryview(waiting.content)[:known]
        self._used = end
        self.rebuilt = (start, end, payload + waiting.total)
        self.is_tcp = protocol == TCP_PROTOCOL

    def _expire(self) -> None:
        """Discard packets that are too old."""
        self._due = _LATER
        for table, end, most_ns in (
            (self._waiting, self._give_up, _TIMEOUT_NS),
            (self._complete, self._forget, _WINDOW_NS),
        ):
            while table:
                key, oldest = next(iter(table.items()))
                if self._clock - oldest.first_ns <= most_ns:
                    self._due = min(self._due, oldest.first_ns + most_ns)
                    break
                end(key)

    def _bound(self) -> None:
        """Discard packets until the limits hold, completed ones first."""
        while self._held > self._byte_limit or len(self._waiting) > self._packet_limit:
            if self._complete:
                self._forget(next(iter(self._complete)))
                continue
            _, oldest = self._waiting.popitem(last=False)
            self._held -= oldest.charge
            self._note("fragments_limit", oldest.first_packet)

    def _give_up(self, key: Key) -> None:
        waiting = self._waiting.pop(key)
        self._held -= waiting.charge
        self._count_missing(waiting)

    def _count_missing(self, waiting: FragmentedPacket) -> None:
        if not waiting.is_dropped:
            self._note("fragments_missing", waiting.first_packet)

    def _forget(self, key: Key) -> None:
        self._held -= self._complete.pop(key).charge
