"""Finds secrets in the stream of one direction, which arrives in ranges and may have gaps.

This module decides which bytes of a stream are hidden, for all code that shows or writes them. For
a known protocol, the protocol decides for each frame (`frame_spans`), and bytes outside frames are
hidden, as they may be the rest of one. HTTP and TLS are searched as a stream: a secret may span
ranges, and windows overlap by more than the longest token. For other protocols all bytes are
hidden. After a gap, and at the start of a stream that began before the capture, the context is
unknown: the rest of a frame is hidden there, and of a searched stream the rest of the line.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from dissector.codecs.redaction import behind_hole, last_word, masked, merged, secrets
from dissector.codecs.secret_keys import Span
from dissector.limits import SECRET_HELD_BYTES, SECRET_REACH_BYTES, SECRET_WINDOW_BYTES
from dissector.protocols import spec_of

# Protocols whose bytes are searched; an empty name is one of which nothing was decided.
_SEARCHED: Final = ("http", "tls", "")
_PROXY_HEADS: Final = (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")


class Frame(NamedTuple):
    """A frame in a stream, from offset start to end. is_packed: its body is compressed."""

    start: int
    end: int
    protocol: str
    is_packed: bool


def is_searched(protocol: str) -> bool:
    """Whether secrets are searched in the streams of a protocol: of others all goes that lies in no
    frame."""
    return protocol in _SEARCHED


def frame_spans(frame: Frame, offset: int, data: bytes) -> list[Span]:
    """What goes of a range of a frame without a hole, in offsets of the stream: the secrets in its
    beginning; behind a hole all."""
    spec = spec_of(frame.protocol)
    if spec is None or offset > frame.start:
        return [(offset, offset + len(data))]
    spans = spec.secret_spans(data, frame.is_packed)
    return [(offset + low, offset + high) for low, high in spans]


class StreamSecrets:
    """Finds the secrets of one direction.

    pieces: start and end of each range that was there, in order.
    """

    def __init__(self, protocol: str = "") -> None:
        """protocol: of the connection, where it is known already."""
        self.pieces: list[Span] = []
        self._is_searched = is_searched(protocol)
        self._is_rest = False  # of a line whose beginning is not there
        self._secret_spans: list[Span] = []
        self._opening: list[Span] = []
        self._held = bytearray()
        self._start = 0  # offset of what is held
        self._head = b""

    def add(self, offset: int, data: bytes) -> None:
        """Take a range in the order of the stream; an empty one stands for a hole."""
        if not data:
            return
        is_behind_hole = not self.pieces or self.pieces[-1][1] != offset
        if is_behind_hole:
            self.pieces.append((offset, offset + len(data)))
        else:
            self.pieces[-1] = self.pieces[-1][0], offset + len(data)
        if len(self._head) < len(_PROXY_HEADS[1]):
            self._head += data[: len(_PROXY_HEADS[1])]
        if self._is_searched:
            self._hold(offset, data, is_behind_hole)

    def _hold(self, offset: int, data: bytes, is_behind_hole: bool) -> None:
        """Search a range, with what is held if no hole is between them."""
        if is_behind_hole:
            self._search(is_end=True)
            end = self._start + len(self._held)
            if self._held and not (self._secret_spans and max(self._secret_spans)[1] >= end):
                # A secret that the hole cuts need not look like one.
                self._secret_spans.append((self._start + last_word(bytes(self._held), 0), end))
            self._held.clear()
            self._start = offset
            self._is_rest = True
        self._held += data
        if len(self._held) >= SECRET_WINDOW_BYTES:
            self._search(is_end=False)

    def finish(self, protocol: str, is_midstream: bool, framed: Iterable[Span] = ()) -> list[Span]:
        """What goes of the stream, beside what `frame_spans` names: offsets in it, rising.

        Args:
            protocol: of the connection. is_midstream: the stream's start was not captured. framed:
                where frames are.
        """
        self._search(is_end=True)
        self._held.clear()
        if not is_searched(protocol):
            return self._outside(framed)
        return merged([*self._secret_spans, *(self._opening if is_midstream else ())])

    def _outside(self, framed: Iterable[Span]) -> list[Span]:
        """What was there and lies in none of the frames, but for a proxy's header in front."""
        frames = merged(framed)
        outside: list[Span] = []
        index = 0
        for start, end in self.pieces:
            at = start
            while index < len(frames) and frames[index][0] < end:
                if frames[index][1] > at:
                    outside.append((at, frames[index][0]))
                    at = frames[index][1]
                if at > end:
                    break
                index += 1
            outside.append((at, end))
        if outside and self._head.startswith(_PROXY_HEADS):
            outside = [span for span in outside if span[0] != self.pieces[0][0]]
        return merged(outside)

    def _search(self, is_end: bool) -> None:
        """Look at what is held, and keep its end for what comes behind it."""
        if not self._held:
            return
        data = bytes(self._held)
        spans = [(self._start + low, self._start + high) for low, high in secrets(data)]
        if self._is_rest:
            rest = behind_hole(data)
            # The stream's first line is one only where its start was not captured.
            target = self._opening if self._start <= self._end_of_opening() else spans
            target.append((self._start, self._start + rest))
            self._is_rest = rest == len(data)
        self._secret_spans.extend(spans)
        if is_end:
            return
        keep = len(data) - SECRET_REACH_BYTES
        if spans and spans[-1][1] >= self._start + len(data):
            # It goes on: its beginning is needed, as far as that is bounded.
            keep = max(
                min(keep, spans[-1][0] - self._start - 64), len(data) - 4 * SECRET_REACH_BYTES
            )
        del self._held[: max(keep, 0)]
        self._start += max(keep, 0)

    def _end_of_opening(self) -> int:
        return self._opening[-1][1] if self._opening else self.pieces[0][0]


class FrameSecrets:
    """Finds the secrets of one direction's frames, whose bytes come beside them.

    framed: where frames are.
    found: what goes of them.
    """

    def __init__(self) -> None:
        self.framed: list[Span] = []
        self.secret_spans: list[Span] = []
        self._runs: deque[tuple[int, bytearray]] = deque()
        self._held = 0
        self._start = self._end = -(1 << 63)  # of the bytes that are held, and came
        self._waiting: deque[Frame] = deque()

    def add(self, offset: int, data: bytes) -> None:
        """Take a range in the order of the stream."""
        for at in range(0, len(data), SECRET_WINDOW_BYTES):
            self._add(offset + at, data[at : at + SECRET_WINDOW_BYTES])

    def _add(self, offset: int, data: bytes) -> None:
        if not self._runs or self._end != offset:
            self._runs.append((offset, bytearray()))
        self._runs[-1][1].extend(data)
        self._held += len(data)
        self._end = offset + len(data)
        if self._held > SECRET_HELD_BYTES:
            self._drop(self._end - SECRET_HELD_BYTES // 2)
        self._judge(is_end=False)

    def add_frame(self, frame: Frame, is_clean: bool = False) -> None:
        """Take a frame in the order of the stream. is_clean: it is known to hold no secret."""
        self.framed.append((frame.start, frame.end))
        if not is_clean:
            self._waiting.append(frame)
            self._judge(is_end=False)

    def finish(self) -> None:
        """The stream is over."""
        self._judge(is_end=True)
        self._runs.clear()

    def _judge(self, is_end: bool) -> None:
        """Look at the frames whose bytes are there."""
        while self._waiting and (is_end or self._waiting[0].end <= self._end):
            frame = self._waiting.popleft()
            if frame.start < self._start:
                # Longer than what is held of a stream: it goes as a whole.
                self.secret_spans.append((frame.start, frame.end))
            for offset, data in self._runs:
                low, high = max(frame.start, offset), min(frame.end, offset + len(data))
                if offset >= frame.end:
                    break
                if low < high:
                    part = bytes(data[low - offset : high - offset])
                    self.secret_spans += frame_spans(frame, low, part)
            self._drop(frame.end)

    def _drop(self, end: int) -> None:
        """Forget the bytes before an offset."""
        while self._runs and self._runs[0][0] < end:
            offset, data = self._runs.popleft()
            size = min(end - offset, len(data))
            self._held -= size
            if size < len(data):
                del data[:size]
                self._runs.appendleft((end, data))
        self._start = max(self._start, end)


class DirectionSecrets:
    """Finds the secrets of one direction, those of its frames and those outside of them.

    spans: what goes, when it is over: offsets in the stream, rising. What is added before goes too.
    """

    def __init__(self, protocol: str = "") -> None:
        """protocol: of the connection, where it is known already."""
        self.spans: list[Span] = []
        self._stream, self._frames = StreamSecrets(protocol), FrameSecrets()

    def add(self, offset: int, data: bytes) -> None:
        """Take a range in the order of the stream; an empty one stands for a hole."""
        self._stream.add(offset, data)
        self._frames.add(offset, data)

    def add_frame(self, frame: Frame, is_clean: bool = False) -> None:
        """Take a frame in the order of the stream. is_clean: it is known to hold no secret."""
        self._frames.add_frame(frame, is_clean)

    def finish(self, protocol: str, is_midstream: bool) -> None:
        """The stream is over; see `StreamSecrets.finish`."""
        self._frames.finish()
        outside = self._stream.finish(protocol, is_midstream, self._frames.framed)
        self.spans = merged([*self.spans, *outside, *self._frames.secret_spans])

    def hidden(self, offset: int, data: bytes) -> tuple[bytes, int]:
        """Bytes of the stream with secrets as `*`, and how many these are."""
        end = offset + len(data)
        first = bisect_right(self.spans, offset, key=lambda span: span[1])
        last = bisect_left(self.spans, (end, 0))
        spans = [
            (max(low, offset) - offset, min(high, end) - offset)
            for low, high in self.spans[first:last]
        ]
        return masked(data, spans), sum(high - low for low, high in spans)
