"""What is fuzzed: functions of bytes that must come back, whatever the bytes are.

Each turns its bytes into input of one layer, reads it twice in different ways (with other bytes
around the buffer, or cut into pieces), wants the same rows both times and that they add up. An
exception, different rows, sums that do not close and a run without end are what a fuzzer looks for.
"""

import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dissector.blocks import TableBlock
from dissector.dissection import Dissection, Options
from dissector.schemas.rows import arrow_batch
from dissector.sources.files import Buffer, ChainReader, FileEnd
from tests.accounting import check, check_report
from tests.hard.tape import START_NS, STEP_NS, Tables, Tape, capture, talk
from tests.numbers import Numbers
from tests.plain import rows_of_block
from tests.wire.captures import Record
from tests.wire.packets import ACK, SYN

Target = Callable[[bytes], None]

LINK_TYPES = (1, 0, 9, 12, 101, 108, 113, 228, 229, 239, 276)
_FILE_BYTES_PER_INPUT_BYTE = 1 << 20  # what the best of compressors makes of one byte, and more


def rows_of(data: bytes, around: int = 0xEE, steps: Sequence[int] = ()) -> Tables:
    """The rows of a capture file.

    Args:
        around: what stands before and behind the buffer.
        steps: how many bytes come at once, again and again; none = all.
    """
    room = bytes([around]) * 64
    array = np.frombuffer(room + data + room, np.uint8).copy()
    dissection = Dissection(Options(properties=True, payload_sha256=True, want_detail="all"))
    blocks: list[TableBlock] = []
    dissection.start_file()
    position = end = len(room)
    last = len(room) + len(data)
    turn = 0
    while True:
        end = min(last, end + steps[turn % len(steps)]) if steps else last
        turn += 1
        position, found = dissection.feed(array, position, end, end == last)
        blocks += found
        if end == last:
            break
    facts, counts = dissection.end_file()
    blocks += dissection.finish()
    tables: Tables = {}
    for block in blocks:
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    tables["capture_files"] = [{
        "packets": facts.packets,
        "packets_tcp": counts.used,
        "packets_ignored_by_reason": list(counts.ignored.items()),
    }]  # fmt: skip
    return tables


def examine(data: bytes, choice: int) -> None:
    """A capture file read in two ways. choice: which ways."""
    tables = rows_of(data)
    check(tables)
    if choice % 8 == 0:
        again = rows_of(data, around=0x00)
    else:
        again = rows_of(data, steps=(1 + choice * choice % 977, 61, 4099))
    assert tables == again, "the rows depend on how the bytes are cut, or on what is around them"


def summarise(data: bytes) -> None:
    """The numbers of a capture file."""
    summary = Numbers()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "night.pcap"
        path.write_bytes(data)
        from dissector.errors import InputError
        from dissector.sources.dissect import dissect
        from dissector.sources.rings import Chain

        try:
            for block in dissect(Chain((str(path),), "night"), Options()):
                summary.add(block.table, arrow_batch(block), "night")
        except InputError:
            return
    check_report(summary.result())


def files(data: bytes) -> None:
    """Files as they lie on a disk, compressed or not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "night.pcap"
        path.write_bytes(data)
        read = 0
        with ChainReader([str(path)]) as source:
            for event in source:
                if isinstance(event, Buffer):
                    read += event.end - event.start
                    event.consumed = event.end
                    assert read <= len(data) * _FILE_BYTES_PER_INPUT_BYTE
                elif isinstance(event, FileEnd):
                    assert event.file_bytes == read
        assert source.files_read + sum(each.is_fatal for each in source.problems) == 1


def dissection(data: bytes) -> None:
    """Whole capture files."""
    examine(data, len(data))
    if len(data) % 5 == 0:
        summarise(data)


def packets(data: bytes) -> None:
    """Packets of some link layer: the first byte says of which, then each packet its length."""
    choice, at = data[:1], 1
    records = []
    while at + 2 <= len(data):
        size = struct.unpack_from(">H", data, at)[0] % 2048
        body = data[at + 2 : at + 2 + size]
        records.append(Record(START_NS + len(records) * STEP_NS, body, size))
        at += 2 + size
    link_type = LINK_TYPES[sum(choice) % len(LINK_TYPES)]
    examine(capture(records, link_type=link_type), len(data))


def streams(data: bytes) -> None:
    """Segments of one conversation in any order, at any place, with any flags.

    Each takes six bytes: flags, direction and spoiling; where in the stream; how long; what it
    acknowledges.
    """
    tape = talk(3, sizes=(40, 700, 3000))
    sent = [bytes(each) for each in tape.sent]
    isn = (1000, 500_000)
    made: list[Record] = []
    for at in range(0, len(data) - 5, 6):
        flags, how, start, size, acked = struct.unpack_from(">BBHBB", data, at)
        side = how & 1
        scale = (1, 1, 64, 1 << 16)[how >> 1 & 3]
        offset = start * scale if how & 8 else start % (len(sent[side]) + 1)
        payload = sent[side][offset : offset + size * 8] if how & 8 == 0 else bytes(size)
        if how & 16:
            payload = payload[:-1] + b"?"
        packet = tape.packets[0]._replace(
            ts_ns=START_NS + at * STEP_NS * (-1 if how & 32 else 1),
            to_broker=side == 0,
            sequence=isn[side] + 1 + offset - bool(flags & SYN) & 0xFFFF_FFFF,
            acknowledgement=isn[1 - side] + acked * 32,
            flags=flags & 0x3F | (ACK if how & 64 else 0),
            payload=payload,
            identification=at & 0xFFFF,
        )
        whole = tape.whole(packet)
        made.append(Record(packet.ts_ns, whole[: len(whole) - (7 if how & 128 else 0)], len(whole)))
    examine(capture(made), len(data))


def frames(data: bytes) -> None:
    """Bytes in the streams of a connection that began well, in turns of both sides."""
    tape = Tape(mss=700)
    tape.open()
    tape.connect()
    at = turn = 0
    while at < len(data):
        size = 1 + data[at] * 4
        tape.say(turn % 2 == 0, data[at + 1 : at + 1 + size])
        at += 1 + size
        turn += 1
    tape.close()
    examine(capture(tape.records()), len(data))


def fields(data: bytes) -> None:
    """Commands, metadata and payloads of frames that are whole: each says its lengths rightly."""
    tape = Tape()
    tape.open()
    tape.connect()
    at = 0
    while at + 3 <= len(data):
        how, command_bytes, rest_bytes = data[at], data[at + 1], data[at + 2]
        command = data[at + 3 : at + 3 + command_bytes]
        rest = data[at + 3 + command_bytes : at + 3 + command_bytes + rest_bytes]
        at += 3 + command_bytes + rest_bytes
        if how & 2:
            rest = struct.pack(">I", len(rest) if how & 4 else how) + rest
        body = struct.pack(">I", len(command)) + command + rest
        tape.say(how & 1 == 0, struct.pack(">I", len(body)) + body)
    tape.close()
    examine(capture(tape.records()), len(data))


TARGETS: dict[str, Target] = {
    each.__name__: each for each in (files, packets, streams, frames, fields, dissection)
}
