"""Stores machine code of kernels in files, and loads it without the compiler.

A kernel's file is named by a digest of everything that determines its code (`digests`). It is in a
folder of the package, for a family of processors, or in one below the user's cache, for exactly
this processor and compiler. A file contains a line of JSON and the object code. A kernel is
compiled again if its file cannot be read, or could have been written by another user (`trust`).
"""

import ctypes
import hashlib
import json
import os
import pwd
import threading
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from dissector.native import trust
from dissector.native.versions import version

# Code in the package: a folder per family of processors, the best first, and the processor features
# that it requires, by their LLVM names.
_PACKAGED: Final = Path(__file__).resolve().parent.parent / "data" / "kernels"
_V2: Final = frozenset({"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3: Final = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
FAMILIES: Final = {"x86-64-v3": _V3, "x86-64-v2": _V2}

LOCK: Final = threading.RLock()


class Code(NamedTuple):
    """Compiled code.

    data: an object file.
    symbol: of its entry point.
    result: see arguments.maker_of.
    externals: undefined symbols, which the process must provide.
    """

    data: bytes
    symbol: str
    result: list[Any]
    externals: list[str]


def bounds_checked() -> bool:
    """Whether kernels raise on an index outside an array (a test mode, several times slower)."""
    return os.environ.get("DISSECTOR_BOUNDSCHECK", "") not in ("", "0")


def _home_of_user() -> str:
    """Return this user's home from the passwd database, not from HOME; empty if it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def _candidate_folders() -> tuple[Path, ...]:
    """Return the possible cache folders, the best first. DISSECTOR_CACHE has no fallback; HOME has,
    as it may be another user's (sudo) or missing in a container."""
    chosen = os.environ.get("DISSECTOR_CACHE")
    if chosen:
        return (Path(chosen).absolute(),)
    bases = [os.environ.get("XDG_CACHE_HOME", "")]
    for home in (os.environ.get("HOME", ""), _home_of_user()):
        bases.append(os.path.join(home, ".cache") if home else "")
    folders = [Path(base) / "pulsar-dissector" for base in bases if os.path.isabs(base)]
    return (*dict.fromkeys(folders), trust.private_folder_of_user())


@cache
def _opened(folder: Path) -> int:
    """Open a folder of compiled code for the life of the process: its path is checked only once."""
    return trust.open_folder(folder, make=True)


@cache
def _opened_package(folder: Path) -> int:
    return trust.open_folder(folder)


@cache
def _choose(folders: tuple[Path, ...]) -> tuple[Path, tuple[str, ...]]:
    """Return the first trusted and writable folder, and the problems of those before it."""
    wrong: list[str] = []
    for folder in folders:
        try:
            if os.access(".", os.W_OK | os.X_OK, dir_fd=_opened(folder)):
                return folder, tuple(wrong)
            wrong.append(f"{folder} cannot be written")
        except trust.DistrustedError as problem:
            wrong.append(str(problem))
        except OSError as error:
            wrong.append(f"{error.filename or folder}: {error.strerror}")
    return folders[0], tuple(wrong)


def cache_folder() -> Path:
    """Return the folder of compiled code: DISSECTOR_CACHE, or one below the user's cache folder."""
    return _choose(_candidate_folders())[0]


def cache_problems() -> tuple[str, ...]:
    """Return the problems of the folders that precede the chosen one, or of all if none is."""
    return _choose(_candidate_folders())[1]


# -- folders of code


@cache
def _llvm() -> Any:
    """Import LLVM on first use: a report from cached rows runs no kernel."""
    import llvmlite.binding

    return llvmlite.binding


@cache
def processor_features() -> frozenset[str]:
    """Return the features of this processor, by their LLVM names."""
    features = _llvm().get_host_cpu_features()
    return frozenset(name for name, is_supported in features.items() if is_supported)


def _chosen_processor() -> list[str]:
    """Return the user's settings of the target processor; empty texts if not set."""
    return [os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")]


def _machine() -> str:
    """Return a digest of compiler, processor and switches."""
    versions = [version(name) for name in ("numba", "llvmlite")]
    processor = (
        _llvm().get_process_triple(),
        _llvm().get_host_cpu_name(),
        sorted(processor_features()),
    )
    about = f"{versions} {processor} {_chosen_processor()} {bounds_checked()}"
    return hashlib.sha256(about.encode()).hexdigest()[:16]


@cache
def _packaged_folders() -> tuple[Path, ...]:
    """Return the package's folders with code that this processor can run, the best first."""
    if not _llvm().get_process_triple().startswith("x86_64") or os.name != "posix":
        return ()
    if bounds_checked() or any(_chosen_processor()):
        return ()
    folders = [
        _PACKAGED / name for name, needed in FAMILIES.items() if needed <= processor_features()
    ]
    return tuple(folder for folder in folders if folder.is_dir())


@cache
def _own_folder(cache_folder: Path) -> Path:
    return cache_folder / f"kernels-{_machine()}"


def code_folder() -> Path:
    """Return the folder for code that is compiled on this machine."""
    return _own_folder(cache_folder())


# -- files


@cache
def _say_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def _say_not_kept(path: Path, problem: Exception) -> None:
    """Warn once that every run will compile again, and what to do."""
    reason = str(problem)
    if isinstance(problem, OSError):
        reason = f"{path}: {problem.strerror}"
    _say_once(
        f"compiled code cannot be kept, every run compiles anew: {reason}; or set DISSECTOR_CACHE "
        "to a folder that you, and nobody else, can write"
    )


def find_code(name: str) -> Code | None:
    """Return code from the package or the cache by name; None if there is no usable file."""
    file = f"{name}.kernel"
    for folder in _packaged_folders():
        code = _parsed(_read_packaged(folder, file))
        if code is not None:
            return code
    return read_code(code_folder() / file)


def read_code(path: Path) -> Code | None:
    """Return code from a file of the cache; None if the file is missing or not usable."""
    try:
        return _parsed(_read_trusted(path))
    except trust.DistrustedError as problem:
        _say_once(f"{problem}; it was not loaded but compiled anew")
    except OSError:
        pass
    return None


def _parsed(data: bytes) -> Code | None:
    try:
        head, _, data = data.partition(b"\n")
        described = json.loads(head)
        code = Code(data, described["symbol"], described["result"], described["externals"])
        return code if hashlib.sha256(data).hexdigest() == described["sha256"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _read_packaged(folder: Path, name: str) -> bytes:
    """Read a file of the package; empty if it is missing, or other users can write it."""
    try:
        opened = _opened_package(folder)
        return trust.read_file(opened, name, folder / name, may_have_links=True)
    except (OSError, trust.DistrustedError):
        return b""


def _read_trusted(path: Path) -> bytes:
    """Read a file of code from folders that no other user can write.

    Raises:
        DistrustedError: another user may have written the file.
        OSError: the file is missing, or the cache folder is not trusted (`keep_code` warns).
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


def has_code() -> bool:
    """Whether the package or the cache contains any code for this machine."""
    for folder in (*_packaged_folders(), code_folder()):
        with suppress(OSError), os.scandir(folder) as entries:
            if any(entry.name.endswith(".kernel") for entry in entries):
                return True
    return False


class KeptList(NamedTuple):
    """The folder that contains all code of a program, and the names of the code."""

    folder: Path
    names: tuple[str, ...]


def keep_list(program: str, names: Iterable[str]) -> None:
    """Record the names of a program's code, all of which is stored.

    Args:
        program: its digest.
    """
    keep_file(code_folder() / f"{program}.list", "\n".join(names).encode())


def kept_list(program: str) -> KeptList:
    """Return the list that `keep_list` recorded; without names if there is none."""
    for folder in _packaged_folders():
        content = _read_packaged(folder, f"{program}.list")
        if content:
            return KeptList(folder, tuple(content.decode().split("\n")))
    content = read_kept(code_folder() / f"{program}.list")
    return KeptList(code_folder(), tuple(content.decode().split("\n")) if content else ())


def read_kept(path: Path) -> bytes:
    """Read a file of code unparsed, for packaging; empty if it is missing or not trusted."""
    try:
        return _read_trusted(path)
    except (OSError, trust.DistrustedError):
        return b""


def keep_code(path: Path, code: Code) -> None:
    """Write code to its file atomically."""
    described = code._asdict()
    data = described.pop("data")
    head = json.dumps({**described, "sha256": hashlib.sha256(data).hexdigest()})
    keep_file(path, head.encode() + b"\n" + data)


def keep_file(path: Path, data: bytes, *, is_missed: bool = True) -> None:
    """Write a file to a subfolder of the cache. is_missed: warn once if this fails, as every run
    will need the file."""
    try:
        base = _opened(path.parent.parent)
        folder = trust.open_below(base, path.parent.name, path.parent, make=True)
        try:
            trust.write_file(folder, path.name, data)
        finally:
            os.close(folder)
    except (OSError, trust.DistrustedError) as problem:
        if is_missed:
            _say_not_kept(path.parent, problem)


# -- loading

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@ctypes.CFUNCTYPE(None)
def _unreachable() -> None:
    """Stub for functions of the compiler's runtime that loaded code references but never calls."""
    os.abort()


@cache
def _engine() -> Any:
    _llvm().initialize_native_target()
    _llvm().initialize_native_asmprinter()
    machine = _llvm().Target.from_default_triple().create_target_machine(jit=True)
    return _llvm().create_mcjit_compiler(_llvm().parse_assembly(""), machine)


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _provide(symbol: str) -> None:
    """Define a symbol as `_unreachable` if the process does not define it."""
    if _llvm().address_of_symbol(symbol) is None and not hasattr(_process(), symbol):
        _llvm().add_symbol(symbol, ctypes.cast(_unreachable, ctypes.c_void_p).value)


def load_address(code: Code) -> int:
    """Load code into the process; return the address of its entry point."""
    with LOCK:
        for symbol in code.externals:
            _provide(symbol)
        engine = _engine()
        engine.add_object_file(_llvm().ObjectFileRef.from_data(code.data))
        engine.finalize_object()
        address = int(engine.get_function_address(code.symbol))
    assert address, f"no entry {code.symbol}"
    return address


def load_entry(code: Code) -> Any:
    """Load code into the process; return its entry point, called with the address of the words."""
    return _Entry(load_address(code))
