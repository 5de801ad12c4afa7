"""The interfaces of a capture, and the pcapng blocks that describe sections and interfaces.

Interfaces of all sections and files of a capture have numbers of their own, in order of appearance.
These blocks are few, so that plain Python reads them; the packets go through the compiled scans.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from dissector.capture import pcapng
from dissector.capture.columns import INTERFACE_LIMIT, InterfaceColumns
from dissector.capture.pcapng import OptionCode
from dissector.limits import MAX_HELD_KEY_LOG_BYTES, MAX_INTERFACES, MAX_RECORD_BYTES

_BYTE_ORDERS: Final = {
    pcapng.BYTE_ORDER_MAGIC.to_bytes(4, "big"): ">",
    pcapng.BYTE_ORDER_MAGIC.to_bytes(4, "little"): "<",
}
_LARGEST_OFFSET_SECONDS: Final = 1 << 33  # further from 1970 than 64-bit nanoseconds reach
_MICROSECONDS: Final = 6
_SECTION_VERSION: Final = 1


class SectionStart(NamedTuple):
    """A section header block.

    order: "<" or ">".
    block_bytes: its length.
    is_known: whether its version is one we read.
    """

    order: str
    block_bytes: int
    is_known: bool


def read_section(block: bytes) -> SectionStart | None:
    """The section header at the start of some bytes; None if there is no credible one.

    The bytes may be cut: what is there of the block must then be right.
    """
    order = _BYTE_ORDERS.get(block[8:12])
    if order is None:
        return None
    (size,) = struct.unpack_from(f"{order}I", block, 4)
    if size < pcapng.SHORTEST_SECTION_BYTES or size > MAX_RECORD_BYTES or size % 4:
        return None
    if len(block) >= size and block[size - 4 : size] != block[4:8]:
        return None
    major = struct.unpack_from(f"{order}H", block, 12)[0] if len(block) >= 14 else _SECTION_VERSION
    return SectionStart(order, size, major == _SECTION_VERSION)


class InterfaceTexts(NamedTuple):
    """What an interface description says in words; empty where it says nothing.

    capture_filter: the filter that packets had to pass; of one in machine code its bytes.
    """

    name: str = ""
    comment: str = ""
    capture_filter: str = ""


def _options(body: bytes, offset: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Code and value of each option that is whole; ends at the end mark or at the first odd one."""
    while len(body) - offset >= 4:
        code, size = struct.unpack_from(f"{order}HH", body, offset)
        offset += 4
        if code == 0 or size > len(body) - offset:
            return
        yield code, body[offset : offset + size]
        offset += size + (-size % 4)


def add_key_log(held: list[bytes], block: bytes, order: str) -> None:
    """Hold the TLS key log in a decryption secrets block, as far as it is there, if it is one and
    there is room beside those that are held."""
    kind, size = struct.unpack_from(f"{order}II", block.ljust(16, b"\0"), 8)
    if kind == pcapng.TLS_KEY_LOG and sum(map(len, held)) < MAX_HELD_KEY_LOG_BYTES:
        held.append(block[16:-4][:size])


class Interfaces:
    """All interfaces of a capture.

    columns: what the scans read, grown as needed.
    count: how many are described, at most limits.MAX_INTERFACES (further ones have no number, their
        packets count `interface_limit`).
    texts: by number what is said of an interface in words, where anything is.
    """

    def __init__(self) -> None:
        self.columns: InterfaceColumns = InterfaceColumns.new(16)
        self.count = 0
        self.texts: dict[int, InterfaceTexts] = {}
        self._dropped: dict[tuple[int, int], int] = {}

    def add(
        self, link_type: int, snaplen: int, resolution: int = _MICROSECONDS, offset_seconds: int = 0
    ) -> int:
        """Describe one more interface.

        Args:
            resolution: the if_tsresol byte: a power of ten, or of two with the top bit set.

        Returns:
            Its number, or INTERFACE_LIMIT.
        """
        if self.count >= MAX_INTERFACES:
            return INTERFACE_LIMIT
        number = self.count
        if number == len(self.columns.link_type):
            self.columns = self.columns.grown(2 * number)
        self.count += 1
        columns = self.columns
        columns.link_type[number] = link_type & 0xFFFF  # the upper half tells of frame checksums
        columns.snaplen[number] = snaplen
        multiplier, divisor, shift = _resolution(resolution)
        columns.multiplier[number] = multiplier
        columns.divisor[number] = divisor
        columns.shift[number] = shift
        if abs(offset_seconds) > _LARGEST_OFFSET_SECONDS:
            columns.multiplier[number] = 0
        else:
            columns.offset_ns[number] = offset_seconds * 1_000_000_000
        return number

    def describe(self, block: bytes, order: str) -> bool:
        """Add the interface of an interface description block; False if the block is damaged."""
        if len(block) < 20:
            return False
        link_type, _, snaplen = struct.unpack_from(f"{order}HHI", block, 8)
        resolution, offset_seconds = _MICROSECONDS, 0
        texts = InterfaceTexts()
        for code, value in _options(block[:-4], 16, order):
            if code == OptionCode.RESOLUTION and len(value) == 1:
                resolution = value[0]
            elif code == OptionCode.OFFSET and len(value) == 8:
                (offset_seconds,) = struct.unpack(f"{order}q", value)
            else:
                texts = _with_text(texts, code, value)
        number = self.add(link_type, snaplen, resolution, offset_seconds)
        if any(texts) and number < MAX_INTERFACES:
            self.texts[number] = texts
        return True

    def count_drops(self, block: bytes, order: str, first_interface: int) -> None:
        """Keep the drop counts of an interface statistics block: totals, so the last one holds.

        Args:
            first_interface: number of the first interface of the block's section.
        """
        if len(block) < 24:
            return
        (interface_id,) = struct.unpack_from(f"{order}I", block, 8)
        for code, value in _options(block[:-4], 20, order):
            if code in (OptionCode.DROPPED, OptionCode.OS_DROPPED) and len(value) == 8:
                (drops,) = struct.unpack(f"{order}Q", value)
                if drops < 1 << 62:  # all bits set is how some writers say "unknown"
                    self._dropped[first_interface + interface_id, code] = drops

    def dropped(self) -> dict[int, int]:
        """Drops by interface, where statistics say anything."""
        drops: dict[int, int] = {}
        for (number, _), count in self._dropped.items():
            drops[number] = drops.get(number, 0) + count
        return drops

    def dropped_from(self, first_interface: int) -> int | None:
        """Drops at all interfaces from a number on; None if no statistics say anything."""
        drops = [count for (number, _), count in self._dropped.items() if number >= first_interface]
        return sum(drops) if drops else None


def _with_text(texts: InterfaceTexts, code: int, value: bytes) -> InterfaceTexts:
    """The texts, with what one more option says."""
    if code == OptionCode.COMMENT:
        comment = value.decode(errors="replace")
        return texts._replace(comment=f"{texts.comment}\n{comment}" if texts.comment else comment)
    if code == OptionCode.NAME:
        return texts._replace(name=value.decode(errors="replace"))
    if code == OptionCode.FILTER:
        is_text = value[:1] == b"\0"
        capture_filter = value[1:].decode(errors="replace") if is_text else value[1:].hex()
        return texts._replace(capture_filter=capture_filter)
    return texts


def packet_comments(data: bytes, order: str) -> list[str]:
    """The comments among the options of a packet block."""
    return [
        value.decode(errors="replace")
        for code, value in _options(data, 0, order)
        if code == OptionCode.COMMENT
    ]


def _resolution(resolution: int) -> tuple[int, int, int]:
    """What an if_tsresol byte means: multiplier, divisor and shift of InterfaceColumns."""
    if resolution & 0x80:
        shift = resolution & 0x7F
        if shift == 0:
            return 1_000_000_000, 1, 0
        return (1, 1, shift) if shift < 64 else (0, 1, 0)
    if resolution <= 9:
        return 10 ** (9 - resolution), 1, 0
    return (1, 10 ** (resolution - 9), 0) if resolution <= 27 else (0, 1, 0)
