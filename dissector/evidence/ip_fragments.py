"""IP packets that came in pieces: which bytes of which packets they were put together from."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.packet.fragments import Fragments, Place, fragment_at
from dissector.packet.reasons import FRAGMENT

_REMEMBERED: Final = 4096  # packets that were put together, for fragments that come once more


class Piece(NamedTuple):
    """A fragment: its place in the payload of its packet, the packet of the capture that brought
    it, its place there (in the buffer until the block was read), bytes."""

    start: int
    packet: int
    first: int
    size: int


class KeptPieces(Fragments):
    """Puts fragments together and remembers their places.

    all_rebuilt: of the block just read, first byte and end of each packet in `side`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.all_rebuilt: list[tuple[int, int]] = []
        self._pieces: dict[Any, list[Piece]] = {}
        self._found: list[tuple[int, int, list[Piece]]] = []
        self._repeats: list[tuple[int, Piece]] = []
        self._last: dict[Any, int] = {}  # number of the last packet of a key
        self._contents: dict[int, bytes] = {}
        self._placed_packets: set[int] = set()
        self._count = 0

    def start_block(self) -> None:
        """What was rebuilt before is not needed any more."""
        super().start_block()
        self._found, self.all_rebuilt, self._repeats = [], [], []

    def add(self, data: memoryview, place: Place) -> int:
        """As it is, and note the place of the fragment."""
        piece = fragment_at(data, place)
        was_complete = not isinstance(piece, int) and piece.key in self._complete
        status = super().add(data, place)
        if isinstance(piece, int):
            return status
        noted = Piece(piece.start, place.packet, piece.first, piece.known)
        if status == FRAGMENT and was_complete and piece.key in self._complete:
            self._repeats.append((self._last[piece.key], noted))
        elif noted.size and place.source == 0:
            self._pieces.setdefault(piece.key, []).append(noted)
        if status < 0:
            start, end, _ = self.rebuilt
            version = int(self.side[start]) >> 4
            head = (int(self.side[start]) & 15) * 4 if version == 4 else piece.head_bytes
            self.all_rebuilt.append((start, end))
            number = self._last[piece.key] = self._count
            self._count += 1
            self._found.append((start + head, number, self._pieces.pop(piece.key, [])))
        return status

    def locate(self, offsets: Int64Array, first_packet: int) -> None:
        """The block was read: places in the buffer become places in packets.

        Args:
            offsets: of the packets in the buffer; first_packet: number of the first.
        """

        def placed(piece: Piece) -> Piece:
            if piece.packet in self._placed_packets or piece.packet < first_packet:
                return piece
            return piece._replace(first=piece.first - int(offsets[piece.packet - first_packet]))

        self._found = [(at, no, [placed(one) for one in some]) for at, no, some in self._found]
        self._repeats = [(number, placed(piece)) for number, piece in self._repeats]
        # Those that wait for a later block must know their place in the packet now.
        for key, pieces in self._pieces.items():
            self._pieces[key] = [placed(piece) for piece in pieces]
            self._placed_packets.update(piece.packet for piece in pieces)

    def rewritten(self, side: ByteArray) -> None:
        """What the rebuilt packets of the block hold now."""
        for (_, end), (payload, number, _) in zip(self.all_rebuilt, self._found, strict=True):
            self._contents[number] = side[payload:end].tobytes()
        while len(self._contents) > _REMEMBERED:
            del self._contents[next(iter(self._contents))]

    def contents(self) -> Iterator[tuple[int, int, bytes]]:
        """Packet, place in it, and what stands there now, for the fragments of the block."""
        for _, number, pieces in self._found:
            for piece in pieces:
                yield self._content(number, piece)
        for number, piece in self._repeats:
            yield self._content(number, piece)

    def _content(self, number: int, piece: Piece) -> tuple[int, int, bytes]:
        whole = self._contents.get(number, b"")
        return piece.packet, piece.first, whole[piece.start : piece.start + piece.size]
