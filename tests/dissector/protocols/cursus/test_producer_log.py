"""Copies, publishing times, order and ends of logs, each against a plain twin."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.protocols.cursus.producer_log import (
    EPOCH_BACK,
    GAP,
    IN_ORDER,
    BatchKey,
    ProducerLog,
    copies_of,
    count_batch,
    find_batch,
    is_stored_once,
    lag_from,
    order_of,
    published_ns,
    store_batch,
)
from dissector.tables import ABSENT


def sent(start: int, end: int, producer: int = 1, epoch: int = 7) -> BatchKey:
    return BatchKey(5, 0, producer, epoch, start, end)


def begin(log: ProducerLog, batch: BatchKey, ns: int = 0) -> int:
    """How often the batch was sent, this time included."""
    log.reserve(1)
    return int(copies_of(log.state, count_batch(log.state, batch, ns)))


def test_copies_are_counted_and_the_oldest_forgotten():
    log = ProducerLog(limit=2)
    assert [begin(log, sent(1, 5)) for _ in range(3)] == [1, 2, 3]
    number = find_batch(log.state, sent(1, 5))
    assert [store_batch(log.state, number) for _ in range(3)] == [0, 1, 1]
    for start in (6, 10):
        assert begin(log, sent(start, start + 2)) == 1
    assert find_batch(log.state, sent(1, 5)) == ABSENT
    assert copies_of(log.state, number) == NULL and store_batch(log.state, number) == 0
    assert begin(log, sent(1, 5)) == 1


steps = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 4), st.sampled_from([1, 2])), max_size=40
)


@given(steps, st.sampled_from([4, 64, 1 << 17]))
@settings(max_examples=25)
def test_the_batch_of_any_record_is_found(batches, limit):
    log = ProducerLog(limit=limit)
    kept: list[tuple[BatchKey, int]] = []
    rising: dict[int, list[tuple[BatchKey, int]]] = {1: [], 2: []}
    for ns, (start, more, producer) in enumerate(batches):
        batch = sent(start, start + more, producer)
        is_new = batch not in [each for each, _ in kept]
        assert begin(log, batch, ns) == 1 if is_new else begin(log, batch, ns) > 1
        if is_new:
            kept = [*kept, (batch, ns)][-limit:]
            before = rising[producer]
            if not before or start > before[-1][0].seq_start:
                before.append((batch, ns))
    for producer, begun in rising.items():
        held = [pair for pair in begun if pair in kept]
        for seq in range(0, 48, 3):
            below = [pair for pair in held if pair[0].seq_start <= seq]
            batch, ns = below[-1] if below else (None, NULL)
            expected = ns if batch is not None and seq <= batch.seq_end else NULL
            stamp_ns = published_ns(log.state, 5, 0, producer, 7, seq)
            if limit > 60:
                assert stamp_ns == expected
            else:
                assert stamp_ns in {NULL, *(ns for _, ns in kept)}


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(0, 3)), max_size=20))
def test_what_does_not_go_on_where_its_producer_is(batches):
    log = ProducerLog(limit=64)
    known, kept = None, set()
    for epoch, end, size in batches:
        log.reserve(1)
        batch = sent(max(1, end - size), end, epoch=epoch)
        flaw, before = IN_ORDER, (0, 0)
        if known is not None and batch not in kept:
            before = known
            if epoch < known[0]:
                flaw = EPOCH_BACK
            elif epoch == known[0] and batch.seq_start > known[1] + 1:
                flaw = GAP
        assert tuple(order_of(log.state, batch, 1)) == (flaw, *before)
        loose = order_of(log.state, batch, 0).flaw
        assert loose == (IN_ORDER if flaw == GAP else flaw), "a hole counts where each counts once"
        count_batch(log.state, batch, 0)
        kept.add(batch)
        if known is None or epoch > known[0]:
            known = (epoch, end)
        elif epoch == known[0]:
            known = (epoch, max(known[1], end))


def test_ends_of_logs_and_topics_that_store_once():
    log = ProducerLog(limit=2)
    assert lag_from(log.state, 1, 0, 5) == NULL
    for following in (8, 3):
        log.see_log_end(1, 0, following)
    assert [lag_from(log.state, 1, 0, each) for each in (0, 5, 9)] == [8, 3, 0]
    log.see_log_end(1, 1, -5)
    assert lag_from(log.state, 1, 1, 0) == NULL
    for partition in (1, 2):
        log.see_log_end(1, partition, 1)
    assert lag_from(log.state, 1, 0, 0) == NULL and lag_from(log.state, 1, 2, 0) == 1
    assert not is_stored_once(log.state, 1, 0) and is_stored_once(log.state, 1, 1)
    log.store_once(1)
    assert is_stored_once(log.state, 1, 0) and not is_stored_once(log.state, 2, 0)
