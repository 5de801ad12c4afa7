"""Shortens topic names for a narrow column; different names stay different."""

from collections.abc import Sequence
from typing import Final

ELLIPSIS: Final = "…"
# The share of the width for a name's beginning; mostly the end distinguishes topics.
_HEADS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def common_folder(names: Sequence[str]) -> str:
    """The common prefix of all names up to a slash: persistent://public/default/. For a single name
    all but its last part."""
    folders = [name.split("/")[:-1] for name in names if "/" in name]
    shared = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "".join(f"{part}/" for part in shared)


def shortened(names: Sequence[str], width: int) -> list[str]:
    """The names shortened to a width; different names stay different.

    Args:
        width: characters, at least 8.
    """
    assert width >= 8, "there must be room for something"
    for share in _HEADS:
        head = int(share * (width - 1))
        names_cut = [_cut(name, width, head) for name in names]
        if len(set(names_cut)) == len(set(names)):
            return names_cut
    # Names that differ only in the middle get a number.
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
