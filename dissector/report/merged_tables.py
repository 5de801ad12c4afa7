"""The input of a report's sections: the merged rows of every query of the catalogue.

The functions at the end say what was captured of connections: directions, protocols, and unread
frames. The command of an unread frame is known, its fields are not; so a count of deliveries, for
one, is then too low or unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from dissector.findings.querying import rule_queries
from dissector.limits import NULL
from dissector.protocols import GRANTING, PROTOCOL_NAMES
from dissector.queries.catalogue import RANKS, Query, catalogue
from dissector.queries.plain_values import column_values, plain_rows
from dissector.queries.selection import EVERYTHING, Selection
from dissector.report.numbers import Row, high, low, nulls_last, step_ns, unseen
from dissector.schemas.builders import number_values
from dissector.schemas.enums import BOTH_DIRECTIONS

# Up to this many rows, sums of the sections' Python are faster than those of arrays.
_FEW: Final = 50
# Each aggregation's function over arrays, and its neutral value.
_ADDING: Final = {
    "sum": (np.add, 0),
    "min": (np.minimum, np.iinfo(np.int64).max),
    "max": (np.maximum, NULL),
}


class MergedTables(NamedTuple):
    """The input of `dissector.report.result.build`.

    tables: the rows of each query by its name (columns of its header, keys first), and `files`:
        capture_files; of one capture among many as dicts, else as a table.
    step_ns: width of the points of series over time.
    steps: width per capture, for series of one connection: days may lie between two captures of a
        lake.
    selection: of rows, which the queries apply but for names that only a section can find out.
    only_totals: whether sections may leave out lists and series over time: verdicts need neither.
    """

    tables: Mapping[str, pa.Table | list[Row]]
    step_ns: int
    steps: Mapping[str | None, int] = MappingProxyType({})
    selection: Selection = EVERYTHING
    only_totals: bool = False

    def rows(self, name: str, keys: Sequence[str] | None = None) -> list[Row]:
        """Rows of a query, as dicts that the caller may change.

        Args:
            keys: columns by which the caller sums rows. More than `_FEW` rows are merged by these
                keys first, which is faster; fewer are returned unmerged.
        """
        query = catalogue().get(name)
        table = self.tables[name]
        if isinstance(table, pa.Table):
            # Rows are merged by all keys of the query already.
            if keys is None or query is None or table.num_rows <= _FEW or {*query.keys} <= {*keys}:
                table = plain_rows(table)
            else:
                table = _merged(table, keys, query)
        else:
            table = [row.copy() for row in table]
        if query is None:
            return table
        for column in query.sums:  # a sum over nothing
            for row in table:
                row[column] = row[column] or 0
        for column in RANKS if query.is_list else ():
            for row in table:
                row.pop(column, None)
        return table


def empty_tables() -> MergedTables:
    """Tables without rows."""
    names = ("files", *catalogue(), *rule_queries())
    return MergedTables({name: [] for name in names}, 1_000_000)


def _merged(table: pa.Table, keys: Sequence[str], query: Query) -> list[Row]:
    """`Query.added_up` of a table in memory: its rows, groups in the order of their first rows.

    Arrow's compute functions are not used: loading them takes as long as a small report's queries.
    """
    columns = [column_values(table.column(name)) for name in keys]
    numbers_by_key: dict[tuple[Any, ...], int] = {}  # group numbers
    each_key = zip(*columns, strict=True) if keys else [()] * table.num_rows
    groups = np.array(
        [numbers_by_key.setdefault(key, len(numbers_by_key)) for key in each_key], np.int64
    )
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    added: list[list[int | None]] = []
    for name, how in query.merging.items():
        values = number_values(table.column(name).combine_chunks())[order]
        is_there = values != NULL
        add_up, nothing = _ADDING[how]
        sums = add_up.reduceat(np.where(is_there, values, nothing), starts).tolist()
        is_any = np.logical_or.reduceat(is_there, starts).tolist()
        added.append([one if has else None for one, has in zip(sums, is_any, strict=True)])
    names = (*keys, *query.merging)
    return [
        dict(zip(names, (*key, *numbers), strict=True))
        for key, *numbers in zip(numbers_by_key, *added, strict=True)
    ]


class _RowsOfCapture(dict[str, list[Row]]):
    """The rows of one capture by query name; a query's rows become dicts at their first use."""

    def __init__(self, split: Callable[[str], dict[Any, list[Row]]], capture: str | None) -> None:
        super().__init__()
        self._split = split
        self._capture = capture

    def __missing__(self, name: str) -> list[Row]:
        rows = self[name] = self._split(name).get(self._capture, [])
        return rows


def tables_by_capture(
    tables: Mapping[str, pa.Table | list[Row]],
) -> Iterator[tuple[str | None, MergedTables]]:
    """The tables of each capture that has files, by name, in the order of names; for totals only.

    Args:
        tables: the rows of each query per capture, unmerged, and `files`.
    """

    @cache
    def split(name: str) -> dict[Any, list[Row]]:
        by_capture: dict[Any, list[Row]] = {}
        rows = tables[name]
        for row in plain_rows(rows) if isinstance(rows, pa.Table) else rows:
            by_capture.setdefault(row["capture"], []).append(row)
        return by_capture

    for capture in sorted(split("files"), key=nulls_last):
        rows_of = _RowsOfCapture(split, capture)
        first = low(row["first_ts_ns"] for row in rows_of["files"])
        last = high(row["last_ts_ns"] for row in rows_of["files"])
        step = step_ns(first or 0, last or 0)
        yield capture, MergedTables(rows_of, step, {capture: step}, only_totals=True)


# -- what was captured


def one_way_connections(merged: MergedTables) -> dict[str, int]:
    """The number of connections of a known protocol that lack a direction, by that direction."""
    read = [row for row in merged.rows("directions") if row["protocol"] in PROTOCOL_NAMES]
    return {
        direction: sum(row[f"without_{direction}"] for row in read) for direction in BOTH_DIRECTIONS
    }


def is_direction_missing(merged: MergedTables, direction: str) -> bool:
    """Whether a direction was captured of no connection of a known protocol.

    Frames of that direction are then unknown, which differs from none.
    """
    read = [row for row in merged.rows("directions") if row["protocol"] in PROTOCOL_NAMES]
    connections: int = sum(row["connections"] for row in read)
    return 0 < connections == one_way_connections(merged)[direction]


def is_without_permits(merged: MergedTables) -> bool:
    """Whether all decoded connections are of protocols without permits and checksums."""
    names = {row["protocol"] for row in merged.rows("directions")}
    return not names.isdisjoint(PROTOCOL_NAMES) and names.isdisjoint(GRANTING)


def proxy_peer_count(merged: MergedTables) -> int:
    """The number of connections left out as copies: another connection carries the same frames."""
    return sum(row["twins"] for row in merged.rows("directions"))


def unread(merged: MergedTables, *kinds: str) -> int:
    """The number of frames of some kinds that lack a row in their table: see unread.sql."""
    return sum(row["unread"] for row in merged.rows("unread") if row["kind"] in kinds)


def with_unread(section: Row, reason: str, count: int, counted: str, keys: Iterable[str]) -> Row:
    """A section that counts its unread frames; its numbers are None if none of them was read.

    Args:
        section: with `total` and lists of the same keys.
        reason: key of `count` in `not_evaluated_by_reason`.
        counted: key of the number of read frames.
        keys: of the counts that such frames would add to.
    """
    if not count:
        return section
    total = section["total"]
    total["not_evaluated_by_reason"] = dict(
        sorted((total["not_evaluated_by_reason"] | {reason: count}).items())
    )
    if total[counted]:
        return section
    return section | {"total": unseen(total, *keys)}
