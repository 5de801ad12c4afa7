"""Encrypted captures give the bytes and the frames of their plain twins."""

import gzip
import json
import re
import ssl
from collections import Counter

import numpy as np
import pytest

from dissector.dissection import Dissection, Options
from dissector.tls.keylog import KeyLog
from tests.dissector.tls.seen import CAPTURES, SAMPLES, Seen, capture, seen
from tests.plain import rows_of_block
from tests.wire import captures, packets, tls
from tests.wire.tls import Said, packets_of

PLAIN = tls.conversation_of(SAMPLES / "pulsar-apache" / "java-j12_nack.pcap")
TWIN = seen(capture(PLAIN))


def stream(plain: Said, side: int) -> bytes:
    return b"".join(data for own, data in plain if own == side)


def check_twin(found: Seen, plain: Said = PLAIN, twin: Seen = TWIN) -> None:
    """All bytes and frames of the plain twin, and every byte in one counter."""
    for side in (0, 1):
        assert found.streams[0, side] == stream(plain, side)
    assert found.frames == twin.frames
    row = found.connection
    assert row["protocol"] == "pulsar"
    assert row["tls_decryption"] == "decrypted"
    for way in ("to_broker", "to_client"):
        assert row[f"unparsed_bytes_{way}"] == 0
        around = row[f"tls_overhead_bytes_{way}"]
        assert row[f"decoded_bytes_{way}"] + around == row[f"stream_bytes_{way}"]
    assert not found.codes - twin.codes


MANIFEST = json.loads((CAPTURES / "manifest.json").read_text())


@pytest.mark.parametrize("name", ["tls12-aes128gcm", "tls13-aes256gcm-keyupdate"])
def test_captures_of_openssl_give_what_their_manifest_says(name: str) -> None:
    (truth,) = (each for each in MANIFEST["captures"] if each["file"] == f"{name}.pcap")
    (connection,) = truth["connections"]
    found = seen((CAPTURES / f"{name}.pcap").read_bytes(), (CAPTURES / f"{name}.keys").read_text())
    assert [found.digest(side) for side in (0, 1)] == connection["plain_sha256"]
    for way, frames in connection["frames"].items():
        assert [size for _, size in found.frames[way]] == [size for _, size in frames]
    row = found.connection
    assert row["tls_version"] == connection["version"].replace("TLSv", "TLS ")
    assert row["tls_resumed"] is connection["resumed"]
    assert row["tls_decryption"] == "decrypted" and row["tls_sni"] == "broker.example"
    assert row["unparsed_bytes_to_broker"] == row["unparsed_bytes_to_client"] == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"version": ssl.TLSVersion.TLSv1_3},
        {"version": ssl.TLSVersion.TLSv1_3, "curve": "prime256v1"},  # HelloRetryRequest
        {"version": ssl.TLSVersion.TLSv1_3, "wants_client": True},
        {"version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"},
        {"version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"},
        {"version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-ECDSA-CHACHA20-POLY1305"},
        {"version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-ECDSA-AES128-SHA256"},
        {"version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-ECDSA-AES256-SHA"},
        {"version": ssl.TLSVersion.TLSv1_2, "wants_client": True},
    ],
    ids=str,
)
def test_what_openssl_speaks_is_read_like_its_plain_twin(settings: dict) -> None:
    spoken = tls.spoken(PLAIN, **settings)
    found = seen(capture(spoken.wire), spoken.keys)
    check_twin(found)
    row = found.connection
    assert row["tls_alpn"] == "pulsar" and row["tls_resumed"] is False
    if settings["version"] == ssl.TLSVersion.TLSv1_2:
        assert row["tls_certificate_subject"] == tls.SUBJECT
        for name, time in (("before", tls.NOT_BEFORE), ("after", tls.NOT_AFTER)):
            assert row[f"tls_certificate_not_{name}_ns"] == time.timestamp() * 10**9


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_has_keys_of_its_own(version: ssl.TLSVersion) -> None:
    first = tls.spoken(PLAIN, version=version)
    second = tls.spoken(PLAIN, before=first)
    assert second.resumed
    found = seen(capture(second.wire), second.keys)
    check_twin(found)
    assert found.connection["tls_resumed"] is True


@pytest.mark.parametrize("name", [name for name in tls.KINDS if "WITH" not in name])
def test_each_cipher_of_tls_1_3_with_key_updates_and_padding(name: str) -> None:
    begun = tls.begun_13(name)
    wire = [*begun.wire]
    for number, (side, data) in enumerate(PLAIN):
        writer = begun.writers[side]
        ahead = writer.update() if number % 20 == 10 else b""
        if number % 30 == 5 and side == 1:
            ahead += writer.record(tls.message(4, b"ticket"), 22)
        wire.append((side, ahead + writer.record(data, padding=number % 4)))
    found = seen(capture(wire), begun.keys)
    check_twin(found)
    assert found.connection["tls_cipher"] == name


@pytest.mark.parametrize("is_outside", [False, True])
@pytest.mark.parametrize("name", [name for name in tls.KINDS if "WITH" in name])
def test_each_cipher_of_tls_1_2(name: str, is_outside: bool) -> None:
    begun = tls.begun_12(name, is_outside=is_outside)
    found = seen(capture(tls.carried(begun, PLAIN)), begun.keys)
    check_twin(found)
    assert found.connection["tls_cipher"] == name
    assert found.connection["tls_resumed"] is True


@pytest.mark.parametrize("segment", [1, 2, 3, 7, 61, 400, 9000])
def test_segments_cut_records_anywhere(segment: int) -> None:
    begun = tls.begun_13("TLS_AES_128_GCM_SHA256")
    wire = tls.carried(begun, PLAIN)
    check_twin(seen(capture(wire, segment=segment), begun.keys))


@pytest.mark.parametrize("piece", [1, 77, 4096])
def test_rows_do_not_depend_on_how_a_file_is_fed(piece: int) -> None:
    begun = tls.begun_12("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    data = capture(tls.carried(begun, PLAIN))
    assert seen(data, begun.keys, piece).tables == seen(data, begun.keys).tables


def test_records_of_any_size_hold_parts_of_frames_or_many() -> None:
    both = [stream(PLAIN, 0), stream(PLAIN, 1)]
    plain = [(side, both[side][at : at + 700]) for side in (0, 1) for at in range(0, 3000, 700)]
    plain = [(side, data) for side, data in plain if data]
    plain += [(side, both[side][3500:]) for side in (0, 1) if both[side][3500:]]
    begun = tls.begun_13("TLS_CHACHA20_POLY1305_SHA256")
    wire = tls.carried(begun, plain)
    check_twin(seen(capture(wire, segment=100), begun.keys), plain, seen(capture(plain)))


def test_frames_lead_to_the_packets_that_carried_them() -> None:
    """A record over several packets, its header and its end in packets of their own."""
    begun = tls.begun_13("TLS_AES_128_GCM_SHA256")
    (_, data) = PLAIN[0]
    record = begun.writers[0].record(data)
    pieces = [record[:5], record[5:20], record[20:-16], record[-16:]]
    wire = [*begun.wire, *((0, piece) for piece in pieces)]
    found = seen(capture(wire), begun.keys)
    (frame,) = found.tables["frames"]
    first = len(tls.packets_of(begun.wire, is_closed=False)) + 1
    assert (frame["first_packet"], frame["last_packet"]) == (first, first + 3)


def test_a_proxy_header_stands_before_the_handshake() -> None:
    begun = tls.begun_13("TLS_AES_128_GCM_SHA256")
    header = b"PROXY TCP4 192.0.2.7 10.0.0.2 4444 6651\r\n"
    for split in (False, True):
        wire = tls.carried(begun, []) if split else begun.wire
        first = [(0, header), wire[0]] if split else [(0, header + wire[0][1])]
        again = tls.begun_13("TLS_AES_128_GCM_SHA256")
        rest = tls.carried(again, PLAIN)[1:]
        found = seen(capture([*first, *rest]), begun.keys)
        assert found.frames == TWIN.frames
        assert found.connection["proxied_client_ip"] == "192.0.2.7"


def test_several_connections_with_keys_for_half_of_them() -> None:
    records: list[captures.Record] = []
    keys = ""
    for number in range(6):
        begun = tls.begun_13("TLS_AES_256_GCM_SHA384", seed=number)
        records += tls.packets_of(tls.carried(begun, PLAIN), port=packets.CLIENT_PORT + number)
        keys += begun.keys if number % 2 else ""
    found = seen(captures.pcap(sorted(records)), keys)
    rows = sorted(found.tables["connections"], key=lambda row: row["client_port"])
    assert [row["tls_decryption"] for row in rows] == ["no_key", "decrypted"] * 3
    assert [row["protocol"] for row in rows] == ["tls", "pulsar"] * 3
    assert not found.codes["tls_no_key_fits"]
    nothing = seen(captures.pcap(sorted(records)), tls.begun_13("TLS_AES_256_GCM_SHA384", 9).keys)
    (notice,) = (row for row in nothing.tables["notices"] if row["code"] == "tls_no_key_fits")
    assert "6" in notice["text"]


def test_without_keys_handshakes_tell_what_they_tell() -> None:
    spoken = tls.spoken(PLAIN, version=ssl.TLSVersion.TLSv1_2)
    row = seen(capture(spoken.wire)).connection
    assert row["protocol"] == "tls" and row["tls_decryption"] == "no_key_log"
    assert row["tls_version"] == "TLS 1.2" and row["tls_alpn"] == "pulsar"
    assert row["tls_certificate_subject"] == tls.SUBJECT and row["tls_resumed"] is False
    # ClientHello, ServerHello …, client's flight and Finished, Finished of the server.
    assert row["tls_handshake_ns"] == 3 * tls.STEP_NS
    assert row["tls_overhead_bytes_to_broker"] is None
    spoken = tls.spoken(PLAIN)
    row = seen(capture(spoken.wire)).connection
    assert (row["tls_version"], row["tls_alpn"]) == ("TLS 1.3", None)
    assert (
        row["tls_handshake_ns"]
        == seen(capture(spoken.wire), spoken.keys).connection["tls_handshake_ns"]
    )


def test_wrong_keys_open_nothing() -> None:
    for begun in (tls.begun_13("TLS_AES_128_GCM_SHA256"), tls.begun_12(next(iter(
        name for name in tls.KINDS if "WITH" in name)))):  # fmt: skip
        lines = [line.split() for line in begun.keys.splitlines()]
        wrong = "".join(
            f"{label} {random} {'ab' * (len(key) // 2)}\n" for label, random, key in lines
        )
        found = seen(capture(tls.carried(begun, PLAIN)), wrong)
        assert found.connection["protocol"] == "tls"
        assert found.connection["tls_decryption"] == "wrong_key"
        assert "frames" not in found.tables or not found.tables["frames"]


def test_a_capture_that_begins_inside_a_connection_says_why() -> None:
    name = "tls13-aes256gcm-keyupdate"
    keys = (CAPTURES / f"{name}.keys").read_text()
    found = seen((CAPTURES / "tls13-midstream.pcap").read_bytes(), keys)
    assert found.connection["tls_decryption"] == "no_hello"
    assert found.connection["protocol"] == "tls"


def test_secrets_in_the_capture_itself() -> None:
    begun = tls.begun_13("TLS_AES_128_GCM_SHA256")
    records = tls.packets_of(tls.carried(begun, PLAIN))
    head = captures.section() + captures.interface(resolution=9)
    made = [captures.enhanced_packet(record.ts_ns, record.data) for record in records]
    secrets = tls.secrets_block(begun.keys)
    first = seen(head + secrets + b"".join(made))
    check_twin(first)
    # A writer that learns them late: records wait.
    late = seen(head + b"".join(made[:20]) + secrets + b"".join(made[20:]))
    check_twin(late)
    said = [
        [(row["direction"], row["command"]) for row in each.tables["frames"]]
        for each in (late, TWIN)
    ]
    assert said[0] == said[1], "in the order in which it came"
    cut = tls.secrets_block(begun.keys[:300])
    assert seen(head + cut + b"".join(made)).codes["key_log_broken"] == 1
    for size in range(8, len(secrets), 50):
        seen(head + secrets[:size] + b"".join(made))


def test_open_connections_are_told_as_they_are_by_now() -> None:
    """As the rules of a tap ask for them."""
    begun = tls.begun_13("TLS_AES_128_GCM_SHA256")
    data = np.frombuffer(bytearray(capture(tls.carried(begun, PLAIN), is_closed=False)), np.uint8)
    dissection = Dissection(Options(), keys=KeyLog(begun.keys.encode()))
    dissection.start_file()
    dissection.feed(data, 0, len(data), True)
    dissection.end_file()
    dissection.rotate()
    (row,) = (
        row
        for block in dissection.open_rows()
        if block.table == "connections"
        for row in rows_of_block(block)
    )
    assert row["tls_decryption"] == "decrypted"
    assert row["unparsed_bytes_to_broker"] == row["unparsed_bytes_to_client"] == 0
    assert row["frames_to_broker"] > 0
    dissection.finish()


def test_a_proxy_header_before_plain_frames_is_none_of_ours() -> None:
    header = b"PROXY TCP4 192.0.2.7 10.0.0.2 4444 6651\r\n"
    for first in (
        [(0, header + PLAIN[0][1])],
        [(0, header), PLAIN[0]],
        [(0, b"P"), (0, header[1:]), PLAIN[0]],
    ):
        found = seen(capture([*first, *PLAIN[1:]]), "")
        assert found.frames == TWIN.frames
        assert found.connection["tls_decryption"] is None
        assert found.connection["proxied_client_ip"] == "192.0.2.7"


def truth_of(name: str) -> dict:
    (truth,) = (each for each in MANIFEST["captures"] if each["file"] == f"{name}.pcap")
    return truth


def broker_seen(name: str) -> Seen:
    return seen((CAPTURES / f"{name}.pcap").read_bytes(), (CAPTURES / f"{name}.keys").read_text())


@pytest.mark.parametrize("name", ["go-tls12-resumed", "go-tls13-keyupdates"])
def test_a_real_broker_and_its_client_give_the_bytes_that_the_client_saw(name: str) -> None:
    truth, found = truth_of(name), broker_seen(name)
    rows = {row["client_port"]: row for row in found.tables["connections"]}
    assert len(rows) == len(truth["connections"])
    for connection in truth["connections"]:
        row = rows[connection["client_port"]]
        for side in (0, 1):
            digest = found.digest(side, row["connection_id"])
            assert digest == connection["plain_sha256"][side]
            assert len(found.streams[row["connection_id"], side]) == connection["plain_bytes"][side]
        assert row["tls_resumed"] is connection["resumed"]
        assert row["tls_version"] == connection["version"]
        assert row["tls_cipher"] == connection["cipher"]
        assert row["tls_decryption"] == "decrypted" and row["protocol"] == "pulsar"
    messages = found.tables["messages"]
    for topic, counts in truth["observed_by_client"].items():
        own = [row for row in messages if row["topic"].endswith("/" + topic)]
        sent = [row for row in own if row["direction"] == "to_broker"]
        delivered = {
            (row["ledger_id"], row["entry_id"], row["batch_index"])
            for row in own
            if row["direction"] == "to_client"
        }
        assert (len(sent), len(delivered)) == (counts["sent"], counts["acked"])
        assert len(own) - len(sent) >= counts["received"]


def test_a_real_broker_gives_the_rows_of_its_plain_twin() -> None:
    name = "go-tls13-keyupdates"
    found = broker_seen(name)
    plain = seen(gzip.decompress((CAPTURES / truth_of(name)["plain_twin"]).read_bytes()))
    for table in ("frames", "messages", "exchanges", "deliveries"):
        assert contents(found, table) == contents(plain, table) != Counter(), table


def contents(found: Seen, table: str) -> Counter:
    """Rows of a table, but for what packets and clocks give them."""
    passing = re.compile(r"^ts|_ns$|bucket|packet|_port$|connection|_no$|seq$|outstanding")
    return Counter(
        tuple((name, str(value)) for name, value in row.items() if not passing.search(name))
        for row in found.tables[table]
    )


def test_a_resumed_session_may_have_the_key_of_the_first_one_alone() -> None:
    first = tls.spoken(PLAIN, version=ssl.TLSVersion.TLSv1_2)
    again = tls.spoken(PLAIN, version=ssl.TLSVersion.TLSv1_2, before=first)
    third = tls.spoken(PLAIN, version=ssl.TLSVersion.TLSv1_2, before=again)
    both = [
        *packets_of(first.wire), *packets_of(again.wire, port=4000),
        *packets_of(third.wire, port=4001),
    ]  # fmt: skip
    found = seen(captures.pcap(both), first.keys)
    assert [row["tls_resumed"] for row in found.tables["connections"]] == [False, True, True]
    for number in range(3):
        assert [found.streams[number, side] for side in (0, 1)] == [
            stream(PLAIN, side) for side in (0, 1)
        ]
    alone = seen(captures.pcap(packets_of(again.wire)), first.keys)
    assert alone.connection["tls_decryption"] == "no_key"
