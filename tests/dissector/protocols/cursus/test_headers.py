"""Frame headers: what dispatches, what does not, and that more bytes never change a verdict."""

import gzip
import struct

import cramjam
import lz4.frame
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.jit import kernel
from dissector.limits import MAX_FRAME_BYTES
from dissector.protocols.columns import TO_BROKER, TO_CLIENT, UNKNOWN_DIRECTION
from dissector.protocols.cursus import headers
from dissector.protocols.cursus.commands import NAMES, VERBS, find_verb
from dissector.protocols.pulsar.wire import headers as pulsar_headers
from tests.dissector.protocols.cursus.test_compressed import PACKED
from tests.wire import cursus, pulsar

check_header = kernel(headers.check_header)
prove_frame = kernel(headers.prove_frame)
one_way = kernel(headers.one_way)
pulsar_check = kernel(pulsar_headers.check_header)

# What begins as an LZ4 frame, with a literal whose size takes more bytes than are looked at.
LONG = bytes.fromhex("04224d18604082ff00000000f0") + b"\xff" * 100 + bytes(90)
FRAMES = {
    **{name: cursus.vector(name) for name in cursus.VECTORS if name != "keepalive"},
    "bare": cursus.bare("STREAM topic=t1 partition=0 group=g"),
    "bare in lower case": cursus.bare("list"),
    "ok": cursus.bare("OK"),
    "ok with fields": cursus.bare("OK count=1 topics=a"),
    "error": cursus.bare("ERROR: topic_not_found topic=nope"),
    "error without colon": cursus.bare("ERROR topic_not_found"),
    "indented json": cursus.bare('{\n  "status": "OK",\n  "topic": "a"}'),
    "gzip": cursus.frame(gzip.compress(cursus.batch_body(cursus.records(3)))),
    "lz4": cursus.frame(lz4.frame.compress(cursus.batch_body(cursus.records(3)))),
    "lz4 of a long literal": cursus.frame(LONG),
    "snappy": cursus.frame(
        bytes(cramjam.snappy.compress_raw(cursus.batch_body(cursus.records(3))))
    ),
}
CLIENTS = ("CREATE", "METADATA", "bare", "bare in lower case", "gzip", "lz4")
BROKERS = ("ack", "close", "ok", "ok with fields", "error", "error without colon", "indented json")


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(data or b"\0"), np.uint8)


def check(data: bytes, direction: int = UNKNOWN_DIRECTION, strict: int = 1) -> int:
    return int(check_header(array(data), 0, len(data), direction, MAX_FRAME_BYTES, strict))


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("strict", [3, 4, 5])
def test_what_says_more_is_told_by_as_few_bytes(name, strict):
    """Bytes that are there are not waited for: the search would stand still."""
    data = FRAMES[name] + bytes(64)
    verdicts = [check(data[:cut], strict=strict) for cut in range(len(data) + 1)]
    assert set(verdicts) <= {0, verdicts[-1]} and verdicts[-1] in (-1, len(FRAMES[name]))
    assert all(verdicts[64:])


@pytest.mark.parametrize("codec", ("LZ4", "SNAPPY", "SNAPPY xerial"))
def test_a_batch_tells_its_protocol_compressed_or_not(codec):
    data = cursus.frame(PACKED[codec])
    assert check(data, strict=5) == len(data)
    assert check(FRAMES["batch"], strict=5) == len(FRAMES["batch"])


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("strict", [0, 1, 2])
def test_frames_are_valid_and_undecided_while_they_are_cut(name, strict):
    data = FRAMES[name]
    assert check(data, strict=strict) == len(data)
    verdicts = [check(data[:cut], strict=strict) for cut in range(len(data))]
    assert set(verdicts) <= {0, len(data)}
    assert verdicts == sorted(verdicts), "once valid, always valid"
    assert all(verdicts[64:]), "64 bytes decide"


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_valid_in_their_direction_only(name):
    data = FRAMES[name]
    if name in CLIENTS:
        assert check(data, TO_BROKER) == len(data)
        assert one_way(array(data), 0, len(data)) == TO_BROKER
    if name in BROKERS:
        assert check(data, TO_CLIENT) == len(data)
        assert one_way(array(data), 0, len(data)) == TO_CLIENT
    if name in ("CREATE", "METADATA"):
        assert check(data, TO_CLIENT) == -1
    if name in ("ack", "indented json"):
        assert check(data, TO_BROKER) == -1


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_is_known_bare_and_enveloped(verb):
    for data in (cursus.bare(verb), cursus.enveloped(f"{verb} topic=t", b"admin")):
        assert check(data) == len(data)
        assert prove_frame(array(data), 0, len(data)) == 1
    found = find_verb(array(verb.lower().encode()), 0, len(verb), 1)
    assert NAMES[found] == verb
    assert find_verb(array(verb.encode() + b"X"), 0, len(verb) + 1, 1) < 0
    assert find_verb(array(verb.encode()), 0, len(verb), 0) == -2


@pytest.mark.parametrize(
    "body",
    [
        b"GET / HTTP/1.1",
        b"FROB x",
        b"\x16\x03\x01",
        b"\xba\x7c\x00\x00",
        b"\x00\xfa" + b"x" * 260,
        b'{"id":7}',
        b"OKAY",
        b"ERRORS",
        b"\xff\xfe\xfd",
    ],
)
def test_what_does_not_dispatch_is_refused_where_a_frame_is_searched(body):
    data = cursus.frame(body)
    assert check(data) == -1
    assert check(data, strict=0) == len(data)


def test_the_limit_is_that_of_the_oldest_broker_whatever_the_option_says():
    body = b"LIST"
    for size, good in ((64 << 20, True), ((64 << 20) + 1, False), (1 << 31, False)):
        data = struct.pack(">I", size) + body + b" " * 80
        assert (check(data) == size + 4) == good
        assert (check(data, strict=0) == size + 4) == good


def test_http_and_tls_are_no_lengths():
    assert check(b"GET / HTTP/1.1\r\n") == -1
    assert check(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") == -1


def test_an_empty_frame_counts_where_a_broker_speaks_or_a_frame_follows():
    empty = cursus.vector("keepalive")
    assert check(empty, TO_CLIENT) == 4
    assert check(empty) == 0
    assert check(empty + FRAMES["ok"]) == 4
    assert check(empty * 3 + FRAMES["batch"]) == 4
    assert check(empty + b"\0\0\1\0rubbish of any kind") == -1
    assert check(empty * 40) == -1
    assert check(empty + FRAMES["ok"], strict=2) == -1
    assert check(empty, strict=0) == 4


def test_free_text_of_old_brokers_counts_where_their_direction_is_known():
    data = cursus.bare("✅ Topic 'old' now has 2 partitions")
    assert check(data, TO_CLIENT) == len(data)
    assert check(data, TO_CLIENT, strict=2) == -1
    assert check(data) == -1


def test_the_way_of_a_batch_is_told_by_its_offsets():
    def way(data: bytes) -> int:
        return int(one_way(array(data), 0, len(data)))

    assert way(cursus.batch(cursus.records(2))) == TO_BROKER
    assert way(cursus.batch(cursus.records(2, offset=0))) == TO_CLIENT
    assert way(cursus.batch(cursus.records(1, offset=5))) == TO_CLIENT
    assert way(cursus.batch(cursus.records(1))) == UNKNOWN_DIRECTION
    assert way(cursus.batch(cursus.records(1), acks=b"-1")) == TO_BROKER
    assert way(cursus.batch(cursus.records(1), idempotent=1)) == TO_BROKER
    assert way(cursus.batch([])) == UNKNOWN_DIRECTION
    assert way(cursus.vector("keepalive")) == UNKNOWN_DIRECTION
    assert way(cursus.batch(cursus.records(2), layout="v010")) == TO_BROKER


def test_frames_prove_themselves_by_what_they_say():
    def proof(data: bytes) -> int:
        return int(prove_frame(array(data), 0, len(data)))

    for layout in cursus.LAYOUTS:
        assert proof(cursus.batch(cursus.records(4), layout=layout)) == 1
    assert proof(FRAMES["batch"][:-3]) == 0
    assert proof(FRAMES["ok"]) == 1
    assert proof(cursus.vector("keepalive")) == 0
    assert proof(cursus.bare("anything else")) == 0


@pytest.mark.parametrize("name", FRAMES)
def test_cursus_is_never_pulsar(name):
    data = FRAMES[name]
    for strict in (0, 1):
        found = pulsar_check(array(data), 0, len(data), 2, MAX_FRAME_BYTES, strict)
        assert found in (-1, 0) and (found == -1 or len(data) < 13)


@pytest.mark.parametrize("name", pulsar.VECTORS)
def test_pulsar_is_never_cursus(name):
    data = pulsar.vector(name)
    for direction in (TO_BROKER, TO_CLIENT, UNKNOWN_DIRECTION):
        assert check(data, direction) == -1
        assert check(data, direction, strict=2) == -1


@given(st.binary(max_size=80), st.integers(0, 2), st.integers(0, 5))
@settings(max_examples=300)
def test_any_bytes_get_a_verdict_that_more_bytes_do_not_turn(data, direction, strict):
    whole = check(data, direction, strict)
    assert whole >= -1
    for cut in range(len(data)):
        part = check(data[:cut], direction, strict)
        assert part in (0, whole) or (part > 0 and whole > 0)


def test_the_limit_of_both_generations_is_announced_by_any_frame():
    data = FRAMES["ok"]
    assert kernel(headers.announced_limit)(array(data), 0, len(data)) == (64 << 20) + 4
    assert headers.BROKER_BODY_LIMIT == 16 << 20


def test_a_frame_of_pulsar_cut_by_a_snap_length_is_not_waited_for() -> None:
    """Its sizes are no block of snappy that more bytes could make a batch."""
    ids = [{"ledgerId": 7, "entryId": at} for at in range(6)]
    ack = pulsar.command("ACK", consumer_id=1, ack_type="Individual", message_id=ids)
    whole = pulsar.simple(ack)
    for have in range(12, len(whole)):
        data = np.frombuffer(bytearray(whole[:have]), np.uint8)
        for direction in (TO_BROKER, UNKNOWN_DIRECTION):
            assert check_header(data, 0, have, direction, MAX_FRAME_BYTES, 2) == -1
