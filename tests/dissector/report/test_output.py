"""A report on disk: complete or not at all, in the place of the one before."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dissector.errors import OutputError
from dissector.report import output
from dissector.report.output import lists, report_text, write_report
from tests.dissector.report import made
from tests.numbers import Numbers


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    summary = Numbers()
    tables = made.RandomCapture(6, 60, 60).tables
    for name in sorted(tables, key=lambda name: name != "frames"):
        summary.add(name, made.batch(name, tables[name]), "c-one")
    return summary.result()


def test_json_tables_and_page_are_written(report: dict[str, Any], tmp_path: Path) -> None:
    write_report(tmp_path / "out", report)
    text = (tmp_path / "out" / "report.json").read_text("utf-8")
    assert json.loads(text) == json.loads(json.dumps(report))
    assert (tmp_path / "out" / "report.html").stat().st_size < 2 << 20
    for name, rows in lists(report).items():
        table = pq.read_table(tmp_path / "out" / "tables" / name / "part-00000.parquet")
        assert table.num_rows == len(rows), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_totals_are_tables_of_one_row(report: dict[str, Any]) -> None:
    by_name = lists(report)
    assert by_name["send_latency_total"] == [report["send_latency"]["total"]]
    assert "redelivery_by_subscription" in by_name and "sources" not in by_name


def test_numbers_by_name_are_pairs_in_all_rows_of_a_column_or_in_none(tmp_path: Path) -> None:
    """Where one row counts something by name, others that have a fraction or nothing do, too."""
    rows = [{"n": {"a": 1}, "m": {"a": 0.5}}, {"n": {"a": None}, "m": {"a": 1.5}}, {"n": None}]
    write_report(tmp_path / "out", {"schema_version": 1, "x": {"y": rows}}, has_page=False)
    table = pq.read_table(tmp_path / "out" / "tables" / "x_y" / "part-00000.parquet")
    assert table.to_pydict() == {
        "n": [[{"name": "a", "count": 1}], [{"name": "a", "count": None}], None],
        "m": [{"a": 0.5}, {"a": 1.5}, None],
    }


def test_a_new_report_takes_the_place_of_the_old_one(
    report: dict[str, Any], tmp_path: Path
) -> None:
    write_report(tmp_path / "out", report)
    write_report(tmp_path / "out", {"schema_version": 1, "sources": []}, has_page=False)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json"]


def test_other_files_are_not_touched(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds other files"):
        write_report(tmp_path / "out", report)
    with pytest.raises(OutputError, match="is a file"):
        write_report(tmp_path / "out" / "thesis.txt", report)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_a_write_that_fails_leaves_the_old_report(
    report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(tmp_path / "out", {"schema_version": 1, "sources": []}, has_page=False)
    before = (tmp_path / "out" / "report.json").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output, "_write_table", full)
    with pytest.raises(OutputError, match="No space left"):
        write_report(tmp_path / "out", report)
    assert (tmp_path / "out" / "report.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_numbers_that_json_does_not_have_are_a_bug() -> None:
    with pytest.raises(ValueError, match="JSON"):
        report_text({"a": float("nan")})


def test_other_files_stay_where_a_report_is_forced_among_them(
    report: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_report(out, report)
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds other files"):
        write_report(out, {"schema_version": 1, "sources": []}, has_page=False)
    assert (out / "report.html").exists()
    write_report(out, {"schema_version": 1, "sources": []}, has_page=False, is_forced=True)
    assert sorted(path.name for path in out.iterdir()) == ["report.json", "thesis.txt"]
    assert (out / "thesis.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("text", ['{"name": "of another tool"}', "[1]", "no JSON", ""])
def test_a_report_of_another_program_stays(
    report: dict[str, Any], tmp_path: Path, text: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text(text)
    with pytest.raises(OutputError, match="none of this program's"):
        write_report(tmp_path / "out", report)
    assert (tmp_path / "out" / "report.json").read_text() == text
    write_report(tmp_path / "out", report, has_page=False, is_forced=True)
    assert json.loads((tmp_path / "out" / "report.json").read_text()) != text


def test_a_link_to_a_report_stays_a_link(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "night").mkdir()
    (tmp_path / "latest").symlink_to("night")
    for _ in range(2):
        write_report(tmp_path / "latest", {"schema_version": 1, "sources": []}, has_page=False)
    assert (tmp_path / "latest").is_symlink() and (tmp_path / "night" / "report.json").is_file()
