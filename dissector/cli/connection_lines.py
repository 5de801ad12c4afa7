"""Connections as lines for people, as in Zeek's conn.log: one each, aligned."""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dissector.cli.local_time import shown_time
from dissector.cli.render import Row
from dissector.cli.terminal import Paint, clipped, columns_of, safe_text
from dissector.schemas.enums import BOTH_DIRECTIONS

_PAIRS: Final = ("packets", "stream_bytes", "frames", "gap_bytes", "retransmitted_packets")
COLUMNS: Final = (
    "connection_id", "first_ts_ns", "last_ts_ns", "client_ip", "client_port", "broker_ip",
    "broker_port", "protocol", "history", "started", "ended", "closed_first_by", "role_source",
    "client_version", "proxied_client_ip", "tls_sni", "tls_decryption", "leg",
    "twin_connection_id",
    *(f"{name}_{direction}" for name in _PAIRS for direction in BOTH_DIRECTIONS),
)  # fmt: skip


_NOTED: Final = (
    "client_version", "proxied_client_ip", "tls_sni", "tls_decryption", "leg", "twin_connection_id",
)  # fmt: skip


class _Cell(NamedTuple):
    """A column of the lines: its heading, and the function of its text."""

    head: str
    text: Callable[[Row], str]
    is_right: bool = False


def _pair(name: str) -> Callable[[Row], str]:
    """A cell of two numbers: to the broker, to the client."""
    return lambda row: "/".join(f"{row[f'{name}_{way}'] or 0}" for way in BOTH_DIRECTIONS)


def _end_point(side: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        shown, port = safe_text(row[f"{side}_ip"] or "-"), row[f"{side}_port"]
        return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"

    return text


def _duration(row: Row) -> str:
    first, last = row["first_ts_ns"], row["last_ts_ns"]
    return "-" if first is None or last is None else f"{(last - first) / 1e9:.6f}"


def _notes(row: Row) -> str:
    notes = [] if row["started"] == "syn" else ["midstream"]
    notes += [f"closed_by={row['closed_first_by']}"] if row["closed_first_by"] else []
    notes += [f"role={row['role_source']}"] if row["role_source"] not in (None, "syn") else []
    for name in _NOTED:
        if row[name] is not None:
            notes.append(f"{name.removesuffix('_connection_id')}={safe_text(str(row[name]))}")
    return " ".join(notes) or "-"


_FIRST: Final = "first_ts"
_MICROSECONDS: Final = re.compile(r"(?<=\.\d{3})\d+")
_GAPS: Final = "gap_bytes"
_CELLS: Final = (
    _Cell("#conn", lambda row: str(row["connection_id"]), is_right=True),
    _Cell(_FIRST, lambda row: shown_time(row["first_ts_ns"])),
    _Cell("duration_s", _duration, is_right=True),
    _Cell("client", _end_point("client")),
    _Cell("broker", _end_point("broker")),
    _Cell("protocol", lambda row: row["protocol"]),
    _Cell("history", lambda row: safe_text(row["history"] or "-")),
    _Cell("ended", lambda row: row["ended"] or "-"),
    _Cell("packets", _pair("packets"), is_right=True),
    _Cell("bytes", _pair("stream_bytes"), is_right=True),
    _Cell("frames", _pair("frames"), is_right=True),
    _Cell(_GAPS, _pair("gap_bytes"), is_right=True),
    _Cell("retransmitted", _pair("retransmitted_packets"), is_right=True),
    _Cell("notes", _notes),
)
# Columns in the order in which a narrow terminal omits them; a pipe gets all.
_LEFT_OUT_FIRST: Final = (
    "notes", "history", "retransmitted", "protocol", "duration_s", _GAPS, _FIRST, "ended",
)  # fmt: skip
_LEAST_NOTES: Final = 12


class ConnectionLines:
    """Formats connections as lines; columns are as wide as the rows so far need.

    left_out: headings of omitted columns.

    Args:
        width: of a terminal, None = as much as there is.
    """

    def __init__(self, paint: Paint, width: int | None = None) -> None:
        self._paint = paint
        self._width = width
        self._cells: Sequence[_Cell] = _CELLS
        self._widths = {cell.head: len(cell.head) for cell in _CELLS}
        self.left_out: list[str] = []

    def widen(self, rows: Sequence[Row]) -> None:
        """Widen the columns for these connections."""
        for texts in map(self._texts, rows):
            for head, text in texts.items():
                self._widths[head] = max(self._widths[head], columns_of(text))

    def heading(self) -> str:
        """The heading line; it decides which columns are omitted."""
        self._fit()
        return self._line({cell.head: cell.head for cell in _CELLS})

    def line(self, row: Row) -> str:
        """The line of a connection."""
        return self._line(self._texts(row))

    # -- inside

    def _texts(self, row: Row) -> dict[str, str]:
        texts = {cell.head: cell.text(row) for cell in _CELLS}
        if self._width is not None:
            texts[_FIRST] = _MICROSECONDS.sub("", texts[_FIRST])
        return texts

    def _fit(self) -> None:
        """Omit columns until a line fits."""
        if self._width is None:
            return
        for head in _LEFT_OUT_FIRST:
            if self._needed() <= self._width:
                break
            self.left_out.append(head)
            self._cells = [cell for cell in self._cells if cell.head != head]
        notes = _CELLS[-1]
        if notes.head in self.left_out and self._needed() + _LEAST_NOTES < self._width:
            self.left_out.remove(notes.head)  # as far as they fit
            self._cells = [*self._cells, notes]

    def _needed(self) -> int:
        return sum(self._widths[cell.head] + 1 for cell in self._cells) - 1

    def _line(self, texts: Row) -> str:
        cells = []
        for cell in self._cells:
            text, width = texts[cell.head], self._widths[cell.head]
            gap = " " * (width - columns_of(text))
            cells.append(f"{gap}{text}" if cell.is_right else f"{text}{gap}")
        line = clipped(" ".join(cells).rstrip(), self._width)
        gaps = texts[_GAPS]
        if self._paint.is_on and gaps not in ("0/0", _GAPS):
            line = line.replace(f" {gaps} ", f" {self._paint(gaps, 'yellow')} ", 1)
        return line
