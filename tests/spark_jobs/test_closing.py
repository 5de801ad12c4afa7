"""Captures landed apart and joined by Spark have the rows of the whole."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.lake.reader import open_lake
from spark_jobs import borders, closing, links, replay
from spark_jobs.planning import capture_spans
from spark_jobs.tables import OTHER_PLACES, LakeTables
from spark_jobs.workspace import Workspace
from tests.spark_jobs.cutting import Cut, cut_places, land, land_cut, plain, read

NAMES = (
    "java-j24_unload.pcap", "java-j12_nack.pcap", "java-j74_corrupt.pcap",
    "cpp-c40_killed_Shared.pcap", "java-j05_chunk64k_zstd.pcap.gz",
)  # fmt: skip
CUTS = 2
# Behind a packet that is sent again, in a hole's time, and in a message of unknown size.
SPECIAL = {
    "node-flex.pcap": 72, "mut-loss1-java-j24_unload.pcap": 561, "java-j74_corrupt.pcap": 92,
}  # fmt: skip
TABLES = ("exchanges", "deliveries", "permits")
Rows = Counter[tuple[Any, ...]]


class Closed(NamedTuple):
    """Every cut, and per table its rows apart and joined, those of the whole, and straddlers."""

    cuts: list[Cut]
    joined: dict[tuple[int, str], Rows]
    whole: dict[tuple[int, str], Rows]
    straddling: Counter[int]


def joined_plan(cuts: list[Cut], connections: list[Any], spans: Any) -> links.Plan:
    """One plan for many cuts: each is a group of its own, though some hold the same bytes."""
    groups, chains, heads, seams = [], {}, {}, []
    for number, cut in enumerate(cuts):
        mine = [row for row in connections if row["capture"] in cut.captures]
        found = links.plan(mine, {name: spans[name] for name in cut.captures})
        (group,) = found.groups
        groups.append(group._replace(number=number))
        chains |= found.chains
        heads |= {(number, chain): place for (_, chain), place in found.heads.items()}
        seams += found.seams
    return links.Plan(tuple(groups), chains, heads, tuple(seams), ())


def by_cut(rows: Any, number_of: dict[str, int]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.toArrow().to_pylist():
        found[number_of[row["capture"]]].append(row)
    return found


@pytest.fixture(scope="module")
def closed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Closed:
    root = tmp_path_factory.mktemp("closing")
    cuts, wholes = [], {}
    for name in dict.fromkeys((*NAMES, *SPECIAL)):
        data = read(name)
        wholes[land(data, f"{name.partition('.')[0]}-whole", root / "whole", root)] = name
        places = cut_places(data, CUTS, seed=7) if name in NAMES else []
        for place in [*places, *([SPECIAL[name]] if name in SPECIAL else [])]:
            cuts.append(land_cut(name, [place], root / "apart", root))
    numbers = {name: number for number, cut in enumerate(cuts) for name in cut.captures}
    with open_lake(root / "apart") as apart, open_lake(root / "whole") as whole:
        lake, other = LakeTables(spark, apart), LakeTables(spark, whole)
        connections = lake.read("connections").select(*links.COLUMNS).toArrow().to_pylist()
        files = lake.read("capture_files").select("capture", "first_ts_ns", "last_ts_ns")
        plan = joined_plan(cuts, connections, capture_spans(files.toArrow()))
        names = ("frames", "acks", "exchanges", "deliveries", "notices")
        tables = {name: lake.read(name) for name in names}
        twice = borders.left_out(tables["frames"], plan, connections)
        assert len(twice) == 3  # of the packet that was sent again
        for name in ("frames", "acks", "deliveries"):
            tables[name] = borders.without(tables[name], twice)
        found = closing.close(tables, plan, connections, Workspace(root / "work"))
        joined, truth = {}, {}
        for table in TABLES:
            more = [*OTHER_PLACES[table], "own_capture", "own_connection_id", "order_no"]
            mine = by_cut(found[table].drop(*more), numbers)
            places = {name: place for place, name in enumerate(wholes)}
            theirs = by_cut(other.read(table).drop(*more), places)
            for number, cut in enumerate(cuts):
                joined[number, table] = plain(mine[number])
                truth[number, table] = plain(theirs[list(wholes.values()).index(cut.name)])
        straddling = Counter(
            numbers[row["capture"]]
            for row in lake.read("frames").where("status = 'cut_by_end'").toArrow().to_pylist()
        )
    return Closed(cuts, joined, truth, straddling)


@pytest.mark.parametrize("table", TABLES)
def test_rows_joined_are_those_of_the_whole_but_for_frames_that_straddle(
    closed: Closed, table: str
) -> None:
    equal = 0
    for number, cut in enumerate(closed.cuts):
        missing = closed.whole[number, table] - closed.joined[number, table]
        more = closed.joined[number, table] - closed.whole[number, table]
        allowed = closed.straddling[number]
        assert missing.total() <= allowed and more.total() <= allowed, (cut, missing, more)
        equal += not missing and not more
    assert equal >= len(closed.cuts) - sum(1 for count in closed.straddling.values() if count)
    assert sum(rows.total() for (_, name), rows in closed.joined.items() if name == table) > 1000


def test_the_input_of_the_replay_is_ordered_by_turns_and_time(spark: Any) -> None:
    placed = spark.createDataFrame(
        [(0, 0, 0, False), (0, 1, 0, False), (1, 0, 0, True)],
        "group bigint, rank bigint, floor_ns bigint, is_in_turn boolean",
    )
    # group, rank, chain, frame_no, last_packet, last_ts_ns. Frame 3 of the first capture was held
    # back at its begin; the second capture lasted at the same time.
    given = [
        (0, 0, 1, 1, 5, 50), (0, 0, 1, 2, 7, 70), (0, 0, 0, 3, 2, 20), (0, 1, 0, 1, 1, 10),
        (0, 1, 0, 2, 2, 60), (1, 0, 0, 1, 3, 5), (1, 0, 0, 2, 1, 4),
    ]  # fmt: skip
    names = ("group", "rank", "chain", "frame_no", "last_packet", "last_ts_ns")
    rows = spark.createDataFrame(given, ", ".join(f"{name} bigint" for name in names))
    rows = closing._all_columns(rows, kind=closing.F.lit(replay.FRAME).cast("bigint"))
    found = closing.in_order(rows, placed).collect()
    first = [(row["rank"], row["frame_no"]) for row in found if row["group"] == 0]
    assert first == [(1, 1), (0, 3), (0, 1), (1, 2), (0, 2)]
    assert [row["frame_no"] for row in found if row["group"] == 1] == [1, 2]
