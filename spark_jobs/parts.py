"""From the frames of sections to the parts that the report's arithmetic takes.

Parts of several runs are put together here: rows of captures that were read now, and rows that an
earlier run found. All of them name their capture; what is no sum over captures is made from rows
of all (`merged`).
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dissector.report.exchange_rows import MAX_ERRORS
from dissector.report.frame_rows import MAX_MISMATCHES
from dissector.report.names import CONSUMERS, LEGS, PRODUCERS, Names
from dissector.report.parts import FILES, ROWS, Parts, no_parts
from dissector.report.round_trips import MAX_STEPS
from dissector.report.summary import span_step_ns
from dissector.report.tallies import TALLIES
from spark_jobs import planning
from spark_jobs.joined import CHANGES, CUT, SKIPPED
from spark_jobs.links import Plan
from spark_jobs.tables import CONNECTION

Found = dict[str, pa.Table]
_NAMES: Final = {"legs": LEGS, "producers": PRODUCERS, "consumers": CONSUMERS}
# What joining changed; the report's arithmetic does not take it.
CLOSING: Final = {"changes": CHANGES, "cut": CUT, "skipped": SKIPPED}
# What is made anew from rows of all captures.
_OF_ALL: Final = ("messages", "entries", "exact", "files")
# Every part that is kept, with its columns.
KEPT: Final[Mapping[str, pa.Schema]] = {
    **{name: tally.schema() for name, tally in TALLIES.items()},
    **{name: schema for name, schema in ROWS.items() if name not in _OF_ALL},
    **{f"names.{name}": schema for name, schema in _NAMES.items()},
    **CLOSING,
}
# Rows that are listed up to a number, in this order.
_FIRST: Final = {
    "errors": (("at_ns", "capture", "response_frame_no"), MAX_ERRORS),
    "setup": (("request_first_ns", "capture", "request_frame_no"), MAX_STEPS),
    "mismatches": (("at_ns", "capture", "frame_no"), MAX_MISMATCHES),
}
# Columns of listed rows that name a frame, and where its last packet goes.
_PACKETS: Final = {
    "slow": (("request_frame_no", "request_packet"), ("response_frame_no", "response_packet")),
    "passed_over": (("request_frame_no", "request_packet"),),
    "passed_deliveries": (("frame_no", "packet"),),
    "errors": (("response_frame_no", "packet"),),
    "redelivered": (("frame_no", "packet"),),
}


def packets_of(frames: DataFrame, wanted: DataFrame) -> DataFrame:
    """The last packet of some frames. wanted: capture, connection_id, frame_no."""
    keys = [*CONNECTION, "frame_no"]
    found = frames.select(*keys, "last_packet")
    return found.join(F.broadcast(wanted.distinct()), on=keys, how="left_semi")


def with_packets(frames: DataFrame, found: Found) -> Found:
    """Fill in the packets of rows that are listed one by one, with one pass over frames."""
    wanted: set[tuple[Any, ...]] = set()
    for name, columns in _PACKETS.items():
        if name in found:
            for frame, _ in columns:
                wanted |= set(_frame_keys(found[name], frame))
    wanted = {key for key in wanted if key[2] is not None}
    if not wanted:
        return found
    keys = pa.table(
        {
            "capture": pa.array([key[0] for key in wanted], pa.string()),
            "connection_id": pa.array([key[1] for key in wanted], pa.int64()),
            "frame_no": pa.array([key[2] for key in wanted], pa.int64()),
        }
    )
    rows = packets_of(frames, frames.sparkSession.createDataFrame(keys)).toArrow()
    packets = {tuple(row.values())[:3]: row["last_packet"] for row in rows.to_pylist()}
    filled = dict(found)
    for name, columns in _PACKETS.items():
        for frame, packet in columns if name in found else ():
            table = filled[name]
            column = pa.array([packets.get(key) for key in _frame_keys(table, frame)], pa.int64())
            at = table.schema.get_field_index(packet)
            filled[name] = table.set_column(at, packet, column)
    return filled


def _frame_keys(table: pa.Table, frame: str) -> list[tuple[Any, ...]]:
    rows = table.select([*CONNECTION, frame]).to_pylist()
    return [tuple(row.values()) for row in rows]


def assembled(found: Found, files: pa.Table, plan: Plan) -> Parts:
    """The parts of all captures.

    Args:
        found: every part by its name, with those of `KEPT` that sections gave.
        files: capture_files of all captures (FILES).
        plan: which of them belong together.
    """
    tables = no_parts().tables | {name: rows for name, rows in found.items() if name in ROWS}
    tables |= {name: rows for name, rows in found.items() if name in TALLIES}
    later = found.get("later")
    if later is not None:
        tables["logical"] = pa.concat_tables([tables["logical"], later])
    for name, (order, limit) in _FIRST.items():
        ordered = tables[name].sort_by([(column, "ascending") for column in order])
        tables[name] = ordered.slice(0, limit)
    steps, step_ns = planning.steps(files, plan), span_step_ns(files)
    tables["send_points"] = _by_step(tables["send_points"], steps, step_ns)
    tables["files"] = files.cast(FILES)
    names = Names(*(found[f"names.{name}"] for name in _NAMES))
    return Parts(tables, names, step_ns, {}, steps, plan.head_of(), plan.wholes)


def _by_step(points: pa.Table, steps: Mapping[str | None, int], step_ns: int) -> pa.Table:
    """Points of captures, each with the step of its own, as points of one step for all."""
    if points.num_rows == 0:
        return points
    coded = pc.dictionary_encode(points.column("capture").combine_chunks())
    own = np.asarray([steps[name] for name in coded.dictionary.to_pylist()], np.int64)
    factors = step_ns // own[coded.indices.to_numpy()]
    found = points.column("point").to_numpy() // factors
    at = points.schema.get_field_index("point")
    return points.set_column(at, "point", pa.array(found))
