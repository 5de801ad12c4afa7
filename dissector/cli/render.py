"""Rows on standard output: as lines for people, JSON lines, CSV, or tab-separated fields.

Names and texts from the wire are escaped: their control characters and direction marks never reach
a terminal. JSON is pure ASCII, so it needs no escaping.
"""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from dissector.cli.local_time import shown_value
from dissector.cli.terminal import safe_text
from dissector.codecs.printable import json_text

FORMATS: Final = ("text", "jsonl", "csv", "fields")
Row = dict[str, Any]
# First characters of formulas, also as wide letters; spreadsheets skip leading tabs and line ends.
_FORMULA: Final = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_LINE_END: Final = "\r\n"  # letters of it in a cell are quoted
_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)


def plain_value(value: Any) -> Any:
    """A value as JSON has it: times, nan and inf as text, maps as objects, raw bytes as hexadecimal
    digits."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {str(key): plain_value(inner) for key, inner in value}
    if isinstance(value, list):
        return [plain_value(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return _plain_number(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    return value if isinstance(value, str | int | float | None) else str(value)


def _plain_number(value: Decimal) -> int | float | str:
    """A decimal as a number, or as text if a float would lose digits."""
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def field_text(value: Any) -> str:
    """A value as one cell: empty for null, true and false in small letters, lists as JSON."""
    plain = plain_value(value)
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, list | dict):
        return json_text(plain, separators=(",", ":"))
    return safe_text(str(plain))


def json_line(row: Row, keeps_nulls: bool) -> str:
    """One row as a JSON object; without keeps_nulls, null columns are left out."""
    shown = {
        name: plain_value(value) for name, value in row.items() if keeps_nulls or value is not None
    }
    return json_text(shown, separators=(",", ":"))


def harmless(cell: str) -> str:
    """A cell that no spreadsheet parses as a formula: names and texts are from the wire.

    A text that begins like a formula gets an apostrophe in front; numbers, such as -1, do not.
    """
    begins = cell.lstrip()[:1] in _FORMULA or cell[:1] in _FORMULA
    return f"'{cell}" if begins and cell and not _NUMBER.fullmatch(cell) else cell


def csv_line(cells: Sequence[str]) -> str:
    """One line of CSV without its line end; quoted where RFC 4180 wants it, cells harmless."""
    line = io.StringIO()
    csv.writer(line, lineterminator=_LINE_END).writerow([harmless(cell) for cell in cells])
    return line.getvalue().removesuffix(_LINE_END)


Lines = Callable[[Row], str]


def line_maker(kind: str, columns: Sequence[str], is_chosen: bool) -> Lines:
    """The function that makes the line of a row.

    Args:
        kind: one of FORMATS; columns: names in order; is_chosen: the user named the columns, so
            that a null shows as such.
    """
    if kind == "jsonl":
        return lambda row: json_line({name: row[name] for name in columns}, is_chosen)
    if kind == "csv":
        return lambda row: csv_line([field_text(row[name]) for name in columns])
    return lambda row: "\t".join(field_text(row[name]) for name in columns)


def rows_of(batch: Any, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a pyarrow RecordBatch as dicts of Python values, only the columns asked for."""
    from dissector.queries.plain_values import plain_values

    values = [plain_values(batch.column(name)) for name in columns]
    for row in zip(*values, strict=True):
        yield dict(zip(columns, row, strict=True))


def detail_lines(row: Row) -> Iterator[str]:
    """Every decoded field of a frame, one per line: the non-empty columns, then detail."""
    for name, value in row.items():
        if name == "detail" or value is None:
            continue
        yield f"      {name} = {field_text(shown_value(value))}"
    if row.get("detail"):
        try:
            fields = json.loads(row["detail"])
        except ValueError:
            fields = row["detail"]
        yield from _tree("detail", fields, 6)


def _tree(name: str, value: Any, indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(value, dict) and value:
        yield f"{pad}{safe_text(name)}"
        for key, inner in value.items():
            yield from _tree(key, inner, indent + 2)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, inner in enumerate(value):
            yield from _tree(f"{name}[{index}]", inner, indent)
    else:
        yield f"{pad}{safe_text(name)} = {field_text(value)}"
