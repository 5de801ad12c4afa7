"""A night of rotations and a recording of it give one report."""

from pathlib import Path
from typing import Any

import pytest

from dissector.lake.compact import compact
from tests.dissector.observed import CAPTURES
from tests.dissector.tap.test_service import rotated
from tests.reports import differences, reported, summary

# What says how many files there were, and what they are called.
OF_FILES = ("files", "file_bytes", "captures", "capture", "file_name", "sources", "by_capture")


def without_files(value: Any) -> Any:
    """A report without what differs between files and rotations."""
    if isinstance(value, dict):
        return {key: without_files(inner) for key, inner in value.items() if key not in OF_FILES}
    return [without_files(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("is_compacted", [False, True], ids=["rotations", "compacted"])
def test_the_report_over_rotations_is_that_over_the_recording(
    tmp_path: Path, is_compacted: bool
) -> None:
    path = CAPTURES / "pulsar-apache" / "java-j24_unload.pcap"
    tap = rotated(tmp_path / "rotations", str(path), rotate_bytes=30_000)
    assert len(tap.fates) > 5
    if is_compacted:
        compact(tmp_path / "rotations")
    found = reported(tmp_path / "rotations", tmp_path / "report")
    assert found["coverage"]["total"]["captures"] == 1
    assert found["coverage"]["total"]["files"] == len(tap.fates)
    assert differences(without_files(found), without_files(summary(path))) == []
    assert found["send_latency"]["total"]["sends"] > 0
