"""Recording: kernels run as Python, and calls from Python are written down, each as it is."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dissector import jit
from dissector.native import recording
from dissector.native.arguments import append

SIGNATURE = "int64(int64)"


@pytest.fixture
def calls() -> Iterator[list[Any]]:
    """What was recorded."""
    found: list[Any] = []
    recording.record(lambda *call: found.append(call))
    yield found
    recording._recorders.clear()


def test_calls_from_python_are_recorded_and_those_from_kernels_are_not(calls: list[Any]) -> None:
    assert not jit.compiled()

    @jit.inlined
    def inner(value: int) -> int:
        return 2 * value

    @jit.kernel
    def outer(values: np.ndarray, step: int = 3, more: int = 4) -> int:
        return inner(int(values[0])) + step - more

    values = np.array([5], np.int64)
    assert outer(values, more=1) == 12
    assert inner(1) == 2
    kinds = (append(values, []), ("i",), ("i",))
    assert [(name.rpartition(".")[2], key) for _, name, key in calls] == [
        ("outer", kinds),
        ("inner", (("i",),)),
    ]
    assert {module for module, _, _ in calls} == {__name__}


def test_an_error_does_not_make_later_calls_those_of_a_kernel(calls: list[Any]) -> None:
    @jit.kernel
    def wrong(value: int) -> int:
        raise ValueError(value)

    for _ in range(2):
        with pytest.raises(ValueError, match="1"):
            wrong(1)
    assert len(calls) == 2


def test_callbacks_are_recorded_with_their_signature(calls: list[Any]) -> None:
    def called(value: int) -> int:
        return value + 1

    found = jit.callback(SIGNATURE, called)
    assert calls[0][2] == SIGNATURE
    assert append(found, words := []) == ("F", SIGNATURE) and len(words) == 1
    assert found(1) == 2
    assert calls[1][2] == (("i",),)
