"""The sample captures that rules name: those in which they fire, and their twins."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from dissector.cli.main import run
from dissector.findings.loading import load_rules
from dissector.lake.compact import compact
from dissector.lake.manifest import Manifest
from tests.choosing import covering

ROOT = Path(__file__).resolve().parents[3]
ALL, BROKEN = load_rules()
RULES = [rule for rule in ALL if not rule.is_over_totals]
NAMES = sorted({name for rule in RULES for name in (*rule.fires, *rule.silent)})


def sample(name: str) -> Path:
    found = [*ROOT.glob(f"captures/*/{name}"), *ROOT.glob(f"captures/*/{name}.gz")]
    assert found, f"{name} is no sample capture"
    return found[0]


def that_fire_all(but: Collection[str] = ()) -> list[str]:
    """A few samples in which all rules fire that fire in any but these; all of them at night."""
    fired = {name: [rule.code for rule in RULES if name in rule.fires] for name in NAMES}
    fired = {name: codes for name, codes in fired.items() if name not in but}
    return covering(fired, lambda name: sample(name).stat().st_size)


def land_samples(lake: Path, names: Sequence[str] = NAMES) -> None:
    """Land samples, each by itself."""
    land_each(lake, map(sample, names))


def land_each(lake: Path, files: Iterable[Path]) -> None:
    """Land captures, each by itself; in this process, as others take longer to begin."""
    options = ("--chain", "none", "--jobs", "1", "-q", "--lake", str(lake))
    assert run(["land", *options, *map(str, files)]) in (0, 3)


def land_together(lake: Path, files: Iterable[Path]) -> None:
    """The same, in a group for each day: each rule opens a few files then, and not some of each
    capture."""
    land_each(lake, files)
    assert compact(lake).groups


def inside(captures: Iterable[Manifest]) -> Iterator[Manifest]:
    """Captures, and those of groups."""
    return (each for capture in captures for each in capture.captures())
