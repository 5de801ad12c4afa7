"""Joining for tests that ask what is joined again, or of what a report is made: once for all."""

import hashlib
import shutil
from pathlib import Path

from dissector.joining.closing import ALONE, LEFT, SCHEMAS, IncrementContext, Target, close_group
from dissector.joining.files import CaptureFiles, JoinSettings, digest_of
from dissector.joining.links import JoinPlan


class Remembering:
    """Joins as `close_group` does, the same bytes once: they always give the same rows, which is
    tested elsewhere, and take the most time of a report of few captures.

    Args:
        folder: where the rows stay.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[str, dict[str, int]] = {}

    def close(
        self, source: CaptureFiles, part: JoinPlan, target: Target, settings: JoinSettings,
        around: IncrementContext = ALONE,
    ) -> dict[str, int]:  # fmt: skip
        """Write the rows of a group, read or remembered."""
        read = [_content(files) for files in (source, around.near) if files is not None]
        left = [
            _digest(path)
            for before in around.before
            for name in (*SCHEMAS, *LEFT)
            if (path := before.path(name)).exists()
        ]
        asked = [part, around._replace(before=(), near=None), read, left]
        kept = Target(self._folder, digest_of(repr(asked)))
        if kept.name not in self._counts:
            self._counts[kept.name] = close_group(source, part, kept, settings, around)
        for name in (*SCHEMAS, *LEFT):
            if kept.path(name).exists():
                target.path(name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(kept.path(name), target.path(name))
        return self._counts[kept.name]


def _content(source: CaptureFiles) -> object:
    """All of some captures that decides what comes of them. The files of old versions have names
    that count."""
    new = {table: [_digest(Path(path)) for path in some] for table, some in source.files.items()}
    return source._replace(files={}, rows=0), new


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
