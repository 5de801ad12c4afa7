"""Lost, damaged and hostile records: what is there comes out, nothing is guessed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.tls.connection import TlsConnection
from dissector.tls.direction import Direction
from tests.dissector.tls.seen import SAMPLES, Seen, capture, seen
from tests.wire import captures, tls
from tests.wire.tls import Said

PLAIN = tls.conversation_of(SAMPLES / "pulsar-apache" / "java-j12_nack.pcap")
SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
)


def begun(name: str) -> tls.Written:
    return tls.begun_12(name) if "WITH" in name else tls.begun_13(name)


def without(said: Said, lost: set[int]) -> bytes:
    """A capture in which the packets of some parts are missing."""
    records = tls.packets_of(said)
    return captures.pcap(
        [record for number, record in enumerate(records) if number - 3 not in lost]
    )


def plain_without(lost: set[int]) -> Seen:
    """The plain twin with the same parts missing."""
    return seen(without(PLAIN, lost))


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("lost", [{5}, {5, 6, 7, 8, 9}, {40}, {10, 30, 31, 50}], ids=str)
def test_behind_lost_packets_it_goes_on_as_the_plain_twin_does(name: str, lost: set[int]) -> None:
    written = begun(name)
    wire = tls.carried(written, PLAIN)
    ahead = len(written.wire)
    found = seen(without(wire, {number + ahead for number in lost}), written.keys)
    twin = plain_without(lost)
    assert found.frames == twin.frames
    if "CBC" not in name:  # whose padding hides how much was lost
        assert found.streams == twin.streams
    assert found.connection["gaps_to_client"] == twin.connection["gaps_to_client"]
    assert found.connection["tls_decryption"] == "decrypted"
    assert not found.codes["tls_bad_record"]


@pytest.mark.parametrize("name", SUITES)
def test_a_record_that_a_hole_cuts_is_lost_and_no_other(name: str) -> None:
    written = begun(name)
    sides = (b"".join(data for side, data in PLAIN if side == own) for own in (0, 1))
    plain = [
        (own, data[at : at + 900])
        for own, data in enumerate(sides)
        for at in range(0, len(data), 900)
    ]
    wire = tls.carried(written, plain)
    records = tls.packets_of(wire, segment=300)
    sizes = [len(data) for _, data in wire]
    whole = seen(captures.pcap(records), written.keys)
    for number in range(len(records)):
        found = seen(captures.pcap([*records[:number], *records[number + 1 :]]), written.keys)
        if found.connection["tls_decryption"] in ("no_hello", "no_key", "unsupported"):
            assert number < 12  # a packet of the hellos
            continue
        for side in (0, 1):
            missing = len(whole.streams[0, side]) - len(found.streams.get((0, side), b""))
            assert missing in (0, *(len(data) for own, data in plain if own == side)), number
    assert sizes


def test_a_damaged_record_gives_no_byte_and_a_notice() -> None:
    for name in SUITES:
        written = begun(name)
        wire = tls.carried(written, PLAIN)
        side, data = wire[20]
        wire[20] = side, data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
        found = seen(capture(wire), written.keys)
        (notice,) = (row for row in found.tables["notices"] if row["code"] == "tls_bad_record")
        assert name in notice["text"]
        before = sum(own == side for own, _ in wire[len(written.wire) : 20])
        # One record of the handshake stands before those of the conversation.
        assert f"record {before + 1} " in notice["text"]
        kept = b"".join(
            part for number, (own, part) in enumerate(PLAIN, len(written.wire))
            if own == side and number != 20
        )  # fmt: skip
        assert found.streams[0, side] == kept
        row = found.connection
        assert row["tls_decryption"] == "partly"
        for way in ("to_broker", "to_client"):
            there = row[f"stream_bytes_{way}"] - row[f"gap_bytes_{way}"]
            assert there == sum(
                row[f"{kind}_bytes_{way}"] for kind in ("decoded", "unparsed", "tls_overhead")
            )


def test_early_data_is_named_and_not_decoded() -> None:
    early_kind = tls.KINDS["TLS_AES_128_GCM_SHA256"]
    early = tls.Writer13(early_kind, bytes(32))
    written = tls.begun_13(
        "TLS_AES_128_GCM_SHA256", has_early=True, early=early.record(PLAIN[0][1])
    )
    ended = early.record(tls.message(5, b""), 22)
    wire = tls.carried(written, PLAIN[1:])
    side, last = wire[len(written.wire) - 1]
    wire[len(written.wire) - 1] = side, ended + last
    found = seen(capture(wire), written.keys)
    assert found.codes["tls_early_data"] == 1
    assert found.streams[0, 1] == b"".join(data for side, data in PLAIN if side == 1)
    assert found.connection["protocol"] == "pulsar"


def test_alerts_have_names() -> None:
    written = tls.begun_13("TLS_AES_128_GCM_SHA256")
    hello, *_ = written.wire
    refused = [hello, (1, tls.record(21, b"\x02\x28"))]
    row = seen(capture(refused)).connection
    assert row["tls_alert_to_client"] == "handshake_failure" and row["protocol"] == "tls"
    wire = [*written.wire, (0, written.writers[0].record(b"\x02\x30", 21))]
    row = seen(capture(wire), written.keys).connection
    assert row["tls_alert_to_broker"] == "unknown_ca" and row["tls_alert_to_client"] is None


def test_keys_of_one_direction_open_that_direction() -> None:
    written = tls.begun_13("TLS_AES_128_GCM_SHA256")
    keys = "".join(line for line in written.keys.splitlines(True) if line.startswith("SERVER"))
    found = seen(capture(tls.carried(written, PLAIN)), keys)
    assert found.streams[0, 1] == b"".join(data for side, data in PLAIN if side == 1)
    assert not found.streams.get((0, 0))
    assert found.connection["tls_decryption"] == "partly"


def test_secrets_of_application_data_alone_are_enough() -> None:
    written = tls.begun_13("TLS_AES_256_GCM_SHA384")
    keys = "".join(line for line in written.keys.splitlines(True) if "TRAFFIC_SECRET_0" in line)
    found = seen(capture(tls.carried(written, PLAIN)), keys)
    for own in (0, 1):
        assert found.streams[0, own] == b"".join(data for side, data in PLAIN if side == own)
    assert found.connection["unparsed_bytes_to_broker"] == 0


def test_renegotiation_is_a_notice() -> None:
    written = tls.begun_12("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    wire = tls.carried(written, PLAIN[:10])
    wire.append((1, written.writers[1].record(tls.message(0, b""), 22)))
    wire.append((0, written.writers[0].record(tls.client_hello(bytes(32)), 22)))
    wire += tls.carried(written._replace(wire=[]), PLAIN[10:])
    found = seen(capture(wire), written.keys)
    assert found.codes["tls_renegotiation"] == 1
    assert found.frames == seen(capture(PLAIN)).frames


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("seed", range(6))
def test_damage_anywhere_raises_nothing(name: str, seed: int) -> None:
    draw = random.Random(seed)
    written = begun(name)
    wire = tls.carried(written, PLAIN[:40])
    for number in range(len(wire)):
        side, data = wire[number]
        if draw.random() < 0.3:
            at = draw.randrange(len(data))
            wire[number] = side, data[:at] + draw.randbytes(draw.randrange(1, 9)) + data[at + 1 :]
    records = [record for record in tls.packets_of(wire) if draw.random() < 0.95]
    found = seen(captures.pcap(records), written.keys)
    for (connection, side), data in found.streams.items():
        row = found.tables["connections"][connection]
        if row["tls_decryption"] in ("decrypted", "partly"):
            for part in (part for own, part in PLAIN[:40] if own == side):
                data = data.removeprefix(part)
            assert not data  # some of the parts in order, and nothing else


_FIRST = [begun(name).wire[number][1] for name in SUITES for number in range(3)] + [
    b"\x16\x03\x01\xff\xff",
    b"\x16\x03\x03\x00\x04\x02\x00\x00\x00",
    b"\x17\x03\x03\x00\x01\x00",
]


@given(st.lists(st.tuples(st.integers(0, 1), st.one_of(
    st.sampled_from(_FIRST), st.binary(min_size=1, max_size=60)
)), max_size=12), st.integers(1, 100))  # fmt: skip
def test_any_mixture_of_records_and_noise_is_data(said: Said, segment: int) -> None:
    keys = "".join(begun(name).keys for name in SUITES)
    data = capture(said, segment=segment)
    found = seen(data, keys)
    assert len(found.tables["connections"]) == 1
    row = found.connection
    for way in ("to_broker", "to_client"):
        there = row[f"stream_bytes_{way}"] - row[f"gap_bytes_{way}"]
        around = row[f"tls_overhead_bytes_{way}"] or 0
        assert there == row[f"decoded_bytes_{way}"] + row[f"unparsed_bytes_{way}"] + around


def test_what_waits_is_read_again_by_records_not_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    written = tls.begun_13("TLS_AES_128_GCM_SHA256")
    (_, hello), (_, answer), *_ = written.wire
    early = tls.record(23, bytes(16_000))
    wire = [(0, hello), (0, early), *((1, answer[at : at + 1]) for at in range(len(answer)))]
    looks = list[int]()
    advance = TlsConnection._advance

    def counted(self: TlsConnection, side: Direction) -> None:
        looks.append(side.index)
        advance(self, side)

    monkeypatch.setattr(TlsConnection, "_advance", counted)
    seen(capture(wire), written.keys)
    assert len(looks) < 10 < len(answer)
