"""Digests of a chain of files while it is read: what a capture is called, and how it has grown.

One SHA-256 runs over the bytes of all files in order. On the way its value is noted at the end of
each file, at sizes that the caller asks for (those of captures already landed, to see whether they
are a prefix of this one) and at regular marks (to see later whether another input is a prefix of
this one, although these bytes are gone by then). Marks keep their number bounded: when there are
too many, every other is dropped and the step doubles.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from dissector.limits import DIGEST_MARKS

_FIRST_STEP: Final = 256  # bytes between marks of a short chain
_MARK_DIGITS: Final = 16  # hex digits kept of a mark: enough to tell files apart by chance


class _Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...
    def copy(self) -> "_Hash": ...


class SourceFile(NamedTuple):
    """One file of a chain, uncompressed.

    bytes: its size.
    sha256: of its bytes.
    chain_sha256: of all bytes of the chain up to its end.
    """

    file_name: str
    bytes: int
    sha256: str
    chain_sha256: str


class Marks(NamedTuple):
    """Digests of the chain after each `step` bytes: the first digits of the SHA-256, in order.

    text: with blanks between them, as manifests have it; few are looked at, and a thousand strings
    for each capture of a lake are a lot.
    """

    step: int
    text: str = ""

    @property
    def digests(self) -> tuple[str, ...]:
        """Each by itself."""
        return tuple(self.text.split())

    def coarser(self, step: int) -> tuple[str, ...]:
        """The digests at multiples of a step that is a multiple of ours."""
        assert step % self.step == 0
        every = step // self.step
        return self.digests[every - 1 :: every]


class ChainDigest:
    """Hashes a chain of files as it is read, in pieces of any size."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self.bytes = 0
        self.files: list[SourceFile] = []
        self._chain: _Hash = hashlib.sha256()
        self._file: _Hash | None = None  # of the running file, from the second file on
        self._file_start = 0
        self._sizes = sorted(set(sizes), reverse=True)
        self._at: dict[int, str] = {}
        self._step = _FIRST_STEP
        self._marks: list[str] = []
        self._next_mark = _FIRST_STEP
        self._note_sizes()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the running file."""
        view = memoryview(data).cast("B")
        if self._file is not None:
            self._file.update(view)
        start = 0
        while start < len(view):
            until = self._next_mark
            if self._sizes:
                until = min(until, self._sizes[-1])
            stop = min(len(view), start + until - self.bytes)
            self._chain.update(view[start:stop])
            self.bytes += stop - start
            start = stop
            self._note_sizes()
            if self.bytes == self._next_mark:
                self._mark()

    def end_file(self, file_name: str) -> str:
        """End the running file.

        Returns:
            Its SHA-256 in hex.
        """
        chain = self._chain.hexdigest()
        own = chain if self._file is None else self._file.hexdigest()
        self.files.append(SourceFile(file_name, self.bytes - self._file_start, own, chain))
        self._file_start = self.bytes
        self._file = hashlib.sha256()
        return own

    def sha256(self) -> str:
        """Digest of all bytes so far, in hex."""
        return self._chain.hexdigest()

    def at(self, size: int) -> str | None:
        """Digest of the first `size` bytes, if that size was asked for or is the end of a file."""
        if size in self._at:
            return self._at[size]
        end = 0
        for source in self.files:
            end += source.bytes
            if end == size:
                return source.chain_sha256
        return None

    def marks(self) -> Marks:
        """The regular marks so far."""
        return Marks(self._step, " ".join(self._marks))

    def _note_sizes(self) -> None:
        while self._sizes and self._sizes[-1] <= self.bytes:
            self._at[self._sizes.pop()] = self._chain.hexdigest()

    def _mark(self) -> None:
        self._marks.append(self._chain.hexdigest()[:_MARK_DIGITS])
        if len(self._marks) == DIGEST_MARKS:
            self._marks = self._marks[1::2]
            self._step *= 2
        self._next_mark = self.bytes + self._step
