"""The compiler's side of kernels: entries that take words, and the checks of the test mode."""

import os
import subprocess
import sys

import numpy as np
import pytest

from dissector.jit import compiled, kernel
from tests.dissector.native import made

pytestmark = pytest.mark.skipif(not compiled(), reason="nothing is compiled")


def test_kinds_of_results_that_no_word_holds_are_refused() -> None:
    @kernel
    def half(value: int) -> float:
        return value / 2

    with pytest.raises(TypeError, match="cannot return float64"):
        half(1)


def test_a_kernel_of_other_kinds_is_compiled_beside_the_first() -> None:
    @kernel
    def first(values: np.ndarray) -> int:
        return values[0]

    for kind in (np.uint8, np.int32, np.int64, np.uint16):
        assert first(np.array([7, 8], kind)) == 7


def test_bounds_are_checked_where_that_is_asked_for() -> None:
    program = (
        "import numpy as np\n"
        "from tests.dissector.native.made import out_of_bounds\n"
        "out_of_bounds(np.zeros(4, np.int64), 4)\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DISSECTOR_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 1 and "IndexError: out_of_bounds" in completed.stderr


def test_helpers_can_be_called_by_themselves() -> None:
    assert made.twice(21) == 42
