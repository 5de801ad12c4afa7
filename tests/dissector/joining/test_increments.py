"""Groups in increments: the same rows as at once, and nothing that lands behind one changes it."""

import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from dissector.joining import links, stitching, survey
from dissector.joining.closing import CLOSED, SCHEMAS, IncrementContext, Target, close_group
from dissector.joining.files import JoinSettings, digests, files_of
from dissector.joining.increments import CaptureSizes, Increment, increments
from dissector.joining.links import JoinPlan
from dissector.joining.planning import parts_of
from dissector.lake.reader import Lake, open_lake
from tests.choosing import examples
from tests.dissector.joining.cutting import (
    as_read,
    by_client,
    cut_places,
    land,
    land_cut,
    parts,
    planned,
    read,
)
from tests.dissector.joining.test_closing import rows_of as plain_rows
from tests.dissector.joining.test_links import S, row
from tests.dissector.joining.test_planning import chain_of
from tests.dissector.joining.test_planning import planned as planned_rows

DAY = 86_400 * S
LEAVE = stitching.leave_untouched
Rows = dict[str, Counter[Any]]


def nights(count: int, rows: int = 10) -> tuple[JoinPlan, CaptureSizes]:
    """A connection over so many nights, with so many rows in each."""
    connections = chain_of(count)
    for number, each in enumerate(connections):
        each |= {"first_ts_ns": number * DAY, "last_ts_ns": number * DAY + DAY - S}
        each |= {"started": "midstream" if number else "syn", "ended": "capture_end"}
    (part,) = parts_of(planned_rows(connections))
    spans = {each["capture"]: (each["first_ts_ns"], each["last_ts_ns"]) for each in connections}
    return part, CaptureSizes(spans, dict.fromkeys(spans, rows), {n: n for n in spans}, frozenset())


def captures(found: list[Increment]) -> list[int]:
    return [len(each.captures) for each in found]


def test_a_group_is_cut_where_it_has_rows_enough_and_only_there() -> None:
    part, known = nights(7)
    for bound, expected in ((1, [1] * 7), (20, [2, 2, 2, 1]), (25, [3, 3, 1]), (71, [7])):
        groups = increments(part, known, bound)
        assert captures(groups) == expected
        assert sum((each.captures for each in groups), ()) == part.groups[0].captures
        assert [each.is_last for each in groups] == [False] * (len(groups) - 1) + [True]
    assert captures(increments(part, known, 70)) == [7], "an increment without captures is none"
    whole = known._replace(whole=frozenset(["k3"]))
    assert captures(increments(part, whole, 1)) == [7], "Cursus stays in one piece"


def test_what_lands_later_does_not_change_a_increment_with_another_behind_it() -> None:
    before = increments(*nights(2), 20)
    for count in range(3, 9):
        groups = increments(*nights(count), 20)
        assert groups[: len(before) - 1] == before[:-1], count
        assert groups[-1].digest != before[-1].digest
        before = groups
    part, known = nights(8)
    changed = known._replace(digests=known.digests | {"k3": "other"})
    same = [
        one.digest == other.digest
        for one, other in zip(before, increments(part, changed, 20), strict=True)
    ]
    assert same == [True, False, False, False], "what comes before counts"


@pytest.mark.parametrize(("pause", "is_soon"), [(0, True), (DAY, False)])
def test_only_what_goes_on_soon_counts_for_the_end_of_an_increment(
    pause: int, is_soon: bool
) -> None:
    """One connection goes on in each capture, another one is silent in the second."""
    silent = [each | {"connection_key": "b", "connection_id": 1} for each in chain_of(2)]
    silent[1]["capture"] = "k2"
    rows = [*chain_of(3), *silent]
    for each in rows:
        begin = int(each["capture"][1]) * (10 * S + pause)
        each |= {"first_ts_ns": begin, "last_ts_ns": begin + 9 * S, "ended": "capture_end"}
    (part,) = parts_of(planned_rows(rows))
    spans = {each["capture"]: (each["first_ts_ns"], each["last_ts_ns"]) for each in rows}
    known = CaptureSizes(spans, dict.fromkeys(spans, 1), {n: n for n in spans}, frozenset())
    first, second, third = increments(part, known, 1)
    assert first.near == ({"k1", "k2"} if is_soon else {"k1"})
    assert first.later == ((("k0", 0), ("k0", 1)) if is_soon else (("k0", 0),))
    assert second.later == (("k0", 0), ("k0", 1))
    assert third.part.moved == {("k2", 0): ("k0", 0), ("k2", 1): ("k0", 1)}


def test_captures_that_lasted_at_the_same_time_are_not_cut_apart() -> None:
    rows = [
        row(name, connection_key=name, first_ts_ns=first * S, last_ts_ns=last * S)
        for name, first, last in (("a", 0, 10), ("b", 8, 12), ("c", 12, 20), ("d", 11, 30))
    ]
    spans = {each["capture"]: (each["first_ts_ns"], each["last_ts_ns"]) for each in rows}
    names = list(spans)
    (part,) = parts_of(links.plan(rows, spans, [names]))
    known = CaptureSizes(spans, dict.fromkeys(names, 9), {n: n for n in names}, frozenset())
    assert part.groups[0].captures == ("a", "b", "d", "c") and not part.groups[0].is_in_turn
    assert captures(increments(part, known, 1)) == [4]
    apart = known._replace(spans=spans | {"b": (10 * S, 11 * S)})
    groups = increments(part, apart, 1)
    assert captures(groups) == [1, 1, 2]
    assert [each.part.groups[0].is_in_turn for each in groups] == [True, True, False]


def known_of(lake: Lake) -> CaptureSizes:
    """What decides where captures of a lake are cut; one row each."""
    names = digests(lake.captures)
    known = survey.known(files_of(lake, frozenset(names)), JoinSettings())
    return CaptureSizes(
        survey.capture_spans(known.files), dict.fromkeys(names, 1), names, frozenset()
    )


def closed_in_increments(lake: Lake, part: JoinPlan, folder: Path, bound: int) -> int:
    """Close a group in increments; how many there were."""
    groups = increments(part, known_of(lake), bound)
    targets = [Target(folder, f"{number:03}") for number in range(len(groups))]
    for number, each in enumerate(groups):
        near = files_of(lake, each.near) if each.near else None
        before = tuple(targets[:number])
        close_group(
            files_of(lake, frozenset(each.captures)), each.part, targets[number],
            JoinSettings(), IncrementContext(each.before, before, near, each.later, each.is_last),
        )  # fmt: skip
    return len(groups)


def rows_of(folder: Path) -> Rows:
    """The rows of every table, the sums of changes as one number each."""
    rows: Rows = {}
    for name in SCHEMAS:
        counts = rows[name] = Counter()
        for path in (folder / name).glob("*.parquet"):
            for each in pq.ParquetFile(path).read().to_pylist():
                if name != "changes":
                    counts[repr(sorted(each.items()))] += 1
                    continue
                key = tuple(each.pop(n) for n in ("capture", "moment", "table", "value"))
                counts.update({(*key, n): number for n, number in each.items()})
    return {name: +counts for name, counts in rows.items()}


# Deliveries that are acked later, redelivered, of killed consumers; chunks; holes; boundaries with
# the same bytes on both sides; refusals, and transactions that end later.
@pytest.mark.parametrize(
    ("name", "cuts"),
    [
        ("java-j24_unload.pcap", 4), ("cpp-c40_killed_Shared.pcap", 3),
        ("java-j05_chunk64k_zstd.pcap.gz", 2), ("mut-loss1-java-j24_unload.pcap", (97, 561)),
        ("node-flex.pcap", (40, 72, 110)), ("java-j16_dlq_retry.pcap", 4),
        ("../threads/t04-sticky-range-conflict.pcap", 4), ("java-j61_txn_abort.pcap", 3),
    ],
)  # fmt: skip
def test_rows_of_increments_are_those_of_the_whole_group(
    name: str, cuts: int | tuple[int, ...], tmp_path: Path
) -> None:
    chance = random.Random(name)
    if isinstance(cuts, int):  # three increments at least: one comes before and one behind another
        cuts = tuple(cut_places(read(name), examples(cuts, 2), chance.randrange(99)))
    cut = land_cut(name, cuts, tmp_path / "lake", tmp_path)
    assert sum(closed_alike(tmp_path, chance)) > len(cut.captures) // 2


def test_increments_of_captures_at_once_have_the_rows_of_the_whole_group(tmp_path: Path) -> None:
    """Of two hosts: what one consumer had not acknowledged when it was killed the other one got."""
    data = read("cpp-c40_killed_Shared.pcap")
    for number, part in enumerate(parts(data, cut_places(data, 2, seed=4))):
        for host, each in enumerate(by_client(part, lambda port: port % 3 > 0)):
            land(each, f"night{number}-host{host}", tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        assert not planned(lake).groups[0].is_in_turn
    assert closed_alike(tmp_path, random.Random(1))[0] > 3


def all_touched(db: Any, *, is_complete: bool) -> None:
    """Rows of all connections are made again."""
    LEAVE(db, is_complete=False)


def closed_alike(root: Path, chance: random.Random) -> list[int]:
    """See that increments have the rows of each group of a lake, and that what is left as it is
    does not differ from what is made again; how many captures the groups have."""
    with open_lake(root / "lake") as lake:
        groups = parts_of(planned(lake))
        for number, part in enumerate(groups):
            source = files_of(lake, part.captures)
            target = Target(root / f"at-once-{number}", "group")
            with patch.object(stitching, "leave_untouched", all_touched):
                close_group(source, part, target, JoinSettings())
            bound = chance.choice((1, 1, 2))
            assert closed_in_increments(lake, part, root / f"cut-{number}", bound) > 1
            whole = rows_of(target.folder)
            assert rows_of(root / f"cut-{number}") == whole
            left = Target(root / f"left-{number}", "group")
            close_group(source, part, left, JoinSettings())
            assert rows_of(left.folder)["changes"] == whole["changes"]
            mine, theirs = (as_read(each.folder, lake) for each in (left, target))
            for name in CLOSED:
                assert plain_rows(mine[name]) == plain_rows(theirs[name]), name
            assert number or whole["exchanges"].total() > 5
    return [len(part.captures) for part in groups]
