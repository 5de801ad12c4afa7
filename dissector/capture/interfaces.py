"""Parses the pcapng blocks of sections and interfaces; numbers the interfaces of a capture.

Interfaces of all sections and files of a capture are numbered in order of appearance. These blocks
are few, so plain Python parses them; compiled scans parse packets.
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
_LARGEST_OFFSET_SECONDS: Final = 1 << 33  # beyond the range of 64-bit nanoseconds
_MICROSECONDS: Final = 6
_SECTION_VERSION: Final = 1


class SectionStart(NamedTuple):
    """A section header block.

    order: "<" or ">".
    block_bytes: its length.
    is_known: whether we support its version.
    """

    order: str
    block_bytes: int
    is_known: bool


def read_section(block: bytes) -> SectionStart | None:
    """Parse the section header at the start of a block; None if it is not credible.

    The block may be incomplete; then only the bytes present are checked.
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
    """Text options of an interface description; empty if absent.

    capture_filter: as text, or the bytes of a BPF program in hex.
    """

    name: str = ""
    comment: str = ""
    capture_filter: str = ""


def _options(body: bytes, offset: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield code and value of each option, up to the end mark or the first incomplete option."""
    while len(body) - offset >= 4:
        code, size = struct.unpack_from(f"{order}HH", body, offset)
        offset += 4
        if code == 0 or size > len(body) - offset:
            return
        yield code, body[offset : offset + size]
        offset += size + (-size % 4)


def add_key_log(held: list[bytes], block: bytes, order: str) -> None:
    """Append the TLS key log of a decryption secrets block to `held`, if the block has one and the
    size limit permits; the log may be incomplete."""
    kind, size = struct.unpack_from(f"{order}II", block.ljust(16, b"\0"), 8)
    if kind == pcapng.TLS_KEY_LOG and sum(map(len, held)) < MAX_HELD_KEY_LOG_BYTES:
        held.append(block[16:-4][:size])


class Interfaces:
    """All interfaces of a capture.

    columns: for the scans, grown as needed.
    count: number of interfaces, at most limits.MAX_INTERFACES (further ones have no number, their
        packets count `interface_limit`).
    texts: text options by interface number.
    """

    def __init__(self) -> None:
        self.columns: InterfaceColumns = InterfaceColumns.new(16)
        self.count = 0
        self.texts: dict[int, InterfaceTexts] = {}
        self._dropped: dict[tuple[int, int], int] = {}

    def add(
        self, link_type: int, snaplen: int, resolution: int = _MICROSECONDS, offset_seconds: int = 0
    ) -> int:
        """Add an interface.

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
        columns.link_type[number] = link_type & 0xFFFF  # the upper half describes frame checksums
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
        """Store the drop counts of an interface statistics block: totals, so the last one counts.

        Args:
            first_interface: number of the first interface of the block's section.
        """
        if len(block) < 24:
            return
        (interface_id,) = struct.unpack_from(f"{order}I", block, 8)
        for code, value in _options(block[:-4], 20, order):
            if code in (OptionCode.DROPPED, OptionCode.OS_DROPPED) and len(value) == 8:
                (drops,) = struct.unpack(f"{order}Q", value)
                if drops < 1 << 62:  # some writers set all bits for "unknown"
                    self._dropped[first_interface + interface_id, code] = drops

    def dropped(self) -> dict[int, int]:
        """Return drops by interface number; only of interfaces with statistics."""
        drops: dict[int, int] = {}
        for (number, _), count in self._dropped.items():
            drops[number] = drops.get(number, 0) + count
        return drops

    def dropped_from(self, first_interface: int) -> int | None:
        """Return the drops of all interfaces from a number on; None without statistics."""
        drops = [count for (number, _), count in self._dropped.items() if number >= first_interface]
        return sum(drops) if drops else None


def _with_text(texts: InterfaceTexts, code: int, value: bytes) -> InterfaceTexts:
    """Return the texts with one more option added."""
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
    """Return the comments in the options of a packet block."""
    return [
        value.decode(errors="replace")
        for code, value in _options(data, 0, order)
        if code == OptionCode.COMMENT
    ]


def _resolution(resolution: int) -> tuple[int, int, int]:
    """Convert an if_tsresol byte to multiplier, divisor and shift of InterfaceColumns."""
    if resolution & 0x80:
        shift = resolution & 0x7F
        if shift == 0:
            return 1_000_000_000, 1, 0
        return (1, 1, shift) if shift < 64 else (0, 1, 0)
    if resolution <= 9:
        return 10 ** (9 - resolution), 1, 0
    return (1, 10 ** (resolution - 9), 0) if resolution <= 27 else (0, 1, 0)
