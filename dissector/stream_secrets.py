"""Secrets in the stream of one direction, which comes in pieces and may have holes.

A stream is searched as a stream: what a piece begins is seen in the next one. Windows overlap by
more than any token takes. Where a hole cuts a secret, its rest, which nothing names any more, goes
too, and so does what a stream begins with whose start was not captured.
"""

import re
from collections.abc import Iterable
from typing import Final

from dissector.codecs.redaction import Span, merged, secrets
from dissector.limits import SECRET_REACH_BYTES, SECRET_WINDOW_BYTES

_REST: Final = re.compile(rb"[^\s\"'&<>\x00-\x1f\x7f]*+")
_PROXY_HEADS: Final = (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")


class StreamSecrets:
    """Finds the secrets of one direction.

    pieces: start and end of each range that was there, in order; opening: the word that it begins
    with, which is the rest of one if the stream's start was not captured.
    """

    def __init__(self) -> None:
        self.pieces: list[Span] = []
        self.opening: Span = (0, 0)
        self._is_opening = True
        self._found: list[Span] = []
        self._held = bytearray()
        self._start = 0  # offset of what is held
        self._head = b""

    def add(self, offset: int, data: bytes) -> None:
        """Take a range in the order of the stream; an empty one stands for a hole."""
        if not data:
            return
        if offset != self._start + len(self._held) or not self.pieces:
            self._search(is_end=True)
            is_cut = bool(self._found) and self._found[-1][1] >= self._start + len(self._held)
            self._held.clear()
            self._start = offset
            if is_cut and self.pieces:
                self._found.append((offset, offset + _rest(data)))
            self._is_opening = not self.pieces
            if self._is_opening:
                self.opening = (offset, offset)
        if self._is_opening:
            self.opening = self.opening[0], offset + _rest(data)
            self._is_opening = self.opening[1] == offset + len(data)
        if self.pieces and self.pieces[-1][1] == offset:
            self.pieces[-1] = self.pieces[-1][0], offset + len(data)
        else:
            self.pieces.append((offset, offset + len(data)))
        if len(self._head) < len(_PROXY_HEADS[1]):
            self._head += data[: len(_PROXY_HEADS[1])]
        self._held += data
        if len(self._held) >= SECRET_WINDOW_BYTES:
            self._search(is_end=False)

    def finish(self) -> list[Span]:
        """All secrets: offsets in the stream, rising."""
        self._search(is_end=True)
        self._held.clear()
        return merged(self._found)

    def outside(self, framed: Iterable[Span]) -> list[Span]:
        """What was there and lies in none of the frames, but for a proxy's header in front."""
        frames = merged(framed)
        found: list[Span] = []
        index = 0
        for start, end in self.pieces:
            at = start
            while index < len(frames) and frames[index][0] < end:
                if frames[index][1] > at:
                    found.append((at, frames[index][0]))
                    at = frames[index][1]
                if at > end:
                    break
                index += 1
            found.append((at, end))
        if found and self._head.startswith(_PROXY_HEADS):
            found = [span for span in found if span[0] != self.pieces[0][0]]
        return merged(found)

    def _search(self, is_end: bool) -> None:
        """Look at what is held, and keep its end for what comes behind it."""
        if not self._held:
            return
        data = bytes(self._held)
        found = [(self._start + low, self._start + high) for low, high in secrets(data)]
        self._found.extend(found)
        if is_end:
            return
        keep = len(data) - SECRET_REACH_BYTES
        if found and found[-1][1] >= self._start + len(data):
            # It goes on: its beginning is needed, as far as that is bounded.
            keep = max(
                min(keep, found[-1][0] - self._start - 64), len(data) - 4 * SECRET_REACH_BYTES
            )
        del self._held[: max(keep, 0)]
        self._start += max(keep, 0)


def _rest(data: bytes) -> int:
    """Where a value that something began with ends."""
    rest = _REST.match(data)
    assert rest is not None, "it may be empty"
    return rest.end()
