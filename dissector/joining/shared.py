"""Find captures that have messages in common.

Two messages are the same if producer and sequence id are equal, or topic, ledger and entry; and in
either case the checksum (the stored CRC32C), because brokers that begin anew number ledgers,
entries and sends alike. Without a checksum, they are the same only if both captures show them at
the same moment.
"""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from dissector.joining.links import ConnectionId

if TYPE_CHECKING:
    import duckdb

# A second tap shows a message within this time; a message that is sent again comes later.
_AT_ONCE_US: Final = 50_000

# The lowest and highest numbers of a capture's messages. kind: `sent`: sequence ids of a producer
# (name); `stored`, `got`: entries of a ledger that were published, or delivered to a subscription
# (name).
PRESENCE: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("capture", "kind", "topic", "name")),
        *((name, pa.int64()) for name in ("ledger_id", "least", "greatest", "rows")),
        *((name, pa.int64()) for name in ("first_us", "last_us")),
    ]
)
_RANGE: Final = "count(*) AS rows, epoch_us(min(ts)) AS first_us, epoch_us(max(ts)) AS last_us"
# Non-persistent topics number no entries: ledger and entry are 0.
_IS_STORED: Final = "NOT coalesce(starts_with(topic, 'non-'), ledger_id = 0)"
SENDS_PRESENCE: Final = f"""
SELECT capture, 'sent' AS kind, topic, producer_name AS name, NULL AS ledger_id,
  min(sequence_id) AS least, max(sequence_id) AS greatest, {_RANGE}
FROM exchanges WHERE kind = 'publish' AND topic IS NOT NULL AND producer_name IS NOT NULL
  AND sequence_id IS NOT NULL
GROUP BY capture, topic, producer_name
UNION ALL BY NAME
SELECT capture, 'stored' AS kind, topic, NULL AS name, ledger_id,
  min(entry_id) AS least, max(entry_id) AS greatest, {_RANGE}
FROM exchanges WHERE kind = 'publish' AND entry_id >= 0 AND {_IS_STORED}
GROUP BY capture, topic, ledger_id
UNION ALL BY NAME
SELECT capture, 'got' AS kind, topic, subscription AS name, ledger_id,
  min(entry_id) AS least, max(entry_id) AS greatest, {_RANGE}
FROM deliveries WHERE entry_id >= 0 AND {_IS_STORED}
GROUP BY capture, topic, subscription, ledger_id
ORDER BY capture, kind, topic, name, ledger_id
"""

# A capture that begins in the middle may not know the topic of an entry: every topic that has its
# ledger is possible.
_NAMED: Final = """
CREATE TABLE named AS
WITH each AS (SELECT * FROM presence JOIN clusters USING (capture)),
known AS (SELECT DISTINCT cluster, ledger_id, topic FROM each WHERE kind <> 'sent')
SELECT e.* REPLACE (coalesce(e.topic, k.topic) AS topic)
FROM each AS e LEFT JOIN known AS k ON e.topic IS NULL AND k.topic IS NOT NULL
  AND k.ledger_id = e.ledger_id AND k.cluster IS NOT DISTINCT FROM e.cluster
"""
# The part of each range of numbers that overlaps other captures' ranges, from the first to the last
# number that another capture can have. Captures of one whole count as one.
_OVERLAPS: Final = """
CREATE TABLE common AS
WITH held AS (
  SELECT w.whole, p.cluster, p.topic, p.kind = 'sent' AS is_sent,
    CASE WHEN p.kind = 'sent' THEN p.name END AS producer_name, p.ledger_id,
    min(p.least) AS least, max(p.greatest) AS greatest
  FROM named AS p JOIN wholes AS w USING (capture) GROUP BY ALL
),
neighbours AS (
  SELECT *, max(greatest) OVER (earlier ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until,
    lead(least) OVER earlier AS next
  FROM held
  WINDOW earlier AS (
    PARTITION BY cluster, topic, is_sent, producer_name, ledger_id ORDER BY least, greatest, whole
  )
)
SELECT w.capture, b.cluster, b.topic, b.is_sent, b.producer_name, b.ledger_id,
  CASE WHEN b.until >= b.least THEN b.least ELSE b.next END AS low,
  CASE WHEN b.next <= b.greatest THEN b.greatest ELSE least(b.greatest, b.until) END AS high
FROM neighbours AS b JOIN wholes AS w USING (whole)
JOIN clusters AS c ON c.capture = w.capture AND c.cluster IS NOT DISTINCT FROM b.cluster
WHERE b.until >= b.least OR b.next <= b.greatest
"""
_TOUCHED: Final = """
SELECT DISTINCT o.capture FROM common AS o JOIN named AS p
  ON p.capture = o.capture AND p.topic IS NOT DISTINCT FROM o.topic
  AND (p.kind = 'sent') = o.is_sent
  AND p.ledger_id IS NOT DISTINCT FROM o.ledger_id
  AND (NOT o.is_sent OR p.name = o.producer_name)
  AND p.least <= o.high AND p.greatest >= o.low
"""

# Rows of publishes and deliveries in these ranges, by what a message is known by.
_ROWS: Final = (
    """
CREATE TABLE published AS
SELECT e.capture, e.connection_id, epoch_us(e.ts) AS us, o.cluster, e.topic, e.producer_name,
  e.sequence_id, e.chunk_id, e.crc32c_stored
FROM exchanges AS e JOIN common AS o
  ON e.capture = o.capture AND e.topic = o.topic AND e.producer_name = o.producer_name
  AND e.sequence_id BETWEEN o.low AND o.high
WHERE o.is_sent AND e.kind = 'publish'
""",
    """
CREATE TABLE stored AS
SELECT e.capture, e.connection_id, epoch_us(e.ts) AS us, o.cluster, o.topic, e.ledger_id,
  e.entry_id, e.crc32c_stored
FROM exchanges AS e JOIN common AS o
  ON e.capture = o.capture AND coalesce(e.topic = o.topic, e.topic IS NULL)
  AND e.ledger_id IS NOT DISTINCT FROM o.ledger_id AND e.entry_id BETWEEN o.low AND o.high
WHERE NOT o.is_sent AND e.kind = 'publish'
""",
    """
CREATE TABLE delivered_entries AS
SELECT d.capture, d.connection_id, epoch_us(d.ts) AS us, o.cluster, o.topic, d.ledger_id,
  d.entry_id, d.crc32c_stored, d.subscription, d.partition
FROM deliveries AS d JOIN common AS o
  ON d.capture = o.capture AND coalesce(d.topic = o.topic, d.topic IS NULL)
  AND d.ledger_id IS NOT DISTINCT FROM o.ledger_id AND d.entry_id BETWEEN o.low AND o.high
WHERE NOT o.is_sent
""",
    "CREATE VIEW delivered AS FROM delivered_entries WHERE subscription IS NOT NULL",
    "CREATE VIEW entries AS SELECT * FROM stored UNION ALL BY NAME "
    "SELECT * EXCLUDE (subscription, partition) FROM delivered_entries",
)
_MESSAGE: Final = "cluster, topic, producer_name, sequence_id, chunk_id, crc32c_stored"
_ENTRY: Final = "cluster, topic, ledger_id, entry_id, crc32c_stored"
# Where partitions are no topics of their own, each numbers its entries from the beginning.
_KEYS: Final = {"published": _MESSAGE, "delivered": f"{_ENTRY}, subscription, partition",
         "entries": _ENTRY}  # fmt: skip


class Shared(NamedTuple):
    """Captures that have messages in common; views: captures that show the same traffic at two
    points, such as both sides of a proxy, the clients' side first; proxy_peers: connections of the
    other views that the first view has, too."""

    captures: list[list[str]]
    views: list[list[str]]
    proxy_peers: list[ConnectionId]


def overlapping(db: "duckdb.DuckDBPyConnection") -> frozenset[str]:
    """The captures whose presence overlaps that of others.

    Args:
        db: with presence (PRESENCE), clusters (capture, cluster: captures of different labels have
            nothing in common) and wholes (capture, whole: captures known to belong together).
    """
    db.execute(_NAMED)
    db.execute(_OVERLAPS)
    rows = db.execute(_TOUCHED).fetchall()
    return frozenset(row[0] for row in rows)


def shared_captures(db: "duckdb.DuckDBPyConnection") -> Shared:
    """Captures that have a message in common: published in both, delivered to the same subscription
    in both, or published in one and delivered in the other.

    Args:
        db: after `overlapping`, with exchanges and deliveries of the captures that it names.
    """
    for query in _ROWS:
        db.execute(query)
    message_counts: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for table, is_same in (("published", 1), ("delivered", 1), ("entries", 0)):
        for captures, count, at_once in db.execute(_sets(table)).fetchall():
            message_counts[tuple(captures)][0] += is_same * count
            message_counts[tuple(captures)][1] += is_same * at_once
    views = [
        names for names, (count, at_once) in sorted(message_counts.items()) if 2 * at_once > count
    ]
    ordered, proxy_peers = _proxy_peers(db, views) if views else ([], [])
    return Shared([list(names) for names in sorted(message_counts)], ordered, proxy_peers)


def _sets(table: str) -> str:
    """The query of sets of captures with common messages: the number of messages that all captures
    of the set show, and of those that they show at the same time."""
    # A message may be published in one capture and delivered in another: times need not agree.
    without = f"max(us) - min(us) <= {_AT_ONCE_US}" if table != "entries" else "false"
    return f"""
    WITH each AS (
      SELECT list_sort(list_distinct(list(capture))) AS captures, max(us) - min(us) AS spread
      FROM {table} GROUP BY {_KEYS[table]}
      HAVING count(DISTINCT capture) > 1
        AND (crc32c_stored IS NOT NULL OR {without})
    )
    SELECT captures, count(*), count(*) FILTER (WHERE spread <= {_AT_ONCE_US})
    FROM each GROUP BY captures
    """


def _proxy_peers(
    db: "duckdb.DuckDBPyConnection", views: list[tuple[str, ...]]
) -> tuple[list[list[str]], list[ConnectionId]]:
    """Views, the clients' side first, and the connections of the other views that repeat it.

    A publish passes the clients' side before the brokers' side, a delivery after it.
    """
    first: Counter[tuple[tuple[str, ...], str]] = Counter()
    seen: dict[tuple[str, ...], set[ConnectionId]] = defaultdict(set)
    for table, order in (("published", "us, capture"), ("delivered", "-us, capture")):
        rows: list[Any] = db.execute(
            f"""
            WITH each AS (
              SELECT list_sort(list_distinct(list(capture))) AS captures,
                list_distinct(list((capture, connection_id))) AS connections,
                first(capture ORDER BY {order}) AS nearest
              FROM {table} GROUP BY {_KEYS[table]}
              HAVING count(DISTINCT capture) > 1 AND max(us) - min(us) <= {_AT_ONCE_US}
            )
            SELECT captures, nearest, key[1], key[2], count(*)
            FROM (SELECT captures, nearest, unnest(connections) AS key FROM each)
            GROUP BY ALL
            """
        ).fetchall()
        for captures, nearest, capture, connection, count in rows:
            first[tuple(captures), nearest] += count
            seen[tuple(captures)].add((capture, connection))
    ordered, proxy_peers = [], set()
    for names in views:
        kept = max(names, key=lambda name: (first[names, name], -names.index(name)))
        ordered.append([kept, *(name for name in names if name != kept)])
        proxy_peers |= {connection_id for connection_id in seen[names] if connection_id[0] != kept}
    return ordered, sorted(proxy_peers)
