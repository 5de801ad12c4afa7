"""Close over captures what one capture alone cannot know.

Spark finds what is to be read together (`links`), brings the rows of each group into one order and
hands them to `replay`, one group per task at a time. What comes back are the rows of `exchanges`,
`deliveries` and `permits` that one capture over all of them would have had. In them capture,
connection_id and incarnation are those of the joined connection (the place of its first part);
own_capture and own_connection_id say where the frame lies, and response_capture, ack_capture and
previous_capture where the other one lies, if that is elsewhere.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType
from pyspark.sql.window import Window, WindowSpec

from dissector.limits import REORDER_WINDOW_MS
from dissector.protocols.columns import EVENT_CLOSE, EVENT_FIN, EVENT_GAP
from dissector.stream.columns import ENDED_FIN, ENDED_NAMES
from spark_jobs import borders, holes, replay
from spark_jobs.links import WAYS, Group, Place, Plan, Row
from spark_jobs.schemas import spark_schema
from spark_jobs.workspace import Workspace

_WINDOW_NS: Final = REORDER_WINDOW_MS * 1_000_000
_PLACE: Final = ["capture", "connection_id"]
_ORDER: Final = ["group", "time", "rank", "turn", "frame_no", "kind"]
_KEYS: Final = ("group", "turn", "last_packet")
# Frame number of events that come behind all frames of their packet.
_LATEST: Final = 1 << 62
_TAKES_PART: Final = ("SEND", "MESSAGE")

PLACES: Final = pa.schema(
    [
        ("group", pa.int64()),
        ("rank", pa.int64()),
        ("floor_ns", pa.int64()),
        ("is_in_turn", pa.bool_()),
        ("chain", pa.int64()),
        ("capture", pa.string()),
        ("connection_id", pa.int64()),
        ("head_capture", pa.string()),
        ("head_connection_id", pa.int64()),
        ("head_client_ip", pa.string()),
        ("head_broker_ip", pa.string()),
        # Whether the direction goes on in the next capture, or from the one before, without a gap.
        *((f"{name}_{way}", pa.bool_()) for name in ("goes_on", "comes_from") for way in WAYS),
    ]
)


def places(plan: Plan, connections: Iterable[Row]) -> pa.Table:
    """Every connection of the groups with its group, rank, chain and head (PLACES)."""
    by_place = {(row["capture"], row["connection_id"]): row for row in connections}
    ranks = plan.group_of()
    groups = {group.number: group for group in plan.groups}
    onward = {(seam.before, seam.direction) for seam in plan.seams if _is_whole(seam.missing)}
    backward = {(seam.after, seam.direction) for seam in plan.seams if _is_whole(seam.missing)}
    rows = []
    for place, chain in plan.chains.items():
        number, rank = ranks[place[0]]
        group = groups[number]
        head = plan.heads[number, chain]
        rows.append(
            {
                "group": number, "rank": rank, "floor_ns": group.floors[rank],
                "is_in_turn": group.is_in_turn, "chain": chain, "capture": place[0],
                "connection_id": place[1], "head_capture": head[0], "head_connection_id": head[1],
                "head_client_ip": by_place[head]["client_ip"],
                "head_broker_ip": by_place[head]["broker_ip"],
                **{f"goes_on_{way}": (place, way) in onward for way in WAYS},
                **{f"comes_from_{way}": (place, way) in backward for way in WAYS},
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=PLACES)


def _is_whole(missing: int | None) -> bool:
    """Whether nothing is missing at a seam; a direction without bytes has nothing to miss."""
    return missing is None or missing <= 0


def _event(group: int, rank: int, chain: int, frame_no: int, code: int, **more: Any) -> Row:
    return {
        "group": group, "rank": rank, "chain": chain, "frame_no": frame_no, "kind": replay.EVENT,
        "event_code": code, **more,
    }  # fmt: skip


def ends(plan: Plan, connections: Iterable[Row]) -> list[Row]:
    """Rows of events that the rows of connections tell: ends of directions and of connections, the
    bytes that are missing between two captures, and the legs of proxied pairs."""
    ranks = plan.group_of()
    found: list[Row] = []
    legs = set()
    for row in connections:
        place = (row["capture"], row["connection_id"])
        if place not in plan.chains:
            continue
        where = (*ranks[place[0]], plan.chains[place])
        is_broker_leg = row["leg"] == "broker" and row["twin_connection_id"] is not None
        if is_broker_leg and (where[0], where[2]) not in legs:
            legs.add((where[0], where[2]))
            found.append(_event(*where, 0, 0) | {"kind": replay.LEG})
        for way in WAYS:
            at = row[f"fin_packet_{way}"]
            if at is not None:
                found.append(_event(*where, _LATEST, EVENT_FIN, direction=way, last_packet=at))
        if row["ended_packet"] is not None:
            how = ENDED_NAMES.index(row["ended"])
            found.append(
                _event(*where, _LATEST, EVENT_CLOSE, frames_missing=how, direction="to_client",
                       last_ts_ns=row["last_ts_ns"], last_packet=row["ended_packet"])
            )  # fmt: skip
    found += _ends_of_both_ways(plan, connections)
    for seam in plan.seams:
        if seam.after in plan.chains and not _is_whole(seam.missing):
            where = (*ranks[seam.after[0]], plan.chains[seam.after])
            found.append(
                _event(*where, 0, EVENT_GAP, frames_missing=1, direction=seam.direction,
                       stream_offset=-int(seam.missing or 0), frame_bytes=seam.missing)
            )  # fmt: skip
    return found


def _ends_of_both_ways(plan: Plan, connections: Iterable[Row]) -> list[Row]:
    """Ends of connections whose directions ended in different captures: each of these saw a
    connection that was half closed."""
    ranks = plan.group_of()
    parts: dict[tuple[int, int], list[tuple[int, Row]]] = defaultdict(list)
    for row in connections:
        place = (row["capture"], row["connection_id"])
        if place in plan.chains:
            number, rank = ranks[place[0]]
            parts[number, plan.chains[place]].append((rank, row))
    found = []
    for (number, chain), rows in parts.items():
        rows.sort(key=lambda part: part[0])
        fins = [
            next(((n, row) for n, row in rows if row[f"fin_packet_{way}"] is not None), None)
            for way in WAYS
        ]
        is_open = all(row["ended_packet"] is None for _, row in rows)
        if is_open and fins[0] is not None and fins[1] is not None:
            rank, row = max(fins[0], fins[1], key=lambda part: part[0])
            at = max(row[f"fin_packet_{way}"] or 0 for way in WAYS)
            found.append(
                _event(number, rank, chain, _LATEST, EVENT_CLOSE, frames_missing=ENDED_FIN,
                       direction="to_client", last_ts_ns=row["last_ts_ns"], last_packet=at)
            )  # fmt: skip
    return found


def _all_columns(rows: DataFrame, **more: Any) -> DataFrame:
    """Rows with every column of the replay's input, null where they have none."""
    schema = input_schema()
    made = [
        more[field.name].alias(field.name)
        if field.name in more
        else F.col(field.name)
        if field.name in rows.columns
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in schema
    ]
    return rows.select(*made)


def input_schema() -> StructType:
    """The replay's input as Spark has it, with what it is ordered by."""
    from pyspark.sql.pandas.types import from_arrow_schema

    found = from_arrow_schema(replay.INPUT)
    more = from_arrow_schema(pa.schema([(name, pa.int64()) for name in _KEYS]))
    return StructType([*more.fields, *found.fields])


def frame_rows(frames: DataFrame, placed: DataFrame) -> DataFrame:
    """Frames of the groups. A frame that goes on in the next capture is left out, unless it tells
    whose it is: its rest is lost, and nothing else is."""
    rows = frames.where(F.col("protocol") == "pulsar").join(F.broadcast(placed), on=_PLACE)
    goes_on = F.when(F.col("direction") == "to_client", F.col("goes_on_to_client"))
    goes_on = goes_on.otherwise(F.col("goes_on_to_broker"))
    is_named = F.col("command").isin(*_TAKES_PART) & (
        F.coalesce("producer_id", "consumer_id").isNotNull()
    )
    is_cut = goes_on & (F.col("status") == "cut_by_end") & ~F.coalesce(is_named, F.lit(False))
    return _all_columns(rows.where(~is_cut), kind=F.lit(replay.FRAME).cast("bigint"))


def id_rows(acks: DataFrame, placed: DataFrame) -> DataFrame:
    """The ids of ACK and REDELIVER frames."""
    rows = acks.join(F.broadcast(placed), on=_PLACE)
    return _all_columns(rows, kind=F.lit(replay.ID).cast("bigint"))


def cost_rows(deliveries: DataFrame, placed: DataFrame) -> DataFrame:
    """What deliveries cost, where their frame alone does not say it."""
    plain = F.coalesce("batch_size", F.lit(1)).eqNullSafe(F.col("message_count"))
    rows = deliveries.where(F.col("ack_set").isNotNull() | ~plain)
    rows = rows.join(F.broadcast(placed), on=_PLACE)
    return _all_columns(rows, kind=F.lit(replay.COST).cast("bigint"))


def border_rows(rows: Iterable[Row], placed: DataFrame) -> DataFrame:
    """What deliveries cost that end in the next capture; see `borders.costs`."""
    schema = "capture string, connection_id bigint, frame_no bigint, message_count bigint"
    told = [
        (row["capture"], row["connection_id"], row["frame_no"], row["message_count"])
        for row in rows
    ]
    found = placed.sparkSession.createDataFrame(told, schema).join(F.broadcast(placed), on=_PLACE)
    return _all_columns(found, kind=F.lit(replay.COST).cast("bigint"))


def gap_rows(notices: DataFrame, frames: DataFrame, placed: DataFrame) -> DataFrame:
    """Missing bytes, and bytes without frames, in their place among the frames of both directions;
    see `holes`."""
    rows = holes.in_place(notices, frames, placed)
    return _all_columns(
        rows, kind=F.lit(replay.EVENT).cast("bigint"), frame_bytes=F.col("bytes")
    )


def in_order(rows: DataFrame, placed: DataFrame) -> DataFrame:
    """The replay's input: each group in one partition, its rows in order.

    Within a capture that is the order of turns: a frame's turn is the largest last packet of its
    connection so far, that of an end the packet that brought it; holes bring theirs. (The first
    frames of a connection that began before the capture are held back, in case that others come
    before them; they have later numbers than in the middle of a capture.) Captures that lasted at
    the same time are merged by the largest stamp so far, in which no row goes before those of the
    capture that its own one continues.
    """
    times = placed.select("group", "rank", "floor_ns", "is_in_turn").distinct()
    capture = Window.partitionBy("group", "rank")
    connection = Window.partitionBy("group", "rank", "chain")
    so_far = F.max("last_packet").over(_so_far(connection, "frame_no", "kind"))
    is_end = (F.col("kind") == replay.EVENT) & F.col("last_packet").isNotNull()
    turn = F.when(is_end, F.greatest("last_packet", so_far)).otherwise(so_far)
    rows = rows.withColumn("turn", F.coalesce("turn", turn, F.lit(0)))
    rows = rows.join(F.broadcast(times), on=["group", "rank"])
    merged = rows.where(~F.col("is_in_turn"))
    latest = F.max("last_ts_ns").over(_so_far(capture, "turn", "frame_no", "kind"))
    merged = merged.withColumn("time", F.greatest(latest, F.col("floor_ns")))
    plain = rows.where(F.col("is_in_turn")).withColumn("time", F.lit(0).cast("bigint"))
    both = plain.unionByName(merged).select("time", *input_schema().names)
    groups = both.sparkSession.sparkContext.defaultParallelism
    ordered = both.repartition(groups, "group").sortWithinPartitions(*_ORDER)
    return ordered.drop("time")


def _so_far(part: WindowSpec, *order: str) -> WindowSpec:
    return part.orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _replayed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: the groups of a partition, one after the other, through the replay."""
    current: int | None = None
    run: replay.Replay | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        numbers = table.column("group").to_pylist()
        start = 0
        while start < len(numbers):
            stop = start
            while stop < len(numbers) and numbers[stop] == numbers[start]:
                stop += 1
            if numbers[start] != current:
                if run is not None and current is not None:
                    yield from _told(run.finish(), current)
                current, run = numbers[start], replay.Replay(_WINDOW_NS)
            assert run is not None and current is not None
            part = table.slice(start, stop - start).select(replay.INPUT.names).cast(replay.INPUT)
            yield from _told(run.feed(part), current)
            start = stop
    if run is not None and current is not None:
        yield from _told(run.finish(), current)


def _told(tables: Iterable[pa.Table], group: int) -> Iterator[pa.RecordBatch]:
    for table in tables:
        numbers = pa.array([group] * table.num_rows, pa.int64())
        yield from table.add_column(0, "group", numbers).to_batches()


def output_schema() -> StructType:
    """The replay's output as Spark has it, with the group."""
    types = {
        field.name: field.dataType
        for table in replay.TABLES
        for field in spark_schema(table).fields
    }
    from pyspark.sql.pandas.types import from_arrow_type

    fields = [
        StructField(field.name, types.get(field.name) or from_arrow_type(field.type))
        for field in replay.output_schema()
    ]
    return StructType([StructField("group", types["frame_no"]), *fields])


def run(rows: DataFrame) -> DataFrame:
    """The replay over its input; rows of all its tables."""
    return rows.mapInArrow(_replayed, output_schema())


def _at(placed: DataFrame, rank: str, capture: str, connection: str) -> DataFrame:
    return F.broadcast(
        placed.select(
            "group",
            F.col("rank").alias(rank),
            F.col("chain").alias("connection_id"),
            F.col("capture").alias(capture),
            F.col("connection_id").alias(connection),
        )
    )


def _heads(placed: DataFrame) -> DataFrame:
    heads = placed.where(
        (F.col("capture") == F.col("head_capture"))
        & (F.col("connection_id") == F.col("head_connection_id"))
    )
    return F.broadcast(
        heads.select(
            "group",
            F.col("chain").alias("connection_id"),
            F.col("capture").alias("head_capture"),
            F.col("connection_id").alias("head_connection_id"),
            "head_client_ip",
            "head_broker_ip",
        )
    )


def placed_rows(out: DataFrame, placed: DataFrame, table: str, *others: str) -> DataFrame:
    """Rows of one table with their places: head, own, and those of other frames that they name.

    others: `response`, `ack`, `previous`: columns <name>_capture and <name>_connection_id are set
    where that frame lies in another capture.
    """
    rows = out.where(F.col("table") == table)
    if table == "exchanges":
        rows = rows.withColumn("rank", F.coalesce("request_rank", "response_rank"))
    rows = rows.join(_heads(placed), on=["group", "connection_id"])
    own = _at(placed, "rank", "own_capture", "own_connection_id")
    rows = rows.join(own, on=["group", "rank", "connection_id"], how="left")
    for name in others:
        rank = f"{name}_rank"
        place = _at(placed, rank, f"{name}_capture", f"{name}_connection_id")
        rows = rows.join(place, on=["group", rank, "connection_id"], how="left")
        is_here = F.col(rank).isNull() | (F.col(rank) == F.col("rank"))
        for column in (f"{name}_capture", f"{name}_connection_id"):
            rows = rows.withColumn(column, F.when(~is_here, F.col(column)))
    names = [field.name for field in spark_schema(table).fields]
    if table == "exchanges":
        rows = rows.withColumns(
            {"client_ip": F.col("head_client_ip"), "broker_ip": F.col("head_broker_ip")}
        )
    rows = rows.withColumns(
        {
            "connection_id": F.col("head_connection_id"),
            "capture": F.col("head_capture"),
            "own_capture": F.coalesce("own_capture", "head_capture"),
            "own_connection_id": F.coalesce("own_connection_id", "head_connection_id"),
            "origin_capture": F.lit(None).cast("string"),
        }
    )
    more = [f"{name}_{column}" for name in others for column in ("capture", "connection_id")]
    return rows.select(*names, "capture", "own_capture", "own_connection_id", *more, "order_no")


def subjects(out: DataFrame, placed: DataFrame, table: str) -> tuple[DataFrame, DataFrame]:
    """Producers or consumers of joined connections; and the same with the names of those of each
    own capture.

    The joined ones stand under the head of their connection; what other captures of the chain call
    by numbers of their own stands there with the names that the joined one has.
    """
    names = [field.name for field in spark_schema(table).fields]
    number = "producer_id" if table == "producers" else "consumer_id"
    rows = out.where(F.col("table") == table)
    rows = rows.withColumn("origin_capture", F.lit(None).cast("string"))
    joined = rows.join(_heads(placed), on=["group", "connection_id"]).withColumns(
        {
            "chain": F.col("connection_id"),
            "connection_id": F.col("head_connection_id"),
            "capture": F.col("head_capture"),
        }
    )
    known = rows.drop("rank", "own_incarnation")
    numbers = out.where((F.col("table") == replay.INCARNATIONS) & F.col(number).isNotNull())
    keys = ["group", "connection_id", number, "incarnation"]
    numbers = numbers.select(*keys, "rank", "own_incarnation").distinct()
    own = numbers.join(known, on=keys)
    own = own.withColumn("chain", F.col("connection_id")).drop("connection_id")
    where = placed.select(
        "group", "rank", "chain", "capture", "connection_id", "head_capture", "head_connection_id"
    )
    own = own.join(F.broadcast(where), on=["group", "rank", "chain"])
    is_head = (F.col("capture") == F.col("head_capture")) & (
        F.col("connection_id") == F.col("head_connection_id")
    )
    own = own.where(~is_head).withColumn("incarnation", F.col("own_incarnation"))
    found = joined.select(*names, "capture")
    known_by_all = found.unionByName(own.select(*names, "capture"))
    if table == "consumers":
        at = _at(placed, "rank", "closed_capture", "closed_connection_id")
        at = at.withColumnRenamed("connection_id", "chain")
        joined = joined.join(at, on=["group", "rank", "chain"], how="left")
        joined = joined.withColumn("closed_no", F.col("order_no"))
        more = ("closed_capture", "closed_connection_id", "closed_no")
        found = joined.select(*names, "capture", *more)
    return found, known_by_all


def close(
    tables: dict[str, DataFrame], plan: Plan, connections: list[Row], work: Workspace
) -> dict[str, DataFrame]:
    """The rows of all groups, closed, in the place of those of the lake: exchanges, deliveries,
    permits, producers, consumers, and producer_names and consumer_names, see `subjects`.

    Args:
        tables: frames, acks, exchanges, deliveries and notices of the lake, with their capture.
        connections: rows with links.COLUMNS.
        work: where rows are written that are read several times.
    """
    spark = tables["frames"].sparkSession
    placed = spark.createDataFrame(places(plan, connections))
    events = spark.createDataFrame(_arrow(ends(plan, connections)))
    rows = (
        frame_rows(tables["frames"], placed)
        .unionByName(id_rows(tables["acks"], placed))
        .unionByName(cost_rows(tables["deliveries"], placed))
        .unionByName(gap_rows(tables["notices"], tables["frames"], placed))
        .unionByName(_all_columns(events))
    )
    costs = borders.costs(tables, plan)
    if costs:
        rows = rows.unionByName(border_rows(costs, placed))
    out = work.settled(run(in_order(rows, placed)), "replayed")
    producers, producer_names = subjects(out, placed, "producers")
    consumers, consumer_names = subjects(out, placed, "consumers")
    return {
        "exchanges": placed_rows(out, placed, "exchanges", "response"),
        "deliveries": placed_rows(out, placed, "deliveries", "previous", "ack"),
        "permits": placed_rows(out, placed, "permits"),
        "producers": producers,
        "consumers": consumers,
        "producer_names": producer_names,
        "consumer_names": consumer_names,
    }


def _arrow(rows: list[Row]) -> pa.Table:
    names = ("group", "rank", "chain", "frame_no", "kind", "event_code", "frames_missing",
             "last_ts_ns", "stream_offset", "frame_bytes", "last_packet")  # fmt: skip
    schema = pa.schema([*((name, pa.int64()) for name in names), ("direction", pa.string())])
    return pa.Table.from_pylist(rows, schema=schema)


__all__ = ["Group", "Place", "close", "ends", "places"]
