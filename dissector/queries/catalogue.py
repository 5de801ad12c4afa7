"""The queries that numbers are made of: one file of SQL per tally, read once, with its digest.

A query's text is SQL of DuckDB over the tables of a lake, the views of `shared_views.sql` and a
few functions (`duckdb_engine.FUNCTIONS`). It gives rows per capture. Its header says how rows of
several captures become one:

    -- sends: publishes of a producer by outcome
    -- keys: topic, producer_name, outcome
    -- sums: sends, messages
    -- least: latency_ns_min
    -- greatest: latency_ns_max

Such a query is a tally. `capture` is always its first column, and a key of the merged rows only
where `keys` names it. A query that lists rows says which come first, and how many are kept:

    -- slow: an exchange
    -- first: 50 by latency_ns desc, request_last_ns
    -- of: kind

`of`, where it is given, names columns of which each value has its own first rows. Nulls are last. A
tally that says so keeps all rows of each capture, and of the merged ones the first.
"""

import hashlib
import re
from collections.abc import Container, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from dissector.queries.selection import AROUND, WHOLE
from dissector.schemas import SCHEMA_VERSION

# Names of queries that may fail begin so. What they would have found is missing then: their one row
# has no capture, and says why in `problem`.
MAY_FAIL: Final = "finding_"
# Further columns of listed rows: their rank within their capture, and of all.
RANKS: Final = ("rank_of_capture", "rank_of_all")
_WORD: Final = re.compile(r"[a-z_][a-z_0-9]*")
_WHOLE: Final = re.compile(rf"\b{WHOLE}")
_MATERIALIZED: Final = "-- materialized\n"
_COMMENT: Final = re.compile(r"--.*")
# Views of which there is a second one, of the rows around what is selected, and what each reads.
_ALSO_AROUND: Final = {
    "single_exchanges": "exchanges",
    "publishes": "single_exchanges",
    "received": "deliveries",
}


class SharedView(NamedTuple):
    """A view: its name, what one row of it is, and its query; is_materialized: its rows are made
    once, before they are read: they are few, or dear to make."""

    name: str
    row: str
    query: str
    is_materialized: bool = False


class Query(NamedTuple):
    """A query of the catalogue.

    keys, sums, least, greatest: columns of a tally.
    first, order, of: of a list of rows, how many, by (column, is_descending), of each value of
        which columns; of a tally likewise, where `first` is not 0.
    digest: of all text that it depends on.
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
        """Whether its rows are listed, and not summed."""
        return self.first > 0 and not self.keys

    @property
    def merging(self) -> dict[str, str]:
        """How the numbers of several rows become one: sum, min or max, by column."""
        return {
            **dict.fromkeys(self.sums, "sum"),
            **dict.fromkeys(self.least, "min"),
            **dict.fromkeys(self.greatest, "max"),
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a tally, in order."""
        keys = tuple(name for name in self.keys if name != "capture")
        return ("capture", *keys, *self.merging)

    def only(self, names: Container[str]) -> "Query":
        """The query with some of its columns, and the capture."""
        keys, sums, least, greatest = (
            tuple(name for name in part if name in names)
            for part in (self.keys, self.sums, self.least, self.greatest)
        )
        return self._replace(keys=keys, sums=sums, least=least, greatest=greatest)

    def per_capture(self) -> str:
        """The query as it is run over the tables of a lake."""
        if self.is_list:
            return self._foremost(f"(\n{self.text}\n)", ("capture", *self.of), RANKS[0])
        cells = (
            f"TRY_CAST({name} AS BIGINT) AS {name}" if name in self.merging else name
            for name in self.columns
        )
        return f"SELECT {', '.join(cells)} FROM (\n{self.text}\n) AS found"

    def merged(self, source: str) -> str:
        """The query that puts rows of several captures together. source: the view of them."""
        if self.is_list:
            return self._foremost(source, self.of, RANKS[1])
        rows = self.added_up(source, self.keys)
        return self._foremost(f"({rows})", self.of, RANKS[1]) if self.first else rows

    def added_up(self, source: str, keys: tuple[str, ...]) -> str:
        """The sums of sums, the least of the least, by some of the keys."""
        cells = [
            *keys,
            *(f"TRY_CAST({how}({name}) AS BIGINT) AS {name}" for name, how in self.merging.items()),
        ]
        grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join(cells)} FROM {source}{grouping}"

    def _foremost(self, source: str, of: tuple[str, ...], rank: str) -> str:
        order = ", ".join(
            f"{name} {'DESC' if down else 'ASC'} NULLS LAST" for name, down in self.order
        )
        part = f"PARTITION BY {', '.join(of)} " if of else ""
        return (
            f"SELECT * FROM (SELECT *, row_number() OVER ({part}ORDER BY {order}) AS {rank} "
            f"FROM {source} AS listed) AS ranked WHERE {rank} <= {self.first}"
        )


def views(file: str) -> tuple[SharedView, ...]:
    """The views of a file of this package, in the order in which they can be made."""
    text = resources.files("dissector.queries").joinpath(file).read_text("utf-8")
    file_views = []
    for piece in text.split("\n\n-- ")[1:]:
        head, _, query = piece.partition("\n")
        name, _, row = head.partition(": ")
        is_materialized = query.startswith(_MATERIALIZED)
        query = query.removeprefix(_MATERIALIZED).strip().rstrip(";")
        file_views.append(SharedView(name, row, query, is_materialized))
    return tuple(file_views)


@cache
def shared_views(*, has_rows_around: bool = False) -> tuple[SharedView, ...]:
    """The views that queries share, in the order in which they can be made.

    Args:
        has_rows_around: tables with the rows around what is selected are there (`selection`). Else
            each table has all of them, and is read by its own name.
    """
    files = ("shared_views.sql", "permits.sql", "consuming.sql", "subjects.sql")
    if has_rows_around:
        return tuple(each for file in files for view in views(file) for each in _both(view))
    return tuple(
        view._replace(query=_WHOLE.sub("", view.query.replace(AROUND, "")))
        for file in files
        for view in views(file)
    )


def _both(view: SharedView) -> Iterator[SharedView]:
    """A view, and that of the rows around what is selected if there is one."""
    yield view
    if (source := _ALSO_AROUND.get(view.name)) is not None:
        query = view.query.replace(f"FROM {source} AS", f"FROM {source}{AROUND} AS")
        yield view._replace(name=f"{view.name}{AROUND}", query=query)


@cache
def words(text: str) -> frozenset[str]:
    """The names in a query, and whatever else is spelt like one."""
    return frozenset(_WORD.findall(_COMMENT.sub("", text).lower()))


@cache
def used_views(text: str, among: tuple[SharedView, ...] = ()) -> tuple[SharedView, ...]:
    """The shared views that a text needs, each behind those that it needs itself. among: in their
    place, views that read none behind them."""
    used: list[SharedView] = []
    wanted = words(text)
    for view in reversed(among or shared_views()):
        if view.name in wanted:
            wanted |= words(view.query)
            used.insert(0, view)
    return tuple(used)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (each.strip() for each in text.split(",")) if name)


def _read(name: str, content: str) -> Query:
    header: dict[str, str] = {}
    lines = content.splitlines()
    last = ""
    while lines and lines[0].startswith("--"):
        line = lines.pop(0)[2:]
        if line.startswith("   "):  # goes on from the line above
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
        _names(header.get("keys", "")),
        _names(header.get("sums", "")),
        _names(header.get("least", "")),
        _names(header.get("greatest", "")),
        int(count),
        tuple((each.split()[0], each.endswith(" desc")) for each in _names(order)),
        _names(header.get("of", "")),
        digest,
    )


@cache
def catalogue(name: str = "tallies") -> Mapping[str, Query]:
    """All queries of a folder by name: `tallies`, `live`, those that a tap asks beside them, or
    `exact`, what percentiles of all values are made from."""
    folder = resources.files("dissector.queries").joinpath(name)
    files = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    names = sorted(name.removesuffix(".sql") for name in files)
    return {name: _read(name, files[f"{name}.sql"].read_text("utf-8")) for name in names}
