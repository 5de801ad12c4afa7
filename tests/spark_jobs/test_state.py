"""What a report keeps: taken up where it fits, left with a reason where it does not."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from spark_jobs import state
from spark_jobs.planning import Unit

SCHEMA = pa.schema([("capture", pa.string()), ("value", pa.int64())])
SETTINGS = state.settings({"since_ns": None, "topics": []}, {"sums": SCHEMA})


def rows(*captures: str) -> pa.Table:
    return pa.table({"capture": list(captures), "value": range(len(captures))}, schema=SCHEMA)


def kept(report: Path) -> Path:
    """A report that kept two tables."""
    folder = report / "state"
    state.write(rows("a", "b"), folder / "sums")
    state.write(rows("a"), folder / "closed_permits")
    state.save(folder, SETTINGS, {"a": "1", "b": "2"}, [Unit(("a", "b"), "u")])
    (report / "tables").mkdir()
    (folder / "closed_permits").rename(report / "tables" / "closed_permits")
    (report / "report.json").write_text("{}")
    return report


def test_what_fits_is_taken_up_and_outlives_the_report(tmp_path: Path) -> None:
    report = kept(tmp_path / "report")
    found = state.recall(report, SETTINGS, tmp_path / "old")
    assert (found.captures, found.units) == ({"a": "1", "b": "2"}, {"u": ("a", "b")})
    (report / "state" / "sums" / "part-00000.parquet").unlink()
    assert found.rows("sums", SCHEMA, frozenset("b")).to_pylist() == [{"capture": "b", "value": 1}]
    assert found.rows("none", SCHEMA, frozenset("b")).num_rows == 0
    assert (tmp_path / "old" / "closed_permits" / "part-00000.parquet").is_file()


def test_where_nothing_was_kept_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert state.recall(tmp_path, SETTINGS, tmp_path / "old") == state.NOTHING


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("selection", "another --since"), ("program", "another version"),
        ("tables", "another version"),
        ("state/state.json", "cannot be read"), ("state/sums/part-00000.parquet", "is damaged"),
        ("report.json", "report.json"), ("gone", "is missing"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_left_with_a_reason(tmp_path: Path, harm: str, reason: str) -> None:
    report = kept(tmp_path / "report")
    wanted = dict(SETTINGS)
    if harm in wanted:
        wanted[harm] = "other"
    elif harm == "gone":
        (report / "tables" / "closed_permits" / "part-00000.parquet").unlink()
    else:
        (report / harm).write_text("odd")
    found = state.recall(report, wanted, tmp_path / "old")
    assert reason in found.reason and found.folder is None and not found.units


def test_files_that_are_still_right_are_linked_and_others_written_again(tmp_path: Path) -> None:
    for number, names in enumerate(("aa", "ab", "bb")):
        (tmp_path / "old").mkdir(exist_ok=True)
        pq.write_table(rows(*names), tmp_path / "old" / f"part-{number}.parquet")
    (tmp_path / "new").mkdir()
    pq.write_table(rows("c"), tmp_path / "new" / "part-from-spark.parquet")
    pq.write_table(rows(), tmp_path / "new" / "part-without-rows.parquet")
    state.extend(tmp_path / "all", tmp_path / "old", frozenset("a"), tmp_path / "new")
    paths = sorted((tmp_path / "all").iterdir())
    assert [pq.read_table(path).column("capture").to_pylist() for path in paths] == [
        ["a", "a"], ["a"], ["c"],
    ]  # fmt: skip
    assert os.path.samefile(paths[0], tmp_path / "old" / "part-0.parquet")
    state.extend(tmp_path / "empty", None, frozenset(), None)
    assert list((tmp_path / "empty").iterdir()) == []


def test_many_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_FILES", 2)
    (tmp_path / "new").mkdir()
    for number, name in enumerate("abc"):
        pq.write_table(rows(name), tmp_path / "new" / f"{number}.parquet")
    state.extend(tmp_path / "all", None, frozenset(), tmp_path / "new")
    (path,) = (tmp_path / "all").iterdir()
    assert path.suffix == ".parquet"
    assert state.read(tmp_path / "all", SCHEMA).column("capture").to_pylist() == ["a", "b", "c"]


def test_what_is_saved_names_its_files(tmp_path: Path) -> None:
    said = json.loads((kept(tmp_path) / "state" / "state.json").read_text("utf-8"))
    assert sorted(said["files"]) == ["closed_permits/part-00000.parquet", "sums/part-00000.parquet"]
    assert said["settings"]["state_version"] == state.STATE_VERSION
