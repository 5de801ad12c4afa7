"""A redacted capture holds no secret in any byte and reads as the raw one does, but for these."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest

from dissector.dissection import Options
from dissector.evidence.redacted import RAW_BYTES, hidden_sentence, redact_capture
from tests.hard.tape import Row, Tables, Tape, capture, dissected, send
from tests.wire import cursus, packets, tunnels
from tests.wire.captures import Record
from tests.wire.fragments import fragments
from tests.wire.secrets import Garden, cursus_tape, pulsar_tape

MARK = re.compile(r"<redacted: (\d+) bytes>")
# What hiding changes beside texts: the sums of what is hidden, and what says that it was hidden.
CHANGED = {"crc32c_stored", "crc32c_computed", "sha256", "file_bytes", "key_hash"}
SAMPLE = Path(__file__).resolve().parents[3] / "captures/cursus/go-ipv6_loopback.pcap"
MAKERS = (pulsar_tape, cursus_tape)


def without_texts(rows: list[Row]) -> list[Row]:
    """Rows without what hiding may change: every text that holds a secret is but its length."""
    return [
        {
            name: "text" if isinstance(value, str) and is_hidden(value) else value
            for name, value in row.items()
            if name not in CHANGED
        }
        for row in rows
    ]


def is_hidden(text: str) -> bool:
    return "**" in text or "2a2a" in text or MARK.search(text) is not None or "3c7265646163" in text


def assert_same(raw: Tables, redacted: Tables) -> None:
    for tables in (raw, redacted):
        tables["notices"] = [row for row in tables["notices"] if row["code"] != "redacted"]
        tables.pop("capture_files")
    assert {name: without_texts(rows) for name, rows in raw.items()} == {
        name: without_texts(rows) for name, rows in redacted.items()
    }


def redacted(raw: bytes) -> bytes:
    out = bytearray(raw)
    assert redact_capture(out, Options()) > 0
    assert len(out) == len(raw)
    return bytes(out)


def test_a_batch_in_a_bare_snappy_block_goes_as_a_whole() -> None:
    """What is said twice stands there once: the second secret has no key before it."""
    member = b'{"account":"first one","password":"%b"}'
    payloads = [member % secret for secret in (b"abcdefgh", b"xYz")]
    records = [record for each in payloads for record in cursus.records(1, payload=each)]
    packed = bytes(cramjam.snappy.compress_raw(cursus.batch_body(records)))
    assert b'"password":"xYz"' not in packed and b"xYz" in packed
    tape = Tape(broker=("10.0.0.2", 9000))
    tape.open()
    tape.frame(True, cursus.enveloped("METADATA topic=t1"))
    tape.frame(False, cursus.bare("OK partitions=1"))
    tape.frame(True, cursus.frame(packed))
    tape.frame(False, cursus.ack(1, 1, 2))
    tape.close()
    raw = capture(tape.records())
    out = redacted(raw)
    assert b"xYz" not in out and b"*" * (len(packed) - 6) in out
    commands = [row["command"] for row in dissected(raw)["frames"]]
    assert commands[2:] == ["BATCH", "RESPONSE_JSON"]


def assert_clean(data: bytes, garden: Garden) -> None:
    """No secret in the file nor in the streams that come of it."""
    told = repr(dissected(data, redact=False, want_detail="all", properties=True))
    for each in garden.planted:
        assert each.secret.encode() not in data and each.secret not in told, each


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("seed", "mss"), [(11, 1448), (12, 37), (13, 5)])
def test_no_byte_of_a_secret_stays_and_rows_are_the_same(
    make: Callable[..., Tape], seed: int, mss: int
) -> None:
    garden = Garden(seed)
    raw = capture(make(garden, mss).records())
    clean = redacted(raw)
    assert_clean(clean, garden)
    assert_same(dissected(raw), dissected(clean))


def retransmitted(tape: Tape, chance: random.Random) -> None:
    """Segments once more, later, cut otherwise."""
    for packet in list(tape.packets):
        size = len(packet.payload)
        if size > 8 and chance.random() < 0.5:
            start, end = chance.randrange(size // 2), chance.randrange(size // 2 + 1, size + 1)
            tape.packets.append(
                packet._replace(
                    ts_ns=packet.ts_ns + 300_000,
                    sequence=packet.sequence + start & 0xFFFF_FFFF,
                    payload=packet.payload[start:end],
                )
            )
    tape.packets.sort(key=lambda packet: packet.ts_ns)


def test_retransmissions_are_hidden_too() -> None:
    garden = Garden(21)
    tape = pulsar_tape(garden, 50)
    retransmitted(tape, garden.chance)
    raw = capture(tape.records())
    clean = redacted(raw)
    assert_clean(clean, garden)
    tables = dissected(clean)
    assert_same(dissected(raw), tables)
    assert not [row for row in tables["notices"] if row["code"] == "overlap_conflict"]


def test_bytes_that_lost_against_others_are_searched_by_themselves() -> None:
    garden = Garden(22)
    tape = Tape()
    tape.open()
    tape.connect()
    tape.publish(1, b"x" * 64)
    (place,) = [k for k, each in enumerate(tape.packets) if b"x" * 64 in each.payload]
    packet = tape.packets[place]
    other = packet.payload[:-64] + b" password=Zq9-other ".ljust(64, b"y")
    tape.packets.insert(place + 1, packet._replace(payload=other, ts_ns=packet.ts_ns + 1000))
    clean = redacted(capture(tape.records()))
    assert b"Zq9-other" not in clean and b"x" * 64 in clean
    assert not garden.planted


def test_what_contradicts_a_stream_goes_also_where_no_frames_are_read() -> None:
    """Of HTTP, too, as nothing tells what such bytes belong to; the stream itself is searched."""
    tape = Tape()
    tape.open()
    tape.say(True, b"GET /stats HTTP/1.1\r\nhost: a\r\nx: 0123456789\r\n\r\n")
    (packet,) = [each for each in tape.packets if b"GET" in each.payload]
    other = packet.payload.replace(b"0123456789", b"ab Zq9-half")[: len(packet.payload)]
    tape.packets.append(packet._replace(payload=other, ts_ns=packet.ts_ns + 1000))
    clean = redacted(capture(tape.records()))
    assert b"Zq9" not in clean and b"x: 0123456789" in clean and b"GET /stats" in clean


@pytest.mark.parametrize("link_type", [1, 147])
def test_packets_that_nobody_reads_are_searched_too(link_type: int) -> None:
    packet = b"\0" * 14 + b" token=Zq8word "
    raw = capture([Record(10**18, packet)], link_type)
    assert b"Zq8word" not in redacted(raw)


def test_plain_fragments_stay_and_so_does_their_padding() -> None:
    records = []
    tape = Tape()
    tape.open()
    tape.connect()
    tape.publish(1, b"x" * 300)
    for record in tape.records():
        for k, packet in enumerate(in_fragments(record.data[14:])):
            padded = packets.ethernet(packet).ljust(60, b"\0")
            records.append(Record(record.ts_ns + k, padded))
    plain = bytearray(capture(records))
    before = bytes(plain)
    assert redact_capture(plain, Options()) == 0 and bytes(plain) == before


def in_fragments(packet: bytes) -> list[bytes]:
    return fragments(packet, [8, 40, 88]) if len(packet) > 200 else [packet]


def vxlan(packet: bytes) -> bytes:
    return tunnels.over_udp(tunnels.vxlan(packets.ethernet(packet)), 4789)


def in_fragments_of_fragments(packet: bytes) -> list[bytes]:
    """Outer ones of one packet are apart from those of the next: an inner one may wait for long."""
    inner = fragments(packet, [32, 64])
    return [
        outer
        for number, piece in enumerate(inner)
        for outer in fragments(tunnels.over_ip(piece, 4), [24], 100 + number)
    ]


WRAPS: dict[str, Callable[[bytes], list[bytes]]] = {
    "vxlan": lambda packet: [vxlan(packet)],
    "gre": lambda packet: [tunnels.over_ip(tunnels.gre(packet, 0x0800), 47)],
    "fragments": in_fragments,
    "fragments, some once more": lambda packet: in_fragments(packet) + in_fragments(packet)[1:2],
    "fragments in fragments": in_fragments_of_fragments,
    "fragments in fragments, some once more": lambda packet: (
        in_fragments_of_fragments(packet) + in_fragments_of_fragments(packet)[2:4]
    ),
    "vxlan in fragments": lambda packet: in_fragments(vxlan(packet)),
}


@pytest.mark.parametrize("name", WRAPS)
def test_tunnels_and_fragments(name: str) -> None:
    garden = Garden(31)
    records = []
    for record in pulsar_tape(garden).records():
        for k, packet in enumerate(WRAPS[name](record.data[14:])):
            records.append(Record(record.ts_ns + k, packets.ethernet(packet)))
    raw = capture(records)
    tables = dissected(raw)
    assert len(tables["frames"]) > 50, "the test's own wrapping can be read"
    clean = redacted(raw)
    assert_clean(clean, garden)
    assert_same(tables, dissected(clean))
    assert_sums_are_right(clean)


def test_what_is_no_segment_is_searched_in_fragments_too() -> None:
    text = b"login user=joe password=hunter2hunter2 at last " + b"x" * 100
    whole = packets.ipv4(packets.udp(text, 5, 514), protocol=17)
    base = pulsar_tape(Garden(3)).records()
    for cuts in ([], [40], [64], [24, 48]):
        pieces = fragments(whole, cuts) if cuts else [whole]
        records = [Record(base[0].ts_ns, packets.ethernet(piece)) for piece in pieces]
        clean = redacted(capture(records + base))
        assert b"hunter2" not in clean, cuts
    assert b"login user=joe" in clean


def assert_sums_are_right(data: bytes) -> None:
    strict = dissected(data, verify_checksums=True)
    assert not strict["capture_files"][0]["packets_ignored_by_reason"] or not [
        reason
        for reason, _ in strict["capture_files"][0]["packets_ignored_by_reason"]
        if "checksum" in reason
    ]


def test_right_sums_stay_right_and_wrong_ones_wrong() -> None:
    garden = Garden(41)
    tape = pulsar_tape(garden)
    broken = bytearray(send(9, b"a password=" + garden.secret().encode() + b" z"))
    broken[-1] ^= 1
    tape.packets = tape.packets[:-3]
    tape.frame(True, bytes(broken))
    clean = redacted(capture(tape.records()))
    assert_clean(clean, garden)
    assert_sums_are_right(clean)
    checks = [row["checksum"] for row in dissected(clean)["frames"] if row["command"] == "SEND"]
    assert checks == ["ok"] * 5 + ["mismatch"]
    damaged = [
        each._replace(is_damaged=bool(each.payload)) if k % 3 else each
        for k, each in enumerate(tape.packets)
    ]
    count = sum(each.is_damaged for each in damaged)
    tape.packets = damaged
    (found,) = dissected(redacted(capture(tape.records())), verify_checksums=True)["capture_files"]
    assert dict(found["packets_ignored_by_reason"])["bad_tcp_checksum"] == count


def test_the_rest_of_what_began_before_the_capture_is_hidden() -> None:
    garden = Garden(51)
    tape = Tape(mss=100)
    tape.open()
    tape.frame(True, garden.command("CONNECT"))
    tape.connect()
    for number in range(5):
        tape.publish(number, b"plain")
    tape.packets = tape.packets[4:]
    assert_clean(redacted(capture(tape.records())), garden)


def test_other_packets_are_searched_and_plain_captures_stay() -> None:
    packet = packets.ethernet(packets.ipv4(packets.udp(b"x token=Zq8word y", 5, 6), protocol=17))
    assert b"Zq8word" not in redacted(capture([Record(10**18, packet)]))
    plain = bytearray(capture([Record(10**18, packet.replace(b"token", b"fence"))]))
    before = bytes(plain)
    assert redact_capture(plain, Options()) == 0 and bytes(plain) == before


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_never_raise(seed: int) -> None:
    chance = random.Random(seed)
    raw = capture(pulsar_tape(Garden(seed), 90).records())
    for _ in range(8):
        data = bytearray(raw[: chance.randrange(len(raw))])
        for _ in range(30):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        size = len(data)
        redact_capture(data, Options())
        assert len(data) == size


def test_sentences_say_what_is_in_the_file() -> None:
    said: Any = [RAW_BYTES, hidden_sentence(0), hidden_sentence(12_345)]
    assert said[0].startswith("raw bytes") and "--redact" in said[0]
    assert said[1:] == ["no secret was found in it", "12,345 bytes of secrets hidden"]


def test_frames_of_which_no_command_is_known_go_as_a_whole() -> None:
    """All frames of a block, as here the one in a hole at the end: no column says what they are."""
    whole, at, kept = SAMPLE.read_bytes(), 24, []
    while at < len(whole):
        size = 16 + int.from_bytes(whole[at + 8 : at + 12], "little")
        kept.append(whole[at : at + size])
        at += size
    del kept[6::7]
    raw = whole[:24] + b"".join(kept)
    cut = [row for row in dissected(raw)["frames"] if row["command"] is None][-1]
    assert cut["status"] == "cut_by_gap" and cut["frame_bytes"] == 154
    complete, clean = (
        sorted(row["command"] for row in dissected(each)["frames"] if row["status"] == "complete")
        for each in (raw, redacted(raw))
    )
    assert len(complete) > 20 and clean == complete
