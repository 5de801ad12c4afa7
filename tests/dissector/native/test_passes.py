"""What kernels name through modules, as the compiler sees it."""

import numpy as np

from dissector import codecs, limits
from dissector.codecs import integers
from dissector.jit import kernel


def test_constants_and_kernels_are_read_through_their_modules() -> None:
    @kernel
    def through(data: np.ndarray, at: int) -> int:
        total = limits.MAX_NESTING
        if at < len(data):
            total += integers.byte(data, at) + codecs.integers.byte(data, at)
        return total

    assert through(np.array([5, 6], np.uint8), 1) == limits.MAX_NESTING + 12
