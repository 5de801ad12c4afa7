"""Close over captures what one capture alone cannot know.

Spark finds what is to be read together (`links`), brings the rows of each group into one order and
hands them to `replay`, one group per task at a time. What comes back are the rows of `exchanges`,
`deliveries` and `permits` that one capture over all of them would have had. In them capture,
connection_id and incarnation are those of the joined connection (the place of its first part);
own_capture and own_connection_id say where the frame lies, and response_capture, ack_capture and
previous_capture where the other one lies, if that is elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType
from pyspark.sql.window import Window, WindowSpec

from dissector.limits import REORDER_WINDOW_MS
from spark_jobs import borders, holes, replay
from spark_jobs.endings import cursus_chains, ends, is_whole, place_of
from spark_jobs.links import WAYS, Group, Place, Plan, Row
from spark_jobs.replay_cursus import AllReplays
from spark_jobs.schemas import spark_schema
from spark_jobs.workspace import Workspace

_WINDOW_NS: Final = REORDER_WINDOW_MS * 1_000_000
_PLACE: Final = ["capture", "connection_id"]
_ORDER: Final = ["group", "time", "rank", "turn", "frame_no", "kind"]
_KEYS: Final = ("group", "turn", "last_packet")
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
        ("is_cursus", pa.bool_()),
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
    by_place = {place_of(row): row for row in connections}
    ranks = plan.group_of()
    groups = {group.number: group for group in plan.groups}
    onward = {(seam.before, seam.direction) for seam in plan.seams if is_whole(seam.missing)}
    backward = {(seam.after, seam.direction) for seam in plan.seams if is_whole(seam.missing)}
    cursus = cursus_chains(plan, by_place)
    rows = []
    for place, chain in plan.chains.items():
        number, rank = ranks[place[0]]
        group = groups[number]
        head = plan.heads[number, chain]
        rows.append(
            {
                "group": number, "rank": rank, "floor_ns": group.floors[rank],
                "is_in_turn": group.is_in_turn, "chain": chain, "capture": place[0],
                "connection_id": place[1], "is_cursus": (number, chain) in cursus,
                "head_capture": head[0], "head_connection_id": head[1],
                "head_client_ip": by_place[head]["client_ip"],
                "head_broker_ip": by_place[head]["broker_ip"],
                **{f"goes_on_{way}": (place, way) in onward for way in WAYS},
                **{f"comes_from_{way}": (place, way) in backward for way in WAYS},
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=PLACES)


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
    whose it is: its rest is lost, and nothing else is. Of Cursus, where order alone tells what
    answers what, it keeps its place."""
    known = frames.where(F.col("protocol").isin("pulsar", "cursus"))
    rows = known.join(F.broadcast(placed), on=_PLACE)
    rows = rows.where((F.col("protocol") == "cursus") == F.col("is_cursus"))
    goes_on = F.when(F.col("direction") == "to_client", F.col("goes_on_to_client"))
    goes_on = goes_on.otherwise(F.col("goes_on_to_broker"))
    is_named = F.col("command").isin(*_TAKES_PART) & (
        F.coalesce("producer_id", "consumer_id").isNotNull()
    )
    is_kept = F.coalesce(is_named, F.lit(False)) | F.col("is_cursus")
    is_cut = goes_on & (F.col("status") == "cut_by_end") & ~is_kept
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


def batch_rows(tables: Mapping[str, DataFrame], placed: DataFrame) -> DataFrame:
    """What is told of batches of Cursus: offsets and the first record of those for clients, and how
    those for brokers were answered (permits: whether an answer was wanted)."""
    mine = F.broadcast(placed.where(F.col("is_cursus")))
    first = tables["messages"].where(F.col("batch_index") == 0)
    record = first.select(*_PLACE, "frame_no", "producer_name", "sequence_id")
    got = tables["deliveries"].drop("producer_name", "sequence_id").join(mine, on=_PLACE)
    got = got.join(record, on=[*_PLACE, "frame_no"], how="left")
    sent = tables["exchanges"].where(F.col("request_command") == "BATCH").join(mine, on=_PLACE)
    outcome = F.col("outcome")
    sent = sent.select(
        *_PLACE, "group", "rank", "chain", "is_cursus",
        F.col("request_frame_no").alias("frame_no"),
        F.when(outcome == "not_awaited", 0).otherwise(1).cast("bigint").alias("permits"),
        (outcome == "dup_or_dropped").cast("bigint").alias("redelivery_count"),
    )  # fmt: skip
    kind = F.lit(replay.COST).cast("bigint")
    return _all_columns(got, kind=kind).unionByName(_all_columns(sent, kind=kind))


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
    return _all_columns(rows, kind=F.lit(replay.EVENT).cast("bigint"), frame_bytes=F.col("bytes"))


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
    run: AllReplays | None = None
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
                current, run = numbers[start], AllReplays(_WINDOW_NS)
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
        rows = _with_other(rows, placed, name)
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
    more = [name for name in more if name not in names]
    return rows.select(*names, "own_capture", "own_connection_id", *more, "order_no")


def _with_other(rows: DataFrame, placed: DataFrame, name: str) -> DataFrame:
    """Set where another frame lies that rows name. A previous delivery may be on another
    connection; the replay gives its chain, and it is set wherever it is."""
    rank, capture, connection = (f"{name}_{what}" for what in ("rank", "capture", "connection_id"))
    is_free = connection in rows.columns
    chain = F.col(connection) if is_free else F.col("connection_id")
    place = _at(placed, rank, capture, connection).withColumnRenamed("connection_id", "chain")
    rows = rows.withColumn("chain", chain).drop(*([connection] if is_free else []))
    rows = rows.join(place, on=["group", rank, "chain"], how="left").drop("chain")
    is_here = F.col(rank).isNull() | (F.col(rank) == F.col("rank"))
    for column in (capture,) if is_free else (capture, connection):
        rows = rows.withColumn(column, F.when(~is_here, F.col(column)))
    return rows


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
    found = joined.select(*names)
    known_by_all = found.unionByName(own.select(*names))
    if table == "consumers":
        at = _at(placed, "rank", "closed_capture", "closed_connection_id")
        at = at.withColumnRenamed("connection_id", "chain")
        joined = joined.join(at, on=["group", "rank", "chain"], how="left")
        joined = joined.withColumn("closed_no", F.col("order_no"))
        more = ("closed_capture", "closed_connection_id", "closed_no")
        found = joined.select(*names, *more)
    return found, known_by_all


def close(
    tables: dict[str, DataFrame], plan: Plan, connections: list[Row], work: Workspace
) -> dict[str, DataFrame]:
    """The rows of all groups, closed, in the place of those of the lake: exchanges, deliveries,
    permits, producers, consumers, and producer_names and consumer_names, see `subjects`.

    Args:
        tables: frames, acks, exchanges, deliveries, messages and notices of the lake, with their
            capture.
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
    if any(row["protocol"] == "cursus" for row in connections):
        rows = rows.unionByName(batch_rows(tables, placed))
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
    more = (("direction", pa.string()), ("is_cursus", pa.bool_()))
    schema = pa.schema([*((name, pa.int64()) for name in names), *more])
    return pa.Table.from_pylist(rows, schema=schema)


__all__ = ["Group", "Place", "close", "places"]
