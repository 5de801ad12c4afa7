"""Permit balances of consumers in a running tap, carried from window to window.

The queries are those of reports (`queries/permits.sql`, the aggregations `consumers` and `stalls`).
For each open consumer, the rows of `permits` that determine the meaning of its next rows are added
to the next window (`queries/live/carried_permits.sql`); the sums over these rows alone are
subtracted there.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dissector.limits import MAX_FOLLOWED_CONSUMERS, MAX_NEW_STALLS, MAX_SERIES
from dissector.queries.catalogue import catalogue
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report.sections.permit_utilization import STALL_US
from dissector.schemas.small_tables import NUMBER, TEXT, small_table
from dissector.tap.metric_series import Counts, Key, label_text

CARRIED: Final = "carried"  # the capture under which carried rows are summed alone

_NAMES: Final = ("topic", "subscription")
_CELLS: Final = {
    "connection_id": NUMBER, "consumer_id": NUMBER, "incarnation": NUMBER, "frame_no": NUMBER,
    "ts": NUMBER, "event": TEXT, "delta": NUMBER, "available_after": NUMBER,
    "unacked_after": NUMBER, "topic": TEXT, "subscription": TEXT, "subscription_type": TEXT,
}  # fmt: skip
# A window's rows with the carried ones, and the carried ones alone.
_CARRIED_CELLS: Final = ", ".join(
    "make_timestamptz(c.ts) AS ts" if name == "ts" else f"c.{name}" for name in _CELLS
)
TOGETHER: Final = (
    "SELECT p.*, p.frame_no AS order_no FROM ("
    f"SELECT capture, {', '.join(_CELLS)} FROM lake_permits UNION ALL "
    f"SELECT u.capture, {_CARRIED_CELLS} FROM carried_permits AS c CROSS JOIN units AS u UNION ALL "
    f"SELECT '{CARRIED}', {_CARRIED_CELLS} FROM carried_permits AS c) AS p"
)
_CLOSED: Final = "SELECT connection_id, consumer_id, incarnation FROM lake_consumers"
_TOUCHED: Final = (
    f"SELECT connection_id, consumer_id, incarnation FROM lake_permits UNION {_CLOSED}"
)
_ASKED: Final = (  # columns of `consumers`
    "connection_id", "consumer_id", "incarnation", "topic", "subscription", "granted", "delivered",
    "exhausted_us", "confirmed", "unconfirmed",
)  # fmt: skip

Consumer = tuple[int, ...]


class Stall(NamedTuple):
    """A long time of a consumer without permits: its consumer, frame and time."""

    connection_id: int
    consumer_id: int
    end_frame_no: int
    start_us: int
    duration_us: int


class _Open(NamedTuple):
    """A consumer that is open after a window.

    rows: its carried rows.
    last: the last one of these.
    stall_us: begin of a stall that has not ended.
    pending: the frame that ended a stall which may still be confirmed.
    is_undecided: that stall is long enough to count.
    """

    key: Key
    rows: Sequence[Mapping[str, Any]]
    last: Mapping[str, Any]
    stall_us: int | None
    pending: int | None
    is_undecided: bool


class BalanceRows(NamedTuple):
    """The query results of a window: `consumers`, `stalls`, the rows to carry, and the consumers
    that closed in it."""

    consumers: list[dict[str, Any]]
    stalls: list[dict[str, Any]]
    carried: list[dict[str, Any]]
    closed: set[Consumer]


class Balances:
    """Balances of consumers, by topic and subscription.

    granted, delivered, stalls: totals since the start (stalls also by `confirmed`).
    left_out: how often a consumer was not carried into the next window.
    """

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self.granted = Counts(_NAMES, max_series)
        self.delivered = Counts(_NAMES, max_series)
        self.stalls = Counts((*_NAMES, "confirmed"), max_series)
        self.left_out = 0
        self._exhausted_us = Counts(_NAMES, max_series)
        self._open: dict[Consumer, _Open] = {}
        self._closed: set[Consumer] = set()
        self._new: list[Stall] = []

    def texts(self) -> list[str]:
        """The queries that run on each window."""
        return [_summing(), catalogue()["stalls"].text, _carrying(), TOGETHER, _CLOSED]

    def carried(self, db: DuckdbEngine) -> pa.Table:
        """The carried rows of the consumers that occur in a window, the table `carried_permits`.

        Args:
            db: the engine with the tables of the window.
        """
        of = map(_consumer, db.table(_TOUCHED).to_pylist()) if self._open else ()
        return _table(row for one in of if one in self._open for row in self._open[one].rows)

    def asked(self, db: DuckdbEngine) -> "BalanceRows":
        """Query a window, whose tables and views `db` has."""
        return BalanceRows(
            db.table(_summing()).to_pylist(),
            db.table(catalogue()["stalls"].text).to_pylist(),
            db.table(_carrying()).to_pylist(),
            {*map(_consumer, db.table(_CLOSED).to_pylist())},
        )

    def add(self, run: str, window: "BalanceRows") -> None:
        """Add a window to the totals. run: of the tap."""
        undecided = self._carry(run, window)
        self._count(run, window.consumers, undecided)
        # Further rows of the same frames may be in the next window, but in no later one.
        self._let_go(self._closed - window.closed)
        self._closed = window.closed

    def forget(self) -> None:
        """End the run: discard all open consumers."""
        self._let_go({*self._open})
        self._closed.clear()

    def now(self, now_us: int) -> dict[str, dict[Key, int]]:
        """The balances at a moment of capture time, by topic and subscription.

        Returns:
            available: permits of consumers with a known balance; consumers: the number of these;
            exhausted_us: time without permits since the start; stalled: consumers without permits
            for the time of a stall; empty: consumers without permits for any time.
        """
        balances: dict[str, dict[Key, int]] = {
            "available": {}, "consumers": {}, "stalled": {}, "empty": {},
            "exhausted_us": dict(self._exhausted_us.values),
        }  # fmt: skip
        for consumer, one in self._open.items():
            if consumer in self._closed or not (one.last["is_open"] or one.last["is_exhausted"]):
                continue
            key, is_empty = self.granted.key(one.key), one.last["is_exhausted"]
            waited_us = 0 if one.stall_us is None else now_us - one.stall_us
            _add(balances["consumers"], key, 1)
            _add(balances["available"], key, one.last["available_after"])
            _add(balances["empty"], key, int(is_empty))
            _add(balances["stalled"], key, int(waited_us >= STALL_US))
            _add(balances["exhausted_us"], key, max(0, now_us - one.last["ts"]) if is_empty else 0)
        return balances

    def drain_stalls(self) -> list[Stall]:
        """Return the stalls since the last call, MAX_NEW_STALLS at most."""
        stalls, self._new = self._new, []
        return stalls

    # -- inside

    def _let_go(self, consumers: Iterable[Consumer]) -> None:
        """Drop consumers; a pending stall counts as unconfirmed."""
        for consumer in consumers:
            one = self._open.pop(consumer, None)
            if one is not None and one.is_undecided:
                self.stalls.add((*one.key, "no"), 1)

    def _count(self, run: str, rows: Iterable[Mapping[str, Any]], undecided: Set[Consumer]) -> None:
        """Add the sums of consumers, minus the sums over carried rows alone.

        Args:
            undecided: consumers whose last stall is not counted yet, because it may be confirmed.
        """
        of: dict[str, dict[Consumer, Mapping[str, Any]]] = {CARRIED: {}, run: {}}
        for row in rows:
            of[row["capture"]][_consumer(row)] = row
        for consumer, row in of[run].items():
            known = of[CARRIED].get(consumer, {})
            key = _key(row)
            for counts, name in (
                (self.granted, "granted"),
                (self.delivered, "delivered"),
                (self._exhausted_us, "exhausted_us"),
            ):
                counts.add(key, (row[name] or 0) - (known.get(name) or 0))
            self.stalls.add((*key, "yes"), row["confirmed"] or 0)
            self.stalls.add((*key, "no"), (row["unconfirmed"] or 0) - (consumer in undecided))

    def _list(self, run: str, stalls: Iterable[Mapping[str, Any]]) -> None:
        """Queue the ended stalls that the previous window did not queue."""
        for row in stalls:
            known = self._open.get(_consumer(row))
            is_known = known is not None and known.pending == row["end_frame_no"]
            if row["capture"] != run or row["confirmed"] is None or is_known:
                continue
            if len(self._new) < MAX_NEW_STALLS:
                self._new.append(
                    Stall(
                        row["connection_id"], row["consumer_id"], row["end_frame_no"],
                        row["start_us"], row["stall_us"],
                    )
                )  # fmt: skip

    def _carry(self, run: str, window: BalanceRows) -> set[Consumer]:
        """Store the rows to carry of the window's consumers, and queue stalls.

        Returns:
            the consumers whose last stall ended and may still be confirmed.
        """
        undecided = set()
        rows: dict[Consumer, list[Mapping[str, Any]]] = {}
        for row in window.carried:
            if row["capture"] == run:
                rows.setdefault(_consumer(row), []).append(row)
        self._list(run, window.stalls)
        for consumer, mine in rows.items():
            if consumer not in self._open and len(self._open) >= MAX_FOLLOWED_CONSUMERS:
                self.left_out += 1
                continue
            last = next(row for row in mine if row["is_last"])
            begun = next((row["ts"] for row in mine if row["begins"]), None)
            end = next((row for row in mine if row["is_pending"]), None)
            is_long = end is not None and begun is not None and end["ts"] - begun >= STALL_US
            self._open[consumer] = _Open(
                _key(last), mine, last, begun if end is None else None,
                None if end is None else end["frame_no"], is_long,
            )  # fmt: skip
            if is_long:
                undecided.add(consumer)
        return undecided


def _summing() -> str:
    return catalogue()["consumers"].only(_ASKED).per_capture()


def _carrying() -> str:
    return catalogue("live")["carried_permits"].text


def _consumer(row: Mapping[str, Any]) -> Consumer:
    return row["connection_id"], row["consumer_id"], row["incarnation"]


def _key(row: Mapping[str, Any]) -> Key:
    return label_text(row["topic"]), label_text(row["subscription"])


def _table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return small_table((tuple(row[name] for name in _CELLS) for row in rows), **_CELLS)


def _add(sums: dict[Key, int], key: Key, count: int) -> None:
    sums[key] = sums.get(key, 0) + count
