"""Captures that a report counts: those asked for, and no file twice."""

import pytest

from dissector.errors import UsageError
from dissector.lake.reader import Lake, open_lake
from dissector.report.counted_captures import captures_that_count
from tests.dissector.joining.cutting import land, packets, read

SAMPLE = "cpp-s08_nack.pcap"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The same bytes under two names, and others."""
    folder = tmp_path_factory.mktemp("counted")
    data = read(SAMPLE)
    for name in ("b-second", "a-first"):
        land(data, name, folder / "lake", folder)
    land(b"".join(packets(data)[:30]), "shorter", folder / "lake", folder)
    with open_lake(folder / "lake") as opened:
        return opened


def names(lake: Lake) -> dict[str, str]:
    return {capture.capture_id.split("-pcap-")[0]: capture.capture_id for capture in lake.captures}


def test_of_captures_of_the_same_files_one_counts(lake: Lake) -> None:
    ids = names(lake)
    counted = captures_that_count(lake)
    assert set(counted.digests) == {ids["c-a-first"], ids["c-shorter"]}
    assert counted.twice == {ids["c-b-second"]: ids["c-a-first"]}
    assert counted.lake == lake and len({*counted.digests.values()}) == 2


def test_a_capture_that_is_asked_for_counts(lake: Lake) -> None:
    wanted = names(lake)["c-b-second"]
    counted = captures_that_count(lake, [wanted, wanted])
    assert [*counted.digests] == [wanted] and counted.twice == {}
    assert [capture.capture_id for capture in counted.lake.captures] == [wanted]


def test_what_is_not_there_is_said(lake: Lake) -> None:
    with pytest.raises(UsageError, match="no capture c-none in the lake"):
        captures_that_count(lake, ["c-none"])
    with pytest.raises(UsageError, match="the lake has no captures"):
        captures_that_count(lake._replace(captures=()))
