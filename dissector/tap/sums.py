"""The numbers of a report while they grow: counted over windows of rows, added up.

Each metric is a tally of `queries/live` (or of `queries/tallies`), some of the keys that its header
declares as labels, and a sum. What goes over from one window into the next are balances of
permits (`balances`) and what is known of the clocks of clients (`clocks`).
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
# The table of which there must be rows, by tally.
_READS: Final = {
    "counted_frames": "frames", "counted_exchanges": "exchanges", "application": "exchanges",
    "counted_deliveries": "deliveries", "counted_acks": "acks", "connections": "connections",
    "notices": "notices",
}  # fmt: skip
# One query reads `permit_sums`, and few columns of it; several read what is published.
_MADE_ANEW: Final = {
    "permit_sums": False, "publishes": True, "publish_distances": True, "unnamed_producers": False,
}  # fmt: skip
_OF_PERMITS: Final = ("permits", "consumers")

Columnar = Mapping[str, Sequence[Any]]  # rows, by column
Cells = tuple[Any, ...]


class Series(NamedTuple):
    """Where the numbers of a metric are from.

    labels: keys of the tally by the names that the metric has for them.
    sums: of the tally, added.
    where, unless: keys and values that rows have, or do not have.
    """

    name: str
    tally: str
    labels: Mapping[str, str]
    sums: tuple[str, ...]
    where: tuple[tuple[str, object], ...] = ()
    unless: tuple[tuple[str, object], ...] = ()


def _of(*keys: str, **renamed: str) -> dict[str, str]:
    return {**{key: key for key in keys}, **renamed}


_SENT: Final = (("is_publish", True),)
_CHECKED: Final = (("checksum", None),)
SERIES: Final = (
    Series("frames", "counted_frames", _of("direction", "command"), ("frames",)),
    Series("frame_bytes", "counted_frames", _of("direction"), ("frame_bytes",)),
    Series("damaged", "counted_frames", _of("status"), ("frames",),
           unless=(("status", "complete"),)),
    Series("checksums", "counted_frames", _of("direction", verdict="checksum"), ("frames",),
           unless=_CHECKED),
    Series("mismatches", "counted_frames", _of("topic", "direction"), ("frames",),
           where=(("checksum", "mismatch"),)),
    Series("redelivered_frames", "counted_frames", _of(*_PLACE), ("frames",),
           where=(("is_repeated", True),)),
    Series("sends", "counted_exchanges", _of("topic", "outcome"), ("exchanges",), where=_SENT),
    Series("send_messages", "counted_exchanges", _of("topic"), ("messages",), where=_SENT),
    Series("send_bytes", "counted_exchanges", _of("topic"), ("request_bytes",), where=_SENT),
    Series("resent", "counted_exchanges", _of("topic"), ("resent",), where=_SENT),
    Series("requests", "counted_exchanges", _of("outcome", command="request_command"),
           ("exchanges",), unless=_SENT),
    Series("errors", "counted_exchanges", _of("error_code", command="request_command"),
           ("exchanges",), where=(("is_refused", True),)),
    Series("deliveries", "counted_deliveries", _of(*_PLACE), ("deliveries",)),
    Series("redeliveries", "counted_deliveries", _of(*_PLACE, cause="redelivery_cause"),
           ("deliveries",), where=(("is_redelivered", True),)),
    Series("acks", "counted_acks", _of(*_PLACE, "action"), ("ids",)),
    Series("connections", "connections", _of("protocol", "ended"), ("connections",)),
    Series("gaps", "connections", {}, ("gaps",)),
    Series("gap_bytes", "connections", {}, ("gap_bytes",)),
    Series("retransmitted", "connections", {}, ("retransmitted_packets",)),
    Series("notices", "notices", _of("code", "severity"), ("notices",)),
)  # fmt: skip
# Durations by bucket: how many, their sum, the least and the greatest.
DURATIONS: Final = (
    Series("send_latency", "counted_exchanges", _of("topic", "outcome"),
           ("exchanges", "latency_ns", "latency_ns_min", "latency_ns_max"), where=_SENT),
    Series("application", "application", _of("topic"),
           ("confirmed", "application_ns", "application_ns_min", "application_ns_max")),
    Series("publish_to_delivery", "counted_deliveries", _of(*_PLACE),
           ("deliveries", "publish_to_delivery_ns", "publish_to_delivery_ns_min",
            "publish_to_delivery_ns_max")),
)  # fmt: skip


@cache
def _queries() -> Mapping[str, str]:
    """What windows are asked, by tally: the sums that somebody wants, by the keys of these."""
    known = {**catalogue(), **catalogue("live")}
    return {name: _asking(known[name]) for name in _READS}


def _asking(query: Query) -> str:
    names = {"bucket"}
    for each in (*SERIES, *DURATIONS):
        if each.tally == query.name:
            conditions = (*each.where, *each.unless)
            names |= {*each.labels.values(), *each.sums, *(key for key, _ in conditions)}
    query = query.only(names)
    return query.added_up(f"({query.per_capture()})", query.keys)


def _views(texts: Sequence[str]) -> list[SharedView]:
    """The views that queries need, each made once."""
    views = []
    for view in used_views("\n".join(texts)):
        if view.name in _MORE:
            view = view._replace(query=_MORE[view.name].format(view.query))
        if view.name in _MADE_ANEW:
            view = view._replace(is_materialized=_MADE_ANEW[view.name])
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
        """The numbers of a window are missing."""
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
    """Of the rows of its tally that it counts, the keys that are labels, and other columns."""
    if (columns := tables.get(series.tally)) is None:
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
