"""Digests of everything that determines a kernel's machine code: the keys of stored code.

A kernel's digest covers its bytecode, constants, defaults and closure; the values of the globals
that it names, with the fields of classes; the same of every kernel that it calls, at any depth; the
kinds of its arguments; the compiler files of this package; and the minor version of Python. It
excludes a function's position, comments and docstring. A global of an unknown type is an error:
stored code may be missing, but is never stale.

An attribute's name that is also a global counts as that global; this may cause an unneeded
recompilation. Of a module of ours, the attributes count that are read through it, at any depth.
"""

import builtins
import enum
import hashlib
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

from dissector.native.arguments import FUNCTION, STATE, TUPLE, Kind, class_named

PACKAGE: Final = "dissector"
_PACKAGE_FOLDER: Final = Path(__file__).resolve().parent.parent
# Files that determine argument passing and code generation.
_COMPILER_FILES: Final = ("arguments.py", "codegen.py", "compiler.py", "indexing.py", "passes.py")
_PLAIN: Final = frozenset((bool, int, float, complex, str, bytes, type(None), type(...)))
_BUILTINS: Final = vars(builtins)
# Objects that the compiler identifies by name.
_NAMED: Final = (FunctionType, BuiltinFunctionType, np.ufunc, type(np.max))


def kernel_digest(kernel: Any, key: tuple[Kind, ...] | str) -> str:
    """Return the digest of a kernel's code.

    Args:
        kernel: has the attributes `py_func` and `is_inlined`.
        key: the kinds of its arguments, or the text of its signature.

    Raises:
        TypeError: it reads a global of an unknown type.
    """
    texts = [_described_key(key)]
    # Kernels may be mutually recursive, so each is named by its index in the order of first use.
    reached = _reached(kernel)
    order = {function: f" {index}" for index, function in enumerate(reached)}
    for each in reached.values():
        text, called = _described(each.py_func)
        texts += (f"{each.is_inlined} ", text, *[order[other.py_func] for other in called])
    return hashlib.sha256(_compiler_digest() + "".join(texts).encode()).hexdigest()[:32]


def function_sizes(kernel: Any) -> dict[str, int]:
    """Return the functions in a kernel's code, with a size that estimates their compile time."""
    return {
        f"{function.__module__}.{function.__qualname__}": len(_described(function)[0])
        for function in _reached(kernel)
    }


def _reached(kernel: Any) -> dict[FunctionType, Any]:
    """Return a kernel and all kernels that it calls, at any depth, in the order of first use."""
    kernels = {kernel.py_func: kernel}
    waiting = [kernel]
    for each in waiting:
        for other in _described(each.py_func)[1]:
            if other.py_func not in kernels:
                kernels[other.py_func] = other
                waiting.append(other)
    return kernels


@cache
def program_digest() -> str:
    """Return a digest of the whole package's source and the minor version of Python."""
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in sorted(_PACKAGE_FOLDER.rglob("*.py")):
        digest.update(str(path.relative_to(_PACKAGE_FOLDER)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


@cache
def _compiler_digest() -> bytes:
    # Patch versions of Python have the same bytecode; minor versions do not.
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for name in _COMPILER_FILES:
        digest.update((_PACKAGE_FOLDER / "native" / name).read_bytes())
    return digest.digest()


def _described_key(key: Any) -> str:
    """Describe kinds, with the fields of the classes that they name."""
    if isinstance(key, str):
        return key
    texts = []
    for kind in key:
        texts.append(repr(kind))
        if len(kind) > 2 and kind[0] not in (FUNCTION, "a") and kind[2]:
            texts.append(_class(class_named(kind[1], kind[2])))
        if kind[0] in (STATE, TUPLE):
            texts.append(_described_key(kind[3]))
    return " ".join(texts)


@cache
def _described(function: FunctionType) -> tuple[str, tuple[Any, ...]]:
    """Describe one function as the compiler sees it; return the text and the kernels it calls."""
    called: list[Any] = []
    names: dict[str, None] = {}
    texts = [
        _code(function.__code__, function.__doc__, names),
        _value(function.__defaults__, called),
        _value(tuple(sorted((function.__kwdefaults__ or {}).items())), called),
        *(_value(cell.cell_contents, called) for cell in function.__closure__ or ()),
    ]
    of_module = function.__globals__
    for name in names:
        if name in of_module:
            texts.append(f"{name}={_value(of_module[name], called)}")
        elif name in _BUILTINS:
            texts.append(f"{name}={_value(_BUILTINS[name], called)}")
    for path, value in _read_through_modules(names, of_module).items():
        texts.append(f"{path}={_value(value, called)}")
    return "\n".join(texts), tuple(called)


def _code(code: CodeType, docstring: str | None, names: dict[str, None]) -> str:
    """Describe bytecode with its constants and names; adds the names to `names`."""
    names.update(dict.fromkeys(code.co_names))
    constants = []
    for number, each in enumerate(code.co_consts):
        if isinstance(each, CodeType):
            constants.append(_code(each, None, names))
        elif number == 0 and docstring is not None and each == docstring:
            constants.append("docstring")
        else:
            constants.append(_value(each, []))
    about = (
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        code.co_exceptiontable,
    )  # fmt: skip
    return f"{code.co_code.hex()} {constants} {about}"


def _read_through_modules(names: Iterable[str], of_module: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that code may read through modules of ours, by dotted name.

    Names alone do not tell which attribute belongs to which module, so all matches count.
    Disassembling the bytecode would be exact, but costs a tenth of a second at each start.
    """
    values: dict[str, Any] = {}
    modules = {name: of_module[name] for name in names if is_ours(of_module.get(name))}
    waiting = list(modules.items())
    for path, module in waiting:
        attributes = vars(module)
        for name in names:
            if name in attributes:
                value = attributes[name]
                if not is_ours(value):
                    values[f"{path}.{name}"] = value
                elif name not in modules:
                    modules[name] = value
                    waiting.append((f"{path}.{name}", value))
    return values


def is_ours(value: Any) -> bool:
    """Whether a value is a module of this package."""
    return isinstance(value, ModuleType) and value.__name__.split(".")[0] == PACKAGE


def _value(value: Any, called: list[Any]) -> str:
    """Describe a value uniquely; adds kernels to `called`."""
    cls = type(value)
    if cls is ModuleType:
        return f"module {value.__name__}"
    if cls in _PLAIN:
        return f"{cls.__name__} {value!r}"
    if hasattr(value, "py_func"):  # half of all that kernels name
        called.append(value)
        return "kernel"
    if isinstance(value, tuple):
        name = "" if cls is tuple else _class(cls)
        return f"{name}({', '.join(_value(part, called) for part in value)})"
    if isinstance(value, frozenset):
        return f"frozenset({sorted(_value(part, called) for part in value)})"
    if isinstance(value, type):
        return _class(value)
    if isinstance(value, enum.Enum):
        return f"{_class(cls)} {value.name}"
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        data = hashlib.sha256(array.tobytes()).hexdigest()
        return f"{cls.__name__} {array.dtype.descr} {array.shape} {array.strides} {data}"
    if hasattr(value, "argument_bits"):
        return f"instruction {value.name} {value.result_bits} {value.argument_bits}"
    if isinstance(value, _NAMED):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    raise TypeError(f"a kernel cannot name a global of type {cls.__module__}.{cls.__qualname__}")


def _class(cls: Any) -> str:
    """Describe a class by its name and what the compiler sees: fields, defaults, members."""
    text = f"{cls.__module__}.{cls.__qualname__}"
    if issubclass(cls, enum.Enum):
        return f"{text} {[(each.name, each.value) for each in cls]!r}"
    fields = getattr(cls, "_fields", None)
    if fields is None:
        return text
    return f"{text} {fields!r} {_value(tuple(getattr(cls, '_field_defaults', {}).items()), [])}"
