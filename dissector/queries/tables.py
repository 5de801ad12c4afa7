"""The tables that queries read, over the files of a lake: one row of each fact, joined or not.

An engine gives `lake_<table>`, the rows of the files that are read, with their own capture. Here
they become what the catalogue is written for, in SQL that all engines run:

- `capture` of rotations of one tap is the tap's run, since its rotations continue each other;
- only captures that count are there (`wanted`: capture);
- rows that joining closed (`dissector.joining.closing`, here `closed_<table>`) stand in the place
  of the lake's own, under the first capture of their connection. `own_capture` and
  `own_connection_id` say where the row's frame lies, `response_…`, `previous_…` and `ack_…` where
  the other one lies if that is elsewhere; `order_no` orders the rows of a connection;
- `moved` says of a joined connection, by each further place of its, under which it counts;
- `legs` has every connection by every number that rows of frames and acks have, `producer_names`
  and `consumer_names` the names by all of them; `connections`, `producers`, `consumers` each once.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from dissector.schemas import TABLES

# Where rows of joined captures name another frame than their own.
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
# Tables that joining replaces, and what is read where nothing was joined.
NAMED_TWICE: Final = {
    "legs": "connections", "producer_names": "producers", "consumer_names": "consumers",
}  # fmt: skip
# What stands in the place of rows of captures that were joined, and tables of which such a capture
# may have rows that another one has, too.
CLOSED: Final[dict[str, tuple[str, ...]]] = {
    **{name: (name,) for name in (*ORDERED_BY, "producers", "consumers", "connections")},
    "producer_names": ("producer_names",),
    "consumer_names": ("consumer_names",),
    "legs": ("connections", "behind"),
}
REPEATED: Final = ("frames", "acks", "messages")
# Where the frame lies that closed a consumer of a joined connection.
CLOSED_AT: Final = ("closed_capture", "closed_connection_id", "closed_no")

# What stands for the number of a connection that is in another capture: there the other leg of a
# proxied pair, or the same connection, captured twice.
OTHER_PROXY_SIDE: Final = -1
COPY: Final = -2

# A place of a connection, and the one under which it counts: `dissector.joining`, Plan.moved.
MOVED: Final = ("capture", "connection_id", "head_capture", "head_connection_id")
_NOTHING_MOVED: Final = (
    "SELECT CAST(NULL AS STRING) AS capture, CAST(NULL AS BIGINT) AS connection_id, "
    "CAST(NULL AS STRING) AS head_capture, CAST(NULL AS BIGINT) AS head_connection_id WHERE FALSE"
)

# Rows of captures that were joined which are read as they are.
_UNTOUCHED: Final = (
    " OR EXISTS (SELECT 1 FROM closed_untouched AS u WHERE u.capture = r.capture "
    "AND u.connection_id = r.connection_id"
)


def columns_of(table: str) -> list[str]:
    """The columns of a table as the files of a lake have them."""
    return [column.name for column in TABLES[table].columns]


def _further_columns(name: str) -> dict[str, str]:
    """Columns of a view that its table does not have, and their values in rows that are as their
    capture has them."""
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
    """The columns of the view of a table: of those that joining closes also where frames lie."""
    return [*columns_of(NAMED_TWICE.get(name, name)), *_further_columns(name)]


def table_views(
    sources: Mapping[str, str] = MappingProxyType({}),
    *,
    has_others: bool = True,
    has_rotations: bool = False,
    is_joined: bool = False,
    has_proxy_peers: bool = False,
) -> Iterator[tuple[str, str]]:
    """Name and query of the view of each table, in the order in which they can be made.

    Args:
        sources: what has the columns of a table in the place of `lake_<table>`: to bind a view of
            a view takes as long again.
        has_others: whether files hold captures that do not count; without it `wanted` is not read.
        has_rotations: whether there is `rotations` (rotation, run).
        is_joined: whether there is `joined` (capture), and what `dissector.joining.closing` wrote
            as `closed_<table>`.
        has_proxy_peers: whether there is `twins_elsewhere` (capture, connection_id, twin_id),
            connections that another capture has, too; twin_id: OTHER_PROXY_SIDE or COPY.
    """
    for name in (*TABLES, *NAMED_TWICE):
        table = NAMED_TWICE.get(name, name)
        more = "".join(f", {value} AS {key}" for key, value in _further_columns(name).items())
        own = _own(
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
                rows += f"{_UNTOUCHED}{keeps})"
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


def _own(table: str, source: str, *, has_rotations: bool, has_others: bool) -> str:
    """What to select from: the rows of files that count, under the capture that they count for."""
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
    """Connections, those included that another capture shows as well.

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
