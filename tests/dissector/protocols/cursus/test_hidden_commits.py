"""A commit that was lost, or its answer: what it may have covered is of unknown outcome."""

from collections.abc import Callable

import pytest

from dissector.limits import MAX_GROUP_MEMBERS, NULL
from dissector.protocols.cursus.hidden_commits import HiddenCommits
from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.dissector.protocols.cursus.test_facts import CONSUME, JOINED, committed, deliver
from tests.wire import cursus

Asking = Callable[[Dialogue], None]
READS, COMMITS = 0, 1  # connections


def heartbeat(dialogue: Dialogue, group: str = "g") -> None:
    dialogue.ask(COMMITS, f"HEARTBEAT topic=t1 group={group} generation=1 member=m-1", "OK")


def other_group(dialogue: Dialogue) -> None:
    heartbeat(dialogue, "h")


def two_groups(dialogue: Dialogue) -> None:
    heartbeat(dialogue)
    heartbeat(dialogue, "h")


def no_group(dialogue: Dialogue) -> None:
    dialogue.ask(COMMITS, "METADATA topic=t1", "OK topic=t1 partitions=1 leaders=a:1")


def batches(dialogue: Dialogue) -> None:
    for number in range(1, 3):
        acked = cursus.ack(number, number, number)
        dialogue.ask(COMMITS, cursus.batch(cursus.records(1, first=number)), acked)


def batches_and_a_group(dialogue: Dialogue) -> None:
    batches(dialogue)
    heartbeat(dialogue)


def lose(dialogue: Dialogue, place: int, *, to_broker: bool) -> None:
    """A packet with bytes is missing on the connection that commits, counted from its end."""
    packets = dialogue.tapes[COMMITS].packets
    said = [at for at, each in enumerate(packets) if each.payload and each.to_broker == to_broker]
    del packets[said[place]]


def outcomes(dialogue: Dialogue) -> list[str]:
    rows = sorted(dialogue.rows()["deliveries"], key=lambda row: row["frame_no"])
    return [row["outcome"] for row in rows]


def spoken(before: Asking, behind: Asking) -> Dialogue:
    """A group is given ten records and commits them, between what else is said where it commits."""
    dialogue = Dialogue()
    for _ in (READS, COMMITS):
        dialogue.open()
    before(dialogue)
    dialogue.ask(READS, CONSUME, deliver(0, 10))
    committed(dialogue, COMMITS, 10)
    behind(dialogue)
    dialogue.wait(2)  # no hole is waited for longer
    behind(dialogue)
    dialogue.ask(READS, CONSUME, deliver(10, 10))
    dialogue.close(READS)
    return dialogue


@pytest.mark.parametrize(
    ("before", "outcome"),
    [
        (heartbeat, "unknown_gap"),
        (other_group, "conn_closed"),
        (two_groups, "unknown_gap"),
        (no_group, "unknown_gap"),
        (batches, "conn_closed"),
        (batches_and_a_group, "unknown_gap"),
    ],
)
def test_a_hole_hides_commits_of_the_group_that_its_client_named(
    before: Asking, outcome: str
) -> None:
    """Of any, if it named none or several; of none if it sends batches. What came later stays."""
    dialogue = spoken(before, before)
    packets = [each for each in dialogue.tapes[COMMITS].packets if each.payload]
    asked = [each.payload for each in packets if each.to_broker]
    place = next(at for at, said in enumerate(asked) if b"COMMIT_OFFSET" in said)
    lose(dialogue, place, to_broker=True)
    assert outcomes(dialogue) == [outcome, "conn_closed"]


def test_an_answer_that_is_lost_hides_the_commit() -> None:
    dialogue = spoken(heartbeat, heartbeat)
    assert outcomes(dialogue) == ["acked", "conn_closed"]
    lose(dialogue, 1, to_broker=False)
    assert outcomes(dialogue) == ["unknown_gap", "conn_closed"]


def test_where_nothing_of_a_client_was_captured_an_answer_tells_of_it() -> None:
    dialogue = Dialogue()
    for _ in (READS, COMMITS):
        dialogue.open()
    dialogue.ask(READS, CONSUME, deliver(0, 10))
    committed(dialogue, COMMITS, 10)
    lose(dialogue, 0, to_broker=True)
    assert outcomes(dialogue) == ["unknown_gap"]


def test_what_comes_again_was_not_committed() -> None:
    dialogue = spoken(heartbeat, heartbeat)
    dialogue.open()
    dialogue.ask(2, CONSUME, deliver(0, 10))
    lose(dialogue, 1, to_broker=True)
    assert outcomes(dialogue)[:2] == ["conn_closed", "conn_closed"]


def test_a_transaction_that_is_lost_hides_what_it_commits() -> None:
    transaction = "transactional_id=x producerId=p epoch=0"
    dialogue = Dialogue()
    for _ in (READS, COMMITS):
        dialogue.open()
    dialogue.ask(READS, "JOIN_GROUP topic=t1 group=g member=m", JOINED)
    dialogue.ask(READS, CONSUME, deliver(0, 10))
    sent = f"SEND_OFFSETS_TO_TXN {transaction} topic=t1 group=g generation=1 member=m-1 P0:10"
    dialogue.ask(COMMITS, sent, "OK transactional_id=x offsets=1")
    dialogue.ask(COMMITS, f"END_TXN {transaction} result=commit", "OK transactional_id=x state=c")
    assert outcomes(dialogue) == ["acked"]
    dialogue.ask(COMMITS, "LIST", "OK topics=t1")
    lose(dialogue, -2, to_broker=False)
    assert outcomes(dialogue) == ["unknown_gap"]


def test_groups_beyond_a_bound_are_any() -> None:
    hidden = HiddenCommits()
    assert hidden.last(NULL) == hidden.last(7) == -1
    for group in range(MAX_GROUP_MEMBERS):
        hidden.note(group, 10 + group)
    hidden.note(0, 5)
    assert hidden.last(0) == 10 and hidden.last(MAX_GROUP_MEMBERS) == -1
    hidden.note(MAX_GROUP_MEMBERS, 12)
    assert [hidden.last(group) for group in (0, 3, NULL)] == [12, 13, 9 + MAX_GROUP_MEMBERS]
