"""How numba's IR becomes object code: all that a kernel needs is put together and optimised once.

Left to itself numba optimises each function and makes machine code of it, and both again in each of
its callers: that was four fifths of all compile time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import BuiltinFunctionType
from typing import Any

import llvmlite.binding as llvm
from numba.core import transforms, types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.postproc import PostProcessor
from numba.core.registry import cpu_target


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """The IR of one function as it was made, and the libraries of those that it calls."""

    def add_llvm_module(self, module: Any) -> None:
        self._final_module.link_in(module)

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Some address: only entries are called, which are loaded by us."""
        return 1

    def _get_module_for_linking(self) -> Any:
        """All that it needs, for a function that numba compiles for somebody else."""
        if self._shared_module is None:
            self._shared_module = self._linked(self._final_module.clone())
            for function in self._shared_module.functions:
                if not function.is_declaration:
                    function.linkage = "linkonce_odr"
        return self._shared_module

    def _linked(self, module: Any) -> Any:
        """A module with everything that this library needs, at any depth."""
        seen: set[Any] = {self}
        waiting = list(self._linking_libraries)
        while waiting:
            library = waiting.pop()
            if library in seen:
                continue
            seen.add(library)
            if isinstance(library, _Library):
                module.link_in(library._final_module, preserve=True)
                waiting.extend(library._linking_libraries)
            else:
                module.link_in(library._get_module_for_linking(), preserve=True)
        return module

    def emit(self, symbol: str) -> tuple[bytes, list[str]]:
        """The object code of an entry, and the symbols that it leaves to the process."""
        module = self._linked(self._final_module)
        for function in module.functions:
            if not function.is_declaration and function.name != symbol:
                function.linkage = "internal"
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = True
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        builder.getModulePassManager().run(module, builder)
        externals = [
            each.name
            for group in (module.functions, module.global_variables)
            for each in group
            if each.is_declaration and not each.name.startswith("llvm.")
        ]
        return bytes(self._codegen._tm.emit_object(module)), sorted(externals)


class _Codegen(JITCPUCodegen):  # type: ignore[misc]
    """Makes libraries of ours."""

    _library_class = _Library

    def set_env(self, name: str, env: Any) -> None:
        """Kernels know no environment: that is for code that raises or makes objects."""


@cache
def _size_of(type_: Any) -> int:
    """The bytes of a value of LLVM's type, for which LLVM reads a module each time it is asked."""
    return int(type(cpu_target.target_context).get_abi_sizeof(cpu_target.target_context, type_))


@cache
def _codegen() -> Any:
    return _Codegen("dissector")


_signatures: dict[Any, Any] = {}


def _resolver(resolve: Any, signatures: dict[Any, Any]) -> Any:
    """Numba's search for the signature of a call, which looks for those of numba's own functions
    once.

    Each operator has a dozen rules, which numba tries one after the other at every use of it.
    """

    def resolve_once(function: Any, arguments: Any, named: Any) -> Any:
        if named or not isinstance(function, BuiltinFunctionType | types.Function):
            return resolve(function, arguments, named)
        key = function, tuple(arguments)
        if key not in signatures:
            signatures[key] = resolve(function, arguments, named)
        return signatures[key]

    return resolve_once


def _without_lifetimes(run: Any) -> Any:
    """What numba does to a function between passes, without following the life of each variable.

    That is for code that counts references; the passes of kernels need the order of blocks alone.
    """

    def run_shortly(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        if emit_dels:
            run(self, emit_dels, extend_lifetimes)
        else:
            self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)

    return run_shortly


@contextmanager
def own_codegen() -> Iterator[None]:
    """Have numba make libraries of ours; the caller holds the compiler's lock."""
    context, typing = cpu_target.target_context, cpu_target.typing_context
    before = context._internal_codegen, context.cached_internal_func
    context._internal_codegen, context.cached_internal_func = _codegen(), {}
    typing.resolve_function_type = _resolver(typing.resolve_function_type, _signatures)
    context.get_abi_sizeof = _size_of
    processor: Any = PostProcessor
    run, processor.run = processor.run, _without_lifetimes(processor.run)
    try:
        yield
    finally:
        processor.run = run
        del context.get_abi_sizeof
        context._internal_codegen, context.cached_internal_func = before
        del typing.resolve_function_type
