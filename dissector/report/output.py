"""A report on disk: report.json, lists as Parquet tables, the page; written whole or not at all.

The report is written into a folder beside its target. One rename then exchanges the two folders, so
that a reader opens all of the old report or all of the new one; the next run removes the folder of
a killed one. Where a file system cannot exchange (NFS, for one), and with --force among foreign
files, the parts are renamed one by one: report.json as the last, which is never missing.

The text of report.json has one line per row, and only the first rows of long lists; `listed` in a
section names the lists that are whole only in the Parquet tables: the number of their rows, and how
many the text has.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from dissector.codecs.printable import json_text
from dissector.errors import OutputError, needs
from dissector.limits import MAX_LIST_BYTES, MAX_LISTED
from dissector.outputs import exchange, refuse_foreign
from dissector.report.figures import Figures
from dissector.report.numbers import Row
from dissector.report.timelines import Timeline
from dissector.report.workspace import full_disk, workspace
from dissector.schemas.small_tables import by_column, columns_table

Writers = Mapping[str, Callable[[Path], None]]


class BesideNumbers(NamedTuple):
    """A page's input beside its report. lake: the one that its commands query; is_exact: whether
    percentiles are of all values; figures: the cache of drawn ones."""

    lake: str | None = None
    timelines: Sequence[Timeline] = ()
    is_exact: bool = False
    figures: Figures | None = None


_NOTHING_BESIDE: Final = BesideNumbers()
TABLES: Final = "tables"
MARK: Final = "report.json"
_PAGE: Final = "report.html"
CUT: Final = b'"listed":'  # in the text of report.json if it has cut lists
# The files and folders of a report; `state` is of older versions.
NAMES: Final = frozenset((MARK, _PAGE, TABLES, "state"))
_OF_FINDINGS: Final = ("subject", "measured", "thresholds")
_SELECTION: Final = "selection"  # the request, no numbers


def lists(report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Every list of every section, by `<section>_<list>`; totals are lists of one row.

    `sources`, which belong to no section, are included if report.json lacks some.
    """
    by_name: dict[str, list[dict[str, Any]]] = {}
    if len(report.get("sources", ())) > MAX_LISTED:
        by_name["sources"] = report["sources"]
    for section, content in report.items():
        if not isinstance(content, dict) or section == _SELECTION:
            continue
        for name, value in content.items():
            if isinstance(value, list):
                by_name[f"{section}_{name}"] = value
            elif name == "total":
                by_name[f"{section}_total"] = [value]
    return by_name


def _texts(values: Mapping[str, Any]) -> list[Row]:
    """A finding's values as rows of (name, value): other names and types in each finding."""
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def _column(name: str, values: Sequence[Any]) -> Sequence[Any]:
    if name in _OF_FINDINGS and {*map(type, values)} <= {dict, type(None)}:
        return [None if value is None else _texts(value) for value in values]
    return values


def _write_table(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    target = folder / TABLES / name
    target.mkdir(parents=True)
    table = columns_table({key: _column(key, values) for key, values in by_column(rows).items()})
    pq.write_table(table, target / "part-00000.parquet", compression="zstd")


def _fill(
    folder: Path, report: dict[str, Any], has_page: bool, more: Writers, beside: BesideNumbers
) -> None:
    (folder / MARK).write_text(report_text(report), encoding="utf-8")
    for name, rows in lists(report).items():
        if f"{TABLES}/{name}" not in more:
            _write_table(folder, name, rows)
    for name, write in more.items():
        write(folder / name)
    if has_page:
        with needs("report", "`dissector summary` shows the numbers without a page"):
            from dissector.report.page import page

        (folder / _PAGE).write_text(page(report, *beside), encoding="utf-8")


def write_report(
    output: Path,
    report: dict[str, Any],
    *,
    has_page: bool = True,
    more: Writers | None = None,
    is_forced: bool = False,
    beside: BesideNumbers = _NOTHING_BESIDE,
    keep: Callable[[Path], None] | None = None,
) -> None:
    """Write a report into a folder, as `put_report` does.

    Args:
        more: further folders: their paths in the report, and functions that write them.
        beside: for the page.
        keep: is called with the written folder before this is moved to `output`.
    """

    def fill(stage: Path) -> None:
        _fill(stage, report, has_page, more or {}, beside)
        if keep is not None:
            keep(stage)

    put_report(output, fill, is_forced=is_forced)


def put_report(output: Path, fill: Callable[[Path], None], *, is_forced: bool = False) -> None:
    """Put a report into a folder; it replaces an earlier report.

    A folder with other contents is refused; with is_forced, it is used and the other files stay.

    Args:
        fill: writes the report into an empty folder.

    Raises:
        OutputError: it cannot be written, or the folder has other contents.
    """
    output = Path(os.path.realpath(output))  # a symbolic link is kept
    is_shared = check_report_folder(output, is_forced=is_forced)
    with workspace(output) as work:
        stage = work / "report"
        try:
            stage.mkdir()
            fill(stage)
            if not output.exists():
                os.rename(stage, output)
            elif is_shared or not exchange(stage, output):
                _put_each(stage, output)
        except OSError as error:
            if full_disk(error):
                raise
            raise OutputError(f"cannot write the report to {output}: {error.strerror}") from error


def read_report(output: Path) -> dict[str, Any]:
    """Read and parse a report.json.

    Raises:
        OutputError: it cannot be read.
    """
    try:
        report: dict[str, Any] = json.loads((output / MARK).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot read {output / MARK}: {error}") from error
    return report


def check_report_folder(output: Path, *, is_forced: bool = False) -> bool:
    """Whether a folder has contents that are no part of a report, which stay.

    Raises:
        OutputError: it has, or report.json is not of this program, and is_forced is not given; or
            it is no folder.
    """
    is_shared = refuse_foreign(output, NAMES, "a report", is_forced=is_forced)
    if not is_forced and output.is_dir() and any(output.iterdir()) and not _is_report(output):
        raise OutputError(
            f"{output / MARK} is none of this program's: name another folder, or give --force, "
            "which replaces it"
        )
    return is_shared


def _is_report(folder: Path) -> bool:
    try:
        return "schema_version" in read_report(folder)
    except (OutputError, TypeError):
        return False


def _put_each(stage: Path, output: Path) -> None:
    """Replace the files and folders of a report one by one, report.json last; others stay."""
    for name in sorted(NAMES, key=lambda name: name == MARK):
        new, target, old = stage / name, output / name, stage / f"{name}.old"
        if not new.exists():
            if os.path.lexists(target):
                os.rename(target, old)
        elif not os.path.lexists(target):
            os.rename(new, target)
        elif not exchange(new, target):
            _replace(new, target, old)


def _replace(new: Path, target: Path, old: Path) -> None:
    """Replace a file or folder; a replaced folder moves to `old`."""
    if not target.is_dir():
        os.replace(new, target)
        return
    os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(old, target)
        raise


# -- the text of report.json

# Columns that are series over time. In a list, either all rows have their series or none has.
SERIES: Final = ("per_minute", "per_hour", "per_day")
Listed = dict[str, dict[str, int]]


def compact(value: Any) -> str:
    """A value as JSON on one line."""
    return json_text(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def shortened(report: Row) -> Row:
    """A copy of the report with cut lists, as its text has it.

    A list keeps its first rows: at most MAX_LISTED, and MAX_LIST_BYTES. `total` keeps the first
    MAX_LISTED cells of a series. Rows of a list keep their series if all rows together have at most
    so many cells, else null.
    """
    short: Row = {}
    cut: Listed = {}
    for name, content in report.items():
        if isinstance(content, dict):
            short[name] = _section(content)
        elif isinstance(content, list):
            short[name] = _first(name, content, cut)
        else:
            short[name] = content
    return short | ({"listed": cut} if cut else {})


def _section(content: Row) -> Row:
    short: Row = {}
    cut: Listed = {}
    for name, value in content.items():
        if name == "total":
            short[name] = _total(value, cut)
        elif isinstance(value, list):
            short[name] = _first(name, value, cut)
        else:
            short[name] = value
    return short | ({"listed": cut} if cut else {})


def _total(total: Row, cut: Listed) -> Row:
    short = dict(total)
    for name in SERIES:
        series = total.get(name)
        if series is not None and len(series) > MAX_LISTED:
            short[name] = series[:MAX_LISTED]
            cut[f"total.{name}"] = {"rows": len(series), "listed": MAX_LISTED}
    return short


def _first(name: str, rows: list[Any], cut: Listed) -> list[Any]:
    kept = rows[:MAX_LISTED]
    for series in SERIES:
        cells = [len(row[series] or ()) for row in rows if isinstance(row, dict) and series in row]
        if sum(cells) > MAX_LISTED:
            kept = [row | {series: None} for row in kept]
            cut[f"{name}.{series}"] = {"rows": sum(cells), "listed": 0}
    size = 0
    for at, row in enumerate(kept):
        size += len(compact(row))
        if size > MAX_LIST_BYTES:
            kept = kept[:at]
            break
    if len(kept) < len(rows):
        cut[name] = {"rows": len(rows), "listed": len(kept)}
    return kept


def report_text(report: Row) -> str:
    """The text of report.json."""
    return _text(shortened(report), "") + "\n"


def _text(value: Any, indent: str) -> str:
    """JSON with one line per key of an object, and per row of a list."""
    inner = f"{indent} "
    if isinstance(value, dict) and value:
        lines = [f"{compact(name)}: {_text(each, inner)}" for name, each in value.items()]
        return _block("{", lines, "}", indent)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _block("[", [compact(each) for each in value], "]", indent)
    return compact(value)


def _block(begin: str, lines: list[str], end: str, indent: str) -> str:
    inside = ",\n".join(f"{indent} {line}" for line in lines)
    return f"{begin}\n{inside}\n{indent}{end}"
