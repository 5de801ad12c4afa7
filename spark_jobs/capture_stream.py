"""A Spark stream of the captures in folders: each file is read once, when it is complete.

A file is complete when it was not written for `settled_seconds`, a capture of several files when
all of these are. A file is identified by its first bytes, not by its name: a compressed, moved or
copied file is not read again, but a reused name of a ring is.

An offset is {"files": {mark: bytes}}: the marks of all files that were read, and their lengths; for
a compressed file the negated length of its beginning. The last `MAX_GONE_FILES` deleted files stay
in the offset.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from dissector.errors import DissectorError, InputError
from dissector.limits import MAX_GONE_FILES
from dissector.sources.file_times import BEGIN_BYTES, Look, look
from dissector.sources.files import is_file
from dissector.sources.inputs import expand, looks_like_a_capture
from dissector.sources.locations import State, state_of
from dissector.sources.rings import chains
from dissector.spark.uris import absolute
from spark_jobs.capture_rows import rows_of
from spark_jobs.read_options import ReadOptions, in_one_line, no_file, raise_for

if TYPE_CHECKING:
    import pyarrow as pa

Offset = dict[str, Any]
_MARK_DIGITS: Final = 16


class _Seen(NamedTuple):
    """The current state of a file.

    length: its size, or that of its beginning, below 0, if it is compressed. modified: seconds.
    """

    look: Look
    mark: str
    length: int
    modified: float


class RefusedStream(DataSourceStreamReader):
    """Raises an error where Spark shows it; one of `streamReader` is lost in its own."""

    def __init__(self, error: DissectorError) -> None:
        self._error = error

    def _refuse(self, *given: Any, **named: Any) -> Any:
        with in_one_line():
            raise self._error

    initialOffset = latestOffset = read = _refuse


class CaptureStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads captures as they become complete, one partition each.

    inputs: folders, patterns, files. columns: of the table, in the order of the result.
    """

    def __init__(self, options: ReadOptions, inputs: Sequence[str], columns: Sequence[str]) -> None:
        self._options = options
        self._inputs = list(inputs)
        self._columns = list(columns)
        self._looks: dict[str, tuple[State, Look]] = {}
        self._until: float | None = None  # with a trigger that ends: later files are ignored

    def initialOffset(self) -> Offset:
        """The offset before any file was read.

        Raises:
            InputError: an input names nothing.
        """
        with in_one_line():
            raise_for(
                problem.text for problem in expand(self._inputs)[1] if not _may_come(problem.path)
            )
        return {"files": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit from `max_files_per_trigger`."""
        most = self._options.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Restrict the stream to files that are complete now."""
        self._until = time.time() - self._options.settled_seconds

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The offset that adds the captures completed since `start`.

        Raises:
            InputError: a file cannot be read, or grew after it was read; with `strict` "false" it
                is skipped.
        """
        with in_one_line():
            return self._latest(start, limit)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The captures of the files that are in `end` and not in `start`.

        Raises:
            InputError: a file was deleted or grew (not with `strict` "false").
        """
        with in_one_line():
            return self._partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of one capture.

        Raises:
            InputError: its files cannot be read any more, or are not those of before.
        """
        with in_one_line():
            yield from rows_of(partition.value, self._options, self._columns)

    # -- inside

    def _latest(self, start: Offset, limit: ReadLimit) -> Offset:
        known: dict[str, int] = start["files"]
        here = self._files()
        self._raise_for_growth(here, known)
        new = {file.look.path: file for file in here if file.mark not in known}
        until = self._until or time.time() - self._options.settled_seconds
        plan = chains(list(new), self._options.chain)
        complete = [
            chain
            for chain in plan.chains
            if all(new[path].modified <= until for path in chain.files)
        ]
        complete.sort(key=lambda chain: max(new[path].modified for path in chain.files))
        taken: dict[str, int] = {}
        for chain in complete:
            if isinstance(limit, ReadMaxFiles) and len(taken) >= limit.max_files:
                break
            taken |= {new[path].mark: new[path].length for path in chain.files}
        if not taken:
            return start
        # Add the beginning of a file that was read as a further mark.
        for path, other in plan.copies.items():
            if new[other].mark in taken:
                taken.setdefault(new[path].mark, new[path].length)
        gone = [mark for mark in known if mark not in {file.mark for file in here}]
        forgotten = set(gone[: max(0, len(gone) - MAX_GONE_FILES)])
        kept = {mark: size for mark, size in known.items() if mark not in forgotten}
        return {"files": kept | taken}

    def _partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        new: dict[str, int] = {
            mark: size for mark, size in end["files"].items() if mark not in start["files"]
        }
        here = self._files()
        self._raise_for_growth(here, new)
        paths = [file.look.path for file in here if file.mark in new]
        missing = len(new.keys() - {file.mark for file in here})
        if missing and self._options.is_strict:
            raise InputError(
                f"{missing} of {len(new)} files that were complete are gone before they were read; "
                ".option('strict', 'false') goes on without them"
            )
        plan = chains(paths, self._options.chain)
        return [InputPartition(absolute(chain)) for chain in plan.chains]

    def _files(self) -> list[_Seen]:
        """The captures among the inputs' files; other files in folders are skipped."""
        named, _ = expand(self._inputs)
        files, looks = [], {}
        problems: list[str] = []
        until = time.time() - self._options.settled_seconds
        for path, is_in_folder in named:
            try:
                state = state_of(path)
            except OSError:
                continue  # moved or removed meanwhile
            if not is_file(path):
                problems.append(no_file(path))
                continue
            before = self._looks.get(path)
            seen = before[1] if before is not None and before[0] == state else look(path)
            looks[path] = state, seen
            if seen.problem is None:
                length = -len(seen.begin) if seen.is_compressed else state.size
                files.append(_Seen(seen, _mark(seen, seen.begin), length, state.changed_s))
            elif state.changed_s <= until and (not is_in_folder or looks_like_a_capture(path)):
                problems.append(seen.problem.text)
        self._looks = looks
        if self._options.is_strict:
            raise_for(problems)
        return files

    def _raise_for_growth(self, here: Sequence[_Seen], known: dict[str, int]) -> None:
        if not self._options.is_strict:
            return
        # For a short file the beginning is the whole file, so its mark changes when it grows.
        short = sorted({abs(length) for length in known.values() if abs(length) < BEGIN_BYTES})
        for file in here:
            before = known.get(file.mark)
            if before is None:
                begins = [file.look.begin[:size] for size in short if size < len(file.look.begin)]
                has_grown = any(_mark(file.look, begin) in known for begin in begins)
            else:
                has_grown = 0 < before < file.length
            if has_grown:
                raise InputError(
                    f"{file.look.path}: it grew after it was read, and no row has what came; raise "
                    f"settled_seconds ({self._options.settled_seconds}), or go on without it by "
                    ".option('strict', 'false')"
                )


def _may_come(path: str) -> bool:
    """Whether an input without files may have some later: a folder or a pattern."""
    return path.endswith("/") or os.path.isdir(path) or any(letter in path for letter in "*?[")


def _mark(seen: Look, begin: bytes) -> str:
    """The mark of a file from its first bytes, independent of name and compression."""
    name = "" if seen.first_ts_ns is not None else os.path.basename(seen.path)
    text = f"{seen.first_ts_ns} {name} ".encode("utf-8", "surrogateescape")
    return hashlib.sha256(text + begin).hexdigest()[:_MARK_DIGITS]
