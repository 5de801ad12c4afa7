"""Notices come out in one order, whatever the order of the stages that found them."""

import random

import numpy as np
import pytest

from dissector.blocks import Coded
from dissector.limits import NULL
from dissector.notice_log import NoticeLog, sentence_of
from dissector.notice_rows import Notice
from dissector.notices import NOTICE_NUMBER, NOTICES
from tests.plain import rows_of_block

GAP = NOTICE_NUMBER["gap_lost"]


def test_the_order_does_not_depend_on_the_order_of_finding():
    rows = [
        Notice(GAP, packet=packet, frame_no=frame, connection_id=connection, value=5)
        for packet in (3, NULL, 1)
        for frame in (NULL, 2)
        for connection in (1, 0)
    ]
    expected = None
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        notices = NoticeLog()
        notices.add(rows)
        block = notices.block()
        found = [block.columns[name].tolist() for name in ("frame_no", "connection_id")]
        assert expected is None or found == expected
        expected = found
    assert expected[0] == [2, 2, NULL, NULL] * 3


def test_beyond_the_bound_notices_are_counted(monkeypatch):
    monkeypatch.setattr("dissector.notice_log.MAX_NOTICES", 2)
    notices = NoticeLog()
    notices.add(Notice(GAP, packet=packet, value=1) for packet in range(5))
    block = notices.block()
    assert block.rows == 3
    assert "3 further notices" in rows_of_block(block)[-1]["text"]


def test_every_sentence_can_be_written_with_and_without_numbers():
    for kind in range(len(NOTICES)):
        assert sentence_of(Notice(kind)) and sentence_of(Notice(kind, value=1, value2=2))


def test_a_reason_stands_in_words() -> None:
    kind = NOTICE_NUMBER["entry_not_opened"]
    for reason, words in ((1, "codec"), (2, "larger"), (3, "another size"), (4, "not what")):
        sentence = sentence_of(Notice(kind, value=reason))
        assert words in sentence and str(reason) not in sentence
    assert "(9)" in sentence_of(Notice(kind, value=9)) and "?" in sentence_of(Notice(kind))


def test_notices_of_kernels_stand_among_the_others() -> None:
    rows = [Notice(GAP, packet=packet, value=packet % 3) for packet in (5, 1, 4, 2)]
    one, other = NoticeLog(), NoticeLog()
    one.add(rows)
    for row in rows[:2]:
        other.add_rows(np.array([row], np.int64))
    other.add(rows[2:])
    assert other.rows() == rows
    found = [rows_of_block(log.block()) for log in (one, other)]
    assert found[0] == found[1] and [row["packet"] for row in found[0]] == [1, 2, 4, 5]


def test_each_sentence_of_a_flood_is_written_once() -> None:
    log, unknown = NoticeLog(), NOTICE_NUMBER["not_recognised"]
    jumped = NOTICE_NUMBER["sequence_jump"]
    log.add(Notice(unknown, packet=packet, value=packet % 3) for packet in range(900))
    log.add(Notice(jumped, packet=packet) for packet in range(900, 1800))
    block = log.block()
    text = block.columns["text"]
    assert isinstance(text, Coded) and len(text.names) == len(NOTICES) + 3
    assert [row["text"] for row in rows_of_block(block)] == [
        *(sentence_of(Notice(unknown, value=packet % 3)) for packet in range(900)),
        *[NOTICES[jumped].sentence] * 900,
    ]


def test_what_one_log_only_counted_another_one_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissector.notice_log.MAX_NOTICES", 3)
    first, all_of_them = NoticeLog(), NoticeLog()
    first.add(Notice(GAP, packet=packet, value=1) for packet in range(8))
    all_of_them.add([Notice(GAP, packet=9, value=1)])
    all_of_them.take(first)
    assert first.rows() == []
    block = all_of_them.block()
    assert block.rows == 4 and "6 further notices" in rows_of_block(block)[-1]["text"]
    assert all_of_them.block().rows == 0


def test_names_go_with_the_notices_that_hold_them() -> None:
    kind, one, other = NOTICE_NUMBER["unknown_field"], NoticeLog(), NoticeLog()
    one.add([Notice(kind, packet=3, value=1, value2=1, name=one.name("CommandAck"))])
    for name in ("CommandSend", "CommandAck"):
        other.add([Notice(kind, packet=3, value=1, value2=1, name=other.name(name))])
    one.take(other)
    assert [row["text"].split()[3] for row in rows_of_block(one.block())] == [
        "CommandAck",
        "CommandAck",
        "CommandSend",
    ]
    assert not one.block().rows and not other.block().rows
