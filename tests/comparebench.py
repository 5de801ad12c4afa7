"""How often `compare` is wrong, and what it finds: python -m tests.comparebench [--pairs N].

Makes pairs of runs (tests/runs.py) and injects changes of latency of 0, 1, 5 and 20 % into the
second one. A false alarm is a comparison of equal runs with any verdict but `no evidence`; found is
a change if a statistic of send latency is called worse.
"""

import argparse
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dissector.compare.comparing import compared
from tests.runs import Story, made

CHANGES: Final = (0.0, 0.01, 0.05, 0.20)
STORIES: Final = {
    "quick drift": Story(),
    "slow drift": Story(drift_s=3.0, drift=0.05),
    "stalls": Story(stalls=0.5, drift=0.05),
    "short": Story(sends=1_000, seconds=20.0),
    "long": Story(sends=100_000, seconds=2_000.0),
}


class Comparisons(NamedTuple):
    """What comparisons said. alarms: of equal runs, any; found: worse send latency; tests: all."""

    pairs: int
    alarms: int
    found: int
    tests: int


def compare(story: Story, change: float, seeds: range) -> Iterator[dict[str, Any]]:
    """Comparisons of pairs; each seed is one, and its runs have seeds of their own."""
    for seed in seeds:
        before = made(2 * seed, story)
        yield compared(before, made(2 * seed + 1, story._replace(later=change)))


def judged(story: Story, change: float, seeds: range) -> Comparisons:
    """What comparisons of pairs said."""
    alarms = found = tests = 0
    for result in compare(story, change, seeds):
        counts = result["verdicts"]
        alarms += counts["worse"] + counts["better"] > 0
        worse = [row["metric"] for row in result["metrics"] if row["verdict"] == "worse"]
        found += any(name.startswith("send_latency") for name in worse)
        tests += result["tests"]
    return Comparisons(len(seeds), alarms, found, tests)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", action="append", choices=sorted(STORIES))
    parser.add_argument("--first", type=int, default=0, help="seed of the first pair")
    chosen = parser.parse_args()
    print("| runs | change | pairs | alarms | found | tests per pair |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in chosen.only or STORIES:
        for change in CHANGES:
            seeds = range(chosen.first, chosen.first + chosen.pairs)
            comparisons = judged(STORIES[name], change, seeds)
            alarms = f"{comparisons.alarms}" if change == 0 else ""
            right = f"{comparisons.found}" if change else ""
            print(
                f"| {name} | {change * 100:g} % | {comparisons.pairs} | {alarms} | {right} | "
                f"{comparisons.tests / comparisons.pairs:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
