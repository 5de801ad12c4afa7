"""Rows on standard output: as lines for people, JSON lines, CSV, or tab-separated fields.

Whatever comes from the wire is made safe on the way: control characters and direction marks of
names and texts never reach a terminal. JSON is pure ASCII, so it is safe as it is.
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

from dissector.cli.local_time import shown_time, shown_value
from dissector.cli.terminal import Paint, safe_text
from dissector.codecs.printable import json_text
from dissector.schemas.enums import BOTH_DIRECTIONS

FORMATS: Final = ("text", "jsonl", "csv", "fields")
Row = dict[str, Any]
# With what formulas begin, also as wide letters; tab and line ends are skipped before them.
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
    """A decimal as a number, as text where a float would not keep all digits."""
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
    """One row as a JSON object; without keeps_nulls the columns that are null are left out."""
    shown = {
        name: plain_value(value) for name, value in row.items() if keeps_nulls or value is not None
    }
    return json_text(shown, separators=(",", ":"))


def harmless(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula: names and texts come from the wire.

    What begins like a formula gets an apostrophe in front; plain numbers, such as -1, stay.
    """
    begins = cell.lstrip()[:1] in _FORMULA or cell[:1] in _FORMULA
    return f"'{cell}" if begins and cell and not _NUMBER.fullmatch(cell) else cell


def csv_line(cells: Sequence[str]) -> str:
    """One line of CSV without its line end; quoted where RFC 4180 wants it, cells harmless."""
    line = io.StringIO()
    csv.writer(line, lineterminator=_LINE_END).writerow([harmless(cell) for cell in cells])
    return line.getvalue().removesuffix(_LINE_END)


Lines = Callable[[Row], str]


def line_maker(kind: str, columns: Sequence[str], text_line: Lines, is_chosen: bool) -> Lines:
    """The function that makes the line of a row.

    Args:
        kind: one of FORMATS; columns: names in order; text_line: what `text` shows; is_chosen: the
            user named the columns, so that a null shows as such.
    """
    if kind == "jsonl":
        return lambda row: json_line({name: row[name] for name in columns}, is_chosen)
    if kind == "csv":
        return lambda row: csv_line([field_text(row[name]) for name in columns])
    if kind == "fields" or is_chosen:
        return lambda row: "\t".join(field_text(row[name]) for name in columns)
    return text_line


def heading(kind: str, columns: Sequence[str], text_heading: str) -> str | None:
    """The line before the rows, if the format has one."""
    if kind == "csv":
        return csv_line(list(columns))
    return text_heading or None if kind == "text" else None


def rows_of(batch: Any, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a pyarrow RecordBatch as dicts of Python values, only the columns asked for."""
    values = [batch.column(name).to_pylist() for name in columns]
    for row in zip(*values, strict=True):
        yield dict(zip(columns, row, strict=True))


# -- lines of frames

_ARROWS: Final = {"to_broker": ">", "to_client": "<", "unknown": "?"}
# What a line shows after the command, in order: column and the short word before its value.
_FRAME_WORDS: Final = (
    ("request_id", "request"),
    ("producer_id", "producer"),
    ("consumer_id", "consumer"),
    ("sequence_id", "seq"),
    ("permits", "permits"),
    ("message_count", "messages"),
    ("compression", "codec"),
    ("redelivery_count", "redelivered"),
    ("chunk_id", "chunk"),
    ("ack_type", "ack"),
    ("error_code", "error"),
    ("error_text", "text"),
    ("validation_error", "invalid"),
    ("topic", "topic"),
    ("subscription", "sub"),
    ("producer_name", "by"),
    ("consumer_name", "to"),
)
FRAME_TEXT_COLUMNS: Final = (
    "connection_id",
    "frame_no",
    "direction",
    "command",
    "last_ts_ns",
    "first_packet",
    "last_packet",
    "frame_bytes",
    "status",
    "retransmitted",
    "ledger_id",
    "entry_id",
    "checksum",
    *(name for name, _ in _FRAME_WORDS),
)
FRAME_HEADING: Final = (
    f"{'no':>5} {'time':<27} {'packets':<9} connection, direction, command, bytes, details"
)


def _frame_details(row: Row) -> Iterator[str]:
    for name, word in _FRAME_WORDS:
        value = row[name]
        if value is None or (name == "compression" and value == "NONE"):
            continue
        if name == "ack_type" and row["ledger_id"] is not None:
            yield f"id={row['ledger_id']}:{row['entry_id']}"
        shown = safe_text(str(value))
        yield f'{word}="{shown}"' if " " in shown else f"{word}={shown}"
    if row["ack_type"] is None and row["ledger_id"] is not None:
        yield f"id={row['ledger_id']}:{row['entry_id']}"


def frame_line(row: Row, paint: Paint) -> str:
    """One frame for people, e.g. `12 2026-…Z p45-47 c0 > SEND 1187 B producer=0 seq=3 …`."""
    first, last = row["first_packet"], row["last_packet"]
    packets = f"p{first}" if first == last else f"p{first}-{last}"
    command = row["command"] or "?"
    is_error = row["error_code"] is not None or row["checksum"] == "mismatch"
    details = list(_frame_details(row))
    if row["checksum"] not in (None, "ok"):
        details.append(paint(f"checksum={row['checksum']}", "red" if is_error else "yellow"))
    if row["status"] != "complete":
        details.append(paint(row["status"], "yellow"))
    if row["retransmitted"]:
        details.append("retransmitted")
    return " ".join(
        [
            f"{row['frame_no']:>5}",
            paint(shown_time(row["last_ts_ns"]), "dim"),
            f"{packets:<9}",
            f"c{row['connection_id']}",
            _ARROWS[row["direction"]],
            paint(command, "red" if is_error else "bold"),
            f"{row['frame_bytes']} B",
            *details,
        ]
    )


def detail_lines(row: Row) -> Iterator[str]:
    """Every decoded field of a frame, one per line: the columns that say something, then detail."""
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


# -- lines of connections

CONNECTION_HEADING: Final = "\t".join(
    (
        *("#connection", "first_ts", "duration_s", "client", "broker", "protocol", "history"),
        *("ended", "packets", "bytes", "frames", "gap_bytes", "retransmitted", "notes"),
    )
)
_BOTH: Final = ("packets", "stream_bytes", "frames", "gap_bytes", "retransmitted_packets")
CONNECTION_TEXT_COLUMNS: Final = (
    "connection_id",
    "first_ts_ns",
    "last_ts_ns",
    "client_ip",
    "client_port",
    "broker_ip",
    "broker_port",
    "protocol",
    "history",
    "started",
    "ended",
    "closed_first_by",
    "role_source",
    "client_version",
    "proxied_client_ip",
    "tls_sni",
    "leg",
    *(f"{name}_{direction}" for name in _BOTH for direction in BOTH_DIRECTIONS),
)


def _end_point(address: str | None, port: int | None) -> str:
    shown = safe_text(address or "-")
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def connection_line(row: Row, paint: Paint) -> str:
    """One connection for people, as in Zeek's conn.log; a pair is to broker/to client."""
    pairs = [f"{row[f'{name}_to_broker'] or 0}/{row[f'{name}_to_client'] or 0}" for name in _BOTH]
    if row["gap_bytes_to_broker"] or row["gap_bytes_to_client"]:
        pairs[3] = paint(pairs[3], "yellow")
    first, last = row["first_ts_ns"], row["last_ts_ns"]
    duration = "-" if first is None or last is None else f"{(last - first) / 1e9:.6f}"
    notes = [] if row["started"] == "syn" else ["midstream"]
    notes += [f"closed_by={row['closed_first_by']}"] if row["closed_first_by"] else []
    notes += [f"role={row['role_source']}"] if row["role_source"] not in (None, "syn") else []
    for name in ("client_version", "proxied_client_ip", "tls_sni", "leg"):
        if row[name] is not None:
            notes.append(f"{name}={safe_text(str(row[name]))}")
    return "\t".join(
        [
            str(row["connection_id"]),
            shown_time(first),
            duration,
            _end_point(row["client_ip"], row["client_port"]),
            _end_point(row["broker_ip"], row["broker_port"]),
            paint(row["protocol"], "bold"),
            safe_text(row["history"] or "-"),
            row["ended"] or "-",
            *pairs,
            " ".join(notes) or "-",
        ]
    )
