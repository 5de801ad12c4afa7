"""Tallies: integer sums per key, between the rows of a lake and the numbers of a report.

Both ways to a report, `summary` in this process and the Spark jobs, hand over the same tallies; the
last arithmetic on them (`dissector.report.sections`) is one piece of code. A tally keeps the finest
key that any list of the report needs, always with capture and connection, so that names learnt late
and the second leg of a proxied connection can still be settled when everything has been read.

A tally is an Arrow table: its key columns, then one int64 column per sum, minimum and maximum.
Nulls are left out of sums, minima and maxima; a null key is a key of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

TEXT: Final = "text"
NUMBER: Final = "number"
FLAG: Final = "flag"
_TYPES: Final = {TEXT: pa.string(), NUMBER: pa.int64(), FLAG: pa.bool_()}


class Tally(NamedTuple):
    """What is summed per key.

    name: of the tally; keys: (column, TEXT, NUMBER or FLAG) in order; sums: columns added up, the
    result keeps the name; lows, highs: columns whose least and greatest value is kept, the result
    is called `<column>_min` and `<column>_max`.
    """

    name: str
    keys: tuple[tuple[str, str], ...]
    sums: tuple[str, ...]
    lows: tuple[str, ...] = ()
    highs: tuple[str, ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns, in order."""
        return tuple(name for name, _ in self.keys)

    def schema(self) -> pa.Schema:
        """The Arrow schema of the tally."""
        fields = [pa.field(name, _TYPES[kind]) for name, kind in self.keys]
        fields += [pa.field(name, pa.int64()) for name in self.sums]
        fields += [pa.field(f"{name}_min", pa.int64()) for name in self.lows]
        fields += [pa.field(f"{name}_max", pa.int64()) for name in self.highs]
        return pa.schema(fields)


CONNECTION: Final = (("capture", TEXT), ("connection_id", NUMBER))
_PRODUCER: Final = (
    *CONNECTION,
    ("producer_id", NUMBER),
    ("incarnation", NUMBER),
    ("topic", TEXT),
    ("producer_name", TEXT),
    ("client_ip", TEXT),
    ("broker_ip", TEXT),
)
_CONSUMER: Final = (
    *CONNECTION,
    ("consumer_id", NUMBER),
    ("incarnation", NUMBER),
    ("topic", TEXT),
    ("subscription", TEXT),
)

FRAMES: Final = Tally(
    "frames",
    (*CONNECTION, ("protocol", TEXT), ("direction", TEXT), ("command", TEXT), ("status", TEXT)),
    ("frames", "frame_bytes"),
)
NOTICES: Final = Tally(
    "notices", (("capture", TEXT), ("code", TEXT), ("severity", TEXT)), ("notices", "bytes")
)
CONNECTIONS: Final = Tally(
    "connections",
    (
        ("capture", TEXT),
        ("protocol", TEXT),
        ("started", TEXT),
        ("ended", TEXT),
        ("role_source", TEXT),
    ),
    (
        "connections",
        "packets",
        "payload_bytes",
        "stream_bytes",
        "decoded_bytes",
        "gaps",
        "gap_bytes",
        "snaplen_cut_bytes",
        "conflict_bytes",
        "unparsed_bytes",
        "retransmitted_packets",
        "duplicate_packets",
        "out_of_order_packets",
    ),
)
SENDS: Final = Tally(
    "sends",
    (*_PRODUCER, ("outcome", TEXT)),
    (
        "sends",
        "messages",
        "tainted",
        "resent",
        "request_bytes",
        "counts_unknown",
        "latencies",
        "latency_ns",
        "transmits",
        "transmit_ns",
    ),
    ("latency_ns", "transmit_ns"),
    ("latency_ns", "transmit_ns"),
)
SEND_MINUTES: Final = Tally(
    "send_minutes",
    (*_PRODUCER, ("minute", NUMBER), ("bucket", NUMBER)),
    ("sends", "messages", "request_bytes", "latencies", "latency_ns"),
    ("latency_ns",),
    ("latency_ns",),
)
TRANSMITS: Final = Tally("transmits", (*_PRODUCER, ("bucket", NUMBER)), ("transmits",))
SEND_POINTS: Final = Tally(
    "send_points",
    (*CONNECTION, ("point", NUMBER), ("bucket", NUMBER)),
    ("sends", "messages", "request_bytes", "latencies", "latency_ns"),
    ("latency_ns",),
    ("latency_ns",),
)
LOGICAL: Final = Tally(
    "logical", (*_PRODUCER, ("bucket", NUMBER)), ("logicals", "logical_ns"), ("logical_ns",),
    ("logical_ns",),
)  # fmt: skip
DELIVERIES: Final = Tally(
    "deliveries",
    (
        *_CONSUMER,
        ("subscription_type", TEXT),
        ("is_redelivered", FLAG),
        ("redelivery_cause", TEXT),
        ("outcome", TEXT),
    ),
    ("deliveries", "messages", "counts_unknown", "counted_by_broker", "seen_before"),
    (),
    ("redelivery_count",),
)
# From a delivery to its ack; bucket is null where no ack was timed; at_us: when it was delivered.
ACK_TIMES: Final = Tally(
    "ack_times",
    (*_CONSUMER, ("outcome", TEXT), ("bucket", NUMBER)),
    ("deliveries", "timed", "ack_latency_ns"),
    ("ack_latency_ns", "at_us"),
    ("ack_latency_ns",),
)
ACK_COMMANDS: Final = Tally(
    "ack_commands",
    (*_CONSUMER, ("ack_type", TEXT), ("is_answered", FLAG), ("validation_error", TEXT)),
    ("ack_commands", "ids"),
)
# From a publish to its delivery; timed: first deliveries without a wanted delay.
TRANSITS: Final = Tally(
    "transits",
    (*_CONSUMER, ("is_redelivered", FLAG), ("is_delayed", FLAG), ("bucket", NUMBER)),
    ("deliveries", "timed", "publish_to_delivery_ns"),
    ("publish_to_delivery_ns",),
    ("publish_to_delivery_ns",),
)
# Requests that are no publishes; asked_by: client or broker, for PING alone.
REQUESTS: Final = Tally(
    "requests",
    (
        *CONNECTION,
        ("kind", TEXT),
        ("request_command", TEXT),
        ("asked_by", TEXT),
        ("outcome", TEXT),
        ("bucket", NUMBER),
    ),
    ("requests", "tainted", "latencies", "latency_ns"),
    ("latency_ns",),
    ("latency_ns",),
)
# Lags of consumers; last: see LAST_LAG_BITS; which: committed or delivered.
LAGS: Final = Tally(
    "lags",
    (
        *CONNECTION,
        ("topic", TEXT),
        ("subscription", TEXT),
        ("partition", NUMBER),
        ("which", TEXT),
    ),
    ("judged", "unjudged"),
    (),
    ("lag", "last", "at_us"),
)
# The last lag is that of the greatest of these numbers: the frame's number above, the lag below.
LAST_LAG_BITS: Final = 32
REDELIVER_REQUESTS: Final = Tally(
    "redeliver_requests", _CONSUMER, ("ids_requested", "requests_for_all")
)
RECONSUMED: Final = Tally(
    "reconsumed",
    (
        *CONNECTION,
        ("producer_id", NUMBER),
        ("incarnation", NUMBER),
        ("topic", TEXT),
        ("real_topic", TEXT),
        ("real_subscription", TEXT),
        ("has_reconsume_times", FLAG),
    ),
    ("publishes", "messages"),
)
# Places of batches that a compaction emptied: delivered and paid for, but no messages any more.
PLACEHOLDERS: Final = Tally("placeholders", (*CONNECTION, ("topic", TEXT)), ("placeholders",))
CHECKSUMS: Final = Tally(
    "checksums",
    (
        *CONNECTION,
        ("direction", TEXT),
        ("producer_id", NUMBER),
        ("consumer_id", NUMBER),
        ("incarnation", NUMBER),
        ("topic", TEXT),
        ("checksum", TEXT),
        ("checksum_note", TEXT),
    ),
    ("frames",),
)
BALANCES: Final = Tally(
    "balances",
    (*CONNECTION, ("consumer_id", NUMBER), ("incarnation", NUMBER), ("point", NUMBER)),
    (),
    ("available_after",),
    ("available_after", "last"),
)
# The last balance of a point is the greatest of these numbers: the frame's number above, the
# balance below, cut to what fits there.
LAST_BITS: Final = 24
LAST_ZERO: Final = 1 << (LAST_BITS - 1)
TALLIES: Final = {
    tally.name: tally
    for tally in (
        CONNECTIONS,
        FRAMES,
        NOTICES,
        SENDS,
        SEND_MINUTES,
        TRANSMITS,
        SEND_POINTS,
        LOGICAL,
        DELIVERIES,
        ACK_TIMES,
        ACK_COMMANDS,
        LAGS,
        TRANSITS,
        REQUESTS,
        REDELIVER_REQUESTS,
        RECONSUMED,
        PLACEHOLDERS,
        CHECKSUMS,
        BALANCES,
    )
}

Columns = Mapping[str, pa.Array]


def _plain(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """A key column as what is grouped by, and the dictionary that turns it back into texts."""
    if pa.types.is_dictionary(column.type):
        return column.indices, column.dictionary
    return column, None


def count(columns: Columns, tally: Tally) -> pa.Table:
    """Sum up rows. columns: the keys and everything that is summed, arrays of equal length."""
    names = tally.key_names
    arrays: dict[str, pa.Array] = {}
    dictionaries: dict[str, pa.Array] = {}
    for name in names:
        arrays[name], dictionary = _plain(columns[name])
        if dictionary is not None:
            dictionaries[name] = dictionary
    for name in {*tally.sums, *tally.lows, *tally.highs}:
        arrays[f"{name}:"] = columns[name]
    wanted = [(f"{name}:", "sum") for name in tally.sums]
    wanted += [(f"{name}:", "min") for name in tally.lows]
    wanted += [(f"{name}:", "max") for name in tally.highs]
    grouped = pa.table(arrays).group_by(list(names), use_threads=False).aggregate(wanted)
    found = []
    for name in names:
        column = grouped.column(name)
        if name in dictionaries:
            column = dictionaries[name].take(column.combine_chunks())
        found.append(column)
    found += [grouped.column(f"{name}:_{how}") for name, how in _outputs(tally)]
    return pa.table(found, names=tally.schema().names).cast(tally.schema())


def _outputs(tally: Tally) -> list[tuple[str, str]]:
    return (
        [(name, "sum") for name in tally.sums]
        + [(name, "min") for name in tally.lows]
        + [(name, "max") for name in tally.highs]
    )


def add_up(table: pa.Table, tally: Tally, keys: Sequence[str] | None = None) -> pa.Table:
    """A tally once more, by some of its keys only: the sums of sums, the least of the least.

    keys: columns to keep (they may be columns that were added to the tally); None = all its keys.
    """
    names = list(tally.key_names if keys is None else keys)
    wanted = [(name, "sum") for name in tally.sums]
    wanted += [(f"{name}_min", "min") for name in tally.lows]
    wanted += [(f"{name}_max", "max") for name in tally.highs]
    grouped = table.group_by(names, use_threads=False).aggregate(wanted)
    columns = [grouped.column(name) for name in names]
    columns += [grouped.column(f"{name}_{how}") for name, how in wanted]
    return pa.table(columns, names=names + [name for name, _ in wanted])


def rows(table: pa.Table, tally: Tally, keys: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """add_up, as Python rows; a sum over nothing is 0, a minimum over nothing None."""
    found: list[dict[str, Any]] = add_up(table, tally, keys).to_pylist()
    for row in found:
        for name in tally.sums:
            row[name] = row[name] or 0
    return found


class Accumulator:
    """A tally that grows row group by row group, within a bound.

    Rows are summed when they come and again when many have gathered. Where more keys than the bound
    appear, the later ones are left out and counted in `left_out`.
    """

    def __init__(self, tally: Tally, limit: int) -> None:
        self.tally = tally
        self.limit = limit
        self.left_out = 0
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._settled = 0

    def add(self, columns: Columns) -> None:
        """Sum up rows (see `count`)."""
        self.add_table(count(columns, self.tally))

    def add_table(self, table: pa.Table) -> None:
        """Take in a tally made elsewhere."""
        if table.num_rows == 0:
            return
        self._parts.append(table)
        self._rows += table.num_rows
        if self._rows > 2 * self._settled + 20_000:
            self.settle()

    def settle(self) -> pa.Table:
        """Everything so far as one table with one row per key."""
        if len(self._parts) > 1:
            table = add_up(pa.concat_tables(self._parts), self.tally).cast(self.tally.schema())
            if table.num_rows > self.limit:
                self.left_out += table.num_rows - self.limit
                table = table.slice(0, self.limit)
            self._parts = [table]
        if not self._parts:
            return self.tally.schema().empty_table()
        self._settled = self._rows = self._parts[0].num_rows
        return self._parts[0]

    def replace(self, table: pa.Table) -> None:
        """Put a re-keyed table in the place of what has gathered."""
        self._parts = [add_up(table, self.tally).cast(self.tally.schema())]
        self.settle()


def where(condition: pa.Array, value: pa.Array | pa.Scalar | int) -> pa.Array:
    """value where the condition holds, null elsewhere."""
    return pc.if_else(pc.fill_null(condition, False), value, pa.scalar(None, pa.int64()))


def ones(condition: pa.Array) -> pa.Array:
    """1 where the condition holds, 0 elsewhere (also where it is null)."""
    return pc.cast(pc.fill_null(condition, False), pa.int64())


def concat(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Tables of one schema, one after the other; an empty one if there are none."""
    found = [table.cast(schema) for table in tables]
    return pa.concat_tables(found) if found else schema.empty_table()
