"""Machine code of kernels in files, and its loading without the compiler.

Code is kept per module in a folder named by a digest over the module, every module of ours that it
imports (at any depth), the compiler, the processor and the bounds-check switch: an edit recompiles
what depends on it and nothing else. (The compiler's own cache looks only at the file of the kernel,
and kept stale code after an edit to a bundle or a constant elsewhere.) A file holds a line of JSON
and the object code; whatever cannot be read is compiled again.
"""

import ctypes
import hashlib
import json
import os
import re
import sys
import threading
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

import llvmlite.binding as llvm

PACKAGE: Final = "dissector"
_PACKAGE_FOLDER: Final = Path(__file__).resolve().parent.parent
_IMPORT: Final = re.compile(
    r"^(?:from[ \t]+(dissector[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)"
    r"|import[ \t]+(dissector[\w.]*))",
    re.MULTILINE,
)
# What code depends on beside what its module imports.
_COMPILER_MODULES: Final = ("dissector.native.compiler", "dissector.native.arguments")

LOCK: Final = threading.RLock()


class Code(NamedTuple):
    """Compiled code. data: an object file; symbol: of its entry; result: see arguments.maker_of;
    externals: symbols that it leaves to the process."""

    data: bytes
    symbol: str
    result: list[Any]
    externals: list[str]


def bounds_checked() -> bool:
    """Whether kernels raise on an index outside an array (a test mode, several times slower)."""
    return os.environ.get("DISSECTOR_BOUNDSCHECK", "") not in ("", "0")


def cache_folder() -> Path:
    """The folder of compiled code: DISSECTOR_CACHE, or one below the user's cache folder."""
    chosen = os.environ.get("DISSECTOR_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pulsar-dissector"


# -- digests


def _module_path(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    base = _PACKAGE_FOLDER.joinpath(*parts[1:])
    for candidate in (base.with_suffix(".py") if len(parts) > 1 else None, base / "__init__.py"):
        if candidate is not None and candidate.is_file():
            return candidate
    return None


@cache
def _read_module(module: str) -> tuple[bytes, tuple[str, ...]] | None:
    """The digest of one of our modules and the names of our modules that it imports."""
    path = _module_path(module)
    if path is None:
        return None
    text = path.read_bytes()
    found: list[str] = []
    for source, names, plain in _IMPORT.findall(text.decode("utf-8", "replace")):
        if plain:
            found.append(plain)
            continue
        found.append(source)
        found.extend(f"{source}.{name}" for name in re.findall(r"\w+", names))
    return hashlib.sha256(text).digest(), tuple(found)


@cache
def module_digest(module: str) -> str:
    """A digest of a module, everything of ours that it imports, compiler, processor and switch."""
    seen: dict[str, bytes] = {}
    waiting = [module, *_COMPILER_MODULES]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        content = _read_module(name)
        if content is None:
            continue
        seen[name] = content[0]
        waiting.extend(content[1])
    digest = hashlib.sha256()
    digest.update(f"{_machine()} {sys.version_info[:3]} {bounds_checked()}".encode())
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + seen[name])
    return digest.hexdigest()[:24]


@cache
def processor_features() -> frozenset[str]:
    """The features of this processor, by their names in LLVM."""
    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)


@cache
def _machine() -> str:
    """Compiler and processor."""
    features = ",".join(sorted(processor_features()))
    chosen = [os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")]
    versions = [metadata.version(name) for name in ("numba", "llvmlite")]
    return f"{versions} {llvm.get_process_triple()} {llvm.get_host_cpu_name()} {features} {chosen}"


# -- files


@cache
def _is_writable() -> bool:
    """Whether compiled code can be kept; says so once where it cannot."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        is_writable = False
    if not is_writable:
        warnings.warn(
            f"compiled code cannot be kept in {folder}: every run compiles anew; "
            "set DISSECTOR_CACHE to a folder that can be written",
            RuntimeWarning,
            stacklevel=3,
        )
    return is_writable


def code_path(module: str, name: str, key: str) -> Path:
    """Where the code of a kernel for one list of kinds is kept."""
    short = hashlib.sha256(key.encode()).hexdigest()[:16]
    return cache_folder() / f"{module}-{module_digest(module)}" / f"{name}-{short}.kernel"


def read_code(path: Path) -> Code | None:
    """Code from a file, None if there is none that can be used."""
    try:
        head, _, data = path.read_bytes().partition(b"\n")
        told = json.loads(head)
        code = Code(data, told["symbol"], told["result"], told["externals"])
        return code if hashlib.sha256(data).hexdigest() == told["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_code(path: Path, code: Code) -> None:
    """Write code to its file, at once or not at all."""
    if not _is_writable():
        return
    told = code._asdict()
    data = told.pop("data")
    head = json.dumps({**told, "sha256": hashlib.sha256(data).hexdigest()})
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(head.encode() + b"\n" + data)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)


# -- loading

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@ctypes.CFUNCTYPE(None)
def _unreachable() -> None:
    """Stands for functions of the compiler's runtime that loaded code names and never calls."""
    os.abort()


@cache
def _engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _provide(symbol: str) -> None:
    """Give a symbol an address if the process has none for it."""
    if llvm.address_of_symbol(symbol) is None and not hasattr(_process(), symbol):
        llvm.add_symbol(symbol, ctypes.cast(_unreachable, ctypes.c_void_p).value)


def load_address(code: Code) -> int:
    """Load code into the process; the address of its entry."""
    with LOCK:
        for symbol in code.externals:
            _provide(symbol)
        engine = _engine()
        engine.add_object_file(llvm.ObjectFileRef.from_data(code.data))
        engine.finalize_object()
        address = int(engine.get_function_address(code.symbol))
    assert address, f"no entry {code.symbol}"
    return address


def load_entry(code: Code) -> Any:
    """Load code into the process; its entry as a function of the address of its words."""
    return _Entry(load_address(code))
