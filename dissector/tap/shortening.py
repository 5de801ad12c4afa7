"""Names of topics for a narrow column: shortened where they are alike, never to the same text."""

from collections.abc import Sequence
from typing import Final

ELLIPSIS: Final = "…"
# How much of a name's beginning stays, as a part of the room; the end tells topics apart, mostly.
_HEADS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def common_folder(names: Sequence[str]) -> str:
    """What all names begin with, up to a slash: persistent://public/default/. Of one name it is
    all but its last part."""
    folders = [name.split("/")[:-1] for name in names if "/" in name]
    shared = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}/" for part in shared)


def shortened(names: Sequence[str], width: int) -> list[str]:
    """The names, none longer than a width, different ones different.

    Args:
        width: characters, at least 8.
    """
    assert width >= 8, "there must be room for something"
    for share in _HEADS:
        head = int(share * (width - 1))
        names_cut = [_cut(name, width, head) for name in names]
        if len(set(names_cut)) == len(set(names)):
            return names_cut
    # They differ somewhere in the middle alone: a number tells them apart.
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names), 1)}
    return [
        name if len(name) <= width else f"{_cut(name, width - len(mark), 0)}{mark}"
        for name in names
        for mark in (f"#{numbers[name]}",)
    ]


def _cut(name: str, width: int, head: int) -> str:
    if len(name) <= width:
        return name
    tail = width - 1 - head
    return f"{name[:head]}{ELLIPSIS}{name[len(name) - tail :]}"
