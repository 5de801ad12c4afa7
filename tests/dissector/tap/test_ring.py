"""The blocks of a ring without a kernel: which are taken, and when they are given back."""

import numpy as np

from dissector.capture.tpacket import BLOCK_STATUS, STATUS_LOSING, STATUS_USER
from dissector.tap.interfaces import Interface
from dissector.tap.ring import BLOCK_BYTES, Ring

BLOCKS = 4


class Blocks(Ring):
    """A ring whose blocks the test gives out."""

    def __init__(self) -> None:
        self.interface = Interface("none0", 1, 1, False)
        self.blocks = BLOCKS
        self.memory = np.zeros(BLOCKS * BLOCK_BYTES, np.uint8)
        self.begin()

    def give_out(self, *numbers: int, status: int = STATUS_USER) -> None:
        for number in numbers:
            self.memory[number * BLOCK_BYTES + BLOCK_STATUS] = status

    def ours(self) -> list[int]:
        statuses = self.memory[BLOCK_STATUS::BLOCK_BYTES]
        return [number for number in range(BLOCKS) if statuses[number]]


def test_blocks_are_given_back_one_by_one_in_their_order():
    ring = Blocks()
    assert ring.next_block() is None
    ring.give_out(0, 1)
    assert [ring.next_block().start for _ in range(2)] == [0, BLOCK_BYTES]
    assert ring.next_block() is None
    ring.give_back()
    assert ring.ours() == [1] and ring.taken == 1
    ring.give_out(2, 3, 0)
    assert [ring.next_block().start // BLOCK_BYTES for _ in range(3)] == [2, 3, 0]
    assert ring.next_block() is None  # all are ours
    ring.give_back(4)
    assert ring.ours() == [] and ring.taken == 0


def test_a_ring_that_lost_packets_is_emptied_before_any_block_goes_back():
    ring = Blocks()
    ring.give_out(0, 1)
    ring.give_out(2, 3, status=STATUS_USER | STATUS_LOSING)
    for _ in range(3):
        ring.next_block()
    ring.give_back()
    ring.give_back()
    assert ring.ours() == [0, 1, 2, 3]
    ring.give_back()
    assert ring.ours() == [0, 1, 2, 3]  # one more can be taken
    assert ring.next_block() is not None and ring.next_block() is None
    ring.give_back()
    assert ring.ours() == []
    # Then it is as before.
    ring.give_out(0, 1)
    ring.next_block()
    ring.give_back()
    assert ring.ours() == [1]
