"""The letters of a connection: each once per side, in the order of their firsts."""

import random

from hypothesis import given
from hypothesis import strategies as st

from dissector.stream.history import LETTERS, add_letter, history_text
from dissector.stream.records import Connections
from tests.wire.packets import RST
from tests.wire.segments import FIN_ACK, Packet, handshake, streamed


def text_of(added: list[tuple[int, int]]) -> str:
    """The history of the second of two connections to which letters of sides were added."""
    connections = Connections.new(2)
    for letter, endpoint_index in added:
        add_letter(connections, 2 + endpoint_index, letter)
    fields = (connections.history, connections.history_more, connections.history_length)
    assert not connections.matrix[0].any()
    return history_text(*(int(field[1]) for field in fields))


def expected(letter: int, endpoint_index: int) -> str:
    return LETTERS[letter] if endpoint_index else LETTERS[letter].upper()


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1)), max_size=60))
def test_letters_stand_once_per_side_in_order(added: list[tuple[int, int]]) -> None:
    assert text_of(added) == "".join(dict.fromkeys(expected(*each) for each in added))


def test_all_eighteen_letters_fit() -> None:
    added = [(letter, endpoint_index) for letter in range(9) for endpoint_index in (0, 1)]
    random.Random(3).shuffle(added)
    assert text_of(added) == "".join(expected(*each) for each in added)


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
