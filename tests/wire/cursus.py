"""Builds Cursus frames by hand: lines, envelopes, answers and batches in all four layouts."""

import struct
from typing import Any, NamedTuple

LAYOUTS = ("cur", "seed", "apr26", "v010")

# Whole frames as hexadecimal digits, put together by another encoder.
VECTORS = {
    "CREATE": "000000230005" + b"adminCREATE topic=t1 partitions=1".hex(),
    "METADATA": "000000130000" + b"METADATA topic=t1".hex(),
    "batch": (
        "00000056ba7c00027431000000000131000000000000000001000000000000000100000001"
        "000000000000000000000000000000010002703100016b0000000000000007000000026869"
        "00000000000000000000000000000000"
    ),
    "empty answer": (
        "00000021ba7c000274310000000001310000000000000000000000000000000000"  # seqStart, seqEnd
        "00000000"
    ),
    "keepalive": "00000000",
    "ack": "0000005f"
    + (
        b'{"status":"OK","last_offset":0,"producer_epoch":7,"producer_id":"p1",'
        b'"seq_start":1,"seq_end":1}'
    ).hex(),
    "close": "00000032" + b"STREAM_CONTROL type=CLOSE reason=replaced offset=3".hex(),
}


def vector(name: str) -> bytes:
    """A whole frame of VECTORS."""
    return bytes.fromhex(VECTORS[name])


class Record(NamedTuple):
    """One record of a batch."""

    seq_num: int = 1
    payload: bytes = b"hi"
    offset: int = 0
    producer: bytes = b"p1"
    key: bytes = b""
    epoch: int = 7
    event_type: bytes = b""
    schema_version: int = 0
    aggregate_version: int = 0
    metadata: bytes = b""


def frame(body: bytes) -> bytes:
    """A body after its length."""
    return struct.pack(">I", len(body)) + body


def short(text: bytes) -> bytes:
    """A text after its length in two bytes."""
    return struct.pack(">H", len(text)) + text


def enveloped(line: str | bytes, topic: bytes = b"") -> bytes:
    """A frame with a command in an envelope."""
    return frame(short(topic) + (line.encode() if isinstance(line, str) else line))


def bare(line: str | bytes) -> bytes:
    """A frame with a bare command or an answer."""
    return frame(line.encode() if isinstance(line, str) else line)


def record_bytes(record: Record, layout: str = "cur") -> bytes:
    """One record."""
    made = struct.pack(">QQ", record.offset, record.seq_num)
    made += short(record.producer) + short(record.key)
    made += struct.pack(">qI", record.epoch, len(record.payload)) + record.payload
    if layout in ("cur", "seed"):
        made += short(record.event_type)
        made += struct.pack(">IQ", record.schema_version, record.aggregate_version)
        made += short(record.metadata)
    return made


def batch_body(
    records: list[Record],
    topic: bytes = b"t1",
    partition: int = 0,
    acks: bytes = b"1",
    idempotent: int = 0,
    layout: str = "cur",
) -> bytes:
    """The body of a batch; sequence numbers as those of the first and last record."""
    made = struct.pack(">H", 0xBA7C) + short(topic)
    if layout == "seed":
        made += short(str(partition).encode()) + short(acks)
    else:
        made += struct.pack(">iB", partition, len(acks)) + acks
    if layout != "v010":
        made += bytes([idempotent])
    first = records[0].seq_num if records else 0
    last = records[-1].seq_num if records else 0
    made += struct.pack(">QQi", first, last, len(records))
    return made + b"".join(record_bytes(record, layout) for record in records)


def batch(records: list[Record], **options: Any) -> bytes:
    """A frame with a batch."""
    return frame(batch_body(records, **options))


def records(count: int, first: int = 1, offset: int | None = None, **fields: Any) -> list[Record]:
    """Records with rising sequence numbers; offset: of the first, if a broker sends them."""
    return [
        Record(first + at, offset=0 if offset is None else offset + at, **fields)
        for at in range(count)
    ]


def ack(last_offset: int, start: int, end: int, producer: str = "p1", epoch: int = 7) -> bytes:
    """A frame with the answer to a batch."""
    return bare(
        f'{{"status":"OK","last_offset":{last_offset},"producer_epoch":{epoch},'
        f'"producer_id":"{producer}","seq_start":{start},"seq_end":{end}}}'
    )
