"""The passes of the compiler that kernels go through."""

import enum
from typing import Any, Final

from numba.core import ir, typed_passes, untyped_passes
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass

from dissector.native.digests import is_ours


class Passes(CompilerBase):  # type: ignore[misc]
    """The passes of numba that kernels need: no closures, objects, parallel loops, or inlining of
    numba's own; and none that ends the lives of variables, as nothing counts references."""

    def define_pipelines(self) -> list[Any]:
        manager = PassManager("kernel")
        for each in _PASSES:
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


@register_pass(mutates_CFG=False, analysis_only=False)
class _ReadModules(FunctionPass):  # type: ignore[misc]
    """A name that is read through a module of ours is the global that it would be by itself, a
    member of an enumeration the integer that it is.

    The compiler would give the module, the enumeration, and each such name, a variable and a type
    of its own.
    """

    _name = "read_modules"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            owners: dict[str, Any] = {}
            body = []
            for each in block.body:
                value = getattr(each, "value", None)
                if isinstance(value, ir.Expr) and value.op == "getattr":
                    owner = owners.get(value.value.name)
                    if owner is not None:
                        named = getattr(owner, value.attr)
                        each.value = value = ir.Global(value.attr, named, value.loc)
                        state.func_ir._definitions[each.target.name] = [value]
                if isinstance(value, ir.Global):
                    if is_ours(value.value) or isinstance(value.value, enum.EnumMeta):
                        owners[each.target.name] = value.value
                        continue
                    if isinstance(value.value, enum.IntEnum):
                        value.value = int(value.value)
                body.append(each)
            block.body[:] = body
        return True


_PASSES: Final = (
    untyped_passes.TranslateByteCode,
    _ReadModules,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)
