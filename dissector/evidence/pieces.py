"""IP packets that came in pieces: which bytes of which packets they were put together from."""

from typing import Any, NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.packet.fragments import Fragments, fragment_at
from dissector.packet.walk import END, HASH, OFFSET, PACKET, SOURCE, WIRE_END


class Origin(NamedTuple):
    """Where a part of a rebuilt packet came from: its place there, the packet, the place in that
    packet, bytes."""

    start: int
    packet: int
    offset: int
    size: int


class KeptPieces(Fragments):
    """Puts fragments together and remembers their places.

    rebuilt: of the block just read: first byte and end of each packet in `side`, and its origins.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rebuilt: list[tuple[int, int, list[Origin]]] = []
        self._pieces: dict[Any, list[tuple[int, int, int, int]]] = {}
        self._found: list[tuple[int, int, int, Any]] = []
        self._offsets: dict[int, int] = {}

    def start_block(self) -> None:
        """What was rebuilt before is not needed any more."""
        super().start_block()
        self._found = []
        self.rebuilt = []

    def take(self, data: ByteArray, walk: Int64Array) -> int:
        """As it is, and note the place of the fragment."""
        offset, end = int(walk[OFFSET]), int(min(walk[END], walk[WIRE_END]))
        packet, is_of_input = int(walk[PACKET]), int(walk[SOURCE]) == 0
        piece = fragment_at(data, offset, end, int(walk[HASH]))
        if not isinstance(piece, int) and len(piece.payload) and is_of_input:
            first = piece.payload.ctypes.data - data.ctypes.data
            place = (piece.start, packet, first, len(piece.payload))
            self._pieces.setdefault(piece.key, []).append(place)
        said = super().take(data, walk)
        if said < 0 and not isinstance(piece, int):
            start = int(walk[OFFSET])
            version = int(self.side[start]) >> 4
            head = (int(self.side[start]) & 15) * 4 if version == 4 else len(piece.head)
            self._found.append((start, int(walk[END]), head, self._pieces.pop(piece.key, [])))
        return said

    def place(self, offsets: Int64Array, first_packet: int) -> None:
        """The block was read: places in the buffer become places in packets.

        Args:
            offsets: of the packets in the buffer; first_packet: number of the first.
        """
        for start, end, head, pieces in self._found:
            origins = [
                Origin(
                    start + head + at,
                    packet,
                    self._in_packet(packet, first, offsets, first_packet),
                    size,
                )
                for at, packet, first, size in pieces
            ]
            self.rebuilt.append((start, end, origins))
        # Those that wait for a later block must know their place in the packet now.
        for key, pieces in self._pieces.items():
            self._pieces[key] = [
                (at, packet, self._in_packet(packet, first, offsets, first_packet), size)
                for at, packet, first, size in pieces
            ]
            self._offsets.update({packet: -1 for _, packet, _, _ in pieces})

    def _in_packet(self, packet: int, first: int, offsets: Int64Array, first_packet: int) -> int:
        """The place in its packet of a place in the buffer, unless it is one already."""
        if packet in self._offsets or packet < first_packet:
            return first
        return first - int(offsets[packet - first_packet])
