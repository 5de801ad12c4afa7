"""Traffic for a tap that runs long: captures mixed, with acknowledgements, and ever new names."""

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array

# How topics of the made captures begin; the first letter is the capture's, the rest a round's.
TOPIC: Final = re.compile(rb"public/default/[a-z](ench)-")
_DIGITS: Final = 4
_HEADERS: Final = 14 + 20
_ACK: Final = 0x10


def is_simple(frame: bytes) -> bool:
    """Whether a packet is TCP over IPv4 over Ethernet, without options of IP."""
    return len(frame) >= _HEADERS + 20 and frame[12:15] == b"\x08\0\x45" and frame[23] == 6


def of_host(frame: bytes, number: int) -> bytes:
    """The same packet between other hosts, over other topics.

    The second byte of both addresses is the number, a topic's first letter is the number's.
    """
    host = bytes([number])
    data = frame[32:].replace(b"default/bench-", b"default/" + bytes([97 + number]) + b"ench-")
    return frame[:27] + host + frame[28:31] + host + data


def acknowledgement(frame: bytes) -> bytes:
    """What the receiver of a segment says: its bytes have come."""
    (total,) = struct.unpack_from(">H", frame, 16)
    sequence, acknowledged = struct.unpack_from(">II", frame, 38)
    data = total - 20 - 4 * (frame[46] >> 4)
    ip = frame[14:16] + struct.pack(">H", 52) + frame[18:26] + frame[30:34] + frame[26:30]
    numbers = struct.pack(">II", acknowledged, (sequence + data) & 0xFFFFFFFF)
    tcp = frame[36:38] + frame[34:36] + numbers + bytes([0x80, _ACK]) + frame[48:54]
    return frame[6:12] + frame[:6] + frame[12:14] + ip + tcp + b"\1\1\x08\x0a" + bytes(8)


def with_acks(frames: Sequence[bytes], segments: int = 2) -> Iterator[bytes]:
    """Packets, and an acknowledgement after so many segments with data of each direction."""
    waiting: dict[bytes, int] = {}
    for frame in frames:
        yield frame
        if not is_simple(frame) or len(frame) <= _HEADERS + 32 or frame[47] & 7:
            continue
        way = frame[26:38]
        waiting[way] = waiting.get(way, 0) + 1
        if waiting[way] == segments:
            waiting[way] = 0
            yield acknowledgement(frame)


def mixed(captures: Sequence[Sequence[bytes]], acks: int = 0) -> list[bytes]:
    """Packets of several captures in turns, each between hosts of its own.

    acks: for so many segments there is an acknowledgement; 0 = none is added.
    """
    if len(captures) > 1:
        captures = [
            [of_host(frame, number) if is_simple(frame) else frame for frame in frames]
            for number, frames in enumerate(captures)
        ]
    ways = [list(with_acks(frames, acks)) if acks else frames for frames in captures]
    longest = max(map(len, ways))
    found: list[bytes] = []
    # In proportion, so that all end at the same time.
    parts = [np.linspace(0, len(way), longest // 64 + 2).astype(int) for way in ways]
    for cuts in zip(*map(pairwise, parts), strict=True):
        packet_batches = [way[start:end] for way, (start, end) in zip(ways, cuts, strict=True)]
        for turn in zip_longest(*packet_batches):
            found += [frame for frame in turn if frame is not None]
    return found


def topic_names(data: ByteArray) -> Int64Array:
    """Where topics of the made captures are named."""
    return np.array([each.start(1) for each in TOPIC.finditer(data.tobytes())], np.int64)


def rename(data: ByteArray, names: Int64Array, number: int) -> None:
    """Give topics names that were not there before."""
    digits = np.frombuffer(b"%0*d" % (_DIGITS, number % 10**_DIGITS), np.uint8)
    data[names[:, None] + np.arange(_DIGITS)] = digits
