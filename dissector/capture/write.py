"""A minimal pcapng writer: blocks as bytes. Times are nanoseconds; lengths stay as they were."""

import struct
from collections.abc import Sequence
from typing import Final

from dissector.capture import pcapng
from dissector.capture.pcapng import BlockType, OptionCode

_VERSION: Final = (1, 0)
_LENGTH_UNKNOWN: Final = -1
_NANOSECONDS: Final = b"\x09"
_LONGEST_OPTION: Final = 0xFFFF


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _options(options: list[tuple[int, bytes]]) -> bytes:
    """Options with their end mark; nothing at all if there are none."""
    if not options:
        return b""
    out = [
        struct.pack("<HH", code, len(value)) + _padded(value)
        for code, value in [*options, (OptionCode.END, b"")]
    ]
    return b"".join(out)


def _text(code: int, text: str) -> list[tuple[int, bytes]]:
    """A text option, cut at a character if it is too long; none for an empty text."""
    value = text.encode()[:_LONGEST_OPTION].decode(errors="ignore").encode()
    return [(code, value)] if value else []


def _block(kind: int, body: bytes) -> bytes:
    size = len(body) + pcapng.BLOCK_OVERHEAD_BYTES
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def section_block(comment: str = "", application: str = "") -> bytes:
    """The header with which a file begins."""
    options = _text(OptionCode.COMMENT, comment) + _text(OptionCode.APPLICATION, application)
    head = struct.pack("<IHHq", pcapng.BYTE_ORDER_MAGIC, *_VERSION, _LENGTH_UNKNOWN)
    return _block(BlockType.SECTION_HEADER, head + _options(options))


def with_secrets(capture: bytes, key_log: bytes) -> bytes:
    """A capture that this module wrote, with a TLS key log in front of its packets."""
    end = int.from_bytes(capture[4:8], "little")  # of the section's header
    body = struct.pack("<II", pcapng.TLS_KEY_LOG, len(key_log)) + _padded(key_log)
    return capture[:end] + _block(BlockType.DECRYPTION_SECRETS, body) + capture[end:]


def interface_block(link_type: int, snaplen: int = 0, name: str = "", comment: str = "") -> bytes:
    """The next interface, which packets name by its number from 0; snaplen 0 = no limit."""
    options = _text(OptionCode.COMMENT, comment) + _text(OptionCode.NAME, name)
    options.append((OptionCode.RESOLUTION, _NANOSECONDS))
    head = struct.pack("<HHI", link_type, 0, snaplen)
    return _block(BlockType.INTERFACE_DESCRIPTION, head + _options(options))


def packet_block(
    data: bytes, ts_ns: int, wire_bytes: int, interface: int = 0, comments: Sequence[str] = ()
) -> bytes:
    """One packet. ts_ns: since 1970, not negative; wire_bytes: its length before it was cut."""
    units = max(ts_ns, 0)
    head = struct.pack("<IIIII", interface, units >> 32, units & 0xFFFF_FFFF, len(data), wire_bytes)
    options = [option for each in comments for option in _text(OptionCode.COMMENT, each)]
    return _block(BlockType.ENHANCED_PACKET, head + _padded(data) + _options(options))


def statistics_block(interface: int, dropped: int) -> bytes:
    """How many packets an interface dropped."""
    head = struct.pack("<III", interface, 0, 0)
    return _block(
        BlockType.INTERFACE_STATISTICS,
        head + _options([(OptionCode.DROPPED, struct.pack("<Q", dropped))]),
    )
