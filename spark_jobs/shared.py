"""Captures that have messages in common, by what went over the wire in them."""

from collections import Counter, defaultdict
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.group import GroupedData

from spark_jobs.links import Place

# A message that is sent again comes later than this; at a second tap it is seen within it.
_AT_ONCE_US: Final = 50_000


class Shared(NamedTuple):
    """Captures that have messages in common; views: those that have them since they show the same
    traffic at two places, such as both sides of a proxy, the clients' side first; twins:
    connections of views that are there in the first one, too."""

    captures: list[list[str]]
    views: list[list[str]]
    twins: list[Place]


def sends_of(exchanges: DataFrame) -> DataFrame:
    """What of the rows of exchanges tells which captures have messages in common."""
    return exchanges.where((F.col("kind") == "publish") & F.col("topic").isNotNull()).select(
        "capture", "connection_id", "kind", "topic", "producer_name", "sequence_id", "chunk_id",
        "crc32c_stored", "ledger_id", "entry_id", "ts",
    )  # fmt: skip


def got_of(deliveries: DataFrame) -> DataFrame:
    """The same of rows of deliveries."""
    return deliveries.where(F.col("topic").isNotNull()).select(
        "capture", "connection_id", "topic", "subscription", "ledger_id", "entry_id", "ts"
    )


def shared_captures(exchanges: DataFrame, deliveries: DataFrame, clusters: DataFrame) -> Shared:
    """Captures that have messages in common: the same one published, or delivered to the same
    subscription, in both, or published in one and delivered in the other.

    clusters: capture and cluster; captures of different labels have nothing in common.
    """
    label = F.broadcast(clusters.select("capture", "cluster"))
    sends = exchanges.where((F.col("kind") == "publish") & F.col("topic").isNotNull())
    sends = sends.join(label, on="capture")
    got = deliveries.where(F.col("topic").isNotNull() & ~F.col("topic").startswith("non-"))
    got = got.join(label, on="capture")
    both = ["capture", "cluster", "topic"]
    seen = sends.select(*both).unionByName(got.select(*both)).groupBy("cluster", "topic")
    topics = seen.agg(F.countDistinct("capture").alias("captures")).where("captures > 1")
    sends, got = _of_topics(sends, topics), _of_topics(got, topics)
    published = sends.where(F.col("producer_name").isNotNull()).groupBy(
        "cluster", "topic", "producer_name", "sequence_id", "chunk_id", "crc32c_stored"
    )
    entry = ["cluster", "topic", "ledger_id", "entry_id"]
    delivered = got.where(F.col("subscription").isNotNull()).groupBy(*entry, "subscription")
    stored = sends.where((F.col("ledger_id") >= 0) & (F.col("entry_id") >= 0))
    stored = stored.where(~F.col("topic").startswith("non-"))
    timed = ["capture", "ts", *entry]
    entries = stored.select(*timed).unionByName(got.select(*timed)).groupBy(*entry)
    found = _sets(published, True).unionByName(_sets(delivered, True))
    found = found.unionByName(_sets(entries, False))
    found = found.groupBy("captures").agg(
        F.sum("both").alias("both"), F.sum("at_once").alias("at_once")
    )
    rows = sorted((list(row["captures"]), row["both"], row["at_once"]) for row in found.collect())
    views = [names for names, count, at_once in rows if count and 2 * at_once > count]
    ordered, twins = _twins(views, published, delivered) if views else ([], [])
    return Shared([names for names, _, _ in rows], ordered, twins)


def _twins(
    views: list[list[str]], published: GroupedData, delivered: GroupedData
) -> tuple[list[list[str]], list[Place]]:
    """Views, the clients' side first, and the connections that the others repeat.

    A publish passes the clients' side before, a delivery after the brokers'.
    """
    place = F.struct("capture", "connection_id")
    first: Counter[tuple[tuple[str, ...], str]] = Counter()
    seen: dict[tuple[str, ...], set[Place]] = defaultdict(set)
    for keys, sign in ((published, 1), (delivered, -1)):
        order = F.struct(sign * F.unix_micros("ts"), "capture")
        spread = F.unix_micros(F.max("ts")) - F.unix_micros(F.min("ts"))
        sets = keys.agg(
            F.sort_array(F.collect_set("capture")).alias("captures"),
            F.collect_set(place).alias("places"),
            F.min_by("capture", order).alias("nearest"),
            spread.alias("spread"),
        )
        sets = sets.where((F.size("captures") > 1) & (F.col("spread") <= _AT_ONCE_US))
        each = sets.select("captures", "nearest", F.explode("places").alias("place"))
        counted = each.groupBy("captures", "nearest", "place.capture", "place.connection_id")
        for row in counted.count().collect():
            view = tuple(row["captures"])
            first[view, row["nearest"]] += row["count"]
            seen[view].add((row["capture"], row["connection_id"]))
    ordered, twins = [], set()
    for names in views:
        kept = max(names, key=lambda name: (first[tuple(names), name], -names.index(name)))
        ordered.append([kept, *(name for name in names if name != kept)])
        twins |= {found for found in seen[tuple(names)] if found[0] != kept}
    return ordered, sorted(twins)


def _sets(keys: GroupedData, is_same: bool) -> DataFrame:
    """Sets of captures that have something in common, with how often the same message went over
    the wire in all of them, and how often at the same time."""
    spread = F.unix_micros(F.max("ts")) - F.unix_micros(F.min("ts"))
    sets = keys.agg(
        F.sort_array(F.collect_set("capture")).alias("captures"),
        (spread <= _AT_ONCE_US).alias("is_at_once"),
    )
    one = F.lit(1 if is_same else 0).cast("bigint")
    return (
        sets.where(F.size("captures") > 1)
        .groupBy("captures")
        .agg(F.sum(one).alias("both"), F.sum(F.when(F.col("is_at_once"), one)).alias("at_once"))
        .select("captures", "both", F.coalesce("at_once", F.lit(0)).alias("at_once"))
    )


def _of_topics(rows: DataFrame, topics: DataFrame) -> DataFrame:
    """Only rows about some topics: few topics of a lake occur in several captures."""
    wanted = topics.select(F.col("cluster").alias("label"), F.col("topic").alias("name"))
    same = F.col("topic").eqNullSafe(F.col("name")) & F.col("cluster").eqNullSafe(F.col("label"))
    return rows.join(F.broadcast(wanted), on=same, how="left_semi")
