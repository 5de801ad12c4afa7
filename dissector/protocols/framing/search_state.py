"""The cells of a search: how far a direction's bytes are searched for one protocol's frames.

Offsets count from the first byte of the buffer; gaps are rows of `BufferedRanges`.
"""

from typing import Final

AT: Final = 0  # offset of the chain, -1 none
CURSOR: Final = 1  # offset up to which the chain is followed
TO_GO: Final = 2  # bytes from there to the end of the chain's last frame, gaps included
PASSED_GAP: Final = 3  # last gap before the cursor, -1 none
FRAMES: Final = 4  # headers of the chain
PROOFS: Final = 5  # frames of the chain with a right checksum
LAST: Final = 6  # offset of the last header
TOTAL: Final = 7  # bytes of the last frame
IS_HOLED: Final = 8  # bytes of the last frame are missing
IS_OPEN: Final = 9  # the end of the last frame is not checked yet
SECOND: Final = 10  # offset of the second frame, -1 not known
THIRD: Final = 11  # of the third
RESUME: Final = 12  # no chain starts below this offset
RESUME_GAP: Final = 13  # last gap before it, -1 none
CHECKSUMMED: Final = 14  # bytes whose checksum was computed
RESCANNED: Final = 15  # bytes of doubtful frames that were searched
STEPS: Final = 16  # headers checked, for tests of the cost
BEGAN_AT: Final = 17  # offset of the chain to which BEGAN_TS belongs
BEGAN_TS: Final = 18  # capture time of its first packet, ns
CONFIRMED_AT: Final = 19  # offset of the chain to which IS_CONFIRMED belongs
IS_CONFIRMED: Final = 20  # whether packets confirm it
IS_BEGUN: Final = 21  # the search has begun
SEARCH_CELLS: Final = 22

# Cells with an offset or -1; cells with a gap.
OFFSET_CELLS: Final = (AT, CURSOR, LAST, SECOND, THIRD)
GAP_CELLS: Final = (PASSED_GAP, RESUME_GAP)
