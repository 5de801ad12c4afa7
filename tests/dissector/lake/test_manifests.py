"""A landing opens few manifests, however many there are, and decides by what is there then."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dissector.lake.compact import compact
from dissector.lake.landing import INSTALLED, SHORTER, UNCHANGED, ConcurrentLanding, Landing
from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.lake.manifests import Manifests
from tests.dissector.lake.landed import content, feed, land

OPENED: list[str] | None = None


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and OPENED is not None:
        OPENED.append(os.fsdecode(str(arguments[0])))


sys.addaudithook(_hear)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The files that Python opens meanwhile, by whatever call."""
    global OPENED
    OPENED = found = []
    try:
        yield found
    finally:
        OPENED = None


def many(lake: Path, count: int) -> None:
    """Manifests of other captures, as a lake of a year has them."""
    landed = land(lake, "seed", content(222))
    text = (lake / MANIFEST_FOLDER / f"{landed.capture_id}.json").read_text()
    for number in range(count):
        name = f"c-night-{number:05d}-{number:012x}"
        new = text.replace(landed.capture_id, name)
        (lake / MANIFEST_FOLDER / f"{name}.json").write_text(
            new.replace('"base_name": "seed"', f'"base_name": "night-{number:05d}"')
        )


def opens_of_a_landing(lake: Path) -> tuple[int, int]:
    """How many manifests a landing opens, and how many files in all."""
    with opened() as found:
        assert land(lake, "ring", content(1500)).outcome == INSTALLED
    inside = [path for path in found if path.startswith(str(lake))]
    return sum(f"/{MANIFEST_FOLDER}/" in path for path in inside), len(inside)


def test_what_a_landing_opens_does_not_grow_with_the_lake(tmp_path: Path) -> None:
    few, much = tmp_path / "few", tmp_path / "much"
    many(few, 1)
    many(much, 2000)
    manifests, files = opens_of_a_landing(few)
    assert (manifests, files) == opens_of_a_landing(much) and manifests == 0 and files > 20


def test_only_captures_of_the_name_and_groups_that_hold_it_are_read(tmp_path: Path) -> None:
    for name in ("ring", "ring-a", "a-ring", "x", "y"):
        land(tmp_path, name, content(400))
    (group,) = compact(tmp_path, ["c-x-*", "c-y-*"]).groups
    assert group is not None
    known = Manifests(tmp_path)
    assert [capture.base_name for capture in known.of_base_name("ring")] == ["ring"]
    assert known.of_base_name("x") == [group]
    with opened() as found:
        assert [capture.base_name for capture in known.of_base_name("ring")] == ["ring"]
    assert [Path(path).stem for path in found] == [group.capture_id]  # its text was looked through


def test_a_name_with_quotes_or_other_letters_is_found_in_a_group(tmp_path: Path) -> None:
    name = 'n\u00e4chte "1"'
    for each in (name, "other"):
        land(tmp_path, each, content(400))
    compact(tmp_path)
    assert land(tmp_path, name, content(400)).outcome == UNCHANGED


def test_what_changed_is_read_again_and_what_went_away_is_forgotten(tmp_path: Path) -> None:
    first = land(tmp_path, "ring", content(700))
    known = Manifests(tmp_path)
    assert [c.capture_id for c in known.of_base_name("ring")] == [first.capture_id]
    grown = land(tmp_path, "ring", content(1500))
    assert [c.capture_id for c in known.of_base_name("ring")] == [grown.capture_id]
    land(tmp_path, "ring", content(1500), options={"protocol": "pulsar"})
    assert [c.options for c in known.of_base_name("ring")] == [{"protocol": "pulsar"}]


# -- another landing of the same name, between the start of one and its end


def test_a_longer_one_that_came_meanwhile_stays_alone(tmp_path: Path) -> None:
    with Landing(tmp_path, "ring") as landing:
        feed(landing, content(700))
        longer = land(tmp_path, "ring", content(1500))
        assert landing.commit({}).outcome == SHORTER
    assert [c.capture_id for c in Manifests(tmp_path).of_base_name("ring")] == [longer.capture_id]


def test_the_same_one_that_came_meanwhile_is_not_doubled(tmp_path: Path) -> None:
    with Landing(tmp_path, "ring") as landing:
        feed(landing, content(700))
        land(tmp_path, "ring", content(700))
        assert landing.commit({}).outcome == UNCHANGED
    assert len(Manifests(tmp_path).of_base_name("ring")) == 1


def test_a_beginning_that_came_meanwhile_makes_the_landing_be_done_again(tmp_path: Path) -> None:
    """Its size was not known while the bytes went by: whether it is a beginning cannot be told."""
    with Landing(tmp_path, "ring") as landing:
        feed(landing, content(1500))
        land(tmp_path, "ring", content(700))
        with pytest.raises(ConcurrentLanding):
            landing.commit({}, is_last=False)
    # Bytes that cannot be read again: both stay, nothing is lost.
    with Landing(tmp_path / "pipe", "ring") as landing:
        feed(landing, content(1500))
        land(tmp_path / "pipe", "ring", content(700))
        assert landing.commit({}).outcome == INSTALLED
    assert len(Manifests(tmp_path / "pipe").of_base_name("ring")) == 2


def test_one_of_other_bytes_that_came_meanwhile_changes_nothing(tmp_path: Path) -> None:
    with Landing(tmp_path, "ring") as landing:
        feed(landing, content(1500))
        land(tmp_path, "ring", content(700, seed=1))
        assert landing.commit({}, is_last=False).outcome == INSTALLED
    assert len(Manifests(tmp_path).of_base_name("ring")) == 2
