"""Runs from report.json: what it holds is shown, and what has points in time is tested."""

import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from dissector.cli.main import run as command
from dissector.compare.comparing import compared
from dissector.compare.report_run import report_file, run_of_report
from dissector.compare.runs import Run
from dissector.compare.testing import Ranked
from dissector.errors import InputError
from tests.dissector.compare.conftest import LOSSY, QUIET

TOPIC = "persistent://public/default/lat"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for name, path in (("quiet", QUIET), ("lossy", LOSSY)):
        folders[name] = tmp_path_factory.mktemp(name)
        (folders[name] / "report").mkdir()
        # What summary prints for one capture is what report writes.
        with (folders[name] / "report" / "report.json").open("w") as file, redirect_stdout(file):
            assert command(["summary", str(path), "--json", "-q"]) == 0
    return folders


def run_in(folder: Path, **more: Any) -> Run:
    file = report_file(folder / "report")
    assert file is not None
    return run_of_report(file, "x", **more)


def test_values_are_those_of_the_capture(folders: dict[str, Path], quiet: Run) -> None:
    run = run_in(folders["quiet"])
    for topic in (None, TOPIC):
        p50 = Ranked(quiet.values["send_latency", topic]).at(0.5)
        assert run.numbers["send_latency.p50", topic] == pytest.approx(p50, rel=0.017)
        assert run.numbers["sends_refused", topic] == 0
    assert run.topics == {TOPIC: 580} and run.digests == quiet.digests and run.is_report
    assert run.series["messages_sent", None].part.sum() == 917
    mean = run.series["send_latency.mean", None].ratio
    assert mean == pytest.approx(quiet.values["send_latency", None].mean().ratio, rel=0.001)


def test_messages_per_second_are_those_of_the_capture(
    folders: dict[str, Path], quiet: Run, lossy: Run
) -> None:
    """Cells of a report are wider; the time from the first message to the last is the same."""
    for name, run in (("quiet", quiet), ("lossy", lossy)):
        series = run_in(folders[name]).series
        for topic in (None, *(known for metric, known in series if metric == "messages_sent")):
            theirs, mine = series["messages_sent", topic], run.series["messages_sent", topic]
            assert theirs.whole.sum() == pytest.approx(mine.whole.sum(), abs=1e-5)
            assert theirs.ratio == pytest.approx(mine.ratio, rel=1e-5)


def test_means_and_messages_per_second_are_tested_and_percentiles_shown(
    folders: dict[str, Path], lossy: Run
) -> None:
    before = run_in(folders["quiet"])
    for after in (run_in(folders["lossy"]), lossy):
        rows = {r["metric"]: r for r in compared(before, after)["metrics"] if r["topic"] is None}
        assert rows["send_latency.mean"]["verdict"] == "worse"
        assert rows["messages_sent"]["verdict"] == "no evidence"
        p50 = rows["send_latency.p50"]
        assert p50["verdict"] == "not comparable" and p50["difference_percent"] > 300
        assert p50["reason"] == (
            "a report holds no values of single events: compare captures or lakes"
        )


def test_topics_can_be_selected(folders: dict[str, Path]) -> None:
    run = run_in(folders["quiet"], topics=[TOPIC])
    assert {topic for _, topic in (*run.numbers, *run.series)} == {TOPIC}


def test_a_report_is_found_by_its_file_or_folder(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["quiet"] / "report"
    assert report_file(folder) == report_file(folder / "report.json") == folder / "report.json"
    assert report_file(tmp_path) is None and report_file(QUIET) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"coverage": 1}', '{"coverage": {"total": {}}}', "[" * 100_000]
)
def test_what_is_no_report_is_said_in_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(InputError, match="is no report of this program"):
        run_of_report(file, "x")


def test_a_report_of_nothing_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    report = json.loads((folders["quiet"] / "report" / "report.json").read_text())
    report["coverage"]["total"]["frames"] = 0
    (tmp_path / "report.json").write_text(json.dumps(report))
    with pytest.raises(InputError, match="no frame of Pulsar or Cursus"):
        run_of_report(tmp_path / "report.json", "x")
