"""The history of a connection: which kinds of packets each side sent, in the order of their firsts.

Letters as in Zeek's connection log, upper case for the opener: S SYN, H SYN with ACK, A pure ACK,
D data, F FIN, R RST, G a gap in its stream, T data sent again, W a window of zero. Each letter
stands once per side, so a history has at most 18.
"""

import functools

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.stream.layout import HISTORY, HISTORY_LENGTH, HISTORY_SEEN, LETTERS

_LETTERS_PER_CELL = 12
_KEPT_TEXTS = 1 << 12  # connections of a scan share a few


@kernel
def add_letter(cells: Int64Array, base: int, letter: int, side_no: int) -> None:
    """Append a letter unless this side has it already."""
    code = letter + 9 * side_no
    if cells[base + HISTORY_SEEN] >> code & 1:
        return
    cells[base + HISTORY_SEEN] |= 1 << code
    length = cells[base + HISTORY_LENGTH]
    cells[base + HISTORY_LENGTH] = length + 1
    cell = base + HISTORY + length // _LETTERS_PER_CELL
    cells[cell] |= (code + 1) << (5 * (length % _LETTERS_PER_CELL))


@functools.lru_cache(maxsize=_KEPT_TEXTS)
def history_text(first: int, second: int, length: int) -> str:
    """The letters packed into the two cells of a connection."""
    letters = LETTERS.upper() + LETTERS
    text = ""
    for place in range(length):
        cell = first if place < _LETTERS_PER_CELL else second
        text += letters[(cell >> (5 * (place % _LETTERS_PER_CELL)) & 31) - 1]
    return text
