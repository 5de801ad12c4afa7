"""What the numbers of a report are made from: the merged rows of every query of the catalogue.

They also tell what was captured of connections: directions, protocols, and frames that were seen
but not read. The command of such a frame is known, what it was about is not; a count of deliveries
would then say less than happened, or nothing at all.
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
from dissector.report.numbers import Row, high, low, nulls_last, step_ns, unseen
from dissector.schemas.builders import number_values
from dissector.schemas.enums import BOTH_DIRECTIONS

# Up to this many rows, sections add up sooner than arrays do.
_FEW: Final = 50
# How arrays are added up, and what adds nothing.
_ADDING: Final = {
    "sum": (np.add, 0),
    "min": (np.minimum, np.iinfo(np.int64).max),
    "max": (np.maximum, NULL),
}


class MergedTables(NamedTuple):
    """What `dissector.report.result.build` needs.

    tables: the rows of each query by its name (columns of its header, keys first), and `files`:
        capture_files; of one capture among many as dicts, else as a table.
    step_ns: width of the points of series over time.
    steps: the same of each capture, for series of one connection: many nights may lie between two
        captures of a lake.
    only_totals: whether lists and series over time, which no verdict needs, may be left out.
    """

    tables: Mapping[str, pa.Table | list[Row]]
    step_ns: int
    steps: Mapping[str | None, int] = MappingProxyType({})
    only_totals: bool = False

    def rows(self, name: str, keys: Sequence[str] | None = None) -> list[Row]:
        """Rows of a query, which are the caller's to change.

        Args:
            keys: columns of a tally by which the caller adds rows up. Many rows are merged by them
                before, which is quicker; few come as they are.
        """
        query = catalogue().get(name)
        table = self.tables[name]
        if isinstance(table, pa.Table):
            # By all keys of the query there is nothing to add up.
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
    """The parts of nothing."""
    names = ("files", *catalogue(), *rule_queries())
    return MergedTables({name: [] for name in names}, 1_000_000)


def _merged(table: pa.Table, keys: Sequence[str], query: Query) -> list[Row]:
    """The rows that `Query.added_up` gives, of a table that is in memory, in the order of first
    rows.

    Functions of Arrow are not used: to load them takes as long as a small report's queries.
    """
    columns = [column_values(table.column(name)) for name in keys]
    places: dict[tuple[Any, ...], int] = {}  # of groups, by their keys
    each_key = zip(*columns, strict=True) if keys else [()] * table.num_rows
    groups = np.array([places.setdefault(key, len(places)) for key in each_key], np.int64)
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
        for key, *numbers in zip(places, *added, strict=True)
    ]


class _RowsOfCapture(dict[str, list[Row]]):
    """The rows of one capture by the name of their query; those that nobody asks for stay Arrow."""

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
    """The parts of every capture that has files, in the order of their names, for its totals.

    Args:
        tables: the rows of each query per capture, not merged yet, and `files`.
    """

    @cache
    def split(name: str) -> dict[Any, list[Row]]:
        by_capture: dict[Any, list[Row]] = {}
        rows = tables[name]
        for row in plain_rows(rows) if isinstance(rows, pa.Table) else rows:
            by_capture.setdefault(row["capture"], []).append(row)
        return by_capture

    for capture in sorted(split("files"), key=nulls_last):
        mine = _RowsOfCapture(split, capture)
        first = low(row["first_ts_ns"] for row in mine["files"])
        last = high(row["last_ts_ns"] for row in mine["files"])
        step = step_ns(first or 0, last or 0)
        yield capture, MergedTables(mine, step, {capture: step}, only_totals=True)


# -- what was captured


def one_way_connections(merged: MergedTables) -> dict[str, int]:
    """Connections of a known protocol of which a direction is missing, by that direction."""
    read = [row for row in merged.rows("directions") if row["protocol"] in PROTOCOL_NAMES]
    return {
        direction: sum(row[f"without_{direction}"] for row in read) for direction in BOTH_DIRECTIONS
    }


def is_direction_missing(merged: MergedTables, direction: str) -> bool:
    """Whether nothing of a direction was captured, of any connection of a known protocol.

    What travels in it was not seen then, which is something else than that there was none.
    """
    read = [row for row in merged.rows("directions") if row["protocol"] in PROTOCOL_NAMES]
    connections: int = sum(row["connections"] for row in read)
    return 0 < connections == one_way_connections(merged)[direction]


def is_without_permits(merged: MergedTables) -> bool:
    """Whether all that was read is of protocols that have no permits and no checksums."""
    names = {row["protocol"] for row in merged.rows("directions")}
    return not names.isdisjoint(PROTOCOL_NAMES) and names.isdisjoint(GRANTING)


def proxy_peer_count(merged: MergedTables) -> int:
    """How many connections are left out because another one carries the same frames."""
    return sum(row["twins"] for row in merged.rows("directions"))


def unread(merged: MergedTables, *kinds: str) -> int:
    """Frames of some kinds without a row in the table that they should be in: see unread.sql."""
    return sum(row["unread"] for row in merged.rows("unread") if row["kind"] in kinds)


def with_unread(section: Row, reason: str, count: int, counted: str, keys: Iterable[str]) -> Row:
    """A section whose total tells the frames that were not read; None where none could be.

    Args:
        section: with `total` and lists of the same keys.
        reason: of `count` in not_judged. counted: the number of those that were read.
        keys: what is counted in such frames.
    """
    if not count:
        return section
    total = section["total"]
    total["not_judged"] = dict(sorted((total["not_judged"] | {reason: count}).items()))
    if total[counted]:
        return section
    return section | {"total": unseen(total, *keys)}
