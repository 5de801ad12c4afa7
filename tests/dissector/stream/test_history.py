"""The letters of a connection: each once per side, in the order of their firsts."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.stream.history import add_letter, history_text
from dissector.stream.layout import HISTORY, HISTORY_LENGTH, LETTERS, ROW_CELLS
from tests.wire.packets import RST
from tests.wire.segments import FIN_ACK, Packet, handshake, streamed


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1)), max_size=60))
def test_letters_stand_once_per_side_in_order(added: list[tuple[int, int]]) -> None:
    cells = np.zeros(3 * ROW_CELLS, np.int64)
    base = ROW_CELLS
    expected = ""
    for letter, side in added:
        add_letter(cells, base, letter, side)
        text = LETTERS[letter] if side else LETTERS[letter].upper()
        if text not in expected:
            expected += text
    first, second = (int(cells[base + HISTORY + place]) for place in (0, 1))
    assert history_text(first, second, int(cells[base + HISTORY_LENGTH])) == expected


def test_all_eighteen_letters_fit() -> None:
    cells = np.zeros(ROW_CELLS, np.int64)
    added = [(letter, side) for letter in range(9) for side in (0, 1)]
    random.Random(3).shuffle(added)
    for letter, side in added:
        add_letter(cells, 0, letter, side)
    text = history_text(int(cells[HISTORY]), int(cells[HISTORY + 1]), int(cells[HISTORY_LENGTH]))
    assert text == "".join(
        LETTERS[letter] if side else LETTERS[letter].upper() for letter, side in added
    )


def test_a_whole_life_in_letters() -> None:
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 1, 5001, b"", 1004, window=0),
        Packet(12, 1, 5001, b"xyz", 1004),
        Packet(13, 0, 1004, b"", 5004),
        Packet(14, 1, 5007, b"def", 1004),
        Packet(15, 0, 1004, b"", 5010),
        Packet(900, 1, 5010, b"ghi", 1004),
        Packet(901, 1, 5010, b"ghi", 1004),
        Packet(902, 1, 5013, b"", 1004, FIN_ACK),
        Packet(903, 0, 1004, b"", 0, RST),
    ]
    assert streamed(packets).connections[0]["history"] == "ShADawdgtfR"
