"""Notices of all stages of a dissection, gathered and brought into the order of the table."""

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import Coded, Int64Array, TableBlock
from dissector.codecs import compression
from dissector.limits import MAX_NAME_LENGTH, MAX_NOTICES, MAX_PROBES, NULL
from dissector.notices import NOTICE_NUMBER, NOTICES
from dissector.packet.unread import UNREAD_CODES, unread_text
from dissector.schemas.enums import DIRECTIONS
from dissector.tables import CROWDED, CROWDED_BEFORE, CUT_WALKS, hash_tables

DIRECTION_NAMES: Final = tuple(DIRECTIONS)
_LAST: Final = (1 << 63) - 1
# What a notice's number says, where it is no number of anything.
_WORDS: Final = {
    "entry_not_opened": {
        compression.UNKNOWN_CODEC: "a codec of which nothing is known",
        compression.TOO_LARGE: "larger than the bound on what is unpacked",
        compression.WRONG_SIZE: "it unpacks to another size than announced",
        compression.CORRUPT: "not what its codec says",
        compression.OVER_BUDGET: "the entries so far unpack to too many times their size",
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


_NUMBERS: Final = Notice._fields[:-1]
_NAME: Final = attrgetter("name")
# The rank of each kind by its code, and its sentence where it holds no number.
_RANKS: Final = np.argsort(np.argsort([kind.code for kind in NOTICES], kind="stable"))
_CONSTANT: Final = [None if "{" in kind.sentence else kind.sentence for kind in NOTICES]


def _in_order(rows: list[Notice]) -> tuple[Int64Array, list[str]]:
    """Numbers of notices as int64[fields, rows], and their names, in the table's order.

    That is by packet, then frame (null last), connection, direction, offset, code, value and name.
    """
    rows = sorted(rows, key=_NAME)
    numbers = chain.from_iterable(row[:-1] for row in rows)
    cells = np.fromiter(numbers, np.int64, len(rows) * len(_NUMBERS))
    cells = cells.reshape(len(rows), len(_NUMBERS))
    column = dict(zip(_NUMBERS, cells.T, strict=True))
    last = [
        np.where(column[name] == NULL, _LAST, column[name])
        for name in ("connection_id", "frame_no", "packet")
    ]
    ranks = _RANKS[column["kind"]]
    keys = (column["value"], ranks, column["stream_offset"], column["direction"], *last)
    order = np.lexsort(keys)
    return np.ascontiguousarray(cells[order].T), [rows[at].name for at in order.tolist()]


class NoticeLog:
    """Gathers notices; a bound keeps hostile input from filling the memory."""

    def __init__(self) -> None:
        self._rows: list[Notice] = []
        self._dropped = 0

    def add(self, notices: Iterable[Notice]) -> None:
        """Take notices; what is beyond MAX_NOTICES is only counted."""
        for notice in notices:
            if len(self._rows) < MAX_NOTICES:
                self._rows.append(notice)
            else:
                self._dropped += 1

    def count(self, notices: int) -> None:
        """Count notices that are not listed."""
        self._dropped += notices

    def drain(self) -> list[Notice]:
        """All notices so far, which this object forgets."""
        if self._dropped:
            self._rows.append(Notice(NOTICE_NUMBER["notices_limit"], value=self._dropped))
        taken, self._rows, self._dropped = self._rows, [], 0
        return taken

    def block(self) -> TableBlock:
        """All notices as rows of the table, in its order."""
        if self._dropped:
            kind = NOTICE_NUMBER["notices_limit"]
            self._rows.append(Notice(kind, value=self._dropped))
        cells, names = _in_order(self._rows)
        self._rows = []
        column = dict(zip(_NUMBERS, cells, strict=True))
        kinds, values, values2 = (column[name].tolist() for name in ("kind", "value", "value2"))
        return TableBlock(
            "notices",
            len(kinds),
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
                "text": [
                    _CONSTANT[kind] or sentence_of(Notice(kind, value=one, value2=two, name=name))
                    for kind, one, two, name in zip(kinds, values, values2, names, strict=True)
                ],
            },
        )


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
