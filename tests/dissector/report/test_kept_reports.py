"""A report that is asked for again is found, byte by byte; whatever decides it makes it anew."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.cli.conditions import paths_of, value_at
from dissector.lake import reader
from dissector.lake.cache import SUMS
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.selection import Asked
from dissector.report import kept_reports, output, pipeline
from dissector.report.kept_reports import KeptReport, KeptReports
from dissector.report.output import report_text
from tests.dissector.joining.cutting import land, packets, parts, read
from tests.reports import SOME_RULES

SAMPLE = "cpp-s08_nack.pcap"
SCOPE = pipeline.Scope(rules=SOME_RULES)


class Reported(NamedTuple):
    """Where a lake of one capture lies, and the files of its report, which it keeps."""

    folder: Path
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    root = tmp_path_factory.mktemp("reported")
    land(read(SAMPLE), "first", root / "lake", root)
    files = written(root / "lake", root / "report")
    (root / "lake").rename(root / "as-it-was")
    return Reported(root, files)


@pytest.fixture
def lake(reported: Reported) -> Iterator[Path]:
    """The lake with all that is kept of it, at its place: a report names that."""
    lake = reported.folder / "lake"
    shutil.copytree(reported.folder / "as-it-was", lake)
    yield lake
    shutil.rmtree(lake)


@pytest.fixture
def first(reported: Reported) -> dict[str, bytes]:
    """The files of the report that is kept."""
    return reported.files


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[pipeline.Scope]:
    """The scopes of reports that were made, and not found."""
    scopes: list[pipeline.Scope] = []
    make = pipeline.make_report

    def making(*arguments, **named):  # type: ignore[no-untyped-def]
        scopes.append(arguments[3])
        return make(*arguments, **named)

    monkeypatch.setattr(pipeline, "make_report", making)
    return scopes


def files_in(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def written(lake: Path, output: Path, scope: pipeline.Scope = SCOPE) -> dict[str, bytes]:
    """The files of a report, whose JSON is what the writer returned."""
    numbers = pipeline.write(lake, output, DuckdbEngine, scope)
    files = files_in(output)
    assert files["report.json"].decode() == report_text(numbers)
    return files


def kept(lake: Path) -> list[Path]:
    return sorted((lake / SUMS / "reports").glob("*/report.parquet"))


def test_the_same_report_is_found_and_is_the_same(
    lake: Path, first: dict[str, bytes], tmp_path: Path, made: list[pipeline.Scope]
) -> None:
    assert "report.html" in first and len(first) > 50
    assert written(lake, tmp_path / "again") == first
    assert made == [] and len(kept(lake)) == 1


@pytest.mark.parametrize(
    "scope",
    [
        SCOPE._replace(is_exact=True),
        SCOPE._replace(rules=frozenset(["D24"])),
        SCOPE._replace(selection=Asked("1970-01-02", None, ()).selection()),
    ],
    ids=["exact", "rules", "selection"],
)
def test_another_question_has_another_answer(
    lake: Path,
    first: dict[str, bytes],
    tmp_path: Path,
    made: list[pipeline.Scope],
    scope: pipeline.Scope,
) -> None:
    other = written(lake, tmp_path / "other", scope)
    assert made == [scope._replace(is_drawn=True)]
    assert written(lake, tmp_path / "again", scope) == other
    assert written(lake, tmp_path / "first") == first
    assert len(made) == 1


def test_numbers_alone_are_found_and_are_those_of_the_report(
    lake: Path, tmp_path: Path, made: list[pipeline.Scope]
) -> None:
    found = []
    for number in range(2):
        work = tmp_path / f"work-{number}"
        work.mkdir()
        with reader.open_lake(lake) as opened:
            found.append(pipeline.numbers(opened, work, DuckdbEngine, SCOPE))
    assert len(made) == 1 and found[0] == found[1]
    assert report_text(found[1]).encode() == written(lake, tmp_path / "report")["report.json"]


def test_lists_are_kept_whole_only_for_whom_they_are(
    lake: Path, tmp_path: Path, made: list[pipeline.Scope], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_LISTED", 1)
    shutil.rmtree(lake / SUMS / "reports")
    found = {}
    for has_lists in (True, False):
        for number in range(2):
            folder = tmp_path / f"report-{number}"
            numbers = pipeline.write(lake, folder, DuckdbEngine, SCOPE, has_lists=has_lists)
            found[has_lists, number] = numbers
            cut = json.loads((folder / "report.json").read_text())
        assert files_in(tmp_path / "report-0") == files_in(tmp_path / "report-1")
    whole = found[True, 0]
    assert len(made) == 2 and whole == found[True, 1] == found[False, 0] != cut
    assert found[False, 1] == cut and '"listed":' in json.dumps(cut)
    assert {*paths_of(whole)} <= {*paths_of(cut)}
    for path in paths_of(whole):
        assert value_at(cut, path) == value_at(whole, path)


def test_another_program_makes_it_again(
    lake: Path,
    first: dict[str, bytes],
    tmp_path: Path,
    made: list[pipeline.Scope],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_reports, "program", lambda: "a newer one")
    assert written(lake, tmp_path / "report")["report.json"] == first["report.json"]
    assert len(made) == 1


@pytest.mark.usefixtures("no_plots")
def test_captures_that_come_and_go_change_what_is_found(
    lake: Path, first: dict[str, bytes], tmp_path: Path, made: list[pipeline.Scope]
) -> None:
    """And of captures that are gone no report stays behind."""
    header, *records = packets(read(SAMPLE))
    shorter = land(header + b"".join(records[:40]), "second", lake, tmp_path)
    both = written(lake, tmp_path / "report")
    assert both["report.json"] != first["report.json"]
    reader.remove(lake, [shorter])
    assert written(lake, tmp_path / "report")["report.json"] == first["report.json"]
    assert len(made) == 2 and len(kept(lake)) == 1


@pytest.mark.usefixtures("no_plots")
def test_any_order_of_landing_gives_the_report_of_a_lake_that_keeps_nothing(tmp_path: Path) -> None:
    pieces = parts(read(SAMPLE), (20, 45))
    grown, new = (tmp_path / name / "lake" for name in ("grown", "new"))
    for place in random.Random(7).sample(range(3), 3):
        land(pieces[place], f"part-{place}", grown, tmp_path)
        land(pieces[place], f"part-{place}", new, tmp_path)
        found = written(grown, tmp_path / "report")
    assert found["report.json"] == written(new, tmp_path / "other")["report.json"]


def replaced(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    replaced(path, content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "cut": lambda path: replaced(path, path.read_bytes()[:100]),
    "missing": Path.unlink,
    "no index": lambda path: replaced(path.parent / "index.json", b"{}"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_was_damaged_is_made_again_and_kept(
    lake: Path,
    first: dict[str, bytes],
    tmp_path: Path,
    made: list[pipeline.Scope],
    damage: Callable[[Path], object],
) -> None:
    damage(kept(lake)[0])
    for _ in range(2):
        assert written(lake, tmp_path / "report")["report.html"] == first["report.html"]
    assert len(made) == 1


@pytest.mark.parametrize(
    "rows",
    [
        [("numbers", b"{}"), ("../outside", b"")],
        [("numbers", b"{}"), ("/outside", b"")],
        [("numbers", b"{}"), ("tables/../../outside", b"")],
        [("numbers", b"[]"), ("report.json", b"")],
        [("numbers", b"{"), ("report.json", b"")],
        [("report.json", b"")],
        [("report.html", b"")],
        [],
    ],
)
def test_an_odd_kept_report_is_none(tmp_path: Path, rows: list[tuple[str, bytes]]) -> None:
    reports = KeptReports(tmp_path / "lake", tmp_path, {"c": "1"}, "asked")
    made = tmp_path / "made"
    made.mkdir()
    columns = {"name": [name for name, _ in rows], "content": [each for _, each in rows]}
    table = pa.table(columns, pa.schema({"name": pa.string(), "content": pa.binary()}))
    pq.write_table(table, made / "report.parquet")
    reports._cache.add(made, [reports._unit], {"report": reports._digest})
    work = tmp_path / "work"
    work.mkdir()
    assert KeptReports(tmp_path / "lake", work, {"c": "1"}, "asked").find() is None


def small(folder: Path, lake: Path, asked: object, size: int = 10) -> KeptReport | None:
    """Keep a report, and look for it."""
    stage, work = folder / f"stage-{asked}", folder / f"work-{asked}"
    (stage / "tables" / "sums").mkdir(parents=True)
    work.mkdir()
    (stage / "report.json").write_bytes(b'{"listed":' + b"1" * size + b"}")
    (stage / "tables" / "sums" / "part-00000.parquet").write_bytes(b"2")
    KeptReports(lake, work, {"c": "1"}, asked).keep({"a": [1.5, None, "ä"]}, stage)
    return KeptReports(lake, work, {"c": "1"}, asked).find()


def test_few_reports_are_kept_and_none_that_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_reports, "MAX_KEPT_REPORTS", 3)
    monkeypatch.setattr(kept_reports, "MAX_KEPT_REPORT_BYTES", 100)
    for number in range(10):
        found = small(tmp_path, tmp_path / "lake", number)
        assert found is not None and found.numbers == {"a": [1.5, None, "ä"]}
        assert found.files.keys() == {"report.json", "tables/sums/part-00000.parquet"}
        assert len(kept(tmp_path / "lake")) <= 3
    assert small(tmp_path, tmp_path / "lake", "large", 100) is None


def test_a_lake_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / SUMS).write_text("in the way")
    assert small(tmp_path, tmp_path / "lake", "asked") is None
