"""Running totals of a tap: aggregations over windows of rows, added up.

Each metric is an aggregation of `queries/live` (or `queries/tallies`): some of its keys are labels,
one of its sums is the value. Only permit balances (`balances`) and offsets of client clocks
(`clocks`) are carried from one window into the next.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from dissector.limits import MAX_SERIES
from dissector.queries.catalogue import Query, SharedView, catalogue, used_views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.schemas.small_tables import NUMBER, small_table
from dissector.tap.balances import TOGETHER, Balances
from dissector.tap.clocks import WITH_CARRIED, Clocks
from dissector.tap.metric_series import Counts, Histograms, Key, label_text
from dissector.tap.window_tables import Columns, Rows, columns_of, name_tables, name_views
from dissector.tap.windows import Window

_MEMORY: Final = "1GB"
_PLACE: Final = ("topic", "subscription")
# Views that say more than the rows of a window. A connection that repeats another one's facts is
# known before its own row comes. To find out whose rows lack names costs more than to name few.
_MORE: Final = {
    "twins": "{} UNION SELECT u.capture, r.connection_id FROM repeated AS r CROSS JOIN units u",
    "unnamed_producers": "SELECT * FROM late_producers",
    **WITH_CARRIED,
}
# The table that must have rows, by aggregation.
_READS: Final = {
    "counted_frames": "frames", "counted_exchanges": "exchanges", "application": "exchanges",
    "counted_deliveries": "deliveries", "counted_acks": "acks", "connections": "connections",
    "notices": "notices",
}  # fmt: skip
# Whether a view is materialized: `permit_sums` is read once, in few columns; others several times.
_IS_MATERIALIZED: Final = {
    "permit_sums": False, "publishes": True, "publish_distances": True, "unnamed_producers": False,
}  # fmt: skip
_OF_PERMITS: Final = ("permits", "consumers")

Columnar = Mapping[str, Sequence[Any]]  # rows, by column
Cells = tuple[Any, ...]


class Series(NamedTuple):
    """The source of a metric.

    labels: keys of the aggregation, by label name.
    sums: columns that are added.
    where, unless: values of keys that rows must have, or must not have.
    """

    name: str
    query_name: str
    labels: Mapping[str, str]
    sums: tuple[str, ...]
    where: tuple[tuple[str, object], ...] = ()
    unless: tuple[tuple[str, object], ...] = ()


def _keys(*keys: str, **renamed: str) -> dict[str, str]:
    return {**{key: key for key in keys}, **renamed}


_SENT: Final = (("is_publish", True),)
_CHECKED: Final = (("checksum", None),)
SERIES: Final = (
    Series("frames", "counted_frames", _keys("direction", "command"), ("frames",)),
    Series("frame_bytes", "counted_frames", _keys("direction"), ("frame_bytes",)),
    Series("damaged", "counted_frames", _keys("status"), ("frames",),
           unless=(("status", "complete"),)),
    Series("checksums", "counted_frames", _keys("direction", verdict="checksum"), ("frames",),
           unless=_CHECKED),
    Series("mismatches", "counted_frames", _keys("topic", "direction"), ("frames",),
           where=(("checksum", "mismatch"),)),
    Series("redelivered_frames", "counted_frames", _keys(*_PLACE), ("frames",),
           where=(("is_repeated", True),)),
    Series("sends", "counted_exchanges", _keys("topic", "outcome"), ("exchanges",), where=_SENT),
    Series("send_messages", "counted_exchanges", _keys("topic"), ("messages",), where=_SENT),
    Series("send_bytes", "counted_exchanges", _keys("topic"), ("request_bytes",), where=_SENT),
    Series("resent", "counted_exchanges", _keys("topic"), ("resent",), where=_SENT),
    Series("requests", "counted_exchanges", _keys("outcome", command="request_command"),
           ("exchanges",), unless=_SENT),
    Series("errors", "counted_exchanges", _keys("error_code", command="request_command"),
           ("exchanges",), where=(("is_refused", True),)),
    Series("deliveries", "counted_deliveries", _keys(*_PLACE), ("deliveries",)),
    Series("redeliveries", "counted_deliveries", _keys(*_PLACE, cause="redelivery_cause"),
           ("deliveries",), where=(("is_redelivered", True),)),
    Series("acks", "counted_acks", _keys(*_PLACE, "action"), ("ids",)),
    Series("connections", "connections", _keys("protocol", "ended"), ("connections",)),
    Series("gaps", "connections", {}, ("gaps",)),
    Series("gap_bytes", "connections", {}, ("gap_bytes",)),
    Series("retransmitted", "connections", {}, ("retransmitted_packets",)),
    Series("notices", "notices", _keys("code", "severity"), ("notices",)),
)  # fmt: skip
# Durations by bucket: the columns of count, sum, minimum and maximum.
DURATIONS: Final = (
    Series("send_latency", "counted_exchanges", _keys("topic", "outcome"),
           ("exchanges", "latency_ns", "latency_ns_min", "latency_ns_max"), where=_SENT),
    Series("application", "application", _keys("topic"),
           ("confirmed", "application_ns", "application_ns_min", "application_ns_max")),
    Series("publish_to_delivery", "counted_deliveries", _keys(*_PLACE),
           ("deliveries", "publish_to_delivery_ns", "publish_to_delivery_ns_min",
            "publish_to_delivery_ns_max")),
)  # fmt: skip


@cache
def _queries() -> Mapping[str, str]:
    """The SQL per aggregation, with only the keys and sums that a series uses."""
    known = {**catalogue(), **catalogue("live")}
    return {name: _sql_of(known[name]) for name in _READS}


def _sql_of(query: Query) -> str:
    names = {"bucket"}
    for each in (*SERIES, *DURATIONS):
        if each.query_name == query.name:
            conditions = (*each.where, *each.unless)
            names |= {*each.labels.values(), *each.sums, *(key for key, _ in conditions)}
    query = query.only(names)
    return query.added_up(f"({query.per_capture()})", query.keys)


def _views(texts: Sequence[str]) -> list[SharedView]:
    """The views that the queries read, adapted to windows."""
    views = []
    for view in used_views("\n".join(texts)):
        if view.name in _MORE:
            view = view._replace(query=_MORE[view.name].format(view.query))
        if view.name in _IS_MATERIALIZED:
            view = view._replace(is_materialized=_IS_MATERIALIZED[view.name])
        views.append(view)
    return views


class Sums:
    """Adds up windows.

    counts, durations: by name, for SERIES and DURATIONS.
    problem: why a window's numbers are missing, None if none are.
    lock: a reader of the numbers must hold it.

    Args:
        is_of_permits: compute only balances.
    """

    def __init__(self, max_series: int = MAX_SERIES, is_of_permits: bool = False) -> None:
        self.lock = threading.Lock()
        self.problem: str | None = None
        self.counts: dict[str, Counts] = {}
        for each in SERIES:
            self.counts[each.name] = Counts((*each.labels,), max_series)
        self.durations = {each.name: Histograms((*each.labels,), max_series) for each in DURATIONS}
        self.balances = Balances(max_series)
        self._clocks = Clocks()
        self._queries = {} if is_of_permits else _queries()
        texts = [*self._queries.values(), *self.balances.texts()]
        texts += self._clocks.texts() if self._queries else []
        self._views = _views(texts)
        self._columns = columns_of(texts, self._views)
        self._db: DuckdbEngine | None = None

    @property
    def columns(self) -> Columns:
        """The columns that the queries read, by table."""
        return self._columns

    def all_counts(self) -> Iterator[tuple[str, Counts]]:
        """All counts with labels, by name, to report what exceeded the bound."""
        yield from self.counts.items()
        yield from ((name, each.sums) for name, each in self.durations.items())
        yield "permits", self.balances.granted

    def plain(self, name: str) -> int:
        """The value of a count without labels."""
        return self.counts[name].values.get((), 0)

    def take(self, window: Window, rows: Rows) -> None:
        """Add a window to the totals."""
        db, is_new = self._db, self._db is None
        if db is None:
            db = self._db = DuckdbEngine(threads=1, memory=_MEMORY)
        run = window.run
        name_tables(db, run, window.last_ns, rows, self._columns)
        repeated = small_table(((each,) for each in window.repeated), connection_id=NUMBER)
        db.lend("repeated", repeated)
        db.lend("carried_permits", self.balances.carried(db))
        db.lend("carried_clocks", self._clocks.carried())
        if is_new:
            name_views(db, self._columns)
            db.view("permits", TOGETHER)
            db.shared_views(self._views)
        else:
            db.renew(self._views)
        has_permits = any(table in rows for table in _OF_PERMITS)
        permits = self.balances.asked(db) if has_permits else None
        tables = {
            name: db.table(text).to_pydict()
            for name, text in self._queries.items()
            if _READS[name] in rows
        }
        if "application" in tables:
            self._clocks.take(db)
        if window.is_end:
            self._clocks.forget()
        with self.lock:
            self._add(tables)
            if permits is not None:
                self.balances.add(run, permits)
            if window.is_end:
                self.balances.forget()

    def fail(self, window: Window, error: Exception) -> None:
        """Record that a window's numbers are missing."""
        self.problem = f"numbers of a window are missing: {type(error).__name__}: {error}"

    # -- inside

    def _add(self, tables: Mapping[str, Columnar]) -> None:
        for each in SERIES:
            counted: defaultdict[Cells, int] = defaultdict(int)
            for key, (count,) in _rows_of(each, tables, each.sums):
                counted[key] += count or 0
            for key, total in counted.items():
                self.counts[each.name].add(_labels(key), total)
        for each in DURATIONS:
            for key, (bucket, *sums) in _rows_of(each, tables, ("bucket", *each.sums)):
                if bucket is not None:
                    self.durations[each.name].add(_labels(key), bucket, *sums)


def _rows_of(
    series: Series, tables: Mapping[str, Columnar], names: Sequence[str]
) -> Iterator[tuple[Cells, Cells]]:
    """For each counted row of the series' aggregation: its labels, and the columns `names`."""
    if (columns := tables.get(series.query_name)) is None:
        return
    labels, conditions = [*series.labels.values()], (*series.where, *series.unless)
    wanted, refused = (tuple(value for _, value in each) for each in (series.where, series.unless))
    ends = len(labels), len(labels) + len(wanted), len(labels) + len(conditions)
    tested = [key for key, _ in conditions]
    for row in zip(*(columns[name] for name in (*labels, *tested, *names)), strict=True):
        if row[ends[0] : ends[1]] == wanted and (not refused or row[ends[1] : ends[2]] != refused):
            yield row[: ends[0]], row[ends[2] :]


def _labels(key: Cells) -> Key:
    return tuple(map(label_text, key))
