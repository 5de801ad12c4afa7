"""Where temporary files cost least; file systems that are soon full, which only root can make."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from dissector.tap.memory import available_bytes

MEMORY: Final = Path("/dev/shm")
# A run of all tests writes half of it, 1.8 GB for the workers of one cluster.
ROOM_BYTES: Final = 4 << 30


def quick_folder(memory: Path = MEMORY) -> Path | None:
    """A file system in memory, if it has room and programs run from it: to write, sync and remove
    the thousands of files of a run there takes a tenth of the time. None where there is none."""
    try:
        found = os.statvfs(memory)
    except OSError:
        return None
    room = min(found.f_bavail * found.f_frsize, (available_bytes() or 0) // 2)
    is_fit = not found.f_flag & os.ST_NOEXEC and os.access(memory, os.W_OK)
    return memory if is_fit and room >= ROOM_BYTES else None


@contextmanager
def disk_of(size: str, parent: Path) -> Iterator[Path]:
    """A file system in memory. size: as mount takes it, 400k. Skips the test without the right."""
    folder = parent / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
