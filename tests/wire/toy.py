"""A toy length-prefixed protocol: what the framing needs and nothing more.

A frame is its length (4 bytes, of what follows), a mark 0x42, a kind and any bytes. Kind 1 goes to
the broker only, kind 2 to the client only, kind 3 either way, kind 4 proves itself by a last byte
that is the sum of the others, kind 5 announces a frame limit in its last four bytes.
"""

import numpy as np

from dissector.protocols.interface import ProtocolSpec

MARK = 0x42
TO_BROKER, TO_CLIENT, EITHER, PROVEN, LIMIT = 1, 2, 3, 4, 5
PORT = 7000


def frame(kind: int, body: bytes = b"") -> bytes:
    """The bytes of a frame."""
    said = bytes([MARK, kind]) + body
    if kind == PROVEN:
        said += bytes([sum(said) & 0xFF])
    return len(said).to_bytes(4, "big") + said


def check(data, offset, end, direction, limit, is_strict):  # type: ignore[no-untyped-def]
    """The header check of the toy protocol."""
    left = end - offset
    if left < 5:
        return 0
    size = np.int64(0)
    for index in range(4):
        size = size * 256 + np.int64(data[offset + index])
    if size < 2 or size + 4 > limit or data[offset + 4] != MARK:
        return -1
    if is_strict == 0:
        return size + 4
    if left < 6:
        return 0
    kind = data[offset + 5]
    if kind < 1 or kind > 5 or (direction == 0 and kind == 2) or (direction == 1 and kind == 1):
        return -1
    return size + 4


def prove(data, offset, length):  # type: ignore[no-untyped-def]
    """Kind 4 carries a sum."""
    if length < 7 or data[offset + 5] != PROVEN:
        return 0
    total = np.int64(0)
    for index in range(4, length - 1):
        total += np.int64(data[offset + index])
    return 1 if (total & 0xFF) == data[offset + length - 1] else -1


def one_way(data, offset, end):  # type: ignore[no-untyped-def]
    """Kinds 1 and 2 tell the direction."""
    if end - offset < 6:
        return 2
    if data[offset + 5] == TO_BROKER:
        return 0
    return 1 if data[offset + 5] == TO_CLIENT else 2


def announced_limit(data, offset, length):  # type: ignore[no-untyped-def]
    """Kind 5 announces a limit."""
    if length < 10 or data[offset + 5] != LIMIT:
        return 0
    size = np.int64(0)
    for index in range(length - 4, length):
        size = size * 256 + np.int64(data[offset + index])
    return size


def _no_facts(options):  # type: ignore[no-untyped-def]
    raise AssertionError("the framing makes no facts")


SPEC = ProtocolSpec("toy", (PORT,), check, prove, one_way, announced_limit, _no_facts)


def _never(data, offset, end, direction, limit, is_strict):  # type: ignore[no-untyped-def]
    """No header."""
    return -1


# A second protocol, which no bytes are of. With it the framing has as many as the program's own,
# and the code that was compiled for those: to compile it anew takes ten seconds.
NEVER = ProtocolSpec("never", (), _never, prove, one_way, announced_limit, _no_facts)
