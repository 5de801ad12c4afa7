"""Long groups of captures are joined in increments, which are kept with what each left to the next.

    LAKE/_sums/stretches/<batch>/<table>/…     rows that were told in an increment, what it leaves

A batch is of one increment (see `increments`). A report reads the increments that are
new, from what the one before them left, and takes the rows of all others as they are.
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

# The folder keeps the name that older versions gave it, so that what they left there is forgotten.
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
    def _digest(self) -> str:
        return digest_of([VERSION, *stitching.texts()])

    def increments(self, part: JoinPlan) -> list[Increment]:
        """The increments of a group; one if it is not cut."""
        return increments.increments(part, self._known, limits.MAX_INCREMENT_ROWS)

    def tasks(
        self, group_increments: Sequence[Increment], settings: JoinSettings
    ) -> list[list[Closing]]:
        """The increments of a group that are not kept, as one task at most: each needs what those
        before it told and left."""
        missing = [increment for increment in group_increments if not self._find(increment)]
        self._made += missing
        targets = [self._target(increment) for increment in group_increments]
        task = [
            self._closing(increment, tuple(targets[:index]), settings)
            for index, increment in enumerate(group_increments)
            if increment in missing
        ]
        return [task] if task else []

    def collect(self, group_increments: Sequence[Increment], group: str, folder: Path) -> None:
        """Put the rows of all increments of a group, by its name, into one folder, and keep those
        that are new."""
        for increment in [made for made in self._made if made in group_increments]:
            self._made.remove(increment)
            names = self._tables(increment)
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
        return tuple(SCHEMAS) if increment.is_last else (*SCHEMAS, *LEFT)

    def _folder(self, increment: Increment) -> Path:
        return self._work / increment.digest

    def _target(self, increment: Increment) -> Target:
        return Target(self._folder(increment), _FILE)

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
