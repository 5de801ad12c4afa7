"""Acknowledgements that do not count yet: refused, rolled back, or not decided at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.pulsar.consumption.published import find_transaction, transaction_of
from dissector.protocols.pulsar.consumption.state import ROW_BITS, new_state
from dissector.protocols.pulsar.wire import commands
from dissector.tables import ABSENT
from tests.wire.frames import STEP_NS
from tests.wire.talk import CUMULATIVE, EXCLUSIVE, SHARED, Talk

IN_TRANSACTION = {"txn_most_bits": 3, "txn_least_bits": 4}
CONFLICT = 24  # ServerError.TransactionConflict


def ready(kind: int = SHARED, entries: int = 0, messages: int = 1) -> Talk:
    talk = Talk()
    talk.connect()
    talk.subscribe(subscription_type=kind)
    talk.flow(1000)
    for entry in range(entries):
        talk.message(entry, message_count=messages, is_batch=int(messages > 1))
    return talk


def asked(talk: Talk, *entries: int, **more: Any) -> int:
    """An ACK that wants an answer; returns its request id."""
    request = talk.request()
    talk.ack(*entries, request_id=request, **more)
    return request


def answer(talk: Talk, request: int, code: int | None = None) -> None:
    refusal = {} if code is None else {"error_code": code}
    talk.broker(commands.ACK_RESPONSE, request_id=request, consumer_id=0, **refusal)


def end(talk: Talk, action: int, *, is_answered: bool = True, **refusal: Any) -> None:
    request = talk.request()
    talk.client(commands.END_TXN, request_id=request, txn_action=action, **IN_TRANSACTION)
    if is_answered:
        talk.broker(commands.END_TXN_RESPONSE, request_id=request, **refusal)


def delivery_outcomes(talk: Talk, **bounds: Any) -> list[tuple[str, int | None, bool]]:
    """Of each delivery what became of it, messages acknowledged, whether its ack was timed."""
    rows = sorted(talk.rows(**bounds)["deliveries"], key=lambda row: row["frame_no"])
    return [
        (row["outcome"], row["messages_acked"], row["ack_latency_ns"] is not None) for row in rows
    ]


def test_an_ack_that_was_refused_acknowledges_nothing() -> None:
    talk = ready(entries=2)
    answer(talk, asked(talk, 0))
    answer(talk, asked(talk, 1), CONFLICT)
    assert delivery_outcomes(talk) == [("acked", 1, True), ("ack_refused", 0, False)]


@pytest.mark.parametrize("code", [CONFLICT, 1, 8, 99])
def test_whatever_code_it_was_refused_with(code: int) -> None:
    talk = ready(entries=1)
    answer(talk, asked(talk, 0), code)
    assert delivery_outcomes(talk) == [("ack_refused", 0, False)]


def test_a_plain_error_refuses_an_ack_as_well() -> None:
    talk = ready(entries=1)
    talk.broker(commands.ERROR, request_id=asked(talk, 0), error_code=1)
    assert delivery_outcomes(talk) == [("ack_refused", 0, False)]


def test_a_cumulative_ack_that_was_refused_acknowledges_none_of_all() -> None:
    talk = ready(EXCLUSIVE, entries=5)
    answer(talk, asked(talk, 3, ack_type=CUMULATIVE), CONFLICT)
    assert delivery_outcomes(talk) == [("ack_refused", 0, False)] * 4 + [
        ("unacked_at_end", 0, False)
    ]


def test_a_later_ack_makes_up_for_a_refused_one() -> None:
    talk = ready(entries=1)
    answer(talk, asked(talk, 0), CONFLICT)
    again = talk.ack(0)
    (row,) = talk.rows()["deliveries"]
    assert (row["outcome"], row["ack_frame_no"]) == ("acked", again)
    assert row["ack_latency_ns"] == 3 * STEP_NS


def test_an_ack_without_an_answer_counts_as_one_that_wants_none() -> None:
    talk = ready(entries=2)
    asked(talk, 0)
    talk.hang_up()
    asked(talk, 1)
    assert delivery_outcomes(talk)[0] == ("acked", 1, True)


def test_what_was_refused_is_held_again() -> None:
    talk = ready(entries=1, messages=5)
    refused = asked(talk, 0)
    talk.flow(1)
    answer(talk, refused, CONFLICT)
    talk.flow(1)
    permits = talk.rows()["permits"]
    assert [row["unacked_after"] for row in permits[-2:]] == [0, 5]


def test_a_part_of_a_batch_that_was_refused_is_open_again() -> None:
    talk = ready(entries=1, messages=8)
    batch = {"ledger_id": 7, "entry_id": 0, "batch_size": 8}
    first = asked(talk, ids=[batch | {"ack_set": [0b11111110]}])
    second = asked(talk, ids=[batch | {"ack_set": [0b11110001]}])
    answer(talk, first, CONFLICT)
    answer(talk, second)
    assert delivery_outcomes(talk) == [("ack_refused", 3, False)]
    talk.ack(ids=[batch | {"ack_set": [0b00000001]}])
    assert delivery_outcomes(talk) == [("ack_refused", 7, False)]
    talk.ack(ids=[batch | {"ack_set": [0b11111110]}])
    assert delivery_outcomes(talk) == [("acked", 8, True)]


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        (0, ("acked", 1, True)), (1, ("ack_rolled_back", 0, False)),
        (7, ("ack_uncommitted", 0, False)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_answered", [True, False])
def test_an_ack_in_a_transaction_counts_when_that_is_committed(
    action: int, outcome: tuple[str, int, bool], is_answered: bool
) -> None:
    talk = ready(entries=1)
    answer(talk, asked(talk, 0, **IN_TRANSACTION))
    end(talk, action, is_answered=is_answered)
    assert delivery_outcomes(talk) == [outcome]


def test_a_transaction_that_is_still_open_acknowledges_nothing_yet() -> None:
    talk = ready(entries=1, messages=4)
    answer(talk, asked(talk, 0, **IN_TRANSACTION))
    talk.close_consumer()
    assert delivery_outcomes(talk) == [("ack_uncommitted", 0, False)]


def test_a_commit_that_is_refused_ends_nothing() -> None:
    talk = ready(entries=1)
    answer(talk, asked(talk, 0, **IN_TRANSACTION))
    end(talk, 0, error_code=CONFLICT)
    assert delivery_outcomes(talk) == [("ack_uncommitted", 0, False)]
    end(talk, 0)
    assert delivery_outcomes(talk) == [("acked", 1, True)]


def test_messages_of_a_batch_that_one_transaction_acked_are_rolled_back_together() -> None:
    talk = ready(entries=1, messages=3)
    batch = {"ledger_id": 7, "entry_id": 0, "batch_size": 3}
    for left in ([0b110], [0b101], [0b011]):
        answer(talk, asked(talk, ids=[batch | {"ack_set": left}], **IN_TRANSACTION))
    end(talk, 1)
    assert delivery_outcomes(talk) == [("ack_rolled_back", 0, False)]


def test_a_part_that_was_rolled_back_is_not_acknowledged() -> None:
    talk = ready(entries=1, messages=4)
    batch = {"ledger_id": 7, "entry_id": 0, "batch_size": 4}
    talk.ack(ids=[batch | {"ack_set": [0b1110]}])
    answer(talk, asked(talk, ids=[batch | {"ack_set": [0b1001]}], **IN_TRANSACTION))
    assert delivery_outcomes(talk) == [("unacked_at_end", 1, False)]
    end(talk, 1)
    assert delivery_outcomes(talk) == [("ack_rolled_back", 1, False)]


def test_the_coordinator_tells_the_topics_broker_how_it_ended() -> None:
    """On a connection between two brokers, where the client's own END_TXN is not."""
    talk = ready(entries=2)
    answer(talk, asked(talk, 0, **IN_TRANSACTION))
    answer(talk, asked(talk, 1, txn_most_bits=3, txn_least_bits=5))
    for least, action in ((4, 0), (5, 1)):
        talk.client(
            commands.END_TXN_ON_SUBSCRIPTION, 1, request_id=least, txn_most_bits=3,
            txn_least_bits=least, txn_action=action,
        )  # fmt: skip
    assert delivery_outcomes(talk) == [("acked", 1, True), ("ack_rolled_back", 0, False)]


def test_what_comes_again_was_rolled_back_though_nobody_said_so() -> None:
    """A transaction that times out is aborted by the coordinator alone."""
    talk = ready(entries=1)
    answer(talk, asked(talk, 0, **IN_TRANSACTION))
    talk.message(0, redelivery_count=1)
    talk.ack(0)
    assert delivery_outcomes(talk) == [("ack_rolled_back", 0, False), ("acked", 1, True)]


def test_a_commit_after_the_consumer_has_closed_counts() -> None:
    talk = ready(entries=1)
    answer(talk, asked(talk, 0, **IN_TRANSACTION))
    talk.close_consumer()
    talk.hang_up()
    talk.client(commands.END_TXN, 1, request_id=1, txn_action=0, **IN_TRANSACTION)
    talk.broker(commands.END_TXN_RESPONSE, 1, request_id=1)
    assert delivery_outcomes(talk) == [("acked", 1, True)]


def test_a_closed_consumer_is_kept_while_acks_of_it_wait() -> None:
    """Rows of consumers are used again: not those whose names a delivery still needs."""
    talk = ready(entries=1)
    asked(talk, 0, **IN_TRANSACTION)
    talk.close_consumer()
    for number in range(1, 300):
        talk.subscribe(number, subscription=f"other{number}")
        talk.close_consumer(number)
    end(talk, 0)
    (row,) = talk.rows(consumers=100)["deliveries"]
    assert (row["outcome"], row["consumer_id"]) == ("acked", 0)


def test_acks_beyond_the_bound_leave_their_deliveries_unresolved() -> None:
    talk = ready(entries=1500)
    for entry in range(1500):
        asked(talk, entry, **IN_TRANSACTION)
    tables = talk.rows(deliveries=1000)
    outcomes = [row["outcome"] for row in tables["deliveries"]]
    assert set(outcomes) == {"unresolved_at_limit", "ack_uncommitted"}
    assert "deliveries_limit" in {row["code"] for row in tables["notices"]}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["message", "ack", "asked", "part", "txn", "grant", "refuse", "commit",
                             "abort", "redeliver", "close", "hang"]),
            st.integers(0, 3),
        ),
        max_size=40,
    ),
    st.lists(st.integers(0, 60), max_size=5),
)  # fmt: skip
def test_however_acks_are_decided_every_delivery_has_one_row(
    script: list[tuple[str, int]], cuts: list[int]
) -> None:
    talk = ready()
    waiting: list[int] = []
    delivered = 0
    is_open = True
    for what, entry in script:
        if what == "hang":
            talk.hang_up()
            break
        if what == "message" and is_open:
            talk.message(entry, message_count=4, is_batch=1)
            delivered += 1
        elif what == "ack":
            talk.ack(entry)
        elif what == "redeliver":
            talk.redeliver(entry)
        elif what in ("asked", "txn"):
            waiting.append(asked(talk, entry, **(IN_TRANSACTION if what == "txn" else {})))
        elif what == "part":
            batch = {"ledger_id": 7, "entry_id": entry, "batch_size": 4, "ack_set": [0b1010]}
            waiting.append(asked(talk, ids=[batch], **(IN_TRANSACTION if entry % 2 else {})))
        elif what in ("grant", "refuse") and waiting:
            answer(talk, waiting.pop(0), None if what == "grant" else CONFLICT)
        elif what in ("commit", "abort"):
            end(talk, int(what == "abort"))
        elif what == "close" and is_open:
            talk.close_consumer()
            is_open = False
    whole = talk.rows()
    rows = whole["deliveries"]
    assert len(rows) == delivered == len({row["frame_no"] for row in rows})
    assert all(0 <= row["messages_acked"] <= 4 for row in rows)
    assert all(row["messages_acked"] == 4 for row in rows if row["outcome"] == "acked")
    assert all(row["unacked_after"] >= 0 for row in whole["permits"])
    assert talk.rows(cuts)["deliveries"] == rows


@pytest.mark.parametrize("is_first", [True, False])
def test_an_entry_that_was_rolled_back_already_ends_no_other_delivery(is_first: bool) -> None:
    """It comes again: its earlier delivery has ended, and with few rows another has the last."""
    talk = ready()
    for entry in (1, 0) if is_first else (0, 1):
        talk.message(entry)
    talk.ack(0, **IN_TRANSACTION)
    talk.ack(1, txn_most_bits=7, txn_least_bits=8)
    end(talk, 1)
    talk.message(0)
    rows = talk.rows(deliveries=2)["deliveries"]
    outcomes = sorted((row["entry_id"], row["outcome"]) for row in rows)
    assert outcomes == [(0, "ack_rolled_back"), (0, "unacked_at_end"), (1, "ack_uncommitted")]


def test_numbers_of_other_requests_are_no_transactions() -> None:
    """Consumers have rows of their own, and more of them."""
    state = new_state(4, 4, 4, 0)
    rows = len(state.transactions.serial)
    for row in (rows, rows + 1, 1 << 20):
        assert find_transaction(state, 1 << ROW_BITS | row) == ABSENT
    known = transaction_of(state, 3, 4)
    assert find_transaction(state, known) == known & ((1 << ROW_BITS) - 1)
