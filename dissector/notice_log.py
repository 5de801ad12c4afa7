"""Notices of all stages of a dissection, gathered and brought into the order of the table."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, starmap
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import Coded, Int64Array, TableBlock
from dissector.codecs.compression import UnpackResult
from dissector.limits import MAX_NAME_LENGTH, MAX_NOTICES, MAX_PROBES, NULL
from dissector.notices import NOTICE_NUMBER, NOTICES
from dissector.packet.unread import UNREAD_CODES, unread_text
from dissector.schemas.enums import DIRECTIONS
from dissector.tables import CROWDED, CROWDED_BEFORE, CUT_WALKS, hash_tables

DIRECTION_NAMES: Final = tuple(DIRECTIONS)
_LAST: Final = (1 << 63) - 1
# What a notice's number says, where it is no number of anything.
_WORDS: Final[dict[str, dict[int, str]]] = {
    "entry_not_opened": {
        UnpackResult.UNKNOWN_CODEC: "a codec of which nothing is known",
        UnpackResult.TOO_LARGE: "larger than the bound on what is unpacked",
        UnpackResult.WRONG_SIZE: "it unpacks to another size than announced",
        UnpackResult.CORRUPT: "not what its codec says",
        UnpackResult.OVER_BUDGET: "the entries so far unpack to too many times their size",
    }
}


class Notice(NamedTuple):
    """One notice; limits.NULL where a number is not known.

    kind: number in notices.NOTICES.
    direction: index in DIRECTION_NAMES.
    name: of the wire format.
    """

    kind: int
    ts_ns: int = NULL
    connection_id: int = NULL
    direction: int = NULL
    frame_no: int = NULL
    packet: int = NULL
    stream_offset: int = NULL
    bytes: int = NULL
    value: int = NULL
    value2: int = NULL
    name: str = ""


# What a notice is but for its name: the columns of those that kernels write.
NUMBERS: Final = Notice._fields[:-1]
_NAME: Final = attrgetter("name")
# The rank of each kind by its code, and its sentence where it holds no number.
_RANKS: Final = np.argsort(np.argsort([kind.code for kind in NOTICES], kind="stable"))
_CONSTANT: Final = ["" if "{" in kind.sentence else kind.sentence for kind in NOTICES]
_VARIES: Final = np.array([sentence == "" for sentence in _CONSTANT])


_Part = list[Notice] | Int64Array


def _cells(part: _Part) -> Int64Array:
    """The numbers of notices: int64[rows, NUMBERS]."""
    if isinstance(part, np.ndarray):
        return part
    numbers = chain.from_iterable(row[:-1] for row in part)
    return np.fromiter(numbers, np.int64, len(part) * len(NUMBERS)).reshape(-1, len(NUMBERS))


def _notices_of(part: _Part) -> Iterable[Notice]:
    return starmap(Notice, part.tolist()) if isinstance(part, np.ndarray) else part


def _names_of(part: _Part) -> list[str]:
    return [""] * len(part) if isinstance(part, np.ndarray) else list(map(_NAME, part))


def _in_order(parts: list[_Part]) -> tuple[Int64Array, list[str]]:
    """Numbers of notices as int64[fields, rows], and their names, in the table's order.

    That is by packet, then frame (null last), connection, direction, offset, code, value and name.
    """
    cells = np.concatenate([np.empty((0, len(NUMBERS)), np.int64), *map(_cells, parts)])
    names = [name for part in parts for name in _names_of(part)]
    column = dict(zip(NUMBERS, cells.T, strict=True))
    last = [
        np.where(column[name] == NULL, _LAST, column[name])
        for name in ("connection_id", "frame_no", "packet")
    ]
    places = {name: place for place, name in enumerate(sorted(set(names)))}
    by_name = np.fromiter(map(places.__getitem__, names), np.int64, len(names))
    ranks = _RANKS[column["kind"]]
    keys = (column["value"], ranks, column["stream_offset"], column["direction"], *last)
    order = np.lexsort((by_name, *keys))
    return np.ascontiguousarray(cells[order].T), [names[at] for at in order.tolist()]


class NoticeLog:
    """Gathers notices; a bound keeps hostile input from filling the memory."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._count = 0
        self._dropped = 0

    def add(self, notices: Iterable[Notice]) -> None:
        """Take notices; what is beyond MAX_NOTICES is only counted."""
        rows = notices if isinstance(notices, list) else list(notices)
        kept = self._kept(len(rows))
        if kept:
            if not self._parts or isinstance(self._parts[-1], np.ndarray):
                self._parts.append([])
            last = self._parts[-1]
            assert isinstance(last, list)
            last += rows[:kept]

    def add_numbers(self, rows: Int64Array) -> None:
        """Take notices without names as `add` does. rows: int64[notices, NUMBERS], kept."""
        kept = self._kept(len(rows))
        if kept:
            self._parts.append(rows[:kept])

    def take(self, other: "NoticeLog") -> None:
        """Take all notices of another log, which forgets them; what it only counted counts on."""
        parts, other._parts = other._parts, []
        self._dropped += other._dropped
        other._count = other._dropped = 0
        for part in parts:
            if isinstance(part, np.ndarray):
                self.add_numbers(part)
            else:
                self.add(part)

    def _kept(self, notices: int) -> int:
        """How many of the next ones there is room for."""
        kept = min(notices, MAX_NOTICES - self._count)
        self._count += kept
        self._dropped += notices - kept
        return kept

    def count(self, notices: int) -> None:
        """Count notices that are not listed."""
        self._dropped += notices

    def drain(self) -> list[Notice]:
        """All notices so far, which this object forgets."""
        self._tell_dropped()
        taken = self.rows()
        self._parts, self._count = [], 0
        return taken

    def rows(self) -> list[Notice]:
        """All notices so far."""
        return [row for part in self._parts for row in _notices_of(part)]

    def _tell_dropped(self) -> None:
        """A notice of those that are not listed."""
        if self._dropped:
            kind = NOTICE_NUMBER["notices_limit"]
            self._parts.append([Notice(kind, value=self._dropped)])
            self._dropped = 0

    def block(self) -> TableBlock:
        """All notices as rows of the table, in its order."""
        self._tell_dropped()
        cells, names = _in_order(self._parts)
        self._parts, self._count = [], 0
        column = dict(zip(NUMBERS, cells, strict=True))
        return TableBlock(
            "notices",
            len(names),
            {
                "ts": column["ts_ns"],
                "severity": Coded(column["kind"], [kind.severity for kind in NOTICES]),
                "code": Coded(column["kind"], [kind.code for kind in NOTICES]),
                "connection_id": column["connection_id"],
                "direction": Coded(column["direction"], DIRECTION_NAMES),
                "frame_no": column["frame_no"],
                "packet": column["packet"],
                "stream_offset": column["stream_offset"],
                "bytes": column["bytes"],
                "text": _sentences(column, names),
            },
        )


def _sentences(column: Mapping[str, Int64Array], names: Sequence[str]) -> Coded:
    """The sentences of notices: of a flood nearly all say the same, so each is written once."""
    codes, texts = column["kind"].copy(), list(_CONSTANT)
    known: dict[Notice, int] = {}
    rows = np.flatnonzero(_VARIES[codes])
    cells = (column[name][rows].tolist() for name in ("kind", "value", "value2"))
    for row, kind, value, value2 in zip(rows.tolist(), *cells, strict=True):
        notice = Notice(kind, value=value, value2=value2, name=names[row])
        code = known.setdefault(notice, len(texts))
        if code == len(texts):
            texts.append(sentence_of(notice))
        codes[row] = code
    return Coded(codes, texts)


def of_limits(*memories: Any, crowded: int = 0) -> list[Notice]:
    """What to say of bounds that searches in the tables of some states hit.

    crowded: searches of other tables that took more than MAX_PROBES steps.
    """
    cut = 0
    for memory in memories:
        for table in hash_tables(memory):
            crowded += int(table.counts[CROWDED] + table.counts[CROWDED_BEFORE])
            cut += int(table.counts[CUT_WALKS])
    notices = (
        Notice(NOTICE_NUMBER["probe_limit"], value=crowded, value2=MAX_PROBES),
        Notice(NOTICE_NUMBER["walk_limit"], value=cut),
    )
    return [notice for notice in notices if notice.value]


def of_long_names(cut: int) -> list[Notice]:
    """What to say when so often a name was cut."""
    kind = NOTICE_NUMBER["long_names_limit"]
    return [Notice(kind, value=cut, value2=MAX_NAME_LENGTH)] if cut else []


def sentence_of(notice: Notice) -> str:
    """The sentence of a notice with its numbers, or the words that stand for them."""
    code = NOTICES[notice.kind].code
    if code in UNREAD_CODES:
        return unread_text(code, notice.value, notice.value2)
    words = _WORDS.get(code, {})
    value = "?" if notice.value == NULL else words.get(notice.value, notice.value)
    value2 = "?" if notice.value2 == NULL else notice.value2
    return NOTICES[notice.kind].sentence.format(value=value, value2=value2, name=notice.name)
