"""A packet socket with a ring of blocks in memory shared by the kernel and this process.

The kernel fills the blocks in turn and releases each when it is full, or a moment after its first
packet. Blocks are read and returned in order. The rings of several interfaces are mapped one after
the other into one range of memory, so that all their packets are in one buffer.

When packets come faster than they are read, some must be lost. Were each block given back at once,
a full ring would take in packets for one block and lose those of the next, for ever: a hole in
every stream every few milliseconds, each of which costs frames around it and the time to find the
next one. So a ring that has lost packets is emptied before the kernel gets any block of it back:
few long holes, and between them as much as the ring holds.
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray
from dissector.capture import tpacket
from dissector.errors import DependencyError, UsageError
from dissector.tap.filters import NOTHING, Program, attachment
from dissector.tap.interfaces import Interface, find_interface

BLOCK_BYTES: Final = 1 << 20  # holds the longest segment that offload makes
RETIRE_MS: Final = 60  # the kernel releases a block with packets after this time at the latest

_SOL_PACKET: Final = 263
_ADD_MEMBERSHIP: Final = 1
_RX_RING: Final = 5
_STATISTICS: Final = 6
_VERSION: Final = 10
_RESERVE: Final = 12
_TIMESTAMP: Final = 17
_IGNORE_OUTGOING: Final = 23
_TPACKET_V3: Final = 2
_PROMISCUOUS: Final = 1
_ALL_PROTOCOLS: Final = 0x0003
_FRAME_BYTES: Final = 2048  # required by the interface; packets of any length share a block
_SO_TIMESTAMPNS: Final = 35
_STAMPS_OF_KERNEL: Final = 1 << 4
_RAW_HARDWARE: Final = 1 << 6
_SIOCSHWTSTAMP: Final = 0x89B0
_STAMP_ALL: Final = 1

_PROT_NONE, _PROT_READ, _PROT_WRITE = 0, 1, 2
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS = 1, 2, 0x10, 0x20

_NO_RIGHT: Final = (
    "capturing needs the right CAP_NET_RAW: run as root, give the unit "
    "AmbientCapabilities=CAP_NET_RAW, or the container --cap-add NET_RAW"
)


class RingBlock(NamedTuple):
    """A block that the kernel released.

    start, end: byte offsets in the memory of all rings.
    first: offset of its first packet from start.
    packets: their number.
    """

    start: int
    end: int
    first: int
    packets: int


class Statistics(NamedTuple):
    """Packets since the start: received, and dropped because the ring was full."""

    received: int
    dropped: int


def open_socket(interface: Interface) -> socket.socket:
    """A packet socket that is not bound yet.

    Raises:
        DependencyError: this process lacks the right to capture.
    """
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    except PermissionError:
        raise DependencyError(_NO_RIGHT) from None
    except OSError as error:
        raise DependencyError(
            f"{interface.name}: this system has no packet sockets ({error.strerror})"
        ) from None


def attach(packets: socket.socket, program: Program) -> None:
    """Attach a packet filter to a socket."""
    option, value, alive = attachment(program)
    packets.setsockopt(socket.SOL_SOCKET, option, value)
    del alive


class Ring:
    """The socket of one interface and its blocks. memory: of all rings, once they are mapped.

    Args:
        program: decides which packets come. ring_bytes: of memory, at least two blocks.
        wants_hardware_time: stamps of the network card instead of the kernel's.
    """

    def __init__(
        self,
        interface: Interface,
        program: Program,
        ring_bytes: int,
        wants_hardware_time: bool = False,
    ) -> None:
        self.interface = interface
        self.blocks = max(2, ring_bytes // BLOCK_BYTES)
        self.socket = open_socket(interface)
        self._program = program
        self.memory: ByteArray = np.zeros(0, np.uint8)
        self.begin()
        option = self.socket.setsockopt
        option(_SOL_PACKET, _VERSION, _TPACKET_V3)
        option(_SOL_PACKET, _RESERVE, tpacket.VLAN_TAG_BYTES)
        # Timestamps of the packets' arrival in the kernel, not of this socket's copy.
        option(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        option(_SOL_PACKET, _TIMESTAMP, _STAMPS_OF_KERNEL)
        if interface.is_loopback:
            # On loopback each packet would be captured twice, outgoing and incoming.
            option(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        if wants_hardware_time:
            self._want_hardware_time()
        size = self.blocks * BLOCK_BYTES
        request = (BLOCK_BYTES, self.blocks, _FRAME_BYTES, size // _FRAME_BYTES, RETIRE_MS, 0, 0)
        try:
            option(_SOL_PACKET, _RX_RING, struct.pack("7I", *request))
        except OSError as error:
            self.socket.close()
            raise DependencyError(
                f"{interface.name}: no ring of {size >> 20} MiB ({error.strerror}); give less "
                "with --ring"
            ) from None

    def begin(self) -> None:
        """Reset positions and counters."""
        self._start = 0  # byte offset of this ring in the shared memory
        self._next = 0  # index of the block that the kernel releases next
        self._oldest = 0  # index of the first block that was not returned
        self._done = 0  # number of blocks from there on that can be returned
        self._is_losing = False  # packets were dropped since the ring was last empty
        self._received = 0
        self._dropped = 0

    @property
    def bytes(self) -> int:
        """Memory of the ring."""
        return self.blocks * BLOCK_BYTES

    def start_in(self, memory: ByteArray, start: int) -> None:
        """Use the shared memory from byte `start` on, and begin capturing."""
        self.memory, self._start = memory, start
        attach(self.socket, self._program)
        self.bind()

    def bind(self) -> None:
        """Bind the socket to the interface, also after it was down.

        Raises:
            OSError: the interface does not exist.
        """
        interface = self.interface
        self.socket.bind((interface.name, _ALL_PROTOCOLS))
        index = socket.if_nametoindex(interface.name)
        self.interface = interface._replace(number=index)
        member = struct.pack("iHH8s", index, _PROMISCUOUS, 0, b"")
        self.socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, member)

    def rebind(self) -> bool:
        """Try to bind again to an interface that was gone; whether that succeeded."""
        try:
            find_interface(self.interface.name)
            self.bind()
        except (OSError, UsageError):
            return False
        return True

    def next_block(self) -> RingBlock | None:
        """The next released block, None if there is none."""
        if self.taken == self.blocks:
            return None
        start = self._start + (self._next % self.blocks) * BLOCK_BYTES
        status, packets, first = (
            int(self.memory[start + at : start + at + 4].view(np.uint32)[0])
            for at in (tpacket.BLOCK_STATUS, tpacket.BLOCK_PACKETS, tpacket.BLOCK_FIRST)
        )
        if not status & tpacket.STATUS_USER:
            return None
        self._is_losing |= bool(status & tpacket.STATUS_LOSING)
        self._next += 1
        return RingBlock(start, start + BLOCK_BYTES, first, packets)

    def give_back(self, count: int = 1) -> None:
        """Return the oldest `count` blocks to the kernel; a ring that loses packets delays that
        until it is empty."""
        self._done += count
        if self._is_losing and (self._done < self.taken or self.ready(1)):
            return
        self._is_losing = False
        for _ in range(self._done):
            start = self._start + (self._oldest % self.blocks) * BLOCK_BYTES + tpacket.BLOCK_STATUS
            self.memory[start : start + 4].view(np.uint32)[0] = 0
            self._oldest += 1
        self._done = 0

    def ready(self, most: int) -> int:
        """The number of released blocks, counted up to `most`."""
        count = 0
        while count < most and self.taken + count < self.blocks:
            number = (self._next + count) % self.blocks
            start = self._start + number * BLOCK_BYTES + tpacket.BLOCK_STATUS
            if not self.memory[start : start + 4].view(np.uint32)[0] & tpacket.STATUS_USER:
                break
            count += 1
        return count

    @property
    def taken(self) -> int:
        """The number of blocks that were read but not returned."""
        return self._next - self._oldest

    def statistics(self) -> Statistics:
        """The kernel's counters so far."""
        try:
            raw = self.socket.getsockopt(_SOL_PACKET, _STATISTICS, 12)
        except OSError:
            raw = bytes(12)
        packets, drops, _ = struct.unpack("3I", raw)
        self._received += packets - drops
        self._dropped += drops
        self._is_losing |= drops > 0
        return Statistics(self._received, self._dropped)

    def problem(self) -> str | None:
        """The socket's error since the last call, if any: the interface went down or was
        removed."""
        number = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number in (errno.ENETDOWN, errno.ENODEV, errno.ENXIO):
            return os.strerror(number)
        return None

    def silence(self) -> None:
        """Receive no further packets; those in the ring stay."""
        attach(self.socket, NOTHING)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _want_hardware_time(self) -> None:
        """Make the network card timestamp all packets, and the ring use these timestamps."""
        import fcntl

        config = ctypes.create_string_buffer(struct.pack("iii", 0, 0, _STAMP_ALL), 12)
        name = self.interface.name.encode()
        request = struct.pack("16sP", name, ctypes.addressof(config)).ljust(40, b"\0")
        try:
            fcntl.ioctl(self.socket, _SIOCSHWTSTAMP, request)
            self.socket.setsockopt(_SOL_PACKET, _TIMESTAMP, _RAW_HARDWARE)
        except OSError as error:
            self.socket.close()
            raise DependencyError(
                f"{self.interface.name}: the card does not stamp packets ({error.strerror}); "
                "use --timestamps kernel"
            ) from None


def map_rings(rings: Sequence[Ring]) -> ByteArray:
    """Map all rings into one range of memory and begin capturing."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    total = sum(ring.bytes for ring in rings)
    base = library.mmap(None, total, _PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    start = 0
    for ring in rings:
        mapped = library.mmap(
            base + start, ring.bytes, _PROT_READ | _PROT_WRITE, _MAP_SHARED | _MAP_FIXED,
            ring.socket.fileno(), 0,
        )  # fmt: skip
        if mapped != base + start:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        start += ring.bytes
    memory: ByteArray = np.ctypeslib.as_array((ctypes.c_uint8 * total).from_address(base))
    start = 0
    for ring in rings:
        ring.start_in(memory, start)
        start += ring.bytes
    return memory


def unmap(memory: ByteArray) -> None:
    """Unmap the memory of rings; arrays over it become invalid."""
    library = ctypes.CDLL(None, use_errno=True)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.munmap(memory.ctypes.data, len(memory))
