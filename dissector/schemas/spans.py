"""The kernel that copies scattered byte ranges behind each other."""

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import kernel


@kernel
def gather_spans(data: ByteArray, starts: Int64Array, lengths: Int64Array, out: ByteArray) -> int:
    """Copy the ranges of data one after the other into out; negative lengths are skipped.

    Args:
        data: uint8[]; starts, lengths: int64[rows], ranges inside data (the caller checked them);
        out: uint8[], written; it holds the sum of the lengths.

    Returns:
        The number of bytes written.
    """
    at = 0
    for row in range(len(starts)):
        start = starts[row]
        for offset in range(lengths[row]):
            out[at] = data[start + offset]
            at += 1
    return at
