"""The tables that queries read, as views over the files of a lake: each fact once, joined or not.

An engine provides `lake_<table>`: all rows of the files, with the capture of their file. The views
here are what the catalogue queries, in SQL that all engines run:

- `capture` is the tap's run for rotations of one tap, since they continue each other;
- rows of captures that are not in `wanted` (capture) are left out;
- rows that joining closed (`dissector.joining.closing`, here `closed_<table>`) replace the lake's
  own, under the first capture of their connection. `own_capture` and `own_connection_id` locate the
  row's frame; `response_…`, `previous_…` and `ack_…` locate the other frame if it is in another
  capture; `order_no` orders the rows of a connection;
- `moved` maps each further (capture, connection_id) of a joined connection to its first one;
- of a connection that another one of its capture repeats (a proxy's side, a copy) there are frames
  alone, and its row of connections: its requests, deliveries and so on are the other one's;
- `legs` has a row per connection and number that rows of frames and acks use, `producer_names` and
  `consumer_names` the names for all of these; `connections`, `producers`, `consumers` one each.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from dissector.schemas import TABLES

# Columns that locate the other frame of a row of joined captures.
OTHER_FRAMES: Final[dict[str, tuple[str, ...]]] = {
    "exchanges": ("response_capture", "response_connection_id"),
    "deliveries": (
        "previous_capture", "previous_connection_id", "ack_capture", "ack_connection_id",
    ),
    "permits": (),
}  # fmt: skip
ORDERED_BY: Final = {
    "exchanges": "request_frame_no", "deliveries": "frame_no", "permits": "frame_no",
}  # fmt: skip
# Views with a row per number of a connection, and the table that they read if nothing was joined.
NAMED_TWICE: Final = {
    "legs": "connections", "producer_names": "producers", "consumer_names": "consumers",
}  # fmt: skip
# The closed tables that replace the rows of joined captures, by view; and the tables in which two
# joined captures may have the same row.
CLOSED: Final[dict[str, tuple[str, ...]]] = {
    **{name: (name,) for name in (*ORDERED_BY, "producers", "consumers", "connections")},
    "producer_names": ("producer_names",),
    "consumer_names": ("consumer_names",),
    "legs": ("connections", "behind"),
}
REPEATED: Final = ("frames", "acks", "messages")
# Columns that locate the frame which closed a producer or consumer of a joined connection.
CLOSED_AT: Final = ("closed_capture", "closed_connection_id", "closed_no")

# Instead of the number of a connection in another capture: that is the other side of a proxied
# pair, or a second capture of the same connection.
OTHER_PROXY_SIDE: Final = -1
COPY: Final = -2

# Tables without rows of connections that others of their captures repeat.
_ONCE: Final = ("exchanges", "deliveries", "permits", "acks", "producers", "consumers")
_REPEATED_LEGS: Final = """
SELECT DISTINCT capture, connection_id FROM ({}) AS c
WHERE c.leg = 'broker' AND c.twin_connection_id > {}
"""

# A (capture, connection_id), and the one under which it counts: `dissector.joining`, Plan.moved.
MOVED: Final = ("capture", "connection_id", "head_capture", "head_connection_id")
_NOTHING_MOVED: Final = (
    "SELECT CAST(NULL AS STRING) AS capture, CAST(NULL AS BIGINT) AS connection_id, "
    "CAST(NULL AS STRING) AS head_capture, CAST(NULL AS BIGINT) AS head_connection_id WHERE FALSE"
)

# Rows of joined captures that joining left unchanged.
_UNCHANGED: Final = (
    " OR EXISTS (SELECT 1 FROM closed_untouched AS u WHERE u.capture = r.capture "
    "AND u.connection_id = r.connection_id"
)


def columns_of(table: str) -> list[str]:
    """The names of a table's columns in the files of a lake."""
    return [column.name for column in TABLES[table].columns]


def _further_columns(name: str) -> dict[str, str]:
    """Columns of a view that its table lacks, with their SQL for rows unchanged by joining."""
    if name in ("producers", "consumers"):
        values = ("r.capture", "r.connection_id", "r.closed_frame_no")
        return dict(zip(CLOSED_AT, values, strict=True))
    if name not in ORDERED_BY:
        return {}
    elsewhere = {
        column: f"CAST(NULL AS {'BIGINT' if column.endswith('_id') else 'STRING'})"
        for column in OTHER_FRAMES[name]
        if column not in columns_of(name)
    }
    return {
        "own_capture": "r.capture", "own_connection_id": "r.connection_id", **elsewhere,
        "order_no": f"r.{ORDERED_BY[name]}",
    }  # fmt: skip


def view_columns(name: str) -> list[str]:
    """The columns of the view of a table, those that locate frames included."""
    return [*columns_of(NAMED_TWICE.get(name, name)), *_further_columns(name)]


def table_views(
    sources: Mapping[str, str] = MappingProxyType({}),
    *,
    has_others: bool = True,
    has_rotations: bool = False,
    is_joined: bool = False,
    has_proxy_peers: bool = False,
) -> Iterator[tuple[str, str]]:
    """Name and query of the view of each table, each after the views that it reads.

    Args:
        sources: FROM expressions with a table's columns that replace `lake_<table>`, because
            binding a view of a view takes twice as long.
        has_others: whether files contain captures that are not in `wanted`.
        has_rotations: whether the table `rotations` (rotation, run) exists.
        is_joined: whether `joined` (capture) exists, and the tables that
            `dissector.joining.closing` wrote, as `closed_<table>`.
        has_proxy_peers: whether `twins_elsewhere` (capture, connection_id, twin_id) exists, with
            the connections that another capture shows as well; twin_id: OTHER_PROXY_SIDE or COPY.
    """
    for name in (*TABLES, *NAMED_TWICE):
        table = NAMED_TWICE.get(name, name)
        more = "".join(f", {value} AS {key}" for key, value in _further_columns(name).items())
        own = _wanted_rows(
            table, sources.get(table, f"lake_{table}"), has_rotations=has_rotations,
            has_others=has_others,
        )  # fmt: skip
        cells = ", ".join(f"r.{column}" for column in columns_of(table)) if sources else "r.*"
        rows = f"SELECT {cells}{more} FROM {own} AS r"
        if is_joined and name in CLOSED:
            cells = ", ".join(view_columns(name))
            rows += " WHERE r.capture NOT IN (SELECT capture FROM joined)"
            if table != "connections":
                keeps = " AND u.keeps_deliveries" if table == "deliveries" else ""
                rows += f"{_UNCHANGED}{keeps})"
            for source in CLOSED[name]:
                rows += f" UNION ALL SELECT {cells} FROM closed_{source}"
        elif is_joined and name in REPEATED:
            rows += (
                " WHERE NOT EXISTS (SELECT 1 FROM closed_left_out AS l WHERE l.capture = r.capture "
                "AND l.connection_id = r.connection_id AND l.frame_no = r.frame_no)"
            )
        if has_proxy_peers and table == "connections":
            rows = _with_proxy_peers(rows)
        yield name, rows
    yield "moved", f"SELECT {', '.join(MOVED)} FROM closed_moved" if is_joined else _NOTHING_MOVED


def _wanted_rows(table: str, source: str, *, has_rotations: bool, has_others: bool) -> str:
    """The FROM expression of a table: wanted rows, with the run as the capture of rotations."""
    if has_rotations:
        cells = [f"r.{name}" for name in columns_of(table)]
        cells[cells.index("r.capture")] = "coalesce(t.run, r.capture) AS capture"
        rows = f"{source} AS r LEFT JOIN rotations AS t ON t.rotation = r.capture"
        source = f"(SELECT {', '.join(cells)} FROM {rows})"
    if has_others:
        wanted = "r.capture IN (SELECT capture FROM wanted)"
        source = f"(SELECT r.* FROM {source} AS r WHERE {wanted})"
    return source


def _with_proxy_peers(rows: str) -> str:
    """The query for connections, with the legs and twins of those that another capture shows.

    They count as the proxy's broker side; its client side is in another capture.
    """
    cells = [f"c.{name}" for name in columns_of("connections")]
    cells[cells.index("c.leg")] = (
        "CASE WHEN e.capture IS NOT NULL THEN 'broker' ELSE c.leg END AS leg"
    )
    cells[cells.index("c.twin_connection_id")] = (
        "CASE WHEN e.capture IS NULL OR c.leg = 'broker' "
        "THEN coalesce(c.twin_connection_id, e.twin_id) ELSE e.twin_id END AS twin_connection_id"
    )
    return (
        f"SELECT {', '.join(cells)} FROM ({rows}) AS c LEFT JOIN twins_elsewhere AS e "
        "ON e.capture = c.capture AND e.connection_id = c.connection_id"
    )


def repeated_legs(views: Mapping[str, str]) -> str:
    """The query for the connections that others of their captures repeat, from the queries of
    `table_views`."""
    return _REPEATED_LEGS.format(views["legs"], COPY)


def without_repeated_legs(views: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The views, those of _ONCE without rows of the connections in `repeated_legs`, a table."""
    for name, query in views.items():
        if name in _ONCE:
            legs = "ANTI JOIN repeated_legs AS l USING (capture, connection_id)"
            query = f"SELECT r.* FROM ({query}) AS r {legs}"
        yield name, query
