"""A folder for what a report is made from on its way, removed at its end, or by the next run."""

import glob
import os
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


@contextmanager
def workspace(output: Path) -> Iterator[Path]:
    """A folder beside an output, on the disk that it is written to.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(output)
        lock = None
        while lock is None:  # another run may take it for one that was left
            folder = output.parent.absolute() / f".{output.name}.work.{secrets.token_hex(6)}"
            folder.mkdir(mode=0o700)
            lock = hold(folder / _LOCK)
    except OSError as error:
        raise OutputError(f"cannot write beside {output}: {error.strerror}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def temporary() -> Iterator[Path]:
    """Such a folder where temporary files lie ($TMPDIR), for what is gone with the command.

    Raises:
        OutputError: it cannot be made.
    """
    with workspace(Path(tempfile.gettempdir()) / f"dissector-{os.geteuid()}") as folder:
        yield folder


def _remove_left(output: Path) -> None:
    """Remove workspaces of runs that were killed, but not what others put where all can write."""
    for folder in output.parent.glob(f".{glob.escape(output.name)}.work.*"):
        try:
            is_ours = folder.lstat().st_uid == os.geteuid()
        except FileNotFoundError:  # its run has ended meanwhile
            continue
        # Whoever has just made one and has no lock yet sees it gone, and makes another.
        if is_ours and not is_held(folder / _LOCK):
            shutil.rmtree(folder, ignore_errors=True)
