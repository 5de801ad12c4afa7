"""The history of a connection: which kinds of packets each side sent, in the order of their firsts.

Letters as in Zeek's connection log, upper case for the opener: S SYN, H SYN with ACK, A pure ACK,
D data, F FIN, R RST, G a gap in its stream, T data sent again, W a window of zero. Each letter
stands once per side, so a history has at most 18.
"""

import functools
from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import MAX_KEPT_HISTORIES
from dissector.stream.records import Connections

LETTERS: Final = "shadfrgtw"
LETTER_SYN: Final = LETTERS.index("s")
LETTER_SYN_ACK: Final = LETTERS.index("h")
LETTER_ACK: Final = LETTERS.index("a")
LETTER_DATA: Final = LETTERS.index("d")
LETTER_FIN: Final = LETTERS.index("f")
LETTER_RST: Final = LETTERS.index("r")
LETTER_GAP: Final = LETTERS.index("g")
LETTER_RETRANSMISSION: Final = LETTERS.index("t")
LETTER_ZERO_WINDOW: Final = LETTERS.index("w")

_ALPHABET: Final = LETTERS.upper() + LETTERS
_PER_SIDE: Final = len(LETTERS)
_LETTER_BITS: Final = 5
_LETTERS_PER_FIELD: Final = 12


@inlined
def has_letter(connections: Connections, direction_index: int, letter: int) -> bool:
    """Whether a side has a letter already."""
    return bool(
        connections.history_seen[direction_index >> 1]
        >> (letter + _PER_SIDE * (direction_index & 1))
        & 1
    )


@kernel
def add_letter(connections: Connections, direction_index: int, letter: int) -> None:
    """Append a letter unless this side has it already."""
    if has_letter(connections, direction_index, letter):
        return
    row = direction_index >> 1
    code = letter + _PER_SIDE * (direction_index & 1)
    connections.history_seen[row] |= 1 << code
    length = connections.history_length[row]
    connections.history_length[row] = length + 1
    if length < _LETTERS_PER_FIELD:
        connections.history[row] |= (code + 1) << (_LETTER_BITS * length)
    else:
        connections.history_more[row] |= (code + 1) << (
            _LETTER_BITS * (length - _LETTERS_PER_FIELD)
        )


@functools.lru_cache(maxsize=MAX_KEPT_HISTORIES)
def history_text(history: int, history_more: int, length: int) -> str:
    """The letters of a connection."""
    codes = history | history_more << (_LETTER_BITS * _LETTERS_PER_FIELD)
    return "".join(
        _ALPHABET[(codes >> (_LETTER_BITS * number) & 31) - 1] for number in range(length)
    )
