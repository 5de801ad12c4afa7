"""A night of rotations and a recording of it give one report."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from dissector.cli.main import run
from dissector.lake.compact import compact
from dissector.lake.reader import open_lake, remove
from dissector.report.formatting import many
from tests.dissector.lake.samples import SAMPLES, landed
from tests.dissector.observed import CAPTURES
from tests.dissector.tap.test_service import rotated
from tests.reports import SOME_RULES, differences, reported, summary

# What says how many files there were, and what they are called.
OF_FILES = ("files", "file_bytes", "captures", "capture", "file_name", "sources", "by_capture")


def without_files(value: Any) -> Any:
    """A report without what differs between files and rotations."""
    if isinstance(value, dict):
        return {key: without_files(inner) for key, inner in value.items() if key not in OF_FILES}
    return [without_files(inner) for inner in value] if isinstance(value, list) else value


def test_the_report_over_rotations_is_that_over_the_recording(tmp_path: Path) -> None:
    """As they are, and in one group that a lake has in their place."""
    path = CAPTURES / "pulsar-apache" / "java-j24_unload.pcap"
    rotations, compacted = tmp_path / "rotations", tmp_path / "compacted"
    tap = rotated(rotations, str(path), rotate_bytes=30_000)
    assert len(tap.fates) > 5
    shutil.copytree(rotations, compacted)
    assert compact(compacted).groups
    recording = without_files(summary(path))
    for lake in (rotations, compacted):
        report = reported(lake, tmp_path / "report")
        assert report["coverage"]["total"]["captures"] == 1
        assert report["coverage"]["total"]["files"] == len(tap.fates)
        assert differences(without_files(report), recording) == []
        assert report["send_latency"]["total"]["sends"] > 0


@pytest.mark.parametrize("is_alone", [True, False])
def test_connections_that_are_open_count_by_their_frames(
    is_alone: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tap that goes on has frames of connections whose rows come at their end."""
    lake = tmp_path / "lake"
    path = CAPTURES / "pulsar-apache" / "java-j24_unload.pcap"
    rotated(lake, str(path), rotate_bytes=20_000)
    with open_lake(lake) as opened:
        with_rows = [each.capture_id for each in opened.captures if each.rows()["connections"]]
    remove(lake, with_rows)
    if not is_alone:
        landed(lake, SAMPLES[:1])
    report = reported(lake, tmp_path / "report", sections=("coverage",), rules=SOME_RULES)
    total = report["coverage"]["total"]
    with open_lake(lake) as opened:
        rows = opened.table("connections").num_rows
    assert total["unfinished_connections"] == 1 and (rows > 0) != is_alone
    assert total["connections"] == rows + 1
    assert sum(total["connections_by_protocol"].values()) == total["connections"]
    capsys.readouterr()
    assert run(["summary", "--lake", str(lake)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Nothing could be decoded" not in said
    assert f"{total['unfinished_frames']:,} frames of" in said
    assert f"{many(total['connections'], 'connection')} (" in said
