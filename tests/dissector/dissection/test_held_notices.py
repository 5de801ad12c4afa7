"""Notices that wait come out by connection, in the order in which they came."""

import random

import numpy as np

from dissector.dissection.held_notices import HeldNotices
from dissector.notice_rows import Notice, NoticeRows


def rows(*notices: Notice) -> np.ndarray:
    return np.array(notices, np.int64).reshape(-1, len(Notice._fields))


def test_each_connection_gets_its_own_whatever_went_before() -> None:
    chance, held = random.Random(1), HeldNotices()
    wanted: dict[int, list[int]] = {}
    number = 0
    for _ in range(300):
        new = [(chance.randrange(20), number + more) for more in range(chance.randrange(12))]
        number += len(new)
        held.add(rows(*(Notice(1, connection_id=one, value=value) for one, value in new)))
        for one, value in new:
            wanted.setdefault(one, []).append(value)
        asked = [chance.randrange(20) for _ in range(chance.randrange(3))]
        asked = list(dict.fromkeys(asked))
        found, owners = held.pop(asked)
        values = [(each, value) for each in asked for value in wanted.pop(each, [])]
        assert [asked[owner] for owner in owners.tolist()] == [each for each, _ in values]
        assert NoticeRows(found).value.tolist() == [value for _, value in values]
        assert held.count == sum(map(len, wanted.values()))
        assert held.connections().tolist() == list(wanted)
    assert len(held._rows) < number


def test_what_is_given_back_is_its_own() -> None:
    held, given = HeldNotices(), rows(Notice(1, connection_id=3))
    held.add(given)
    given[:] = 7
    found, _ = held.pop([3, 4])
    held.add(rows(Notice(2, connection_id=5)))
    assert found[0, 0] == 1 and not len(held.pop([3])[0])
