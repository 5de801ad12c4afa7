"""Parts of several captures, read in one run or in several, become those of all."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.report.numbers import NS_PER_MS
from dissector.report.parts import ERRORS, FILES
from dissector.report.tallies import LOGICAL, SEND_POINTS
from spark_jobs import parts, planning

S = 1_000_000_000


def table(schema: pa.Schema, *rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema=schema)


def test_points_of_each_capture_are_put_on_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parts._FIRST, "errors", (("at_ns", "capture", "response_frame_no"), 2))
    files = table(
        FILES,
        {"capture": "a", "first_ts_ns": 0, "last_ts_ns": 100 * NS_PER_MS},
        {"capture": "b", "first_ts_ns": 100 * S, "last_ts_ns": 200 * S},
    )
    steps = planning.steps(files, planning.NOTHING)
    points = table(
        SEND_POINTS.schema(),
        {"capture": "a", "point": 99 * NS_PER_MS // steps["a"], "sends": 3},
        {"capture": "b", "point": 150 * S // steps["b"], "sends": 4},
    )
    found: parts.Found = {name: schema.empty_table() for name, schema in parts.KEPT.items()}
    found["send_points"] = points
    found["later"] = table(LOGICAL.schema(), {"capture": "b", "logicals": 1})
    found["errors"] = table(ERRORS, *({"capture": "a", "at_ns": at} for at in (30, 10, 20)))
    made = parts.assembled(found, files, planning.NOTHING)
    assert steps["a"] < steps["b"] <= made.step_ns
    rows = made.tables["send_points"].to_pylist()
    assert [(row["point"], row["sends"]) for row in rows] == [(0, 3), (150 * S // made.step_ns, 4)]
    assert made.tables["logical"].num_rows == 1
    assert made.tables["errors"].column("at_ns").to_pylist() == [10, 20]
