"""Reports of lakes, as the commands make them, without the command line."""

import io
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from typing import Any

from dissector.cli.main import run
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.selection import Asked
from dissector.report import pipeline
from dissector.report.partitions import Engine

# Of captures alone, of connections and of both protocols. All of them take half of the time of a
# report: they are asked in tests/dissector/findings, and by tasks of Spark in tests/spark_jobs.
SOME_RULES = frozenset(("C01", "D01", "D24"))
EVERY_RULE: frozenset[str] = frozenset()


def reported(
    lake: Path,
    output: Path,
    engine: Callable[[Path], AbstractContextManager[Engine]] = DuckdbEngine,
    *,
    captures: tuple[str, ...] = (),
    since: str | None = None,
    until: str | None = None,
    topics: tuple[str, ...] = (),
    subscriptions: tuple[str, ...] = (),
    clients: tuple[str, ...] = (),
    exact: bool = False,
    rules: frozenset[str] = EVERY_RULE,
    sections: Sequence[str] = pipeline.ALL.sections,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """What report.json says about a lake. rules: those that are asked, none for all."""
    scope = pipeline.Scope(
        captures, Asked(since, until, topics, subscriptions, clients).selection(), exact, sections,
        rules,
    )  # fmt: skip
    words = pipeline.ReportProgress(tell, lambda *_: None)
    pipeline.write(lake, output, engine, scope, words, has_page=False)
    content: dict[str, Any] = json.loads((output / "report.json").read_text("utf-8"))
    return content


def summary(*paths: Path) -> dict[str, Any]:
    """What `dissector summary` says about captures that are in no lake."""
    with redirect_stdout(io.StringIO()) as said:
        assert run(["summary", "--json", "-q", *map(str, paths)]) == 0
    content: dict[str, Any] = json.loads(said.getvalue())
    return content


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as short texts."""
    if isinstance(left, dict) and isinstance(right, dict):
        found = [f"{path}: {key} on one side" for key in sorted(left.keys() ^ right.keys())]
        for key in left.keys() & right.keys():
            found += differences(left[key], right[key], f"{path}.{key}")
        return found
    if isinstance(left, list) and isinstance(right, list):
        found = [] if len(left) == len(right) else [f"{path}: {len(left)} and {len(right)} rows"]
        for place, (one, other) in enumerate(zip(left, right, strict=False)):
            found += differences(one, other, f"{path}[{place}]")
        return found
    return [] if left == right else [f"{path}: {left!r} and {right!r}"]
