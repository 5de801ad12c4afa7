"""The catalogue of queries: one SQL file per query, parsed once, each with a digest.

A query is DuckDB SQL over the tables of a lake, the views of `shared_views.sql` and a few functions
(`duckdb_engine.FUNCTIONS`). It returns rows per capture. The header of an aggregation says how the
rows of several captures are merged:

    -- sends: publishes of a producer by outcome
    -- keys: topic, producer_name, outcome
    -- sums: sends, messages
    -- least: latency_ns_min
    -- greatest: latency_ns_max

`capture` is always the first column; it is a key of the merged rows only if `keys` names it. The
header of a query that lists rows gives their order and the number of rows that are returned:

    -- slow: an exchange
    -- first: 50 by latency_ns desc, request_last_ns
    -- of: kind

`of` names the columns that partition the ranking: each of their values has its own first rows.
Nulls sort last. An aggregation with `first` cuts only merged rows, not those of one capture.
"""

import hashlib
import re
from collections.abc import Container, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from dissector.queries.selection import AROUND, OF_ANY_NAME, WHOLE
from dissector.schemas import SCHEMA_VERSION

# Prefix of the names of queries that may fail; a failed one returns a row with only its `problem`.
MAY_FAIL: Final = "finding_"
# Columns added to listed rows: the rank within the capture, and among all captures.
RANKS: Final = ("rank_of_capture", "rank_of_all")
_WORD: Final = re.compile(r"[a-z_][a-z_0-9]*")
_SELECTED: Final = re.compile(rf"\b{WHOLE}|({AROUND}|{OF_ANY_NAME})\b")
_MATERIALIZED: Final = "-- materialized\n"
_COMMENT: Final = re.compile(r"--.*")
# Views with a second version over the rows around the selection (`AROUND`), and the source of each.
_ALSO_AROUND: Final = {
    "single_exchanges": "exchanges",
    "publishes": "single_exchanges",
    "received": "deliveries",
}


class SharedView(NamedTuple):
    """A view: its name, what one row is, and its query. is_materialized: the engine writes its rows
    to a table once, because they are few or expensive to compute."""

    name: str
    row: str
    query: str
    is_materialized: bool = False


class Query(NamedTuple):
    """A query of the catalogue.

    keys, sums, least, greatest: columns of an aggregation.
    first, order, of: the number of rows that are returned (0: all), the sort order as pairs
        (column, is_descending), and the columns that partition the ranking.
    digest: SHA-256 of the query, of the shared views that it reads and of the schema version.
    """

    name: str
    row: str
    text: str
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    least: tuple[str, ...]
    greatest: tuple[str, ...]
    first: int
    order: tuple[tuple[str, bool], ...]
    of: tuple[str, ...]
    digest: str

    @property
    def is_list(self) -> bool:
        """Whether the query lists rows instead of aggregating them."""
        return self.first > 0 and not self.keys

    @property
    def merging(self) -> dict[str, str]:
        """The aggregate function of each column of numbers: sum, min or max."""
        return {
            **dict.fromkeys(self.sums, "sum"),
            **dict.fromkeys(self.least, "min"),
            **dict.fromkeys(self.greatest, "max"),
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of an aggregation, in order."""
        keys = tuple(name for name in self.keys if name != "capture")
        return ("capture", *keys, *self.merging)

    def only(self, names: Container[str]) -> "Query":
        """The query with only the named columns, and the capture."""
        keys, sums, least, greatest = (
            tuple(name for name in part if name in names)
            for part in (self.keys, self.sums, self.least, self.greatest)
        )
        return self._replace(keys=keys, sums=sums, least=least, greatest=greatest)

    def per_capture(self) -> str:
        """The SQL that runs over the tables of a lake; its rows are per capture."""
        if self.is_list:
            return self._first_rows(f"(\n{self.text}\n)", ("capture", *self.of), RANKS[0])
        cells = (
            f"TRY_CAST({name} AS BIGINT) AS {name}" if name in self.merging else name
            for name in self.columns
        )
        return f"SELECT {', '.join(cells)} FROM (\n{self.text}\n) AS per_capture"

    def merged(self, source: str) -> str:
        """The SQL that merges the rows of several captures. source: the view with these rows."""
        if self.is_list:
            return self._first_rows(source, self.of, RANKS[1])
        rows = self.added_up(source, self.keys)
        return self._first_rows(f"({rows})", self.of, RANKS[1]) if self.first else rows

    def added_up(self, source: str, keys: tuple[str, ...]) -> str:
        """The SQL that aggregates the rows of `source` again, grouped by `keys`."""
        cells = [
            *keys,
            *(f"TRY_CAST({how}({name}) AS BIGINT) AS {name}" for name, how in self.merging.items()),
        ]
        grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join(cells)} FROM {source}{grouping}"

    def _first_rows(self, source: str, of: tuple[str, ...], rank: str) -> str:
        order = ", ".join(
            f"{name} {'DESC' if down else 'ASC'} NULLS LAST" for name, down in self.order
        )
        part = f"PARTITION BY {', '.join(of)} " if of else ""
        return (
            f"SELECT * FROM (SELECT *, row_number() OVER ({part}ORDER BY {order}) AS {rank} "
            f"FROM {source} AS listed) AS ranked WHERE {rank} <= {self.first}"
        )


def views(file: str) -> tuple[SharedView, ...]:
    """The views of an SQL file of this package, each after the views that it reads."""
    text = resources.files("dissector.queries").joinpath(file).read_text("utf-8")
    file_views = []
    for section in text.split("\n\n-- ")[1:]:
        title, _, query = section.partition("\n")
        name, _, row = title.partition(": ")
        is_materialized = query.startswith(_MATERIALIZED)
        query = query.removeprefix(_MATERIALIZED).strip().rstrip(";")
        file_views.append(SharedView(name, row, query, is_materialized))
    return tuple(file_views)


@cache
def shared_views(*, has_rows_around: bool = False) -> tuple[SharedView, ...]:
    """The views that queries share, each after the views that it reads.

    Args:
        has_rows_around: whether the tables with the rows around the selection exist (`selection`).
            Without them each table has all rows and is read by its own name.
    """
    files = ("shared_views.sql", "permits.sql", "consuming.sql", "subjects.sql")
    if has_rows_around:
        return tuple(each for file in files for view in views(file) for each in _variants(view))
    return tuple(
        view._replace(query=_SELECTED.sub("", view.query)) for file in files for view in views(file)
    )


def _variants(view: SharedView) -> Iterator[SharedView]:
    """A view, followed by its version over the rows around the selection if it has one."""
    yield view
    if (source := _ALSO_AROUND.get(view.name)) is not None:
        query = view.query.replace(f"FROM {source} AS", f"FROM {source}{AROUND} AS")
        yield view._replace(name=f"{view.name}{AROUND}", query=query)


@cache
def words(text: str) -> frozenset[str]:
    """All identifiers and keywords of a query in lower case, comments excluded."""
    return frozenset(_WORD.findall(_COMMENT.sub("", text).lower()))


@cache
def used_views(text: str, among: tuple[SharedView, ...] = ()) -> tuple[SharedView, ...]:
    """The shared views that a query reads, each after the views that it reads itself.

    among: views to search instead of the shared ones, in an order where none reads a later one.
    """
    used: list[SharedView] = []
    wanted = words(text)
    for view in reversed(among or shared_views()):
        if view.name in wanted:
            wanted |= words(view.query)
            used.insert(0, view)
    return tuple(used)


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (each.strip() for each in text.split(",")) if name)


def _parsed(name: str, content: str) -> Query:
    header: dict[str, str] = {}
    lines = content.splitlines()
    last = ""
    while lines and lines[0].startswith("--"):
        line = lines.pop(0)[2:]
        if line.startswith("   "):  # continues the line above
            header[last] += " " + line.strip()
            continue
        last, _, value = line.strip().partition(":")
        header[last] = value.strip()
    text = "\n".join(lines).strip().rstrip(";")
    count, _, order = header.get("first", "0 by ").partition(" by ")
    needed = "\n".join(view.query for view in used_views(text))
    digest = hashlib.sha256(f"{SCHEMA_VERSION}\n{content}\n{needed}".encode()).hexdigest()
    return Query(
        name,
        header[name],
        text,
        _split_names(header.get("keys", "")),
        _split_names(header.get("sums", "")),
        _split_names(header.get("least", "")),
        _split_names(header.get("greatest", "")),
        int(count),
        tuple((each.split()[0], each.endswith(" desc")) for each in _split_names(order)),
        _split_names(header.get("of", "")),
        digest,
    )


@cache
def catalogue(name: str = "tallies") -> Mapping[str, Query]:
    """All queries of a folder by name: `tallies`; `live`, which only a tap runs; or `exact`, whose
    rows are the values that exact percentiles are computed from."""
    folder = resources.files("dissector.queries").joinpath(name)
    files = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    names = sorted(name.removesuffix(".sql") for name in files)
    return {name: _parsed(name, files[f"{name}.sql"].read_text("utf-8")) for name in names}
