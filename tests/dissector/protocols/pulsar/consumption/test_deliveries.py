"""What an id stands for: a broker that begins anew numbers from the start, and 0:0 may be any."""

from typing import Any

import pytest

from dissector.protocols.columns import CHECKSUM_MISMATCH, CHECKSUM_OK
from tests.wire.frames import STEP_NS
from tests.wire.talk import CUMULATIVE, INDIVIDUAL, Row, Talk, chosen


def talked(*checksums: int | None, **more: Any) -> list[dict[str, Any]]:
    """Deliveries of one id, each with a stored checksum of its own."""
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.flow(1000)
    for checksum in checksums:
        talk.message(0, crc32c_stored=checksum, checksum=CHECKSUM_OK, **more)
    return sorted(talk.rows()["deliveries"], key=lambda row: row["frame_no"])


@pytest.mark.parametrize(
    ("checksums", "again"),
    [
        ((5, 5), [0, 1]), ((5, 6), [0, 0]), ((5, 6, 6), [0, 0, 1]), ((5, 6, 5), [0, 0, 0]),
        ((5, None), [0, 1]), ((None, 5), [0, 1]),
    ],
)  # fmt: skip
def test_another_checksum_is_another_message(
    checksums: tuple[int | None, ...], again: list[int]
) -> None:
    rows = talked(*checksums)
    assert [row["is_redelivered"] for row in rows] == again
    assert [row["previous_frame_no"] is not None for row in rows] == [bool(one) for one in again]


@pytest.mark.parametrize(("times", "again"), [((3, 3), 1), ((3, 4), 0), ((3, None), 1)])
def test_without_a_checksum_its_producers_time_tells_a_message(
    times: tuple[int, int | None], again: int
) -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.flow(1000)
    for time in times:
        more = {} if time is None else {"publish_time_ms": time}
        talk.message(0, **more)
    assert [row["is_redelivered"] for row in talk.rows()["deliveries"]] == [0, again]


def test_a_checksum_that_its_bytes_do_not_have_tells_nothing() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.flow(1000)
    talk.message(0, crc32c_stored=5, checksum=CHECKSUM_MISMATCH)
    talk.message(0, crc32c_stored=6, checksum=CHECKSUM_OK)
    assert [row["is_redelivered"] for row in talk.rows()["deliveries"]] == [0, 1]


def test_what_the_broker_counts_it_delivered_before() -> None:
    rows = talked(5, 6, redelivery_count=1)
    assert [row["redelivery_cause"] for row in rows] == ["pre_capture"] * 2


def test_an_ack_ends_the_later_message_and_the_older_one_stays_open() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.flow(1000)
    for checksum in (5, 6):
        talk.message(0, crc32c_stored=checksum, checksum=CHECKSUM_OK)
    talk.ack(0)
    rows = sorted(talk.rows()["deliveries"], key=lambda row: row["frame_no"])
    assert [row["outcome"] for row in rows] == ["unacked_at_end", "acked"]


@pytest.mark.parametrize("receipt_comes_first", [True, False])
def test_when_the_older_message_was_published_says_nothing_of_the_later(
    receipt_comes_first: bool,
) -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.flow(1000)
    talk.produce()
    for number, checksum in enumerate((5, 6)):
        talk.send(number, crc32c_stored=checksum)
        if receipt_comes_first:
            talk.receipt(number, entry=0)
        talk.message(0, crc32c_stored=checksum, checksum=CHECKSUM_OK)
        if not receipt_comes_first:
            talk.receipt(number, entry=0)
    rows = sorted(talk.rows()["deliveries"], key=lambda row: row["frame_no"])
    took = (2 if receipt_comes_first else 1) * STEP_NS
    assert [row["publish_to_delivery_ns"] for row in rows] == [took, took]


def in_use(*entries: int) -> Talk:
    """A consumer whose SUBSCRIBE was lost: the ledger 0 of a producer tells its topic with entry 1.

    entries: of ledger 0 that it gets.
    """
    talk = Talk()
    talk.connect()
    talk.produce()
    for entry in (0, 1):
        talk.send(entry)
        talk.receipt(entry, entry=entry, ledger_id=0)
    for entry in entries:
        talk.message(entry, ledger_id=0)
    return talk


def in_order(talk: Talk) -> list[Row]:
    return sorted(talk.rows()["deliveries"], key=lambda row: row["frame_no"])


@pytest.mark.parametrize(
    ("ack_type", "entries"), [(INDIVIDUAL, (1, 0)), (CUMULATIVE, (1,))], ids=["single", "up to it"]
)
def test_an_ack_of_the_first_entry_counts_if_its_topic_was_told_meanwhile(
    ack_type: int, entries: tuple[int, ...]
) -> None:
    talk = in_use(0, 1)
    ids = [{"ledger_id": 0, "entry_id": entry} for entry in entries]
    acked = talk.ack(ids=ids, ack_type=ack_type)
    rows = in_order(talk)
    assert chosen(rows, "outcome", "ack_frame_no", "ack_latency_ns") == [
        ("acked", acked, 2 * STEP_NS),
        ("acked", acked, STEP_NS),
    ]
    assert [row["publish_to_delivery_ns"] for row in rows] == [4 * STEP_NS, 3 * STEP_NS]


def test_the_first_entry_that_comes_again_is_known_once_its_topic_was_told() -> None:
    talk = in_use(0, 0, 1)
    talk.ack(ids=[{"ledger_id": 0, "entry_id": 0}])
    rows = in_order(talk)
    assert chosen(rows, "outcome", "is_redelivered") == [
        ("unacked_at_end", 0),
        ("acked", 1),
        ("unacked_at_end", 0),
    ]
    assert rows[1]["previous_frame_no"] == rows[0]["frame_no"]
