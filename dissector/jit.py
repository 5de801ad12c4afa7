"""The one kernel decorator: functions of arrays and integers, compiled once and kept.

A kernel is compiled when it is first called with arguments of new kinds, and its machine code is
kept; later runs load that code without importing the compiler, which with its bookkeeping cost each
run more than a second. Calls pass one pointer to words (`native.arguments`).
"""

import ctypes
import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from dissector.native.arguments import (
    FUNCTION,
    Kept,
    Kind,
    append,
    array_words,
    maker_of,
    result_count,
    word_array,
    word_count,
)
from dissector.native.code import (
    LOCK,
    PACKAGE,
    Code,
    bounds_checked,
    cache_folder,
    cache_problems,
    code_path,
    keep_code,
    keep_file,
    load_address,
    load_entry,
    module_digest,
    processor_features,
    read_code,
    read_kept,
)
from dissector.native.telling import compiling, listen

__all__ = [
    "array_words",
    "bounds_checked",
    "cache_folder",
    "cache_problems",
    "callback",
    "compiled",
    "inlined",
    "instruction",
    "keep_file",
    "kept",
    "kernel",
    "listen",
    "module_digest",
    "processor_features",
    "read_kept",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")


def compiled() -> bool:
    """Whether kernels are compiled; NUMBA_DISABLE_JIT=1 runs them as plain Python."""
    return os.environ.get("NUMBA_DISABLE_JIT", "") in ("", "0")


def kernel(function: Function) -> Function:
    """Compile a function of arrays and integers: without the interpreter's lock, kept on disk."""
    return cast(Function, Kernel(function)) if compiled() else function


def inlined(function: Function) -> Function:
    """Like kernel, for small helpers that the compiler shall always inline into their callers."""
    return cast(Function, Kernel(function, is_inlined=True)) if compiled() else function


@functools.cache
def _compiler() -> Any:
    """The compiler, told about our kernels."""
    from dissector.native import compiler

    compiler.teach(Kernel, Instruction)
    return compiler


def _code_of(function: Callable[..., Any], key: str, make: Callable[[], Code]) -> Code:
    """Code that was kept, or freshly made; only the package's own is kept."""
    if not function.__module__.startswith(PACKAGE + "."):
        return make()
    path = code_path(function.__module__, function.__qualname__, key)
    code = read_code(path)
    if code is None:
        with compiling(f"{function.__module__}.{function.__qualname__}"):
            code = make()
        keep_code(path, code)
    return code


class Kernel:
    """A compiled function, callable from Python and from other kernels."""

    def __init__(self, function: Callable[..., Any], is_inlined: bool = False) -> None:
        self.py_func = function
        functools.update_wrapper(self, function)
        self._is_inlined = is_inlined
        self._arity = function.__code__.co_argcount
        self._entries: dict[tuple[Kind, ...], tuple[Any, Any, int, Any]] = {}
        self._dispatcher: Any = None

    @property
    def dispatcher(self) -> Any:
        """What the compiler knows of the function."""
        if self._dispatcher is None:
            self._dispatcher = _compiler().new_dispatcher(self.py_func, self._is_inlined)
        return self._dispatcher

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if named or len(arguments) != self._arity:
            bound = inspect.signature(self.py_func).bind(*arguments, **named)
            bound.apply_defaults()
            arguments = bound.args
        words: list[int] = []
        kinds = tuple([append(value, words) for value in arguments])
        entry = self._entries.get(kinds) or self._load(kinds)
        run, array, status, make = entry
        buffer = array(*words)
        run(ctypes.addressof(buffer))
        if buffer[status]:
            raise IndexError(f"{self.py_func.__qualname__}: index is out of bounds")
        return make(buffer, status + 1)[0]

    def _load(self, kinds: tuple[Kind, ...]) -> tuple[Any, Any, int, Any]:
        """The entry for arguments of these kinds."""
        with LOCK:
            found = self._entries.get(kinds)
            if found is None:
                name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
                code = _code_of(
                    self.py_func,
                    repr(kinds),
                    lambda: cast(Code, _compiler().compile_kernel(self.dispatcher, name, kinds)),
                )
                status = sum(map(word_count, kinds))
                array = word_array(status + 1 + result_count(code.result))
                found = (load_entry(code), array, status, maker_of(code.result))
                self._entries[kinds] = found
        return found


class Callback:
    """A compiled function that kernels take as a value. signature: its text for the compiler."""

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self.py_func = function
        self._kernel = Kernel(function)
        self._kind: Kind = (FUNCTION, signature)
        name = f"{function.__module__}.{function.__qualname__}"

        def make() -> Code:
            dispatcher = self._kernel.dispatcher
            return cast(Code, _compiler().compile_function(dispatcher, name, signature))

        self._address = load_address(_code_of(function, f"function {signature}", make))

    def __call__(self, *arguments: Any) -> Any:
        return self._kernel(*arguments)

    def append_to(self, words: list[int]) -> Kind:
        """Pass it to a kernel."""
        words.append(self._address)
        return self._kind


def kept(value: Value) -> Value:
    """A tuple for kernels alone, whose words are found once; see `native.arguments.Kept`."""
    return cast(Value, Kept(value)) if compiled() else value


_callbacks: dict[tuple[str, Any], Callback] = {}


def callback(signature: str, function: Function) -> Function:
    """Compile a function that kernels take as a value, such as a protocol's header check.

    Args:
        signature: in the compiler's words; callbacks of equal signatures can stand in one tuple,
            which a kernel indexes at run time. Without the compiler the function stays as it is.
    """
    plain = getattr(function, "py_func", function)
    if not compiled():
        return cast(Function, plain)
    with LOCK:
        found = _callbacks.get((signature, plain))
        if found is None:
            found = _callbacks[signature, plain] = Callback(plain, signature)
    return cast(Function, found)


class Instruction:
    """An instruction of the processor as a function that kernels can call."""

    def __init__(self, name: str, result_bits: int, argument_bits: tuple[int, int]) -> None:
        self.name: Final = name
        self.result_bits: Final = result_bits
        self.argument_bits: Final = argument_bits


def instruction(
    name: str, result_bits: int, argument_bits: tuple[int, int]
) -> Callable[[int, int], int]:
    """One instruction of the processor with two arguments, by its LLVM name, for kernels only.

    Args:
        name: such as "llvm.x86.sse42.crc32.64.64"; the caller has looked at processor_features().
        result_bits, argument_bits: widths; arguments are int64 and cut to their width, the result
            is filled up with zeros.
    """
    return cast(Callable[[int, int], int], Instruction(name, result_bits, argument_bits))
