"""Messages too large for one entry: their chunks, joined across frames.

A producer compresses a large message, cuts it, and sends each piece as an entry of its own with the
message's uuid, the piece's number and their count. Here is kept what has been seen of each message:
of SENDs by topic, because a producer goes on after a reconnect (the two sides of a proxy apart), of
MESSAGEs by consumer, because each one gets all of them. The message is complete with its last chunk
if all others came before and their bytes add up. The bytes themselves are kept only where they are
asked for.

Bounds: so many messages, so many chunks of them and so many kept bytes at once; the message that
was begun first is given up. A chunk that comes again counts once; chunk 0 begins anew.
"""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.limits import MAX_CHUNKED_BYTES, MAX_CHUNKED_MESSAGES, NULL
from dissector.notice_log import Notice
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pulsar.wire.commands import SEND

Sources = tuple[ByteArray, ByteArray, ByteArray, ByteArray]

_CHUNK_MISSING: Final = NOTICE_NUMBER["chunk_missing"]
_CHUNKS_LIMIT: Final = NOTICE_NUMBER["chunks_limit"]
_MAX_CHUNKS: Final = 16 * MAX_CHUNKED_MESSAGES  # of all messages under way
_MAX_REMEMBERED: Final = 4096  # messages completed last, whose chunks may come again


class Joined(NamedTuple):
    """A complete message: bytes of all its chunks, and the chunks themselves where kept."""

    size: int
    pieces: bytes


class _Unfinished:
    """A message with chunks to come. where: its latest chunk, as a notice names it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seen: set[int] = set()
        self.size = 0
        self.pieces: list[bytes] = []
        self.where = Notice(_CHUNK_MISSING)


_Key = tuple[int, int, int, bytes]


def finding_at(kind: int, frames: FrameColumns, row: int) -> Notice:
    """A notice about the frame in a row."""
    return Notice(
        kind,
        int(frames.last_ts_ns[row]),
        int(frames.connection_id[row]),
        int(frames.direction[row]),
        int(frames.frame_no[row]),
        int(frames.last_packet[row]),
        int(frames.stream_offset[row]),
    )


def _key(frames: FrameColumns, row: int, data: ByteArray, leg: int) -> _Key:
    at = int(frames.chunk_uuid_at[row])
    uuid = data[at : at + max(int(frames.chunk_uuid_bytes[row]), 0)].tobytes()
    if frames.command[row] != SEND:
        return 1, int(frames.connection_id[row]), int(frames.consumer_id[row]), uuid
    topic = int(frames.topic[row])
    if topic >= 0:
        return 2, topic, leg, uuid
    return 3, int(frames.connection_id[row]), int(frames.producer_id[row]), uuid


class Chunks:
    """All chunked messages under way in one capture."""

    def __init__(
        self,
        keeps_pieces: bool = False,
        max_messages: int = MAX_CHUNKED_MESSAGES,
        max_bytes: int = MAX_CHUNKED_BYTES,
        max_chunks: int = _MAX_CHUNKS,
    ) -> None:
        """keeps_pieces: whether the bytes are needed, not only their number."""
        self._keeps_pieces = keeps_pieces
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks
        self._open: dict[_Key, _Unfinished] = {}
        self._kept_bytes = 0
        self._kept_chunks = 0
        self._done: dict[_Key, None] = {}
        self._findings: list[Notice] = []
        self._proxy_legs: set[int] = set()

    def set_leg(self, connection: int, is_proxy_leg: bool) -> None:
        """Keep the messages of a proxy's leg apart from its twin's; False when it is over."""
        if is_proxy_leg:
            self._proxy_legs.add(connection)
        else:
            self._proxy_legs.discard(connection)

    def add(self, frames: FrameColumns, row: int, sources: Sources) -> Joined | None:
        """Take the chunk in a row; the message if it is the last one and none is missing."""
        data = sources[int(frames.source[row])]
        number, count = int(frames.chunk_id[row]), int(frames.chunk_count[row])
        leg = int(int(frames.connection_id[row]) in self._proxy_legs)
        key = _key(frames, row, data, leg)
        message = self._open.get(key)
        if message is None and number > 0 and key in self._done:
            return None  # the end of a message once more, as after a reconnect
        if message is None or message.count != count or (number == 0 and 0 in message.seen):
            self._forget(key)
            message = self._open[key] = _Unfinished(count)
        message.where = finding_at(_CHUNK_MISSING, frames, row)
        if 0 <= number < count and number not in message.seen:
            message.seen.add(number)
            self._kept_chunks += 1
            message.size += int(frames.payload_bytes[row])
            if self._keeps_pieces:
                at = int(frames.payload_at[row])
                piece = data[at : at + int(frames.payload_bytes[row])].tobytes()
                message.pieces.append(piece)
                self._kept_bytes += len(piece)
        if number != count - 1:
            self._keep_bounds()
            return None
        self._forget(key)
        announced = int(frames.chunked_bytes[row])
        if len(message.seen) < count or announced not in (NULL, message.size):
            self._findings.append(message.where)
            return None
        self._remember(key)
        return Joined(message.size, b"".join(message.pieces))

    def _forget(self, key: _Key) -> None:
        message = self._open.pop(key, None)
        if message is not None:
            self._kept_bytes -= sum(map(len, message.pieces))
            self._kept_chunks -= len(message.seen)

    def _remember(self, key: _Key) -> None:
        self._done.pop(key, None)
        self._done[key] = None
        if len(self._done) > _MAX_REMEMBERED:
            del self._done[next(iter(self._done))]

    def _keep_bounds(self) -> None:
        while (
            len(self._open) > self._max_messages
            or self._kept_bytes > self._max_bytes
            or self._kept_chunks > self._max_chunks
        ):
            key = next(iter(self._open))
            self._findings.append(self._open[key].where._replace(kind=_CHUNKS_LIMIT))
            self._forget(key)

    def drain_findings(self) -> list[Notice]:
        """What was missing or given up since the last call."""
        found, self._findings = self._findings, []
        return found

    def finish(self) -> list[Notice]:
        """The messages whose last chunk never came."""
        found = [message.where for message in self._open.values()]
        self._open.clear()
        self._kept_bytes = self._kept_chunks = 0
        return found
