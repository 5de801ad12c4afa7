"""What a tap notes in its lake is read back, whatever stands in the files."""

import json
from pathlib import Path

import pytest

from dissector.findings import running_findings as module
from dissector.findings.finding import Evidence, Finding
from dissector.findings.running_findings import FOLDER, Notes, joined, noted

FOUND = Finding(
    "D06", "code", "Title", "error", "proven", "section", "c-eth0-5", {"topic": "t", "n": None},
    10, 20, ((10, 20),), 60, {"n": 3, "share": 0.5}, {"least_s": 1.0}, ("no",),
    (Evidence(7, 9, "first"), Evidence(8, None, "last")), "What.\nHow it is known: so.",
)  # fmt: skip


def note(lake: Path, *found: Finding, is_landed: bool = False) -> Notes:
    notes = Notes(lake)
    notes.begin("c-eth0-5", is_landed)
    for one in found:
        notes.add(one)
    return notes


def test_what_is_noted_is_read_back_until_all_rows_are_there(tmp_path: Path) -> None:
    notes = note(tmp_path, FOUND, FOUND._replace(number="D07"))
    notes.close(is_landed=False)
    assert noted(tmp_path) == [FOUND, FOUND._replace(number="D07")]
    again = note(tmp_path, FOUND)
    again.begin("c-eth0-9", is_landed=True)
    again.add(FOUND)
    again.close(is_landed=True)
    assert noted(tmp_path) == [] and not (tmp_path / FOLDER).exists()


def test_odd_lines_and_files_are_passed_over(tmp_path: Path) -> None:
    note(tmp_path, FOUND).close(is_landed=False)
    (path,) = (tmp_path / FOLDER).iterdir()
    line = path.read_text()
    row = json.loads(line)
    odd = [
        *("", "{", "[]", "3", "null", line[: len(line) // 2], "[" * 10_000),
        *(json.dumps(row | {name: []}) for name in row if name != "ruled_out"),
        json.dumps(row | {"more": 1}), json.dumps(row | {"evidence": [{"frame_no": 1}]}),
    ]  # fmt: skip
    path.write_text("\n".join([*odd, line.strip(), "\udcff".encode("utf-8", "replace").decode()]))
    (tmp_path / FOLDER / "other.txt").write_text(line)
    (tmp_path / FOLDER / "folder.jsonl").mkdir()
    assert FOUND in noted(tmp_path)
    assert len(noted(tmp_path)) == 2, "of the odd ones only that without evidence is sound"
    assert noted(tmp_path / "none") == []


def test_notes_are_bounded_and_a_full_disk_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_NOTED_FINDINGS", 3)
    note(tmp_path, *[FOUND] * 5).close(is_landed=False)
    assert len(noted(tmp_path)) == 3
    (tmp_path / "file").write_text("")
    notes = note(tmp_path / "file", FOUND)
    notes.close(is_landed=True)
    assert notes.problem is not None


def test_what_rows_show_too_is_listed_once() -> None:
    later = FOUND._replace(first_ns=10**12, last_ns=10**12)
    other = FOUND._replace(subject={"topic": "u"})
    again = FOUND._replace(spans=((10, 12), (15, 20)))
    assert joined([FOUND], [again, later, other]) == [FOUND, other, later]
