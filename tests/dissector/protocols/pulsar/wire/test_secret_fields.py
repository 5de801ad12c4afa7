"""Secrets in frames are hidden in place: lengths, tags and checksums stay true."""

import random

import cramjam
import crc32c
import numpy as np
import pytest

from dissector.protocols.pulsar.spec import SPEC
from tests.wire import pulsar
from tests.wire.secrets import Garden


def hide_in_frame(frame: bytes) -> bytes:
    return SPEC.hide_secrets(frame, False)


@pytest.mark.parametrize("seed", range(5))
def test_every_text_of_every_command_is_hidden_and_still_read(seed: int) -> None:
    garden = Garden(seed)
    base = pulsar.classes()["BaseCommand"]
    for value in base.DESCRIPTOR.fields_by_name["type"].enum_type.values:
        if value.number not in base.DESCRIPTOR.fields_by_number:
            continue
        frame = garden.command(value.name)
        hidden = hide_in_frame(frame)
        assert len(hidden) == len(frame) and hidden[:8] == frame[:8]
        read = base.FromString(hidden[8:])
        assert read.ByteSize() == len(frame) - 8
        assert not [each for each in garden.planted if each.secret.encode() in hidden]


def checksum_of(frame: bytes) -> tuple[int, int]:
    at = 8 + int.from_bytes(frame[4:8], "big")
    assert frame[at : at + 2] == b"\x0e\x01"
    return int.from_bytes(frame[at + 2 : at + 6], "big"), crc32c.crc32c(frame[at + 6 :])


@pytest.mark.parametrize("codec", ["NONE", "LZ4"])
@pytest.mark.parametrize("is_batch", [False, True])
def test_checksums_move_with_what_they_cover(codec: str, is_batch: bool) -> None:
    garden = Garden(7)
    payload = b"x password=" + garden.secret().encode() + b" y"
    if is_batch:
        items = [({"partition_key": garden.text()}, payload), ({}, b"plain")]
        payload = pulsar.batch(items)
    fields: dict[str, object] = {"num_messages_in_batch": 2} if is_batch else {}
    if codec == "LZ4":
        fields |= {"compression": "LZ4", "uncompressed_size": len(payload)}
        payload = bytes(cramjam.lz4.compress_block(payload, store_size=False))
    frame = pulsar.send(payload, metadata_fields=fields)
    hidden = hide_in_frame(frame)
    assert hidden != frame and len(hidden) == len(frame)
    assert not [each for each in garden.planted if each.secret.encode() in hidden]
    stored, computed = checksum_of(hidden)
    assert stored == computed
    broken = frame[:-1] + bytes([frame[-1] ^ 1])
    stored, computed = checksum_of(hide_in_frame(broken))
    assert stored != computed


def test_frames_without_secrets_stay() -> None:
    for name in pulsar.VECTORS:
        assert hide_in_frame(pulsar.vector(name)) == pulsar.vector(name)


def test_damage_never_raises_and_what_is_cut_is_hidden() -> None:
    chance = random.Random(3)
    garden = Garden(3)
    for name in ("CONNECT", "PRODUCER", "ERROR"):
        frame = garden.command(name)
        for end in range(0, len(frame), 11):
            hidden = hide_in_frame(frame[:end])
            assert len(hidden) == end
            assert not [each for each in garden.planted if each.secret.encode() in hidden]
        for _ in range(50):
            damaged = bytearray(frame)
            damaged[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
            assert len(hide_in_frame(bytes(damaged))) == len(frame)


@pytest.mark.parametrize("seed", range(5))
def test_of_many_frames_all_that_hold_a_secret_are_told_and_hardly_another(seed: int) -> None:
    """Told at once, of frames behind each other: what `secret_spans` finds in each by itself."""
    garden, chance = Garden(seed), random.Random(seed)
    frames = [garden.command(name) for name in ("CONNECT", "PRODUCER", "SUBSCRIBE", "ERROR")]
    key = {"properties": [{"key": "password", "value": "plain"}]}
    pair = [({}, b"plain"), (key, b"x")]
    frames += [pulsar.send(b"a secret is here: password=" + garden.secret().encode())]
    frames += [pulsar.send(pulsar.batch(pair), metadata_fields={"num_messages_in_batch": 2})]
    frames += [pulsar.send(b"x", metadata_fields={"compression": "LZ4", "uncompressed_size": 9})]
    frames += [b"\0\0\0\x05\0\0\0\x09\x08\x02\x08", b"\0\0\0\2\0\0", frames[0][:-1] + b"\xff"]
    frames += [pulsar.send(b"number %d" % number) for number in range(400)]
    chance.shuffle(frames)
    ends = np.cumsum([len(frame) for frame in frames])
    sizes = np.array([len(frame) for frame in frames])
    data = np.frombuffer(bytearray(b"".join(frames)), np.uint8)
    told = SPEC.suspicious(data, np.stack([ends - sizes, sizes, ends]))
    found = [bool(SPEC.secret_spans(frame, False)) for frame in frames]
    assert not np.any(np.array(found) & ~told)
    assert sum(found) >= 6 and told.sum() <= 10
