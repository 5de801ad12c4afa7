"""What kernels name through modules and enumerations, as the compiler sees it."""

import enum
from types import SimpleNamespace

import numpy as np
from numba.core import ir
from numba.core.compiler import run_frontend

from dissector import codecs, limits
from dissector.codecs import integers
from dissector.jit import kernel
from dissector.native.passes import _ReadModules
from dissector.protobuf import plan
from dissector.protobuf.plan import StepKind


class Weekday(enum.IntEnum):
    MONDAY = 1
    FRIDAY = 5


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


def test_members_of_enumerations_are_integers_to_kernels() -> None:
    @kernel
    def after(days: np.ndarray, at: int) -> int:
        if days[at] == Weekday.FRIDAY:
            days[at] = Weekday.MONDAY
            return Weekday.MONDAY | StepKind.CHILD << 8
        return days[at] + plan.StepKind.SPAN

    days = np.array([5, 3], np.int64)
    assert (after(days, 0), after(days, Weekday.MONDAY)) == (1 | 10 << 8, 3 + 7)
    assert days.tolist() == [1, 3]


def test_a_member_is_a_number_before_types_are_given() -> None:
    code = run_frontend(lambda: plan.StepKind.SPAN + Weekday.FRIDAY)
    assert _ReadModules().run_pass(SimpleNamespace(func_ir=code))
    values = [each.value for block in code.blocks.values() for each in block.find_insts(ir.Assign)]
    named = {each.name: each.value for each in values if isinstance(each, ir.Global)}
    assert named == {"SPAN": 7, "FRIDAY": 5} and {*map(type, named.values())} == {int}
