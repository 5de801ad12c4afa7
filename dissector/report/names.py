"""What is only known when everything has been read: late names, and the second leg of a proxy.

A row says what was known when it was written. The name of a topic may be learnt later on the same
connection and then stands in `producers` and `consumers`; whether a connection is the far side of a
proxy, so that all its frames are in the capture twice, stands in `connections`.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

LEGS: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("leg", pa.string()),
        ("twin_connection_id", pa.int64()),
        ("client_ip", pa.string()),
        ("client_port", pa.int64()),
        ("broker_ip", pa.string()),
        ("broker_port", pa.int64()),
        ("protocol", pa.string()),
        ("started", pa.string()),
        ("ended", pa.string()),
        ("closed_first_by", pa.string()),
        ("first_ts_ns", pa.int64()),
        ("last_ts_ns", pa.int64()),
        ("handshake_rtt_ns", pa.int64()),
        ("packets_to_broker", pa.int64()),
        ("packets_to_client", pa.int64()),
    ]
)
PRODUCERS: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("producer_id", pa.int64()),
        ("incarnation", pa.int64()),
        ("topic", pa.string()),
        ("name", pa.string()),
        ("closed_by", pa.string()),
        ("closed_frame_no", pa.int64()),
        ("refused_code", pa.string()),
    ]
)
CONSUMERS: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("consumer_id", pa.int64()),
        ("incarnation", pa.int64()),
        ("topic", pa.string()),
        ("name", pa.string()),
        ("subscription", pa.string()),
        ("subscription_type", pa.string()),
        ("opened_frame_no", pa.int64()),
        ("closed_by", pa.string()),
        ("closed_frame_no", pa.int64()),
        ("refused_code", pa.string()),
    ]
)
_KEYS: Final = ("capture", "connection_id")


class Names(NamedTuple):
    """Connections (LEGS), producers (PRODUCERS) and consumers (CONSUMERS) of all captures."""

    legs: pa.Table
    producers: pa.Table
    consumers: pa.Table


def no_names() -> Names:
    """Names of nothing."""
    return Names(LEGS.empty_table(), PRODUCERS.empty_table(), CONSUMERS.empty_table())


def legs_of(names: Names, places: Iterable[tuple[Any, Any]], *wanted: str) -> dict[Any, Any]:
    """Rows of some connections, with the wanted columns, by place: (capture, connection_id).

    A scan makes a million connections, and those that somebody asks for are few.
    """
    chosen = set(places)
    numbers = pa.array({number for _, number in chosen}, pa.int64())
    legs = names.legs.select([*_KEYS, *wanted])
    legs = legs.filter(pc.is_in(legs.column("connection_id"), numbers))
    rows = {(row["capture"], row["connection_id"]): row for row in legs.to_pylist()}
    return {place: row for place, row in rows.items() if place in chosen}


def _with_capture(table: pa.Table) -> pa.Table:
    """Null captures (one capture in this process) as a text: joins never match on null."""
    at = table.schema.get_field_index("capture")
    return table.set_column(at, "capture", pc.fill_null(table.column("capture"), ""))


def _twins(names: Names) -> pa.Table:
    """The connections that repeat another one's frames: broker legs whose twin is there."""
    legs = names.legs
    is_twin = pc.and_kleene(
        pc.fill_null(pc.equal(legs.column("leg"), "broker"), False),
        pc.is_valid(legs.column("twin_connection_id")),
    )
    return _with_capture(legs.filter(is_twin).select(list(_KEYS)))


def twin_count(names: Names) -> int:
    """How many connections are left out because another one carries the same frames."""
    return int(_twins(names).num_rows)


def blind(names: Names) -> dict[str, int]:
    """Connections of a known protocol of which a direction is missing, by that direction."""
    legs = names.legs
    is_read = pc.fill_null(pc.is_in(legs.column("protocol"), pa.array(("pulsar", "cursus"))), False)
    read = legs.filter(is_read)
    return {
        way: pc.sum(pc.equal(pc.fill_null(read.column(f"packets_{way}"), 0), 0)).as_py() or 0
        for way in ("to_broker", "to_client")
    }


def is_blind(names: Names, way: str) -> bool:
    """Whether nothing of a direction was captured, of any connection of a known protocol.

    What travels in it was not seen then, which is something else than that there was none.
    """
    legs = names.legs
    is_read = pc.fill_null(pc.is_in(legs.column("protocol"), pa.array(("pulsar", "cursus"))), False)
    connections = pc.sum(is_read).as_py() or 0
    return 0 < connections == blind(names)[way]


def is_without_pulsar(names: Names) -> bool:
    """Whether all that was read is of Cursus, which has no permits and no checksums."""
    protocols = pc.unique(names.legs.column("protocol")).to_pylist()
    return "cursus" in protocols and "pulsar" not in protocols


def without_twins(table: pa.Table, names: Names) -> pa.Table:
    """The rows of all connections but the broker legs whose twin is there."""
    twins = _twins(names)
    if twins.num_rows == 0:
        return table
    order = pa.array(range(table.num_rows), pa.int64())
    keyed = _with_capture(table.select(list(_KEYS)).append_column("order", order))
    kept = keyed.join(twins, keys=list(_KEYS), join_type="left anti", use_threads=False)
    places = kept.column("order").combine_chunks()
    return table.take(places.take(pc.sort_indices(places)))


def _filled(table: pa.Table, source: pa.Table, keys: list[str], into: dict[str, str]) -> pa.Table:
    """Put the source's values where the table has null. into: column of the table by source's."""
    missing = [name for name in into.values() if table.column(name).null_count]
    if not missing or source.num_rows == 0 or table.num_rows == 0:
        return table
    distinct = source.select([*keys, *into]).group_by(keys, use_threads=False)
    known = distinct.aggregate([(name, "min") for name in into])
    order = pa.array(range(table.num_rows), pa.int64())
    keyed = _with_capture(table.select(keys).append_column("order", order))
    joined = keyed.join(_with_capture(known), keys=keys, join_type="left outer", use_threads=False)
    joined = joined.take(pc.sort_indices(joined.column("order")))
    for name, target in into.items():
        if target in missing:
            value = pc.coalesce(table.column(target), joined.column(f"{name}_min"))
            table = table.set_column(table.schema.get_field_index(target), target, value)
    return table


def without_refused(consumers: pa.Table, names: Names) -> pa.Table:
    """The rows of consumers that were there, and of refused ones that were used all the same.

    consumers: a table with grants and deliveries. A SUBSCRIBE that the broker refused makes none.
    """
    is_refused = pc.is_valid(names.consumers.column("refused_code"))
    if not pc.any(is_refused, min_count=0).as_py():
        return consumers
    keys = ["capture", "connection_id", "consumer_id", "incarnation"]
    rows = names.consumers.filter(is_refused).select(keys).to_pylist()
    refused = {tuple(row.values()) for row in rows}
    used = pc.add(consumers.column("grants"), consumers.column("deliveries")).to_pylist()
    found = zip(consumers.select(keys).to_pylist(), used, strict=True)
    kept = [bool(n) or tuple(row.values()) not in refused for row, n in found]
    return consumers.filter(pa.array(kept, pa.bool_()))


def name_producers(table: pa.Table, names: Names) -> pa.Table:
    """Fill `topic` and, where the table has one, `producer_name` of rows about a producer."""
    keys = ["capture", "connection_id", "producer_id", "incarnation"]
    into = {"topic": "topic", "name": "producer_name"}
    into = {source: name for source, name in into.items() if name in table.schema.names}
    return _filled(table, names.producers, keys, into)


def name_consumers(table: pa.Table, names: Names) -> pa.Table:
    """Fill `topic`, `subscription` and the like, where the table has them, about a consumer."""
    keys = ["capture", "connection_id", "consumer_id", "incarnation"]
    into = {
        "topic": "topic",
        "subscription": "subscription",
        "subscription_type": "subscription_type",
        "name": "consumer_name",
    }
    into = {source: name for source, name in into.items() if name in table.schema.names}
    return _filled(table, names.consumers, keys, into)
