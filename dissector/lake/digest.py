"""Digests of a chain of files while it is read: they identify a capture and detect its prefixes.

One SHA-256 runs over the bytes of all files in order. Its value is recorded at the end of each
file, at sizes that the caller passes (those of landed captures, which may be prefixes of this one)
and at regular marks (to decide later, without these bytes, whether another input is a prefix of
this one). The number of marks is bounded: at the limit, every other mark is dropped and the step
doubles.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from dissector.limits import DIGEST_MARKS

_FIRST_STEP: Final = 256  # bytes between marks of a short chain
_MARK_DIGITS: Final = 16  # hex digits kept of a mark; an accidental collision is improbable


class _Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...
    def copy(self) -> "_Hash": ...


class SourceFile(NamedTuple):
    """One file of a chain, uncompressed.

    bytes: its size.
    sha256: of its bytes.
    chain_sha256: of all bytes of the chain up to the end of this file.
    """

    file_name: str
    bytes: int
    sha256: str
    chain_sha256: str


class Marks(NamedTuple):
    """Digests of the chain after each `step` bytes: the first digits of the SHA-256, in order.

    text: separated by blanks, as in manifests; it is rarely split, and a thousand strings per
    capture of a lake would use much memory.
    """

    step: int
    text: str = ""

    @property
    def digests(self) -> tuple[str, ...]:
        """The marks as separate strings."""
        return tuple(self.text.split())

    def coarser(self, step: int) -> tuple[str, ...]:
        """Return the digests at multiples of `step`, which must be a multiple of ours."""
        assert step % self.step == 0
        every = step // self.step
        return self.digests[every - 1 :: every]


class ChainDigest:
    """Hashes a chain of files as it is read, in buffers of any size."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self.bytes = 0
        self.files: list[SourceFile] = []
        self._chain: _Hash = hashlib.sha256()
        self._file: _Hash | None = None  # of the current file, from the second file on
        self._file_start = 0
        self._sizes = sorted(set(sizes), reverse=True)
        self._at: dict[int, str] = {}
        self._step = _FIRST_STEP
        self._marks: list[str] = []
        self._next_mark = _FIRST_STEP
        self._note_sizes()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Hash the next bytes of the current file."""
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
        """End the current file.

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
        """Return the digest of the first `size` bytes, if that size was passed or ends a file."""
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
