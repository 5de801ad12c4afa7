"""The cache of whole reports of a lake: an equal report is read, not computed again.

A report depends on the counted captures, the request, and the program. So the cache, a
`dissector.lake.cache` named `reports`, has it by a digest of these, in one file: the files of its
folder by name, and all numbers if report.json has cut lists and they are wanted. The cache has at
most MAX_KEPT_REPORTS, only of the captures that the lake has now. The figures of the pages are
cached beside, by digests of their numbers, and serve pages of other captures, too.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.joining.files import digest_of
from dissector.lake.cache import Cache, CachePartition
from dissector.limits import MAX_KEPT_REPORT_BYTES, MAX_KEPT_REPORTS
from dissector.queries.plain_values import column_values
from dissector.report.figures import Figures
from dissector.report.numbers import Row
from dissector.report.output import CUT, MARK, NAMES, compact
from dissector.report.program import program
from dissector.schemas.small_tables import as_schema, nested_table

_FOLDER: Final = "reports"
_TABLE: Final = "report"
_FIGURES: Final = "figures"
_NUMBERS: Final = "numbers"
# Errors of reading a damaged file of the cache.
_ODD: Final = (OSError, ValueError, KeyError, TypeError, IndexError, pa.ArrowException)
_SCHEMA: Final = pa.schema({"name": pa.string(), "content": pa.binary()})


class KeptReport(NamedTuple):
    """A cached report. numbers: its JSON, with whole lists if these were cached; files: contents by
    path in its folder."""

    numbers: Row
    files: Mapping[str, bytes]

    def write(self, folder: Path) -> None:
        """Write the files into an existing folder."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


class KeptReports:
    """The cached reports of a lake.

    Args:
        lake: its folder. work: a folder of the caller.
        captures: digests of all captures of the lake, by name.
        request: everything but the program that decides the report, as values that JSON can write.
    """

    def __init__(
        self, lake: Path, work: Path, captures: Mapping[str, str], request: object
    ) -> None:
        self._cache = Cache(lake, work, _FOLDER)
        self._work = work
        self._unit = CachePartition(digest_of(sorted(captures.items())), ())
        self._digest = digest_of([program(), request])
        self.figures = Figures(self._figures)

    def find(self) -> KeptReport | None:
        """The cached report of the same request; None if it is missing or damaged."""
        sources, _ = self._cache.sources(_TABLE, self._digest, [self._unit])
        if not sources:
            return None
        try:
            files = _contents(sources[0].paths)
            numbers = json.loads(files.pop(_NUMBERS, b"") or files[MARK])
        except _ODD:
            return None
        is_report = isinstance(numbers, dict) and all(map(_is_of_report, files))
        return KeptReport(numbers, files) if is_report else None

    def _figures(self) -> dict[str, bytes]:
        """The figures of all cached reports of this program, by digest."""
        figures: dict[str, bytes] = {}
        for paths in self._cache.every(_FIGURES, program()):
            with suppress(*_ODD):
                figures |= _contents(paths)
        return figures

    def keep(self, numbers: Row | None, folder: Path | None = None) -> None:
        """Add a report to the cache; drop reports of captures that the lake no longer has so.

        Args:
            numbers: the report's JSON; None: report.json, though cut, is enough.
            folder: of the written report; None: cache the numbers alone.
        """
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []
        if sum(path.stat().st_size for path in paths) > MAX_KEPT_REPORT_BYTES:
            return
        files = {str(path.relative_to(folder or "")): path.read_bytes() for path in paths}
        if numbers is not None and (MARK not in files or CUT in files[MARK]):
            files[_NUMBERS] = compact(numbers).encode()
        written = self._work / _FOLDER
        written.mkdir()
        figures = self.figures.used or self._figures()  # without a page: the earlier ones again
        for table, contents in ((_TABLE, files), (_FIGURES, figures)):
            rows = [{"name": name, "content": content} for name, content in contents.items()]
            pq.write_table(
                nested_table(rows, _SCHEMA), written / f"{table}.parquet", compression="zstd",
                use_dictionary=False, write_statistics=False,
            )  # fmt: skip
        if len(self._cache) >= MAX_KEPT_REPORTS:
            self._cache.replace_all()
        self._cache.forget({self._unit.digest})
        self._cache.add(written, [self._unit], {_TABLE: self._digest, _FIGURES: program()})


def _contents(paths: Sequence[str]) -> dict[str, bytes]:
    """Read a file of the cache: contents by name."""
    with pq.ParquetFile(paths[0]) as file:  # `read_table` imports pandas
        rows = as_schema(file.read(), _SCHEMA)
    return dict(zip(*map(column_values, rows.columns), strict=True))


def _is_of_report(name: Any) -> bool:
    """Whether a name is the path of a file of a report, and stays inside the report's folder."""
    parts = PurePath(name).parts if isinstance(name, str) else ()
    return bool(parts) and parts[0] in NAMES and ".." not in parts
