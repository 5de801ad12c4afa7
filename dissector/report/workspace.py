"""The folder of a report's intermediate files, removed at its end or by the next run."""

import errno
import glob
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dissector.errors import OutputError
from dissector.lake.locks import hold, is_held

_LOCK: Final = "_lock"
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_FULL: Final = re.compile("No space left on device|Disk quota exceeded")


@contextmanager
def workspace(output: Path, what: str = "") -> Iterator[Path]:
    """A folder beside an output, on the same disk.

    Args:
        what: the written data in words, for errors; default: the output's path.

    Raises:
        OutputError: it cannot be created, or a disk filled up while it was in use.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(output)
        lock = None
        while lock is None:  # another run may have removed it as abandoned
            folder = output.parent.absolute() / f".{output.name}.work.{secrets.token_hex(6)}"
            folder.mkdir(mode=0o700)
            lock = hold(folder / _LOCK)
    except OSError as error:
        raise OutputError(f"cannot write beside {output}: {error.strerror}") from error
    try:
        yield folder
    except OutputError:
        raise  # its text names the path
    except Exception as error:
        reason = full_disk(error)
        if reason is None:
            raise
        raise OutputError(
            f"no room left while writing {what or output}: {reason}; "
            "free some space or write elsewhere"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def temporary() -> Iterator[Path]:
    """A `workspace` in the folder of temporary files ($TMPDIR).

    Raises:
        OutputError: it cannot be created.
    """
    base = Path(tempfile.gettempdir())
    what = f"temporary files in {base} ($TMPDIR)"
    with workspace(base / f"dissector-{os.geteuid()}", what) as folder:
        yield folder


def full_disk(error: BaseException | None) -> str | None:
    """The system's message if a full disk caused an error, else None.

    Engines wrap the system's error in their own, or copy its message into theirs.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return os.strerror(error.errno)
        if match := _FULL.search(str(error)):
            return match[0]
        error = error.__cause__
    return None


def _remove_left(output: Path) -> None:
    """Remove workspaces of killed runs of this user: other users may write to the folder, too."""
    for folder in output.parent.glob(f".{glob.escape(output.name)}.work.*"):
        try:
            is_ours = folder.lstat().st_uid == os.geteuid()
        except FileNotFoundError:  # its run has ended meanwhile
            continue
        # A run that has just created its folder without a lock yet notices, and creates another.
        if is_ours and not is_held(folder / _LOCK):
            shutil.rmtree(folder, ignore_errors=True)
