"""The positions of a group's connections: their capture's rank, their chain, and its root.

A chain is one connection over several captures; a rank is the index of a capture in its group. Rows
of the whole name frames by both; `Positions` maps them back to captures and connections.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.joining.links import JoinPlan
from dissector.limits import NULL
from dissector.protocols import PROTOCOL_NAMES
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.small_tables import NUMBER, TEXT, no_rows, small_table

if TYPE_CHECKING:
    import duckdb


# The rows of `placed`.
PLACED: Final = pa.schema(
    [
        ("rank", NUMBER), ("floor_ns", NUMBER), ("capture", TEXT), ("connection_id", NUMBER),
        ("protocol", TEXT), ("client_ip", TEXT), ("broker_ip", TEXT), ("head_capture", TEXT),
        ("head_connection_id", NUMBER), ("head_client_ip", TEXT), ("head_broker_ip", TEXT),
        ("chain", NUMBER), ("read_by", TEXT),
        *((name, pa.bool_()) for name in (
            "goes_on_to_broker", "goes_on_to_client",
            "comes_from_to_broker", "comes_from_to_client",
        )),
    ]
)  # fmt: skip
# Connections that continue behind an increment, one row each under its root. rank: of the last
# capture so far.
OPENED: Final = pa.schema([*arrow_schema("connections"), ("rank", NUMBER)])
SCHEMAS: Final = {"placed": PLACED, "opened": OPENED}
# Every connection of the group. read_by: the protocol of the frames of its chain, null if there are
# none; goes_on, comes_from: whether a direction continues in the next capture, or from the previous
# one, without a gap.
_PLACED: Final = """
CREATE TABLE placed AS
WITH each AS (
  SELECT r.rank, r.floor_ns, c.capture, c.connection_id, c.protocol, c.client_ip, c.broker_ip,
    coalesce(m.head_capture, c.capture) AS head_capture,
    coalesce(m.head_connection_id, c.connection_id) AS head_connection_id
  FROM connections AS c JOIN ranks AS r USING (capture)
  LEFT JOIN moved AS m USING (capture, connection_id)
),
connection_roots AS (
  SELECT head_capture, head_connection_id, client_ip AS head_client_ip, broker_ip AS head_broker_ip,
    row_number() OVER (ORDER BY rank, connection_id) - 1
      + (SELECT coalesce(max(chain) + 1, 0) FROM placed_before) AS chain
  FROM each WHERE capture = head_capture AND connection_id = head_connection_id
  UNION ALL
  SELECT head_capture, head_connection_id, head_client_ip, head_broker_ip, chain
  FROM placed_before WHERE capture = head_capture AND connection_id = head_connection_id
),
onward AS (
  SELECT before_capture AS capture, before_connection_id AS connection_id,
    bool_or(direction = 'to_broker') AS goes_on_to_broker,
    bool_or(direction = 'to_client') AS goes_on_to_client
  FROM handovers WHERE coalesce(missing, 0) <= 0 GROUP BY ALL
),
backward AS (
  SELECT after_capture AS capture, after_connection_id AS connection_id,
    bool_or(direction = 'to_broker') AS comes_from_to_broker,
    bool_or(direction = 'to_client') AS comes_from_to_client
  FROM handovers WHERE coalesce(missing, 0) <= 0 GROUP BY ALL
),
located AS (
  SELECT each.*, head_client_ip, head_broker_ip, chain,
    CASE WHEN protocol IN ({protocols}) THEN protocol END AS read_by,
    coalesce(goes_on_to_broker, false) AS goes_on_to_broker,
    coalesce(goes_on_to_client, false) AS goes_on_to_client,
    coalesce(comes_from_to_broker, false) AS comes_from_to_broker,
    coalesce(comes_from_to_client, false) AS comes_from_to_client
  FROM each JOIN connection_roots USING (head_capture, head_connection_id)
  LEFT JOIN onward USING (capture, connection_id)
  LEFT JOIN backward USING (capture, connection_id)
  UNION ALL BY NAME FROM placed_before
)
SELECT * REPLACE (min(read_by) OVER (PARTITION BY chain) AS read_by) FROM located
"""


class PriorState(NamedTuple):
    """The positions that the earlier increments of a group left (see `increments`).

    captures: in their order.
    placed: rows of PLACED.
    opened: rows of OPENED.
    """

    captures: tuple[str, ...]
    placed: pa.Table
    opened: pa.Table


NO_PRIOR_STATE: Final = PriorState((), no_rows(PLACED), no_rows(OPENED))


def assign_positions(
    db: "duckdb.DuckDBPyConnection", part: JoinPlan, before: PriorState = NO_PRIOR_STATE
) -> None:
    """Create the tables ranks, handovers and placed.

    Args:
        db: with connections of the group.
        part: the plan of one group, or of an increment of it.
    """
    (group,) = part.groups
    db.register("placed_before", before.placed)
    db.register("opened_before", before.opened)
    captures = (*before.captures, *group.captures)
    floors = (*(0 for _ in before.captures), *group.floors)
    tables = {
        "ranks": small_table(
            zip(captures, range(len(captures)), floors, strict=True),
            capture=TEXT, rank=NUMBER, floor_ns=NUMBER,
        ),
        "handovers": small_table(
            [(*one.before, *one.after, one.direction, one.missing)
             for one in sorted(part.handovers)],
            before_capture=TEXT, before_connection_id=NUMBER, after_capture=TEXT,
            after_connection_id=NUMBER, direction=TEXT, missing=NUMBER,
        ),
        "moved": small_table(
            [(*one, *head) for one, head in sorted(part.moved.items())],
            capture=TEXT, connection_id=NUMBER, head_capture=TEXT, head_connection_id=NUMBER,
        ),
    }  # fmt: skip
    for name, table in tables.items():
        db.register(name, table)
    names = ", ".join(f"'{name}'" for name in PROTOCOL_NAMES)
    db.execute(_PLACED.format(protocols=names))


class Positions:
    """Maps columns of ranks and chains to captures and connections."""

    def __init__(self, db: "duckdb.DuckDBPyConnection") -> None:
        """db: after `assign_positions`."""
        names = db.sql("SELECT capture FROM ranks ORDER BY rank").to_arrow_table()
        self._captures = names.column(0).combine_chunks()
        rows = db.sql("SELECT chain, rank, connection_id FROM placed ORDER BY chain, rank")
        placed = rows.to_arrow_table()
        self._keys = self._key(_numbers(placed, "rank"), _numbers(placed, "chain"))
        self._connections = _numbers(placed, "connection_id")
        self.connection_roots = db.sql(
            "SELECT rank, connection_id, head_client_ip AS client_ip, head_broker_ip AS broker_ip "
            "FROM placed WHERE capture = head_capture AND connection_id = head_connection_id "
            "ORDER BY chain"
        ).to_arrow_table()
        self._root_ranks = _numbers(self.connection_roots, "rank")

    def _key(self, ranks: Int64Array, chains: Int64Array) -> Int64Array:
        return chains * len(self._captures) + ranks

    def captures(self, ranks: Int64Array) -> pa.Array:
        """The captures of ranks, null for NULL."""
        return self._captures.take(nullable(ranks))

    def connections(self, ranks: Int64Array, chains: Int64Array) -> Int64Array:
        """The connections of chains in the captures of ranks, NULL if there is none."""
        known = (ranks != NULL) & (chains != NULL)
        keys = self._key(np.where(known, ranks, 0), np.where(known, chains, 0))
        at = np.minimum(np.searchsorted(self._keys, keys), max(0, len(self._keys) - 1))
        return np.where(known & (self._keys[at] == keys), self._connections[at], NULL)

    def of_roots(self, chains: Int64Array, column: str) -> pa.Array:
        """A column of the roots of chains: capture, connection_id, client_ip or broker_ip."""
        if column == "capture":
            return self.captures(self._root_ranks[chains])
        return self.connection_roots.column(column).combine_chunks().take(pa.array(chains))

    def root_ranks(self, chains: Int64Array) -> Int64Array:
        """The ranks of the roots of chains."""
        ranks: Int64Array = self._root_ranks[chains]
        return ranks


def numbers(column: pa.Array) -> Int64Array:
    """Integers or flags as an int64 array, NULL for null."""
    filled = column.cast(pa.int64()).fill_null(NULL)
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def nullable(values: Int64Array) -> pa.Array:
    """Numbers as an Arrow array, null for NULL."""
    return pa.array(values, mask=values == NULL)


def _numbers(rows: pa.Table, name: str) -> Int64Array:
    column: Int64Array = rows.column(name).combine_chunks().to_numpy().astype(np.int64)
    return column
