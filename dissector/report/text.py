"""The text of report.json: one line for each row, and of long lists only what comes first.

The Parquet tables of a report have all rows. `listed` in a section names the lists that go on
there: how many rows there are, and how many of them the text has.
"""

import json
from typing import Any, Final

from dissector.report.numbers import Row
from dissector.report.parts import MAX_LISTED

MAX_LIST_BYTES: Final = 250_000  # of the text of one list, so that hundreds of captures stay small
# Series over time in rows of lists. All of a list's rows have theirs, or none.
SERIES: Final = ("per_minute", "per_hour", "per_day")
Listed = dict[str, dict[str, int]]


def compact(value: Any) -> str:
    """A value on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def shortened(report: Row) -> Row:
    """The report as its text has it; the report itself stays as it is.

    A list keeps its first rows, MAX_LISTED of them or as many as MAX_LIST_BYTES hold. `total` keeps
    the first MAX_LISTED cells of a series; rows have series (else null) where all of a list have
    that many together.
    """
    found: Row = {}
    cut: Listed = {}
    for name, content in report.items():
        if isinstance(content, dict):
            found[name] = _section(content)
        elif isinstance(content, list):
            found[name] = _first(name, content, cut)
        else:
            found[name] = content
    return found | ({"listed": cut} if cut else {})


def _section(content: Row) -> Row:
    found: Row = {}
    cut: Listed = {}
    for name, value in content.items():
        if name == "total":
            found[name] = _total(value, cut)
        elif isinstance(value, list):
            found[name] = _first(name, value, cut)
        else:
            found[name] = value
    return found | ({"listed": cut} if cut else {})


def _total(total: Row, cut: Listed) -> Row:
    found = dict(total)
    for name in SERIES:
        series = total.get(name)
        if series is not None and len(series) > MAX_LISTED:
            found[name] = series[:MAX_LISTED]
            cut[f"total.{name}"] = {"rows": len(series), "listed": MAX_LISTED}
    return found


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
    """JSON with a line for each key of an object, and for each row of a list."""
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
