"""Why messages come again, where a request and what it is about cross on their way."""

from itertools import permutations

import pytest

from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.pulsar.wire import commands
from tests.wire.talk import EXCLUSIVE, FAILOVER, SHARED, Talk

TRANSACTION = {"txn_most_bits": 3, "txn_least_bits": 4}


def causes_after(requests: int, subscription_type: int) -> list[str | None]:
    """Causes of two entries that come twice, after so many requests for all."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=subscription_type)
    talk.flow(1000)
    for _ in range(requests):
        talk.redeliver()
    for entry in (0, 1, 0, 1):
        talk.message(entry)
    rows = sorted(talk.rows()["deliveries"], key=lambda row: row["frame_no"])
    return [row["redelivery_cause"] for row in rows]


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE])
@pytest.mark.parametrize(("requests", "cause"), [(1, "explicit"), (2, "explicit"), (0, "unknown")])
def test_a_request_for_all_is_seen_before_what_was_on_its_way(
    kind: int, requests: int, cause: str
) -> None:
    assert causes_after(requests, kind) == [None, None, cause, cause]


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
@pytest.mark.parametrize("granted", [None, 0, 1, 2], ids=["none", "first", "second", "third"])
def test_a_seek_that_was_refused_moves_nothing_whichever_answer_comes_first(
    order: tuple[int, ...], granted: int | None
) -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=SHARED)
    talk.message(0)
    requests = [talk.request() for _ in range(3)]
    for request in requests:
        talk.client(commands.SEEK, request_id=request, consumer_id=0)
    for number in order:
        if number == granted:
            talk.broker(commands.SUCCESS, request_id=requests[number])
        else:
            talk.broker(commands.ERROR, request_id=requests[number], error_code=1)
    talk.message(0)
    assert last_cause(talk) == ("unknown" if granted is None else "seek")


def test_a_commit_that_is_refused_is_known_by_its_answer_whatever_is_asked_meanwhile() -> None:
    """By its frame, not by where that frame would lie in a table."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=SHARED)
    talk.message(0)
    talk.ack(0, **TRANSACTION)
    request = talk.request()
    begin = talk.client(commands.END_TXN, request_id=request, txn_action=0, **TRANSACTION)
    while talk.frame_no < begin + 1023:
        talk.flow(1)
    talk.client(commands.CONSUMER_STATS, request_id=talk.request(), consumer_id=0)
    talk.broker(commands.END_TXN_RESPONSE, request_id=request, error_code=1)
    (row,) = talk.rows()["deliveries"]
    assert row["outcome"] == "ack_uncommitted"


def last_cause(talk: Talk) -> str | None:
    rows = sorted(talk.rows()["deliveries"], key=lambda row: row["frame_no"])
    cause: str | None = rows[-1]["redelivery_cause"]
    return cause


@pytest.mark.parametrize(
    ("lost_before", "is_acked", "lost_since", "cause"),
    [
        (False, True, False, "unload"),
        (True, True, False, "unload"),
        (False, False, True, "unload"),
        (False, True, True, "unknown"),
    ],
)
def test_a_close_whose_seek_may_be_lost_is_no_unload(
    lost_before: bool, is_acked: bool, lost_since: bool, cause: str
) -> None:
    """What was acknowledged comes again behind a seek; behind an unload what was not."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=SHARED)
    talk.flow(10)
    if lost_before:
        talk.gap(TO_BROKER)
    talk.message(0)
    if is_acked:
        talk.ack(0)
    if lost_since:
        talk.gap(TO_BROKER)
    talk.broker(commands.CLOSE_CONSUMER, request_id=-1, consumer_id=0)
    talk.subscribe(0, subscription_type=SHARED)
    talk.flow(10)
    talk.message(0)
    assert last_cause(talk) == cause


@pytest.mark.parametrize("is_closed", [False, True], ids=["lost", "captured"])
def test_one_that_was_opened_unseen_did_not_come_back_by_itself(is_closed: bool) -> None:
    """Its SUBSCRIBE was lost, so nothing tells which of its ends a broker's close is."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=SHARED)
    talk.broker(commands.CLOSE_CONSUMER, request_id=-1, consumer_id=0)
    talk.gap(TO_BROKER)
    talk.message(0)
    if is_closed:
        talk.broker(commands.CLOSE_CONSUMER, request_id=-1, consumer_id=0)
    talk.subscribe(0, subscription_type=SHARED)
    talk.message(0)
    assert last_cause(talk) == "unknown"


@pytest.mark.parametrize("is_opened", [False, True], ids=["in use", "opened"])
def test_a_hole_before_a_consumer_hides_deliveries_if_it_may_have_been_there(
    is_opened: bool,
) -> None:
    talk = Talk()
    talk.connect()
    talk.gap(TO_CLIENT)
    if is_opened:
        talk.subscribe()
    talk.message(0, redelivery_count=1)
    (row,) = talk.rows()["deliveries"]
    assert row["redelivery_cause"] == ("pre_capture" if is_opened else "unknown")


@pytest.mark.parametrize("is_answered", [True, False])
def test_messages_under_way_at_a_seek_come_again_by_the_seek(is_answered: bool) -> None:
    """Seen behind the SEEK, and behind the end of their consumer: the broker closes it before."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=EXCLUSIVE)
    talk.flow(10)
    request = talk.request()
    talk.client(commands.SEEK, request_id=request, consumer_id=0)
    talk.broker(commands.CLOSE_CONSUMER, request_id=-1, consumer_id=0)
    talk.message(0)
    if is_answered:
        talk.broker(commands.SUCCESS, request_id=request)
    talk.subscribe(0, subscription_type=EXCLUSIVE)
    talk.flow(10)
    talk.message(0)
    assert last_cause(talk) == ("seek" if is_answered else "unload")


@pytest.mark.parametrize(
    ("is_before", "cause"), [(False, "failover_switch"), (True, "unknown"), (None, "unknown")]
)
def test_a_consumer_that_is_chosen_again_gets_what_it_had(
    is_before: bool | None, cause: str
) -> None:
    """A member joins, and the broker stays with the active one, from its position on."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=FAILOVER)
    talk.flow(10)
    for is_now in (True, False):
        if is_before is is_now:
            talk.broker(commands.ACTIVE_CONSUMER_CHANGE, consumer_id=0, is_active=1)
        talk.message(0)
    assert last_cause(talk) == cause
