"""Cursus frames read the plain way: whole streams, `struct`, one frame after the other, no kernels.

Only those fields of commands and answers are parsed that tests compare. Answers are paired with
requests by counting, without times.
"""

import gzip
import json
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cramjam
import lz4.frame

from tests.naive.packets import segments
from tests.naive.streams import NaiveConnection, Seen, reassemble

_VERBS = """AUTH PROTOCOL_INFO NEGOTIATE HELP CREATE DELETE LIST DESCRIBE METADATA PUBLISH CONSUME
    STREAM LIST_OFFSETS FETCH_OFFSET COMMIT_OFFSET BATCH_COMMIT REGISTER_GROUP JOIN_GROUP SYNC_GROUP
    LEAVE_GROUP HEARTBEAT GROUP_STATUS LIST_GROUPS FIND_COORDINATOR INIT_PRODUCER_ID BEGIN_TXN
    TXN_PUBLISH SEND_OFFSETS_TO_TXN END_TXN TXN_STATUS APPEND_STREAM READ_STREAM STREAM_VERSION
    SAVE_SNAPSHOT READ_SNAPSHOT CLUSTER_STATUS LIST_CLUSTER ELECT_LEADER REPLICATE_MESSAGE
    REPLICATE_SNAPSHOT LIST_SNAPSHOTS FETCH_SNAPSHOT CATCHUP_SNAPSHOTS RAFT_APPLY INTERNAL_BATCH
    JOIN_CLUSTER LEAVE_CLUSTER HEARTBEAT_CLUSTER SUBSCRIBE COMMIT EXIT"""
VERBS = frozenset(_VERBS.split())


class NaiveRecord(NamedTuple):
    """One record."""

    offset: int
    seq_num: int
    producer: bytes
    key: bytes
    epoch: int
    payload: bytes


class NaiveBatch(NamedTuple):
    """One batch."""

    layout: str
    topic: bytes
    partition: int
    acks: bytes
    idempotent: int
    seq_start: int
    seq_end: int
    records: tuple[NaiveRecord, ...]


@dataclass
class NaiveFrame:
    """One frame. command: as in the table frames; line: the words of a command."""

    command: str
    body: bytes
    batch: NaiveBatch | None = None
    line: bytes = b""
    is_error: bool = False


@dataclass
class NaiveTalk:
    """One connection's frames by direction, client first."""

    client: list[NaiveFrame] = field(default_factory=list)
    broker: list[NaiveFrame] = field(default_factory=list)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise EOFError
        data = self.data[self.at : self.at + size]
        self.at += size
        return data

    def number(self, form: str) -> int:
        return int(struct.unpack(">" + form, self.take(struct.calcsize(form)))[0])

    def text(self, form: str = "H") -> bytes:
        return self.take(self.number(form))


def _read(body: bytes, layout: str) -> tuple[NaiveBatch, int]:
    reader = _Reader(body)
    if reader.number("H") != 0xBA7C:
        raise EOFError
    topic = reader.text()
    if layout == "seed":
        digits = reader.text()
        if not 1 <= len(digits) <= 10 or not digits.isdigit():
            raise EOFError
        partition, acks = int(digits), reader.text()
    else:
        partition, acks = reader.number("i"), reader.text("B")
    idempotent = 0 if layout == "v010" else reader.number("B")
    if idempotent > 1:
        raise EOFError
    start, end, count = reader.number("q"), reader.number("q"), reader.number("i")
    if not 0 <= count <= 100_000:
        raise EOFError
    records = []
    for _ in range(count):
        offset, seq_num = reader.number("q"), reader.number("q")
        producer, key = reader.text(), reader.text()
        epoch, payload = reader.number("q"), reader.text("I")
        if layout in ("cur", "seed"):
            reader.text()
            reader.take(12)
            reader.text()
        records.append(NaiveRecord(offset, seq_num, producer, key, epoch, payload))
    batch = NaiveBatch(layout, topic, partition, acks, idempotent, start, end, tuple(records))
    return batch, reader.at


def read_batch(body: bytes) -> NaiveBatch | None:
    """A batch in the layout that ends with the body, or, else, leaves the fewest promises open."""
    loose = None
    for layout in ("seed", "cur", "apr26", "v010"):
        try:
            batch, end = _read(body, layout)
        except EOFError:
            continue
        if end == len(body):
            return batch
        if loose is None and batch.records and layout != "seed":
            loose = batch
    return loose


def unpacked(body: bytes) -> bytes:
    """A body without its compression."""
    if body[:3] == b"\x1f\x8b\x08":
        return gzip.decompress(body)
    if body[:4] == b"\x04\x22\x4d\x18":
        return bytes(lz4.frame.decompress(body))
    if body[:8] == b"\x82SNAPPY\x00":
        made, at = b"", 16
        while at < len(body):
            size = int.from_bytes(body[at : at + 4], "big")
            made += bytes(cramjam.snappy.decompress_raw(body[at + 4 : at + 4 + size]))
            at += 4 + size
        return made
    try:
        plain = bytes(cramjam.snappy.decompress_raw(body))
    except (cramjam.DecompressionError, ValueError):
        return body
    is_body = plain[:2] == b"\xba\x7c" or plain[:1] == b"\0" or _word(plain) in VERBS
    return plain if is_body else body


def _word(line: bytes) -> str:
    words = line.split()
    return words[0].decode("ascii", "replace").upper() if words else ""


def client_frame(body: bytes) -> NaiveFrame:
    """Parse a client's frame."""
    if not body:
        return NaiveFrame("KEEPALIVE", body)
    if body[:2] != b"\xba\x7c" and _word(body) not in VERBS and body[:1] != b"\0":
        body = unpacked(body)
    if body[:2] == b"\xba\x7c":
        batch = read_batch(body)
        return NaiveFrame("BATCH", body, batch)
    line = body
    if _word(body) not in VERBS:
        size = int.from_bytes(body[:2], "big")
        if len(body) < 2 or size > 249 or size + 2 > len(body):
            return NaiveFrame("UNKNOWN", body)
        line = body[2 + size :].strip(b"\0 \r\n")
    words = line.split()
    if len(words) > 2 and words[0] == b"AUTH" and words[2].endswith(b"_CLUSTER"):
        return NaiveFrame(words[2].decode(), body, line=line)
    return NaiveFrame(_word(line) if _word(line) in VERBS else "UNKNOWN", body, line=line)


def broker_frame(body: bytes) -> NaiveFrame:
    """Parse a broker's frame."""
    if not body:
        return NaiveFrame("KEEPALIVE", body)
    if body[:2] == b"\xba\x7c":
        return NaiveFrame("BATCH", body, read_batch(body))
    if body[:1] in b"{[":
        said = json.loads(body)
        is_error = isinstance(said, dict) and (
            said.get("status", "OK") != "OK" or said.get("success") is False
        )
        return NaiveFrame("RESPONSE_JSON", body, is_error=is_error)
    if body.startswith((b"ERROR:", b"ERROR ")):
        return NaiveFrame("RESPONSE_ERROR", body, is_error=True)
    if body.startswith(b"STREAM_CONTROL "):
        return NaiveFrame("STREAM_CONTROL", body)
    return NaiveFrame("RESPONSE_OK", body)


def bodies(stream: bytes) -> list[bytes]:
    """The bodies of the whole frames of a stream."""
    bodies, at = [], 0
    while at + 4 <= len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        if size > 64 << 20 or at + 4 + size > len(stream):
            break
        bodies.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return bodies


def _whole(connection: NaiveConnection, side: int) -> bytes:
    parts = connection.sides[side].parts()
    return parts[0].data if parts and parts[0].kind == "data" else b""


def talks_of(path: str, ports: frozenset[int] = frozenset((9000,))) -> list[NaiveTalk]:
    """The Cursus conversations of a capture without losses."""
    seen = []
    for each in segments(path):
        ends = ((each.source, each.source_port), (each.destination, each.destination_port))
        seen.append(
            Seen(
                frozenset(ends),
                int(each.source_port in ports),
                each.sequence,
                each.acknowledgement,
                each.flags,
                each.payload,
                each.wire_bytes,
            )
        )
    talks = []
    for connection in reassemble(seen):
        streams = [_whole(connection, side) for side in (0, 1)]
        if streams[0][:1] > b"\x04" or streams[0][:2] == b"\x16\x03":
            continue
        talks.append(
            NaiveTalk(
                [client_frame(body) for body in bodies(streams[0])],
                [broker_frame(body) for body in bodies(streams[1])],
            )
        )
    return talks


class Pair(NamedTuple):
    """A request and its answer, None without one."""

    request: NaiveFrame
    answer: NaiveFrame | None


def pairs_of(talk: NaiveTalk) -> list[Pair]:
    """Requests with their answers, first in first out, by counting."""
    answers = list(talk.broker)
    pairs = []
    is_push = False
    for request in talk.client:
        answer: NaiveFrame | None = None
        if request.command == "STREAM" and not is_push:
            rest = [each for each in answers if each.command != "KEEPALIVE"]
            answer = rest[0] if rest else None
            if answer is not None and answer.is_error:
                answers = answers[answers.index(answer) + 1 :]
            else:
                is_push, answers = True, []
                answer = None if answer and answer.command == "STREAM_CONTROL" else answer
        elif answers and not is_push:
            answer = answers.pop(0)
            if request.command == "READ_STREAM" and not answer.is_error and answers:
                answer = answers.pop(0)
        pairs.append(Pair(request, answer))
    return pairs


def details(frame: NaiveFrame) -> dict[str, Any]:
    """The arguments of a command."""
    head = frame.line.split(b"message=")[0].split(b"payload=")[0]
    return dict(
        (name.decode(), value)
        for name, is_given, value in (word.partition(b"=") for word in head.split()[1:])
        if is_given
    )
