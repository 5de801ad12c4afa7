"""IP packets that came in pieces: what stands in each piece once the whole has other bytes."""

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.packet.fragments import Fragments, Place, fragment_at
from dissector.packet.reasons import FRAGMENT

_REMEMBERED: Final = 4096  # packets that were put together, for fragments that come once more


class _Piece(NamedTuple):
    """A fragment: the packet of the capture that brought it, its place in the payload, bytes."""

    packet: int
    start: int
    size: int


@dataclasses.dataclass
class Whole:
    """A packet that was put together.

    start, payload, end: where it, its payload and what follows lie in `assembled`, until the next
        block is read.
    content: the payload as it is now. pieces: those that were not told of it.
    """

    start: int
    payload: int
    end: int
    pieces: list[_Piece]
    content: bytes = b""


class TracedFragments(Fragments):
    """Puts fragments together and remembers their places.

    wholes: those of the block just read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wholes: list[Whole] = []
        self._repeated: list[Whole] = []  # of which a fragment came once more in the block
        self._pieces: dict[Any, list[_Piece]] = {}
        self._latest: OrderedDict[Any, Whole] = OrderedDict()

    def start_block(self) -> None:
        """What was rebuilt before is not needed any more."""
        super().start_block()
        self.wholes, self._repeated = [], []

    def add(self, data: memoryview, place: Place) -> int:
        """As it is, and note the place of the fragment."""
        fragment = fragment_at(data, place)
        was_complete = not isinstance(fragment, int) and fragment.key in self._complete
        status = super().add(data, place)
        if isinstance(fragment, int):
            return status
        key, piece = fragment.key, _Piece(place.packet, fragment.start, fragment.known)
        is_repeat = status == FRAGMENT and was_complete and key in self._complete
        if is_repeat and key in self._latest:
            self._latest[key].pieces.append(piece)
            self._repeated.append(self._latest[key])
        elif piece.size and place.source == 0 and not is_repeat:
            self._pieces.setdefault(key, []).append(piece)
        if status < 0:
            start, end, _ = self.rebuilt
            first = int(self.assembled[start])
            head = (first & 15) * 4 if first >> 4 == 4 else fragment.head_bytes
            whole = Whole(start, start + head, end, self._pieces.pop(key, []))
            self.wholes.append(whole)
            self._latest[key] = whole
            self._latest.move_to_end(key)
            if len(self._latest) > _REMEMBERED:
                self._latest.popitem(last=False)
        return status

    def contents(self, assembled: ByteArray) -> Iterator[tuple[int, bytes]]:
        """Packet, and what its fragment holds now, for those of the block. assembled: rewritten."""
        for whole in self.wholes:
            whole.content = assembled[whole.payload : whole.end].tobytes()
        for whole in (*self.wholes, *self._repeated):
            for packet, start, size in whole.pieces:
                yield packet, whole.content[start : start + size]
            whole.pieces.clear()
