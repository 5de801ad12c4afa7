"""Captures that are stitched have the rows of the whole, in every column but those of places."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dissector.joining import stitching
from dissector.joining.closing import CLOSED, SCHEMAS, Target, close_group
from dissector.joining.files import JoinSettings, files_of
from dissector.joining.planning import parts_of
from dissector.lake.reader import open_lake
from tests.busy.traffic import Size, write_capture
from tests.dissector.joining.cutting import (
    SAMPLES,
    as_read,
    by_client,
    closed,
    cut_places,
    land,
    parts,
    planned,
    read,
)
from tests.dissector.joining.test_closing import rows_of, whole
from tests.dissector.lake.older_versions import as_version_2
from tests.dissector.observed import CAPTURES
from tests.dissector.test_lost_packets import whole as sample_of
from tests.dissector.test_one_direction import one_way
from tests.hard.tape import TOPIC, Tape, capture, simple
from tests.split import quiet_places

# Sample, in how many parts, by a seed: acks, nacks, transactions, refusals, chunks, a killed
# consumer, resends, lost packets, ids that are used again.
CUTS = (
    ("java-j24_unload.pcap", 3, 1),
    ("java-j12_nack.pcap", 2, 2),
    ("java-j61_txn_abort.pcap", 2, 3),
    ("../threads/t07-txn-ack-conflict.pcap", 3, 4),
    ("cpp-c40_killed_Shared.pcap", 2, 5),
    ("mut-loss1-java-j24_unload.pcap", 3, 6),
    ("node-flex.pcap", 2, 7),
    ("../pulsar/cpp-s15_errors.pcap", 3, 8),
    ("../cursus/go-transactions.pcap", 2, 9),
)


def landed(root: Path, contents: Sequence[bytes]) -> Path:
    for number, content in enumerate(contents):
        land(content, f"part{number}", root / "lake", root)
    return root / "lake"


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def joined(lake: Path, folder: Path, *, is_small: bool = True) -> dict[str, pa.Table]:
    with open_lake(lake) as opened:
        plan = planned(opened)
        assert plan.groups
        return closed(opened, plan, folder, is_small=is_small)


def check(one: dict[str, pa.Table], other: dict[str, pa.Table], but: Sequence[str] = ()) -> None:
    for name in SCHEMAS:
        columns = [each for each in one[name].column_names if each not in but]
        mine, theirs = rows(one[name].select(columns)), rows(other[name].select(columns))
        assert (mine - theirs, theirs - mine) == (Counter(), Counter()), name


@pytest.mark.parametrize(("name", "count", "seed"), CUTS)
def test_parts_have_the_rows_of_the_whole(name: str, count: int, seed: int, tmp_path: Path) -> None:
    """Cut where no frame is under way, so that nothing is lost."""
    data = read(name)
    land(data, "whole", tmp_path / "whole", tmp_path)
    quiet = quiet_places(data, tmp_path / "whole")
    cuts = sorted(random.Random(seed).sample(quiet, count - 1))
    tables = joined(landed(tmp_path, parts(data, cuts)), tmp_path / "joined")
    for table in CLOSED:
        assert rows_of(tables[table]) == rows_of(whole(name)[table]), table


# An unload, seeks, refusals, an unload with lost packets.
ONE_WAY = (
    "java-j24_unload.pcap",
    "java-j21_seek.pcap",
    "../pulsar/fake-f02_errors.pcap",
    "mut-loss1-java-j24_unload.pcap",
)


@pytest.mark.parametrize("name", ONE_WAY)
def test_parts_without_the_broker_have_the_rows_of_the_whole(name: str, tmp_path: Path) -> None:
    path = (SAMPLES / name).resolve().relative_to(CAPTURES)
    data = one_way(*sample_of(str(path)), "to_broker")
    land(data, "whole", tmp_path / "whole", tmp_path)
    with open_lake(tmp_path / "whole") as lake:
        theirs = {table: lake.table(table) for table in (*CLOSED, "producers", "consumers")}
    cuts = sorted(random.Random(3).sample(quiet_places(data, tmp_path / "whole"), 2))
    tables = joined(landed(tmp_path, parts(data, cuts)), tmp_path / "joined")
    for table in CLOSED:
        assert rows_of(tables[table]) == rows_of(theirs[table]), table
    columns = ["incarnation", "closed_by", "topic", "name"]
    for table in ("producers", "consumers"):
        assert rows(tables[table].select(columns)) == rows(theirs[table].select(columns))


def test_a_part_without_the_broker_takes_a_repeated_opening_for_a_new_one(tmp_path: Path) -> None:
    tape = Tape()
    tape.open()
    tape.connect()
    subscribe = simple("SUBSCRIBE", topic=TOPIC, subscription="s", subType="Shared",
                       consumer_id=1, request_id=7)  # fmt: skip
    tape.frame(True, subscribe)
    tape.frame(False, simple("SUCCESS", request_id=7))
    cuts = [len(tape.packets)]
    for frame in (simple("FLOW", consumer_id=1, messagePermits=5), subscribe):
        tape.frame(True, frame, is_acked=False)
    cuts.append(len(tape.packets))
    tape.frame(False, simple("SUCCESS", request_id=7))
    tape.frame(True, simple("FLOW", consumer_id=1, messagePermits=5))
    pieces = parts(capture(tape.records()), cuts)
    land(pieces[1], "alone", tmp_path / "alone", tmp_path)
    with open_lake(tmp_path / "alone") as lake:
        alone = lake.table("consumers").to_pylist()
        assert [(row["incarnation"], row["closed_by"]) for row in alone] == [
            (0, None), (1, "capture_end"),
        ]  # fmt: skip
    tables = joined(landed(tmp_path, pieces), tmp_path / "joined")
    (row,) = tables["consumers"].to_pylist()
    assert (row["incarnation"], row["closed_by"]) == (0, "capture_end")
    assert {row["incarnation"] for row in tables["permits"].to_pylist()} == {0}


def test_what_is_planned_for_many_rows_is_the_same(tmp_path: Path) -> None:
    data = read("java-j61_txn_abort.pcap")
    lake = landed(tmp_path, parts(data, cut_places(data, 2, 5)))
    few, many = (joined(lake, tmp_path / str(is_few), is_small=is_few) for is_few in (True, False))
    for name in SCHEMAS:
        assert few[name].equals(many[name]), name


def test_connections_that_share_nothing_are_left_as_they_are(tmp_path: Path) -> None:
    """Of two taps: producers by one of them, what they sent is got at the other; all that is made
    again of connections that lie in one capture is when that was sent."""
    write_capture(tmp_path / "busy.pcap", Size(4000))
    data = (tmp_path / "busy.pcap").read_bytes()
    land(data, "whole", tmp_path / "whole", tmp_path)
    with open_lake(tmp_path / "whole") as lake:
        rows = {name: lake.table(name) for name in (*CLOSED, "connections", "consumers")}
    of_consumers = {row["connection_id"] for row in rows["consumers"].to_pylist()}
    ports = {
        row["client_port"]
        for row in rows["connections"].to_pylist()
        if row["connection_id"] in of_consumers
    }
    lake_of_two = landed(tmp_path, by_client(data, ports.__contains__))
    with open_lake(lake_of_two) as lake:
        (part,) = parts_of(planned(lake))
        target = Target(tmp_path / "told", "group")
        counts = close_group(files_of(lake, part.captures), part, target, JoinSettings())
        assert counts["exchanges"] == counts["permits"] == counts["consumers"] == 0
        assert counts["untouched"] == rows["connections"].num_rows == 16
        assert counts["deliveries"] == rows["deliveries"].num_rows > 0
        tables = as_read(tmp_path / "told", lake)
    for name in CLOSED:
        assert rows_of(tables[name]) == rows_of(rows[name]), name


def test_captures_without_events_have_their_holes_of_notices(tmp_path: Path) -> None:
    """What acknowledges a hole is in no row of theirs: it may touch one exchange more, or less."""
    data = read("mut-loss1-java-j24_unload.pcap")
    lake = landed(tmp_path, parts(data, cut_places(data, 2, 6)))
    new = joined(lake, tmp_path / "new")
    with open_lake(lake) as opened:
        first = opened.captures[0].capture_id
    for lakes, name in ((as_version_2(lake, first), "mixed"), (as_version_2(lake), "old")):
        check(joined(lakes, tmp_path / name), new, but=("tainted", "outstanding_before"))


def test_every_step_is_statements_that_make_something() -> None:
    made: list[Any] = []
    for step in ("before", "untouched", "whole", *stitching.STEPS, "boundary"):
        for statement in stitching.statements(step):
            assert statement.startswith(("CREATE ", "INSERT INTO whole.before_"))
            made.append(statement.partition("(")[0].split("AS\n")[0].split(" AS ")[0])
    assert len(made) == len(set(made)) > 60
