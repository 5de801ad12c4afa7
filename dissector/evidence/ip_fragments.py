"""Copies the rewritten bytes of reassembled IP packets back to their fragments."""

from collections.abc import Iterator
from typing import NamedTuple

from dissector.blocks import ByteArray
from dissector.packet.fragments import Fragment, FragmentedPacket, Fragments, Place
from dissector.packet.reader import NESTED_FRAGMENTS


class TracedPacket(FragmentedPacket):
    """A fragmented packet with the origin of its bytes. pieces: fragments in packets of the capture
    (packet number, offset in the payload, size). inner_pieces: fragments in other reassembled
    packets (that packet, offset in it, offset in the payload, size). rewritten: new payload."""

    __slots__ = ("inner_pieces", "pieces", "rewritten")

    def __init__(self, clock: int, packet: int) -> None:
        super().__init__(clock, packet)
        self.pieces: list[tuple[int, int, int]] = []
        self.inner_pieces: list[tuple[TracedPacket, int, int, int]] = []
        self.rewritten = bytearray()


class Whole(NamedTuple):
    """A reassembled packet: offsets of its start, its payload and its end in `assembled`; valid
    until the next block is read."""

    packet: TracedPacket
    start: int
    payload: int
    end: int


class TracedFragments(Fragments):
    """Reassembles fragments and records their positions.

    wholes: reassembled packets of the current block.
    """

    traces = True
    packet_type = TracedPacket

    def __init__(self) -> None:
        super().__init__()
        self.wholes: list[Whole] = []
        self._repeated: list[TracedPacket] = []  # with a retransmitted fragment

    def start_block(self) -> None:
        """Discard the reassembled packets of the previous block."""
        super().start_block()
        self.wholes, self._repeated = [], []

    def contents(self, assembled: ByteArray) -> Iterator[tuple[int, bytes]]:
        """Yield packet number and new fragment payload of the block. assembled: rewritten."""
        for whole in self.wholes:
            whole.packet.rewritten = bytearray(assembled[whole.payload : whole.end].data)
        packets = dict.fromkeys((*(whole.packet for whole in self.wholes), *self._repeated))
        for _ in range(NESTED_FRAGMENTS + 1):
            for packet in packets:
                for outer, at, start, size in packet.inner_pieces:
                    outer.rewritten[at : at + size] = packet.rewritten[start : start + size]
                for number, start, size in packet.pieces:
                    yield number, bytes(packet.rewritten[start : start + size])
            # The enclosing packets, of this or an earlier block, have changed too.
            packets = dict.fromkeys(each[0] for one in packets for each in one.inner_pieces)

    def _trace(self, of: FragmentedPacket, fragment: Fragment, place: Place) -> None:
        assert isinstance(of, TracedPacket), "packet_type says so"
        if not fragment.known:
            return
        if place.source == 0:
            of.pieces.append((place.packet, fragment.start, fragment.known))
        else:  # in the packet that was put together last
            outer = self.wholes[-1]
            at = fragment.first - outer.payload
            of.inner_pieces.append((outer.packet, at, fragment.start, fragment.known))
        self._repeated += [of] if of.rewritten else []

    def _rebuild(self, waiting: FragmentedPacket) -> None:
        assert isinstance(waiting, TracedPacket), "packet_type says so"
        super()._rebuild(waiting)
        start, end, _ = self.rebuilt
        self.wholes.append(Whole(waiting, start, start + len(waiting.head), end))
