"""The sample captures that rules name: those in which they fire, and their twins."""

from collections.abc import Collection, Sequence
from pathlib import Path

from dissector.cli.main import run
from dissector.findings.loading import load_rules
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
    files = [str(sample(name)) for name in names]
    assert run(["land", "--chain", "none", "-q", "--lake", str(lake), *files]) in (0, 3)
