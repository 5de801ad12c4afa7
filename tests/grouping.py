"""Which tests run in one process, and in what order, where the suite runs over several.

Groups are read from the names of tests where these are given out. Marks of xdist (`xdist_group`)
would not do: they travel in `item._nodeid`, which pytest 9 does not have.
"""

from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[1]
# The longest begin first, or all wait for one of them at the end.
LONGEST = (
    "tap",
    "spark",
    "altered",
    "apart",
    "rows",
    "tests/spark_jobs/test_land_archive.py",
    "tests/dissector/cli/test_evidence.py",
    "tests/dissector/joining/test_increment_cache.py",
    "tests/dissector/cli/test_report.py",
    "tests/hard/test_accounting.py",
    "tests/hard/test_ways.py",
    "tests/dissector/cli/test_printed_commands.py",
    "tests/dissector/cli/test_planted.py",
    "tests/dissector/cli/test_bundle_findings.py",
    "tests/hard/test_sources.py",
    "tests/dissector/joining/test_closing.py",
    "tests/dissector/cli/test_main.py",
    "tests/dissector/lake/test_killed.py",
    "tests/dissector/cli/test_compare.py",
    "tests/dissector/report/test_page.py",
    "tests/dissector/spark/test_session.py",
    "tests/busy/test_busy.py",
)
# Files that look at rows of the sample captures, at what is known of these in changed captures, at
# reports of each, or at one lake in parts.
SHARING = {
    "rows": (
        "tests/dissector/test_accounts.py",
        "tests/dissector/test_manifests.py",
        "tests/dissector/test_manifests_consumption.py",
        "tests/dissector/test_manifests_cursus.py",
        "tests/dissector/test_manifests_messages.py",
        "tests/dissector/test_manifests_sentences.py",
        "tests/dissector/test_same_rows.py",
        "tests/dissector/test_stories.py",
        "tests/dissector/findings/test_totals.py",
        "tests/dissector/report/test_severities.py",
    ),
    "altered": (
        "tests/dissector/test_carried.py",
        "tests/dissector/test_lost_packets.py",
        "tests/dissector/test_one_direction.py",
        "tests/dissector/test_other_ids.py",
        "tests/dissector/test_part_of_a_capture.py",
        "tests/dissector/test_ports_again.py",
        "tests/dissector/test_sequence_numbers.py",
        "tests/dissector/test_snap_length.py",
        "tests/dissector/test_some_connections.py",
        "tests/dissector/test_translated.py",
    ),
    "apart": (
        "tests/dissector/report/test_apart.py",
        "tests/dissector/report/test_compacted.py",
        "tests/dissector/report/test_partitions.py",
        "tests/dissector/report/test_pipeline.py",
    ),
}
GROUPS = {file: group for group, files in SHARING.items() for file in files}


@cache
def group_of(file: str) -> str:
    """The group of a file of tests, which is given by its path from the root.

    What a process made of captures it keeps for all files; Spark's session is one; taps and servers
    of metrics make interfaces and ports.
    """
    parts = Path(file).parts
    if {"tap", "dashboards"} & set(parts):
        return "tap"
    path = ROOT / file
    if path.is_file() and "spark: Any" in path.read_text("utf-8"):
        return "spark"
    return GROUPS.get(file, file)


def place_of(test: str) -> int:
    """Which place the group of a test has among those that begin first."""
    group = group_of(test.partition("::")[0])
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each group to one process, in the order of the tests."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])
