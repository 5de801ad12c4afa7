"""A report in the place of another one: whoever looks finds one of them, whole, and never none."""

import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dissector import outputs
from dissector.report import output
from dissector.report.output import write_report
from dissector.report.workspace import temporary, workspace


def numbered(number: int) -> dict[str, Any]:
    """A small report all pieces of which say its number."""
    rows = [{"number": number}] * 3
    return {
        "schema_version": 1,
        "sources": [],
        "errors": {"total": {"number": number}, "by_code": rows},
    }


WRITER = """
import sys
from pathlib import Path
from dissector.report.output import write_report
from tests.dissector.report.test_replacing import numbered
for number in range(100_000):
    write_report(Path(sys.argv[1]), numbered(number), has_page=False)
    print(number, flush=True)
"""


def seen(folder: Path) -> set[int] | None:
    """The numbers of all pieces of a report; None if it was replaced while we looked."""
    there = os.open(folder, os.O_RDONLY)
    try:
        inside = Path(f"/proc/self/fd/{there}")
        report = json.loads((inside / "report.json").read_text())
        table = pq.read_table(inside / "tables" / "errors_by_code" / "part-00000.parquet")
        return {row["number"] for row in report["errors"]["by_code"] + table.to_pylist()}
    except FileNotFoundError:
        if os.path.samestat(os.fstat(there), folder.stat()):
            raise
        return None
    finally:
        os.close(there)


def test_a_reader_finds_one_whole_report_while_others_are_written(tmp_path: Path) -> None:
    write_report(tmp_path / "out", numbered(0), has_page=False)
    is_over = threading.Event()
    problems: list[object] = []

    def read() -> None:
        while not is_over.is_set():
            try:
                numbers_seen = seen(tmp_path / "out")
            except Exception as problem:
                problems.append(problem)
                return
            if numbers_seen is not None and len(numbers_seen) != 1:
                problems.append(numbers_seen)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 60):
        write_report(tmp_path / "out", numbered(number), has_page=False)
    is_over.set()
    reader.join()
    assert not problems and seen(tmp_path / "out") == {59}


def test_killed_writers_leave_a_whole_report_and_nothing_for_long(tmp_path: Path) -> None:
    chance = random.Random(5)
    write_report(tmp_path / "out", numbered(-1), has_page=False)
    for _ in range(5):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "out")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
            writer.send_signal(signal.SIGKILL)
        numbers_seen = seen(tmp_path / "out")
        assert numbers_seen is not None and len(numbers_seen) == 1
    write_report(tmp_path / "out", numbered(7), has_page=False)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_running_writer_keeps_its_folder_and_a_killed_one_does_not(tmp_path: Path) -> None:
    left = tmp_path / ".out.work.killed"
    left.mkdir()
    (left / "report").mkdir()
    with workspace(tmp_path / "out") as mine:
        assert not left.exists()
        with workspace(tmp_path / "out") as other:
            assert mine.exists() and other != mine
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_command_left_among_temporary_files_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But nothing of another user, who can write there, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary() as running:
        left = running.with_name(running.name[:-4] + "left")
        others = running.with_name(running.name[:-4] + "them")
        for folder in (left, others):
            (folder / "lake").mkdir(parents=True)
        link = running.with_name(running.name[:-4] + "link")
        link.symlink_to(tmp_path)
        if os.geteuid() == 0:
            os.chown(others, 12345, 12345)
        with temporary() as mine:
            assert running.exists() and mine.exists() and not left.exists()
            assert others.exists() == (os.geteuid() == 0)
        assert stat.S_IMODE(running.stat().st_mode) == 0o700
    assert set(tmp_path.iterdir()) == {link, *([others] if os.geteuid() == 0 else [])}


@pytest.mark.parametrize("has_page", [True, False])
def test_without_an_exchange_each_piece_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_page: bool
) -> None:
    write_report(tmp_path / "out", numbered(1), has_page=False)
    (tmp_path / "out" / "report.html").write_text("old")
    monkeypatch.setattr(output, "exchange", lambda one, other: False)
    monkeypatch.setattr("dissector.report.page.page", lambda *_: "new")
    write_report(tmp_path / "out", numbered(2), has_page=has_page)
    assert seen(tmp_path / "out") == {2}
    page = tmp_path / "out" / "report.html"
    assert page.read_text() == "new" if has_page else not page.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_exchanged_names_stand_for_each_other(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    (one / "file").touch()
    other.write_text("other")
    assert outputs.exchange(one, other)
    assert one.read_text() == "other" and (other / "file").exists()
    with pytest.raises(FileNotFoundError):
        outputs.exchange(one, tmp_path / "none")
