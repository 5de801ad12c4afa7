"""lake publish: what it prints, its exit codes, and that it runs as the texts say."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from dissector.cli.exits import (
    EXIT_DEPENDENCY,
    EXIT_INPUT,
    EXIT_OK,
    EXIT_OUTPUT,
    EXIT_PARTIAL,
    EXIT_USAGE,
)
from dissector.lake.document import lake_page
from dissector.schemas import TABLES
from tests.dissector.cli.conftest import SAMPLES, Command
from tests.dissector.lake.older_versions import as_version_1
from tests.dissector.lake.published import address, delta_table, iceberg_table

NAMES = ("java-j12_nack.pcap", "java-j61_txn_abort.pcap")
LINE = re.compile(r"(iceberg|delta)  (\w+)  ([\d,]+) files?  ([\d,]+) rows?  \+(\d+)  -(\d+)")


@pytest.fixture
def lake(command: Command, tmp_path: Path) -> Path:
    """A lake of two captures."""
    assert command("land", *(SAMPLES / name for name in NAMES), "--lake", tmp_path / "lake").out
    return tmp_path / "lake"


def test_both_formats_are_published_at_once(command: Command, lake: Path) -> None:
    result = command("lake", "publish", lake, "--iceberg", address(lake), "--delta")
    assert (result.code, result.err) == (EXIT_OK, "")
    lines = [LINE.fullmatch(line) for line in result.lines]
    assert [(line[1], line[2]) for line in lines if line] == [
        (name, table) for name in ("iceberg", "delta") for table in TABLES
    ]
    for line in filter(None, lines):
        read = (
            iceberg_table(lake, line[2]).scan().count()
            if line[1] == "iceberg"
            else delta_table(lake, line[2]).count()
        )
        assert read == int(line[4].replace(",", ""))
        assert line[3] == line[5] and line[6] == "0"
    again = command("lake", "publish", lake, "--iceberg", address(lake), "--delta")
    assert all(line.endswith("  +0  -0") for line in again.lines) and len(again.lines) == 24


def test_what_the_page_shows_runs(
    command: Command, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands as they stand, but for the catalog's folder; then the program that reads."""
    monkeypatch.chdir(tmp_path)
    page = lake_page().replace("////data/catalog.db", f"///{tmp_path}/catalog.db")
    commands = re.findall(r"(?m)^    dissector (lake publish [^#\n]+)", page)
    assert len(commands) == 2
    for line in commands:
        assert command(*line.split()).code == EXIT_OK, line
    (program,) = re.findall(r"```python\n(from pyiceberg.+?)```", page, re.DOTALL)
    lines = program.replace("2026-01-31", "2026-01-01").splitlines()
    names: dict[str, object] = {}
    found = []
    for line in filter(None, lines):
        if line.startswith(("from", "import", "catalog =")):
            exec(line, names)
        else:
            found.append(eval(line, names))
    read, chosen, filtered = found
    assert read.num_rows == delta_table(lake, "exchanges").count()
    assert 0 < chosen.num_rows < read.num_rows and filtered.height < read.num_rows


def test_exit_codes_say_what_is_wrong(
    command: Command, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(code: int, words: str, *arguments: object) -> None:
        result = command("lake", "publish", *arguments)
        assert (result.code, result.out) == (code, "") and words in result.err, result.err
        assert result.err.count("\n") == 1

    ends(EXIT_USAGE, "--iceberg CATALOG, --delta, or both", lake)
    ends(EXIT_USAGE, "PYICEBERG_CATALOG__PROD__URI", lake, "--iceberg", "prod")
    ends(EXIT_USAGE, "use another name", "s3://bucket/la?ke", "--delta")
    ends(EXIT_INPUT, "is not a lake", tmp_path, "--delta")
    ends(EXIT_OUTPUT, "unable to open", lake, "--iceberg", f"sqlite:///{tmp_path}/no/c.db")
    shutil.rmtree(lake / "capture_files" / "_delta_log", ignore_errors=True)
    (lake / "capture_files" / "_delta_log").write_text("no folder")
    ends(EXIT_OUTPUT, "_delta_log", lake, "--delta")
    for library, option in (("deltalake", ["--delta"]), ("pyiceberg.catalog", ["--iceberg", "x"])):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, library, None)
            ends(EXIT_DEPENDENCY, "pip install 'pulsar-dissector[publish]'", lake, *option)


def test_captures_that_are_left_out_or_not_read_are_named(command: Command, lake: Path) -> None:
    old, other = sorted(path.stem for path in (lake / "_manifest").glob("*.json"))
    as_version_1(lake, old)
    result = command("lake", "publish", lake, "--delta")
    assert result.code == EXIT_PARTIAL and len(result.lines) == len(TABLES)
    assert f"{old} is in no table" in result.err and f"lake compact {lake}" in result.err
    assert set(delta_table(lake, "frames").to_pyarrow_table()["capture"].to_pylist()) == {other}
    assert command("lake", "compact", lake).code == EXIT_OK
    assert command("lake", "publish", lake, "--delta").code == EXIT_OK
    landed = set(delta_table(lake, "frames").to_pyarrow_table()["capture"].to_pylist())
    assert landed == {old, other}
    assert command("land", SAMPLES / "java-j16_dlq_retry.pcap", "--lake", lake).code == EXIT_OK
    (damaged,) = (lake / "_manifest").glob("c-java-j16*")
    damaged.write_text(damaged.read_text("utf-8")[:-9], "utf-8")
    result = command("lake", "publish", lake, "--delta")
    assert result.code == EXIT_PARTIAL and str(damaged) in result.err
    assert delta_table(lake, "frames").to_pyarrow_table()["capture"].to_pylist()


def test_a_lake_whose_captures_are_all_gone_is_published_empty(
    command: Command, lake: Path
) -> None:
    command("lake", "publish", lake, "--delta")
    assert command("lake", "rm", lake, "*").code == EXIT_OK
    result = command("lake", "publish", lake, "--delta")
    assert result.code == EXIT_OK and all("  0 files  0 rows  +0  -" in x for x in result.lines)
    assert delta_table(lake, "frames").count() == 0
