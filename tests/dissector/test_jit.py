"""The kernel decorator: what it gives back, callbacks, and plain Python where nothing compiles."""

import os
import subprocess
import sys

import numpy as np
import pytest

from dissector.blocks import ByteArray
from dissector.jit import callback, kernel

SIGNATURE = "int64(uint8[::1], int64)"


def doubled(data: ByteArray, place: int) -> int:
    """A callback."""
    return 2 * data[place]


def negative(data: ByteArray, place: int) -> int:
    """Another one of the same signature."""
    return -np.int64(data[place])  # type: ignore[return-value]


@kernel
def called(calls: tuple, which: int, data: ByteArray, place: int) -> int:  # type: ignore[type-arg]
    """Call one of several functions, chosen at run time."""
    return calls[which](data, place)


def test_a_kernel_keeps_name_and_text() -> None:
    assert called.__name__ == "called" and called.__doc__ and called.__module__ == __name__


def test_callbacks_are_chosen_at_run_time() -> None:
    data = np.array([3, 4], np.uint8)
    calls = callback(SIGNATURE, doubled), callback(SIGNATURE, negative)
    assert [called(calls, which, data, 1) for which in (0, 1)] == [8, -4]
    assert calls[0](data, 0) == 6
    assert callback(SIGNATURE, doubled) is calls[0]


@pytest.mark.parametrize("value", ["1", "yes"])
def test_nothing_is_compiled_where_that_is_switched_off(value: str) -> None:
    program = (
        "import sys\n"
        "from tests.dissector.native.made import added\n"
        "print(added(1, 2), type(added).__name__, 'llvmlite' in sys.modules)\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_DISABLE_JIT": value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.split()[:2] == ["3", "function"]
