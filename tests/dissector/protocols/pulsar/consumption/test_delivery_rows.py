"""Columns of deliveries that are computed when their rows are written."""

import pytest

from tests.wire.frames import STEP_NS
from tests.wire.talk import SHARED, Talk


def sent(is_stored_late: bool) -> Talk:
    """A delivered entry; the receipt of its SEND comes before the delivery ends, or later."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=SHARED)
    talk.connect(1)
    talk.produce(connection=1)
    talk.send(0, connection=1)
    talk.message(0)
    if not is_stored_late:
        talk.receipt(0, entry=0, connection=1)
    talk.redeliver()
    if is_stored_late:
        talk.receipt(0, entry=0, connection=1)
    talk.ack(0)
    return talk


@pytest.mark.parametrize("is_stored_late", [False, True])
def test_a_receipt_behind_the_end_of_a_delivery_is_no_send_time(is_stored_late: bool) -> None:
    """Nor if an ack counts behind it: what is known then is known however long a row waits."""
    (row,) = sent(is_stored_late).rows()["deliveries"]
    assert row["outcome"] == "acked"
    assert row["publish_to_delivery_ns"] == (None if is_stored_late else STEP_NS)


def test_an_ack_that_does_not_count_leaves_no_latency() -> None:
    talk = sent(False)
    talk.message(1)
    talk.redeliver()
    talk.ack(1, request_id=9)
    row = talk.rows()["deliveries"][-1]
    assert (row["outcome"], row["ack_frame_no"]) == ("redelivery_requested", None)
    assert row["ack_latency_ns"] is None and row["messages_acked"] == 0
