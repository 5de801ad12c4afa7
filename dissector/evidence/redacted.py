"""Redacts the secrets of a capture file at equal length, and corrects checksums.

It works as anonymizing does, in place and in memory: stars replace the secrets of streams
(`stream_secrets` finds them), then packets get the new bytes of their position in the stream. This
covers secrets that are retransmitted, span packets, or are in a tunnel or in fragments. Bytes that
contradict their stream, or belong to none, are overwritten; packets without a segment are searched
one by one. A TCP checksum that was correct is corrected.
"""

import dataclasses
from functools import partial
from typing import Final

import numpy as np

from dissector.codecs.redaction import secrets
from dissector.codecs.siphash import SipHashKey
from dissector.dissection import Options
from dissector.evidence.packets import Rewriting
from dissector.evidence.streams import ASKED, Frames, Stream, TreatedStreams
from dissector.packet.reasons import FRAGMENT, USED
from dissector.packet.rewriting import new_rewriting
from dissector.protocols import spec_of
from dissector.protocols.interface import ProtocolSpec
from dissector.sources.dissect import dissect_bytes
from dissector.sources.packet_blocks import PacketBlock, blocks_of_bytes
from dissector.stream_secrets import DirectionSecrets, Frame

_STAR: Final = ord("*")
_LINK_HEAD: Final = 14
_NO_KEY: Final = SipHashKey(0, 0)  # stars need none, and addresses stay

RAW_BYTES: Final = "raw bytes, secrets too, which --redact hides"


def hidden_sentence(changed: int) -> str:
    """Return the sentence about a redacted file."""
    return f"{changed:,} bytes of secrets hidden" if changed else "no secret was found in it"


def redact_capture(data: bytearray, options: Options) -> int:
    """Redact a capture file in place; return the number of bytes that became stars.

    Uses a few times the file's size of memory.

    Args:
        options: of the dissection.
    """
    view = np.frombuffer(data, np.uint8)
    before = view.copy()
    rows = dissect_bytes(view, dataclasses.replace(options, **ASKED))
    streams = TreatedStreams(_hide_secrets, rows, in_memory=True)
    for _ in _Redacting(streams).blocks(partial(blocks_of_bytes, view)):
        pass
    return int(np.count_nonzero((view != before) & (view == _STAR)))


def _hide_secrets(stream: Stream) -> None:
    """Replace the secrets of a stream by stars. Frames of unknown commands become stars as a whole,
    as bytes outside frames do."""
    known = stream.frames.chosen(stream.frames.known)
    spec = spec_of(stream.protocol)
    is_clean = _clean(stream, known, spec)
    search = DirectionSecrets(stream.protocol)
    columns = (column.tolist() for column in (known.starts, known.sizes, known.packed, is_clean))
    for start, size, is_packed, clean in zip(*columns, strict=True):
        search.add_frame(Frame(start, start + size, stream.protocol, is_packed), clean)
    for offset, data in stream.runs:
        search.add(offset, data.tobytes())
    search.finish(stream.protocol, stream.is_midstream)
    for offset, data in stream.runs:
        before = data.tobytes()
        hidden, size = search.hidden(offset, before)
        if not size:
            continue
        after = bytearray(hidden)
        changed = np.append(0, np.cumsum(data != np.frombuffer(after, np.uint8)))
        frames = known.within(offset, offset + len(data))
        bounds = np.stack([frames.starts - offset, frames.starts + frames.sizes - offset])
        low, high = changed[np.minimum(bounds, len(data))]
        for start, end in bounds[:, low < high].T.tolist():
            was, now = before[start:end], bytes(after[start:end])
            # A frame of stars alone has nothing left to parse.
            if spec is not None and now != b"*" * len(now):
                after[start:end] = spec.mended(was, now)
        data[:] = np.frombuffer(after, np.uint8)


def _clean(stream: Stream, frames: Frames, spec: ProtocolSpec | None) -> np.ndarray:
    """Return bool[frames]: the frame begins in a run of the stream and has no secret."""
    is_clean = np.zeros(len(frames.starts), bool)
    if spec is None:
        return is_clean
    for offset, data in stream.runs:
        within = slice(*np.searchsorted(frames.starts, (offset, offset + len(data))).tolist())
        starts, sizes = frames.starts[within] - offset, frames.sizes[within]
        bounds = np.stack([starts, sizes, np.minimum(starts + sizes, len(data))])
        is_clean[within] = ~spec.may_hold_secrets(data, bounds, frames.packed[within])
    return is_clean


class _Redacting(Rewriting):
    """Copies redacted stream bytes to packets, keeps headers, and searches other packets."""

    lost_byte = _STAR

    def __init__(self, streams: TreatedStreams) -> None:
        state = new_rewriting(_NO_KEY, _NO_KEY, _STAR, keeps_addresses=True)
        super().__init__(streams, state)

    def _treat_rest(self, block: PacketBlock) -> None:
        """Replace secrets in packets without a segment that are no fragments of one."""
        used = set(block.segments.packet[: block.segment_count].tolist())
        for row, reason in enumerate(block.reasons.tolist()):
            if block.first_packet + row in used or reason in (USED, FRAGMENT):
                continue
            start = int(block.packets.offset[row])
            end = start + int(block.packets.captured_bytes[row])
            start = min(start + _LINK_HEAD, end)
            for low, high in secrets(block.data[start:end].tobytes()):
                block.data[start + low : start + high] = _STAR
