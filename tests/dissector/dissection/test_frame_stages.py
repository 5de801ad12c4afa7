"""Stages of a block: what comes out, in which order, and what has ended when."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dissector.blocks import TableBlock
from dissector.dissection.frame_stages import FrameStages
from dissector.limits import FRAME_BLOCKS_AT_ONCE, NULL
from dissector.notice_log import NoticeLog
from dissector.protocols.interface import Decoded, Related


def rows_of(table: str, number: int) -> TableBlock:
    return TableBlock(table, 1, {"frame_no": np.array([number])})


def frame_rows(block: Any, decoded: list[Decoded]) -> list[TableBlock]:
    return [rows_of("frames", block)]


class Protocol:
    """Says in which order it is called; its relations wait until they may go on."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.may_relate = threading.Event()
        self.may_relate.set()
        self.decoded = threading.Semaphore(0)

    def advance(self, block: Any) -> Decoded:
        self.calls.append(("advance", block))
        self.decoded.release()
        return Decoded([rows_of("producers", block)])

    def pair(self, block: Any, decoded: Decoded) -> Related:
        self.calls.append(("pair", block))
        return Related([rows_of("consumers", block)])

    def read(self, block: Any, decoded: Decoded) -> Related:
        assert self.calls.count(("pair", block)) == 1
        assert decoded.rows[0].columns["frame_no"] == [block]
        return Related([rows_of("messages", block)])

    def relate(self, block: Any, decoded: Decoded) -> Related:
        assert self.may_relate.wait(20)
        self.calls.append(("relate", block))
        log = NoticeLog()
        log.note("gap_lost", value=block)
        return Related([rows_of("exchanges", block)], log)


class Stages:
    """Stages of protocols, and what they gave."""

    def __init__(self, *protocols: Any) -> None:
        self.out: list[tuple[int | None, list[tuple[str, list[int]]], int]] = []
        self.stages = FrameStages(protocols, frame_rows, self._take)

    def _take(self, block: Any, rows: list[TableBlock], notices: Sequence[NoticeLog]) -> None:
        found = [(each.table, list(each.columns["frame_no"])) for each in rows]
        self.out.append((block, found, len(notices)))


def test_rows_come_out_once_and_frames_before_those_that_name_them() -> None:
    made = Stages(Protocol())
    made.stages.begin(7)
    made.stages.finish()
    made.stages.finish()
    made.stages.close()
    assert made.out == [
        (7, [("frames", [7]), ("producers", [7]), ("messages", [7])], 0),
        (None, [("consumers", [7]), ("exchanges", [7])], 1),
    ]


def test_bytes_are_free_while_relations_go_on() -> None:
    protocol = Protocol()
    made = Stages(protocol)
    protocol.may_relate.clear()
    made.stages.begin(1)
    made.stages.finish_reading()
    assert [block for block, _, _ in made.out] == [1] and protocol.calls == [
        ("advance", 1),
        ("pair", 1),
    ]
    made.stages.finish_reading()
    protocol.may_relate.set()
    made.stages.close()
    assert [block for block, _, _ in made.out] == [1, None]


def test_each_stage_takes_the_blocks_in_order() -> None:
    protocol = Protocol()
    made = Stages(protocol)
    for block in range(50):
        made.stages.begin(block)
    made.stages.close()
    for name in ("advance", "pair", "relate"):
        assert [block for stage, block in protocol.calls if stage == name] == [*range(50)]
    assert [block for block, _, _ in made.out if block is not None] == [*range(50)]
    relations = [rows for block, rows, _ in made.out if block is None]
    assert relations == [[("consumers", [n]), ("exchanges", [n])] for n in range(50)]


def test_blocks_are_decoded_while_the_relations_of_those_before_go_on() -> None:
    protocol = Protocol()
    made = Stages(protocol)
    protocol.may_relate.clear()
    for block in range(FRAME_BLOCKS_AT_ONCE):
        made.stages.begin(block)
        assert protocol.decoded.acquire(timeout=20)
    made.stages.finish_reading(but=FRAME_BLOCKS_AT_ONCE - 1)
    assert [block for block, _, _ in made.out] == [0]
    assert "relate" not in [stage for stage, _ in protocol.calls]
    threading.Timer(0.1, protocol.may_relate.set).start()
    made.stages.begin(FRAME_BLOCKS_AT_ONCE)  # waits for the first one, whose memory it may take
    assert (None, [("consumers", [0]), ("exchanges", [0])], 1) in made.out
    made.stages.close()


def test_the_last_blocks_may_be_read_while_others_are_awaited() -> None:
    class Slow(Protocol):
        def __init__(self) -> None:
            super().__init__()
            self.may_read = threading.Event()

        def read(self, block: Any, decoded: Decoded) -> Related:
            assert block == 0 or self.may_read.wait(20)
            return super().read(block, decoded)

    protocol = Slow()
    made = Stages(protocol)
    made.stages.begin(0)
    made.stages.begin(1)
    made.stages.finish_reading(but=1)
    made.stages.finish_reading(but=5)
    assert [block for block, _, _ in made.out] == [0]
    protocol.may_read.set()
    made.stages.close()
    assert [block for block, _, _ in made.out] == [0, None, 1, None]


def test_rows_of_several_protocols_are_in_the_order_of_their_frames() -> None:
    class Later(Protocol):
        def pair(self, block: Any, decoded: Decoded) -> Related:
            super().pair(block, decoded)
            return Related([])

        def relate(self, block: Any, decoded: Decoded) -> Related:
            return Related([rows_of("exchanges", block - 5)])

    made = Stages(Protocol(), Later())
    made.stages.begin(9)
    made.stages.close()
    assert made.out[-1] == (None, [("consumers", [9]), ("exchanges", [4, 9])], 1)


def test_what_a_stage_raises_reaches_the_caller() -> None:
    class Broken(Protocol):
        def read(self, block: Any, decoded: Decoded) -> Related:
            raise AssertionError(f"block {block}")

    made = Stages(Broken())
    made.stages.begin(3)
    with pytest.raises(AssertionError, match="block 3"):
        made.stages.finish()
    assert NULL not in [block for block, _, _ in made.out]
