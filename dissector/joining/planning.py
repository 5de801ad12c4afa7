"""The cache partitions of a lake: its groups of captures (`links`), and captures without a group.

The results of a partition depend on its own rows alone, so they are cached until it changes.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from dissector.joining.files import digest_of
from dissector.joining.links import ConnectionId, Handover, JoinPlan
from dissector.joining.survey import capture_spans
from dissector.lake.cache import CachePartition

# It steps when the meaning of rows that joining or a survey writes changes.
VERSION: Final = "5"


def cache_partitions(whole: JoinPlan, captures: Mapping[str, str]) -> list[CachePartition]:
    """The cache partitions of all captures. A partition's digest covers all inputs of its rows.

    Args:
        captures: their digests by name.
    """
    partitions = []
    handovers: dict[str, list[Handover]] = defaultdict(list)
    for handover in whole.handovers:
        handovers[handover.after[0]].append(handover)
    for group in whole.groups:
        content = [
            VERSION,
            [(name, captures[name]) for name in group.captures],
            [list(group.floors), group.is_in_turn],
            sorted(
                (*each[:3], each.missing or 0, each.missing is None)
                for name in group.captures
                for each in handovers[name]
            ),
        ]
        partitions.append(CachePartition(digest_of(content), group.captures))
    proxy_peers: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for key in sorted(whole.proxy_peers):
        proxy_peers[key[0]].append((key[1], key in whole.copied))
    for name in sorted(captures.keys() - whole.captures):
        content = [VERSION, name, captures[name], proxy_peers[name]]
        partitions.append(CachePartition(digest_of(content), (name,)))
    return partitions


def parts_of(whole: JoinPlan) -> list[JoinPlan]:
    """The plan of each group, in the order of groups."""
    numbers = {name: index for index, group in enumerate(whole.groups) for name in group.captures}
    moved: list[dict[ConnectionId, ConnectionId]] = [{} for _ in whole.groups]
    for key, head in whole.moved.items():
        moved[numbers[key[0]]][key] = head
    handovers: list[list[Handover]] = [[] for _ in whole.groups]
    for handover in whole.handovers:
        handovers[numbers[handover.after[0]]].append(handover)
    return [
        JoinPlan((group,), heads, tuple(some), ())
        for group, heads, some in zip(whole.groups, moved, handovers, strict=True)
    ]


def whole_spans(files: pa.Table, whole: JoinPlan) -> dict[str, tuple[int, int]]:
    """Times of the first and the last packet of each capture's group (or its own), ns; 0 if none.

    Args:
        files: rows of capture_files.
    """
    spans = capture_spans(files)
    for group in whole.groups:
        known = [spans[name] for name in group.captures if spans[name] != (0, 0)]
        span = (min(s[0] for s in known), max(s[1] for s in known)) if known else (0, 0)
        spans |= dict.fromkeys(group.captures, span)
    return spans
