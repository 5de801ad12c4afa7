"""What acknowledging costs does not depend on how many deliveries are open: counted, not timed."""

import pytest

from dissector.notice_log import NoticeLog
from dissector.protocols.pulsar.consumption import PulsarConsumption
from dissector.protocols.pulsar.consumption.state import LOOKED_AT, ROWS_MADE, SPENT_STEPS
from dissector.protocols.pulsar.wire import commands
from tests.wire.frames import FrameMaker
from tests.wire.talk import (
    CUMULATIVE,
    EXCLUSIVE,
    FAILOVER,
    INDIVIDUAL,
    KEY_SHARED,
    SHARED,
    Passes,
    Talk,
)

CONFLICT = 24  # ServerError.TransactionConflict
ROUNDS = 1000
BLOCK = 250  # frames of a block
STYLES = {"one by one": INDIVIDUAL, "cumulatively": CUMULATIVE}
TYPES = {
    "Exclusive": EXCLUSIVE, "Shared": SHARED, "Failover": FAILOVER, "Key_Shared": KEY_SHARED,
}  # fmt: skip


class Counting(PulsarConsumption):
    """Counts how often rows were taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes = 0

    def _flush(self, *arguments):  # type: ignore[no-untyped-def]
        self.flushes += 1
        return super()._flush(*arguments)


def steps_of_refused_acks(count: int) -> int:
    """Steps spent where one entry is acknowledged so often, and each time refused."""
    talk = Talk()
    talk.subscribe(1)
    talk.message(0, 1)
    requests = [talk.request() for _ in range(count)]
    for request in requests:
        talk.ack(0, consumer=1, request_id=request)
    for request in requests:
        talk.broker(commands.ACK_RESPONSE, request_id=request, consumer_id=1, error_code=CONFLICT)
    passes = Passes({})
    passes.advance(FrameMaker().block(talk.script))
    return int(passes.consumption.memory().counters[SPENT_STEPS])


def costs(kind: int, style: int, is_open: int, has_redelivered: bool) -> tuple[int, int, int]:
    """Deliveries looked at, rows made and rows taken away, of ROUNDS messages with an ack each
    beside so many that stay open."""
    talk = Talk()
    talk.subscribe(1, subscription_type=kind, lifecycle=1, handle_kind=2, handle_id=1)
    for entry in range(is_open):
        talk.message(entry, 1)
    if has_redelivered:
        talk.message(0, 1, ledger_id=3)  # an older one comes again: the list is not in order
    consumption, maker, notices = Counting(), FrameMaker(), NoticeLog()

    def take() -> None:
        for start in range(0, len(talk.script), BLOCK):
            frames, rows, ids, words, names, _, _ = maker.block(talk.script[start : start + BLOCK])
            consumption.advance(frames, rows, ids, words, names, notices)
        talk.script.clear()

    take()
    counters = consumption.memory().counters
    before = int(counters[[LOOKED_AT, SPENT_STEPS]].sum()), int(counters[ROWS_MADE])
    flushes = consumption.flushes
    for number in range(ROUNDS):
        talk.message(500_000 + number, 1)
        talk.ack(500_000 + number if style == INDIVIDUAL else -1, consumer=1, ack_type=style)
    take()
    return (
        int(counters[[LOOKED_AT, SPENT_STEPS]].sum()) - before[0],
        int(counters[ROWS_MADE]) - before[1],
        consumption.flushes - flushes,
    )


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_an_ack_costs_the_same_however_many_deliveries_are_open(kind: int, style: int) -> None:
    few, many = (costs(kind, style, count, False) for count in (200, 3_000))
    assert many[0] <= few[0] + ROUNDS // 10, "deliveries looked at"
    assert many[1] <= few[1] + 8 * 3_000, "rows made"
    assert many[2] <= few[2] + 8, "rows taken away"


def test_rows_are_taken_away_seldom_where_a_list_is_not_in_order() -> None:
    looked, made, flushes = costs(EXCLUSIVE, CUMULATIVE, 2_000, True)
    assert made <= 16 * (2_000 + ROUNDS) and flushes <= 2 * ROUNDS // BLOCK + 16
    assert looked <= 2 * ROUNDS * (2_000 + ROUNDS)


def test_what_is_asked_for_again_needs_rows_for_those_alone() -> None:
    talk = Talk()
    talk.subscribe(1, subscription_type=SHARED, lifecycle=1, handle_kind=2, handle_id=1)
    for entry in range(2_000):
        talk.message(entry, 1)
    for entry in range(1_000):
        talk.redeliver(entry, consumer=1)
    consumption, maker = Counting(), FrameMaker()
    frames, rows, ids, words, names, _, _ = maker.block(talk.script)
    consumption.advance(frames, rows, ids, words, names, NoticeLog())
    assert consumption.flushes <= 8


def test_a_refusal_costs_the_same_however_many_acks_of_an_entry_wait() -> None:
    few, many = (steps_of_refused_acks(count) / count for count in (500, 2_000))
    assert few > 0
    assert many < few + 1
