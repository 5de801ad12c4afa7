"""ChainReader: reads the files of one capture as buffers; a thread reads and hashes ahead.

Two large buffers alternate: while the consumer works on one, the thread reads, decompresses and
hashes into the other. A record that straddles two buffers is copied in front of the next one, where
space for the longest record is reserved; nothing else is copied.

A buffer of a pipe is delivered before it is full if no byte arrives for a short time, or if its
first byte has waited for a longer time.

The iterator yields for each readable file a FileStart, Buffers, and a FileEnd. An unreadable file
yields nothing and is appended to `problems`: the caller decides whether the run fails
(`raise_if_nothing` for the usual case).
"""

import hashlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol

import numpy as np

from dissector.blocks import ByteArray
from dissector.capture.reader import HEAD_BYTES, capture_format
from dissector.errors import InputError
from dissector.limits import MAX_RECORD_BYTES, READ_BUFFER_BYTES
from dissector.sources import locations
from dissector.sources.decompress import STDIN, InputBytes, codec_of
from dissector.storage.addresses import is_stored

STDIN_NAME: Final = "stdin"

_TAIL_BYTES: Final = MAX_RECORD_BYTES + 64  # longest record and its header
_PIECE_BYTES: Final = 1 << 20  # read and hashed at once, while it is in the processor's cache
_PAUSE_SECONDS: Final = 0.02  # without more bytes of a pipe, those that are there are handed on
_WAIT_SECONDS: Final = 0.08  # for more bytes of a pipe, since the first one of a buffer
_BUFFERS: Final = 4  # one that is filled, one with the consumer, and the two before that


class FileProblem(NamedTuple):
    """A problem of an input.

    path: as given.
    text: the problem, and the remedy.
    is_fatal: nothing of the file was used.
    """

    path: str
    text: str
    is_fatal: bool


class FileStart(NamedTuple):
    """Event: a file begins.

    name: without folder.
    file_index: among the readable files, from 0.
    """

    path: str
    name: str
    file_index: int
    compressed: str | None


class FileEnd(NamedTuple):
    """Event: a file has ended.

    file_bytes, sha256: of its uncompressed bytes.
    problem: of the compressed data, None if there is none.
    """

    start: FileStart
    file_bytes: int
    sha256: str
    problem: str | None


@dataclass
class Buffer:
    """Bytes of a file: data[start:end], beginning with those that the last buffer left unconsumed.

    is_last: the file ends at `end`.
    consumed: the consumer sets it to the end of the bytes that it has processed, before it requests
        the next buffer. The bytes before it stay valid for two more requests, or until the
        last buffer.
    is_enough: the consumer sets it if it needs no more of the file: reading ends with the next
        full buffer.
    is_early: delivered before it was full, as bytes arrive slowly: the consumer should not wait for
        the next one.
    """

    data: ByteArray
    start: int
    end: int
    is_last: bool
    consumed: int = field(default=-1)
    is_enough: bool = field(default=False)
    is_early: bool = field(default=False)


class _Filled(NamedTuple):
    """A buffer from the thread; new bytes begin after the space for the unconsumed tail."""

    number: int
    size: int
    is_last: bool
    is_early: bool


def is_file(path: str) -> bool:
    """Whether an input is a file that can be read twice; standard input and pipes cannot."""
    return path != STDIN and locations.is_regular(path)


def readable(path: str) -> str:
    r"""Return a path as text; invalid UTF-8 becomes \xNN, as in all our texts."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def file_name(path: str) -> str:
    """Return the name of an input without its folder."""
    return STDIN_NAME if path == STDIN else readable(PurePath(path).name)


# The inputs of which files are copies, since they can be read only once, by file.
COPIED: Final[dict[str, str]] = {}


def given(path: str) -> str:
    """Return what the user gave: of a copy, the input of which it is one."""
    return COPIED.get(path, path)


def shown(path: str) -> str:
    """Return an input's name for messages."""
    return STDIN_NAME if given(path) == STDIN else readable(given(path))


def unreadable(path: str, error: OSError) -> FileProblem:
    """Return the message about a file that could not be opened or read."""
    name = shown(path)
    if isinstance(error, FileNotFoundError):
        return FileProblem(path, f"{name}: there is no such file; check the path", True)
    reason = error.strerror or str(error)
    hint = "" if is_stored(path) else "; check its permissions"
    return FileProblem(path, f"{name}: cannot be read ({reason}){hint}", True)


_OTHER_FORMATS: Final = (
    (b"snoop\0\0\0", "a snoop file: convert it with editcap"),
    (b"BZh", "bzip2 data: decompress it first"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x02\x21\x4c\x18", "lz4 data in the old format: decompress it first"),
    (b"RTSS", "a Network Monitor file: convert it with editcap"),
    (b"GMBU", "a Network Monitor file: convert it with editcap"),
    (b"\x54\x52\x53\x4e", "a NetXray file: convert it with editcap"),
    (b"PAR1", "a Parquet file: it may be output of this program, captures are its input"),
)


def not_a_capture(path: str, head: bytes, problem: str | None = None) -> FileProblem:
    """Describe a file that is no capture by its first bytes; problem: of reading it."""
    name = shown(path)
    if problem and len(head) < HEAD_BYTES:
        return FileProblem(path, f"{name}: {problem}; nothing can be read", True)
    if not head:
        return FileProblem(path, f"{name}: is empty; no capture was written to it", True)
    for magic, what in _OTHER_FORMATS:
        if head.startswith(magic):
            return FileProblem(path, f"{name}: not a pcap or pcapng file but {what}", True)
    if capture_format(head.ljust(HEAD_BYTES, b"\0")) is not None:
        return FileProblem(path, f"{name}: ends inside its own header; nothing can be read", True)
    inner = codec_of(head)
    if inner is not None:
        return FileProblem(path, f"{name}: {inner} data inside; decompress it once", True)
    text = head[:16].decode("latin-1")
    is_text = all(char.isprintable() or char in "\t\r\n" for char in text)
    kind = f"text ({text!r})" if is_text else f"the bytes {head[:4].hex(' ')}"
    return FileProblem(
        path, f"{name}: not a capture, it begins with {kind}; give pcap or pcapng files", True
    )


def raise_if_nothing(problems: Sequence[FileProblem], files_read: int) -> None:
    """Raise the first problem if no input could be read.

    Raises:
        InputError: files_read is 0.
    """
    if files_read:
        return
    texts = [problem.text for problem in problems] or ["no input"]
    more = f" (and {len(texts) - 3} more)" if len(texts) > 3 else ""
    raise InputError("; ".join(texts[:3]) + more)


class Digest(Protocol):
    """Interface of a hash over the uncompressed bytes; called in the reading thread."""

    def update(self, data: memoryview) -> None:
        """Take the next bytes of the running file."""

    def end_file(self, file_name: str) -> str:
        """The running file is through; gives its SHA-256 in hex."""


class FileDigest:
    """Hashes each file separately."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, data: memoryview) -> None:
        """Take the next bytes of the running file."""
        self._hash.update(data)

    def end_file(self, file_name: str) -> str:
        """The running file is through; gives its SHA-256 in hex."""
        digest = self._hash.hexdigest()
        self._hash = hashlib.sha256()
        return digest


class _Reading:
    """State of a file that the thread reads.

    start: set once its first bytes identify it.
    file_bytes: in delivered buffers.
    failure: the OSError that ended it.
    is_last: nothing more is read.
    """

    def __init__(self, source: InputBytes, digest: Digest) -> None:
        self._source = source
        self._digest = digest
        self._until = 0.0
        self.start: FileStart | None = None
        self.file_bytes = 0
        self.failure: str | None = None
        self.is_last = False

    def is_more_there(self, size: int) -> bool:
        """Whether bytes, or the end of the file, arrive soon enough to wait for them.

        Args:
            size: bytes in the buffer that is filled.
        """
        if not self._source.may_pause:
            return True
        now = time.monotonic()
        if size == 0 or self.start is None:
            self._until = math.inf
        elif self._until == math.inf:
            self._until = now + _WAIT_SECONDS
        return self._until > now and self._source.has_more(min(_PAUSE_SECONDS, self._until - now))

    def read(self, view: memoryview, size: int) -> int:
        """Append some bytes to those in view; return how many it has then."""
        try:
            count = self._source.read_into(view[size : size + _PIECE_BYTES])
        except OSError as error:
            self.failure = error.strerror or str(error)
            count = 0
        self.is_last = count == 0
        if self.start is not None:
            self._digest.update(view[size : size + count])
        return size + count


class ChainReader:
    """Reads files in order as one chain of bytes. Iterate it once, inside a `with` block.

    problems: inputs that are missing, cut or damaged, in order; complete after the iteration.
    files_read: number of files with bytes.
    stored_bytes: bytes read so far, as stored (for progress).

    Args:
        paths: files, "-" is standard input.
        digest: hashes the bytes; by default each file is hashed separately.
    """

    def __init__(self, paths: Iterable[str], digest: Digest | None = None) -> None:
        self._paths = tuple(paths)
        self.problems: list[FileProblem] = []
        self.files_read = 0
        self.stored_bytes = 0
        self._digest = FileDigest() if digest is None else digest
        self._buffers: list[ByteArray] = []
        self._free: SimpleQueue[int | None] = SimpleQueue()
        self._events: SimpleQueue[FileStart | FileEnd | _Filled | BaseException | None] = (
            SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def total_bytes(self) -> int | None:
        """Return the final stored_bytes; None if unknown, as for a pipe."""
        try:
            sizes = [locations.state_of(path).size for path in self._paths if is_file(path)]
        except OSError:
            return None
        return sum(sizes) if len(sizes) == len(self._paths) else None

    def __enter__(self) -> "ChainReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread; harmless after the end."""
        self._is_closed = True
        self._free.put(None)
        if self._thread is not None and STDIN not in self._paths:
            self._thread.join()
        self._buffers.clear()

    def __iter__(self) -> Iterator[FileStart | Buffer | FileEnd]:
        assert self._thread is None, "a chain is read once"
        self._thread = threading.Thread(target=self._read_all, name="reading", daemon=True)
        for _ in range(_BUFFERS):
            self._buffers.append(np.empty(_TAIL_BYTES + READ_BUFFER_BYTES, np.uint8))
        *free, before, between = range(_BUFFERS)
        lent = deque((before, between))
        for number in free:
            self._free.put(number)
        self._thread.start()
        held: tuple[int, Buffer] | None = None
        while True:
            event = self._events.get()
            if event is None:
                return
            if isinstance(event, BaseException):
                raise event
            if not isinstance(event, _Filled):
                yield event
                continue
            data = self._buffers[event.number]
            start = _TAIL_BYTES
            if held is not None:
                number, last = held
                tail = last.end - last.consumed
                assert 0 <= tail <= _TAIL_BYTES, "a consumer that left more than a record"
                start -= tail
                data[start:_TAIL_BYTES] = last.data[last.consumed : last.end]
                # That it is enough goes with a buffer back to the thread, which has filled the
                # next one by then: how much of a file is hashed does not depend on who is quicker.
                is_enough = last.is_enough and not event.is_last
                oldest = lent.popleft()
                self._free.put(-1 - oldest if is_enough else oldest)
                lent.append(number)
            end = _TAIL_BYTES + event.size
            buffer = Buffer(data, start, end, event.is_last, is_early=event.is_early)
            yield buffer
            assert buffer.consumed >= 0, "the consumer must say how far it came"
            held = (event.number, buffer)
            if event.is_last:
                self._free.put(event.number)
                held = None

    # -- in the thread

    def _read_all(self) -> None:
        try:
            for path in self._paths:
                if self._is_closed:
                    break
                self._read_file(path)
            self._events.put(None)
        except BaseException as error:
            self._events.put(error)

    def _read_file(self, path: str) -> None:
        try:
            source = InputBytes(path)
        except OSError as error:
            self.problems.append(unreadable(path, error))
            return
        try:
            self._read_source(path, source)
        finally:
            source.close()

    def _read_source(self, path: str, source: InputBytes) -> None:
        """Fill buffers from one file; its first bytes decide whether it is read.

        No buffer crosses a multiple of READ_BUFFER_BYTES, and with `is_enough` reading ends at one:
        so the bytes read do not depend on the timing of their arrival.
        """
        file = _Reading(source, self._digest)
        self.stored_bytes += source.stored_bytes
        size = 0  # of the last buffer
        stop: int | None = None
        while not file.is_last:
            number = self._free.get()
            if number is None:
                return
            if number < 0:
                number = -1 - number
                if stop is None:
                    decided_at = file.file_bytes - size  # by the buffer before the last one
                    stop = ((decided_at - 1) // READ_BUFFER_BYTES + 2) * READ_BUFFER_BYTES
            file.is_last = file.file_bytes == stop
            free_bytes = READ_BUFFER_BYTES - file.file_bytes % READ_BUFFER_BYTES
            view = self._buffers[number].data[_TAIL_BYTES : _TAIL_BYTES + free_bytes]
            size, is_early = 0, False
            while size < free_bytes and not file.is_last and not is_early:
                if not file.is_more_there(size):
                    if self._is_closed:
                        return
                    is_early = file.start is not None and size > 0
                    continue
                before = source.stored_bytes
                size = file.read(view, size)
                self.stored_bytes += source.stored_bytes - before
                if file.start is None and (size >= HEAD_BYTES or file.is_last):
                    head = bytes(view[: min(size, 64)])
                    if capture_format(head) is None or size < HEAD_BYTES:
                        problem = file.failure or source.problem
                        self.problems.append(not_a_capture(path, head, problem))
                        self._free.put(number)
                        return
                    file.start = FileStart(path, file_name(path), self.files_read, source.codec)
                    self.files_read += 1
                    self._digest.update(view[:size])
                    self._events.put(file.start)
            file.file_bytes += size
            self._events.put(_Filled(number, size, file.is_last, is_early))
        if file.failure and is_stored(path):
            raise InputError(
                f"{shown(path)}: reading failed after {file.file_bytes} bytes ({file.failure}); "
                "run it again: all of it is there, so no part is taken for the whole"
            )
        assert file.start is not None
        problem = f"reading failed ({file.failure})" if file.failure else source.problem
        if problem:
            text = f"{shown(path)}: {problem} after {file.file_bytes} bytes; all before was read"
            self.problems.append(FileProblem(path, text, False))
        sha256 = self._digest.end_file(file.start.name)
        self._events.put(FileEnd(file.start, file.file_bytes, sha256, problem))
