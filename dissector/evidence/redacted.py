"""A capture file with its secrets hidden at equal length, sums made right.

The file goes the way of anonymous copies, in place and in memory: of streams what is secret becomes
stars (`stream_secrets` decides), and packets get the bytes that their place in the stream has now,
so that a secret goes also where it is sent again, lies across packets, in a tunnel or in fragments.
What contradicts its stream, or belongs to none, goes; packets that are no segments are searched by
themselves. A checksum of TCP that was right is right again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np

from dissector.codecs.redaction import masked, secrets
from dissector.codecs.secret_keys import Span
from dissector.codecs.siphash import SipHashKey
from dissector.dissection import Options
from dissector.evidence.packets import Rewriting
from dissector.evidence.streams import Frames, Stream, TreatedStreams
from dissector.packet.reasons import FRAGMENT, USED
from dissector.packet.rewriting import new_rewriting
from dissector.protocols import spec_of
from dissector.sources.packet_blocks import PacketBlock, blocks_of_bytes
from dissector.stream_secrets import Frame, StreamSecrets, frame_spans

_STAR: Final = ord("*")
_LINK_HEAD: Final = 14
_NO_KEY: Final = SipHashKey(0, 0)  # stars need none, and addresses stay

RAW_BYTES: Final = "raw bytes, secrets too, which --redact hides"


def hidden_sentence(changed: int) -> str:
    """What is said of a file that was redacted."""
    return f"{changed:,} bytes of secrets hidden" if changed else "no secret was found in it"


def redact_capture(data: bytearray, options: Options) -> int:
    """Hide the secrets of a capture file in place; returns how many bytes are stars now.

    Takes a few times the file's size of memory.

    Args:
        options: how it is dissected.
    """
    view = np.frombuffer(data, np.uint8)
    before = view.copy()
    streams = TreatedStreams(_hide_secrets, in_memory=True)
    streams.read_bytes(view, options)
    for _ in _Redacting(streams).blocks(partial(blocks_of_bytes, view)):
        pass
    return int(np.count_nonzero((view != before) & (view == _STAR)))


def _hide_secrets(stream: Stream) -> None:
    """Make the secrets of a stream stars."""
    frames = _frames(stream.frames, stream.protocol)
    search = StreamSecrets()
    for offset, data in stream.runs:
        search.add(offset, data.tobytes())
    framed = ((frame.start, frame.end) for frame in frames)
    secret_spans = search.finish(stream.protocol, stream.is_midstream, framed)
    ends = np.maximum.accumulate([frame.end for frame in frames] or [0])
    for start, data in stream.runs:
        first = bisect_right(secret_spans, start, key=lambda span: span[1])
        spans = secret_spans[first : bisect_left(secret_spans, (start + len(data), 0))]
        of_piece = frames[int(np.searchsorted(ends, start, "right")) :]
        data[:] = np.frombuffer(_hidden(start, data.tobytes(), spans, of_piece), np.uint8)


def _frames(frames: Frames, protocol: str) -> list[Frame]:
    """Those whose command is known, by their beginning: what lies in no other goes as a whole."""
    return [
        Frame(start, start + size, protocol, is_packed)
        for start, size, _, is_packed, is_known in zip(
            *(column.tolist() for column in frames), strict=True
        )
        if is_known
    ]


def _hidden(start: int, before: bytes, spans: list[Span], frames: list[Frame]) -> bytes:
    """A range of a stream, from offset start on, without spans and the secrets of frames."""
    inside: list[tuple[int, int, Frame]] = []
    for frame in frames:
        low, high = max(frame.start - start, 0), min(frame.end - start, len(before))
        if frame.start >= start + len(before):
            break
        if low < high:
            inside.append((low, high, frame))
            spans = spans + frame_spans(frame, start + low, before[low:high])
    after = bytearray(masked(before, list(_within(start, spans, len(before)))))
    for low, high, frame in inside:
        after[low:high] = _mended(frame, before[low:high], bytes(after[low:high]))
    return bytes(after)


def _within(start: int, spans: Iterable[Span], size: int) -> Iterator[Span]:
    for low, high in spans:
        if low - start < size and high > start:
            yield max(low - start, 0), min(high - start, size)


def _mended(frame: Frame, before: bytes, after: bytes) -> bytes:
    """What is hidden of a frame with sums as right as before; it begins with the frame or is hidden
    whole."""
    spec = spec_of(frame.protocol)
    is_rest = after == b"*" * len(after)
    return after if spec is None or is_rest or before == after else spec.mended(before, after)


class _Redacting(Rewriting):
    """Gives packets what their streams hold now; headers stay, what is no segment is searched."""

    lost_byte = _STAR

    def __init__(self, streams: TreatedStreams) -> None:
        state = new_rewriting(_NO_KEY, _NO_KEY, _STAR, keeps_addresses=True)
        super().__init__(streams, state)

    def _treat_rest(self, block: PacketBlock) -> None:
        """Search packets that are no segments, and no pieces of one."""
        used = set(block.segments.packet[: block.segment_count].tolist())
        for row, reason in enumerate(block.reasons.tolist()):
            if block.first_packet + row in used or reason in (USED, FRAGMENT):
                continue
            start = int(block.packets.offset[row])
            end = start + int(block.packets.captured_bytes[row])
            start = min(start + _LINK_HEAD, end)
            for low, high in secrets(block.data[start:end].tobytes()):
                block.data[start + low : start + high] = _STAR
