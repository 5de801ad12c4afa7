"""A cumulative ACK reaches deliveries that wait for other ACKs, and no others."""

import random

import pytest

from dissector.limits import MAX_CHAIN_STEPS
from dissector.protocols.pulsar.consumption.state import SPENT_STEPS
from tests.dissector.protocols.pulsar.consumption.test_claims import (
    CONFLICT,
    IN_TRANSACTION,
    answer,
    asked,
    delivery_outcomes,
    end,
    ready,
)
from tests.wire.frames import FrameMaker
from tests.wire.talk import CUMULATIVE, EXCLUSIVE, Passes, Talk

COMMIT, ABORT = 0, 1
ACKED = ("acked", 1, True)
OTHER_TRANSACTION = {"txn_most_bits": 3, "txn_least_bits": 5}


def up_to(talk: Talk, entry: int, is_asked: bool = False, **more: int) -> int:
    """A cumulative ACK; returns its request id, 0 if it has none."""
    if is_asked:
        return asked(talk, entry, ack_type=CUMULATIVE, **more)
    talk.ack(entry, ack_type=CUMULATIVE, **more)
    return 0


@pytest.mark.parametrize("is_asked", [False, True], ids=["without answer", "granted later"])
def test_a_refused_ack_is_made_up_for_by_a_cumulative_one_of_a_later_entry(is_asked: bool) -> None:
    talk = ready(EXCLUSIVE, entries=2)
    first = asked(talk, 0)
    second = up_to(talk, 1, is_asked)
    answer(talk, first, CONFLICT)
    if is_asked:
        answer(talk, second)
    assert delivery_outcomes(talk) == [ACKED, ACKED]


def test_all_acks_that_reach_a_delivery_must_be_refused_for_it_to_be_open() -> None:
    talk = ready(EXCLUSIVE, entries=4)
    requests = [up_to(talk, entry, True) for entry in range(4)]
    for request in requests[:3]:
        answer(talk, request, CONFLICT)
    assert delivery_outcomes(talk) == [ACKED] * 4
    answer(talk, requests[3], CONFLICT)
    assert delivery_outcomes(talk) == [("ack_refused", 0, False)] * 4
    talk.ack(3, ack_type=CUMULATIVE)
    assert delivery_outcomes(talk) == [ACKED] * 4


def test_a_delivery_behind_a_cumulative_ack_is_not_reached_by_it() -> None:
    talk = ready(EXCLUSIVE, entries=3)
    waits = asked(talk, 0)
    behind = asked(talk, 2)
    up_to(talk, 1)
    answer(talk, behind, CONFLICT)
    answer(talk, waits, CONFLICT)
    assert [row[0] for row in delivery_outcomes(talk)] == ["acked", "acked", "ack_refused"]


def test_a_cumulative_ack_counts_for_what_came_before_it_alone() -> None:
    talk = ready(EXCLUSIVE, entries=2)
    waits = asked(talk, 0)
    up_to(talk, 1)
    talk.message(5)
    talk.message(1)
    late = asked(talk, 1)
    answer(talk, waits, CONFLICT)
    answer(talk, late, CONFLICT)
    outcomes = [row[0] for row in delivery_outcomes(talk)]
    assert outcomes == ["acked", "acked", "unacked_at_end", "ack_refused"]


def test_an_aborted_transaction_undoes_no_cumulative_ack_outside_it() -> None:
    talk = ready(EXCLUSIVE, entries=2)
    talk.ack(0, **IN_TRANSACTION)
    up_to(talk, 1)
    end(talk, ABORT)
    assert delivery_outcomes(talk) == [ACKED, ACKED]


@pytest.mark.parametrize(
    ("action", "outcome"), [(COMMIT, "acked"), (ABORT, "ack_rolled_back"), (2, "ack_uncommitted")],
    ids=["committed", "aborted", "still open"],
)  # fmt: skip
def test_a_cumulative_ack_in_a_transaction_decides_what_other_acks_left_to_it(
    action: int, outcome: str
) -> None:
    talk = ready(EXCLUSIVE, entries=2)
    waits = asked(talk, 0)
    up_to(talk, 1, True, **IN_TRANSACTION)
    answer(talk, waits, CONFLICT)
    if action in (COMMIT, ABORT):
        end(talk, action)
    assert [row[0] for row in delivery_outcomes(talk)] == [outcome] * 2


def test_an_abort_that_undoes_several_acks_looks_for_others_behind_all_of_them() -> None:
    talk = ready(EXCLUSIVE, entries=3)
    for entry in range(3):
        up_to(talk, entry, **IN_TRANSACTION)
    end(talk, ABORT)
    assert [row[0] for row in delivery_outcomes(talk)] == ["ack_rolled_back"] * 3


def test_at_the_end_a_transaction_that_may_be_committed_goes_before_an_abort() -> None:
    """Its commit would acknowledge the delivery, whatever comes of the other one."""
    talk = ready(EXCLUSIVE, entries=2)
    talk.ack(0, **IN_TRANSACTION)
    up_to(talk, 1, **OTHER_TRANSACTION)
    end(talk, ABORT, is_answered=False)
    assert [row[0] for row in delivery_outcomes(talk)] == ["ack_uncommitted"] * 2


def test_what_a_cumulative_ack_reached_did_not_come_again_for_want_of_a_commit() -> None:
    talk = ready(EXCLUSIVE, entries=2)
    talk.ack(0, **IN_TRANSACTION)
    up_to(talk, 1)
    talk.message(0)
    rows = talk.rows()["deliveries"]
    assert {row["redelivery_cause"] for row in rows} == {None, "unknown"}
    assert sorted(row["outcome"] for row in rows) == ["acked", "acked", "unacked_at_end"]


def test_an_entry_that_came_again_has_the_cumulative_acks_from_before_that() -> None:
    """Later ones, though they go further, mean the later delivery."""
    talk = ready(EXCLUSIVE, entries=2)
    first = asked(talk, 0)
    second = up_to(talk, 1, True)
    talk.message(0)
    up_to(talk, 1)
    answer(talk, first, CONFLICT)
    assert delivery_outcomes(talk) == [ACKED] * 3
    answer(talk, second, CONFLICT)
    outcomes = [row[0] for row in delivery_outcomes(talk)]
    assert outcomes == ["ack_refused", "acked", "acked"]


def test_a_closed_consumer_keeps_what_its_cumulative_ack_reached() -> None:
    talk = ready(EXCLUSIVE, entries=2)
    waits = asked(talk, 0)
    up_to(talk, 1)
    talk.close_consumer()
    answer(talk, waits, CONFLICT)
    assert delivery_outcomes(talk) == [ACKED, ACKED]


def test_the_end_of_a_connection_refuses_no_cumulative_ack() -> None:
    talk = ready(EXCLUSIVE, entries=2)
    talk.ack(0, **IN_TRANSACTION)
    up_to(talk, 1, True)
    talk.hang_up()
    assert [row[0] for row in delivery_outcomes(talk)] == ["acked", "acked"]


def test_a_message_that_waits_and_is_discarded_too_has_one_more_ack() -> None:
    """A broker takes it as any other; by itself it says that nobody consumed the message."""
    talk = ready(EXCLUSIVE, entries=2)
    waits = asked(talk, 0)
    for entry in range(2):
        talk.ack(entry, validation_error=3)
    answer(talk, waits, CONFLICT)
    assert [row[0] for row in delivery_outcomes(talk)] == ["acked", "discarded"]


def advanced(talk: Talk) -> Passes:
    passes = Passes({})
    passes.advance(FrameMaker().block(talk.script))
    return passes


@pytest.mark.parametrize("seed", range(20))
def test_no_room_is_kept_for_acks_once_all_are_decided(seed: int) -> None:
    chance = random.Random(seed)
    talk = ready(EXCLUSIVE, entries=6)
    waiting: list[int] = []
    for number in range(120):
        kind = chance.choice(("ask", "ask", "plain", "answer", "message", "all", "transaction"))
        entry = chance.randrange(6 + number)
        if kind == "message":
            talk.message(chance.choice((entry, 6 + number)))
        elif kind == "answer" and waiting:
            request = waiting.pop(chance.randrange(len(waiting)))
            answer(talk, request, chance.choice((None, CONFLICT)))
        elif kind == "all":
            talk.redeliver()
        else:
            more = IN_TRANSACTION if kind == "transaction" else {}
            style = {"ack_type": CUMULATIVE} if chance.random() < 0.6 else {}
            if kind == "plain":
                talk.ack(entry, **style)
            else:
                waiting.append(asked(talk, entry, **style, **more))
    end(talk, chance.choice((COMMIT, ABORT)))
    for request in waiting:
        answer(talk, request, chance.choice((None, CONFLICT)))
    state = advanced(talk).consumption.memory()
    assert int(state.claim_pool.free[0]) == len(state.claim_pool.rows)
    assert int(state.consumers.claimed.sum()) == int(state.reaches.length.sum()) == 0


def steps(waiting: int, acks: int, refused: int) -> int:
    """Steps spent where so many deliveries wait for a commit that never comes, and their consumer
    acknowledges so many further ones cumulatively, of which the broker refuses some."""
    talk = ready(EXCLUSIVE, entries=waiting)
    up_to(talk, waiting - 1, **IN_TRANSACTION)
    requests = []
    for entry in range(waiting, waiting + acks):
        talk.message(entry)
        requests.append(up_to(talk, entry, True))
    for number, request in enumerate(requests):
        answer(talk, request, CONFLICT if number < refused else None)
    return int(advanced(talk).consumption.memory().counters[SPENT_STEPS])


def test_cumulative_acks_cost_the_same_however_many_deliveries_wait() -> None:
    few, many = (steps(waiting, 1000, 0) for waiting in (10, 3000))
    assert many <= few + 10


def test_transactions_whose_end_is_never_seen_cost_no_more_the_more_there_are() -> None:
    """Where they commit through a broker that is not captured; each entry comes again."""

    def steps_of(acks: int) -> float:
        talk = ready(EXCLUSIVE)
        for number in range(acks):
            talk.message(number)
            up_to(talk, number, txn_most_bits=3, txn_least_bits=number)
        for number in range(acks):
            talk.message(number)
        return int(advanced(talk).consumption.memory().counters[SPENT_STEPS]) / acks

    assert steps_of(2000) <= MAX_CHAIN_STEPS + 4


def test_a_refused_cumulative_ack_costs_as_many_steps_as_deliveries_it_held() -> None:
    few, many = (steps(10, acks, acks - 1) / acks for acks in (100, 200))
    assert many <= 2 * few + 10


def test_acks_that_are_refused_one_by_one_have_a_bound_in_all() -> None:
    """The last one first: each passes all deliveries on, until there were too many steps."""
    talk = ready(EXCLUSIVE, entries=1500)
    requests = [up_to(talk, 1499, True)]
    requests += [up_to(talk, 2000 + number, True) for number in range(4000)]
    for request in (requests[0], *reversed(requests[2:])):
        answer(talk, request, CONFLICT)
    tables = talk.rows()
    outcomes = {row["outcome"] for row in tables["deliveries"]}
    assert outcomes <= {"acked", "unresolved_at_limit"} and "unresolved_at_limit" in outcomes
    assert "deliveries_limit" in {row["code"] for row in tables["notices"]}
