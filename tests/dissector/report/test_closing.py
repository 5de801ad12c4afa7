"""What joining captures changed, as the report says it."""

from pathlib import Path

import pytest

from dissector.joining import links
from dissector.lake.reader import open_lake
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report import pipeline
from dissector.report.closing import section
from tests.dissector.joining.cutting import closed, land, land_cut, parts, planned, read
from tests.dissector.joining.test_borders import OPENING, Place, said
from tests.hard.tape import capture
from tests.reports import SOME_RULES, reported


def test_a_section_says_what_captures_know_only_together(tmp_path: Path) -> None:
    cut = land_cut("java-j24_unload.pcap", (203, 300), tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        plan = planned(lake)
        content = section(plan, cut.captures, closed(lake, plan, tmp_path / "closed"))
        redelivered = [
            row for row in lake.table("deliveries").to_pylist() if row["previous_frame_no"]
        ]
    total = content["total"]
    assert (total["captures"], total["captures_joined"], total["groups"]) == (3, 3, 1)
    assert total["connections_continued"] == 2 and total["bytes_missing_between"] == 0
    assert content["groups"] == [{"group": 0, "captures": list(cut.captures)}]
    assert total["exchanges_answered_later"] > 0 and total["redeliveries_recognised"] > 0
    assert "orphan_response" in total["outcomes_before"]
    assert "orphan_response" not in total["outcomes_after"]
    assert content["straddling"] == []
    assert "3 of 3 captures are joined, in 1 group." in content["about"]
    assert len(redelivered) + total["redeliveries_recognised"] > 50


def test_a_frame_that_straddles_is_counted_if_it_says_whose_it_is(tmp_path: Path) -> None:
    cut = land_cut("java-j74_corrupt.pcap", (92,), tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        plan = planned(lake)
        content = section(plan, cut.captures, closed(lake, plan, tmp_path / "closed"))
    (straddling,) = content["straddling"]
    assert (straddling["capture"], straddling["next_capture"]) == cut.captures
    assert (straddling["command"], straddling["fate"]) == ("MESSAGE", "counted")
    assert content["total"]["frames_straddling"] == 1 and content["total"]["frames_lost"] == 0


def test_nothing_was_joined(tmp_path: Path) -> None:
    with_nothing = closed(None, links.NOTHING, tmp_path)  # type: ignore[arg-type]
    total = section(links.NOTHING, ["a", "b"], with_nothing)["total"]
    assert (total["captures"], total["captures_joined"], total["frames_straddling"]) == (2, 0, 0)


@pytest.mark.parametrize(
    ("acked", "frame_no"), [((0, 1), None), ((1,), 8)], ids=["all of the first", "the second"]
)
def test_a_frame_of_another_capture_is_no_frame_of_the_first(
    acked: tuple[int, ...], frame_no: int | None, tmp_path: Path
) -> None:
    """Frames 8 and 9 of a connection's first capture bring messages, and frame 1 of the second."""
    at = Place()
    acks = [at.acked(entry, None, 1, 3 + entry) for entry in acked]
    script = *at.subscribed(2), at.message(0, 1), at.message(1, 1), *acks, at.message(2, 1)
    tape = said(at, 0, script)
    for number, part in enumerate(parts(capture(tape.records()), [OPENING + len(script) - 1])):
        land(part, f"part{number}", tmp_path / "lake", tmp_path)
    report = reported(tmp_path / "lake", tmp_path / "report", rules=SOME_RULES, tell=lambda _: None)
    (consumer,) = report["permit_utilization"]["by_consumer"]
    assert consumer["unacked_last"] == 3 - len(acked)
    assert consumer["oldest_unacked_frame_no"] == frame_no


def shown_by_rules(lake: Path, work: Path) -> set[tuple[object, ...]]:
    """What rules find in a lake, with the capture and the frames that show it."""
    work.mkdir()
    with open_lake(lake) as opened:
        found, problems, _ = pipeline.find(opened, work, DuckdbEngine, has_memory=False)
    assert problems == []
    return {(each.number, each.capture, each.evidence) for each in found}


@pytest.mark.parametrize(
    ("name", "cuts"),
    [("java-j74_corrupt.pcap", (61, 142)), ("java-j17_blocked_unacked.pcap", (250,))],
)
def test_frames_that_rules_name_are_of_the_capture_that_they_name(
    name: str, cuts: tuple[int, ...], tmp_path: Path
) -> None:
    """They read rows as each capture has them, also where captures are joined."""
    alone: set[tuple[object, ...]] = set()
    for number, part in enumerate(parts(read(name), cuts)):
        for lake in ("joined", f"lake-{number}"):
            land(part, f"part{number}", tmp_path / lake, tmp_path)
        alone |= shown_by_rules(tmp_path / f"lake-{number}", tmp_path / f"work-{number}")
    joined = shown_by_rules(tmp_path / "joined", tmp_path / "work")
    assert joined and joined <= alone
    assert all(one.packet is not None for _, _, evidence in joined for one in evidence)
