"""Frames of Pulsar with other names and noise: they read as before, and sums stay what they were.

`dissector.protocols.pulsar.wire.frame_fields` finds what is replaced here.
"""

from typing import Any

import numpy as np
import pytest

from dissector.codecs.crc32c import crc32c
from dissector.protobuf.descriptors import descriptors
from dissector.protocols.pseudonyms import Pseudonyms
from dissector.protocols.pulsar.wire.anonymize import PulsarAnonymizer
from dissector.protocols.pulsar.wire.contents import SECRET, content_of
from dissector.protocols.pulsar.wire.details import parse
from dissector.protocols.pulsar.wire.frame_fields import Kind, plan_of
from tests.wire import pulsar
from tests.wire.secrets import Garden

KEY = bytes(range(16))
NAMES = Pseudonyms(KEY)


def anonymized(*frames: bytes, cut: int = 0) -> list[bytes]:
    """Frames, treated in one buffer; cut: so many bytes of the last one are missing."""
    data = np.frombuffer(bytearray(b"".join(frames)[: sum(map(len, frames)) - cut]), np.uint8)
    sizes = np.array([len(frame) for frame in frames], np.int64)
    starts = np.cumsum(sizes) - sizes
    ends = np.minimum(starts + sizes, len(data))
    bounds = np.stack([starts, sizes, ends])
    PulsarAnonymizer(NAMES, bytes(16)).frames(data, bounds)
    return [data[a:b].tobytes() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def command_of(frame: bytes) -> Any:
    return parse("BaseCommand", frame[8 : 8 + int.from_bytes(frame[4:8], "big")])


def numbers(message: Any) -> list[Any]:
    """All fields of a message but texts and bytes, which are their lengths."""
    found: list[Any] = []
    for field, value in message.ListFields():
        for each in value if field.is_repeated else [value]:
            if field.message_type is not None:
                found.append((field.name, numbers(each)))
            else:
                found.append((field.name, len(each) if isinstance(each, bytes) else each))
    return found


BASE = pulsar.classes()["BaseCommand"].DESCRIPTOR
COMMANDS = [
    value.name
    for value in BASE.fields_by_name["type"].enum_type.values
    if value.number in BASE.fields_by_number
]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_other_texts_and_the_same_numbers(name: str) -> None:
    garden = Garden(7)
    frame = garden.command(name)
    (made,) = anonymized(frame)
    assert len(made) == len(frame) and made[:8] == frame[:8]
    assert numbers(command_of(made)) == numbers(command_of(frame))
    for each in garden.planted:
        assert each.secret.encode() not in made


def test_every_field_of_text_or_bytes_has_a_rule() -> None:
    plan, rows = plan_of(False)
    for message, fields in descriptors().messages.items():
        for number, field in fields.items():
            action = int(plan[rows[message], number]) & 0xFF
            if field.type_name in ("string", "bytes"):
                assert action != Kind.KEEP, (message, field.name)
            if content_of(message, field.name) == SECRET:
                assert action == Kind.STARS


def entry(payload: bytes, **fields: Any) -> bytes:
    return pulsar.send(payload, metadata_fields=fields, sequence_id=5)


def crc_is_right(frame: bytes) -> bool:
    at = 8 + int.from_bytes(frame[4:8], "big")
    assert frame[at : at + 2] == b"\x0e\x01"
    data = np.frombuffer(bytearray(frame[at + 6 :]), np.uint8)
    return int.from_bytes(frame[at + 2 : at + 6], "big") == crc32c(data, 0, len(data))


def test_right_checksums_are_right_and_wrong_ones_wrong() -> None:
    good = entry(b"a payload of some length", producer_name="maker")
    bad = good[:-3] + bytes([good[-3] ^ 1]) + good[-2:]
    right, wrong = anonymized(good, bad)
    assert crc_is_right(right) and not crc_is_right(wrong)
    assert b"payload" not in right + wrong and b"maker" not in right + wrong
    # The damaged copy is the good one but for one byte, as it was.
    assert sum(a != b for a, b in zip(right, wrong, strict=True)) == 1
    head = 8 + int.from_bytes(right[4:8], "big")
    assert right[: head + 6] == wrong[: head + 6]


def test_equal_entries_stay_equal_and_others_others() -> None:
    one, again, other = anonymized(entry(b"same"), entry(b"same"), entry(b"else"))
    assert one == again != other


def test_batches_keep_their_messages() -> None:
    items = [({"partition_key": f"key{n}"}, b"x" * (10 + n)) for n in range(5)]
    frame = entry(pulsar.batch(items), num_messages_in_batch=5)
    (made,) = anonymized(frame)
    assert crc_is_right(made) and b"xxxx" not in made and b"key" not in made
    at = made.index(NAMES.words(b"key3"))
    assert frame[at : at + 4] == b"key3"


def test_properties_of_pulsar_itself_stay() -> None:
    pairs = [{"key": "RECONSUMETIMES", "value": "3"}, {"key": "REAL_TOPIC", "value": "acme/orders"}]
    pairs.append({"key": "customer", "value": "Jane"})
    (made,) = anonymized(entry(b"p", properties=pairs))
    assert b"RECONSUMETIMES\x12\x013" in made and b"REAL_TOPIC" in made
    assert NAMES.name(b"acme/orders") in made
    for gone in (b"acme", b"customer", b"Jane"):
        assert gone not in made


@pytest.mark.parametrize("cut", [1, 10, 30, 60, 100])
def test_what_is_cut_says_nothing_of_what_is_there(cut: int) -> None:
    frame = entry(b"payload-" * 8, producer_name="maker", partition_key="somekey")
    (made,) = anonymized(frame, cut=cut)
    assert len(made) == len(frame) - cut
    assert b"payload" not in made and b"maker" not in made and b"somekey" not in made


def test_many_sentences_are_taken_in_turns() -> None:
    error = pulsar.simple(pulsar.command("ERROR", request_id=1, error=1, message="topic acme/x"))
    made = anonymized(*[error] * 5000)
    assert len(set(made)) == 1 and b"acme" not in made[0] and b"topic " in made[0]


def test_a_frame_has_as_many_rows_as_it_needs() -> None:
    """A command that says its only sentence so often that no room is given beforehand."""
    sentence = b"\x1a\x0ctopic acme/x"
    body = b"\x08\x01\x10\x01" + sentence * 30_000
    field = 14 << 3 | 2
    command = b"\x08\x0e" + bytes([field]) + pulsar.varint(len(body)) + body
    frame = (4 + len(command)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command
    (made,) = anonymized(frame)
    assert len(made) == len(frame) and b"acme" not in made and made.count(b"topic ") == 30_000


def test_text_where_a_number_belongs_goes() -> None:
    command = b"\x08\x0e" + bytes([14 << 3 | 2, 12]) + b"\x0a\x06Jane-X" + b"\x10\x01\x1a\x00"
    frame = (4 + len(command)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command
    (made,) = anonymized(frame)
    assert made[:14] == frame[:14] and b"Jane" not in made


@pytest.mark.parametrize("seed", range(20))
def test_hostile_bytes_are_taken(seed: int) -> None:
    chance = np.random.default_rng(seed)
    frame = bytearray(entry(b"payload", producer_name="maker"))
    for offset in chance.integers(4, len(frame), 6):
        frame[offset] = int(chance.integers(256))
    assert len(anonymized(bytes(frame))[0]) == len(frame)
