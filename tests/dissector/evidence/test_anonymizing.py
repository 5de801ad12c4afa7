"""An anonymous copy says what the capture says, and holds nothing of it that names anything.

Here are tested through it: dissector.evidence.anonymizer, streams, packets, pieces.
"""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dissector.dissection import Options
from dissector.evidence import anonymizer, ip_fragments, packets, streams  # noqa: F401 - see above
from dissector.packet.fragments import Place
from dissector.packet.walk import NO_END
from dissector.protocols.framing import look
from dissector.sources.dissect import dissect_bytes
from dissector.sources.packet_blocks import blocks_of_bytes
from tests.dissector.evidence.copies import anonymous
from tests.dissector.evidence.sameness import assert_same
from tests.dissector.evidence.test_redacted import WRAPS, retransmitted
from tests.hard.cases import few_cases
from tests.hard.tape import Tape, capture, dissected
from tests.wire import packets as wire
from tests.wire import pulsar, tunnels
from tests.wire.captures import Record, pcapng
from tests.wire.fragments import fragments
from tests.wire.secrets import Garden, cursus_tape, pulsar_tape

CAPTURES = Path(__file__).resolve().parents[3] / "captures"
SAMPLES = (
    *("pulsar-apache/java-j24_unload.pcap", "pulsar-apache/java-j74_corrupt.pcap"),
    *("pulsar-apache/java-j16_dlq_retry.pcap", "pulsar-apache/java-j83_haproxy-v1.pcap"),
    *("pulsar-apache/java-j35_tls.pcap", "pulsar-apache/java-j34_http_lookup.pcap"),
    *("pulsar-apache/mut-snap200-java-j03_batch_lz4.pcap", "pulsar-apache/java-j80_geo-link.pcap"),
    *("pulsar-apache/mut-loss1-java-j24_unload.pcap", "pulsar-apache/java-j03_batch_zlib.pcap"),
    *("pulsar-apache/java-j32_encryption.pcap", "pulsar-apache/go-g06_txn-bem.pcap"),
    *("pulsar-apache/mut-dup-java-j12_nack_batch.pcap", "pulsar/cpp-s03_batch_lz4.pcap"),
    *("pulsar/var-dumpcap.pcapng", "pulsar/var-any-sll1.pcap", "pulsar/fake-f08_badcrc.pcap"),
    *("cursus/go-batch_gzip.pcap", "cursus/raw-commands_all.pcap", "cursus/tls-mixed.pcap"),
    *("cursus/py-txn_token_in_payload.pcap", "cursus/v010-publisher_consumer.pcap"),
)
# Files that are damaged or odd as files; the copy is a sound one of the same packets.
OF_FILES = ("B11", "B12", "B13", "B14")
# A frame that contradicts itself in where its entry begins.
ODD_FRAMES = ("body_longer_than_its_command",)
CASES = [
    each for each in few_cases() if each.id not in OF_FILES and each.words not in ODD_FRAMES
    and each.words != "filter_without_packets"  # comments are not copied
]  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_capture_gives_the_same_numbers(name: str) -> None:
    raw = (CAPTURES / name).read_bytes()
    assert_same(dissected(raw), dissected(anonymous(raw)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id}-{case.words}")
def test_a_hard_capture_gives_the_same_numbers(case) -> None:  # type: ignore[no-untyped-def]
    raw = case.make()
    assert_same(dissected(raw), dissected(anonymous(raw)))


def assert_clean(data: bytes, garden: Garden) -> None:
    for each in garden.planted:
        assert each.secret.encode() not in data, each


@pytest.mark.parametrize("make", [pulsar_tape, cursus_tape])
@pytest.mark.parametrize("keeping", [{}, {"names": True, "addresses": True}], ids=["all", "kept"])
@pytest.mark.parametrize("mss", [1448, 37, 5])
def test_no_secret_is_left_in_any_byte(
    make: Callable[..., Tape], keeping: dict[str, bool], mss: int
) -> None:
    garden = Garden(11)
    raw = capture(make(garden, mss).records())
    made = anonymous(raw, **keeping)
    for each in garden.planted:
        assert each.secret.encode() not in made, each
    if not keeping:
        assert_clean(made, garden)
        assert_same(dissected(raw), dissected(made), but=HIDDEN_ALIKE)


def test_retransmissions_say_what_the_stream_says() -> None:
    garden = Garden(21)
    tape = pulsar_tape(garden, 50)
    retransmitted(tape, garden.chance)
    raw = capture(tape.records())
    made = anonymous(raw)
    assert_clean(made, garden)
    assert_same(dissected(raw), dissected(made), but=HIDDEN_ALIKE)


def test_what_overtakes_the_beginning_of_its_stream_says_what_the_stream_says() -> None:
    """The origin of a stream moves when its SYN comes, to before what came until then."""
    garden = Garden(23)
    tape = pulsar_tape(garden, 50)
    second = [each for each in tape.packets if each.to_broker and each.payload][1]
    tape.packets.remove(second)
    tape.packets.insert(0, second._replace(ts_ns=tape.packets[0].ts_ns - 1))
    raw = capture(tape.records())
    made = anonymous(raw)
    assert_clean(made, garden)
    before, after = dissected(raw), dissected(made)
    assert before["connections"][0]["started"] == "syn" and len(before["frames"]) > 50
    assert_same(before, after, but=HIDDEN_ALIKE)
    places = pieces_of(raw)
    assert min(offset for offset, _ in places) == 0 and len(places) > 20
    for offset, payload in places:
        assert tape.sent[0][offset : offset + len(payload)] == payload


def pieces_of(raw: bytes) -> list[tuple[int, bytes]]:
    """Offset and payload of the segments to the broker, as packets are given their bytes."""
    data = np.frombuffer(bytearray(raw), np.uint8)
    rows = dissect_bytes(data, Options(**streams.ASKED))
    found = streams.TreatedStreams(lambda stream: None, rows, in_memory=True)
    pieces = []
    for block in blocks_of_bytes(data):
        positions = found.positions(block.segments, block.segment_count)
        for row in range(block.segment_count):
            start, size = (
                int(column[row])
                for column in (block.segments.offset, block.segments.captured_bytes)
            )
            if size and int(block.segments.destination_port[row]) == wire.BROKER_PORT:
                pieces.append((int(positions.offset[row]), data[start : start + size].tobytes()))
    return pieces


@pytest.mark.parametrize("name", WRAPS)
def test_tunnels_and_fragments(name: str) -> None:
    garden = Garden(31)
    records = []
    for record in pulsar_tape(garden).records():
        for k, packet in enumerate(WRAPS[name](record.data[14:])):
            records.append(Record(record.ts_ns + k, wire.ethernet(packet)))
    raw = capture(records)
    made = anonymous(raw)
    assert_clean(made, garden)
    assert_same(dissected(raw), dissected(made), but=HIDDEN_ALIKE)


@pytest.mark.parametrize("cuts", [[], [64], [24, 48]], ids=["whole", "two", "three"])
def test_what_looks_like_a_segment_and_is_none_goes(cuts: list[int]) -> None:
    segment = bytearray(wire.segment(MARK.encode() * 9, sequence=1)[14:])
    segment[20 + 12] = 1 << 4  # a TCP header of four bytes
    pieces = fragments(bytes(segment), cuts) if cuts else [bytes(segment)]
    base = pulsar_tape(Garden(3)).records()
    odd = [Record(base[0].ts_ns, wire.ethernet(piece)) for piece in pieces]
    made = anonymous(capture(odd + base))
    assert MARK[:5].encode() not in made and MARK[-5:].encode() not in made


def test_a_fragment_that_comes_once_more_later_holds_what_its_packet_holds() -> None:
    """In another block of packets than the one in which it was put together."""
    whole = wire.ipv4(wire.udp(bytes(range(200)), 5, 6), protocol=17)
    pieces = [memoryview(bytearray(each)) for each in fragments(whole, [64, 128])]
    kept = ip_fragments.TracedFragments()

    def add(packet: int) -> None:
        piece = pieces[packet % len(pieces)]
        kept.add(piece, Place(0, len(piece), NO_END, 0, packet, packet, 0))

    for packet in range(len(pieces)):
        add(packet)
    assembled = np.frombuffer(bytes(kept.assembled), np.uint8).copy()
    assembled[kept.wholes[0].payload :] ^= 0xFF
    first = dict(kept.contents(assembled))
    assert first == {n: bytes(255 - each for each in pieces[n][20:]) for n in range(len(pieces))}
    kept.start_block()
    add(len(pieces) + 1)
    assert dict(kept.contents(assembled[:0])) == first | {len(pieces) + 1: first[1]}


def test_what_a_fragment_holds_reaches_the_packet_around_it_in_an_earlier_block() -> None:
    inner = fragments(wire.ipv4(wire.udp(bytes(range(200)), 5, 6), protocol=17), [96])
    kept = ip_fragments.TracedFragments()
    held: dict[int, bytes] = {}
    for number, piece in enumerate(inner):
        kept.start_block()
        for part, each in enumerate(fragments(tunnels.over_ip(piece, 4), [80], 50 + number)):
            data = memoryview(bytearray(each))
            kept.add(data, Place(0, len(each), NO_END, 0, 1, 10 * number + part, 0))
        start, end, _ = kept.rebuilt
        view = memoryview(bytearray(kept.assembled))
        kept.add(view, Place(start + 20, end, NO_END, 0, 1, 10 * number + 1, 1))
        assembled = np.frombuffer(bytes(kept.assembled), np.uint8).copy()
        for whole in kept.wholes[1:]:  # the inner packet; that around it is not changed but by it
            assembled[whole.payload : whole.end] ^= 0xFF
        held |= dict(kept.contents(assembled))
    parts = [held[0] + held[1], held[10] + held[11]]
    assert parts == [piece[:20] + bytes(255 - each for each in piece[20:]) for piece in inner]


# What holds a secret is hidden in the rows of the original, and then like others.
HIDDEN_ALIKE = ("schema_version_hex",)
MARK = "Qx7marker9Zk"


def planted(chance: random.Random, mss: int) -> tuple[bytes, list[bytes]]:
    """A capture with names and markers in every field, and what must not be found again."""
    names = {
        name: f"{name}{chance.getrandbits(40):x}"
        for name in (
            "tenant",
            "space",
            "orders",
            "maker",
            "reader",
            "group",
            "key",
            "prop",
            "value",
        )
    }
    topic = f"persistent://{names['tenant']}/{names['space']}/{names['orders']}"
    client = f"10.{chance.randrange(100, 255)}.{chance.randrange(100, 255)}.77"
    tape = Tape(mss=mss)
    tape.open()
    tape.connect()
    tape.frame(True, pulsar.simple(pulsar.command("LOOKUP", topic=topic, request_id=1)))
    tape.frame(
        False,
        pulsar.simple(
            pulsar.command(
                "LOOKUP_RESPONSE", request_id=1, response=1,
                brokerServiceUrl=f"pulsar://{names['maker']}.{names['tenant']}.example:6650",
            )
        ),
    )  # fmt: skip
    tape.frame(
        False,
        pulsar.simple(
            pulsar.command("ERROR", request_id=2, error=1, message=f"{topic} at {client}: {MARK}")
        ),
    )
    fields = {
        "producer_name": names["maker"], "partition_key": names["key"],
        "properties": [{"key": names["prop"], "value": names["value"]}],
    }  # fmt: skip
    payload = (MARK * 9).encode() + wire.ethernet(bytes(map(int, client.split("."))))
    tape.frame(True, pulsar.send(payload, metadata_fields=fields, sequence_id=1))
    items = [({"partition_key": names["key"]}, payload)] * 4
    more = {**fields, "num_messages_in_batch": 4}
    tape.frame(True, pulsar.send(pulsar.batch(items), metadata_fields=more, sequence_id=2))
    retransmitted(tape, chance)
    tape.close()
    ends = [bytes(map(int, host.split("."))) for host in ("10.0.0.1", "10.0.0.2")]
    words = [name.encode() for name in names.values()]
    return capture(tape.records()), [*words, MARK.encode(), client.encode(), *ends]


@pytest.mark.parametrize("mss", [1448, 48, 7])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_name_marker_or_address_is_left_in_any_byte(seed: int, mss: int) -> None:
    raw, hidden = planted(random.Random(seed), mss)
    made = anonymous(raw)
    assert [each for each in hidden if each in made] == []
    rows = repr(dissected(made, redact=False, want_detail="all", properties=True)).encode()
    assert [each for each in hidden[:-2] if each in rows] == []
    assert_same(dissected(raw), dissected(made))


def test_what_a_capture_file_says_beside_packets_is_not_copied() -> None:
    records = pulsar_tape(Garden(3)).records()
    from tests.wire.captures import block

    keys = b"CLIENT_RANDOM 0123 4567"
    raw = pcapng(records) + block(0x0A, b"KSLT" + len(keys).to_bytes(4, "little") + keys)
    assert keys in raw and keys not in anonymous(raw)


def test_two_captures_are_alike_under_one_key_and_not_under_two() -> None:
    raw = (CAPTURES / SAMPLES[0]).read_bytes()
    again = anonymous(raw)
    assert again == anonymous(raw) != anonymous(raw, key=bytes(32))


@pytest.mark.parametrize("key", [bytes([number]) * 32 for number in range(3)], ids="abc")
def test_short_names_stay_apart(key: bytes) -> None:
    """More names than chance would keep apart in as few letters: all of one letter and a digit."""
    tape = Tape()
    tape.open()
    tape.connect()
    names = [f"{letter}{digit}" for letter in "abcdefgh" for digit in range(10)]
    for number, name in enumerate(names, 2):
        topic = f"persistent://{name}/{names[number - 3]}/{name}"
        fields = {"topic": topic, "subscription": name, "consumer_id": number}
        tape.frame(True, pulsar.simple(pulsar.command("SUBSCRIBE", request_id=number, **fields)))
        tape.frame(False, pulsar.simple(pulsar.command("SUCCESS", request_id=number)))
    tape.close()
    raw = capture(tape.records())
    before, after = dissected(raw), dissected(anonymous(raw, key))
    assert_same(before, after)
    found = {row["subscription"] for row in after["consumers"]}
    assert len(found) == len(names) and found != set(names)


def test_damaged_frames_are_damaged_again() -> None:
    raw = (CAPTURES / "pulsar-apache/java-j74_corrupt.pcap").read_bytes()
    before, after = dissected(raw), dissected(anonymous(raw))

    def judged(tables):  # type: ignore[no-untyped-def]
        return [(row["frame_no"], row["checksum"]) for row in tables["frames"] if row["checksum"]]

    assert judged(before) == judged(after)
    assert ("mismatch" in {checksum for _, checksum in judged(after)}) is True


@pytest.mark.parametrize(
    ("begins", "kept", "gone"),
    [
        (b"PROXY TCP4 10.1.2.3 10.9.8.7 4242 6650\r\n", b" 4242 6650\r\n", b"10.1.2.3 10.9.8.7"),
        (b"PROXY TCP4  10.1.2.3 10.9.8.7 4242 6650\r\n", b" 4242 6650\r\n", b"10.9.8.7"),
        (b"PROXY UNKNOWN of acme by joe\r\n", b"PROXY UNKNOWN ", b"joe"),
        (b"GET /acme HTTP/1.1\r\nHost: acme\r\n\r\n", b"GET ", b"acme"),
        (b"HTTP/1.\r\nX-acme: 1\r\n\r\n", b"HTTP/1.", b"acme"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nacme", b"\r\n\r\nSM\r\n\r\n", b"acme"),
        (b"PRI * HTTP/2 of acme and others", b"PRI * HTTP/2", b"acme"),
    ],
)
def test_of_what_comes_before_frames_only_its_form_stays(
    begins: bytes, kept: bytes, gone: bytes
) -> None:
    data = np.frombuffer(bytearray(begins), np.uint8)
    none = np.zeros(0, np.int64)
    frames = streams.Frames(none, none, *(none.astype(bool) for _ in range(3)))
    anonymizer.Anonymizer(bytes(32)).treat(streams.Stream("http", False, [(0, data)], frames))
    assert kept in data.tobytes() and gone not in data.tobytes()
    assert look(data.tobytes(), True) == look(begins, True)
