"""Collects the notices of all stages of a dissection, and sorts them in the table's order."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from dissector.blocks import Coded, Int64Array, TableBlock
from dissector.codecs.compression import UnpackResult
from dissector.limits import MAX_NAME_LENGTH, MAX_NOTICES, MAX_PROBES, NULL
from dissector.notice_rows import Notice, NoticeRows, Notices, drained, empty_rows, notice_of
from dissector.notices import NOTICES
from dissector.packet.unread import UNREAD_CODES, unread_text
from dissector.schemas.enums import DIRECTIONS
from dissector.schemas.quantities import duration_text
from dissector.schemas.tls_names import SUITE_NAMES
from dissector.tables import CROWDED, CROWDED_BEFORE, CUT_WALKS, hash_tables

DIRECTION_NAMES: Final = tuple(DIRECTIONS)
_LAST: Final = (1 << 63) - 1
_COLUMNS: Final = len(NoticeRows._fields)
_NAME: Final = NoticeRows._fields.index("name")
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
# The same of its second number.
_SECOND_WORDS: Final[dict[str, dict[int, str]]] = {"tls_bad_record": SUITE_NAMES}
# Notices whose first or second number is a duration in ns.
_DURATIONS: Final = frozenset(("clock_step", "clock_unsteady", "two_clocks"))
_SECOND_DURATIONS: Final = frozenset(("interface_up",))


# The rank of each kind by its code, and its sentence where it holds no number.
_RANKS: Final = np.argsort(np.argsort([kind.code for kind in NOTICES], kind="stable"))
_CONSTANT: Final = ["" if "{" in kind.sentence else kind.sentence for kind in NOTICES]
_VARIES: Final = np.array([sentence == "" for sentence in _CONSTANT])


class NoticeLog:
    """Collects notices, up to a limit: hostile input must not fill the memory.

    Its rows are matrices of NoticeRows.
    """

    def __init__(self) -> None:
        self._parts: list[Int64Array] = []
        self._names: list[str] = []
        self._count = 0
        self._dropped = 0

    def note(self, code: str, **numbers: int) -> None:
        """Add one notice by its code. numbers: fields of a Notice."""
        self.add([notice_of(code, **numbers)])

    def add(self, notices: Iterable[Notice]) -> None:
        """Add notices; those beyond MAX_NOTICES are only counted."""
        cells = np.fromiter(chain.from_iterable(notices), np.int64)
        self.add_rows(cells.reshape(-1, _COLUMNS))

    def add_rows(self, rows: Int64Array) -> None:
        """Add rows of notices, as `add` does; keeps the matrix."""
        kept = min(len(rows), MAX_NOTICES - self._count)
        self._count += kept
        self._dropped += len(rows) - kept
        if kept:
            self._parts.append(rows[:kept])

    def drain(self, notices: Notices) -> None:
        """Add and clear the notices that kernels wrote, as `add` does."""
        if notices.used[0]:
            self.add_rows(drained(notices))

    def name(self, text: str) -> int:
        """Return the index of a name for a notice of this log."""
        self._names.append(text)
        return len(self._names) - 1

    def take(self, *others: "NoticeLog") -> None:
        """Move all notices and counts of other logs to this one."""
        for other in others:
            if not (other._parts or other._names or other._dropped):
                continue
            for part in other._parts:
                names = part[:, _NAME]
                names[names != NULL] += len(self._names)
                self.add_rows(part)
            self._names += other._names
            self._dropped += other._dropped
            other._dropped = 0
            other._forget()

    def count(self, notices: int) -> None:
        """Count notices that are not listed."""
        self._dropped += notices

    def rows(self) -> list[Notice]:
        """All notices so far."""
        return [Notice(*row) for part in self._parts for row in part.tolist()]

    def block(self) -> TableBlock:
        """Return and clear all notices as rows of the table, in its order."""
        if self._dropped:
            self._parts.append(np.array([notice_of("notices_limit", value=self._dropped)]))
            self._dropped = 0
        cells = np.concatenate([empty_rows(0), *self._parts])
        order = _in_order(NoticeRows(cells), self._names)
        fields = np.ascontiguousarray(cells[order].T)
        column = dict(zip(NoticeRows._fields, fields, strict=True))
        texts = _sentences(column, self._names)
        self._forget()
        return TableBlock(
            "notices",
            len(order),
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
                "text": texts,
            },
        )

    def _forget(self) -> None:
        self._parts, self._names, self._count = [], [], 0


def _in_order(rows: NoticeRows, names: Sequence[str]) -> Int64Array:
    """Numbers of rows in the table's order.

    That is by packet, then frame (null last), connection, direction, offset, code, value and name.
    """
    last = [
        np.where(column == NULL, _LAST, column)
        for column in (rows.connection_id, rows.frame_no, rows.packet)
    ]
    texts = np.array(["", *names])[np.where(rows.name == NULL, 0, rows.name + 1)]
    keys = (rows.value, _RANKS[rows.kind], rows.stream_offset, rows.direction, *last)
    return np.lexsort((texts, *keys))


def _sentences(column: Mapping[str, Int64Array], names: Sequence[str]) -> Coded:
    """Return the sentences of notices; formats each distinct one once, as floods repeat them."""
    codes, texts = column["kind"].copy(), list(_CONSTANT)
    known: dict[tuple[int, ...], int] = {}
    rows = np.flatnonzero(_VARIES[codes])
    cells = (column[name][rows].tolist() for name in ("kind", "value", "value2", "name"))
    for row, *numbers in zip(rows.tolist(), *cells, strict=True):
        code = known.setdefault(tuple(numbers), len(texts))
        if code == len(texts):
            kind, value, value2, name = numbers
            notice = Notice(kind, value=value, value2=value2)
            texts.append(sentence_of(notice, "" if name == NULL else names[name]))
        codes[row] = code
    return Coded(codes, texts)


def of_limits(*memories: Any, crowded: int = 0) -> list[Notice]:
    """Return notices about limits that searches in the tables of states reached.

    crowded: searches of other tables that took more than MAX_PROBES steps.
    """
    cut = 0
    for memory in memories:
        for table in hash_tables(memory):
            crowded += int(table.counts[CROWDED] + table.counts[CROWDED_BEFORE])
            cut += int(table.counts[CUT_WALKS])
    notices = (
        notice_of("probe_limit", value=crowded, value2=MAX_PROBES),
        notice_of("walk_limit", value=cut),
    )
    return [notice for notice in notices if notice.value]


def of_long_names(cut: int) -> list[Notice]:
    """Return notices about names that were cut."""
    return [notice_of("long_names_limit", value=cut, value2=MAX_NAME_LENGTH)] if cut else []


def sentence_of(notice: Notice, name: str = "") -> str:
    """The sentence of a notice with its numbers, or the words that stand for them, and its name."""
    code = NOTICES[notice.kind].code
    if code in UNREAD_CODES:
        return unread_text(code, notice.value, notice.value2)
    words, seconds = _WORDS.get(code, {}), _SECOND_WORDS.get(code, {})
    value: int | str = "?" if notice.value == NULL else words.get(notice.value, notice.value)
    value2: int | str = "?" if notice.value2 == NULL else seconds.get(notice.value2, notice.value2)
    if code in _DURATIONS and value != "?":
        value = duration_text(notice.value / 1_000_000)
    if code in _SECOND_DURATIONS and value2 != "?":
        value2 = duration_text(notice.value2 / 1_000_000)
    return NOTICES[notice.kind].sentence.format(value=value, value2=value2, name=name)
