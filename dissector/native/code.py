"""Machine code of kernels in files, and its loading without the compiler.

Code is kept per module in a folder named by a digest over the module, every module of ours that it
imports (at any depth), the compiler, the processor and the bounds-check switch: an edit recompiles
what depends on it and nothing else. (The compiler's own cache looks only at the file of the kernel,
and kept stale code after an edit to a bundle or a constant elsewhere.) A file holds a line of JSON
and the object code; whatever cannot be read, or could be written by others (`trust`), is compiled
again.
"""

import ctypes
import hashlib
import json
import os
import pwd
import re
import sys
import threading
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

import llvmlite.binding as llvm

from dissector.native import trust

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


def _home_of_user() -> str:
    """The home that the system has for this user, whatever HOME says; empty if it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def _places() -> tuple[Path, ...]:
    """Where compiled code may be kept, the best first. A folder that the user names has no
    substitute; HOME has, as it may be another user's (sudo) or a container's nobody's."""
    chosen = os.environ.get("DISSECTOR_CACHE")
    if chosen:
        return (Path(chosen).absolute(),)
    bases = [os.environ.get("XDG_CACHE_HOME", "")]
    for home in (os.environ.get("HOME", ""), _home_of_user()):
        bases.append(os.path.join(home, ".cache") if home else "")
    found = [Path(base) / "pulsar-dissector" for base in bases if os.path.isabs(base)]
    return (*dict.fromkeys(found), trust.private_folder_of_user())


@cache
def _opened(folder: Path) -> int:
    """A descriptor of a folder of compiled code, for the life of the process: the way to it is
    looked at once."""
    return trust.open_folder(folder, make=True)


@cache
def _choose(places: tuple[Path, ...]) -> tuple[Path, tuple[str, ...]]:
    """The first place that can be trusted and written, and what is wrong with those before it."""
    wrong: list[str] = []
    for place in places:
        try:
            if os.access(".", os.W_OK | os.X_OK, dir_fd=_opened(place)):
                return place, tuple(wrong)
            wrong.append(f"{place} cannot be written")
        except trust.DistrustedError as problem:
            wrong.append(str(problem))
        except OSError as error:
            wrong.append(f"{error.filename or place}: {error.strerror}")
    return places[0], tuple(wrong)


def cache_folder() -> Path:
    """The folder of compiled code: DISSECTOR_CACHE, or one below the user's cache folder."""
    return _choose(_places())[0]


def cache_problems() -> tuple[str, ...]:
    """Why the folders that go before the chosen one are not used; or why none is."""
    return _choose(_places())[1]


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
    """A digest of a module, everything of ours that it imports, compiler, processor, minor version
    of Python and switch."""
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
    # Machine code knows the interpreter by its C API at most, which patch versions leave alone; the
    # bytecode that it is made from may change with the minor version.
    digest.update(f"{_machine()} {sys.version_info[:2]} {bounds_checked()}".encode())
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
def _say_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def _say_not_kept(place: Path, problem: Exception) -> None:
    """Say once that every run will compile anew, and what to do."""
    reason = str(problem)
    if isinstance(problem, OSError):
        reason = f"{place}: {problem.strerror}"
    _say_once(
        f"compiled code cannot be kept, every run compiles anew: {reason}; or set DISSECTOR_CACHE "
        "to a folder that you, and nobody else, can write"
    )


def code_path(module: str, name: str, key: str) -> Path:
    """Where the code of a kernel for one list of kinds is kept."""
    short = hashlib.sha256(key.encode()).hexdigest()[:16]
    return cache_folder() / f"{module}-{module_digest(module)}" / f"{name}-{short}.kernel"


def read_code(path: Path) -> Code | None:
    """Code from a file, None if there is none that can be used."""
    try:
        head, _, data = _read_trusted(path).partition(b"\n")
        told = json.loads(head)
        code = Code(data, told["symbol"], told["result"], told["externals"])
        return code if hashlib.sha256(data).hexdigest() == told["sha256"] else None
    except trust.DistrustedError as problem:
        _say_once(f"{problem}; it was not loaded but compiled anew")
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_trusted(path: Path) -> bytes:
    """A file of code, from folders that nobody else can write.

    Raises:
        DistrustedError: somebody else may have written the file. (Where that is so of the folder
            of all code there is nothing to be read, and `keep_code` says why.)
        OSError: there is none.
    """
    try:
        base = _opened(path.parent.parent)
    except trust.DistrustedError as problem:
        raise FileNotFoundError(str(problem)) from problem
    folder = trust.open_below(base, path.parent.name, path.parent)
    try:
        return trust.read_file(folder, path.name, path)
    finally:
        os.close(folder)


def read_kept(path: Path) -> bytes:
    """A file of code as it is, to be packed for other machines; empty if it cannot be trusted."""
    try:
        return _read_trusted(path)
    except (OSError, trust.DistrustedError):
        return b""


def keep_code(path: Path, code: Code) -> None:
    """Write code to its file, at once or not at all."""
    told = code._asdict()
    data = told.pop("data")
    head = json.dumps({**told, "sha256": hashlib.sha256(data).hexdigest()})
    keep_file(path, head.encode() + b"\n" + data)


def keep_file(path: Path, data: bytes) -> None:
    """Write a file into a folder below the one of all code; says so once where that fails."""
    try:
        base = _opened(path.parent.parent)
        folder = trust.open_below(base, path.parent.name, path.parent, make=True)
        try:
            trust.write_file(folder, path.name, data)
        finally:
            os.close(folder)
    except (OSError, trust.DistrustedError) as problem:
        _say_not_kept(path.parent, problem)


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
