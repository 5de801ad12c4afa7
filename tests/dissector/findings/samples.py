"""The sample captures that rules name: those in which they fire, and their twins."""

from collections.abc import Sequence
from pathlib import Path

from dissector.cli.main import run
from dissector.findings.loading import load_rules

ROOT = Path(__file__).resolve().parents[3]
ALL, BROKEN = load_rules()
RULES = [rule for rule in ALL if not rule.is_over_totals]
NAMES = sorted({name for rule in RULES for name in (*rule.fires, *rule.silent)})


def sample(name: str) -> Path:
    found = [*ROOT.glob(f"captures/*/{name}"), *ROOT.glob(f"captures/*/{name}.gz")]
    assert found, f"{name} is no sample capture"
    return found[0]


def land_samples(lake: Path, more: Sequence[str] = (), but: Sequence[str] = ()) -> None:
    """Land them but for some, and others, each by itself."""
    files = [str(sample(name)) for name in (*NAMES, *more) if name not in but]
    assert run(["land", "--chain", "none", "-q", "--lake", str(lake), *files]) in (0, 3)
