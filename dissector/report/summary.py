"""The numbers of a report in this process: table rows in, the JSON of `report.json` out, no Java.

Rows are counted as they come and forgotten; what is kept are sums per key, the names of producers
and consumers, and the few rows that are listed one by one. All of it is bounded.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.blocks import TableBlock
from dissector.report import names
from dissector.report.consumption import Deliveries, Permits
from dissector.report.copies import Copies
from dissector.report.exchange_rows import Errors, Slowest
from dissector.report.frame_rows import FrameRows, PacketMemory
from dissector.report.gathering import Gatherer
from dissector.report.lifetimes import Lifetimes
from dissector.report.numbers import high, low, step_ns
from dissector.report.parts import FILES, Parts, no_parts
from dissector.report.passed_over import DELIVERIES, PassedOver
from dissector.report.result import build
from dissector.report.round_trips import RoundTrips
from dissector.report.rows import Rows
from dissector.report.sends import Sends
from dissector.report.tallies import CONNECTIONS, NOTICES, Accumulator, concat

MAX_NAMED: Final = 1 << 20  # connections, producers and consumers whose names are kept
_BOTH_WAYS: Final = CONNECTIONS.sums[1:]
_NAMES: Final = {
    "connections": names.LEGS,
    "producers": names.PRODUCERS,
    "consumers": names.CONSUMERS,
    "capture_files": FILES,
}

# The tables that a summary reads whole (see is_wanted); rows of others need not be handed to it.
TABLES: Final = frozenset(
    (
        "capture_files",
        "connections",
        "frames",
        "producers",
        "consumers",
        "acks",
        "exchanges",
        "deliveries",
        "permits",
        "notices",
    )
)


def is_wanted(block: TableBlock) -> bool:
    """Whether a summary has to see a block of rows.

    Of `messages` only those with places that a compaction emptied; making batches of all the
    others would cost more than everything else.
    """
    if block.table == "messages":
        return bool((np.asarray(block.columns.get("is_compacted_out", ())) == 1).any())
    return block.table in TABLES


class Summary:
    """Counts rows of tables; one or more captures, each table's rows in their order.

    Rows of `frames` come before rows of other tables that name these frames.
    """

    def __init__(self) -> None:
        packets = PacketMemory()
        self._frames = FrameRows(packets)
        self._sends = Sends()
        self._errors = Errors(packets)
        self._slowest = Slowest(packets)
        self._deliveries = Deliveries(packets)
        self._permits = Permits(packets)
        self._trips = RoundTrips()
        self._lifetimes = Lifetimes()
        self._passed_over = PassedOver(packets)
        self._passed_deliveries = PassedOver(packets, DELIVERIES)
        self._copies = Copies()
        self._connections = Accumulator(CONNECTIONS, 1 << 16)
        self._notices = Accumulator(NOTICES, 1 << 16)
        self._kept: dict[str, list[pa.Table]] = {name: [] for name in _NAMES}
        self._kept_rows = 0
        self._kept_left_out = 0
        self._gatherer = Gatherer(self.add)

    def add_block(self, block: TableBlock, capture: str = "") -> None:
        """Take in a block of rows as `add` does, if it is wanted; the quicker way for many."""
        if is_wanted(block):
            self._gatherer.add(block, capture)

    def add(self, table: str, batch: pa.RecordBatch, capture: str = "") -> None:
        """Take in rows of one table.

        Args:
            table: its name; rows of tables that it does not read are ignored.
            batch: with all columns of the table (text plain or dictionary-encoded).
            capture: any word that tells captures apart; `result` can put ids in its place.
        """
        if table not in (*TABLES, "messages") or batch.num_rows == 0:
            return
        rows = Rows(batch, capture)
        if table in _NAMES:
            self._keep(table, rows)
        if table == "frames":
            self._frames.add(rows)
            self._trips.add_frames(rows)
            self._copies.add_frames(rows)
            self._permits.find_closings()
        elif table == "exchanges":
            self._frames.add_exchanges(rows)
            self._sends.add(rows)
            self._errors.add(rows)
            self._slowest.add(rows)
            self._trips.add(rows)
            self._lifetimes.add_exchanges(rows)
            self._passed_over.add(rows)
            self._copies.add_publishes(rows)
        elif table == "deliveries":
            self._deliveries.add(rows)
            self._lifetimes.add_deliveries(rows)
            self._copies.add_deliveries(rows)
            self._passed_deliveries.add(rows)
            self._frames.add_deliveries(rows)
        elif table == "acks":
            self._deliveries.add_acks(rows)
            self._lifetimes.add_acks(rows)
            self._frames.add_acks(rows)
        elif table == "messages":
            self._deliveries.add_messages(rows)
        elif table == "permits":
            self._permits.add(rows)
        elif table == "consumers":
            self._permits.add_consumers(rows)
        elif table == "connections":
            self._add_connections(rows)
        elif table == "notices":
            ones = pa.array(np.ones(len(rows), np.int64))
            self._notices.add({**rows.columns("code", "severity", "bytes"), "notices": ones})

    def _keep(self, table: str, rows: Rows) -> None:
        room = max(0, MAX_NAMED - self._kept_rows)
        self._kept_left_out += max(0, len(rows) - room)
        kept = rows.kept(_NAMES[table]).slice(0, room)
        self._kept[table].append(kept)
        self._kept_rows += kept.num_rows

    def _add_connections(self, rows: Rows) -> None:
        keys = [name for name in CONNECTIONS.key_names if name != "capture"]
        columns = rows.columns(*keys)
        columns["connections"] = pa.array(np.ones(len(rows), np.int64))
        for name in _BOTH_WAYS:
            there, back = rows.column(f"{name}_to_broker"), rows.column(f"{name}_to_client")
            columns[name] = pc.add(pc.fill_null(there, 0), pc.fill_null(back, 0))
        self._connections.add(columns)

    def parts(self) -> Parts:
        """Everything so far, as the arithmetic of the report takes it."""
        self._gatherer.flush()
        kept = {name: concat(found, _NAMES[name]) for name, found in self._kept.items()}
        found = names.Names(kept["connections"], kept["producers"], kept["consumers"])
        files = kept["capture_files"]
        step = max(span_step_ns(files), self._sends.step)
        steps = {**capture_steps(files)}
        for name, least in self._permits.steps().items():
            steps[name] = max(steps.get(name, 0), least)
        frames = self._frames.tables()
        tables = {
            **no_parts().tables,
            **frames,
            "mismatches": self._copies.filled(frames["mismatches"]),
            **self._sends.tables(found, step),
            **self._deliveries.tables(),
            **self._permits.tables(found, steps),
            **self._trips.tables(),
            **self._lifetimes.tables(found, files),
            "passed_over": self._passed_over.table(),
            "passed_deliveries": self._passed_deliveries.table(),
            "errors": self._errors.table(),
            "slow": self._slowest.table(),
            "files": files,
            "connections": self._connections.settle(),
            "notices": self._notices.settle(),
        }
        return Parts(tables, found, step, self._limits(), steps)

    def _limits(self) -> dict[str, int]:
        found: dict[str, int] = {"summary_names_limit": self._kept_left_out}
        found["summary_copies_limit"] = self._copies.left_out
        passed = (self._passed_over, self._passed_deliveries)
        found["summary_passed_over_limit"] = sum(part.left_out for part in passed)
        found["summary_keys_limit"] = self._connections.left_out + self._notices.left_out
        parts = (self._frames, self._sends, self._deliveries, self._permits, self._errors)
        for part in (*parts, self._trips, self._lifetimes):
            for name, count in part.limits().items():
                found[name] = found.get(name, 0) + count
        return found

    def result(self, capture_ids: Mapping[str, str | None] | None = None) -> dict[str, Any]:
        """The report's JSON.

        Args:
            capture_ids: the id of each capture by the word that `add` was given; a word without
                an id stands for itself, the empty one for an unknown id.
        """
        ids: dict[str, str | None] = {"": None, **(capture_ids or {})}
        return build(renamed(self.parts(), ids))


def span_step_ns(files: pa.Table) -> int:
    """The step of series over time, from the span of all files (rows of FILES)."""
    first = low(files.column("first_ts_ns").to_pylist())
    last = high(files.column("last_ts_ns").to_pylist())
    return step_ns(first, last) if first is not None and last is not None else step_ns(0, 0)


def capture_steps(files: pa.Table) -> dict[str | None, int]:
    """The step of series of each capture, from the span of its own files (rows of FILES)."""
    captures = pc.unique(files.column("capture"))
    found = {}
    for capture in captures:
        column = files.column("capture")
        mine = pc.equal(column, capture) if capture.is_valid else pc.is_null(column)
        found[capture.as_py()] = span_step_ns(files.filter(mine))
    return found


def renamed(parts: Parts, ids: Mapping[str, str | None]) -> Parts:
    """The same parts with other names for captures."""

    def rename(table: pa.Table) -> pa.Table:
        if "capture" not in table.schema.names or table.num_rows == 0:
            return table
        coded = pc.dictionary_encode(table.column("capture").combine_chunks())
        texts = [ids.get(text, text) for text in coded.dictionary.to_pylist()]
        column = pa.array(texts, pa.string()).take(coded.indices)
        return table.set_column(table.schema.get_field_index("capture"), "capture", column)

    tables = {name: rename(table) for name, table in parts.tables.items()}
    steps = {ids.get(name or "", name): step for name, step in parts.steps.items()}
    return parts._replace(tables=tables, names=names.Names(*map(rename, parts.names)), steps=steps)
