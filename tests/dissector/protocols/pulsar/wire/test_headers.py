"""Frame headers: accepted, refused or undecided, and never contradicting themselves."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.jit import kernel
from dissector.limits import MAX_FRAME_BYTES, NULL
from dissector.protocols.columns import TO_BROKER, TO_CLIENT, UNKNOWN_DIRECTION
from dissector.protocols.pairing.rules import EITHER
from dissector.protocols.pulsar.wire import headers
from dissector.protocols.pulsar.wire.commands import COMMANDS, MESSAGE, SEND, command_name
from tests.wire import pulsar

WINDOW = 64  # bytes within which every header must be decided
check_header = kernel(headers.check_header)
prove_frame = kernel(headers.prove_frame)
one_way = kernel(headers.one_way)
announced_limit = kernel(headers.announced_limit)
read_command = headers.read_command


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(data or b"\0"), np.uint8)


def check(data: bytes, direction: int = UNKNOWN_DIRECTION, strict: int = 1, offset: int = 0) -> int:
    limit = MAX_FRAME_BYTES
    return int(check_header(array(data), offset, len(data), direction, limit, strict))


def frame_of(number: int, name: str) -> bytes:
    """A small frame of any command, its body left empty."""
    made = pulsar.command(name)
    if number in (SEND, MESSAGE):
        return pulsar.entry(made, pulsar.metadata(), b"x")
    return pulsar.simple(made)


@pytest.mark.parametrize("name", pulsar.VECTORS)
@pytest.mark.parametrize("strict", [0, 1], ids=["steady", "strict"])
def test_hand_made_frames_are_valid_and_undecided_while_they_are_cut(
    name: str, strict: int
) -> None:
    data = pulsar.vector(name)
    assert check(data, strict=strict) == len(data)
    verdicts = [check(data[:cut], strict=strict) for cut in range(len(data))]
    decided = [cut for cut, verdict in enumerate(verdicts) if verdict]
    assert all(verdicts[cut] == len(data) for cut in decided)
    assert decided == list(range(decided[0], len(data))) if decided else True


def test_the_vectors_come_out_of_the_builders() -> None:
    flow = pulsar.simple(pulsar.command("FLOW", consumer_id=1, messagePermits=1000))
    assert flow == pulsar.vector("FLOW")
    assert pulsar.send() == pulsar.vector("SEND")


@pytest.mark.parametrize("command", COMMANDS, ids=[command_name(each.number) for each in COMMANDS])
def test_every_command_is_valid_only_in_its_direction(command) -> None:
    data = frame_of(command.number, command_name(command.number))
    for direction in (TO_BROKER, TO_CLIENT):
        legal = command.direction in (EITHER, direction)
        assert check(data, direction) == (len(data) if legal else -1)
        assert check(data, direction, strict=0) == len(data)
    assert check(data) == len(data)
    assert read_command(array(data), 0, len(data)) == command.number


def test_unknown_commands_pass_only_where_a_frame_must_be() -> None:
    unknown = bytes([0x08, 83, 0x9A, 0x05, 0])
    data = pulsar.simple(unknown)
    assert check(data) == -1
    assert check(data, strict=0) == len(data)
    # A newer command may well have a second half.
    longer = struct.pack(">II", 4 + 5 + 7, 5) + unknown + bytes(7)
    assert check(longer, strict=0) == len(longer)
    assert read_command(array(data), 0, len(data)) == 83


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", 7, 2) + b"\x08\x12",
        struct.pack(">II", MAX_FRAME_BYTES - 3, 5) + b"\x08\x12\x92\x01\x00",
        struct.pack(">II", 9, 6) + b"\x08\x12\x92\x01\x00",
        struct.pack(">II", 9, 5) + b"\x0a\x12\x92\x01\x00",
        struct.pack(">II", 12, 5) + b"\x08\x12\x92\x01\x00\0\0\0",
        struct.pack(">II", 12, 5) + b"\x08\x06\x32\x01\x00\0\0\0",
        struct.pack(">II", 9, 1) + b"\x08\x12\x92\x01\x00",
    ],
    ids=["short", "too_long", "command_too_long", "no_type", "tail", "no_second_half", "no_type_2"],
)
@pytest.mark.parametrize("strict", [0, 1], ids=["steady", "strict"])
def test_broken_sizes_and_tags_are_refused(data: bytes, strict: int) -> None:
    assert check(data, strict=strict) == -1


@pytest.mark.parametrize(
    "body",
    [
        b"\x08\x12\x9a\x01\x00",
        b"\x08\x12\x92\x01\x01",
        b"\x08\x12\x92\x01\x00\x00",
        b"\x08\x12\x92\x81",
    ],
    ids=["other_tag", "body_too_long", "body_too_short", "cut"],
)
def test_a_search_wants_the_command_filled_by_its_body(body: bytes) -> None:
    data = pulsar.simple(body)
    assert check(data) == -1
    assert check(data, strict=0) == len(data)


def test_a_search_looks_behind_a_short_command() -> None:
    made = pulsar.command("SEND", producer_id=1, sequence_id=2)
    for half, valid in (
        (struct.pack(">I", 3) + b"abc", True),
        (struct.pack(">I", 4) + b"abc", False),
        (struct.pack(">HI", 0x0E01, 5) + struct.pack(">I", 0), True),
        (struct.pack(">HI", 0x0E01, 5) + b"abc", False),
        (struct.pack(">HI", 0x0E02, 2) + b"ab" + struct.pack(">HII", 0x0E01, 5, 0), True),
        (struct.pack(">HI", 0x0E02, 99) + b"ab" + struct.pack(">HII", 0x0E01, 5, 0), False),
    ):
        data = struct.pack(">II", 4 + len(made) + len(half), len(made)) + made + half
        assert (check(data) == len(data)) is valid, half
        assert check(data, strict=0) == len(data)


@given(st.binary(max_size=120), st.integers(0, 3), st.sampled_from([0, 1]))
@settings(max_examples=300, deadline=None)
def test_noise_is_decided_within_the_window_and_more_bytes_never_change_a_verdict(
    noise: bytes, start: int, strict: int
) -> None:
    data = (b"", b"\0\0\0", b"\0\0\0\x20\0\0\0\x18\x08", b"\0\0\0\x40\0\0\0\x10\x08\x06\x32")[start]
    data += noise
    verdicts = [check(data[:cut], strict=strict) for cut in range(len(data) + 1)]
    decided = [verdict for verdict in verdicts if verdict != 0]
    assert len(set(decided)) <= 1
    assert verdicts[len(verdicts) - len(decided) :] == decided
    assert len(data) < WINDOW or verdicts[WINDOW] != 0


@given(st.integers(0, 5), st.data())
@settings(max_examples=100, deadline=None)
def test_a_header_is_judged_alike_wherever_it_lies(before: int, data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from([pulsar.vector(name) for name in pulsar.VECTORS]))
    cut = data.draw(st.integers(0, len(frame)))
    behind = b"\xaa" * before
    assert check(behind + frame[:cut], offset=before) == check(frame[:cut])


def test_a_checksum_proves_or_contradicts_a_frame() -> None:
    broker_entry = pulsar.body("BrokerEntryMetadata", broker_timestamp=1000, index=42)
    command = pulsar.command("MESSAGE", consumer_id=1, message_id={"ledgerId": 5, "entryId": 7})
    for block in (None, broker_entry):
        right = pulsar.entry(command, pulsar.metadata(), b"hi", broker_entry=block)
        none = pulsar.entry(command, pulsar.metadata(), b"hi", False, block)
        wrong = pulsar.entry(command, pulsar.metadata(), b"hi", 123, block)
        assert [prove_frame(array(each), 0, len(each)) for each in (right, none, wrong)] == [
            1,
            0,
            -1,
        ]
    assert pulsar.entry(command, pulsar.metadata(), b"hi", True, broker_entry) == pulsar.vector(
        "MESSAGE"
    )
    ping = pulsar.vector("PING")
    assert prove_frame(array(ping), 0, len(ping)) == 0


def test_the_direction_of_a_close_is_told_by_its_request_id() -> None:
    for name in ("CLOSE_PRODUCER", "CLOSE_CONSUMER"):
        key = {"CLOSE_PRODUCER": "producer_id", "CLOSE_CONSUMER": "consumer_id"}[name]
        for request_id, direction in ((5, TO_BROKER), (-1, TO_CLIENT)):
            data = pulsar.simple(pulsar.command(name, request_id=request_id, **{key: 3}))
            assert one_way(array(data), 0, len(data)) == direction
            assert one_way(array(data), 0, len(data) - 1) == UNKNOWN_DIRECTION
    for name in ("PING", "PONG"):
        data = pulsar.vector(name)
        assert one_way(array(data), 0, len(data)) == UNKNOWN_DIRECTION
    send = pulsar.vector("SEND")
    assert one_way(array(send), 0, len(send)) == TO_BROKER
    assert one_way(array(send), 0, 9) == UNKNOWN_DIRECTION


def test_connected_announces_the_limit() -> None:
    for size, limit in ((5 << 20, MAX_FRAME_BYTES), (100, 100 + 10_240), (-5, 0), (0, 0)):
        data = pulsar.simple(
            pulsar.command(
                "CONNECTED",
                server_version="Pulsar Server4.0.6",
                protocol_version=21,
                max_message_size=size,
                feature_flags={"supports_auth_refresh": True},
            )
        )
        assert announced_limit(array(data), 0, len(data)) == limit
    silent = pulsar.simple(pulsar.command("CONNECTED", server_version="x"))
    assert announced_limit(array(silent), 0, len(silent)) == 0
    ping = pulsar.vector("PING")
    assert announced_limit(array(ping), 0, len(ping)) == 0


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_hostile_bytes_are_read_within_bounds(data: bytes) -> None:
    for head in (
        b"",
        struct.pack(">II", 60, 20) + b"\x08",
        struct.pack(">II", 60, 5) + b"\x08\x06",
    ):
        whole = head + data
        held = array(whole)
        assert prove_frame(held, 0, len(whole)) in (-1, 0, 1)
        assert one_way(held, 0, len(whole)) in (TO_BROKER, TO_CLIENT, UNKNOWN_DIRECTION)
        assert announced_limit(held, 0, len(whole)) >= 0
        number = read_command(held, 0, len(whole))
        assert number == NULL or isinstance(number, int)
