"""What kernels name through modules, as the compiler sees it."""

from types import SimpleNamespace

import numpy as np
from numba.core import ir
from numba.core.compiler import run_frontend

from dissector import codecs, limits
from dissector.codecs import integers
from dissector.jit import kernel
from dissector.native.passes import _ReadModules


def test_constants_and_kernels_are_read_through_their_modules() -> None:
    @kernel
    def through(data: np.ndarray, at: int) -> int:
        total = limits.MAX_NESTING
        if at < len(data):
            total += integers.byte(data, at) + codecs.integers.byte(data, at)
        return total

    assert through(np.array([5, 6], np.uint8), 1) == limits.MAX_NESTING + 12


def test_no_module_is_left_for_the_compiler_to_type() -> None:
    def nested(data: np.ndarray) -> int:
        return limits.MAX_NESTING + codecs.integers.byte(data, 0)

    code = run_frontend(nested)
    assert _ReadModules().run_pass(SimpleNamespace(func_ir=code))
    values = [each.value for block in code.blocks.values() for each in block.find_insts(ir.Assign)]
    named = {each.name: each.value for each in values if isinstance(each, ir.Global)}
    assert named == {"MAX_NESTING": limits.MAX_NESTING, "byte": integers.byte}
    assert not [each for each in values if isinstance(each, ir.Expr) and each.op == "getattr"]
