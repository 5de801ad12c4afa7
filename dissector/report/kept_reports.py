"""Whole reports of a lake, kept beside it: the same one again is found, and not made.

What decides a report is the captures that count, what is asked, and the program. So it lies in
`dissector.lake.cache` by digests of these, below `reports`, in one file: what its folder holds, by
name, and its numbers where report.json is cut and all of them are wanted. Only reports of the
captures that the lake has now are kept, and few of them. The figures of their pages lie beside, by
digests of what they show, and serve pages of other captures, too.
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
# What reading what is kept may meet, where it is odd.
_ODD: Final = (OSError, ValueError, KeyError, TypeError, IndexError, pa.ArrowException)
_SCHEMA: Final = pa.schema({"name": pa.string(), "content": pa.binary()})


class KeptReport(NamedTuple):
    """A report as it was written. numbers: its JSON, uncut if that was kept; files: by their names
    in its folder."""

    numbers: Row
    files: Mapping[str, bytes]

    def write(self, folder: Path) -> None:
        """Write the files into a folder that is there."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


class KeptReports:
    """The reports that are kept of a lake.

    Args:
        lake: its folder. work: a folder of the caller.
        captures: digests of all captures of the lake, by name.
        asked: what the report is made from and asked for: values that JSON can write.
    """

    def __init__(self, lake: Path, work: Path, captures: Mapping[str, str], asked: object) -> None:
        self._cache = Cache(lake, work, _FOLDER)
        self._work = work
        self._unit = CachePartition(digest_of(sorted(captures.items())), ())
        self._digest = digest_of([program(), asked])
        self.figures = Figures(self._figures)

    def find(self) -> KeptReport | None:
        """The report that was made of the same, if it is kept whole."""
        found, _ = self._cache.sources(_TABLE, self._digest, [self._unit])
        if not found:
            return None
        try:
            files = _contents(found[0].paths)
            numbers = json.loads(files.pop(_NUMBERS, b"") or files[MARK])
        except _ODD:
            return None
        is_report = isinstance(numbers, dict) and all(map(_is_of_report, files))
        return KeptReport(numbers, files) if is_report else None

    def _figures(self) -> dict[str, bytes]:
        """Those of all kept reports of this program."""
        figures: dict[str, bytes] = {}
        for paths in self._cache.every(_FIGURES, program()):
            with suppress(*_ODD):
                figures |= _contents(paths)
        return figures

    def keep(self, numbers: Row | None, folder: Path | None = None) -> None:
        """Keep a report, in the place of those of captures that the lake no longer has so.

        Args:
            numbers: None: those of report.json are all that is asked for.
            folder: where it was written; None: its numbers are all there is.
        """
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder else []
        if sum(path.stat().st_size for path in paths) > MAX_KEPT_REPORT_BYTES:
            return
        files = {str(path.relative_to(folder or "")): path.read_bytes() for path in paths}
        if numbers is not None and (MARK not in files or CUT in files[MARK]):
            files[_NUMBERS] = compact(numbers).encode()
        made = self._work / _FOLDER
        made.mkdir()
        figures = self.figures.used or self._figures()  # what has no page serves the next that has
        for table, contents in ((_TABLE, files), (_FIGURES, figures)):
            rows = [{"name": name, "content": content} for name, content in contents.items()]
            pq.write_table(
                nested_table(rows, _SCHEMA), made / f"{table}.parquet", compression="zstd",
                use_dictionary=False, write_statistics=False,
            )  # fmt: skip
        if len(self._cache) >= MAX_KEPT_REPORTS:
            self._cache.replace_all()
        self._cache.forget({self._unit.digest})
        self._cache.add(made, [self._unit], {_TABLE: self._digest, _FIGURES: program()})


def _contents(paths: Sequence[str]) -> dict[str, bytes]:
    """The contents that a file holds, by their names."""
    with pq.ParquetFile(paths[0]) as file:  # `read_table` imports pandas
        rows = as_schema(file.read(), _SCHEMA)
    return dict(zip(*map(column_values, rows.columns), strict=True))


def _is_of_report(name: Any) -> bool:
    """Whether a name is one of a file of a report, and leads nowhere else."""
    parts = PurePath(name).parts if isinstance(name, str) else ()
    return bool(parts) and parts[0] in NAMES and ".." not in parts
