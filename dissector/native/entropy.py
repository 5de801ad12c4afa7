"""Random numbers of the operating system, for keys that no input can know beforehand."""

import os


def random_number(bits: int) -> int:
    """Return a random number of `bits` bits; bits: a multiple of 8."""
    return int.from_bytes(os.urandom(bits // 8), "little")
