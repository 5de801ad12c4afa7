"""Write the joined rows of a group of captures.

The group's rows are stitched (`stitching`, `stitching_cursus`) into the rows of `exchanges`,
`deliveries` and `permits` that one capture over all of them would have. Their capture,
connection_id and incarnation are those of the joined connection (its root); own_capture and
own_connection_id are the frame's own, and response_capture, ack_capture and previous_capture those
of the other frame, if they differ.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dissector.blocks import Int64Array
from dissector.joining import (
    capture_boundaries,
    client_handles,
    merged,
    stitching,
    stitching_cursus,
)
from dissector.joining import positions as joining_positions
from dissector.joining.files import (
    BATCH_ROWS,
    FEW_ROWS,
    CaptureFiles,
    JoinSettings,
    database,
    make_views,
    text,
    write,
)
from dissector.joining.gaps import find_gaps
from dissector.joining.links import ConnectionId, JoinPlan
from dissector.joining.positions import Positions, PriorState
from dissector.limits import NULL
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.small_tables import NUMBER, TEXT, small_table

if TYPE_CHECKING:
    import duckdb

CLOSED: Final = ("exchanges", "deliveries", "permits")
# Tables that later increments query for messages that are sent or delivered again.
PAST: Final = ("exchanges", "deliveries")
# The other frames that a row names: their capture and connection are written if another capture
# has them (the connection of a previous delivery: always). order_no, the number of the row's frame
# in all joined captures, orders the rows of a connection.
_OTHERS: Final[dict[str, tuple[str, ...]]] = {
    "exchanges": ("response",), "deliveries": ("previous", "ack"), "permits": (),
}  # fmt: skip
_READ: Final = ("connections", "notices", "exchanges", "permits", "frames", "acks", "deliveries",
                "messages")  # fmt: skip
_READ_AS_THEY_ARE: Final = ("producers", "consumers", "events")
_NEAR: Final = ("connections", "frames", "exchanges", "deliveries")
# Tables with rows of frames that another capture may have, too.
_ONCE: Final = ("frames", "acks", "deliveries", "messages")


def closed_schema(table: str) -> pa.Schema:
    """The columns of the closed rows of a table."""
    schema = arrow_schema(table)
    names = [f"{other}_{what}" for other in _OTHERS[table] for what in ("capture", "connection_id")]
    fields = [
        pa.field(name, pa.string() if name.endswith("capture") else pa.int64())
        for name in ("own_capture", "own_connection_id", *names, "order_no")
        if name not in schema.names
    ]
    return pa.schema([*schema, *fields])


SCHEMAS: Final = {
    **{name: closed_schema(name) for name in CLOSED},
    **client_handles.SCHEMAS,
    "connections": merged.CONNECTIONS,
    "behind": merged.CONNECTIONS,
    "left_out": capture_boundaries.LEFT_OUT,
    "changes": merged.CHANGES,
    "cut": merged.CUT,
    "skipped": merged.SKIPPED,
    "untouched": merged.UNTOUCHED,
}
# The state that an increment leaves to the next.
LEFT: Final = (*joining_positions.SCHEMAS, *stitching.LEFT)


class Target(NamedTuple):
    """The output paths of a group: folder/<table>/<name>.parquet, for each table of SCHEMAS."""

    folder: Path
    name: str

    def path(self, table: str) -> Path:
        """The file of a table."""
        return self.folder / table / f"{self.name}.parquet"


class IncrementContext(NamedTuple):
    """The surroundings of an increment of a group (see `increments`).

    captures: of the earlier increments, in order.
    before: the earlier increments' rows and state, in order.
    near: files of near captures.
    later: roots of connections that are known to continue behind it.
    is_last: whether no increment follows; if not, the open state (LEFT) is written.
    """

    captures: tuple[str, ...] = ()
    before: tuple[Target, ...] = ()
    near: CaptureFiles | None = None
    later: tuple[ConnectionId, ...] = ()
    is_last: bool = True


ALONE: Final = IncrementContext()


def close_group(
    source: CaptureFiles,
    part: JoinPlan,
    target: Target,
    settings: JoinSettings,
    around: IncrementContext = ALONE,
) -> dict[str, int]:
    """Read a group of captures and write its joined rows; returns the number of rows per table.

    Args:
        source: the files of the group's captures.
        part: the plan of this group alone.
        around: ALONE for a group that is not cut.

    Raises:
        DependencyError: DuckDB is not installed.
    """
    before = around.before[-1] if around.before else None
    is_small = source.rows + (around.near.rows if around.near else 0) <= FEW_ROWS
    with database(settings, is_small=is_small) as db:
        make_views(db, source, (*_READ, *_READ_AS_THEY_ARE), "all_", is_read_once=is_small)
        if around.near is not None:
            make_views(db, around.near, _NEAR, "near_")
        db.execute("CREATE TABLE connections AS SELECT * EXCLUDE place FROM all_connections")
        joining_positions.assign_positions(db, part, _before(around))
        capture_boundaries.find_left_out(db, part.handovers, has_near=around.near is not None)
        counts = {"left_out": _write_left_out(db, target)}
        find_gaps(db)
        capture_boundaries.find_message_counts(db, has_near=around.near is not None)
        db.execute(merged.MERGED)
        (group,) = part.groups
        more: dict[str, list[pa.Table]] = defaultdict(list)
        db.register("later", small_table(around.later, capture=TEXT, connection_id=NUMBER))
        db.execute("CREATE TABLE going_on AS FROM later" if around.is_last else merged.GOING_ON)
        is_complete = around == ALONE and not source.is_mixed
        stitching.leave_untouched(db, is_complete=is_complete)
        protocols = {name for (name,) in db.sql(merged.STITCHED_PROTOCOLS).fetchall()}
        rows_out: list[Iterator[stitching.TableRows]] = []
        if stitching_cursus.NAME in protocols:
            rows_out.append(stitching_cursus.stitched(db, is_in_turn=group.is_in_turn))
        if stitching.NAME in protocols or around != ALONE:  # an increment passes its state on
            past = {name: [each.path(name) for each in around.before] for name in PAST}
            stitched = stitching.stitched(
                db,
                before.path if before else None,
                past,
                None if around.is_last else target.path,
                is_in_turn=group.is_in_turn,
            )
            rows_out.append(stitched)
        counts |= _write_closed(db, chain(*rows_out), target, more)
        counts |= _write_others(db, target, more)
        if not around.is_last:
            for name, query in (("placed", "FROM placed"), ("opened", merged.OPENED)):
                write(db, query, joining_positions.SCHEMAS[name], target.path(name))
    return counts


def _before(around: IncrementContext) -> PriorState:
    if not around.before:
        return joining_positions.NO_PRIOR_STATE
    placed, opened = (
        pq.ParquetFile(around.before[-1].path(name)).read() for name in joining_positions.SCHEMAS
    )
    return PriorState(around.captures, placed, opened)


def _write_others(
    db: "duckdb.DuckDBPyConnection",
    target: Target,
    stitched: Mapping[str, Sequence[pa.Table]],
) -> dict[str, int]:
    """Write all tables except CLOSED; returns the number of rows of each."""
    counts = {}
    for name, query in client_handles.queries(db, stitched).items():
        counts[name] = write(db, query, client_handles.SCHEMAS[name], target.path(name))
    for name, query in (
        ("connections", merged.ENDED),
        ("behind", merged.BEHIND),
        ("cut", merged.CUT_QUERY),
        ("skipped", merged.SKIPPED_QUERY),
        ("untouched", merged.UNTOUCHED_QUERY),
        ("changes", _changes(db, target)),
    ):
        counts[name] = write(db, query, SCHEMAS[name], target.path(name))
    return counts


def _write_left_out(db: "duckdb.DuckDBPyConnection", target: Target) -> int:
    """Write left_out and create views without its frames; returns the number of its rows."""
    query = "FROM left_out ORDER BY capture, connection_id, frame_no"
    count = write(db, query, capture_boundaries.LEFT_OUT, target.path("left_out"))
    without = " ANTI JOIN left_out USING (capture, connection_id, frame_no)" if count else ""
    for table in _READ[1:]:
        db.execute(f"CREATE VIEW {table} AS FROM all_{table}{without if table in _ONCE else ''}")
    return count


def _changes(db: "duckdb.DuckDBPyConnection", target: Target) -> str:
    for name in CLOSED:
        path = text(str(target.path(name)).replace("[", "[[]"))
        left = merged.AS_THEY_ARE[name]
        db.execute(
            f"CREATE VIEW closed_{name} AS FROM read_parquet({path}) UNION ALL BY NAME "
            f"FROM all_{name} SEMI JOIN {left} USING (capture, connection_id)"
        )
    return merged.changes()


def _write_closed(
    db: "duckdb.DuckDBPyConnection",
    rows_out: Iterable[stitching.TableRows],
    target: Target,
    more: dict[str, list[pa.Table]],
) -> dict[str, int]:
    """Write the rows of CLOSED batch by batch; append rows of other tables to `more`."""
    counts = dict.fromkeys(CLOSED, 0)
    positions = Positions(db)
    with ExitStack() as stack:
        writers = {}
        for name in CLOSED:
            target.path(name).parent.mkdir(parents=True, exist_ok=True)
            writer = pq.ParquetWriter(target.path(name), SCHEMAS[name], compression="zstd")
            writers[name] = stack.enter_context(writer)
        for name, rows in rows_out:
            if name in writers:
                writers[name].write_table(placed_rows(name, rows, positions))
                counts[name] += rows.num_rows
            else:
                more[name].append(rows)
        for batch in db.table("dated").to_arrow_reader(BATCH_ROWS):
            writers["deliveries"].write_table(own_deliveries(batch))
            counts["deliveries"] += batch.num_rows
    return counts


def own_deliveries(rows: pa.RecordBatch) -> pa.Table:
    """Deliveries of an untouched connection in the closed schema: their positions are their own."""
    schema = SCHEMAS["deliveries"]
    own = {"own_capture": "capture", "own_connection_id": "connection_id", "order_no": "frame_no"}
    columns = {field.name: pa.nulls(rows.num_rows, field.type) for field in schema}
    for name in schema.names:
        if (source := own.get(name, name)) in rows.schema.names:
            columns[name] = rows.column(source).cast(schema.field(name).type)
    return pa.table(columns, schema=schema)


def placed_rows(table: str, rows: pa.Table, positions: Positions) -> pa.Table:
    """Rows of the whole with the captures and connections of their root, own and other frames."""
    chains = _column(rows, "connection_id")
    if table == "exchanges":
        request_ranks = _column(rows, "request_rank")
        is_orphan = request_ranks == NULL
        ranks = np.where(is_orphan, _column(rows, "response_rank"), request_ranks)
    else:
        ranks = _column(rows, "rank")
    root_ranks = positions.root_ranks(chains)
    ranks = np.where(ranks == NULL, root_ranks, ranks)
    columns: dict[str, Any] = {
        "connection_id": positions.of_roots(chains, "connection_id"),
        "capture": positions.captures(root_ranks),
        "own_capture": positions.captures(ranks),
        "own_connection_id": joining_positions.nullable(positions.connections(ranks, chains)),
        "origin_capture": pa.nulls(rows.num_rows, pa.string()),
    }
    if table == "exchanges":
        for name in ("client_ip", "broker_ip"):
            columns[name] = positions.of_roots(chains, name)
    for name in _OTHERS[table]:
        other = _column(rows, f"{name}_rank")
        is_there = (other != NULL) & (other != ranks)
        # A previous delivery may be on another connection, whose id is always written.
        is_free = name == "previous"
        its = positions.connections(
            other, _column(rows, f"{name}_connection_id") if is_free else chains
        )
        columns[f"{name}_capture"] = positions.captures(np.where(is_there, other, NULL))
        columns[f"{name}_connection_id"] = joining_positions.nullable(
            its if is_free else np.where(is_there, its, NULL)
        )
    schema = SCHEMAS[table]
    return pa.table(
        [(columns[name] if name in columns else rows.column(name)).cast(kind)
         for name, kind in zip(schema.names, schema.types, strict=True)],
        schema=schema,
    )  # fmt: skip


def _column(rows: pa.Table, name: str) -> Int64Array:
    return joining_positions.numbers(rows.column(name).combine_chunks())
