"""Frames as aligned lines of text, no longer than a line of the terminal."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from dissector.cli.local_time import shown_time
from dissector.cli.render import Row
from dissector.cli.terminal import Paint, clipped, columns_of, safe_text

LINE_COLUMNS: Final = 100  # of a line to a pipe or a file

_ARROWS: Final = {"to_broker": ">", "to_client": "<", "unknown": "?"}
# The columns after a line's numbers, in order, and the short word before each value.
_WORDS: Final = (
    ("redelivery_count", "redelivered"),
    ("chunk_id", "chunk"),
    ("ack_type", "ack"),
    ("compression", "codec"),
)
_NAMES: Final = (("subscription", "sub"), ("producer_name", "by"), ("consumer_name", "to"))
COLUMNS: Final = (
    "connection_id", "frame_no", "direction", "command", "last_ts_ns", "first_packet",
    "last_packet", "frame_bytes", "status", "retransmitted", "ledger_id", "entry_id", "checksum",
    "request_id", "producer_id", "consumer_id", "sequence_id", "permits", "message_count",
    "error_code", "error_text", "validation_error", "topic",
    *(name for name, _ in (*_WORDS, *_NAMES)),
)  # fmt: skip
# Prefixes that all Pulsar clients add to short topic names.
_DEFAULTS: Final = ("persistent://public/default/", "persistent://")
_WIDTHS: Final = (5, 7, 4)  # of number, packets and connection, until one is longer
_COMMAND: Final = 19  # of command and bytes together: long commands use the space between
_HANDLE: Final = 7  # prod=12
_NUMBER: Final = 9  # seq=12345
_NS: Final = 1_000_000_000
_KEPT: Final = 4096  # formatted names in the cache
_LONG_ID: Final = 12  # digits of ids that are cut
_LEAST_NAME: Final = 12  # characters of a topic; with less room, the text after it is omitted
_JAVA: Final = re.compile(r"^[\w.$]+(?:Exception|Error): ")  # the class, before the message
_NARROW: Final = 90  # shorter lines have milliseconds, and no packets
_ELLIPSIS: Final = "…"


class FrameLines:
    """Formats frames as lines, under the date of the first one.

    Args:
        width: of a line at most, None: unlimited.
    """

    def __init__(self, paint: Paint, width: int | None = LINE_COLUMNS) -> None:
        self._paint = paint
        self._width = width
        self._widths = [*_WIDTHS]
        self._is_narrow = width is not None and width < _NARROW
        self._day: str | None = None
        self._second: tuple[int | None, tuple[str, str, str]] = (None, ("", "", ""))

    def heading(self, row: Row | None) -> str:
        """The line above the first frame, with its date. row: that one, None if there is none."""
        when = "time"
        if row is not None:
            self._day, _, zone = self._when(row["last_ts_ns"])
            when = f"{self._day} {zone}"
            if self._is_narrow:  # UTC goes without saying there, another zone does not
                when = self._day if zone in ("UTC", "") else f"{self._day[5:]} {zone}"
        line = self._placed(("no", "packets", "conn"), when, " ", "command", "bytes")
        return clipped(f"{line}{'ids':<{_HANDLE + _NUMBER + 2}}topic and more", self._width)

    def lines(self, row: Row) -> Iterator[str]:
        """The line of a frame, after a line with its date if this changed."""
        day, clock, zone = self._when(row["last_ts_ns"])
        if day != self._day:
            self._day = day
            yield f"# {day} {zone}".rstrip()
        yield self._line(row, clock)

    # -- inside

    def _when(self, ts_ns: int | None) -> tuple[str, str, str]:
        """Date, time of day and zone. Most frames are of the second of the one before."""
        if ts_ns is None:
            return _split(shown_time(None))
        second, rest_ns = divmod(ts_ns, _NS)
        if second != self._second[0]:
            self._second = (second, _split(shown_time(second * _NS)))
        day, clock, zone = self._second[1]
        if not zone:
            return _split(shown_time(ts_ns))
        return day, f"{clock[:8]}.{rest_ns // 1000:06d}", zone

    def _line(self, row: Row, clock: str) -> str:
        """One frame, e.g. `12 07:06:19.901123 p45-47 c0 > SEND 1187 prod=0 seq=3 orders …`."""
        command = row["command"] or "?"
        start = self._placed(
            (f"{row['frame_no']}", _packets(row["first_packet"], row["last_packet"]),
             f"c{row['connection_id']}"),
            clock, _ARROWS[row["direction"]], command, f"{row['frame_bytes']}",
        )  # fmt: skip
        handle, number, told = _ids(row, self._width is None)
        wrong = _problems(row)
        text = "" if row["error_text"] is None else _JAVA.sub("", safe_text(row["error_text"]))
        ids = f"{handle:<{_HANDLE}} {number:<{_NUMBER}} "
        if text or wrong:  # they want the room
            ids = "".join(f"{each} " for each in (handle, number) if each)
        head = start + ids + "".join(f"{each} " for each in (*wrong, *told))
        room = None if self._width is None else self._width - columns_of(head)
        line = (head + _fitted(text, row, room)).rstrip()
        return self._painted(clipped(line, self._width), command, wrong, row)

    def _placed(
        self, numbers: Sequence[str], clock: str, arrow: str, command: str, size: str
    ) -> str:
        """The columns that each line has. numbers: of frame, packets and connection."""
        widths = self._widths = [*map(max, self._widths, map(len, numbers))]
        number, packets, connection = numbers
        room = max(_COMMAND - len(command), len(size) + 1)
        when = f"{clock:<15} {packets:<{widths[1]}}"
        if self._is_narrow:
            when = f"{clock[:12]:<12}"
        return (
            f"{number:>{widths[0]}} {when} {connection:<{widths[2]}} {arrow} "
            f"{command}{size:>{room}} "
        )

    def _painted(self, line: str, command: str, wrong: Sequence[str], row: Row) -> str:
        """A line with colours; they are added after its length is final."""
        if not self._paint.is_on:
            return line
        is_error = row["error_code"] is not None or row["checksum"] == "mismatch"
        before, whole, behind = line.partition(f" {command}")
        if not whole:  # it was cut
            return line
        for each in wrong:
            behind = behind.replace(each, self._paint(each, "red" if is_error else "yellow"), 1)
        return f"{before} {self._paint(command, 'red' if is_error else 'bold')}{behind}"


def _split(text: str) -> tuple[str, str, str]:
    """Date, time of day and zone of a time's text; a time out of the calendar's range has neither
    date nor zone."""
    day, is_time, clock = text.partition("T")
    if not is_time:
        return "no time", text, ""
    zone = clock[15:]
    return day, clock[:15], "UTC" if zone == "Z" else zone


def _packets(first: int, last: int) -> str:
    """p45, p45-47, p123456-89: of the last packet the differing digits, at least two."""
    if first == last:
        return f"p{first}"
    begin, end = str(first), str(last)
    if len(begin) == len(end) > 2:
        same = next(at for at in range(len(end)) if begin[at] != end[at])
        end = end[min(same, len(end) - 2) :]
    return f"p{begin}-{end}"


def _ids(row: Row, is_whole: bool) -> tuple[str, str, list[str]]:
    """A frame's producer or consumer, its distinguishing number, and its other fields."""

    def listed(*columns: tuple[str, str]) -> list[str]:
        return [
            f"{word}={row[name] if is_whole else _last_digits(row[name])}"
            for name, word in columns
            if row[name] is not None
        ]

    handle = "".join(listed(("consumer_id", "cons"), ("producer_id", "prod"))[:1])
    numbers = listed(("sequence_id", "seq"))
    if row["ledger_id"] is not None:
        numbers.append(f"id={row['ledger_id']}:{row['entry_id']}")
    numbers += listed(("permits", "permits"), ("request_id", "req"))
    if (row["message_count"] or 1) != 1:
        numbers.append(f"messages={row['message_count']}")
    words = [
        f"{word}={safe_text(str(row[name]))}"
        for name, word in _WORDS
        if row[name] is not None and (name, row[name]) != ("compression", "NONE")
    ]
    first, *more = numbers or [""]
    if first.startswith("messages"):
        first, more = "", numbers
    return handle, first, [*more, *words]


def _last_digits(number: int) -> str:
    """An id; of a long one, as requests of Java clients have, its last digits."""
    digits = str(number)
    return digits if len(digits) < _LONG_ID else f"{_ELLIPSIS}{digits[-4:]}"


def _problems(row: Row) -> list[str]:
    """A frame's faults, or its error code."""
    wrong = [] if row["error_code"] is None else [safe_text(row["error_code"])]
    if row["validation_error"] is not None:
        wrong.append(f"invalid={safe_text(row['validation_error'])}")
    if row["checksum"] not in (None, "ok"):
        wrong.append(f"checksum={row['checksum']}")
    if row["status"] != "complete":
        wrong.append(row["status"])
    return [*wrong, "retransmitted"] if row["retransmitted"] else wrong


@lru_cache(_KEPT)
def _topic(name: str | None) -> str:
    return "" if name is None else safe_text(short_topic(name))


@lru_cache(_KEPT)
def _names(*names: str | None) -> tuple[str, ...]:
    """The texts after a topic. names: as in _NAMES."""
    words = (word for _, word in _NAMES)
    return tuple(f"{word}={_quoted(name)}" for word, name in zip(words, names, strict=True)
                 if name is not None)  # fmt: skip


def short_topic(name: str) -> str:
    """A topic in the short form that clients accept: x for persistent://public/default/x."""
    for default in _DEFAULTS:
        if name.startswith(default) and len(name) > len(default):
            return name.removeprefix(default)
    return name


def _fitted(text: str, row: Row, room: int | None) -> str:
    """The text of an error, the topic and names, cut to the room."""
    said, topic = f'"{text}"' if text else "", _topic(row["topic"])
    names = _names(row["subscription"], row["producer_name"], row["consumer_name"])
    whole = _joined(said, topic, *names)
    if room is None or columns_of(whole) <= room:
        return whole
    subscription = names[0] if row["subscription"] is not None else ""
    for kept in dict.fromkeys((subscription, "")):
        left = room - columns_of(kept) - 1 if kept else room
        whole = _joined(said, topic)
        if columns_of(whole) <= left:
            return _joined(whole, kept)
        for_topic = min(_LEAST_NAME, columns_of(topic)) + 1 if topic else 0
        short = clipped(said, max(_LEAST_NAME, left - for_topic))
        left -= columns_of(short) + 1 if short else 0
        if left >= _LEAST_NAME or not topic or not kept:
            return _joined(short, _middle(topic, left), kept)
    raise AssertionError("the last one is taken as it is")


def _joined(*texts: str) -> str:
    return " ".join(filter(None, texts))


def _quoted(name: str) -> str:
    shown = safe_text(name)
    return f'"{shown}"' if " " in shown else shown


def _middle(name: str, room: int) -> str:
    """A name without its middle: names mostly differ at the end."""
    if len(name) <= room:
        return name
    if room < 4:
        return ""
    head = (room - 1) // 3
    return f"{name[:head]}{_ELLIPSIS}{name[len(name) - (room - 1 - head) :]}"
