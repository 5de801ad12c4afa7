"""Which samples `make test` looks at where `make test-all` looks at all of them.

They are not picked by hand: what each sample shows is counted, and the fewest are taken that show
all of it together. Of examples that are drawn it is the first.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

# Set by `make test-all`, which runs at night.
LOOKS_AT_ALL: Final = bool(os.environ.get("DISSECTOR_ALL_SAMPLES"))


def examples(all_of_them: int, few: int) -> int:
    """How many examples of a property are drawn, where each of them costs much."""
    return all_of_them if LOOKS_AT_ALL else few


def covering(
    shown: Mapping[str, Collection[Any]], cost: Callable[[str], float] = lambda name: 0
) -> list[str]:
    """The names of a few samples that show all that any of them shows, in order; all of them where
    all are looked at.

    The next one is always that which shows most of what is not shown yet, of these the cheapest.
    shown: by name.
    """
    if LOOKS_AT_ALL:
        return sorted(shown)
    left = {each for some in shown.values() for each in some}
    chosen: list[str] = []
    costs = {name: cost(name) for name in shown}
    while left:
        best = min(
            shown, key=lambda name: (-len(left.intersection(shown[name])), costs[name], name)
        )
        chosen.append(best)
        left -= {*shown[best]}
    return sorted(chosen)
