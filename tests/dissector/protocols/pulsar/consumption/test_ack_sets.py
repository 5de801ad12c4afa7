"""Batches that are acknowledged in part, by sets that may name again what is acknowledged."""

import random

import pytest

from tests.wire.talk import SHARED, Talk

_ALL = (1 << 64) - 1


def words(bits: int, count: int) -> list[int]:
    """A set of bits as signed 64-bit words."""
    some = [bits >> 64 * number & _ALL for number in range(count)]
    return [word - (1 << 64) if word >> 63 else word for word in some]


@pytest.mark.parametrize("size", [1, 3, 63, 64, 65, 130])
@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "redelivered in part"])
def test_what_is_left_is_what_all_sets_leave(size: int, is_cut: bool) -> None:
    chance = random.Random(f"{size} {is_cut}")
    count = -(-size // 64)
    came = chance.getrandbits(size) | 1 if is_cut else (1 << size) - 1
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=SHARED)
    more = {"ack_set": words(came, count)} if is_cut else {}
    talk.message(0, message_count=size, is_batch=1, **more)
    left = came
    for _ in range(3):
        named = (1 << size) - 1 if size < 3 else chance.getrandbits(size) | 1
        left &= named
        talk.ack(ids=[{"ledger_id": 7, "entry_id": 0, "ack_set": words(named, count)}])
    (row,) = talk.rows()["deliveries"]
    assert row["outcome"] == "unacked_at_end"
    assert row["message_count"] == came.bit_count()
    assert row["messages_acked"] == came.bit_count() - left.bit_count()
