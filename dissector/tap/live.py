"""A live packet source: the kernel rings of network interfaces, merged in order of time.

Packets of one interface are read in place, block by block. With several interfaces, a packet is
passed on only if no other interface can still deliver an older one: the directions of a connection
may use different interfaces, and their order distinguishes gaps and answers.
"""

import select
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array, TableBlock
from dissector.capture.tpacket import walk_block
from dissector.dissection import Dissection
from dissector.limits import PACKET_BLOCK_ROWS
from dissector.notice_rows import Notice, notice_of
from dissector.packet.columns import PacketColumns
from dissector.packet.link import ETHERNET
from dissector.tap.filters import ALL, Program, of_tagged
from dissector.tap.interfaces import Interface, is_up
from dissector.tap.packet_batches import Cuts, Idle, PacketBatch, Part, rows_before
from dissector.tap.ring import RETIRE_MS, Ring, RingBlock, attach, map_rings, open_socket, unmap

RING_BYTES: Final = 64 << 20  # of all interfaces together

_POLL_MS: Final = 250
# Each batch costs some milliseconds, whatever its size. At high packet rates several blocks are
# gathered into a batch; they occupy a small part of the ring and delay the output a little.
_GATHER_SECONDS: Final = 0.08
_GATHER_STEP_SECONDS: Final = 0.01
_GATHER_BLOCKS: Final = 8
_GATHER_PART: Final = 8  # of a ring
_CHECK_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 2.0
_NS: Final = 1_000_000_000
_NO_BOUNDARY: Final = (1 << 63) - 1
_LAG_NS: Final = 5 * RETIRE_MS * 1_000_000  # longest time of a packet in a filling block


class _Feed:
    """One interface: its ring, and the packets that were parsed but not passed on.

    number: the interface's number in the capture.
    waiting: columns of these packets, in order of arrival.
    """

    def __init__(self, ring: Ring, number: int) -> None:
        self.ring = ring
        self.number = number
        self.waiting: list[PacketColumns] = []
        self.ends: list[int] = []  # rows in `waiting` up to the end of each parsed block
        self.latest_ns = 0
        self.down_since: float | None = None

    @property
    def rows(self) -> int:
        """The number of waiting packets."""
        return sum(len(columns.ts_ns) for columns in self.waiting)

    def has_many(self) -> bool:
        """Whether enough blocks are ready for a batch."""
        most = min(_GATHER_BLOCKS, self.ring.blocks // _GATHER_PART)
        return self.ring.ready(most) >= most

    def walk(self, block: RingBlock, room: PacketColumns) -> None:
        """Parse all packets of a block into `waiting`."""
        offset, left = block.first, block.packets
        is_ethernet = int(self.ring.interface.link_type == ETHERNET)
        data = self.ring.memory
        position = block.start + offset
        while left > 0:
            walked = walk_block(data, (position, block.end), left, self.number, is_ethernet, room)
            self.waiting.append(PacketColumns(room.matrix[:, : walked.rows].copy()))
            self.latest_ns = max(self.latest_ns, int(room.ts_ns[: walked.rows].max()))
            position, left = walked.offset, walked.left
        self.ends.append(self.rows)

    def first_packets(self) -> PacketColumns:
        """The first waiting packets, about a block of columns at most."""
        if len(self.waiting) > 1:
            rows = np.cumsum([len(columns.ts_ns) for columns in self.waiting])
            count = max(1, int(np.searchsorted(rows, PACKET_BLOCK_ROWS, side="right")))
            first = np.concatenate([each.matrix for each in self.waiting[:count]], axis=1)
            self.waiting[:count] = [PacketColumns(first)]
        return self.waiting[0]

    def drop(self, count: int) -> None:
        """Remove the first packets and return emptied blocks to the kernel."""
        left = count
        while left:
            first = self.waiting[0]
            size = len(first.ts_ns)
            if size <= left:
                self.waiting.pop(0)
                left -= size
            else:
                self.waiting[0] = PacketColumns(first.matrix[:, left:].copy())
                left = 0
        self.ends = [end - count for end in self.ends]
        while self.ends and self.ends[0] <= 0:
            self.ends.pop(0)
            self.ring.give_back()


class Live:
    """A packet source over network interfaces.

    Args:
        program: the kernel's packet filter; one, or one per link type.
        is_filtered: the user gave a filter.
        ring_bytes: size of all rings together. name: for ids; None: the interfaces' names.
    """

    is_live = True

    def __init__(
        self,
        interfaces: Sequence[Interface],
        program: Program | Mapping[int, Program] = ALL,
        ring_bytes: int = RING_BYTES,
        is_filtered: bool = False,
        wants_hardware_time: bool = False,
        name: str | None = None,
    ) -> None:
        self.name = name or "_".join(interface.name for interface in interfaces)
        self.interfaces: Sequence[str] = [interface.name for interface in interfaces]
        self.part_name = ",".join(self.interfaces)
        self.file_names: Sequence[str] = (self.part_name,)
        size = ring_bytes // len(interfaces)
        rings = []
        for each in interfaces:
            chosen = program[each.link_type] if isinstance(program, Mapping) else program
            rings.append(Ring(each, chosen, size, wants_hardware_time))
        self._feeds = [_Feed(ring, number) for number, ring in enumerate(rings)]
        self._tagged = _TaggedCount(interfaces) if is_filtered else None
        self._memory = map_rings(rings)
        self._room = PacketColumns.new(PACKET_BLOCK_ROWS)
        self._is_ending = False
        self._checked = 0.0
        self._notices: list[Notice] = []
        self.taken = 0
        self.last_ns = 0

    def introduce(self, dissection: Dissection) -> None:
        """Add the interfaces to a dissection, in their order."""
        dissection.start_file()
        dissection.capture.start_live()
        for feed in self._feeds:
            dissection.capture.interfaces.add(feed.ring.interface.link_type, 0)

    def dropped(self) -> int:
        """Packets that the kernel dropped because the rings were full."""
        return sum(feed.ring.statistics().dropped for feed in self._feeds)

    def received(self) -> int:
        """Packets that the kernel put into the rings."""
        return sum(feed.ring.statistics().received for feed in self._feeds)

    def down(self) -> list[str]:
        """Interfaces that are down or gone."""
        return [feed.ring.interface.name for feed in self._feeds if feed.down_since is not None]

    def notices(self) -> list[Notice]:
        """The interfaces' notices since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def stop(self) -> None:
        """Stop capturing; `packets` ends after the rings are drained."""
        self._is_ending = True

    def close(self) -> None:
        """Close the sockets and unmap the memory; earlier batches become invalid."""
        for feed in self._feeds:
            feed.ring.statistics()
            feed.ring.close()
        if self._tagged is not None:
            self._tagged.close()
        unmap(self._memory)

    def packet_batches(
        self, dissection: Dissection, cuts: Cuts
    ) -> Iterator[PacketBatch | Part | Idle]:
        """Yield packets until `stop` is called, then the rest of the rings."""
        self.introduce(dissection)
        del dissection  # the loop may replace it
        poll = select.poll()
        by_number = {}
        for feed in self._feeds:
            poll.register(feed.ring.socket, select.POLLIN | select.POLLERR)
            by_number[feed.ring.socket.fileno()] = feed
        while not self._is_ending:
            # While blocks are held, poll returns at once.
            for number, events in poll.poll(0 if self._waits() else _POLL_MS):
                if events & select.POLLERR:
                    self._handle_socket_error(by_number[number])
            self._gather()
            # Before the look at the blocks: what comes after it may be older than a later moment.
            looked_ns = time.time_ns()
            self._handle_blocks()
            yield from self._merged(cuts, self._boundary_ns(looked_ns))
            self._check(time.monotonic())
            yield Idle()
        yield from self._drained(cuts)

    # -- inside

    def _waits(self) -> bool:
        return any(feed.waiting for feed in self._feeds)

    def _gather(self) -> None:
        """Wait for more blocks, or for the other interfaces' time, while the ring has room."""
        end = time.monotonic() + _GATHER_SECONDS
        while (
            (self._waits() or any(feed.ring.ready(1) for feed in self._feeds))
            and not any(feed.has_many() for feed in self._feeds)
            and time.monotonic() < end
            and not self._is_ending
        ):
            time.sleep(_GATHER_STEP_SECONDS)

    def _handle_blocks(self) -> None:
        """Parse released blocks; few at a time, so that the loop runs in between."""
        for feed in self._feeds:
            while feed.rows < PACKET_BLOCK_ROWS:
                block = feed.ring.next_block()
                if block is None:
                    break
                feed.walk(block, self._room)

    def _boundary_ns(self, looked_ns: int) -> int:
        """The time before which no interface can deliver further packets.

        looked_ns: when the blocks were checked.
        """
        if len(self._feeds) == 1:
            return _NO_BOUNDARY
        seen_ns = looked_ns - _LAG_NS
        return min(max(feed.latest_ns, seen_ns) if not feed.waiting else feed.latest_ns
                   for feed in self._feeds)  # fmt: skip

    def _merged(self, cuts: Cuts, boundary_ns: int) -> Iterator[PacketBatch]:
        """Yield the waiting packets before boundary_ns as batches in order of time."""
        while self._waits():
            packets = self._next_packets(boundary_ns)
            rows = len(packets.ts_ns)
            if rows == 0:
                return
            chosen = rows_before(packets, rows, cuts)
            if chosen == 0:
                yield PacketBatch(self._memory, packets, 0, _nothing, is_boundary=True)
                continue
            self.taken += chosen
            self.last_ns = max(self.last_ns, int(packets.ts_ns[chosen - 1]))
            yield PacketBatch(self._memory, packets, chosen, _Take(self._memory, packets, chosen))
            numbers = packets.interface[:chosen]
            for feed in self._feeds:
                feed.drop(int(np.count_nonzero(numbers == feed.number)))

    def _next_packets(self, boundary_ns: int) -> PacketColumns:
        """Up to a block of packets not after boundary_ns, in order of time."""
        if len(self._feeds) == 1:
            return self._feeds[0].first_packets()
        parts: list[Int64Array] = []
        times: list[Int64Array] = []
        for feed in self._feeds:
            if feed.waiting:
                # Timestamps of one interface may be slightly out of order; its packets are not.
                rising = np.maximum.accumulate(feed.waiting[0].ts_ns)
                parts.append(feed.waiting[0].matrix)
                times.append(rising)
                if len(feed.waiting) > 1:
                    # This interface has more packets: the others must not overtake it.
                    boundary_ns = min(boundary_ns, int(rising[-1]))
        matrix, keys = np.concatenate(parts, axis=1), np.concatenate(times)
        order = np.argsort(keys, kind="stable")
        order = order[keys[order] <= boundary_ns][:PACKET_BLOCK_ROWS]
        return PacketColumns(np.ascontiguousarray(matrix[:, order]))

    def _drained(self, cuts: Cuts) -> Iterator[PacketBatch]:
        """Yield the rest of the rings after capturing stopped."""
        for feed in self._feeds:
            feed.ring.silence()
        end = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < end:
            looked_ns, taken = time.time_ns(), self.taken
            self._handle_blocks()
            # Each ring releases its blocks at its own times: another may still hold older packets.
            is_all = taken + sum(feed.rows for feed in self._feeds) >= self.received()
            yield from self._merged(cuts, _NO_BOUNDARY if is_all else self._boundary_ns(looked_ns))
            if self.taken > taken:
                end = time.monotonic() + _DRAIN_SECONDS
            if self.taken >= self.received():
                return
            time.sleep(RETIRE_MS / 1000)
        yield from self._merged(cuts, _NO_BOUNDARY)

    def _handle_socket_error(self, feed: _Feed) -> None:
        """Handle a socket error: the interface went down."""
        if feed.ring.problem() is not None and feed.down_since is None:
            feed.down_since = time.monotonic()
            self._note("interface_down", feed.number)

    def _check(self, now: float) -> None:
        """Once a second: rebind interfaces that were down, and check the filter for VLAN tags."""
        if now - self._checked < _CHECK_SECONDS:
            return
        self._checked = now
        for feed in self._feeds:
            if feed.down_since is not None and is_up(feed.ring.interface.name):
                if feed.ring.rebind():
                    silent_ns = int((now - feed.down_since) * _NS)
                    feed.down_since = None
                    self._note("interface_up", feed.number, silent_ns)
            elif feed.down_since is None and not is_up(feed.ring.interface.name):
                feed.down_since = now
                self._note("interface_down", feed.number)
        if self._tagged is not None and self.taken == 0:
            tagged = self._tagged.count()
            if tagged and not self._tagged.is_reported:
                self._tagged.is_reported = True
                self._note("filter_misses_tags", tagged)

    def _note(self, code: str, value: int, value2: int | None = None) -> None:
        notice = notice_of(code, ts_ns=time.time_ns(), value=value)
        self._notices.append(notice if value2 is None else notice._replace(value2=value2))


class _Take:
    """Feeds packets to the dissection."""

    def __init__(self, memory: ByteArray, packets: PacketColumns, rows: int) -> None:
        self._memory, self._packets, self._rows = memory, packets, rows

    def __call__(self, dissection: Dissection) -> list[TableBlock]:
        return dissection.feed_packets(self._memory, self._packets, self._rows)


def _nothing(dissection: Dissection) -> list[TableBlock]:
    return []


class _TaggedCount:
    """Counts packets with VLAN tags, which a user's filter may miss."""

    def __init__(self, interfaces: Sequence[Interface]) -> None:
        self.is_reported = False
        self._sockets = [open_socket(interface) for interface in interfaces]
        self._counts = 0
        for packets, interface in zip(self._sockets, interfaces, strict=True):
            attach(packets, of_tagged())
            packets.bind((interface.name, 0x0003))

    def count(self) -> int:
        """Packets with a tag so far."""
        for packets in self._sockets:
            packets_seen, _ = struct.unpack("2I", packets.getsockopt(263, 6, 8))
            self._counts += packets_seen
        return self._counts

    def close(self) -> None:
        """Close the sockets."""
        for packets in self._sockets:
            packets.close()
