"""Batches: all four layouts read back, the right one chosen, hostile ones refused."""

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.protocols.cursus.batches import (
    LAYOUT_NAMES,
    LAYOUTS,
    choose_layout,
    end_of_records,
    read_cut_head,
    read_head,
    read_record,
)
from tests.naive.cursus import read_batch
from tests.wire import cursus
from tests.wire.cursus import Record

u64 = st.integers(0, (1 << 64) - 1)
texts = st.binary(max_size=6)
some_records = st.lists(
    st.builds(
        Record,
        seq_num=u64,
        payload=st.binary(max_size=20),
        offset=u64,
        producer=texts,
        key=texts,
        epoch=st.integers(-(1 << 63), (1 << 63) - 1),
        event_type=texts,
        schema_version=st.integers(0, (1 << 32) - 1),
        aggregate_version=u64,
        metadata=texts,
    ),
    max_size=5,
)


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(data), np.uint8)


def signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def chosen(body: bytes, known: int = -1) -> str:
    found = int(choose_layout(array(body), 0, len(body), known))
    if found < 0:
        return "none"
    return LAYOUT_NAMES[found % LAYOUTS] + ("+" if found >= LAYOUTS else "")


@given(some_records, st.integers(-5, 1 << 20), st.sampled_from([b"0", b"1", b"-1", b"all"]))
@settings(max_examples=150)
def test_every_field_is_read_back(records, partition, acks):
    body = cursus.batch_body(records, topic=b"t.1", partition=partition, acks=acks, idempotent=1)
    data = array(body)
    head = read_head(data, 0, len(body), 0)
    assert body[head.topic_at : head.topic_at + head.topic_bytes] == b"t.1"
    assert (head.partition, head.idempotent, head.records) == (partition, 1, len(records))
    assert head.acks == {b"0": 0, b"1": 1, b"-1": -1, b"all": -1}[acks]
    assert head.seq_start == (signed(records[0].seq_num) if records else 0)
    assert head.seq_end == (signed(records[-1].seq_num) if records else 0)
    cursor = head.records_at
    for record in records:
        found = read_record(data, cursor, len(body), 0)
        assert found.offset == signed(record.offset) and found.seq_num == signed(record.seq_num)
        assert found.epoch == record.epoch
        for at, size, value in (
            (found.producer_at, found.producer_bytes, record.producer),
            (found.key_at, found.key_bytes, record.key),
            (found.payload_at, found.payload_bytes, record.payload),
            (found.event_type_at, found.event_type_bytes, record.event_type),
        ):
            assert body[at : at + size] == value
        assert found.schema_version == record.schema_version
        assert found.aggregate_version == signed(record.aggregate_version)
        cursor = found.next
    assert cursor == len(body) == end_of_records(data, head, len(body), 0)


@pytest.mark.parametrize("layout", cursus.LAYOUTS)
@pytest.mark.parametrize("partition", [0, 7, 12, 123])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_the_layout_is_the_one_that_ends_with_the_frame(layout, partition, count):
    body = cursus.batch_body(
        cursus.records(count, first=3), partition=partition, acks=b"1", layout=layout
    )
    assert chosen(body) == layout
    assert read_batch(body).layout == layout


def test_a_document_s_batch_reads_as_a_real_one_with_an_odd_partition():
    """Why its layout is tried first: to a broker it is partition 77824 of the real layout."""
    body = cursus.batch_body(cursus.records(2), partition=0, layout="seed")
    head = read_head(array(body), 0, len(body), 0)
    assert head.partition == 77824 and end_of_records(array(body), head, len(body), 0) == len(body)
    assert chosen(body) == "seed"


def test_an_empty_batch_is_of_the_present_layout():
    assert chosen(cursus.batch_body([])) == "cur"
    assert chosen(cursus.vector("empty answer")[4:]) == "cur"


def test_bytes_behind_the_last_record_are_reported_not_refused():
    body = cursus.batch_body(cursus.records(3)) + b"\0\0"
    assert chosen(body) == "cur+"
    assert chosen(cursus.batch_body(cursus.records(3))[:-1]) == "none"


@pytest.mark.parametrize("count", [-1, 100_001, 2**31 - 1])
def test_counts_that_no_broker_takes_are_refused(count):
    body = bytearray(cursus.batch_body([]))
    body[-4:] = struct.pack(">i", count)
    assert chosen(bytes(body)) == "none"
    assert read_batch(bytes(body)) is None


def test_the_layout_of_a_connection_is_tried_first():
    body = cursus.batch_body([], layout="v010")
    assert chosen(body, known=3) == "v010"


@given(st.binary(max_size=120))
@settings(max_examples=200)
def test_any_bytes_are_read_within_their_bounds(noise):
    body = cursus.batch_body(cursus.records(2))[:40] + noise
    for known in range(-1, LAYOUTS):
        choose_layout(array(body), 0, len(body), known)


@given(some_records, st.sampled_from(cursus.LAYOUTS), st.integers(0, 60))
@settings(max_examples=150)
def test_a_plain_reader_chooses_the_same(records, layout, cut):
    body = cursus.batch_body(records, layout=layout)
    body = body[: len(body) - cut] if cut < len(body) else body
    batch = read_batch(body)
    mine = chosen(body)
    assert mine.rstrip("+") == ("none" if batch is None else batch.layout)


@given(
    st.integers(1, 5), st.integers(0, 300), st.integers(0, 1 << 20), st.integers(0, 70_000),
    st.sampled_from(cursus.LAYOUTS), st.booleans(), st.integers(0, 400),
)  # fmt: skip
@settings(max_examples=300)
@example(5, 1, 0, 20, "v010", False, 20)
@example(1, 1, 0, 9000, "v010", False, 20)
@example(2, 1, 0, 20, "seed", False, 20)
def test_of_a_cut_batch_nothing_is_told_that_the_whole_one_does_not(
    count, first, partition, size, layout, is_known, kept
):
    """Its end does not tell its layout: what layouts read differently is not known."""
    body = cursus.batch_body(
        [Record(seq_num=first + number, payload=b"x" * size) for number in range(count)],
        partition=partition,
        acks=b"1",
        layout=layout,
    )
    number = LAYOUT_NAMES.index(layout)
    true = read_head(array(body), 0, len(body), number)
    end = min(len(body), true.records_at + kept - 30)
    found = read_cut_head(array(body), 0, end, len(body), number if is_known else -1)
    if end < true.records_at:
        assert found.head.records_at == -1
        return
    assert found.layout in (number, NULL) or {found.layout, number} == {0, 2}
    for name, value in found.head._asdict().items():
        assert value in (NULL, getattr(true, name)), name
    if is_known and layout != "seed" and partition < 1 << 16:
        assert found.head == true and found.layout == number
