"""Hash tables, lists, chains and pools against dicts and lists of Python."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector import tables
from dissector.tables import ABSENT, TAKEN

# Few different keys in few slots, so that probing, wrapping and shifting back happen all the time;
# the ends of the 64-bit range because wire ids reach them.
WORD = st.sampled_from([0, 1, 2, -1, 7, 2**63 - 1, -(2**63), 1 << 40])
KEY = st.tuples(WORD, WORD, st.integers(0, 2), st.just(0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), KEY, st.integers(0, 1000)), max_size=120))
def test_hash_table_does_what_a_dict_does(steps):
    table, truth = tables.new_hash_table(4), {}
    for is_put, key, value in steps:
        table = tables.reserved(table, 1)
        if is_put:
            assert tables.put(table, *key, value) == truth.get(key, ABSENT)
            truth[key] = value
        else:
            assert tables.remove(table, *key) == truth.pop(key, ABSENT)
        assert table.counts[TAKEN] == len(truth)
    for key, value in truth.items():
        assert tables.find(table, *key) == value
    assert int(np.sum(table.values != ABSENT)) == len(truth)


def test_a_table_that_lives_long_keeps_its_size():
    table = tables.new_hash_table(64)
    for number in range(5000):
        table = tables.reserved(table, 1)
        tables.put(table, 1, number, 0, 0, number)
        if number >= 20:
            assert tables.remove(table, 1, number - 20, 0, 0) == number - 20
    assert len(table.values) == 64


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=80))
def test_chains_give_the_rows_of_a_key_oldest_first(steps):
    table, links = tables.new_hash_table(16), tables.ListLinks.new(10)
    truth: dict[int, list[int]] = {key: [] for key in range(4)}
    for key, row in steps:
        owner = next((each for each, rows in truth.items() if row in rows), None)
        if owner is None:
            tables.chain_append(table, links, 5, key, 0, 0, row)
            truth[key].append(row)
        else:
            tables.chain_unlink(table, links, 5, owner, 0, 0, row)
            truth[owner].remove(row)
        for each, rows in truth.items():
            seen, at = [], tables.find(table, 5, each, 0, 0)
            while at != ABSENT:
                seen.append(int(at))
                at = links.next[at]
            assert seen == rows


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=80))
def test_lists_keep_order_and_length(steps):
    ends, links = tables.new_ends(3), tables.ListLinks.new(10)
    truth: list[list[int]] = [[], [], []]
    for which, row in steps:
        owner = next((number for number, rows in enumerate(truth) if row in rows), None)
        if owner is None:
            tables.list_append(ends, links, which, row)
            truth[which].append(row)
        else:
            tables.list_unlink(ends, links, owner, row)
            truth[owner].remove(row)
        for number, rows in enumerate(truth):
            seen, at = [], ends.first[number]
            while at != ABSENT:
                seen.append(int(at))
                at = links.next[at]
            assert seen == rows
            assert ends.length[number] == len(rows)
            assert ends.last[number] == (rows[-1] if rows else ABSENT)


def test_a_pool_hands_out_each_row_once_and_grows():
    pool = tables.new_pool(3)
    assert [tables.allocate_row(pool) for _ in range(4)] == [0, 1, 2, ABSENT]
    tables.give_row(pool, 1)
    pool = tables.grown_pool(pool, 5)
    assert sorted(int(tables.allocate_row(pool)) for _ in range(3)) == [1, 3, 4]
    assert tables.allocate_row(pool) == ABSENT


def test_growing_keeps_what_was_there():
    links, ends = tables.ListLinks.new(2), tables.new_ends(1)
    tables.list_append(ends, links, 0, 1)
    tables.list_append(ends, links, 0, 0)
    links, ends = links.grown(4), ends.grown(2)
    tables.list_append(ends, links, 0, 3)
    tables.list_append(ends, links, 1, 2)
    assert (ends.first[0], links.next[1], links.next[0], ends.length[0]) == (1, 0, 3, 3)
    assert ends.length[1] == 1


def test_a_memory_keeps_the_last_keys_and_their_latest_number():
    memory = tables.new_memory(4)
    for number in range(6):
        tables.remember(memory, 9, number, 0, 0, number * 10)
    tables.remember(memory, 9, 2, 0, 0, 77)
    found = [int(tables.find(memory.table, 9, number, 0, 0)) for number in range(6)]
    assert found == [ABSENT, ABSENT, 77, 30, 40, 50]
    assert memory.table.counts[TAKEN] == 4
