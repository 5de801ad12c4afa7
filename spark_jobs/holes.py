"""Where the holes of streams lie among the frames of both directions of their connection.

A row of `notices` says where bytes of a direction are missing, and by which packet that was given
up. What the other direction said in between decides whom the hole touches; a dissection merges both
by turns, which are packets (see stream/reassembly). A hole is revealed by the first packet behind
it, or by the packet of the acknowledgement that proves it; all that was captured before has left
when it is given up, unless an earlier hole of the connection, given up no sooner, held it back:
then this one comes right behind what precedes it in its own direction.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from dissector.protocols.columns import EVENT_GAP, EVENT_SKIPPED

_PLACE: Final = ["capture", "connection_id"]
_GAPS: Final = {"gap_lost": EVENT_GAP, "resync": EVENT_SKIPPED, "midstream_start": EVENT_SKIPPED}
_NEIGHBOUR: Final = (
    "struct<frame_no:bigint,start:bigint,stop:bigint,first_packet:bigint,last_packet:bigint>"
)


def in_place(notices: DataFrame, frames: DataFrame, placed: DataFrame) -> DataFrame:
    """Holes, and bytes without frames: group, rank, chain, direction, event_code, stream_offset,
    bytes, frames_missing; frame_no and turn order them, turn null where frame_no does alone.

    Where a hole begins within a frame, and for bytes that are there, it comes before the frame that
    follows. What is skipped where a connection comes from the capture before is the rest of a
    frame, not a place where others may be hidden; what is missing at the end of a capture is in
    the next, if the direction goes on there.
    """
    rows = _with_neighbours(_found(notices, placed), frames)
    at = F.col("gap.stream_offset")
    is_hole = F.col("gap.event_code") == EVENT_GAP
    begins_with = F.coalesce(F.col("frame.start") >= at, F.lit(True))
    is_last = F.col("frame").isNull()
    is_kept = ~is_last | (is_hole & ~F.coalesce("gap.goes_on", F.lit(False)))
    rows = rows.where(is_kept).withColumn(
        "revealed", F.when(is_hole & begins_with, F.least("frame.first_packet", "gap.packet"))
    )
    sooner = Window.partitionBy(*_PLACE).orderBy("revealed")
    earlier = sooner.rangeBetween(Window.unboundedPreceding, -1)
    given_up = F.max(F.when(F.col("revealed").isNotNull(), F.col("gap.packet"))).over(earlier)
    is_held = (given_up >= F.col("gap.packet")) & F.col("last").isNotNull()
    inside = (F.col("frame.start") < at) & (
        F.col("frame.stop") >= at + F.coalesce("gap.bytes", F.lit(0))
    )
    revealed = F.col("revealed")
    rows = rows.withColumn("is_held", F.coalesce(is_held, F.lit(False)))
    return rows.select(
        "direction",
        *(f"gap.{name}" for name in ("group", "rank", "chain", "is_cursus")),
        *(f"gap.{name}" for name in ("stream_offset", "bytes")),
        F.col("gap.event_code").cast("bigint").alias("event_code"),
        F.when(inside, 0).otherwise(1).cast("bigint").alias("frames_missing"),
        F.when(F.col("is_held"), F.col("last.last_packet")).otherwise(revealed).alias("turn"),
        F.when(F.col("is_held"), F.col("last.frame_no"))
        .when(revealed.isNotNull(), 0)
        .otherwise(F.col("frame.frame_no") - 1)
        .alias("frame_no"),
    )


def _found(notices: DataFrame, placed: DataFrame) -> DataFrame:
    """The notices about them, of connections that are joined."""
    found = notices.where(F.col("code").isin(*_GAPS) & F.col("stream_offset").isNotNull())
    found = found.join(F.broadcast(placed), on=_PLACE).withColumn(
        "event_code", F.when(F.col("code") == "gap_lost", EVENT_GAP).otherwise(EVENT_SKIPPED)
    )
    is_answer = F.col("direction") == "to_client"
    comes, goes = (
        F.when(is_answer, F.col(f"{name}_to_client")).otherwise(F.col(f"{name}_to_broker"))
        for name in ("comes_from", "goes_on")
    )
    found = found.withColumn("goes_on", goes)
    return found.where(~(comes & (F.col("code") == "midstream_start")))


def _with_neighbours(found: DataFrame, frames: DataFrame) -> DataFrame:
    """One row per notice: `gap`, and the frames of its direction around it, `last` and `frame`."""
    ways = [*_PLACE, "direction"]
    gap = F.struct(
        "group", "rank", "chain", "is_cursus", "event_code", "stream_offset", "bytes", "packet",
        "goes_on",
    )  # fmt: skip
    marks = found.select(
        *ways,
        F.col("stream_offset").alias("at"),
        F.lit(1).alias("is_gap"),
        gap.alias("gap"),
        F.lit(None).cast(_NEIGHBOUR).alias("frame"),
    )
    stop = F.col("stream_offset") + F.col("frame_bytes")
    near = frames.join(F.broadcast(found.select(*ways).distinct()), on=ways, how="left_semi")
    frame = F.struct(
        "frame_no", F.col("stream_offset").alias("start"), stop.alias("stop"),
        "first_packet", "last_packet",
    )  # fmt: skip
    others = near.select(
        *ways, stop.alias("at"), F.lit(0).alias("is_gap"),
        F.lit(None).cast(marks.schema["gap"].dataType).alias("gap"), frame.alias("frame"),
    )  # fmt: skip
    order = Window.partitionBy(*ways).orderBy("at", "is_gap")
    after = order.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    before = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = marks.unionByName(others).withColumns(
        {
            "frame": F.first("frame", ignorenulls=True).over(after),
            "last": F.last("frame", ignorenulls=True).over(before),
        }
    )
    return rows.where(F.col("is_gap") == 1)
