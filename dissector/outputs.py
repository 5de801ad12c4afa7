"""Writes outputs without destroying data: never over inputs, over existing files only by --force.

A file is written under a temporary name in its target's folder and renamed when it is complete. An
existing target is refused without --force, even if it was created meanwhile; a target that is no
regular file, such as /dev/null, is never replaced. An input is refused even with --force, under any
of its names and links. Folders that a run rewrites have a fixed set of names; any other name in
them is not ours.
"""

import ctypes
import errno
import fcntl
import glob
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from dissector.errors import OutputError
from dissector.lake.locks import left_behind

if TYPE_CHECKING:
    from dissector.sources.inputs import Named

_NO_LINKS: Final = frozenset((errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES))
STDIN: Final = "-"
_UNFINISHED: Final = ".unfinished"
_STDIN_NUMBER: Final = 0
# What file systems and kernels answer that cannot exchange two names (see renameat2(2)).
_NO_EXCHANGE: Final = frozenset(
    (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM, errno.EXDEV, errno.EBUSY)
)
_AT_WORKING_FOLDER: Final = -100  # AT_FDCWD
_RENAME_EXCHANGE: Final = 2


def new_file(path: Path, inputs: Iterable[str], *, is_forced: bool) -> Path:
    """Where a file may be written that the user named; a link leads to what it points to.

    Args:
        inputs: as the user named them: files, folders, patterns.

    Raises:
        OutputError: it is an input, is there already, is no plain file, or its folder takes none.
    """
    target = Path(os.path.realpath(path))
    refuse_input(path, inputs)
    try:
        status = os.stat(target)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error
    else:
        if not stat.S_ISREG(status.st_mode):
            raise OutputError(f"cannot write {path}: it is no plain file; name a new one")
        if not is_forced:
            raise _is_there(path)
    if not target.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {path}; name a file in a folder that takes it")
    return target


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name


def _is_there(path: Path) -> OutputError:
    return OutputError(f"{path} exists: --force replaces it, or name another file")


def put(fresh: Path, target: Path, *, is_forced: bool) -> None:
    """Rename a complete file to its target.

    Raises:
        OutputError: the target was created meanwhile, and --force was not given.
        OSError: the rename failed.
    """
    if not is_forced:
        try:
            os.link(fresh, target)  # which, unlike a rename, replaces nothing
        except FileExistsError:
            raise _is_there(target) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:  # not every file system has links
                raise
            if target.exists():
                raise _is_there(target) from None
        else:
            fresh.unlink()
            return
    os.replace(fresh, target)


def exchange(one: Path, other: Path) -> bool:
    """Exchange the files or folders of two names atomically.

    Returns:
        Whether they were exchanged; False if the system does not support it.

    Raises:
        OSError: the exchange failed.
    """
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an older or another C library
        return False
    names = (os.fsencode(one), os.fsencode(other))
    at = _AT_WORKING_FOLDER
    if rename(at, names[0], at, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(other))


@contextmanager
def written(
    target: Path, *, is_forced: bool, opener: Callable[[str, int], int] | None = None
) -> Iterator[BinaryIO]:
    """A file that gets its name when the body is through, and leaves nothing if that fails. What a
    run left that was killed here, the next one that writes a file of this name removes.

    Args:
        opener: as `open` takes it.

    Raises:
        OutputError: it could not be written, or something of this name came meanwhile and --force
            was not given.
    """
    begin = f".{target.name[:100]}."
    for left in target.parent.glob(f"{glob.escape(begin)}*{_UNFINISHED}"):
        remove_left(left)
    try:
        fresh, lock = _begun(target, begin, opener)
        try:
            with open(os.dup(lock), "wb") as file:
                yield file
            put(fresh, target, is_forced=is_forced)
        finally:
            with suppress(OSError):
                fresh.unlink()
            os.close(lock)
    except BrokenPipeError:
        raise  # of standard output
    except OSError as error:
        if error.filename is not None and not _is_near(target, error.filename):
            raise  # of another file, which is read
        raise OutputError(
            f"cannot write {target}: {error.strerror}; make room or name another file"
        ) from error


def _is_near(target: Path, name: str | bytes) -> bool:
    return os.path.dirname(os.fsdecode(name)) == str(target.parent)


def _begun(target: Path, begin: str, opener: Callable[[str, int], int] | None) -> tuple[Path, int]:
    """A new file and its descriptor, which holds a lock on it for as long as it is open."""
    while True:
        fresh = target.with_name(f"{begin}{os.urandom(6).hex()}{_UNFINISHED}")
        with open(fresh, "xb", opener=opener) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:  # else taken for left behind, just now
                return fresh, os.dup(file.fileno())


def remove_left(unfinished: Path) -> None:
    """Remove a file that a run was writing when it was killed; those of living runs are locked."""
    with suppress(OSError), left_behind(unfinished) as is_left:
        if is_left:
            unfinished.unlink()


def refuse_input(path: Path, inputs: Iterable[str]) -> None:
    """Refuse to write a file that is read, by whatever name.

    Raises:
        OutputError: it is one of the inputs, or in a folder that is one.
    """
    try:
        target = os.stat(path)
    except OSError:
        return
    for name, _ in _files_of(inputs):
        with suppress(OSError):
            status = os.fstat(_STDIN_NUMBER) if name == STDIN else os.stat(name)
            if os.path.samestat(status, target):
                known = "" if name == str(path) else f", {_shown(name)}"
                raise OutputError(f"{path} is an input{known}: name another file to write")


def refuse_inputs_in(folders: Collection[Path], inputs: Iterable[str], option: str) -> None:
    """Refuse to write into folders in which something lies that is read.

    Raises:
        OutputError: one of the inputs lies in one of them, at any depth.
    """
    targets = [os.path.realpath(folder) for folder in folders]
    if not any(os.path.isdir(target) for target in targets):
        return
    from dissector.sources.inputs import looks_like_a_capture

    for name, is_in_folder in _files_of(inputs):
        # In a folder that is read, earlier output may lie; it is passed over as no capture.
        if is_in_folder and not looks_like_a_capture(name):
            continue
        real = "" if name == STDIN else os.path.realpath(name)
        for target in targets:
            if real.startswith(target.rstrip("/") + "/"):
                raise OutputError(
                    f"{name} is an input and lies in {target}, which is written to: "
                    f"give {option} another folder"
                )


def _files_of(inputs: Iterable[str]) -> list["Named"]:
    """The files behind inputs, by any name of theirs."""
    from dissector.sources.inputs import expand

    return expand(inputs)[0]


def refuse_foreign(folder: Path, ours: Collection[str], what: str, *, is_forced: bool) -> bool:
    """Refuse a folder that holds something else than what is put into it.

    Args:
        ours: names that are written, and may be replaced.
        what: the folder is of, such as `a report`.

    Returns:
        Whether there is something else, which stays.

    Raises:
        OutputError: there is, and --force was not given; or it is no folder.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise OutputError(f"{folder} is a file; name a folder") from None
    except OSError as error:
        raise OutputError(f"cannot read {folder}: {error.strerror}") from error
    foreign = [name for name in names if name not in ours]
    if foreign and not is_forced:
        more = f" and {len(foreign) - 1:,} more" if len(foreign) > 1 else ""
        raise OutputError(
            f"{folder} holds other files ({foreign[0]}{more}), it is no folder of {what}: name "
            "another one, or give --force, which leaves them there"
        )
    return bool(foreign)
