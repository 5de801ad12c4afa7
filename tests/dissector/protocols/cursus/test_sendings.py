"""Copies, publishing times, standings and ends of logs, each against a plain twin."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.protocols.cursus.sendings import (
    Sendings,
    Sent,
    begin_batch,
    copies_of,
    find_batch,
    follow,
    published_ns,
    standing,
    store_batch,
)
from dissector.protocols.tables import ABSENT


def sent(start: int, end: int, producer: int = 1, epoch: int = 7) -> Sent:
    return Sent(5, 0, producer, epoch, start, end)


def begin(sendings: Sendings, batch: Sent, ns: int = 0) -> int:
    """How often the batch was sent, this time included."""
    sendings.make_room(1)
    return int(copies_of(sendings.state, begin_batch(sendings.state, batch, ns)))


def test_copies_are_counted_and_the_oldest_forgotten():
    sendings = Sendings(limit=2)
    assert [begin(sendings, sent(1, 5)) for _ in range(3)] == [1, 2, 3]
    number = find_batch(sendings.state, sent(1, 5))
    assert [store_batch(sendings.state, number) for _ in range(3)] == [0, 1, 1]
    for start in (6, 10):
        assert begin(sendings, sent(start, start + 2)) == 1
    assert find_batch(sendings.state, sent(1, 5)) == ABSENT
    assert copies_of(sendings.state, number) == NULL and store_batch(sendings.state, number) == 0
    assert begin(sendings, sent(1, 5)) == 1


steps = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 4), st.sampled_from([1, 2])), max_size=40
)


@given(steps, st.sampled_from([4, 64, 1 << 17]))
@settings(max_examples=25)
def test_the_batch_of_any_record_is_found(batches, limit):
    sendings = Sendings(limit=limit)
    kept: list[tuple[Sent, int]] = []
    rising: dict[int, list[tuple[Sent, int]]] = {1: [], 2: []}
    for ns, (start, more, producer) in enumerate(batches):
        batch = sent(start, start + more, producer)
        is_new = batch not in [each for each, _ in kept]
        assert begin(sendings, batch, ns) == 1 if is_new else begin(sendings, batch, ns) > 1
        if is_new:
            kept = [*kept, (batch, ns)][-limit:]
            before = rising[producer]
            if not before or start > before[-1][0].seq_start:
                before.append((batch, ns))
    for producer, told in rising.items():
        held = [pair for pair in told if pair in kept]
        for seq in range(0, 48, 3):
            below = [pair for pair in held if pair[0].seq_start <= seq]
            batch, ns = below[-1] if below else (None, NULL)
            wanted = ns if batch is not None and seq <= batch.seq_end else NULL
            found = published_ns(sendings.state, 5, 0, producer, 7, seq)
            if limit > 60:
                assert found == wanted
            else:
                assert found in {NULL, *(ns for _, ns in kept)}


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=20))
def test_where_producers_stand(batches):
    sendings = Sendings(limit=64)
    known = None
    for epoch, end in batches:
        sendings.make_room(1)
        batch = sent(1, end, epoch=epoch)
        found = tuple(int(each) for each in standing(sendings.state, batch))
        assert found == ((0, 0, 0) if known is None else (1, *known))
        follow(sendings.state, batch)
        if known is None or epoch > known[0]:
            known = (epoch, end)
        elif epoch == known[0]:
            known = (epoch, max(known[1], end))


def test_ends_of_logs_and_topics_that_store_once():
    sendings = Sendings(limit=2)
    assert sendings.lag_from(1, 0, 5) == NULL
    for following in (8, 3):
        sendings.see_end(1, 0, following)
    assert [sendings.lag_from(1, 0, each) for each in (0, 5, 9)] == [8, 3, 0]
    sendings.see_end(1, 1, -5)
    assert sendings.lag_from(1, 1, 0) == NULL
    for partition in (1, 2):
        sendings.see_end(1, partition, 1)
    assert sendings.lag_from(1, 0, 0) == NULL and sendings.lag_from(1, 2, 0) == 1
    assert not sendings.is_once(1)
    sendings.store_once(1)
    assert sendings.is_once(1) and not sendings.is_once(2)
