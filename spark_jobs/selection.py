"""A part of a lake by time and topic: what `--since`, `--until` and `--topic` leave of its tables.

The rows are chosen after captures were joined, so names, balances and attempts are still those of
the whole; a row belongs to the time at which its frame was complete (an exchange: its request).
"""

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dissector.errors import UsageError
from spark_jobs.tables import CONNECTION

TIMED: Final = ("exchanges", "deliveries", "permits", "acks", "frames", "notices", "messages")
WITH_TOPIC: Final = ("exchanges", "deliveries", "permits", "acks", "frames", "messages")
_DOMAINS: Final = ("persistent://", "non-persistent://")
_NS_PER_S: Final = 1_000_000_000


class Selection(NamedTuple):
    """since_ns, until_ns: from the first on, up to but without the second, ns since 1970; topics:
    full names, with their partitions. Nothing given selects everything."""

    since_ns: int | None = None
    until_ns: int | None = None
    topics: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    def as_json(self) -> dict[str, Any]:
        """What the report says about it."""
        return {
            "since_ns": self.since_ns,
            "until_ns": self.until_ns,
            "topics": list(self.topics),
        }


def full_name(topic: str) -> str:
    """A topic's full name; a short one is persistent and in public/default, as for clients."""
    if topic.startswith(_DOMAINS):
        return topic
    rest = topic if topic.count("/") >= 2 else f"public/default/{topic}"
    return f"persistent://{rest}"


def time_ns(option: str, text: str | None) -> int | None:
    """A time of ISO 8601 as ns since 1970; without a zone it is UTC.

    Raises:
        UsageError: it is none.
    """
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no time; write 2026-01-31 or 2026-01-31T12:00:05"
        ) from None
    zoned = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _NS_PER_S + since.microseconds * 1000


def selection_of(args: Any) -> Selection:
    """What a job's options select."""
    topics = tuple(sorted({full_name(name) for name in getattr(args, "topic", None) or ()}))
    return Selection(
        time_ns("--since", getattr(args, "since", None)),
        time_ns("--until", getattr(args, "until", None)),
        topics,
    )


def selected(
    rows: DataFrame, table: str, what: Selection, producers: DataFrame, consumers: DataFrame
) -> DataFrame:
    """The rows of a table that a selection leaves.

    producers, consumers: tables of late names, by the numbers that the rows have.
    """
    if table == "connections":
        return rows.where(_lasts(what))
    if table in TIMED:
        rows = rows.where(_is_in_time(what))
    if what.topics and table in WITH_TOPIC:
        rows = rows.where("topic is not null").unionByName(
            _named(rows.where("topic is null"), producers, consumers)
        )
        rows = rows.where(_is_of(what.topics))
    return rows


def _is_in_time(what: Selection) -> Column:
    found = F.lit(True)
    if what.since_ns is not None:
        found = found & (F.unix_micros("ts") >= -(-what.since_ns // 1000))
    if what.until_ns is not None:
        found = found & (F.unix_micros("ts") < -(-what.until_ns // 1000))
    return found


def _lasts(what: Selection) -> Column:
    """Connections that had a packet in the time."""
    found = F.lit(True)
    if what.since_ns is not None:
        found = found & (F.col("last_ts_ns") >= what.since_ns)
    if what.until_ns is not None:
        found = found & (F.col("first_ts_ns") < what.until_ns)
    return found


def _is_of(topics: tuple[str, ...]) -> Column:
    found = F.col("topic").isin(*topics)
    for name in topics:
        part = F.col("topic").startswith(f"{name}-partition-")
        number = F.substring("topic", len(name) + len("-partition-") + 1, 20)
        found = found | (part & number.rlike("^[0-9]+$"))
    return found


def _named(rows: DataFrame, producers: DataFrame, consumers: DataFrame) -> DataFrame:
    """Rows without a topic, with the one that was learnt later."""
    columns = rows.columns
    for number, subjects in (("producer_id", producers), ("consumer_id", consumers)):
        if number not in columns or "incarnation" not in columns:
            continue
        keys = [*CONNECTION, number, "incarnation"]
        known = subjects.groupBy(*keys).agg(F.min("topic").alias("late_topic"))
        rows = rows.join(F.broadcast(known), on=keys, how="left")
        rows = rows.withColumn("topic", F.coalesce("topic", "late_topic")).drop("late_topic")
    return rows.select(*columns)
