"""What the numbers of a report are made from: the merged rows of every query of the catalogue."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import pyarrow as pa

from dissector.queries.catalogue import RANKS, Query, catalogue
from dissector.report.numbers import Row

# How many rows the lists of single findings hold; the longest, the slowest or the first ones.
MAX_LISTED: Final = 1000  # rows of any other list; the tables of a report hold all
MAX_SLOW: Final = 50
MAX_STALLS: Final = 50
MAX_EXAMPLES: Final = 50
MAX_FAILURES: Final = 1000
MAX_INCIDENTS: Final = 500
MAX_PASSED_OVER: Final = 1000
MAX_VERDICTS: Final = 1000  # captures, the worst; the total counts all


class Parts(NamedTuple):
    """What `dissector.report.result.build` needs.

    tables: the rows of each query by its name (columns of its header, keys first), and `files`:
    capture_files. step_ns: width of the points of series over time. steps: the same of each
    capture, for series of one connection: many nights may lie between two captures of a lake.
    """

    tables: Mapping[str, pa.Table]
    step_ns: int
    steps: Mapping[str | None, int] = MappingProxyType({})

    def rows(self, name: str, keys: Sequence[str] | None = None) -> list[Row]:
        """Rows of a query.

        Args:
            keys: columns of a tally to sum up by; None: the rows as they are. A sum over nothing is
                0, a least or greatest value of nothing None.
        """
        query = catalogue().get(name)
        table = self.tables[name]
        if keys is not None and query is not None:
            table = _added_up(table, list(keys), query)
        chosen = [column for column in table.schema.names if column not in RANKS]
        found: list[Row] = table.select(chosen).to_pylist()
        for column in query.sums if query is not None else ():
            for row in found:
                row[column] = row[column] or 0
        return found


def _added_up(table: pa.Table, keys: list[str], query: Query) -> pa.Table:
    wanted = [(name, "sum") for name in query.sums]
    wanted += [(name, "min") for name in query.least]
    wanted += [(name, "max") for name in query.greatest]
    grouped = table.group_by(keys, use_threads=False).aggregate(wanted)
    columns = [grouped.column(name) for name in keys]
    columns += [grouped.column(f"{name}_{how}") for name, how in wanted]
    return pa.table(columns, names=keys + [name for name, _ in wanted])
