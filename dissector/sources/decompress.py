"""Decompresses one input while it is read, in constant memory.

The first bytes identify the format, never the file name. Consecutive compressed members
(concatenated gzip files, zstd or lz4 frames) are one stream. A damaged or cut member ends the
stream: the bytes before are good, and `problem` describes the damage.
"""

import contextlib
import lzma
import os
import select
import stat
import time
import zlib
from typing import IO, Final, Protocol

import lz4.frame
import zstandard

from dissector import limits
from dissector.errors import InputError
from dissector.sources import locations
from dissector.sources.bundled import ZIP_HEAD, open_packets
from dissector.storage.addresses import is_stored

STDIN: Final = "-"
_STDIN_NUMBER: Final = 0

_READ_BYTES: Final = 1 << 16  # stored bytes read at once
# Compressed bytes decoded at once. Where they are damaged, all that this step would have given is
# lost (but for gzip, which is taken again byte by byte).
_PIECE_BYTES: Final = 1 << 14
# A zstd block says its size in three bytes and may hold 128 KiB: so many bytes of it come out as at
# most 32 MiB, which is the bound that this decoder has no option for.
_ZSTD_PIECE_BYTES: Final = 1 << 10
_OUTPUT_BYTES: Final = 1 << 20  # decompressed bytes taken at once

# How the decompressors say that a stream wants more memory than they were allowed.
_TOO_LARGE: Final = ("too much memory", "usage limit")

_GZIP, _ZSTD, _LZ4, _XZ, _ZIP = "gzip", "zstd", "lz4", "xz", "zip"
_LONGEST_MAGIC: Final = 6


class _Member(Protocol):
    """Decompressor of one member. eof: the member has ended; unused_data: bytes after it;
    needs_input: it can output nothing without more input."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Decompress bytes; return at most max_length uncompressed ones."""


class _GzipMember:
    """zlib's decompressor with the same interface; returns the good bytes before damage."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.rescued = b""

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        data = self._inner.unconsumed_tail + data
        before = self._inner.copy()
        try:
            return self._inner.decompress(data, max_length)
        except zlib.error:
            # The bytes before the damage are lost with the call: get them in small steps.
            pieces: list[bytes] = []
            with contextlib.suppress(zlib.error):
                for index in range(len(data)):
                    pieces.append(before.decompress(data[index : index + 1]))
            self.rescued = b"".join(pieces)
            raise


class _ZstdMember:
    """zstandard's decompressor with the same interface."""

    needs_input = True

    def __init__(self) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=limits.MAX_ZSTD_WINDOW_BYTES)
        self._inner = decompressor.decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(data)


def _new_member(codec: str) -> _Member:
    if codec == _GZIP:
        return _GzipMember()
    if codec == _ZSTD:
        return _ZstdMember()
    if codec == _LZ4:
        frame: _Member = lz4.frame.LZ4FrameDecompressor()
        return frame
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limits.MAX_XZ_BYTES)


def codec_of(head: bytes) -> str | None:
    """Return the codec that the first bytes identify; None if there is none."""
    if head[:2] == b"\x1f\x8b":
        return _GZIP
    magic = int.from_bytes(head[:4], "little")
    # Skippable frames are zstd's: parallel compressors put one first.
    if magic == 0xFD2FB528 or (len(head) >= 4 and magic & 0xFFFFFFF0 == 0x184D2A50):
        return _ZSTD
    if magic == 0x184D2204:
        return _LZ4
    return _XZ if head[:6] == b"\xfd7zXZ\0" else None


def _poll_of(file: IO[bytes]) -> "select.poll | None":
    """Return a poll object for a pipe; None for a regular file."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return None
    poll = select.poll()
    poll.register(file.fileno(), select.POLLIN)
    return poll


class InputBytes:
    """The uncompressed bytes of a file or of standard input, in order.

    codec: of the compression, None = not compressed.
    problem: damage of the compressed data, known at the end.
    stored_bytes: bytes of the input read so far.

    Raises:
        OSError: the file cannot be opened or read.
    """

    def __init__(self, path: str) -> None:
        self._file: IO[bytes] = (
            open(_STDIN_NUMBER, "rb", buffering=0, closefd=False)  # noqa: SIM115
            if path == STDIN
            else locations.open_raw(path)
        )
        self.problem: str | None = None
        self.stored_bytes = 0
        self._head = b""
        self._is_over = False
        try:
            while len(self._head) < _LONGEST_MAGIC:
                piece = self._file.read(_READ_BYTES)
                if not piece:
                    break
                self._head += piece
        except OSError:
            self._file.close()
            raise
        self.stored_bytes = len(self._head)
        self.codec = codec_of(self._head)
        if self._head.startswith(ZIP_HEAD) and path != STDIN:
            self._open_bundle(path)
        self._member = _new_member(self.codec) if self.codec not in (None, _ZIP) else None
        self._ready = memoryview(b"")
        self._fruitless_bytes = 0  # stored, since the last plain byte came out
        is_whole = self.codec == _ZIP or is_stored(path)
        self._poll = None if is_whole else _poll_of(self._file)

    def _open_bundle(self, path: str) -> None:
        """Switch to the packets of an evidence bundle; other archives are read as they are."""
        try:
            packets = open_packets(path)
        except InputError as error:
            self.problem = str(error)
            self._head = b""
            self._is_over = True
            return
        if packets is not None:
            self._file.close()
            self._file, self._head, self.codec = packets, b"", _ZIP

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def may_pause(self) -> bool:
        """Whether reading may block: a pipe or a terminal, no regular file."""
        return self._poll is not None

    def has_more(self, seconds: float) -> bool:
        """Whether `read_into` returns bytes, or the end, within so many seconds."""
        until = time.monotonic() + seconds
        while not (self._ready or self._is_over):
            if self._is_dry() and not self._is_readable(until - time.monotonic()):
                return False
            if self._member is None:
                return True
            self._decode(_OUTPUT_BYTES)
        return True

    def _is_dry(self) -> bool:
        """Whether the next step needs to read input."""
        member = self._member
        if member is not None and member.eof:
            return len(member.unused_data or b"") + len(self._head) < _LONGEST_MAGIC
        return not self._head and (member is None or member.needs_input)

    def _is_readable(self, seconds: float) -> bool:
        return self._poll is None or bool(self._poll.poll(max(0.0, seconds) * 1000))

    def read_into(self, view: memoryview) -> int:
        """Fill a part of view, at least a byte unless the input has ended; return its size."""
        if self._member is not None:
            return self._decompress_into(view)
        if self._head:
            count = min(len(self._head), len(view))
            view[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        if self._is_over:
            return 0
        count = self._file.readinto(view) or 0  # type: ignore[attr-defined]
        self.stored_bytes += count
        return count

    def _read_piece(self) -> bytes:
        """Read the stored bytes for one step of the decompressor."""
        if not self._head:
            self._head = self._file.read(_READ_BYTES) or b""
            self.stored_bytes += len(self._head)
            self._fruitless_bytes += len(self._head)
        size = _ZSTD_PIECE_BYTES if self.codec == _ZSTD else _PIECE_BYTES
        piece, self._head = self._head[:size], self._head[size:]
        return piece

    def _decompress_into(self, view: memoryview) -> int:
        while not self._ready and not self._is_over:
            self._decode(min(len(view), _OUTPUT_BYTES))
        count = min(len(self._ready), len(view))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decode(self, max_length: int) -> None:
        """Run one step of the decompressor; ends a stream that outputs nothing for long."""
        self._ready = memoryview(self._step(max_length))
        if self._ready:
            self._fruitless_bytes = 0
        elif self._fruitless_bytes > limits.MAX_FRUITLESS_BYTES:
            size = limits.MAX_FRUITLESS_BYTES >> 20
            self._end(f"gives nothing for {size} MiB (the rest of the file is not read)")

    def _step(self, max_length: int) -> bytes:
        """Return some bytes, perhaps none; sets _is_over at the end, problem on damage."""
        member = self._member
        assert member is not None
        if member.eof:
            self._next_member(member.unused_data or b"")
            return b""
        piece = self._read_piece() if member.needs_input else b""
        if not piece and member.needs_input:
            self._end("is cut")
            return b""
        try:
            return member.decompress(piece, max_length)
        except (zlib.error, lzma.LZMAError, zstandard.ZstdError, RuntimeError, EOFError) as error:
            is_large = any(words in str(error) for words in _TOO_LARGE)
            self._end("needs too much memory (decompress it first)" if is_large else "is damaged")
            return member.rescued if isinstance(member, _GzipMember) else b""

    def _next_member(self, unused: bytes) -> None:
        """Continue after the end of a member: with another one, padding, or the end."""
        self._head = unused + self._head
        while len(self._head) < _LONGEST_MAGIC or not self._head.strip(b"\0"):
            # Zeros after a member are padding, as tapes and xz write it.
            more = self._file.read(_READ_BYTES)
            if not more:
                break
            self.stored_bytes += len(more)
            self._head = self._head.lstrip(b"\0") + more
        self._head = self._head.lstrip(b"\0")
        if not self._head:
            self._is_over = True
        elif codec_of(self._head) == self.codec:
            assert self.codec is not None
            self._member = _new_member(self.codec)
            self._fruitless_bytes += limits.MEMBER_CHARGE_BYTES
        else:
            self._end("is followed by something else")

    def _end(self, problem: str) -> None:
        self.problem = f"the {self.codec} data {problem}"
        self._is_over = True
