"""Commands to type next: they show the frames and connections behind a number of a report."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from dissector.report.numbers import Row

MAX_INPUTS: Final = 3  # files that a command names; of more it says INPUT, as its help does
INPUT: Final = "INPUT"
_STDIN: Final = ("-", "stdin")


class Commands:
    """Makes commands for the captures of a report.

    Args:
        typed: the inputs as the user named them, if they are known. files: of each capture the
            paths of its files; without it the names of the files stand for them.
    """

    def __init__(
        self,
        report: Row,
        typed: Sequence[str] = (),
        files: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._files: dict[str | None, list[str]] = {}
        for source in report["sources"]:
            names = self._files.setdefault(source["capture"], [])
            if source["file_name"] is not None:
                names.append(source["file_name"])
        for capture, paths in (files or {}).items():
            self._files[capture] = list(paths)
        self._all = list(typed) or [name for names in self._files.values() for name in names]

    def frames(self, condition: str, row: Row | None = None, more: str = "") -> str:
        """`dissector frames` with a selection. row: its capture is read, without one all are."""
        return f"dissector frames {self._inputs(row)} -Y {shlex.quote(condition)}{more}"

    def connections(self, condition: str = "") -> str:
        """`dissector connections`, with a selection or without."""
        selected = f" -Y {shlex.quote(condition)}" if condition else ""
        return f"dissector connections {self._inputs(None)}{selected}"

    def other(self, text: str) -> str:
        """Another command; {} in it is replaced by the inputs."""
        return text.format(self._inputs(None))

    def _inputs(self, row: Row | None) -> str:
        names = self._all
        if row is not None and len(self._files) > 1:
            names = self._files.get(row["capture"], [])
        if not 0 < len(names) <= MAX_INPUTS or any(name in _STDIN for name in names):
            return INPUT
        return " ".join(shlex.quote(f"./{n}" if n.startswith("-") else n) for n in names)
