"""The tables that queries read, over the files of a lake: one row of each fact, joined or not.

An engine gives `lake_<table>`, the rows of the files that are read, with their own capture. Here
they become what the catalogue is written for, in SQL that all engines run:

- `capture` of rotations of one tap is the tap's run, since its rotations continue each other;
- only captures that count are there (`wanted`: capture);
- rows of captures that were joined stand in the place of the lake's own (`closed_<table>`), under
  the first capture of their connection. `own_capture` and `own_connection_id` say where the row's
  frame lies, `response_…`, `previous_…` and `ack_…` where the other one lies if that is elsewhere;
  `order_no` orders the rows of a connection;
- `legs` has every connection by every number that rows of frames and acks have, `producer_names`
  and `consumer_names` the names by all of them; `connections`, `producers`, `consumers` each once.
"""

from collections.abc import Collection, Iterator
from typing import Final

from dissector.schemas import TABLES

# Where rows of joined captures name another frame than their own.
OTHER_PLACES: Final[dict[str, tuple[str, ...]]] = {
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
# Where the frame lies that closed a consumer of a joined connection.
CLOSED_AT: Final = ("closed_capture", "closed_connection_id", "closed_no")


def columns_of(table: str) -> list[str]:
    """The columns of a table as the files of a lake have them."""
    return [column.name for column in TABLES[table].columns]


def _placed(table: str) -> str:
    """Further columns of rows that are as their capture has them."""
    more = {
        "own_capture": "r.capture", "own_connection_id": "r.connection_id",
        **{
            name: f"CAST(NULL AS {'BIGINT' if name.endswith('_id') else 'STRING'})"
            for name in OTHER_PLACES[table]
            if name not in columns_of(table)
        },
        "order_no": f"r.{ORDERED_BY[table]}",
    }  # fmt: skip
    return "".join(f", {value} AS {name}" for name, value in more.items())


def _closed_at(name: str) -> str:
    """Further columns of consumers that are as their capture has them."""
    if name != "consumers":
        return ""
    values = ("r.capture", "r.connection_id", "r.closed_frame_no")
    return "".join(
        f", {value} AS {column}" for value, column in zip(values, CLOSED_AT, strict=True)
    )


def placed_columns(table: str) -> list[str]:
    """The columns of a table that joining closes, with those that say where its frames lie."""
    names = columns_of(table)
    more = ["own_capture", "own_connection_id", *OTHER_PLACES[table], "order_no"]
    return [*names, *(name for name in more if name not in names)]


def table_views(
    *, has_rotations: bool = False, joined: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Name and query of the view of each table, in the order in which they can be made.

    Args:
        has_rotations: whether there is `rotations` (rotation, run).
        joined: of which tables there is `closed_<name>`; with any there is `joined` (capture).
    """
    for table in TABLES:
        cells = [f"r.{name}" for name in columns_of(table)]
        source = f"lake_{table} AS r"
        if has_rotations:
            at = cells.index("r.capture")
            cells[at] = "coalesce(t.run, r.capture) AS capture"
            source += " LEFT JOIN rotations AS t ON t.rotation = r.capture"
        rows = f"SELECT {', '.join(cells)} FROM {source}"
        yield (
            f"own_{table}",
            f"SELECT r.* FROM ({rows}) AS r WHERE r.capture IN (SELECT capture FROM wanted)",
        )
    for name in (*TABLES, *NAMED_TWICE):
        table = NAMED_TWICE.get(name, name)
        more = _placed(table) if table in ORDERED_BY else _closed_at(name)
        rows = f"SELECT r.*{more} FROM own_{table} AS r"
        if name in joined:
            rows += " WHERE r.capture NOT IN (SELECT capture FROM joined)"
            names = placed_columns(table) if table in ORDERED_BY else columns_of(table)
            names += CLOSED_AT if name == "consumers" else ()
            rows += f" UNION ALL SELECT {', '.join(names)} FROM closed_{name}"
        yield name, rows
