"""A lake of real captures that belong together: cut, and their parts landed apart."""

from pathlib import Path
from typing import Any, NamedTuple

from tests.dissector.joining.cutting import land, land_cut, read
from tests.reports import SOME_RULES, reported

# Cut where no frame straddles: behind whole frames of both directions.
CUTS = {
    "java-j24_unload.pcap": (203, 300), "java-j74_corrupt.pcap": (51,),
    "cpp-c40_killed_Failover.pcap": (19,),
    "../cursus/go-group_rebalance_two_consumers.pcap": (331,),
}  # fmt: skip
WHOLE = ("java-j23_errors.pcap",)

# What says where something lies, and counts of files.
PLACES = {
    "capture", "connection_id", "frame_no", "packet", "request_frame_no", "response_frame_no",
    "request_packet", "response_packet", "previous_frame_no", "start_frame_no", "end_frame_no",
    "first_packet", "last_packet", "answer_frame_no", "evidence_frame_no", "copy_frame_no",
    "oldest_unacked_frame_no",
    "captures", "files",
    "file_bytes", "by_capture", "sources", "connections", "twin_connection_id",
    "verdicts", "findings",  # of each capture by itself
    # How far a log reaches is known to each capture by itself.
    "lag_committed_last", "lag_committed_max", "lag_delivered_last", "lag_delivered_max",
    "lag_not_evaluated",
}  # fmt: skip


class Apart(NamedTuple):
    """lake: of CUTS in parts, and of WHOLE; folder, report: what DuckDB reports about it."""

    lake: Path
    folder: Path
    report: dict[str, Any]


def land_apart(lake: Path, folder: Path) -> None:
    """Land the parts of CUTS, and WHOLE."""
    for name, places in CUTS.items():
        land_cut(name, places, lake, folder)
    for name in WHOLE:
        land(read(name), name.partition(".")[0], lake, folder)


def reported_apart(root: Path) -> Apart:
    """The lake and its report, which asks few rules, in a folder."""
    land_apart(root / "lake", root)
    report = reported(root / "lake", root / "report", rules=SOME_RULES)
    return Apart(root / "lake", root / "report", report)


def without_places(value: Any) -> Any:
    """A report, or a part of one, without what says where something lies."""
    if isinstance(value, dict):
        return {key: without_places(each) for key, each in value.items() if key not in PLACES}
    return [without_places(each) for each in value] if isinstance(value, list) else value
