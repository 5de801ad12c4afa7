"""The cache of increments: their rows, and the state that each left to the next.

    LAKE/_sums/stretches/<batch>/<table>/…     rows that an increment wrote, the state it leaves

A batch is of one increment (see `increments`). A report joins only new increments, each from the
state of the one before, and reads the cached rows of all others.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from dissector import limits
from dissector.joining import increments, stitching, survey
from dissector.joining.closing import LEFT, SCHEMAS, IncrementContext, Target
from dissector.joining.files import CaptureFiles, JoinSettings, digest_of, files_of, names_in
from dissector.joining.increments import CaptureSizes, Increment
from dissector.joining.links import JoinPlan
from dissector.joining.planning import VERSION, parts_of
from dissector.joining.stitching_cursus import NAME as READ_WHOLE
from dissector.lake.cache import Cache, CachePartition, link
from dissector.lake.reader import Lake

# The folder has the name that older versions gave it, so that their batches in it are removed.
INCREMENTS: Final = "stretches"
OF_INCREMENT: Final = "."  # behind the name of a group, before the number of one of its increments
_FILE: Final = "rows"


class Closing(NamedTuple):
    """The arguments of `close_group`."""

    source: CaptureFiles
    part: JoinPlan
    target: Target
    settings: JoinSettings
    around: IncrementContext


class IncrementCache:
    """The cached increments of a lake.

    Args:
        lake: whose captures are read; digests: of these; known: their survey.
        work: a folder that only the caller can write.
    """

    def __init__(
        self, lake: Lake, digests: Mapping[str, str], known: survey.SurveyTables, work: Path
    ) -> None:
        self._lake = lake
        self._digests = digests
        self._surveyed = known
        self._work = work / INCREMENTS
        self._cache = Cache(lake.folder, work, INCREMENTS)
        self._new: list[Increment] = []

    @cached_property
    def _known(self) -> CaptureSizes:
        return _known(self._lake, self._digests, self._surveyed)

    @cached_property
    def _digest(self) -> str:
        return digest_of([VERSION, *stitching.texts()])

    def increments(self, part: JoinPlan) -> list[Increment]:
        """The increments of a group; one if it is not cut."""
        return increments.increments(part, self._known, limits.MAX_INCREMENT_ROWS)

    def tasks(
        self, group_increments: Sequence[Increment], settings: JoinSettings
    ) -> list[list[Closing]]:
        """The increments of a group that are not cached, as one task at most: each needs the rows
        and the state of the earlier ones."""
        missing = [increment for increment in group_increments if not self._link_cached(increment)]
        self._new += missing
        targets = [self._target(increment) for increment in group_increments]
        task = [
            self._closing(increment, tuple(targets[:index]), settings)
            for index, increment in enumerate(group_increments)
            if increment in missing
        ]
        return [task] if task else []

    def collect(self, group_increments: Sequence[Increment], group: str, folder: Path) -> None:
        """Link the rows of all increments of a group, by its name, into one folder, and add the new
        ones to the cache."""
        for increment in [new for new in self._new if new in group_increments]:
            self._new.remove(increment)
            names = self._tables(increment)
            cache_partition = CachePartition(increment.digest, increment.captures)
            self._cache.add(
                self._folder(increment), [cache_partition], dict.fromkeys(names, self._digest)
            )
        for index, increment in enumerate(group_increments):
            for name in SCHEMAS:
                target = Target(folder, f"{group}{OF_INCREMENT}{index:06}").path(name)
                target.parent.mkdir(parents=True, exist_ok=True)
                link(self._target(increment).path(name), target)

    def tidy(self, plan: JoinPlan) -> None:
        """Remove the increments of captures that are not in the lake any more."""
        if not len(self._cache):
            return
        groups = [self.increments(part) for part in parts_of(plan)]
        self._cache.forget({increment.digest for group in groups for increment in group})

    def _tables(self, increment: Increment) -> tuple[str, ...]:
        return tuple(SCHEMAS) if increment.is_last else (*SCHEMAS, *LEFT)

    def _folder(self, increment: Increment) -> Path:
        return self._work / increment.digest

    def _target(self, increment: Increment) -> Target:
        return Target(self._folder(increment), _FILE)

    def _link_cached(self, increment: Increment) -> bool:
        """Whether an increment is cached; if so, its files are linked into its work folder."""
        cached_paths: dict[str, str] = {}
        cache_partition = CachePartition(increment.digest, increment.captures)
        for name in self._tables(increment):
            sources, _ = self._cache.sources(name, self._digest, [cache_partition])
            paths = [path for source in sources for path in source.paths]
            if len(paths) != 1:
                return False
            cached_paths[name] = paths[0]
        for name, path in cached_paths.items():
            target = self._target(increment).path(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            link(Path(path), target)
        return True

    def _closing(
        self, increment: Increment, before: tuple[Target, ...], settings: JoinSettings
    ) -> Closing:
        near = files_of(self._lake, increment.near) if increment.near else None
        around = IncrementContext(
            increment.before, before, near, increment.later, increment.is_last
        )
        source = files_of(self._lake, frozenset(increment.captures))
        return Closing(source, increment.part, self._target(increment), settings, around)


def _known(lake: Lake, digests: Mapping[str, str], known: survey.SurveyTables) -> CaptureSizes:
    rows = dict.fromkeys(digests, 0)
    for capture in lake.captures:
        names = names_in(capture) & digests.keys()
        for name in names:
            rows[name] += sum(part.rows for part in capture.files) // len(names)
    import pyarrow.compute as pc

    is_whole = pc.equal(known.connections.column("protocol"), READ_WHOLE)
    whole = known.connections.filter(is_whole).column("capture").unique().to_pylist()
    return CaptureSizes(survey.capture_spans(known.files), rows, digests, frozenset(whole))
