"""A night of rotations and a recording of it give one report."""

from pathlib import Path
from typing import Any

import pytest

from dissector.dissection import Options
from dissector.lake.compact import compact
from dissector.lake.land import land_chain
from dissector.sources.rings import chains
from tests.dissector.observed import CAPTURES
from tests.dissector.tap.test_service import rotated
from tests.spark_jobs.test_report import differences, reported

# What says how many files there were, and what they are called.
OF_FILES = ("files", "file_bytes", "captures", "capture", "file_name", "sources", "by_capture")


def without_files(value: Any) -> Any:
    """A report without what differs between files and rotations."""
    if isinstance(value, dict):
        return {key: without_files(inner) for key, inner in value.items() if key not in OF_FILES}
    return [without_files(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("is_compacted", [False, True], ids=["rotations", "compacted"])
def test_the_report_over_rotations_is_that_over_the_recording(
    spark: Any, tmp_path: Path, is_compacted: bool
) -> None:
    path = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")
    (chain,) = chains([path]).chains
    land_chain(chain, tmp_path / "recording", Options())
    tap = rotated(tmp_path / "rotations", path, rotate_bytes=30_000)
    assert len(tap.fates) > 5
    if is_compacted:
        compact(tmp_path / "rotations")
    found = [reported(spark, tmp_path / lake, tmp_path / f"{lake}-report")
             for lake in ("rotations", "recording")]  # fmt: skip
    assert found[0]["coverage"]["total"]["captures"] == 1
    assert found[0]["coverage"]["total"]["files"] == len(tap.fates)
    assert differences(*(without_files(each) for each in found)) == []
    assert found[0]["send_latency"]["total"]["sends"] > 0
