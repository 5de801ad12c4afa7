"""A part of a lake by time and topic: what `--since`, `--until` and `--topic` leave of its tables.

The rows are chosen after captures were joined, so names, balances and attempts are still those of
the whole; a row belongs to the time at which its frame was complete (an exchange: its request). The
views are SQL that all engines run; a topic's name is a value of a table, and never part of a text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from dissector.errors import UsageError
from dissector.queries.tables import columns_of, view_columns

if TYPE_CHECKING:
    import pyarrow as pa

TIMED: Final = ("exchanges", "deliveries", "permits", "acks", "frames", "notices", "messages")
WITH_TOPIC: Final = ("exchanges", "deliveries", "permits", "acks", "frames", "messages")
LASTING: Final = ("connections", "legs")
_DOMAINS: Final = ("persistent://", "non-persistent://")
_NS_PER_S: Final = 1_000_000_000
_PARTITION: Final = "-partition-"
_DIGITS: Final = "0123456789"
_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS_OF: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# Topics of producers and consumers by every number that rows have, learnt late or not.
_LATE: Final = {
    "producer": "SELECT capture, connection_id, producer_id, incarnation, min(topic) AS late_topic "
    "FROM producer_names GROUP BY capture, connection_id, producer_id, incarnation",
    "consumer": "SELECT capture, connection_id, consumer_id, incarnation, min(topic) AS late_topic "
    "FROM consumer_names GROUP BY capture, connection_id, consumer_id, incarnation",
}


class TableRegistry(Protocol):
    """What takes small tables: an engine."""

    def register(self, name: str, rows: "pa.Table") -> None:
        """A small table, under a name."""


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

    def has(self, first_ns: int | None, last_ns: int | None, topic: str | None) -> bool:
        """Whether something that lasted and was about a topic, if about any, belongs to it."""
        begins = self.until_ns is None or first_ns is None or first_ns < self.until_ns
        ends = self.since_ns is None or last_ns is None or last_ns >= self.since_ns
        names = (topic, topic.rpartition(_PARTITION)[0]) if topic else ()
        is_about = not self.topics or not names or any(name in self.topics for name in names)
        return begins and ends and is_about

    def as_json(self) -> dict[str, Any]:
        """What the report says about it."""
        return {
            "since_ns": self.since_ns,
            "until_ns": self.until_ns,
            "topics": list(self.topics),
        }

    def register(self, engine: TableRegistry) -> None:
        """Give an engine the tables that `views` reads."""
        import pyarrow as pa

        if self.topics:
            names = pa.array(self.topics, pa.string())
            engine.register("selected_topics", pa.table({"topic": names}))

    def views(self, tables: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Views of tables, some of them only with the rows that are selected.

        Args:
            tables: name and query of each view, in the order in which they can be made.
        """
        if self.is_everything:
            yield from tables
            return
        chosen = []
        for name, query in tables:
            if name in TIMED or (name in LASTING and self._is_of_time):
                chosen.append(name)
                yield f"whole_{name}", query
            else:
                yield name, query
        if self.topics:
            for kind, query in _LATE.items():
                yield f"{kind}_topics", query
        for name in chosen:
            if name in LASTING:
                yield name, f"SELECT r.* FROM whole_{name} AS r WHERE {self._lasts()}"
            elif self.topics and name in WITH_TOPIC:
                yield name, self._of_topics(name)
            else:
                yield name, f"SELECT r.* FROM whole_{name} AS r WHERE {self._is_in_time()}"

    @property
    def _is_of_time(self) -> bool:
        return self.since_ns is not None or self.until_ns is not None

    def _is_in_time(self) -> str:
        """Whether a row is, in µs, rounded up: no row lies between two."""
        conditions = ["1 = 1"]
        if self.since_ns is not None:
            conditions.append(f"micros(r.ts) >= {-(-self.since_ns // 1000)}")
        if self.until_ns is not None:
            conditions.append(f"micros(r.ts) < {-(-self.until_ns // 1000)}")
        return " AND ".join(conditions)

    def _lasts(self) -> str:
        """Whether a connection had a packet in the time."""
        conditions = ["1 = 1"]
        if self.since_ns is not None:
            conditions.append(f"r.last_ts_ns >= {self.since_ns}")
        if self.until_ns is not None:
            conditions.append(f"r.first_ts_ns < {self.until_ns}")
        return " AND ".join(conditions)

    def _of_topics(self, name: str) -> str:
        """Rows about the topics or one of their partitions, by a name that was learnt later where
        they have none."""
        has = set(columns_of(name))
        joins, late = [], []
        for kind in _LATE:
            if {f"{kind}_id", "incarnation"} <= has:
                late.append(f"{kind}.late_topic")
                keys = ("capture", "connection_id", f"{kind}_id", "incarnation")
                same = " AND ".join(f"{kind}.{key} = r.{key}" for key in keys)
                joins.append(f" LEFT JOIN {kind}_topics AS {kind} ON r.topic IS NULL AND {same}")
        topic = f"coalesce({', '.join(['r.topic', *late])})" if late else "r.topic"
        named = (
            f"SELECT r.*, {topic} AS selected_topic FROM whole_{name} AS r{''.join(joins)} "
            f"WHERE {self._is_in_time()}"
        )
        cells = ", ".join(
            "r.selected_topic AS topic" if column == "topic" else f"r.{column}"
            for column in view_columns(name)
        )
        trimmed = f"TRIM(TRAILING '{_DIGITS}' FROM r.selected_topic)"
        whole = f"substring({trimmed}, 1, length({trimmed}) - {len(_PARTITION)})"
        return (
            f"SELECT {cells} FROM ({named}) AS r "
            "WHERE r.selected_topic IN (SELECT topic FROM selected_topics) "
            f"OR ({trimmed} LIKE '%{_PARTITION}' AND {trimmed} <> r.selected_topic "
            f"AND {whole} IN (SELECT topic FROM selected_topics))"
        )


def full_name(topic: str) -> str:
    """A topic's full name; a short one is persistent and in public/default, as for clients."""
    if topic.startswith(_DOMAINS):
        return topic
    rest = topic if topic.count("/") >= 2 else f"public/default/{topic}"
    return f"persistent://{rest}"


def time_ns(option: str, text: str | None, end_ns: int | None = None) -> int | None:
    """A time of ISO 8601 as ns since 1970, without a zone in UTC; or `-30m`, so long before an end.

    Args:
        end_ns: of what is read; None where nobody knows it.

    Raises:
        UsageError: it is none, or it needs an end.
    """
    if text is None:
        return None
    if (back := _AGO.fullmatch(text)) is not None:
        if end_ns is None:
            raise UsageError(f"{option} {text}: a time is needed here, such as 2026-01-31T12:00")
        return end_ns - round(float(back[1]) * _SECONDS_OF[back[2]] * _NS_PER_S)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no time; write 2026-01-31, 2026-01-31T12:00:05 or -30m"
        ) from None
    zoned = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _NS_PER_S + since.microseconds * 1000


def selection_of(
    since: str | None = None,
    until: str | None = None,
    topics: Sequence[str] = (),
    end_ns: int | None = None,
) -> Selection:
    """What options select. end_ns: of what is read, from which times such as `-30m` count back.

    Raises:
        UsageError: a time is none.
    """
    names = tuple(sorted({full_name(name) for name in topics}))
    return Selection(time_ns("--since", since, end_ns), time_ns("--until", until, end_ns), names)
