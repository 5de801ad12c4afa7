"""A capture once more in TLS 1.3, and its twin in clear: the same bytes said at the same moments.

What a side says is held until it fills a record; then both files have it, in segments of their own.
"""

import struct
from pathlib import Path
from typing import Any, BinaryIO, Final

from tests.busy.traffic import FILE_HEADER
from tests.wire import tls

_SEGMENT_BYTES: Final = 1448
_FROM: Final = 34  # of the TCP header in an Ethernet packet
_SYN, _FIN = 2, 1


class _Twin:
    """A file that gets the packets of connections with other bytes in them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sequences: dict[bytes, int] = {}
        file.write(FILE_HEADER)

    def put(self, time: bytes, packet: bytes, said: bytes, flags: int) -> None:
        """A packet's bytes, in as many packets as they need."""
        own, other = packet[_FROM : _FROM + 4], packet[_FROM + 2 : _FROM + 4] + packet[34:36]
        key = packet[26:34] + own
        peer = packet[30:34] + packet[26:30] + other
        is_end = flags & _FIN
        for at in range(0, len(said) or 1, _SEGMENT_BYTES):
            part = said[at : at + _SEGMENT_BYTES]
            if is_end:
                flags = flags | _FIN if at + _SEGMENT_BYTES >= len(said) else flags & ~_FIN
            sequence = self._sequences.get(key, 1000)
            self._sequences[key] = sequence + len(part) + bool(flags & (_SYN | _FIN))
            numbers = struct.pack(
                ">IIBBHHH", sequence & 0xFFFFFFFF, self._sequences.get(peer, 1000) & 0xFFFFFFFF,
                0x50, flags, 4096, 0, 0,
            )  # fmt: skip
            whole = packet[:16] + struct.pack(">H", 40 + len(part)) + packet[18:24] + b"\0\0"
            whole += packet[26:_FROM] + own + numbers + part
            size = struct.pack("<II", len(whole), len(whole))
            self._file.write(time + size + whole)


class _Spoken:
    """A connection: who writes the records of a side, and what waits to fill one."""

    def __init__(self, number: int, suite: str) -> None:
        self.begun = tls.begun_13(suite, number)
        self.is_greeted = False
        self.waiting = (bytearray(), bytearray())


def write_encrypted(
    source: Path, path: Path, twin: Path, record_bytes: int, suite: str = "TLS_AES_128_GCM_SHA256"
) -> str:
    """Write both files of a pcap file without loss, whose packets are Ethernet, IPv4 without
    options and TCP; gives the key log.

    Args:
        record_bytes: plain bytes of a record, at most.
    """
    found: dict[frozenset[bytes], tuple[bytes, _Spoken]] = {}
    data = source.read_bytes()
    with path.open("wb") as first, twin.open("wb") as second:
        outs = _Twin(first), _Twin(second)
        at = len(FILE_HEADER)
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "little")
            time, packet = data[at : at + 8], data[at + 16 : at + 16 + size]
            at += 16 + size
            flags = packet[_FROM + 13]
            said = packet[_FROM + (packet[_FROM + 12] >> 4) * 4 :]
            own, other = packet[26:30] + packet[34:36], packet[30:34] + packet[36:38]
            key = frozenset((own, other))
            if key not in found:
                found[key] = own, _Spoken(len(found), suite)
            client, spoken = found[key]
            side = int(own != client)
            if said and not spoken.is_greeted:
                _greet(spoken, outs[0], time, packet)
            waiting = spoken.waiting[side]
            waiting += said
            is_last = bool(flags & _FIN)
            records, plain = _taken(spoken.begun.writers[side], waiting, record_bytes, is_last)
            if records or not said:
                outs[0].put(time, packet, records, flags)
                outs[1].put(time, packet, plain, flags)
    return "".join(spoken.begun.keys for _, spoken in found.values())


def _greet(spoken: _Spoken, out: _Twin, time: bytes, packet: bytes) -> None:
    spoken.is_greeted = True
    back = packet[:26] + packet[30:34] + packet[26:30] + packet[36:38] + packet[34:36] + packet[38:]
    for side, said in spoken.begun.wire:
        out.put(time, back if side else packet, said, 0x18)


def _taken(
    writer: Any, waiting: bytearray, record_bytes: int, is_last: bool
) -> tuple[bytes, bytes]:
    """The records that are full, or all, and what they hold."""
    size = len(waiting) if is_last else len(waiting) - len(waiting) % record_bytes
    plain = bytes(waiting[:size])
    del waiting[:size]
    parts = (plain[at : at + record_bytes] for at in range(0, size, record_bytes))
    return b"".join(map(writer.record, parts)), plain
