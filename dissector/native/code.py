"""Machine code of kernels in files, and its loading without the compiler.

The code of a kernel lies in a file that is named by a digest of all that it was made from
(`digests`), in a folder of the machine that it runs on: one that came with the package, for a
family of processors, or one below the user's cache, for exactly this processor and compiler. A
file holds a line of JSON and the object code; whatever cannot be read, or could be written by
others (`trust`), is compiled again.
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

# Code that comes with the package: a folder for each family of processors, the best first, and
# what a processor must have for it, by the names of LLVM.
_PACKAGED: Final = Path(__file__).resolve().parent.parent / "data" / "kernels"
_V2: Final = frozenset({"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3: Final = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
FAMILIES: Final = {"x86-64-v3": _V3, "x86-64-v2": _V2}

LOCK: Final = threading.RLock()


class Code(NamedTuple):
    """Compiled code.

    data: an object file.
    symbol: of its entry.
    result: see arguments.maker_of.
    externals: symbols that it leaves to the process.
    """

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


def _candidate_folders() -> tuple[Path, ...]:
    """Where compiled code may be kept, the best first. A folder that the user names has no
    substitute; HOME has, as it may be another user's (sudo) or a container's nobody's."""
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
    """A descriptor of a folder of compiled code, for the life of the process: the way to it is
    looked at once."""
    return trust.open_folder(folder, make=True)


@cache
def _opened_package(folder: Path) -> int:
    return trust.open_folder(folder)


@cache
def _choose(folders: tuple[Path, ...]) -> tuple[Path, tuple[str, ...]]:
    """The first folder that can be trusted and written, and what is wrong with those before it."""
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
    """The folder of compiled code: DISSECTOR_CACHE, or one below the user's cache folder."""
    return _choose(_candidate_folders())[0]


def cache_problems() -> tuple[str, ...]:
    """Why the folders that go before the chosen one are not used; or why none is."""
    return _choose(_candidate_folders())[1]


# -- folders of code


@cache
def _llvm() -> Any:
    """LLVM, loaded by whoever runs a kernel: a report of what is kept runs none."""
    import llvmlite.binding

    return llvmlite.binding


@cache
def processor_features() -> frozenset[str]:
    """The features of this processor, by their names in LLVM."""
    return frozenset(name for name, there in _llvm().get_host_cpu_features().items() if there)


def _chosen_processor() -> list[str]:
    """What the user tells the compiler of the processor to compile for; empty texts: nothing."""
    return [os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")]


def _machine() -> str:
    """A digest of compiler, processor and switches."""
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
    """The folders of the package with code that this processor can run, the best first."""
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
    """The folder in which code is kept that is compiled here."""
    return _own_folder(cache_folder())


# -- files


@cache
def _say_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def _say_not_kept(path: Path, problem: Exception) -> None:
    """Say once that every run will compile anew, and what to do."""
    reason = str(problem)
    if isinstance(problem, OSError):
        reason = f"{path}: {problem.strerror}"
    _say_once(
        f"compiled code cannot be kept, every run compiles anew: {reason}; or set DISSECTOR_CACHE "
        "to a folder that you, and nobody else, can write"
    )


def find_code(name: str) -> Code | None:
    """Code of the package or of the cache by its name, None if there is none that can be used."""
    file = f"{name}.kernel"
    for folder in _packaged_folders():
        code = _parsed(_read_packaged(folder, file))
        if code is not None:
            return code
    return read_code(code_folder() / file)


def read_code(path: Path) -> Code | None:
    """Code from a file of the cache, None if there is none that can be used."""
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
    """A file that came with the package; empty if there is none, or others can write it: then it
    is as if the package brought no code."""
    try:
        opened = _opened_package(folder)
        return trust.read_file(opened, name, folder / name, may_have_links=True)
    except (OSError, trust.DistrustedError):
        return b""


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


def has_code() -> bool:
    """Whether any code is there that this machine can run, of the package or compiled here."""
    for folder in (*_packaged_folders(), code_folder()):
        with suppress(OSError), os.scandir(folder) as entries:
            if any(entry.name.endswith(".kernel") for entry in entries):
                return True
    return False


class KeptList(NamedTuple):
    """Where all code of a program is kept, and what it is called."""

    folder: Path
    names: tuple[str, ...]


def keep_list(program: str, names: Iterable[str]) -> None:
    """Note that all code of a program is kept.

    Args:
        program: its digest.
    """
    keep_file(code_folder() / f"{program}.list", "\n".join(names).encode())


def kept_list(program: str) -> KeptList:
    """What was noted; no names if it is not known that all is kept."""
    for folder in _packaged_folders():
        content = _read_packaged(folder, f"{program}.list")
        if content:
            return KeptList(folder, tuple(content.decode().split("\n")))
    content = read_kept(code_folder() / f"{program}.list")
    return KeptList(code_folder(), tuple(content.decode().split("\n")) if content else ())


def read_kept(path: Path) -> bytes:
    """A file of code as it is, to be packed for other machines; empty if it cannot be trusted."""
    try:
        return _read_trusted(path)
    except (OSError, trust.DistrustedError):
        return b""


def keep_code(path: Path, code: Code) -> None:
    """Write code to its file, at once or not at all."""
    described = code._asdict()
    data = described.pop("data")
    head = json.dumps({**described, "sha256": hashlib.sha256(data).hexdigest()})
    keep_file(path, head.encode() + b"\n" + data)


def keep_file(path: Path, data: bytes, *, is_missed: bool = True) -> None:
    """Write a file into a folder below the one of all code; says so once where that fails, if it
    is missed by every run."""
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
    """Stands for functions of the compiler's runtime that loaded code names and never calls."""
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
    """Give a symbol an address if the process has none for it."""
    if _llvm().address_of_symbol(symbol) is None and not hasattr(_process(), symbol):
        _llvm().add_symbol(symbol, ctypes.cast(_unreachable, ctypes.c_void_p).value)


def load_address(code: Code) -> int:
    """Load code into the process; the address of its entry."""
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
    """Load code into the process; its entry as a function of the address of its words."""
    return _Entry(load_address(code))
