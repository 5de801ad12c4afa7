"""Messages too large for one entry: their chunks, joined across frames.

A producer compresses a large message, cuts it, and sends each chunk as an entry of its own with the
message's uuid, the chunk's number and their count. SENDs are joined by topic, because a producer
continues after a reconnect (the two sides of a proxy apart); MESSAGEs by consumer, because each one
receives all chunks. The message is complete with its last chunk if all others came before and their
bytes add up. The bytes are stored only on request.

Bounded are the unfinished messages, their chunks and their stored bytes; at a bound the message
that began first is evicted. A repeated chunk counts once; a repeated chunk 0 begins a new message.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dissector import limits
from dissector.blocks import ByteArray, Int64Array
from dissector.limits import NULL
from dissector.notice_rows import Notice
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import FrameColumns
from dissector.protocols.frame_notices import PLACE_COLUMNS
from dissector.protocols.pulsar.wire.commands import SEND

Sources = tuple[ByteArray, ByteArray, ByteArray, ByteArray]

_CHUNK_MISSING: Final = NOTICE_NUMBER["chunk_missing"]
_CHUNKS_LIMIT: Final = NOTICE_NUMBER["chunks_limit"]


class Joined(NamedTuple):
    """A complete message: the number of bytes in its chunks, and the bytes if they were stored."""

    size: int
    pieces: bytes


class Chunk(NamedTuple):
    """The frame columns of one chunk, by their names; PLACE_COLUMNS come first, for notices."""

    last_ts_ns: int
    connection_id: int
    direction: int
    frame_no: int
    last_packet: int
    stream_offset: int
    command: int
    source: int
    topic: int
    producer_id: int
    consumer_id: int
    chunk_id: int
    chunk_count: int
    chunk_uuid_at: int
    chunk_uuid_bytes: int
    chunked_bytes: int
    payload_at: int
    payload_bytes: int


class _Unfinished:
    """A message with missing chunks. latest: its last captured chunk."""

    __slots__ = ("count", "latest", "pieces", "seen", "size")

    def __init__(self, latest: Chunk) -> None:
        self.count = latest.chunk_count
        self.seen: set[int] = set()
        self.size = 0
        self.pieces: list[bytes] = []
        self.latest = latest

    def notice(self, kind: int) -> Notice:
        """A notice of a kind, with the place of the latest chunk."""
        return Notice(kind, *self.latest[: len(PLACE_COLUMNS)])


# Keys are bytes: Python salts their hash, unlike that of numbers in a tuple, so none can be forged.
_KEY_NUMBERS: Final = struct.Struct("<3q")


def chunks_at(frames: FrameColumns, rows: Sequence[int] | Int64Array) -> Iterator[Chunk]:
    """The chunks in some rows."""
    columns = (getattr(frames, name)[rows].tolist() for name in Chunk._fields)
    return map(Chunk._make, zip(*columns, strict=True))


def _key(chunk: Chunk, data: ByteArray, proxy_side: int) -> bytes:
    at = chunk.chunk_uuid_at
    uuid = data[at : at + max(chunk.chunk_uuid_bytes, 0)].tobytes()
    if chunk.command != SEND:
        return _KEY_NUMBERS.pack(1, chunk.connection_id, chunk.consumer_id) + uuid
    if chunk.topic >= 0:
        return _KEY_NUMBERS.pack(2, chunk.topic, proxy_side) + uuid
    return _KEY_NUMBERS.pack(3, chunk.connection_id, chunk.producer_id) + uuid


class Chunks:
    """All unfinished chunked messages of one capture."""

    def __init__(
        self,
        keeps_pieces: bool = False,
        max_messages: int = limits.MAX_CHUNKED_MESSAGES,
        max_bytes: int = limits.MAX_CHUNKED_BYTES,
        max_chunks: int = limits.MAX_CHUNKS,
    ) -> None:
        """keeps_pieces: store the bytes of chunks, not only their number."""
        self._keeps_pieces = keeps_pieces
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        # Ordered: to find its first key, a plain dict scans the slots of all removed ones.
        self._open: OrderedDict[bytes, _Unfinished] = OrderedDict()
        self._kept_bytes = 0
        self._kept_chunks = 0
        self._done: OrderedDict[bytes, None] = OrderedDict()
        self._notices: list[Notice] = []
        self._on_proxy_sides: set[int] = set()

    def set_proxy_side(self, connection: int, is_proxy_side: bool) -> None:
        """Join chunks on a proxy's side apart from the client's side; False when it closes."""
        if is_proxy_side:
            self._on_proxy_sides.add(connection)
        else:
            self._on_proxy_sides.discard(connection)

    def add(self, chunk: Chunk, sources: Sources) -> Joined | None:
        """Add a chunk; return the message if it is the last one and none is missing."""
        data = sources[chunk.source]
        number, count = chunk.chunk_id, chunk.chunk_count
        key = _key(chunk, data, int(chunk.connection_id in self._on_proxy_sides))
        message = self._open.get(key)
        if message is None and number > 0 and key in self._done:
            return None  # a repeated end of a complete message, as after a reconnect
        if message is None or message.count != count or (number == 0 and 0 in message.seen):
            self._remove(key)
            message = self._open[key] = _Unfinished(chunk)
        message.latest = chunk
        if 0 <= number < count and number not in message.seen:
            message.seen.add(number)
            self._kept_chunks += 1
            message.size += chunk.payload_bytes
            if self._keeps_pieces:
                piece = data[chunk.payload_at : chunk.payload_at + chunk.payload_bytes].tobytes()
                message.pieces.append(piece)
                self._kept_bytes += len(piece)
        if number != count - 1:
            self._evict_oldest()
            return None
        self._remove(key)
        if len(message.seen) < count or chunk.chunked_bytes not in (NULL, message.size):
            self._notices.append(message.notice(_CHUNK_MISSING))
            return None
        self._add_completed(key)
        return Joined(message.size, b"".join(message.pieces))

    def _remove(self, key: bytes) -> None:
        message = self._open.pop(key, None)
        if message is not None:
            self._kept_bytes -= sum(map(len, message.pieces))
            self._kept_chunks -= len(message.seen)

    def _add_completed(self, key: bytes) -> None:
        self._done.pop(key, None)
        self._done[key] = None
        if len(self._done) > limits.MAX_COMPLETED_MESSAGES:
            self._done.popitem(last=False)

    def _evict_oldest(self) -> None:
        while (
            len(self._open) > self._max_messages
            or self._kept_bytes > self._max_bytes
            or self._kept_chunks > self._max_chunks
        ):
            key = next(iter(self._open))
            self._notices.append(self._open[key].notice(_CHUNKS_LIMIT))
            self._remove(key)

    def drain_notices(self) -> list[Notice]:
        """Notices of missing chunks and evicted messages since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def finish(self) -> list[Notice]:
        """Notices of the messages that are unfinished at the end of the capture."""
        notices = [message.notice(_CHUNK_MISSING) for message in self._open.values()]
        self._open.clear()
        self._kept_bytes = self._kept_chunks = 0
        return notices
