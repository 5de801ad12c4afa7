"""Frames of Cursus with other names and noise, as long as before and read as before."""

import gzip

import numpy as np
import pytest

from dissector.protocols.cursus.anonymize import CursusAnonymizer
from dissector.protocols.cursus.answers import read_answer
from dissector.protocols.cursus.lines import read_line
from dissector.protocols.pseudonyms import Pseudonyms
from tests.wire import cursus

NAMES = Pseudonyms(bytes(range(16)))


def noise(text: bytes) -> bytes:
    return np.random.default_rng(len(text)).bytes(len(text))


def made(frame: bytes, is_packed: bool = False) -> bytes:
    out = CursusAnonymizer(NAMES, noise).frame(frame, len(frame), is_packed)
    assert len(out) == len(frame) and out[:4] == frame[:4]
    return out


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("METADATA topic=acme.orders", [b"acme", b"orders"]),
        ("FETCH_OFFSET topic=acme partition=3 group=billing", [b"acme", b"billing"]),
        ("JOIN_GROUP topic=t9x group=g12 member=jane-1234", [b"jane", b"g12"]),
        ("AUTH principal=jane token=s3cr3t", [b"jane", b"s3cr3t"]),
        ("PUBLISH topic=acme acks=1 producerId=maker message=a text of mine", [b"text", b"maker"]),
        ("NEGOTIATE features=structured_errors_v1 client=acme", [b"acme"]),
    ],
)
def test_commands_keep_words_and_numbers(line: str, gone: list[bytes]) -> None:
    frame = cursus.enveloped(line, b"acme")
    out = made(frame)
    assert [each for each in gone if each in out] == []
    before, after = read_line(frame[4:]), read_line(out[4:])
    assert (before.command, before.entries, before.grammar) == (
        after.command, after.entries, after.grammar,
    )  # fmt: skip
    assert list(before.arguments) == list(after.arguments)
    for name in (b"partition", b"acks", b"features"):
        assert before.arguments.get(name) == after.arguments.get(name)


@pytest.mark.parametrize(
    "text",
    [
        "OK topic=acme partitions=4 leaders=h1:9000,h2:9000 epochs=0,0",
        "OK generation=3 member=jane-1234 assignments=[0 1 2]",
        "ERROR: partition_not_found class=not_found retryable=false topic=acme partition=9",
        'ERROR: command_failed reason="partition 9 of topic acme is out of range"',
        '{"status":"OK","last_offset":7,"producer_epoch":1,"producer_id":"jane","seq_start":1,'
        '"seq_end":8}',
        '{"status":"ERROR","error":"ERROR: event_sourcing_not_enabled topic=acme"}',
        "STREAM_CONTROL type=CLOSE reason=replaced offset=3",
    ],
)
def test_answers_keep_codes_and_numbers(text: str) -> None:
    out = made(cursus.bare(text))
    assert b"acme" not in out and b"jane" not in out
    before, after = read_answer(text.encode()), read_answer(out[4:])
    assert (before.command, before.is_error, before.error_code) == (
        after.command, after.is_error, after.error_code,
    )  # fmt: skip
    numbers = ("partition", "offset", "generation", "partitions", "epochs", "type", "assignments")
    assert [before.fields.get(each) for each in numbers] == [
        after.fields.get(each) for each in numbers
    ]
    if before.ack is not None and after.ack is not None:
        assert before.ack._replace(producer_id=b"") == after.ack._replace(producer_id=b"")


@pytest.mark.parametrize("layout", ["cur", "seed", "apr26", "v010"])
def test_batches_of_every_layout(layout: str) -> None:
    records = cursus.records(3, producer=b"maker", key=b"somekey", payload=b"payload of mine")
    body = cursus.batch_body(records, topic=b"acme", layout=layout)
    out = made(cursus.frame(body))
    for gone in (b"acme", b"maker", b"somekey", b"payload"):
        assert gone not in out
    assert out.count(NAMES.name(b"maker")) == 3


def test_a_compressed_batch_is_packed_anew() -> None:
    records = cursus.records(40, producer=b"maker", payload=b"payload of mine, again and again")
    frame = cursus.frame(gzip.compress(cursus.batch_body(records, topic=b"acme"), mtime=0))
    plain = gzip.decompress(made(frame)[4:])
    assert plain.count(NAMES.name(b"maker")) == 40 and b"payload" not in plain


def test_what_cannot_be_opened_is_noise() -> None:
    frame = cursus.frame(b"\x1f\x8b\x08" + b"not gzip at all, but a name: acme")
    assert b"acme" not in made(frame)


def test_that_credentials_stand_in_a_payload_is_still_seen() -> None:
    frame = cursus.enveloped("PUBLISH topic=t message=x auth_token=s3cr3t")
    out = made(frame)
    assert b" auth_token=*" in out and b"s3cr3t" not in out


def test_names_can_stay() -> None:
    frame = cursus.enveloped("PUBLISH topic=acme message=mine")
    out = CursusAnonymizer(None, noise).frame(frame, len(frame), False)
    assert b"topic=acme" in out and b"mine" not in out
