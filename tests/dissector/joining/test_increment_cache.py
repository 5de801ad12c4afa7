"""A night more is read from what stood open before it; the report is that of all nights at once."""

import json
import pickle
import random
import shutil
import struct
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dissector import limits
from dissector.joining import increment_cache
from dissector.lake.install import SUMS_FOLDER as SUMS
from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.report import aggregation_cache
from dissector.report.aggregation_cache import FINDINGS
from tests import reports
from tests.dissector.joining.cutting import cut_places, land, packets, parts, read
from tests.dissector.joining.remembering import Remembering
from tests.dissector.report.test_pipeline import closed_rows, hand_over
from tests.reports import SOME_RULES, differences

reported = partial(reports.reported, rules=SOME_RULES)
# Captures are joined whatever is asked about them; a few rules alone ask least.
joined = partial(reported, sections=(FINDINGS,), tell=lambda _: None)
NIGHTS = 6
DAY = 86_400
KEPT = Path(SUMS) / increment_cache.INCREMENTS


class Nights(NamedTuple):
    """lake: of captures, one of each night; folder, report: what is said of it, joined at once."""

    lake: Path
    names: list[str]
    folder: Path
    report: dict[str, Any]


def later(data: bytes, seconds: int) -> bytes:
    """A capture, so much later."""
    header, *records = packets(data)
    moved = (
        struct.pack("<I", struct.unpack_from("<I", record)[0] + seconds) + record[4:]
        for record in records
    )
    return header + b"".join(moved)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """Connections that go on over nights: deliveries, acknowledgements and redeliveries."""
    root = tmp_path_factory.mktemp("nights")
    data = read("java-j24_unload.pcap")
    names = [
        land(later(part, number * DAY), f"night{number}", root / "lake", root)
        for number, part in enumerate(parts(data, cut_places(data, NIGHTS - 1, seed=3)))
    ]
    return Nights(root / "lake", names, root / "report", reported(root / "lake", root / "report"))


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Remembering:
    return Remembering(tmp_path_factory.mktemp("joined"))


@pytest.fixture
def read_captures(
    monkeypatch: pytest.MonkeyPatch, remembering: Remembering
) -> Iterator[list[tuple[str, ...]]]:
    """The captures whose rows were joined, each time; increments end with every capture."""
    found: list[tuple[str, ...]] = []

    def close(*arguments: Any) -> dict[str, int]:
        assert pickle.loads(pickle.dumps(arguments)) == arguments, "a task of Spark"
        found.append(arguments[1].groups[0].captures)
        return remembering.close(*arguments)

    monkeypatch.setattr(limits, "MAX_INCREMENT_ROWS", 1)
    monkeypatch.setattr(aggregation_cache, "close_group", close)
    return found  # type: ignore[return-value]


def without_sums(lake: Path, names: Iterable[str], but_increments: bool = True) -> None:
    """Forget all numbers, so that the next report joins captures."""
    for batch in (lake / SUMS).iterdir():
        if not but_increments or batch.name != increment_cache.INCREMENTS:
            shutil.rmtree(batch)


def judged(nights: Nights, lake: Path, output: Path) -> None:
    """See that a report of all nights is the one of the whole."""
    assert differences(reported(lake, output, tell=lambda _: None), nights.report) == []
    assert closed_rows(output) == closed_rows(nights.folder)


def test_a_night_more_is_read_from_what_stood_open_before_it(
    nights: Nights, tmp_path: Path, read_captures: list[tuple[str, ...]]
) -> None:
    lake = tmp_path / "lake"
    for before, count in pairwise((0, 1, 2, 3, NIGHTS)):
        hand_over(nights.lake, lake, nights.names[before:count])
        read_captures.clear()
        joined(lake, tmp_path / "report")
        # The last night is read once more, now that another one follows: never what was before.
        new = nights.names[max(0, before - 1) : count]
        assert read_captures == ([(each,) for each in new] if before else [])
        assert len(list((lake / KEPT).glob("*/index.json"))) == (count if before else 0)
    judged(nights, lake, tmp_path / "report")


def test_increments_of_many_captures_are_kept_and_taken_as_they_are(
    nights: Nights, tmp_path: Path, read_captures: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    lake = tmp_path / "lake"
    hand_over(nights.lake, lake, nights.names)
    manifest = json.loads((lake / MANIFEST_FOLDER / f"{nights.names[0]}.json").read_text())
    rows = sum(manifest["rows"].values())
    monkeypatch.setattr(limits, "MAX_INCREMENT_ROWS", rows + 1)
    judged(nights, lake, tmp_path / "report")
    assert 1 < len(read_captures) < NIGHTS and sum(read_captures, ()) == tuple(nights.names)
    read_captures.clear()
    without_sums(lake, nights.names)
    judged(nights, lake, tmp_path / "report")
    assert read_captures == []


def flip(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.unlink()
    file.write_bytes(data)


def batch_of(lake: Path, name: str) -> Path:
    """Where the increment of a capture is kept."""
    (found,) = (
        index.parent
        for index in (lake / KEPT).glob("*/index.json")
        if [name] in json.loads(index.read_text())["units"].values()
    )
    return found


@pytest.fixture(scope="module")
def reported_half(
    nights: Nights, remembering: Remembering, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A lake of all nights but the last two, reported; increments end with every capture."""
    root = tmp_path_factory.mktemp("half")
    hand_over(nights.lake, root / "lake", nights.names[:-2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_INCREMENT_ROWS", 1)
        patch.setattr(aggregation_cache, "close_group", remembering.close)
        joined(root / "lake", root / "report")
    return root / "lake"


@pytest.fixture
def half(reported_half: Path, tmp_path: Path, read_captures: list[tuple[str, ...]]) -> Path:
    """A copy of it; what is read from here on is told."""
    shutil.copytree(reported_half, tmp_path / "lake")
    return tmp_path / "lake"


def test_what_is_damaged_is_read_again_and_nothing_else(
    nights: Nights, half: Path, tmp_path: Path, read_captures: list[tuple[str, ...]]
) -> None:
    hand_over(nights.lake, half, nights.names[-2:])
    chance = random.Random(7)
    (left,) = (batch_of(half, nights.names[NIGHTS - 4]) / "carried_frames").iterdir()
    flip(left, chance)
    (rows,) = (batch_of(half, nights.names[0]) / "deliveries").iterdir()
    flip(rows, chance)
    judged(nights, half, tmp_path / "report")
    assert read_captures == [(nights.names[0],), *((name,) for name in nights.names[NIGHTS - 4 :])]
    read_captures.clear()
    without_sums(half, nights.names)
    judged(nights, half, tmp_path / "report")
    assert read_captures == [], "and once is enough"


def test_damage_anywhere_in_what_is_kept_changes_no_number(
    nights: Nights, half: Path, tmp_path: Path
) -> None:
    chance = random.Random(8)
    for file in sorted((half / KEPT).rglob("*")):
        if file.is_file() and chance.random() < 0.5:
            flip(file, chance)
    hand_over(nights.lake, half, nights.names[-2:])
    judged(nights, half, tmp_path / "report")


def test_a_run_that_is_killed_leaves_nothing_wrong(
    nights: Nights, tmp_path: Path, read_captures: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    class KilledError(BaseException):
        pass

    lake = tmp_path / "lake"
    hand_over(nights.lake, lake, nights.names)
    going_on = aggregation_cache.close_group

    def killed(*arguments: Any) -> dict[str, int]:
        if len(read_captures) == 3:
            raise KilledError
        return going_on(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(aggregation_cache, "close_group", killed)
        joined(lake, tmp_path / "report")
    judged(nights, lake, tmp_path / "report")


def test_captures_that_come_before_or_go_from_the_middle_change_what_is_behind_them(
    nights: Nights, tmp_path: Path, read_captures: list[tuple[str, ...]]
) -> None:
    lake, output = tmp_path / "lake", tmp_path / "report"
    hand_over(nights.lake, lake, nights.names[3:])
    joined(lake, output)
    hand_over(nights.lake, lake, nights.names[:3])
    judged(nights, lake, output)
    read_captures.clear()
    gone = nights.names[3]
    (lake / MANIFEST_FOLDER / f"{gone}.json").unlink()
    report = reported(lake, output, tell=lambda _: None)
    assert (nights.names[0],) not in read_captures and (nights.names[4],) in read_captures
    assert not any(gone in path.read_text() for path in (lake / KEPT).glob("*/index.json"))
    hand_over(nights.lake, tmp_path / "anew", [n for n in nights.names if n != gone])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_INCREMENT_ROWS", 1 << 40)
        assert differences(report, reported(tmp_path / "anew", tmp_path / "other")) == []
