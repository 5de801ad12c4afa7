"""The rules of the program as queries of reports: their rows are made, kept and found like others.

A rule sees the rows of each capture as it landed, also where captures go over into each other: what
it names as evidence are frames of that capture.
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

# It steps when rows of rules are kept in another form.
_FORM: Final = 1


class OverFrames(Protocol):
    """An engine that has the table frames."""

    def register(self, name: str, rows: pa.Table) -> None:
        """A small table."""

    def table(self, query: str) -> pa.Table:
        """The rows of a query that are few."""

    def tables(
        self, queries: Mapping[str, str], needs: Mapping[str, Need] | None = None
    ) -> dict[str, pa.Table]:
        """Those of several, or the reason why one failed. needs: what they need, by name."""


class RuleQuery(NamedTuple):
    """A rule, its query over the tables of a lake, what it needs by its front matter (with
    values), and a digest of all that its rows depend on."""

    rule: Rule
    text: str
    needs: Need
    digest: str


@cache
def rule_queries() -> Mapping[str, RuleQuery]:
    """The rules of the program over rows by the names of their queries."""
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
    """Rows of rules by the names of their queries; beside each frame the packet that completed it.

    Rows of other queries stay as they are.
    """
    rules = {name: rows for name, rows in tables.items() if name.startswith(MAY_FAIL)}
    frames: set[tuple[str, int]] = set()
    for rows in rules.values():
        captures = rows.column("capture").to_pylist()
        for name in _frames(rows):
            numbers = rows.column(name).to_pylist()
            frames.update(
                (capture, int(number))
                for capture, number in zip(captures, numbers, strict=True) if number is not None
            )  # fmt: skip
    packets: dict[tuple[str, int], int] = {}
    if frames:
        engine.register("evidence", small_table(sorted(frames), capture=TEXT, no=NUMBER))
        there = engine.table(
            "SELECT f.capture, f.frame_no, f.last_packet FROM frames AS f JOIN evidence AS e "
            "ON e.capture = f.capture AND e.no = f.frame_no"
        )
        packets = {
            (row["capture"], row["frame_no"]): row["last_packet"] for row in there.to_pylist()
        }
    return {
        name: _beside(rows, packets) if name in rules else rows for name, rows in tables.items()
    }


def incidents(engine: OverFrames, queries: Mapping[str, str]) -> dict[str, pa.Table]:
    """What rules give, with packets, by the names of their queries.

    Rules of a protocol are not asked where only others are spoken, nor those that need rows of a
    kind where there are none.

    Args:
        queries: by name; those that are no rules are passed over.
    """
    there = engine.table("SELECT DISTINCT protocol FROM connections").column(0).to_pylist()
    spoken = {*there}.intersection(PROTOCOL_NAMES)
    rules = {name: query for name, query in rule_queries().items() if name in queries}
    asked = {name for name, each in rules.items() if not spoken or each.rule.protocol in spoken}
    tables = engine.tables(
        {name: text for name, text in queries.items() if name in asked},
        {name: rules[name].needs for name in asked},
    )
    return dict.fromkeys(rules, small_table([], capture=TEXT)) | with_packets(engine, tables)


def write_incidents(engine: OverFrames, queries: Mapping[str, str], folder: Path) -> None:
    """The same, a file of its name each."""
    for name, rows in incidents(engine, queries).items():
        pq.write_table(rows, folder / f"{name}.parquet", compression="zstd")


def _frames(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name.startswith(f"{FRAME}_")]


def _beside(rows: pa.Table, packets: Mapping[tuple[str, int], int]) -> pa.Table:
    captures = rows.column("capture").to_pylist()
    for name in _frames(rows):
        numbers = rows.column(name).to_pylist()
        mine = [packets.get(key) for key in zip(captures, numbers, strict=True)]
        column = small_table(zip(mine), packet=NUMBER).column(0)
        rows = rows.append_column(PACKET + name.removeprefix(FRAME), column)
    return rows
