"""Whatever a capture lacks, its beginning or packets: its frames are frames of the whole."""

import gzip
import random
import struct
from collections import Counter
from functools import cache

import lz4.frame
import pytest

from tests.anycut import bytes_of, rows_of
from tests.choosing import examples
from tests.dissector.joining.cutting import packets, parts
from tests.dissector.observed import CAPTURES, CURSUS_CASES, Tables, few_cases, name_of
from tests.dissector.tls.seen import CAPTURES as TLS
from tests.dissector.tls.seen import rows_seen
from tests.hard.damage import Tap
from tests.hard.tape import Tape, capture, dissected
from tests.wire import cursus
from tests.wire.captures import Record
from tests.wire.packets import BROKER

BEGINNINGS = examples(40, 6)
# Payloads as clients send them: what looks like an answer or a command, alone or in a batch.
PAYLOADS = (
    b"m-04001", b"OK", b"LIST", b"4", b"ERROR: no disk", b'{"status": "new", "order": 7}',
)  # fmt: skip


def framed(tables: Tables) -> Counter[tuple]:
    """The frames of each client, by what they are: times may be those of a copy that came later."""
    clients = {each["connection_id"]: each["client_port"] for each in tables["connections"]}
    return Counter(
        (clients[row["connection_id"]], row["direction"], row["command"], row["frame_bytes"])
        for row in tables["frames"]
    )


@cache
def whole(name: str) -> tuple[bytes, Counter[tuple]]:
    data = bytes_of(CAPTURES / name)
    return data, framed(rows_of(data))


def invented(damaged: bytes, frames: Counter[tuple]) -> Counter[tuple]:
    """The frames of a damaged capture that the whole does not have."""
    return more(framed(rows_of(damaged)), frames)


def more(found: Counter[tuple], frames: Counter[tuple]) -> Counter[tuple]:
    """Frames that others lack. Of one of which little is there the command is not known."""
    sizes = Counter((*key[:2], key[3]) for key in frames.elements())
    unread = Counter({(*key[:2], key[3]): count for key, count in found.items() if not key[2]})
    return Counter({key: n for key, n in found.items() if key[2]}) - frames or unread - sizes


def without(share: float, draw: random.Random, records: list[bytes]) -> list[bytes]:
    return [record for record in records if draw.random() >= share]


def clipped(snaplen: int, records: list[bytes]) -> list[bytes]:
    """Packets as with `tcpdump -s`."""
    shown = []
    for record in records:
        captured, sent = struct.unpack_from("<II", record, 8)
        sizes = struct.pack("<II", min(captured, snaplen), sent)
        shown.append(record[:8] + sizes + record[16 : 16 + snaplen])
    return shown


each_sample = pytest.mark.parametrize("name", [*map(name_of, few_cases(CURSUS_CASES))])


@each_sample
def test_frames_behind_any_packet_are_frames_of_the_whole(name: str) -> None:
    data, frames = whole(name)
    last = len(packets(data)) - 1
    for place in random.Random(name).sample(range(1, last), min(BEGINNINGS, last - 1)):
        assert not invented(parts(data, [place])[1], frames), f"behind packet {place}"
    assert frames


@each_sample
def test_frames_of_a_capture_that_lacks_something_are_frames_of_the_whole(name: str) -> None:
    data, frames = whole(name)
    header, *records = packets(data)
    draw = random.Random(name)
    for shown in (
        without(0.02, draw, records),
        without(0.3, draw, records),
        clipped(96, records),
        clipped(200, without(0.1, draw, records)),
    ):
        assert not invented(header + b"".join(shown), frames)


@pytest.mark.parametrize("name", sorted(path.stem for path in TLS.glob("*.keys")))
def test_frames_inside_tls_are_frames_of_the_whole(name: str) -> None:
    """Copies and late packets lose none, also where the server's hello comes first."""
    data, keys = bytes_of(TLS / f"{name}.pcap"), (TLS / f"{name}.keys").read_bytes()
    tap = Tap.read(data)
    frames = framed(rows_seen(data, keys))
    assert frames
    draw = random.Random(name)
    for seed in range(BEGINNINGS):
        for late in (tap.shuffled(2.0, seed), tap.doubled(0.3, seed)):
            assert framed(rows_seen(late.bytes(), keys)) == frames, seed
        behind = parts(data, [draw.randrange(1, len(tap.records) - 1)])
        snapped = tap.snapped(draw.choice((60, 200, 500, 1000)))
        for damaged in (*behind, tap.without(0.1, seed).bytes(), snapped.bytes()):
            found = rows_seen(damaged, keys)
            assert "frames" not in found or not more(framed(found), frames), seed


def test_a_compressed_batch_is_the_frame_and_not_what_its_first_bytes_say() -> None:
    """An LZ4 frame begins with a batch's header as it was: 33 million records were read from it."""
    data, frames = whole("cursus/go-batch_lz4_precreated.pcap")
    behind = rows_of(parts(data, [42])[1])
    assert not framed(behind) - frames
    assert 715 in {row["frame_bytes"] for row in behind["frames"] if row["command"] == "BATCH"}


def talk(to_broker: bool, payload: bytes, layout: str) -> list[tuple[bool, bytes]]:
    """Batches of one side, and what the other one asks or answers."""
    records = cursus.records(40, payload=payload, offset=None if to_broker else 500)
    batch = to_broker, cursus.batch(records, layout=layout, acks=b"1")
    if to_broker:
        other = False, cursus.ack(39, 1, 40)
        return [batch, other, batch, other, (True, cursus.bare("COMMIT topic=t1")), batch, other]
    other = True, cursus.bare("CONSUME topic=t1 partition=0 offset=500")
    return [other, batch, other, batch, other, (False, cursus.bare("OK")), batch]


def found_behind(lost: int, tape: Tape) -> Counter[tuple[str, int]]:
    """The frames of a capture without the first packets of a tape."""
    shown = [each for each in tape.packets[lost:] if each.payload]
    tables = dissected(capture([Record(each.ts_ns, tape.whole(each)) for each in shown]))
    return Counter((row["direction"], row["frame_bytes"]) for row in tables.get("frames", []))


@pytest.mark.parametrize("layout", cursus.LAYOUTS)
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("mss", [1, 100, 1400])
def test_what_is_left_of_a_batch_holds_no_frames(layout: str, payload: bytes, mss: int) -> None:
    """A record's length and payload, and the zeros behind the last one, look like frames whose
    chain ends where the batch does; only where one happens to begin a packet nothing tells it from
    a frame."""
    for to_broker in (True, False):
        tape = Tape(mss=mss, broker=(BROKER, 9000))
        said = talk(to_broker, payload, layout)
        # The other side is seen first, and shows who is who.
        (_, batch), (_, other) = sorted(said[:2], key=lambda each: each[0] is not to_broker)
        tape.say(to_broker, batch[: len(batch) // 3])
        lost = len(tape.packets)
        for _ in range(2):
            tape.say(not to_broker, other)
        tape.say(to_broker, batch[len(batch) // 3 :])
        for side, frame in said[2:]:
            tape.say(side, frame)
        frames = Counter(
            ("to_broker" if side else "to_client", len(frame))
            for side, frame in (*said, said[1], said[0])
        )
        found = found_behind(lost, tape)
        assert found and not found - frames, to_broker


@pytest.mark.parametrize("payload", PAYLOADS)
def test_zeros_that_do_not_begin_a_packet_are_no_signs_of_life(payload: bytes) -> None:
    """The last record's length happens to begin a packet: behind it come its payload, and zeros."""
    for to_broker in (True, False):
        tape = Tape(broker=(BROKER, 9000))
        said = talk(to_broker, payload, "cur")
        at = next(number for number, (side, _) in enumerate(said) if side is to_broker)
        cut = len(said[at][1]) - 16 - len(payload) - 4
        tape.say(to_broker, said[at][1][:cut])
        tape.say(to_broker, said[at][1][cut:])
        for side, frame in said[at + 1 :]:
            tape.say(side, frame)
        found = found_behind(1, tape)
        assert found and not [size for _, size in found if size == 4], found


def test_a_mark_of_compression_tells_no_protocol() -> None:
    """Others compress as well: only what a body begins with tells, where that is there."""
    packed = lz4.frame.compress(random.Random(2).randbytes(90))
    tape = Tape(broker=(BROKER, 9000))
    for size in (4, 8, 14, 40):
        tape.say(True, cursus.frame(packed)[: 4 + size])
        (row,) = dissected(capture(tape.records()))["connections"]
        assert row["protocol"] == "unknown", size
        tape = Tape(broker=(BROKER, 9000))


def test_a_batch_that_is_cut_counts_no_more_messages_than_fit() -> None:
    made = bytearray(cursus.batch(cursus.records(40)))
    claimed = made.index(struct.pack(">QQi", 1, 40, 40)) + 16
    for count, shown in ((48, 48), (1 << 25, None), (-1, None)):
        made[claimed : claimed + 4] = struct.pack(">i", count)
        tape = Tape()
        tape.open()
        tape.say(True, cursus.vector("CREATE") + bytes(made[:200]))
        _, row = dissected(capture(tape.records()))["frames"]
        assert (row["status"], row["message_count"]) == ("cut_by_end", shown)


def test_a_connection_may_begin_with_a_batch_that_claims_too_much() -> None:
    """What a broker refused with "message count too high": a client sent it, and goes on."""
    made = cursus.frame(
        bytes.fromhex("ba7c0001410000000001310000000000000000000000000000000000000186a1")
    )
    tape = Tape()
    tape.open()
    tape.say(True, bytes(made))
    tape.say(False, cursus.bare('ERROR: batch_decode_failed reason="message count too high"'))
    tape.say(True, cursus.enveloped("LIST"))
    tape.say(False, cursus.bare("OK count=0 topics="))
    rows = dissected(capture(tape.records()))["frames"]
    assert {(row["command"], row["status"]) for row in rows} == {
        ("BATCH", "malformed"), ("RESPONSE_ERROR", "complete"), ("LIST", "complete"),
        ("RESPONSE_OK", "complete"),
    }  # fmt: skip


def test_what_is_compressed_and_cut_may_be_any_command() -> None:
    tape = Tape()
    tape.open()
    tape.say(True, cursus.vector("CREATE"))
    tape.say(True, cursus.frame(gzip.compress(cursus.batch_body(cursus.records(40))))[:60])
    rows = dissected(capture(tape.records()))["frames"]
    assert [row["command"] for row in rows] == ["CREATE", None]
