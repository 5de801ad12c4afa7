"""Selections of a part of a capture or lake by time, names and clients, from command-line options.

Here a selection becomes SQL views; `selected_rows` filters rows of a stream.

Rows are selected after dissection and joining, so names, balances and attempts are those of the
whole. The time of a row is the time at which its frame was complete (of an exchange: its request).
A row must meet all conditions: a send has no subscription, so `--subscription` selects no sends.
Rows without a topic or connection, such as notices about a file, always pass. The views are SQL
that all engines run; a name is a value in a table, never part of an SQL text.

The meaning of a row may depend on others: a balance lasts until the next change, and a stored entry
may be delivered later, or to another client. Queries about these read the views `…_around`, which
have the rows of all times (`deliveries_around`: also of all clients; `exchanges_around`: also of
the topics of a subscription), and test with `functions` whether a time is selected. What depends on
no topic, such as the clock of a client, is read from the views `whole_…`. A message that a consumer
publishes to a dead letter topic is about the topic it came from: `frames_of_any_name` has it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from dissector.errors import UsageError
from dissector.queries.tables import columns_of, view_columns

if TYPE_CHECKING:
    import pyarrow as pa

TIMED: Final = ("frames", "exchanges", "deliveries", "permits", "acks", "notices", "messages")
NAMED: Final = ("exchanges", "deliveries", "permits", "acks", "frames", "messages")
LASTING: Final = ("connections", "legs")
OPENED: Final = ("producers", "consumers")
CHOSEN: Final = (*TIMED, *LASTING, *OPENED)  # tables that a selection filters
# Tables with a second view over the rows around the selection, and the suffix of its name.
WITH_ROWS_AROUND: Final = ("permits", "deliveries", "frames", "exchanges", "acks")
AROUND: Final = "_around"
OF_ANY_NAME: Final = "_of_any_name"  # suffix of the view of frames that ignores names
WHOLE: Final = "whole_"  # prefix of the views with all rows
_DOMAINS: Final = ("persistent://", "non-persistent://")
_DEFAULT: Final = "persistent://public/default/"
_NS_PER_S: Final = 1_000_000_000
_ENDLESS_NS: Final = 1 << 62
_PARTITION: Final = "-partition-"
_DIGITS: Final = "0123456789"
_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS_OF: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# Columns of the views that name producers and consumers, learnt late or not.
_LATE: Final = {"producer": ("topic",), "consumer": ("topic", "subscription")}
_CLIENT_CONNECTIONS: Final = (
    "SELECT r.capture, r.connection_id FROM whole_{0} AS r JOIN selected_clients AS c "
    "ON c.client_ip = r.client_ip AND (c.client_port IS NULL OR c.client_port = r.client_port) "
    "UNION SELECT r.capture, r.connection_id FROM whole_{0} AS r JOIN selected_clients AS c "
    "ON c.client_ip = r.proxied_client_ip AND c.client_port IS NULL"
)
_SPOKEN: Final = "SELECT r.capture, r.connection_id FROM frames AS r"
_ALSO_MOVED: Final = (
    f"{_SPOKEN} UNION SELECT m.head_capture, m.head_connection_id FROM frames AS r "
    "JOIN moved AS m ON m.capture = r.capture AND m.connection_id = r.connection_id"
)
_CLIENT: Final = re.compile(r"(\[(?P<six>[^\]]+)\]|(?P<four>[^:/]+))(:(?P<port>\d{1,5}))?")


class TableRegistry(Protocol):
    """An engine that a selection registers its tables and functions with."""

    def register(self, name: str, rows: "pa.Table") -> None:
        """Copy a small table into the engine under a name."""

    def table(self, query: str) -> "pa.Table":
        """The rows of a query with few rows."""

    def define(self, functions: Iterable[str]) -> None:
        """Create SQL functions; each replaces the one of its name."""


class Client(NamedTuple):
    """Selected clients: an address or a network, and a port, None for all ports."""

    network: str
    port: int | None = None

    @classmethod
    def of(cls, text: str) -> "Client":
        """Parse 10.0.0.5, 10.0.0.5:51234, [2001:db8::5]:51234 or 10.0.0.0/8.

        Raises:
            UsageError: the text is none of these.
        """
        match = _CLIENT.fullmatch(text)
        address, port = text, -1
        if match is not None:
            address, port = match["six"] or match["four"], int(match["port"] or -1)
        try:
            network = ip_network(address, strict=False)
        except ValueError:
            network = None
        if network is None or port >= 65536:
            raise UsageError(
                f"--client {text!r} is no address; write 10.0.0.5, 10.0.0.5:51234, "
                "[2001:db8::5]:51234 or 10.0.0.0/8 (dissector connections lists clients)"
            )
        return cls(str(network), None if port < 0 else port)

    def __str__(self) -> str:
        address = self.network.removesuffix("/32" if "." in self.network else "/128")
        if self.port is None:
            return address
        return f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"

    def has(self, address: str) -> bool:
        """Whether the network contains an address; the port is ignored."""
        return ip_address(address) in _network(self.network)


@lru_cache(256)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)


class Selection(NamedTuple):
    """The conditions of a selection; without any it selects everything. since_ns, until_ns: the
    half-open range of time, ns since 1970. topics: full names; each includes its partitions."""

    since_ns: int | None = None
    until_ns: int | None = None
    topics: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()
    clients: tuple[Client, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether all rows are selected."""
        return self == Selection()

    @property
    def is_of_time(self) -> bool:
        """Whether it restricts the time."""
        return self.since_ns is not None or self.until_ns is not None

    @property
    def is_of_names(self) -> bool:
        """Whether it restricts topics or subscriptions."""
        return bool(self.topics or self.subscriptions)

    def lasts(self, first_ns: int | None, last_ns: int | None) -> bool:
        """Whether the range from first_ns to last_ns overlaps the time; an unknown end does."""
        begins = self.until_ns is None or first_ns is None or first_ns < self.until_ns
        return begins and (self.since_ns is None or last_ns is None or last_ns >= self.since_ns)

    def may_have_rows(self, table: str, last_ns: int | None) -> bool:
        """Whether a capture can have selected rows of a table.

        A row is written by the rotation in which it closes, so it may be older than the rotation's
        first packet, but not newer than its last.

        Args:
            last_ns: time of the capture's last packet.
        """
        return table not in (*TIMED, *LASTING, *OPENED) or self.lasts(None, last_ns)

    def has_topic(self, topic: str) -> bool:
        """Whether a topic, or the topic of which it is a partition, is selected."""
        whole, partition, number = topic.rpartition(_PARTITION)
        is_part = bool(partition and number) and not number.strip(_DIGITS)
        return any(name in self._topic_names for name in (topic, *([whole] if is_part else ())))

    def has(self, first_ns: int | None, last_ns: int | None, subject: Mapping[str, Any]) -> bool:
        """Whether a finding with a range of time and a subject is selected; a condition on a name
        that the subject lacks is met."""
        topic, subscription, client = map(subject.get, ("topic", "subscription", "client_ip"))
        return (
            self.lasts(first_ns, last_ns)
            and (not self.topics or not topic or self.has_topic(topic))
            and (not self.subscriptions or not subscription or subscription in self.subscriptions)
            and (not self.clients or not client or any(one.has(client) for one in self.clients))
        )

    def has_client(self, address: str | None, port: int | None, proxied: str | None = None) -> bool:
        """Whether a connection's client is selected. proxied: the client address that a proxy
        reported, which has no port."""
        return not self.clients or any(
            (address is not None and one.port in (None, port) and one.has(address))
            or (proxied is not None and one.port is None and one.has(proxied))
            for one in self.clients
        )

    def as_json(self) -> dict[str, Any]:
        """The selection as the report's JSON."""
        return {
            "since_ns": self.since_ns,
            "until_ns": self.until_ns,
            "topics": list(self.topics),
            "subscriptions": list(self.subscriptions),
            "clients": list(map(str, self.clients)),
        }

    @property
    def _topic_names(self) -> tuple[str, ...]:
        """The topics' names as rows spell them: topics of Cursus have no tenant."""
        short = (name.removeprefix(_DEFAULT) for name in self.topics)
        return (*self.topics, *(name for name in short if "/" not in name))

    @classmethod
    def of_json(cls, facts: Mapping[str, Any] | None) -> "Selection":
        """The selection from a report's JSON, None for everything."""
        if facts is None:
            return cls()
        return cls(
            facts["since_ns"],
            facts["until_ns"],
            tuple(facts["topics"]),
            tuple(facts["subscriptions"]),
            tuple(map(Client.of, facts["clients"])),
        )

    def words(self, moment: Callable[[int], str], before: str = ": ") -> str:
        """The selection as text for people: `from … to …, topic t`; "" for everything.

        Args:
            moment: formats a time. before: prefix of the text.
        """
        parts = [f"from {moment(self.since_ns)}"] if self.since_ns is not None else []
        if self.until_ns is not None:
            parts = [" ".join([*parts, f"{'to' if parts else 'up to'} {moment(self.until_ns)}"])]
        for word, names in (
            ("topic", [name.removeprefix(_DEFAULT) for name in self.topics]),
            ("subscription", self.subscriptions),
            ("client", list(map(str, self.clients))),
        ):
            if names:
                parts.append(f"{word} {' or '.join(names)}")
        return before + ", ".join(parts) if parts else ""

    @property
    def question(self) -> str:
        """A query of what there is to select from, by the first thing that is selected."""
        what = "min(ts), max(ts) from frames"
        what = "distinct client_ip from connections" if self.clients else what
        what = "distinct subscription from frames" if self.subscriptions else what
        return "select " + ("distinct topic from frames" if self.topics else what)

    # -- as SQL

    def functions(self) -> tuple[str, ...]:
        """The SQL functions of the selection, on times in µs: is_selected(a); is_not_behind(a): a
        is before its end; selected_us(a, b): the selected part of a range; reaches_selection(a, b):
        the range, even an empty one, overlaps it; selects_sends(): no subscription is required."""
        of_sends = f"selects_sends() AS {not self.subscriptions}"
        if not self.is_of_time:
            return (
                of_sends,
                "is_selected(a) AS TRUE",
                "is_not_behind(a) AS a IS NOT NULL",
                "selected_us(a, b) AS greatest(b - a, 0)",
                "reaches_selection(a, b) AS TRUE",
            )
        since_ns = -_ENDLESS_NS if self.since_ns is None else self.since_ns
        until_ns = _ENDLESS_NS if self.until_ns is None else self.until_ns
        since, until = -(-since_ns // 1000), -(-until_ns // 1000)  # µs, rounded up
        return (
            of_sends,
            f"is_selected(a) AS a >= {since} AND a < {until}",
            f"is_not_behind(a) AS a < {until}",
            f"selected_us(a, b) AS greatest(least(b, {until}) - greatest(a, {since}), 0)",
            f"reaches_selection(a, b) AS a < {until} AND b >= {since}",
        )

    def register(self, engine: TableRegistry, connections: str = "lake_connections") -> None:
        """Register the tables and functions that `views` and queries read with an engine.
        connections: the table of all connections."""
        import pyarrow as pa

        engine.define(self.functions())

        def register(name: str, **columns: "pa.Array") -> None:
            engine.register(f"selected_{name}", pa.table(columns))

        if self.topics:
            register("topics", topic=pa.array(self._topic_names, pa.string()))
        if self.subscriptions:
            register("subscriptions", subscription=pa.array(self.subscriptions, pa.string()))
        if self.clients:
            ips = engine.table(
                f"SELECT client_ip FROM {connections} UNION "
                f"SELECT proxied_client_ip FROM {connections}"
            )
            addresses = [text for text in ips.column(0).to_pylist() if text is not None]
            rows = [(ip, one.port) for ip in addresses for one in self.clients if one.has(ip)]
            register(
                "clients",
                client_ip=pa.array([ip for ip, _ in rows], pa.string()),
                client_port=pa.array([port for _, port in rows], pa.int64()),
            )

    def views(
        self,
        tables: Iterable[tuple[str, str]],
        columns: Callable[[str], Sequence[str]] = view_columns,
    ) -> Iterator[tuple[str, str]]:
        """Views of tables; those in CHOSEN have only the selected rows.

        Args:
            tables: name and query of each view, each after the views that it reads.
            columns: returns the columns of the view of a table.
        """
        if self.is_everything:
            yield from tables
            return
        whole = dict(tables)
        chosen = [name for name in CHOSEN if name in whole]
        for name, query in whole.items():
            yield f"{WHOLE}{name}" if name in chosen else name, query
        if self.clients:
            source = "legs" if "legs" in whole else "connections"
            yield "client_connections", _CLIENT_CONNECTIONS.format(source)
        for kind, names in _LATE.items() if self.is_of_names else ():
            source = f"{kind}_names" if f"{kind}_names" in whole else f"whole_{kind}s"
            keys = f"capture, connection_id, {kind}_id, incarnation"
            cells = ", ".join(f"min({name}) AS late_{name}" for name in names)
            yield f"named_{kind}s", f"SELECT {keys}, {cells} FROM {source} GROUP BY {keys}"
        always = self._replace(since_ns=None, until_ns=None)
        around = dict.fromkeys(WITH_ROWS_AROUND, always) | {
            "deliveries": always._replace(clients=())
        }
        for name in chosen:
            if name == LASTING[0] and self.is_of_names:
                yield "spoken_connections", _ALSO_MOVED if "moved" in whole else _SPOKEN
            yield name, self._rows_of(name, columns(name))
            if name in around:
                rows = around[name]._rows_of(name, columns(name), is_around=True)
                yield f"{name}{AROUND}", rows
            if name == "frames":
                nameless = self._replace(topics=(), subscriptions=())
                yield f"{name}{OF_ANY_NAME}", nameless._rows_of(name, columns(name))

    def _rows_of(self, name: str, columns: Sequence[str], *, is_around: bool = False) -> str:
        """The query for the selected rows of a table. is_around: exchanges on all topics of a
        selected subscription pass too: publishes to these topics, and how clients opened them."""
        joins, conditions = "", ["1 = 1"]
        if name in TIMED:  # in µs, rounded up: no row lies between two
            limits = ("micros(r.ts) >= {}", self.since_ns), ("micros(r.ts) < {}", self.until_ns)
            conditions += [text.format(-(-ns // 1000)) for text, ns in limits if ns is not None]
        elif name in LASTING:
            limits = ("r.last_ts_ns >= {}", self.since_ns), ("r.first_ts_ns < {}", self.until_ns)
            conditions += [text.format(ns) for text, ns in limits if ns is not None]
            joins += _joined("spoken_connections") if self.is_of_names else ""
        else:
            joins += _joined("connections")
        if self.clients and name == "notices":
            joins += _joined("client_connections", "LEFT")
            conditions.append("(r.connection_id IS NULL OR client_connections.capture IS NOT NULL)")
        elif self.clients and name not in OPENED:
            joins += _joined("client_connections")
        if self.subscriptions and name == "messages":
            joins += f"{_joined('frames')} AND frames.frame_no = r.frame_no"
        where = " AND ".join(conditions)
        if self.is_of_names and name in (*NAMED, *OPENED):
            is_of_topics = is_around and name == "exchanges"
            return self._of_names(
                name, columns, f"{joins} WHERE {where}", is_of_topics=is_of_topics
            )
        return f"SELECT r.* FROM whole_{name} AS r{joins} WHERE {where}"

    def _of_names(self, name: str, columns: Sequence[str], rest: str, *, is_of_topics: bool) -> str:
        """The query for rows of the selected topics (or their partitions) and subscriptions; a row
        without a name is matched by the name learnt later."""
        has = set(columns_of(name))
        late: dict[str, list[str]] = {key: [f"r.{key}"] for key in _LATE["consumer"] if key in has}
        for kind, names in _LATE.items():
            if {f"{kind}_id", "incarnation"} <= has:
                keys = (f"{kind}_id", "incarnation")
                same = " AND ".join(f"{kind}.{key} = r.{key}" for key in keys)
                rest = f"{_joined(f'named_{kind}s AS {kind}', 'LEFT')} AND {same}{rest}"
                for key in names:
                    late[key].append(f"{kind}.late_{key}")
        late_columns = "".join(
            f", coalesce({', '.join(cells)}) AS selected_{key}" for key, cells in late.items()
        )
        inner = f"SELECT r.*{late_columns} FROM whole_{name} AS r{rest}"
        cells = ", ".join(
            f"r.selected_{column} AS {column}" if column in late else f"r.{column}"
            for column in columns
        )
        conditions = [_IS_TOPIC] if self.topics else []
        if self.subscriptions and "subscription" in late:
            is_selected = "IN (SELECT subscription FROM selected_subscriptions)"
            topics = f"SELECT late_topic FROM named_consumers WHERE late_subscription {is_selected}"
            or_topic = f" OR r.selected_topic IN ({topics})" if is_of_topics else ""
            conditions.append(f"(r.selected_subscription {is_selected}{or_topic})")
        elif self.subscriptions and name != "messages":
            conditions.append("1 = 0")  # producers have no subscription
        return f"SELECT {cells} FROM ({inner}) AS r WHERE {' AND '.join(conditions) or '1 = 1'}"


EVERYTHING: Final = Selection()
_TRIMMED: Final = f"TRIM(TRAILING '{_DIGITS}' FROM r.selected_topic)"
_IS_TOPIC: Final = (
    "(r.selected_topic IN (SELECT topic FROM selected_topics) "
    f"OR ({_TRIMMED} LIKE '%{_PARTITION}' AND {_TRIMMED} <> r.selected_topic "
    f"AND substring({_TRIMMED}, 1, length({_TRIMMED}) - {len(_PARTITION)}) "
    "IN (SELECT topic FROM selected_topics)))"
)


def _joined(view: str, how: str = "SEMI") -> str:
    """The SQL of a join with a view on capture and connection_id."""
    name = view.rpartition(" ")[2]
    same = f"{name}.capture = r.capture AND {name}.connection_id = r.connection_id"
    return f" {how} JOIN {view} ON {same}"


def full_name(topic: str) -> str:
    """A topic's full name; a short name is persistent and in public/default, as in clients."""
    if topic.startswith(_DOMAINS):
        return topic
    rest = topic if topic.count("/") >= 2 else f"public/default/{topic}"
    return f"persistent://{rest}"


def time_ns(
    option: str, text: str | None, end_ns: int | None = None, *, is_local: bool = False
) -> int | None:
    """Parse a time: ISO 8601, or `-30m` before the end; ns since 1970 in whole µs.

    Args:
        end_ns: end of the input; None if it has no packet.
        is_local: a time without a zone is in the local zone (TZ), else in UTC.

    Raises:
        UsageError: the text is no time, or it is relative and there is no end.
    """
    if text is None:
        return None
    if (relative := _AGO.fullmatch(text)) is not None:
        if end_ns is None:
            raise UsageError(
                f"{option} {text}: there is no packet to count back from; write a time such as "
                "2026-01-31T12:00"
            )
        ago_ns = round(float(relative[1]) * _SECONDS_OF[relative[2]] * _NS_PER_S)
        return (end_ns - ago_ns) // 1000 * 1000
    try:
        time = datetime.fromisoformat(text)
        zoned = time.replace(tzinfo=UTC) if time.tzinfo is None and not is_local else time
        since = zoned.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text!r} is no time; write 2026-01-31, 2026-01-31T12:00:05 or -30m"
        ) from None
    return (since.days * 86_400 + since.seconds) * _NS_PER_S + since.microseconds * 1000


class Asked(NamedTuple):
    """The texts of the options. is_local: times without a zone are in the local zone (TZ)."""

    since: str | None = None
    until: str | None = None
    topics: Sequence[str] = ()
    subscriptions: Sequence[str] = ()
    clients: Sequence[str] = ()
    is_local: bool = False

    @property
    def is_relative(self) -> bool:
        """Whether a time is relative to the end of the input."""
        return any(each and _AGO.fullmatch(each) for each in (self.since, self.until))

    def check(self) -> None:
        """Check the texts before the end of the input is known.

        Raises:
            UsageError: as in `selection`.
        """
        if not self.is_relative:
            self.selection()
        self._replace(since=None).selection(0)
        self._replace(until=None).selection(0)

    def selection(self, end_ns: int | None = None) -> Selection:
        """The selection. end_ns: end of the input, to which times such as `-30m` are relative.

        Raises:
            UsageError: a time or an address is malformed, or the range of time is empty.
        """
        since, until = (
            time_ns(option, text, end_ns, is_local=self.is_local)
            for option, text in (("--since", self.since), ("--until", self.until))
        )
        if since is not None and until is not None and since >= until:
            raise UsageError(f"--since {self.since} is not before --until {self.until}")
        return Selection(
            since,
            until,
            tuple(sorted({full_name(name) for name in self.topics})),
            tuple(sorted({*self.subscriptions})),
            tuple(sorted({Client.of(text) for text in self.clients}, key=str)),
        )
