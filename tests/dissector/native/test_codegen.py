"""Object code is made once per kernel, and numba goes on as it was for everybody else."""

import numpy as np
import pytest

from dissector.jit import compiled, inlined, kernel

pytestmark = pytest.mark.skipif(not compiled(), reason="nothing is compiled")


@inlined
def _least(first: int, second: int) -> int:
    return min(first, second)


@kernel
def _counted(values: np.ndarray, level: int) -> int:
    found = 0
    for value in values:
        found += _least(value, level)
    return found if level < 1 else found + _counted_down(values, level)


@kernel
def _counted_down(values: np.ndarray, level: int) -> int:
    return max(_least(level, len(values)), 1)


def test_a_kernel_holds_all_that_it_calls_and_shows_only_its_entry() -> None:
    import llvmlite.binding as llvm

    kinds = (("a", "<i8", 1, "C", False), ("i",))
    code = _counted.code(kinds)  # type: ignore[attr-defined]
    assert code.externals == [] and code.symbol.startswith("_counted-")
    assert _counted(np.array([5, 1], np.int64), 2) == 5
    assert llvm.ObjectFileRef.from_data(code.data) is not None


def test_who_uses_numba_beside_us_is_not_disturbed() -> None:
    import numba

    assert _counted_down(np.zeros(3, np.int64), 2) == 2

    @numba.njit
    def largest(values, level):  # type: ignore[no-untyped-def]
        return max(min(values.max(), level), 1)

    assert largest(np.array([4, 9]), 7) == 7


def test_the_compiler_is_left_as_it_was_found() -> None:
    from numba.core.registry import cpu_target

    from dissector.native.codegen import own_codegen

    typing, context = cpu_target.typing_context, cpu_target.target_context
    before = typing.resolve_function_type, context._internal_codegen
    with pytest.raises(ZeroDivisionError), own_codegen():
        assert typing.resolve_function_type != before[0]
        raise ZeroDivisionError
    assert (typing.resolve_function_type, context._internal_codegen) == before


def test_an_operator_is_resolved_once_for_its_types_and_never_a_kernel() -> None:
    import operator

    from numba.core import types

    from dissector.native.codegen import _resolver

    asked = []

    def resolve(*call: object) -> object:
        asked.append(call)
        return types.int64(types.int64, types.int64)

    once = _resolver(resolve, {})
    own = types.Dispatcher(_least.dispatcher)  # type: ignore[attr-defined]
    for arguments in ((types.int64, types.int64), (types.int64, types.uint8)):
        assert once(operator.add, arguments, {}) is once(operator.add, arguments, {})
    assert len(asked) == 2
    for _ in range(2):
        once(own, (types.int64, types.int64), {})
    assert len(asked) == 4
