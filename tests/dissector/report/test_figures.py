"""Figures are drawn where their numbers are others, and found, byte by byte, where they are not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report import figures, kept_reports, pipeline
from dissector.report.figures import Figures
from dissector.report.merged_tables import empty_tables
from dissector.report.numbers import Row
from dissector.report.result import build
from tests.dissector.joining.cutting import land, read
from tests.reports import SOME_RULES

SCOPE = pipeline.Scope(rules=SOME_RULES)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was drawn, by the names of functions."""
    names: list[str] = []
    draw = figures._drawn

    def noted(drawn_by: str, numbers: object) -> object:
        names.append(drawn_by)
        return draw(drawn_by, numbers)

    monkeypatch.setattr(figures, "_drawn", noted)
    return names


def with_causes(**causes: int) -> Row:
    report = build(empty_tables())
    report["redelivery"]["total"]["by_cause"] = causes
    return report


def test_a_figure_is_drawn_again_only_where_its_numbers_are_others(drawn: list[str]) -> None:
    first = Figures()
    wanted = first.of(with_causes(unload=3))
    assert len(drawn) == len(wanted) == len({*drawn}) and wanted["causes"] and not wanted["time"]
    drawn.clear()
    again = Figures(lambda: first.used)
    assert again.of(with_causes(unload=3)) == wanted and not drawn and again.used == first.used
    other = Figures(lambda: first.used).of(with_causes(unload=4))
    assert drawn == ["redelivery_causes"]
    assert other["causes"] == Figures().of(with_causes(unload=4))["causes"] != wanted["causes"]


@pytest.mark.parametrize("odd", [b"", b"{", b"[]", b"[1, 2, 3]", b'[["", [[1]]], ["", []], ""]',
                                 b"3", b'"abc"', None])  # fmt: skip
def test_what_is_no_figure_is_drawn_again(drawn: list[str], odd: bytes) -> None:
    first = Figures()
    wanted = first.of(with_causes(unload=3))
    drawn.clear()
    found = Figures(lambda: dict.fromkeys(first.used, odd))
    assert found.of(with_causes(unload=3)) == wanted and len(drawn) == len(wanted)
    assert found.used == first.used


def pages(lake: Path, folder: Path) -> bytes:
    pipeline.write(lake, folder, DuckdbEngine, SCOPE)
    return (folder / "report.html").read_bytes()


def test_a_new_capture_has_only_its_figures_drawn(
    tmp_path: Path, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without sends: what sends took is shown as before."""
    lake, output = tmp_path / "lake", tmp_path / "report"
    land(read("cpp-s08_nack.pcap"), "first", lake, tmp_path)
    pages(lake, output)
    assert len(drawn) == 7
    land(read("cpp-s08_nack.pcap")[:24], "second", lake, tmp_path)
    drawn.clear()
    page = pages(lake, output)
    assert not drawn
    for batch in (lake / "_sums" / "reports").iterdir():
        (batch / "figures.parquet").write_bytes(b"")
        (batch / "report.parquet").write_bytes(b"")
    assert pages(lake, output) == page and len(drawn) == 7
    monkeypatch.setattr(kept_reports, "program", lambda: "another one")
    assert pages(lake, output) == page and len(drawn) == 14


def test_what_has_no_page_leaves_figures_to_the_next_that_has(
    tmp_path: Path, drawn: list[str]
) -> None:
    lake = tmp_path / "lake"
    land(read("cpp-s08_nack.pcap"), "first", lake, tmp_path)
    pages(lake, tmp_path / "report")
    land(read("cpp-s08_nack.pcap")[:24], "second", lake, tmp_path)
    pipeline.write(lake, tmp_path / "numbers", DuckdbEngine, SCOPE, has_page=False)
    drawn.clear()
    pages(lake, tmp_path / "report")
    assert not drawn


def test_nothing_that_draws_is_loaded_for_figures_that_are_found(tmp_path: Path) -> None:
    report = with_causes(unload=3)
    first = Figures()
    first.of(report)
    (tmp_path / "report.json").write_text(json.dumps(report))
    kept = {name: content.decode() for name, content in first.used.items()}
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    script = (
        "import json, sys; from dissector.report.figures import Figures;"
        "import dissector.report.page;"
        "report, kept = (json.load(open(each)) for each in sys.argv[1:]);"
        "found = Figures(lambda: {name: each.encode() for name, each in kept.items()});"
        "found.of(report); print('matplotlib' in sys.modules, len(found.used))"
    )
    command = [sys.executable, "-c", script, tmp_path / "report.json", tmp_path / "kept.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", str(len(kept))]
