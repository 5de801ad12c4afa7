"""Distinct messages: which sequence ids a producer sent, as runs, and how many messages they are.

A message that was sent again keeps its sequence id, so messages published are counted by distinct
ids, each with the largest message_count seen for it. Ids usually rise by the number of messages
of the entry before, so a run of ids first, first + n, … last with n messages each is one row here,
however long it is. Runs may overlap; that is settled when the messages are counted.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dissector.blocks import Int64Array

LEAF: Final = 0  # who sent it: a number given by the caller
FIRST: Final = 1
LAST: Final = 2
COUNT: Final = 3  # messages per id; the ids of the run are max(1, COUNT) apart


def _step(counts: Int64Array) -> Int64Array:
    return np.maximum(counts, 1)


def runs_of(leaves: Int64Array, ids: Int64Array, counts: Int64Array) -> Int64Array:
    """Runs int64[4, runs] of rows: leaf, sequence id and message_count (0 where unknown)."""
    order = np.lexsort((counts, ids, leaves))
    leaf, first, count = leaves[order], ids[order], counts[order]
    # Equal ids lie together, the largest count last.
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (leaf[1:] != leaf[:-1]) | (first[1:] != first[:-1])
    leaf, first, count = leaf[is_last], first[is_last], count[is_last]
    return join_runs(np.stack((leaf, first, first, count)))


def join_runs(runs: Int64Array) -> Int64Array:
    """The same runs with those joined that continue each other, by leaf and first id."""
    if runs.shape[1] < 2:
        return runs
    runs = runs[:, np.lexsort((runs[COUNT], runs[LAST], runs[FIRST], runs[LEAF]))]
    with np.errstate(over="ignore"):
        continues = (
            (runs[LEAF][1:] == runs[LEAF][:-1])
            & (runs[COUNT][1:] == runs[COUNT][:-1])
            & (runs[FIRST][1:] == runs[LAST][:-1] + _step(runs[COUNT][:-1]))
        )
    starts = np.flatnonzero(np.concatenate(([True], ~continues)))
    ends = np.append(starts[1:], runs.shape[1]) - 1
    return np.stack(
        (runs[LEAF][starts], runs[FIRST][starts], runs[LAST][ends], runs[COUNT][starts])
    )


def _members(run: Int64Array) -> tuple[Int64Array, Int64Array]:
    """All ids of a run int64[4], and their message_count."""
    step = max(1, int(run[COUNT]))
    ids = np.arange((int(run[LAST]) - int(run[FIRST])) // step + 1, dtype=np.int64) * step
    return ids + run[FIRST], np.full(len(ids), run[COUNT], np.int64)


def _cluster_messages(runs: Int64Array) -> int:
    """Messages of runs that overlap."""
    if (runs[COUNT] == 1).all():
        return int(runs[LAST].max()) - int(runs[FIRST].min()) + 1
    members = [_members(run) for run in runs.T]
    ids = np.concatenate([ids for ids, _ in members])
    counts = np.concatenate([counts for _, counts in members])
    order = np.lexsort((counts, ids))
    ids, counts = ids[order], counts[order]
    is_last = np.append(ids[1:] != ids[:-1], True)
    return int(counts[is_last].sum())


def messages(runs: Int64Array) -> int:
    """Messages of runs int64[4, runs] of one producer, each id once with its largest count."""
    if runs.shape[1] == 0:
        return 0
    order = np.argsort(runs[FIRST], kind="stable")
    runs = runs[:, order]
    reach = np.maximum.accumulate(runs[LAST])
    breaks = np.flatnonzero(runs[FIRST][1:] > reach[:-1]) + 1
    starts = np.concatenate(([0], breaks))
    ends = np.append(breaks, runs.shape[1])
    is_alone = ends - starts == 1
    alone = runs[:, starts[is_alone]]
    total = int((((alone[LAST] - alone[FIRST]) // _step(alone[COUNT]) + 1) * alone[COUNT]).sum())
    for start, end in zip(starts[~is_alone], ends[~is_alone], strict=True):
        total += _cluster_messages(runs[:, start:end])
    return total


class SequenceRuns:
    """The runs of all producers of a capture, within a bound.

    limit: runs kept; rows beyond it are counted without looking for repeats (`left_out`).
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.left_out = 0
        self._parts: list[Int64Array] = []
        self._runs = 0
        self._settled = 0

    def add(self, leaves: Int64Array, ids: Int64Array, counts: Int64Array) -> None:
        """Take in sends: who, sequence id, message_count (0 where unknown)."""
        if len(ids) == 0:
            return
        runs = runs_of(leaves, ids, counts)
        self._parts.append(runs)
        self._runs += runs.shape[1]
        if self._runs > 2 * self._settled + 20_000:
            self._settle()

    def _settle(self) -> Int64Array:
        if not self._parts:
            return np.zeros((4, 0), np.int64)
        runs = join_runs(np.concatenate(self._parts, axis=1))
        if runs.shape[1] > self.limit:
            self.left_out += runs.shape[1] - self.limit
            runs = runs[:, : self.limit]
        self._parts = [runs]
        self._runs = self._settled = runs.shape[1]
        return runs

    def messages(self, groups: Sequence[int] | npt.NDArray[np.int64]) -> dict[int, int]:
        """Distinct messages per group. groups: int64[leaves], the group of each leaf, -1 = none."""
        runs = self._settle()
        if runs.shape[1] == 0:
            return {}
        owner = np.asarray(groups, np.int64)[runs[LEAF]]
        runs, owner = runs[:, owner >= 0], owner[owner >= 0]
        order = np.argsort(owner, kind="stable")
        runs, owner = runs[:, order], owner[order]
        if not len(owner):
            return {}
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
        ends = np.append(starts[1:], len(owner))
        return {
            int(owner[start]): messages(runs[:, start:end])
            for start, end in zip(starts, ends, strict=True)
        }
