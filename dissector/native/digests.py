"""What machine code was made from, as a digest: the key under which code is kept.

The digest of a kernel is that of its bytecode, constants, defaults and closure, of the values of
the globals that it names, of the fields of the classes among them, and of every kernel that it
calls, at any depth; of the kinds of its arguments, the compiler's side of this package and the
minor version of Python. Where a function stands, its comments and its docstring do not count. A
global of a type that is not known here is an error: code that is kept may be missing, never stale.

A name of an attribute that is also a global counts as that global: one recompilation too many.
Of a module of ours count the attributes that are read through it, at any depth.
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
# The compiler's side: how arguments are passed, and what the compiler is taught.
_COMPILER_FILES: Final = ("arguments.py", "codegen.py", "compiler.py", "indexing.py", "passes.py")
_PLAIN: Final = frozenset((bool, int, float, complex, str, bytes, type(None), type(...)))
_BUILTINS: Final = vars(builtins)
# What the compiler knows by name alone.
_NAMED: Final = (FunctionType, BuiltinFunctionType, np.ufunc, type(np.max))


def kernel_digest(kernel: Any, key: tuple[Kind, ...] | str) -> str:
    """The digest of a kernel's code.

    Args:
        kernel: has a `py_func` and says whether it `is_inlined`.
        key: the kinds of its arguments, or the text of its signature.

    Raises:
        TypeError: it reads a global of a type that is not known.
    """
    texts = [_described_key(key)]
    # Kernels may call each other, so each is named by its index in the order of first use.
    reached = _reached(kernel)
    order = {function: f" {index}" for index, function in enumerate(reached)}
    for each in reached.values():
        text, called = _described(each.py_func)
        texts += (f"{each.is_inlined} ", text, *[order[other.py_func] for other in called])
    return hashlib.sha256(_compiler_digest() + "".join(texts).encode()).hexdigest()[:32]


def function_sizes(kernel: Any) -> dict[str, int]:
    """The functions that a kernel's code is made of, with a size of each: about what it takes to
    compile them."""
    return {
        f"{function.__module__}.{function.__qualname__}": len(_described(function)[0])
        for function in _reached(kernel)
    }


def _reached(kernel: Any) -> dict[FunctionType, Any]:
    """A kernel and all that it calls, at any depth, in the order of first use."""
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
    """A digest of the text of the whole package and the minor version of Python."""
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
    """Kinds with the fields of the classes that they name."""
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
    """All that the compiler sees of one function, but for the kernels that it calls: those."""
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
    """Bytecode with its constants and names; the names are added to `names`, too."""
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
    """What code may read through modules of ours, by its dotted name.

    Names alone do not tell which attribute is of which module: all that fit count. To take the
    bytecode apart would, and costs a tenth of a second at each start.
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
    """The text of a value that tells it from every other; kernels are added to `called`."""
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
    """A class by its name, and by what the compiler sees of it: fields, defaults, members."""
    text = f"{cls.__module__}.{cls.__qualname__}"
    if issubclass(cls, enum.Enum):
        return f"{text} {[(each.name, each.value) for each in cls]!r}"
    fields = getattr(cls, "_fields", None)
    if fields is None:
        return text
    return f"{text} {fields!r} {_value(tuple(getattr(cls, '_field_defaults', {}).items()), [])}"
