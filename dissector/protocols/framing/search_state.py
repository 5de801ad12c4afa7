"""How far the bytes of a direction are searched for one protocol's frames: the cells of a search.

Offsets count from the first byte of the buffer; gaps are rows of `BufferedRanges`.
"""

from typing import Final

AT: Final = 0  # first byte of the chain, -1 none
CURSOR: Final = 1  # how far the chain is followed
TO_GO: Final = 2  # bytes from there to the end of the chain's last frame, holes included
PASSED_GAP: Final = 3  # last gap before the cursor, -1 none
FRAMES: Final = 4  # headers of the chain
PROOFS: Final = 5  # right checksums among them
LAST: Final = 6  # where the last header stands
TOTAL: Final = 7  # bytes of its frame
IS_HOLED: Final = 8  # bytes of that frame are missing
IS_OPEN: Final = 9  # its end has not been looked at yet
SECOND: Final = 10  # where the second frame starts, -1 not known
THIRD: Final = 11
RESUME: Final = 12  # offsets below it start no chain
RESUME_GAP: Final = 13  # last gap before it, -1 none
SUMMED: Final = 14  # bytes whose checksum was computed
COMBED: Final = 15  # bytes of doubtful frames that were searched
STEPS: Final = 16  # headers looked at, for those who count the cost
BEGAN_AT: Final = 17  # the chain whose first packet was captured
BEGAN_TS: Final = 18  # then, ns
CONFIRMED_AT: Final = 19  # the chain of which it is known
IS_CONFIRMED: Final = 20  # whether packets confirm it
IS_BEGUN: Final = 21  # the bytes were searched for frames of this protocol
SEARCH_CELLS: Final = 22

# Cells that hold an offset or -1, and those that hold a gap.
OFFSET_CELLS: Final = (AT, CURSOR, LAST, SECOND, THIRD)
GAP_CELLS: Final = (PASSED_GAP, RESUME_GAP)
