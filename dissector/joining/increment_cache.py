"""Long groups of captures are joined in increments, which are kept with what each left to the next.

    LAKE/_sums/stretches/<batch>/<table>/…     rows that closed in an increment
    LAKE/_sums/stretches/<batch>/state/…       what was open at its end, and its seal

A batch is of one increment (see `increments`). A report reads the increments that are
new, from what the one before them left, and takes the rows of all others as they are.

The state is the memory of compiled code, which follows the numbers in it wherever they lead.
So it is taken from a lake only if its seal fits: nobody can make one without this user's key, which
lies where compiled code does. Where it does not fit, its increment is read again.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dissector import limits
from dissector.jit import cache_folder, keep_file, program_digest, read_kept
from dissector.joining import increments, survey
from dissector.joining.closing import SCHEMAS, IncrementContext, Target
from dissector.joining.files import CaptureFiles, JoinSettings, files_of, names_in
from dissector.joining.increments import CaptureSizes, Increment
from dissector.joining.links import JoinPlan
from dissector.joining.planning import parts_of
from dissector.joining.replays import READ_WHOLE
from dissector.lake.cache import Cache, CachePartition, link
from dissector.lake.reader import Lake

# The folder keeps the name that older versions gave it, so that what they left there is forgotten.
INCREMENTS: Final = "stretches"
STATE: Final = "state"
SEAL: Final = "seal"
OF_INCREMENT: Final = "."  # behind the name of a group, before the number of one of its increments
_FILE: Final = "rows"
_KEY_BYTES: Final = 32


class Closing(NamedTuple):
    """The arguments of `close_group`."""

    source: CaptureFiles
    part: JoinPlan
    target: Target
    settings: JoinSettings
    around: IncrementContext


class IncrementCache:
    """What is kept of the increments of a lake.

    Args:
        lake: whose captures are read; digests: of these; known: all about them.
        work: a folder of the caller's that nobody else can write.
    """

    def __init__(
        self, lake: Lake, digests: Mapping[str, str], known: survey.SurveyTables, work: Path
    ) -> None:
        self._lake = lake
        self._digests = digests
        self._surveyed = known
        self._work = work / INCREMENTS
        self._kept = Cache(lake.folder, work, INCREMENTS)
        self._made: list[Increment] = []

    @cached_property
    def _known(self) -> CaptureSizes:
        return _known(self._lake, self._digests, self._surveyed)

    @cached_property
    def _key(self) -> bytes:
        return _key()

    @cached_property
    def _digest(self) -> str:
        # An increment that another user or program keeps has another seal, and is another's.
        return self._sealed(program_digest().encode())

    def increments(self, part: JoinPlan) -> list[Increment]:
        """The increments of a group; one if it is not cut."""
        return increments.increments(part, self._known, limits.MAX_INCREMENT_ROWS)

    def tasks(
        self, group_increments: Sequence[Increment], settings: JoinSettings
    ) -> list[list[Closing]]:
        """The increments of a group that are not kept, as tasks. The increments of one task go on
        from each other: each needs what the one before left."""
        is_there = [self._find(increment) for increment in group_increments]
        for index in reversed(range(len(group_increments) - 1)):
            # What comes behind it can only be read from what it left.
            if is_there[index] and not is_there[index + 1]:
                is_there[index] = self._unseal(group_increments[index])
        made: list[list[Closing]] = []
        left: Path | None = None
        for index, increment in enumerate(group_increments):
            if not is_there[index]:
                if index == 0 or is_there[index - 1]:
                    made.append([])
                made[-1].append(self._closing(increment, left, settings))
                self._made.append(increment)
            left = self._left(increment)
        return made

    def collect(self, group_increments: Sequence[Increment], group: str, folder: Path) -> None:
        """Put the rows of all increments of a group, by its name, into one folder, and keep those
        that are new."""
        for increment in [made for made in self._made if made in group_increments]:
            self._made.remove(increment)
            names = self._tables(increment)
            if not increment.is_last:
                path = self._target(increment).path(SEAL)
                path.parent.mkdir(exist_ok=True)
                pq.write_table(pa.table({SEAL: [self._seal_of(increment)]}), path)
            cache_partition = CachePartition(increment.digest, increment.captures)
            self._kept.add(
                self._folder(increment), [cache_partition], dict.fromkeys(names, self._digest)
            )
        for index, increment in enumerate(group_increments):
            for name in SCHEMAS:
                target = Target(folder, f"{group}{OF_INCREMENT}{index:06}").path(name)
                target.parent.mkdir(parents=True, exist_ok=True)
                link(self._target(increment).path(name), target)

    def tidy(self, plan: JoinPlan) -> None:
        """Forget the increments of captures that are gone."""
        if not len(self._kept):
            return
        groups = [self.increments(part) for part in parts_of(plan)]
        self._kept.forget({increment.digest for group in groups for increment in group})

    def _tables(self, increment: Increment) -> tuple[str, ...]:
        return tuple(SCHEMAS) if increment.is_last else (*SCHEMAS, STATE, SEAL)

    def _folder(self, increment: Increment) -> Path:
        return self._work / increment.digest

    def _target(self, increment: Increment) -> Target:
        return Target(self._folder(increment), _FILE)

    def _left(self, increment: Increment) -> Path:
        return self._target(increment).path(STATE)

    def _find(self, increment: Increment) -> bool:
        """Whether the rows of an increment are kept; they are linked to where new ones are made."""
        cached_paths: dict[str, str] = {}
        cache_partition = CachePartition(increment.digest, increment.captures)
        for name in self._tables(increment):
            sources, _ = self._kept.sources(name, self._digest, [cache_partition])
            paths = [path for source in sources for path in source.paths]
            if len(paths) != 1:
                return False
            cached_paths[name] = paths[0]
        for name, path in cached_paths.items():
            target = self._target(increment).path(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            link(Path(path), target)
        return True

    def _unseal(self, increment: Increment) -> bool:
        """Take what an increment left for a copy that nobody can change, if its seal fits."""
        path = self._left(increment)
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
        seal = pq.ParquetFile(self._target(increment).path(SEAL)).read().column(0).to_pylist()
        is_ours = hmac.compare_digest(str(seal[0]), self._seal_of(increment))
        if not is_ours:
            for name in self._tables(increment):
                self._target(increment).path(name).unlink()
        return is_ours

    def _seal_of(self, increment: Increment) -> str:
        data = hashlib.sha256(self._left(increment).read_bytes()).digest()
        return self._sealed(increment.digest.encode() + data)

    def _sealed(self, data: bytes) -> str:
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()

    def _closing(self, increment: Increment, left: Path | None, settings: JoinSettings) -> Closing:
        target = self._target(increment)
        near = files_of(self._lake, increment.near) if increment.near else None
        leaves = None if increment.is_last else self._left(increment)
        around = IncrementContext(increment.before, left, near, increment.later, leaves)
        source = files_of(self._lake, frozenset(increment.captures))
        return Closing(source, increment.part, target, settings, around)


def _known(lake: Lake, digests: Mapping[str, str], known: survey.SurveyTables) -> CaptureSizes:
    rows = dict.fromkeys(digests, 0)
    for capture in lake.captures:
        names = names_in(capture) & digests.keys()
        for name in names:
            rows[name] += sum(part.rows for part in capture.files) // len(names)
    is_whole = pc.is_in(known.connections.column("protocol"), pa.array(READ_WHOLE))
    whole = known.connections.filter(is_whole).column("capture").unique().to_pylist()
    return CaptureSizes(survey.capture_spans(known.files), rows, digests, frozenset(whole))


def _key() -> bytes:
    """This user's key, made if there is none; where none can be kept, one that serves once.

    A key that others can read, as whoever opens a cache to them does with all in it, is none.
    """
    path = cache_folder() / "seals" / "key"
    for is_made in (False, True):
        if is_made:
            keep_file(path, os.urandom(_KEY_BYTES))
        key = read_kept(path)
        if len(key) == _KEY_BYTES and not path.stat().st_mode & 0o077:
            return key
    return os.urandom(_KEY_BYTES)
