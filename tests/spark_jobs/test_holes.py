"""Holes among the frames of both directions, on hand-made rows."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from spark_jobs import holes, links

FRAMES = (
    "capture string, connection_id bigint, direction string, frame_no bigint, "
    "stream_offset bigint, frame_bytes bigint, first_packet bigint, last_packet bigint"
)
NOTICES = (
    "capture string, connection_id bigint, direction string, code string, "
    "stream_offset bigint, bytes bigint, packet bigint"
)


def placed_of(spark: Any) -> Any:
    flags = [f"{name}_{way}" for name in ("goes_on", "comes_from") for way in links.WAYS]
    return spark.createDataFrame(
        [("a", 0, 0, 0, 5, False, *[False] * 4)],
        "capture string, connection_id bigint, group bigint, rank bigint, chain bigint, "
        "is_cursus boolean, " + ", ".join(f"{name} boolean" for name in flags),
    )


def places(spark: Any, frames: list[Any], notices: list[Any]) -> list[tuple[Any, ...]]:
    """Per hole: offset, turn, frame number, and whether frames may be missing."""
    found = holes.in_place(
        spark.createDataFrame([("a", 0, *row) for row in notices], NOTICES),
        spark.createDataFrame([("a", 0, *row) for row in frames], FRAMES),
        placed_of(spark),
    )
    names = ("stream_offset", "turn", "frame_no", "frames_missing")
    return [tuple(row[name] for name in names) for row in found.orderBy("stream_offset").collect()]


def test_a_hole_comes_with_the_packet_that_reveals_it(spark: Any) -> None:
    frames = [
        ("to_client", 1, 0, 100, 3, 3), ("to_client", 4, 150, 50, 8, 8),
        ("to_client", 9, 200, 300, 12, 15), ("to_broker", 2, 0, 900, 5, 5),
    ]  # fmt: skip
    notices = [
        ("to_client", "gap_lost", 100, 50, 10),  # by the packet behind it
        ("to_client", "gap_lost", 220, 10, 14),  # within a frame
        ("to_client", "gap_lost", 500, 30, 18),  # by an acknowledgement
        ("to_client", "other", 0, 10, 1), ("to_broker", "resync", 0, 7, 5),
    ]  # fmt: skip
    assert places(spark, frames, notices) == [
        (0, None, 1, 1), (100, 8, 0, 1), (220, None, 8, 0), (500, 18, 0, 1),
    ]  # fmt: skip


def test_a_hole_behind_another_one_leaves_with_it(spark: Any) -> None:
    frames = [
        ("to_client", 1, 0, 100, 3, 3), ("to_client", 4, 150, 50, 8, 8),
        ("to_client", 7, 220, 50, 11, 11),
    ]  # fmt: skip
    alone = [("to_client", "gap_lost", 100, 50, 20), ("to_client", "gap_lost", 200, 20, 25)]
    assert places(spark, frames, alone)[1] == (200, 11, 0, 1)
    together = [("to_client", "gap_lost", 100, 50, 20), ("to_client", "gap_lost", 200, 20, 20)]
    assert places(spark, frames, together)[1] == (200, 8, 4, 1)
