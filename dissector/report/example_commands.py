"""Example commands of a report: they show the frames and connections behind a number.

They run unchanged where the report's captures are. Commands on named files read the files again;
commands on a lake, or a tap, whose packets are in no file, query rows.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from dissector.limits import MAX_NAMED_INPUTS
from dissector.local_paths import typed
from dissector.report.numbers import Row

INPUT: Final = "INPUT"
_LAKE: Final = "LAKE"  # stands in a command for the path of an unknown lake
ANY_LAKE: Final = f"--lake {_LAKE} "
_STDIN: Final = ("-", "stdin")
_LIVE: Final = "live"
# Tokens that differ between -Y expressions and SQL.
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[!=]= null\b|==')
_IN_SQL: Final = {"== null": "IS NULL", "!= null": "IS NOT NULL", "==": "="}


def in_sql(condition: str) -> str:
    """Translate a -Y condition of this program into SQL."""
    return _TOKENS.sub(
        lambda match: _IN_SQL.get(match[0]) or _literal(json.loads(match[0])), condition
    )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Commands:
    """Builds commands for the captures of a report.

    Args:
        typed: the inputs as the user named them, if known. files: the paths of each capture's
            files; default: the file names in the report. lake: to query, if one was named.
    """

    def __init__(
        self,
        report: Row,
        typed: Sequence[str] = (),
        files: Mapping[str, Sequence[str]] | None = None,
        lake: object = None,
    ) -> None:
        self._files: dict[str | None, list[str]] = {}
        self._live = {
            source["capture"] for source in report["sources"] if source.get("format") == _LIVE
        }
        self._lake = None if lake is None else str(lake)
        if lake is None and self._live and not typed:
            self._lake = _LAKE
        for source in report["sources"]:
            names = self._files.setdefault(source["capture"], [])
            if source["file_name"] is not None:
                names.append(source["file_name"])
        for capture, paths in (files or {}).items():
            self._files[capture] = list(paths)
        self._all = list(typed) or [name for names in self._files.values() for name in names]

    def frames(self, condition: str, row: Row | None = None, more: str = "") -> str:
        """`dissector frames` with a condition. row: read its capture alone; None: all captures."""
        if self._lake is not None:
            return self._rows("frames", [*self._capture(row), in_sql(condition)])
        return f"dissector frames {self._inputs(row)} -Y {shlex.quote(condition)}{more}"

    def connections(self, condition: str = "") -> str:
        """`dissector connections`, with or without a condition."""
        if self._lake is not None:
            return self._rows("connections", [in_sql(condition)] if condition else [])
        selected = f" -Y {shlex.quote(condition)}" if condition else ""
        return f"dissector connections {self._inputs(None)}{selected}"

    def notices(self) -> str:
        """The command that gives the table of notices."""
        if self._lake is not None:
            return self._rows("notices", [])
        return f"dissector land {self._inputs(None)} --lake lake"

    def of_finding(self, row: Row) -> str:
        """The command that shows a finding: the one of its rule, else one that lists its frames."""
        table, _, condition = row["show"].partition(" ")
        if table == "frames":
            return self.frames(condition)
        if table == "connections":
            return self.connections(condition)
        if table == "notices":
            return self.notices()
        if table == "summary":
            return self.other("dissector summary {}")
        if table or not row["evidence"]:
            return str(condition)
        numbers = ", ".join(str(each["frame_no"]) for each in row["evidence"])
        return self.frames(f"frame_no in ({numbers})", row)

    def other(self, text: str) -> str:
        """Another command: {} in `text` is replaced by the inputs, or by the lake."""
        if self._lake is not None:
            return text.format(f"--lake {typed(self._lake)}")
        return text.format(self._inputs(None))

    def _rows(self, table: str, conditions: Sequence[str]) -> str:
        """`dissector sql` over the lake."""
        where = f" where {' and '.join(conditions)}" if conditions else ""
        query = shlex.quote(f"select * from {table}{where}")
        return f"dissector sql --lake {typed(str(self._lake))} {query}"

    def _capture(self, row: Row | None) -> list[str]:
        """SQL conditions that select a row's capture; a tap's rows are in its rotations."""
        if row is None or (len(self._files) < 2 and not self._live):
            return []
        name = row["capture"]
        if name in self._live or name not in self._files:
            return [f"capture like {_literal(name + '%')}"]
        return [f"capture = {_literal(name)}"]

    def _inputs(self, row: Row | None) -> str:
        names = self._all
        if row is not None and len(self._files) > 1:
            names = self._files.get(row["capture"], [])
        if not 0 < len(names) <= MAX_NAMED_INPUTS or any(name in _STDIN for name in names):
            return INPUT
        return " ".join(map(typed, names))
