"""What an engine knows of the rows of its tables, and which queries can have any for it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dissector.queries.catalogue import SharedView, used_views, words
from dissector.queries.needed_rows import (
    NEVER,
    NOTHING,
    All,
    Found,
    Need,
    Rows,
    beginnings,
    needed,
    needed_within,
    parts,
    tables_in,
)

# To read a larger table for what may spare a query costs more than it saves.
_FEW_ROWS: Final = 300_000
_MADE: Final = "rows_made_"  # names of tables of what queries of a WITH have begin so


class KnownRows:
    """Counts of rows, and what was asked of them, until a table becomes another.

    Args:
        tell: the only row of a query, None if it fails.
        make: has the rows of a shared view made before they are asked for; whether they are.

    Attributes:
        views: the shared views, by name.
        is_large: whether to run a query costs more than to plan it.
    """

    def __init__(
        self, tell: Callable[[str], tuple[Any, ...] | None], make: Callable[[str], bool]
    ) -> None:
        self.views: Mapping[str, SharedView] = {}
        self._tell = tell
        self._make = make
        self._counts: dict[str, int] = {}
        self._asked: dict[str, int] = {}  # counts that tables may change, of views over them
        self._needs: set[Rows] = set()  # of queries that are to be run, and of the views they read
        self._stated: set[Rows] = set()  # those of them that do not stem from a text
        self.is_large = False
        self._made: list[str] = []  # tables of what queries of a WITH have
        self._met: dict[Rows | Found, bool] = {}

    def set_count(self, table: str, count: int | None) -> None:
        """How many rows a table has now, None if nobody knows."""
        self._counts.pop(table, None)
        self._asked.pop(table, None)
        if count is not None:
            self._counts[table] = count

    def forget(self) -> None:
        """A table is another now, so that what views have of it may be, too."""
        self._met.clear()
        self._asked.clear()

    def answerable(self, queries: Mapping[str, str], needs: Mapping[str, Need]) -> dict[str, str]:
        """Those of queries that may have rows. To plan a query takes longer than to see that
        something which it needs is not there.

        Args:
            needs: of queries, by name, beside what their texts tell. Of these, which mostly have
                no rows, beginnings are asked before the whole; where tables are large, each query
                of a WITH is made before the next, as one of the tables `made`.
        """
        self._stated = {rows for need in needs.values() for rows in tables_in(need)}
        asked = self._met_of(queries, needs)
        asked = self._met_of(asked, {name: needed(text) for name, text in asked.items()})
        if self.is_large:
            begun = {
                name: self._begun(text) if name in needs else text for name, text in asked.items()
            }
            return {name: text for name, text in begun.items() if text}
        told = {name: beginnings(text) for name, text in asked.items() if name in needs}
        return self._met_of(asked, told)

    def _begun(self, text: str) -> str:
        """A query with queries of its WITH made; "" if it has no rows then."""
        queries = parts(text)
        scope: dict[str, Need] = {}
        texts: dict[str, str] = {}
        for part in queries:
            need = needed_within(part.text, scope)
            texts[part.name] = part.text
            if not self._is_met(need):
                texts[part.name] = f"SELECT * FROM ({part.text}) AS nothing WHERE FALSE"
                need = NEVER
            elif part.is_read_again and not self._rows_of(part.name, texts):
                need = NEVER
            scope[part.name] = need
        for part in reversed(queries):
            lines = "\n" * (part.text.count("\n") - texts[part.name].count("\n"))
            text = f"{text[: part.start]}{texts[part.name]}{lines}{text[part.end :]}"
        return text if self._is_met(needed_within(text, {})) else ""

    def _rows_of(self, name: str, texts: dict[str, str]) -> int:
        """Make a query of a WITH, and let its table stand in the place of its text; how many rows
        it has, one if nobody can tell.

        Args:
            texts: of it and those before it.
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
            self._make(view.name)
        table = f"{_MADE}{len(self._made)}"
        made = self._tell(f"CREATE OR REPLACE TABLE {table} AS {query}")
        if made is None:
            return 1
        self._made.append(table)
        self.set_count(table, made[0])
        texts[name] = f"SELECT * FROM {table}"
        return int(made[0])

    def made(self) -> list[str]:
        """The tables of queries of a WITH, which are gone then."""
        made = [*self._made]
        self._made.clear()
        for table in made:
            self.set_count(table, None)
            self._met.pop(Rows(table, ""), None)
        return made

    def may_be_there(self, view: str) -> bool:
        """Whether a shared view may have rows."""
        return self._is_met(needed(self.views[view].query)) if view in self.views else True

    def _met_of(self, queries: Mapping[str, str], needs: Mapping[str, Need]) -> dict[str, str]:
        for need in needs.values():
            self._note(need)
        return {
            name: text for name, text in queries.items() if self._is_met(needs.get(name, NOTHING))
        }

    def _note(self, need: Need) -> None:
        """Remember what is needed, so that one query tells of a table all that is asked of it."""
        for rows in tables_in(need):
            if rows not in self._needs:
                self._needs.add(rows)
                if rows.table in self.views:
                    self._note(needed(self.views[rows.table].query))

    def _is_met(self, need: Need) -> bool:
        """Whether what is needed is there, or nobody can tell."""
        if isinstance(need, Rows | Found):
            if need not in self._met:
                has = self._has(need) if isinstance(need, Rows) else self._finds(need.text)
                self._met[need] = has
            return self._met[need]
        # What views have costs more to find.
        parts = sorted(
            need.parts,
            key=lambda part: (
                isinstance(part, Found) or any(rows.table in self.views for rows in tables_in(part))
            ),
        )
        return (all if isinstance(need, All) else any)(map(self._is_met, parts))

    def _has(self, need: Rows) -> bool:
        if need.table in self.views:
            if not self.may_be_there(need.table):
                return False
            if not self._make(need.table):
                return True
        count = self._count(need.table)
        if count is None:
            return True
        if not count or not need.condition:
            return count > 0
        return (count > _FEW_ROWS and need not in self._stated) or self._fits(need, count)

    def _finds(self, text: str) -> bool:
        """Whether a query has rows, or nobody can tell."""
        for view in used_views(text, (*self.views.values(),)):
            self._make(view.name)
        # All are counted: for the first alone DuckDB joins in an order that takes much longer.
        found = self._tell(f"SELECT count(*) FROM ({text}) AS found")
        return found is None or found[0] > 0

    def _count(self, table: str) -> int | None:
        if table not in self._counts and table not in self._asked:
            found = self._told(["count(*)"], table)
            if found is None:
                return None
            (self._asked[table],) = found
        return self._counts.get(table, self._asked.get(table))

    def _fits(self, need: Rows, count: int) -> bool:
        """Whether a row of a table meets a condition; others that are needed are asked with it."""
        needs = self._needs if count <= _FEW_ROWS else self._stated
        others = {
            each for each in needs
            if each.table == need.table and each.condition and each not in self._met
        }  # fmt: skip
        for mine in (sorted({need, *others}), [need]):  # One that cannot be asked spoils no other.
            found = self._told([f"bool_or({each.condition})" for each in mine], need.table)
            if found is not None:
                self._met.update(zip(mine, map(bool, found), strict=True))
                return self._met[need]
        return True

    def _told(self, cells: Iterable[str], table: str) -> tuple[Any, ...] | None:
        return self._tell(f"SELECT {', '.join(cells)} FROM {table}")
