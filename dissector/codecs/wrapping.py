"""Arithmetic modulo 2^64 on signed numbers, for hashes and deltas.

The compiler assumes that `+`, `-` and `*` of signed numbers never overflow, and optimizes
differently in each caller: the same hash, compiled into two kernels, gave two numbers. These
functions wrap explicitly; use them wherever a result may exceed 64 bits.
"""

import numpy as np

from dissector.codecs.integers import wrapped
from dissector.jit import compiled, inlined

if compiled():
    # Unsigned arithmetic may overflow; the way there and back costs no instruction.

    @inlined
    def product(one: int, other: int) -> int:
        """one * other, the low 64 bits as a signed number."""
        return np.int64(np.uint64(one) * np.uint64(other))  # type: ignore[return-value]

    @inlined
    def total(one: int, other: int) -> int:
        """one + other, the low 64 bits as a signed number."""
        return np.int64(np.uint64(one) + np.uint64(other))  # type: ignore[return-value]

    @inlined
    def difference(one: int, other: int) -> int:
        """one - other, the low 64 bits as a signed number."""
        return np.int64(np.uint64(one) - np.uint64(other))  # type: ignore[return-value]

else:
    # Plain twins: the same numbers as Python ints.

    def product(one: int, other: int) -> int:
        """one * other, the low 64 bits as a signed number."""
        return wrapped(int(one) * int(other))

    def total(one: int, other: int) -> int:
        """one + other, the low 64 bits as a signed number."""
        return wrapped(int(one) + int(other))

    def difference(one: int, other: int) -> int:
        """one - other, the low 64 bits as a signed number."""
        return wrapped(int(one) - int(other))
