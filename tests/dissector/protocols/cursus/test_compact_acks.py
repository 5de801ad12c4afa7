"""Acknowledgements read without the interpreter say what the reader of all answers says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.cursus.answers import read_answer
from dissector.protocols.cursus.compact_acks import read_compact_ack
from tests.wire import cursus

BODY = cursus.ack(41, 1, 9)[4:]


def compact(body: bytes):
    """What it says, as answers.Ack; None if it is for the other reader."""
    ack = read_compact_ack(np.frombuffer(bytearray(body), np.uint8), 0, len(body))
    if ack.end < 0:
        return None
    producer = body[ack.producer_at : ack.producer_at + ack.producer_bytes]
    numbers = (int(ack.last_offset), int(ack.epoch))
    return (*numbers, producer, int(ack.seq_start), int(ack.seq_end))


numbers = st.one_of(st.integers(0, 99), st.integers(0, 10**20))


@given(numbers, numbers, numbers, st.integers(-(10**19), 10**19), st.text("ab-é", max_size=9))
def test_both_readers_agree(offset, start, end, epoch, producer):
    body = cursus.ack(offset, start, end, producer, epoch)[4:]
    found, answer = compact(body), read_answer(body)
    assert found is None or found == answer.ack
    if max(offset, start, end, abs(epoch)) < 10**18:
        assert found is not None


@pytest.mark.parametrize(
    "body",
    [
        BODY[:-1],
        BODY + b"\n",
        BODY.replace(b"OK", b"NO"),
        BODY.replace(b":41,", b": 41,"),
        BODY.replace(b":41,", b":,"),
        BODY.replace(b":41,", b":-1,"),
        BODY.replace(b"p1", b'p\\"1'),
        BODY.replace(b"}", b',"leader":"h:1"}'),
        b"{}",
    ],
)
def test_any_other_form_is_for_the_other_reader(body):
    assert compact(body) is None


@given(st.integers(0, len(BODY)), st.binary(max_size=9))
def test_any_bytes_are_survived(cut, noise):
    body = BODY[:cut] + noise + BODY[cut:]
    found = compact(body)
    assert found is None or found == read_answer(body).ack
