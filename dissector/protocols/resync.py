"""Find the first frame again in a run of bytes whose beginning is not a known frame's start.

A header alone proves little: payloads may hold whole frames. What counts as evidence is a strict
chain of headers from a candidate to the end of the run, and one of: a right checksum in it, three
headers, a frame that fills a packet exactly, or the end of the run itself (a gap follows), where
nothing better will come. The lowest offset that has it wins, so that no frame is lost.
"""

from typing import NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel

MAX_CHAIN_STEPS = 4096
SURE_CHAIN = 3


class Chain(NamedTuple):
    """A search's result.

    offset: first byte of the chain, -1 none; resume: lowest offset that more bytes may still prove;
    frames: complete or begun frames of the chain.
    """

    offset: int
    resume: int
    frames: int


class _Walk(NamedTuple):
    reached: int  # 1: the chain runs to the end of the bytes
    frames: int
    proofs: int
    end: int  # where the last frame of the chain ends, maybe behind the run


@inlined
def _walk(
    data: ByteArray,
    offset: int,
    end: int,
    direction: int,
    limit: int,
    check: tuple,  # type: ignore[type-arg]
    prove: tuple,  # type: ignore[type-arg]
    place: int,
) -> _Walk:
    frames = 0
    proofs = 0
    position = offset
    for _ in range(MAX_CHAIN_STEPS):
        if position >= end:
            return _Walk(1, frames, proofs, position)
        total = check[place](data, position, end, direction, limit, 1)
        if total < 0:
            return _Walk(0, frames, proofs, position)
        if total == 0:
            return _Walk(1, frames, proofs, position)
        frames += 1
        if total <= end - position and prove[place](data, position, total) == 1:
            proofs += 1
        position += total
    return _Walk(1, frames, proofs, position)


@kernel
def find_chain(
    data: ByteArray,
    start: int,
    end: int,
    edges: Int64Array,
    direction: int,
    limit: int,
    check: tuple,  # type: ignore[type-arg]
    prove: tuple,  # type: ignore[type-arg]
    place: int,
    is_final: int,
) -> Chain:
    """Search a run for a chain of frames of one protocol.

    Args:
        data: uint8[], the run up to `end`; start: first offset to look at.
        edges: int64[n], rising offsets at which packets start in the run; the last may be `end`.
        direction: 0 to_broker, 1 to_client, 2 unknown; limit: longest frame, bytes.
        place: the protocol's place in the callback tuples; is_final: no byte will follow.
    """
    edge = 0
    for offset in range(start, end):
        while edge < len(edges) and edges[edge] < offset:
            edge += 1
        total = check[place](data, offset, end, direction, limit, 1)
        if total < 0:
            continue
        if total == 0:
            if is_final == 0:
                return Chain(-1, offset, 0)
            continue
        walk = _walk(data, offset, end, direction, limit, check, prove, place)
        if walk.reached == 0:
            continue
        is_packet_start = edge < len(edges) and edges[edge] == offset
        is_packet_end = walk.end == end and len(edges) > 0 and edges[len(edges) - 1] == end
        if (
            is_final == 1
            or walk.proofs > 0
            or walk.frames >= SURE_CHAIN
            or (is_packet_start and is_packet_end)
        ):
            return Chain(offset, offset, walk.frames)
        return Chain(-1, offset, walk.frames)
    return Chain(-1, end, 0)
