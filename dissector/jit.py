"""The kernel decorators: functions of arrays and integers, compiled once and cached on disk.

A kernel is compiled when it is first called with arguments of new kinds, and its machine code is
stored. Later runs load the code without importing the compiler, which with its bookkeeping cost
each run more than a second. Calls pass one pointer to words (`native.arguments`).
"""

import ctypes
import functools
import importlib
import inspect
import os
import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from dissector.native import recording
from dissector.native.arguments import (
    FUNCTION,
    Kind,
    Prepacked,
    append,
    array_words,
    maker_of,
    result_count,
    word_array,
    word_count,
)
from dissector.native.code import (
    LOCK,
    Code,
    bounds_checked,
    cache_folder,
    cache_problems,
    code_folder,
    find_code,
    keep_code,
    load_address,
    load_entry,
    processor_features,
    read_kept,
)
from dissector.native.digests import PACKAGE, kernel_digest, program_digest
from dissector.native.progress import compiling, listen

__all__ = [
    "array_words",
    "bounds_checked",
    "cache_folder",
    "cache_problems",
    "callback",
    "compile_ahead",
    "compiled",
    "inlined",
    "instruction",
    "kernel",
    "kernel_named",
    "listen",
    "prepacked",
    "processor_features",
    "program_digest",
    "read_kept",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")


def compiled() -> bool:
    """Whether kernels are compiled; NUMBA_DISABLE_JIT=1 runs them as plain Python."""
    is_off = os.environ.get("NUMBA_DISABLE_JIT", "") not in ("", "0")
    return not is_off and not recording.is_recording()


def kernel(function: Function) -> Function:
    """Compile a function of arrays and integers; it runs without the GIL, its code is cached."""
    return _declared(function, is_inlined=False)


def inlined(function: Function) -> Function:
    """As `kernel`, for small helpers that the compiler always inlines into their callers."""
    return _declared(function, is_inlined=True)


def _declared(function: Function, is_inlined: bool) -> Function:
    if compiled():
        return cast(Function, Kernel(function, is_inlined))
    return cast(Function, recording.recorded(function)) if recording.is_recording() else function


@functools.cache
def _compiler() -> Any:
    """Import the compiler and register our kernels with it."""
    from dissector.native import compiler

    compiler.teach(Kernel, Instruction)
    return compiler


class Kernel:
    """A compiled function, callable from Python and from other kernels."""

    def __init__(self, function: Callable[..., Any], is_inlined: bool = False) -> None:
        self.py_func = function
        functools.update_wrapper(self, function)
        self.is_inlined: Final = is_inlined
        self._arity = function.__code__.co_argcount
        self._entries: dict[tuple[Kind, ...], tuple[Any, Any, Any, Any]] = {}
        self._dispatcher: Any = None

    @property
    def dispatcher(self) -> Any:
        """The compiler's dispatcher of the function."""
        if self._dispatcher is None:
            self._dispatcher = _compiler().new_dispatcher(self.py_func, self.is_inlined)
        return self._dispatcher

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if named or len(arguments) != self._arity:
            bound = inspect.signature(self.py_func).bind(*arguments, **named)
            bound.apply_defaults()
            arguments = bound.args
        words: list[int] = []
        kinds = tuple([append(value, words) for value in arguments])
        run, array, pack, make = self._entries.get(kinds) or self._load(kinds)
        status = len(words)
        buffer = array()
        try:
            pack(buffer, 0, *words)  # three times as fast as array(*words), which cuts large ones
        except struct.error:
            buffer = array(*words)
        run(ctypes.addressof(buffer))
        if buffer[status]:
            raise IndexError(f"{self.py_func.__qualname__}: index is out of bounds")
        return make(buffer, status + 1)[0]

    def _load(self, kinds: tuple[Kind, ...]) -> tuple[Any, Any, Any, Any]:
        """Return the entry point for arguments of these kinds; loads or compiles it."""
        with LOCK:
            entry = self._entries.get(kinds)
            if entry is None:
                code = self.code(kinds)
                status = sum(map(word_count, kinds))
                array = word_array(status + 1 + result_count(code.result))
                pack = struct.Struct(f"{status}q").pack_into
                entry = (load_entry(code), array, pack, maker_of(code.result))
                self._entries[kinds] = entry
        return entry

    def code(self, key: tuple[Kind, ...] | str) -> Code:
        """Return stored code, or compile it; only code of this package is stored.

        Args:
            key: the kinds of the arguments; or the text of a signature, for code that is passed to
                kernels as a value.
        """
        name = self.code_name(key)
        module = self.py_func.__module__
        is_kept = module.startswith(PACKAGE + ".")
        code = find_code(name) if is_kept else None
        if code is None:
            with compiling(f"{module}.{self.py_func.__qualname__}"):
                code = cast(Code, _compiler().compile_kernel(self.dispatcher, name, key))
            if is_kept:
                keep_code(code_folder() / f"{name}.kernel", code)
        return code

    def code_name(self, key: tuple[Kind, ...] | str) -> str:
        """Return the unique and reproducible name of that code."""
        return f"{self.py_func.__qualname__}-{kernel_digest(self, key)}"


def compile_ahead(module: str, name: str, key: tuple[Kind, ...] | str) -> str:
    """Compile a kernel that was recorded (`native.recording`), and store its code.

    Returns:
        the name of the code.
    """
    compiled_kernel = kernel_named(module, name)
    compiled_kernel.code(key)
    return compiled_kernel.code_name(key)


def kernel_named(module: str, name: str) -> Kernel:
    """Return a kernel, or a function that is passed to kernels, by its module and name."""
    target = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    return target if isinstance(target, Kernel) else Kernel(cast(Any, target))


class Callback:
    """A compiled function that is passed to kernels as a value. signature: for the compiler."""

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self.py_func = function
        self._kernel = Kernel(function)
        self._kind: Kind = (FUNCTION, signature)
        self._address = load_address(self._kernel.code(signature))

    def __call__(self, *arguments: Any) -> Any:
        return self._kernel(*arguments)

    def append_to(self, words: list[int]) -> Kind:
        """Pass it to a kernel."""
        words.append(self._address)
        return self._kind


def prepacked(value: Value) -> Value:
    """Convert a tuple that only kernels use to words once; see `native.arguments.Prepacked`."""
    return cast(Value, Prepacked(value)) if compiled() else value


_callbacks: dict[tuple[str, Any], Callback] = {}


def callback(signature: str, function: Function) -> Function:
    """Compile a function that is passed to kernels, such as a protocol's header check.

    Args:
        signature: text for the compiler; a tuple of callbacks with equal signatures can be indexed
            by a kernel at run time. Without the compiler the function is returned unchanged.
    """
    plain = getattr(function, "py_func", function)
    if recording.is_recording():
        return cast(Function, recording.RecordedCallback(plain, signature))
    if not compiled():
        return cast(Function, plain)
    with LOCK:
        compiled_callback = _callbacks.get((signature, plain))
        if compiled_callback is None:
            compiled_callback = _callbacks[signature, plain] = Callback(plain, signature)
    return cast(Function, compiled_callback)


class Instruction:
    """An instruction of the processor as a function that kernels can call."""

    def __init__(self, name: str, result_bits: int, argument_bits: tuple[int, int]) -> None:
        self.name: Final = name
        self.result_bits: Final = result_bits
        self.argument_bits: Final = argument_bits


def instruction(
    name: str, result_bits: int, argument_bits: tuple[int, int]
) -> Callable[[int, int], int]:
    """Return a processor instruction of two arguments, by its LLVM name, for kernels only.

    Args:
        name: such as "llvm.x86.sse42.crc32.64.64"; the caller has checked processor_features().
        result_bits, argument_bits: widths; int64 arguments are truncated, the result is
            zero-extended.
    """
    return cast(Callable[[int, int], int], Instruction(name, result_bits, argument_bits))
