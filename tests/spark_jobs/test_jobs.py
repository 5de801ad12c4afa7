"""The jobs one by one, under the arguments that spark-submit hands on."""

import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.report.result import SECTIONS
from spark_jobs import coverage, job, latency, report
from tests.reports import differences
from tests.spark_jobs.conftest import Both

Main = Callable[[list[str]], int]
FOLDER = Path(job.__file__).parent
MAINS = [
    getattr(importlib.import_module(f"spark_jobs.{path.stem}"), "main", None)
    for path in sorted(FOLDER.glob("[a-z]*.py"))
]
# Those that write some sections.
JOBS: dict[Main, tuple[str, ...]] = {
    main: main.keywords["sections"]
    for main in MAINS
    if isinstance(main, partial) and "sections" in main.keywords
}


@pytest.mark.parametrize("main", JOBS, ids=lambda main: main.keywords["sections"][0])
def test_each_job_by_itself_writes_its_sections(
    both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str], main: Main
) -> None:
    assert main(["--lake", str(both.lake), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'report.json'}\n"
    found = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert sorted(found.keys() - {"closing"}) == sorted(["schema_version", "sources", *JOBS[main]])
    for section in JOBS[main]:
        # The text of a section speaks of others as well; it is made for whole reports.
        alone = {key: value for key, value in both.report[section].items() if key != "about"}
        assert differences(found[section], alone) == []
    assert not (tmp_path / "out" / "report.html").exists()


def test_the_report_is_all_of_them_with_a_page(both: Both, tmp_path: Path) -> None:
    assert report.main(["--lake", str(both.lake), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report.json").read_bytes()
    assert text == (both.spark / "report.json").read_bytes()
    assert (tmp_path / "out" / "report.html").exists()


def test_all_jobs_together_cover_every_section(both: Both) -> None:
    covered = [section for sections in JOBS.values() for section in sections]
    assert sorted(covered) == sorted(SECTIONS)
    others = ("schema_version", "sources", "verdicts", "closing")
    assert sorted(covered) == sorted(key for key in both.report if key not in others)


def test_a_job_ends_with_one_line_where_there_is_no_lake(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert latency.main(["--lake", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "is not a lake" in capsys.readouterr().err


def test_captures_that_cannot_be_read_are_named_and_the_others_read(
    both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = both.lake / MANIFEST_FOLDER / "c-other.json"
    options = ["--lake", str(both.lake), "-o", str(tmp_path / "out")]
    bad.write_text("{")
    try:
        assert coverage.main(options) == job.PARTIAL == 3
        assert "c-other.json" in capsys.readouterr().err
        found = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
        assert found["coverage"] == {
            key: value for key, value in both.report["coverage"].items() if key != "about"
        }
        assert coverage.main([*options, "--capture", "c-made-0"]) == 0, "it was not asked for"
    finally:
        bad.unlink()


def test_a_capture_that_is_not_there_is_named(
    both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--lake", str(both.lake), "-o", str(tmp_path / "out"), "--capture", "c-none"]
    assert latency.main(options) == 1 and "c-none" in capsys.readouterr().err
