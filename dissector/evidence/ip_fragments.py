"""IP packets that came in pieces: which bytes of which packets they were put together from."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.packet.fragments import Fragments, Place, fragment_at
from dissector.packet.reasons import FRAGMENT

_REMEMBERED: Final = 4096  # packets that were put together, for fragments that come once more


class FragmentPlace(NamedTuple):
    """A fragment: its place in the payload of its packet, the packet of the capture that brought
    it, its place there (in the buffer until the block was read), bytes."""

    start: int
    packet: int
    first: int
    size: int


class TracedFragments(Fragments):
    """Puts fragments together and remembers their places.

    all_rebuilt: of the block just read, first byte and end of each packet in `assembled`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.all_rebuilt: list[tuple[int, int]] = []
        self._pieces: dict[Any, list[FragmentPlace]] = {}
        self._rebuilt_fragments: list[tuple[int, int, list[FragmentPlace]]] = []
        self._repeats: list[tuple[int, FragmentPlace]] = []
        self._last: dict[Any, int] = {}  # number of the last packet of a key
        self._contents: OrderedDict[int, bytes] = OrderedDict()
        self._placed_packets: set[int] = set()
        self._count = 0

    def start_block(self) -> None:
        """What was rebuilt before is not needed any more."""
        super().start_block()
        self._rebuilt_fragments, self.all_rebuilt, self._repeats = [], [], []

    def add(self, data: memoryview, place: Place) -> int:
        """As it is, and note the place of the fragment."""
        fragment = fragment_at(data, place)
        was_complete = not isinstance(fragment, int) and fragment.key in self._complete
        status = super().add(data, place)
        if isinstance(fragment, int):
            return status
        noted = FragmentPlace(fragment.start, place.packet, fragment.first, fragment.known)
        if status == FRAGMENT and was_complete and fragment.key in self._complete:
            self._repeats.append((self._last[fragment.key], noted))
        elif noted.size and place.source == 0:
            self._pieces.setdefault(fragment.key, []).append(noted)
        if status < 0:
            start, end, _ = self.rebuilt
            version = int(self.assembled[start]) >> 4
            head = (int(self.assembled[start]) & 15) * 4 if version == 4 else fragment.head_bytes
            self.all_rebuilt.append((start, end))
            number = self._last[fragment.key] = self._count
            self._count += 1
            self._rebuilt_fragments.append(
                (start + head, number, self._pieces.pop(fragment.key, []))
            )
        return status

    def locate(self, offsets: Int64Array, first_packet: int) -> None:
        """The block was read: places in the buffer become places in packets.

        Args:
            offsets: of the packets in the buffer; first_packet: number of the first.
        """

        def placed(fragment: FragmentPlace) -> FragmentPlace:
            if fragment.packet in self._placed_packets or fragment.packet < first_packet:
                return fragment
            return fragment._replace(
                first=fragment.first - int(offsets[fragment.packet - first_packet])
            )

        self._rebuilt_fragments = [
            (at, no, [placed(one) for one in some]) for at, no, some in self._rebuilt_fragments
        ]
        self._repeats = [(number, placed(fragment)) for number, fragment in self._repeats]
        # Those that wait for a later block must know their place in the packet now.
        for key, pieces in self._pieces.items():
            self._pieces[key] = [placed(fragment) for fragment in pieces]
            self._placed_packets.update(fragment.packet for fragment in pieces)

    def rewritten(self, assembled: ByteArray) -> None:
        """What the rebuilt packets of the block hold now."""
        for (_, end), (payload, number, _) in zip(
            self.all_rebuilt, self._rebuilt_fragments, strict=True
        ):
            self._contents[number] = assembled[payload:end].tobytes()
        while len(self._contents) > _REMEMBERED:
            self._contents.popitem(last=False)

    def contents(self) -> Iterator[tuple[int, int, bytes]]:
        """Packet, place in it, and what stands there now, for the fragments of the block."""
        for _, number, pieces in self._rebuilt_fragments:
            for fragment in pieces:
                yield self._content(number, fragment)
        for number, fragment in self._repeats:
            yield self._content(number, fragment)

    def _content(self, number: int, fragment: FragmentPlace) -> tuple[int, int, bytes]:
        whole = self._contents.get(number, b"")
        return (
            fragment.packet,
            fragment.first,
            whole[fragment.start : fragment.start + fragment.size],
        )
