"""The rules of the program as report queries, whose rows are computed and cached like any other.

A rule reads the rows of each capture as they were landed, even if captures are joined: its evidence
are frames of that capture.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.findings.finding import FRAME, PACKET
from dissector.findings.loading import Rule, incidents_query, load_rules, with_thresholds
from dissector.protocols import PROTOCOL_NAMES
from dissector.queries.catalogue import MAY_FAIL, used_views
from dissector.queries.needed_rows import NOTHING, AnyOf, Need, TableRows
from dissector.schemas import SCHEMA_VERSION
from dissector.schemas.small_tables import NUMBER, TEXT, small_table

# Version of the cached rows of rules.
_FORM: Final = 1


class OverFrames(Protocol):
    """An engine with the table frames."""

    def register(self, name: str, rows: pa.Table) -> None:
        """Copy a small table into the engine."""

    def table(self, query: str) -> pa.Table:
        """The rows of a query with few rows."""

    def tables(
        self, queries: Mapping[str, str], needs: Mapping[str, Need] | None = None
    ) -> dict[str, pa.Table]:
        """The rows of several queries; one row with the reason for a failed one. needs: by name."""


class RuleQuery(NamedTuple):
    """A rule, its SQL over the tables of a lake, the needs of its front matter (thresholds
    replaced), and a digest of everything that its rows depend on."""

    rule: Rule
    text: str
    needs: Need
    digest: str


@cache
def rule_queries() -> Mapping[str, RuleQuery]:
    """The program's rules that read rows, by query name."""
    queries = {}
    for rule in load_rules()[0]:
        if rule.is_over_totals:
            continue
        text = incidents_query(rule)
        needs = {table: with_thresholds(rule, each) for table, each in rule.needs.items()}
        read = "\n".join([text, *needs, *needs.values()])
        views = "\n".join(view.query for view in used_views(read))
        whole = f"{_FORM}\n{SCHEMA_VERSION}\n{read}\n{views}"
        digest = hashlib.sha256(whole.encode()).hexdigest()
        need = AnyOf(tuple(map(TableRows, needs, needs.values()))) if needs else NOTHING
        queries[f"{MAY_FAIL}{rule.number.lower()}"] = RuleQuery(rule, text, need, digest)
    return queries


def with_packets(engine: OverFrames, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables by query name; those of rules with the packet that completed each frame.

    Tables of other queries are unchanged.
    """
    rules = {name: rows for name, rows in tables.items() if name.startswith(MAY_FAIL)}
    frames: set[tuple[str, int]] = set()
    for rows in rules.values():
        captures = rows.column("capture").to_pylist()
        for name in _frame_columns(rows):
            numbers = rows.column(name).to_pylist()
            frames.update(
                (capture, int(number))
                for capture, number in zip(captures, numbers, strict=True) if number is not None
            )  # fmt: skip
    packets: dict[tuple[str, int], int] = {}
    if frames:
        engine.register("evidence", small_table(sorted(frames), capture=TEXT, no=NUMBER))
        completed = engine.table(
            "SELECT f.capture, f.frame_no, f.last_packet FROM frames AS f JOIN evidence AS e "
            "ON e.capture = f.capture AND e.no = f.frame_no"
        )
        packets = {
            (row["capture"], row["frame_no"]): row["last_packet"] for row in completed.to_pylist()
        }
    return {
        name: _add_packets(rows, packets) if name in rules else rows
        for name, rows in tables.items()
    }


def incidents(engine: OverFrames, queries: Mapping[str, str]) -> dict[str, pa.Table]:
    """The incidents of rules, with packets, by query name.

    A rule does not run if its protocol does not occur, or if rows that it needs do not exist.

    Args:
        queries: SQL by name; those that are no rules are ignored.
    """
    protocols = engine.table("SELECT DISTINCT protocol FROM connections").column(0).to_pylist()
    known_protocols = {*protocols}.intersection(PROTOCOL_NAMES)
    rules = {name: query for name, query in rule_queries().items() if name in queries}
    runnable = {
        name
        for name, each in rules.items()
        if not known_protocols or each.rule.protocol in known_protocols
    }
    tables = engine.tables(
        {name: text for name, text in queries.items() if name in runnable},
        {name: rules[name].needs for name in runnable},
    )
    return dict.fromkeys(rules, small_table([], capture=TEXT)) | with_packets(engine, tables)


def write_incidents(engine: OverFrames, queries: Mapping[str, str], folder: Path) -> None:
    """Write the incidents of each rule to <name>.parquet in a folder."""
    for name, rows in incidents(engine, queries).items():
        pq.write_table(rows, folder / f"{name}.parquet", compression="zstd")


def _frame_columns(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name.startswith(f"{FRAME}_")]


def _add_packets(rows: pa.Table, packets: Mapping[tuple[str, int], int]) -> pa.Table:
    captures = rows.column("capture").to_pylist()
    for name in _frame_columns(rows):
        numbers = rows.column(name).to_pylist()
        packet_numbers = [packets.get(key) for key in zip(captures, numbers, strict=True)]
        column = small_table(zip(packet_numbers), packet=NUMBER).column(0)
        rows = rows.append_column(PACKET + name.removeprefix(FRAME), column)
    return rows
