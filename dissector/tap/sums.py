"""The numbers of a report while they grow: its tallies over windows of rows, added up.

Each metric is a tally of `queries/tallies` (or of `queries/live`), some of the keys that its header
declares as labels, and its sums. What goes over from one window into the next are balances of
permits (`balances`).
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from dissector.limits import MAX_SERIES
from dissector.queries.catalogue import IF_READ, IF_SHARED, Query, SharedView, catalogue, used_views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.schemas.small_tables import NUMBER, small_table
from dissector.tap.balances import TOGETHER, Balances
from dissector.tap.metric_series import Counts, Histograms, label_text
from dissector.tap.window_tables import Columns, Rows, columns_of, name_tables, name_views
from dissector.tap.windows import Window

_MEMORY: Final = "1GB"
_PLACE: Final = ("topic", "subscription")
_OF_TOPIC: Final = ("grouping", "topic")
# A connection that repeats another one's facts is known before its own row comes.
_TWINS: Final = "{} UNION SELECT u.capture, r.connection_id FROM repeated AS r CROSS JOIN units u"
# The table of which there must be rows, by tally.
_READS: Final = {
    "frames": "frames", "checksums": "frames", "redelivered_frames": "frames",
    "sends": "exchanges", "send_latencies": "exchanges", "requests": "exchanges",
    "refused": "exchanges", "deliveries": "deliveries", "transits": "deliveries",
    "ack_commands": "acks", "redeliver_requests": "acks", "connections": "connections",
    "notices": "notices",
}  # fmt: skip
_OF_PERMITS: Final = ("permits", "consumers")


class Series(NamedTuple):
    """Where the numbers of a metric are from.

    labels: keys of the tally by the names that the metric has for them.
    sums: of the tally, added.
    where, unless: keys and values that rows have, or do not have.
    always: a further label.
    """

    name: str
    tally: str
    labels: Mapping[str, str]
    sums: tuple[str, ...]
    where: tuple[tuple[str, object], ...] = ()
    unless: tuple[tuple[str, object], ...] = ()
    always: Mapping[str, str] = {}


def _of(*keys: str, **renamed: str) -> dict[str, str]:
    return {**{key: key for key in keys}, **renamed}


SERIES: Final = (
    Series("frames", "frames", _of("direction", "command"), ("frames",)),
    Series("frame_bytes", "frames", _of("direction"), ("frame_bytes",)),
    Series("damaged", "frames", _of("status"), ("frames",), unless=(("status", "complete"),)),
    Series("checksums", "checksums", _of("direction", verdict="checksum"), ("frames",),
           where=(_OF_TOPIC,)),
    Series("mismatches", "checksums", _of("topic", "direction"), ("frames",),
           where=(_OF_TOPIC, ("checksum", "mismatch"))),
    Series("redelivered_frames", "redelivered_frames", _of(*_PLACE), ("frames",)),
    Series("sends", "sends", _of("topic", "outcome"), ("sends",)),
    Series("send_messages", "sends", _of("topic"), ("messages",)),
    Series("send_bytes", "sends", _of("topic"), ("request_bytes",)),
    Series("resent", "sends", _of("topic"), ("resent",)),
    Series("requests", "requests", _of("outcome", command="request_command"), ("requests",)),
    Series("errors", "refused", _of("error_code", command="request_command"), ("answers",)),
    Series("deliveries", "deliveries", _of(*_PLACE), ("deliveries",)),
    Series("redeliveries", "deliveries", _of(*_PLACE, cause="redelivery_cause"), ("deliveries",),
           where=(("is_redelivered", True),)),
    Series("acks", "ack_commands", _of(*_PLACE), ("ids",), always={"action": "ack"}),
    Series("acks", "redeliver_requests", _of(*_PLACE), ("ids_requested", "requests_for_all"),
           always={"action": "redeliver"}),
    Series("connections", "connections", _of("protocol", "ended"), ("connections",)),
    Series("gaps", "connections", {}, ("gaps",)),
    Series("gap_bytes", "connections", {}, ("gap_bytes",)),
    Series("retransmitted", "connections", {}, ("retransmitted_packets",)),
    Series("notices", "notices", _of("code", "severity"), ("notices",)),
)  # fmt: skip
# Durations by bucket: how many, their sum, the least and the greatest.
DURATIONS: Final = (
    Series("send_latency", "send_latencies", _of("topic", "outcome"),
           ("answers", "latency_ns", "latency_ns_min", "latency_ns_max")),
    Series("publish_to_delivery", "transits", _of(*_PLACE),
           ("timed", "publish_to_delivery_ns", "publish_to_delivery_ns_min",
            "publish_to_delivery_ns_max")),
)  # fmt: skip


@cache
def _queries() -> Mapping[str, Query]:
    known = {**catalogue(), **catalogue("live")}
    return {name: known[name] for name in _READS}


def _views(texts: Sequence[str]) -> list[SharedView]:
    """The views that queries need, each made once."""
    views = []
    for view in used_views("\n".join(texts)):
        if view.name == "twins":
            view = view._replace(query=_TWINS.format(view.query))
        if view.materialized == IF_SHARED:
            view = view._replace(materialized=IF_READ)
        views.append(view)
    return views


class Sums:
    """Takes windows.

    counts, durations: by name, over SERIES and DURATIONS.
    problem: why numbers of a window are missing, None if none are.
    lock: to be held while they are read.

    Args:
        is_of_permits: nobody asks for anything but balances.
    """

    def __init__(self, max_series: int = MAX_SERIES, is_of_permits: bool = False) -> None:
        self.lock = threading.Lock()
        self.problem: str | None = None
        self.counts: dict[str, Counts] = {}
        for each in SERIES:
            self.counts[each.name] = Counts((*each.labels, *each.always), max_series)
        self.durations = {each.name: Histograms((*each.labels,), max_series) for each in DURATIONS}
        self.balances = Balances(max_series)
        self._queries = {} if is_of_permits else _queries()
        texts = [*(query.text for query in self._queries.values()), *self.balances.texts()]
        self._views = _views(texts)
        self._columns = columns_of(texts, self._views)
        self._db: DuckdbEngine | None = None

    @property
    def columns(self) -> Columns:
        """By table."""
        return self._columns

    def all_counts(self) -> Iterator[tuple[str, Counts]]:
        """Everything that has labels, by name; for what the bound left out."""
        yield from self.counts.items()
        yield from ((name, each.sums) for name, each in self.durations.items())
        yield "permits", self.balances.granted

    def plain(self, name: str) -> int:
        """A sum that has no labels."""
        return self.counts[name].values.get((), 0)

    def take(self, window: Window, rows: Rows) -> None:
        """Add a window up."""
        db, is_new = self._db, self._db is None
        if db is None:
            db = self._db = DuckdbEngine(threads=1, memory=_MEMORY)
        run = window.run
        name_tables(db, run, window.last_ns, rows, self._columns, is_lent=True)
        repeated = small_table(((each,) for each in window.repeated), connection_id=NUMBER)
        db.lend("repeated", repeated)
        db.lend("carried_permits", self.balances.carried(db))
        if is_new:
            name_views(db, self._columns)
            db.view("permits", TOGETHER)
            db.shared_views(self._views)
        else:
            db.renew(self._views)
        has_permits = any(table in rows for table in _OF_PERMITS)
        permits = self.balances.asked(db) if has_permits else None
        tables = {name: self._asked(db, name) for name in self._queries if _READS[name] in rows}
        with self.lock:
            self._add(tables)
            if permits is not None:
                self.balances.add(run, permits)
            if window.is_end:
                self.balances.forget()

    def fail(self, window: Window, error: Exception) -> None:
        """The numbers of a window are missing."""
        self.problem = f"numbers of a window are missing: {type(error).__name__}: {error}"

    # -- inside

    def _asked(self, db: DuckdbEngine, name: str) -> list[dict[str, Any]]:
        """The rows of a tally, added up by the keys that somebody asks for."""
        query = self._queries[name]
        wanted = [each for each in (*SERIES, *DURATIONS) if each.tally == name]
        keys = {key: None for each in wanted for key in each.labels.values()}
        keys |= {key: None for each in wanted for key, _ in (*each.where, *each.unless)}
        if any(each in DURATIONS for each in wanted):
            keys["bucket"] = None
        text = query.added_up(f"({query.per_capture()})", (*keys,))
        rows: list[dict[str, Any]] = db.table(text).to_pylist()
        return rows

    def _add(self, tables: Mapping[str, list[dict[str, Any]]]) -> None:
        for each in SERIES:
            counts = self.counts[each.name]
            for row in tables.get(each.tally, ()):
                if all(row[key] == value for key, value in each.where) and not any(
                    row[key] == value for key, value in each.unless
                ):
                    labels = (label_text(row[key]) for key in each.labels.values())
                    counts.add((*labels, *each.always.values()), _sum(row, each.sums))
        for each in DURATIONS:
            for row in tables.get(each.tally, ()):
                if row["bucket"] is not None:
                    key = tuple(label_text(row[key]) for key in each.labels.values())
                    self.durations[each.name].add(
                        key, row["bucket"], *(row[name] for name in each.sums)
                    )


def _sum(row: Mapping[str, Any], names: Sequence[str]) -> int:
    return sum(row[name] or 0 for name in names)
