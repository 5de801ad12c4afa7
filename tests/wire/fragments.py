"""IP packets cut into fragments."""

import ipaddress
import itertools
import struct
from collections.abc import Sequence

from tests.wire.packets import fragment_header, internet_checksum


def fragments(
    packet: bytes, cuts: Sequence[int], identification: int = 7, overlap: int = 0
) -> list[bytes]:
    """The fragments of an IP packet, in order.

    Args:
        cuts: places in its payload, in bytes, multiples of 8.
        overlap: how many bytes more than up to the next cut each fragment has, a multiple of 8.
    """
    is_v4 = packet[0] >> 4 == 4
    head_bytes = (packet[0] & 15) * 4 if is_v4 else 40
    payload = packet[head_bytes:]
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(payload)}), len(payload)]
    fragments = []
    for start, end in itertools.pairwise(edges):
        is_last = end == len(payload)
        # All but the last end on a multiple of 8 and have the flag "more fragments".
        stop = end if is_last else min((len(payload) - 1) // 8 * 8, end + overlap)
        fragments.append(one(packet, start, payload[start:stop], not is_last, identification))
    return fragments


def one(packet: bytes, start: int, piece: bytes, is_more: bool, identification: int = 7) -> bytes:
    """A fragment with the headers of a packet."""
    if packet[0] >> 4 == 6:
        payload = fragment_header(packet[6], piece, start // 8, int(is_more))
        payload = payload[:4] + struct.pack(">I", identification) + payload[8:]
        return packet[:4] + struct.pack(">HB", len(payload), 44) + packet[7:40] + payload
    size = (packet[0] & 15) * 4
    head = packet[:2] + struct.pack(
        ">HHH", size + len(piece), identification, start // 8 | 0x2000 * is_more
    )
    head += packet[8:10] + b"\0\0" + packet[12:size]
    return head[:10] + struct.pack(">H", internet_checksum(head)) + head[12:] + piece


def addressed(packet: bytes, source: str) -> bytes:
    """An IPv4 packet from another address; its checksums are left alone."""
    return packet[:12] + ipaddress.IPv4Address(source).packed + packet[16:]
