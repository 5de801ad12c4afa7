"""Row counts and conditions that an engine has checked, to skip queries that return no rows."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dissector.queries.catalogue import SharedView, used_views, words
from dissector.queries.needed_rows import (
    NEVER,
    NOTHING,
    AllOf,
    Need,
    QueryRows,
    TableRows,
    needed,
    needed_with_probes,
    needed_within,
    tables_in,
    with_queries,
)

# To evaluate conditions on a larger table costs more than the queries that it may skip.
_FEW_ROWS: Final = 300_000
_MADE: Final = "rows_made_"  # prefix of tables with the rows of WITH queries


class KnownRows:
    """Row counts of tables and results of conditions, valid until a table is replaced.

    Args:
        tell: returns the only row of a query, None if it fails.
        make: creates a shared view; returns whether it is a table with rows now.

    Attributes:
        views: the shared views, by name.
        is_large: whether running a query costs more than planning it.
    """

    def __init__(
        self, tell: Callable[[str], tuple[Any, ...] | None], make: Callable[[str], bool]
    ) -> None:
        self.views: Mapping[str, SharedView] = {}
        self._only_row = tell
        self._create_view = make
        self._counts: dict[str, int] = {}
        self._view_counts: dict[str, int] = {}  # reset when a table is replaced
        self._needs: set[TableRows] = set()  # of the queries to run and the views they read
        self._explicit: set[TableRows] = set()  # the needs that the caller gave
        self.is_large = False
        self._created_tables: list[str] = []  # with the rows of WITH queries
        self._results: dict[TableRows | QueryRows, bool] = {}

    def set_count(self, table: str, count: int | None) -> None:
        """Set the row count of a table, None if it is unknown."""
        self._counts.pop(table, None)
        self._view_counts.pop(table, None)
        if count is not None:
            self._counts[table] = count

    def forget(self) -> None:
        """Discard all results that depend on tables, because one was replaced."""
        self._results.clear()
        self._view_counts.clear()

    def answerable(self, queries: Mapping[str, str], needs: Mapping[str, Need]) -> dict[str, str]:
        """The queries that may have rows. Checking their needs takes less time than planning them.

        Args:
            needs: conditions by query name, beside those derived from the SQL. These queries mostly
                return no rows: their probes run before them. If tables are large, each query of
                their WITH is run in turn and its rows become a table (`made`).
        """
        self._explicit = {rows for need in needs.values() for rows in tables_in(need)}
        texts = self._nonempty(queries, needs)
        texts = self._nonempty(texts, {name: needed(text) for name, text in texts.items()})
        if self.is_large:
            texts |= {name: self._with_tables(texts[name]) for name in texts if name in needs}
            return {name: text for name, text in texts.items() if text}
        probes = {name: needed_with_probes(text) for name, text in texts.items() if name in needs}
        return self._nonempty(texts, probes)

    def _with_tables(self, text: str) -> str:
        """A query whose WITH queries read tables with their rows; "" if it returns no rows."""
        queries = with_queries(text)
        scope: dict[str, Need] = {}
        texts: dict[str, str] = {}
        for part in queries:
            need = needed_within(part.text, scope)
            texts[part.name] = part.text
            if not self._is_met(need):
                texts[part.name] = f"SELECT * FROM ({part.text}) AS nothing WHERE FALSE"
                need = NEVER
            elif part.is_read_again and not self._create_table(part.name, texts):
                need = NEVER
            scope[part.name] = need
        for part in reversed(queries):
            lines = "\n" * (part.text.count("\n") - texts[part.name].count("\n"))
            text = f"{text[: part.start]}{texts[part.name]}{lines}{text[part.end :]}"
        return text if self._is_met(needed_within(text, {})) else ""

    def _create_table(self, name: str, texts: dict[str, str]) -> int:
        """Create a table with the rows of a query of a WITH and replace the query's text; returns
        the number of rows, 1 if it fails.

        Args:
            texts: of this query and the earlier ones.
        """
        query, wanted = texts[name], words(texts[name])
        read: list[str] = []
        for other in reversed(texts):
            if other in wanted and other != name:
                read.insert(0, f"{other} AS ({texts[other]})")
                wanted |= words(texts[other])
        if read:
            query = f"WITH {', '.join(read)} SELECT * FROM ({query})"
        for view in used_views(query, (*self.views.values(),)):
            self._create_view(view.name)
        table = f"{_MADE}{len(self._created_tables)}"
        row = self._only_row(f"CREATE OR REPLACE TABLE {table} AS {query}")
        if row is None:
            return 1
        self._created_tables.append(table)
        self.set_count(table, row[0])
        texts[name] = f"SELECT * FROM {table}"
        return int(row[0])

    def made(self) -> list[str]:
        """The names of the tables created for queries of a WITH; the caller drops them."""
        made = [*self._created_tables]
        self._created_tables.clear()
        for table in made:
            self.set_count(table, None)
            self._results.pop(TableRows(table, ""), None)
        return made

    def may_be_there(self, view: str) -> bool:
        """Whether a shared view may have rows."""
        return self._is_met(needed(self.views[view].query)) if view in self.views else True

    def _nonempty(self, queries: Mapping[str, str], needs: Mapping[str, Need]) -> dict[str, str]:
        for need in needs.values():
            self._collect(need)
        return {
            name: text for name, text in queries.items() if self._is_met(needs.get(name, NOTHING))
        }

    def _collect(self, need: Need) -> None:
        """Collect needs, so that one query evaluates all conditions on a table."""
        for rows in tables_in(need):
            if rows not in self._needs:
                self._needs.add(rows)
                if rows.table in self.views:
                    self._collect(needed(self.views[rows.table].query))

    def _is_met(self, need: Need) -> bool:
        """Whether a need is met or cannot be checked."""
        if isinstance(need, TableRows | QueryRows):
            if need not in self._results:
                has = (
                    self._has_rows(need)
                    if isinstance(need, TableRows)
                    else self._has_any(need.text)
                )
                self._results[need] = has
            return self._results[need]
        # Needs on views last: they cost more to check.
        parts = sorted(
            need.parts,
            key=lambda part: (
                isinstance(part, QueryRows) or any(of.table in self.views for of in tables_in(part))
            ),
        )
        return (all if isinstance(need, AllOf) else any)(map(self._is_met, parts))

    def _has_rows(self, need: TableRows) -> bool:
        if need.table in self.views:
            if not self.may_be_there(need.table):
                return False
            if not self._create_view(need.table):
                return True
        count = self._count(need.table)
        if count is None:
            return True
        if not count or not need.condition:
            return count > 0
        return (count > _FEW_ROWS and need not in self._explicit) or self._has_match(need, count)

    def _has_any(self, text: str) -> bool:
        """Whether a query returns rows or fails."""
        for view in used_views(text, (*self.views.values(),)):
            self._create_view(view.name)
        # Count all rows: for LIMIT 1 DuckDB chooses a join order that takes much longer.
        count = self._only_row(f"SELECT count(*) FROM ({text}) AS found")
        return count is None or count[0] > 0

    def _count(self, table: str) -> int | None:
        if table not in self._counts and table not in self._view_counts:
            row = self._aggregates(["count(*)"], table)
            if row is None:
                return None
            (self._view_counts[table],) = row
        return self._counts.get(table, self._view_counts.get(table))

    def _has_match(self, need: TableRows, count: int) -> bool:
        """Whether a row of a table meets a condition; one query checks all known conditions."""
        needs = self._needs if count <= _FEW_ROWS else self._explicit
        others = {
            each for each in needs
            if each.table == need.table and each.condition and each not in self._results
        }  # fmt: skip
        for batch in (sorted({need, *others}), [need]):  # alone if one of the others fails
            row = self._aggregates([f"bool_or({each.condition})" for each in batch], need.table)
            if row is not None:
                self._results.update(zip(batch, map(bool, row), strict=True))
                return self._results[need]
        return True

    def _aggregates(self, cells: Iterable[str], table: str) -> tuple[Any, ...] | None:
        return self._only_row(f"SELECT {', '.join(cells)} FROM {table}")
