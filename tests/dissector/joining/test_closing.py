"""Captures landed apart and joined have the rows of the whole; on whatever places they are cut."""

import hashlib
import pickle
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dissector.joining import closing
from dissector.joining.closing import CLOSED, SCHEMAS, Target, close_group
from dissector.joining.files import FEW_ROWS, JoinSettings, digests, files_of
from dissector.joining.links import JoinPlan
from dissector.joining.planning import parts_of
from dissector.lake.reader import open_lake
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report.aggregation_cache import join_captures, survey_captures
from dissector.schemas.enums import BOTH_DIRECTIONS
from tests.choosing import examples
from tests.dissector.joining.cutting import (
    Cut,
    by_client,
    closed,
    cut_places,
    land,
    land_cut,
    packets,
    plain,
    planned,
    read,
)

Rows = Counter[tuple[Any, ...]]
CUTS = examples(2, 1)
# Acknowledgements and redeliveries, chunks, a transaction, a consumer that was killed, resends, and
# packets that were lost or sent again; groups and transactions of Cursus.
NAMES = (
    "java-j24_unload.pcap", "java-j12_nack.pcap", "java-j05_chunk64k_zstd.pcap.gz",
    "java-j61_txn_abort.pcap", "cpp-c40_killed_Shared.pcap", "java-j74_corrupt.pcap",
    "node-flex.pcap", "../cursus/go-consume_polling.pcap", "../cursus/go-transactions.pcap",
    "../cursus/go-group_rebalance_two_consumers.pcap",
)  # fmt: skip
# Behind a packet that is sent again, in a hole's time, and in a message of unknown size.
SPECIAL = {
    "node-flex.pcap": 72, "mut-loss1-java-j24_unload.pcap": 561, "java-j74_corrupt.pcap": 92,
}  # fmt: skip
# What a row says that no other frame decides: the rest may hang on a frame that was lost.
OWN = {
    "exchanges": ("kind", "request_command", "request_bytes", "sequence_id", "producer_id"),
    "deliveries": ("consumer_id", "ledger_id", "entry_id", "redelivery_count", "batch_size"),
    "permits": ("consumer_id", "event", "delta"),
}
# Where the frames of joined rows lie; and how far a log reaches, which each capture knows alone.
MORE = ("own_capture", "own_connection_id", "response_capture", "response_connection_id",
        "previous_capture", "ack_capture", "ack_connection_id", "order_no", "lag")  # fmt: skip


def rows_of(table: Any, names: tuple[str, ...] | None = None) -> Rows:
    rows = table.to_pylist()
    if names is not None:
        rows = [{name: row[name] for name in names} for row in rows]
    return plain(rows, MORE)


@cache
def whole(name: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        land(read(name), "whole", Path(folder) / "lake", Path(folder))
        with open_lake(Path(folder) / "lake") as lake:
            return {table: lake.table(table) for table in (*CLOSED, "connections")}


def differences(cut: Cut, plan: JoinPlan, root: Path, *, is_exact: bool) -> None:
    """See that what differs from the whole is due to frames that straddle."""
    with open_lake(root / "lake") as lake:
        tables = closed(lake, plan, root / "closed", is_small=not is_exact)
        straddling = [
            row for row in lake.table("frames").to_pylist() if row["status"] == "cut_by_end"
        ]
    is_named = is_exact or not any(map(is_lost, straddling))
    for table in CLOSED:
        names = None if is_named else OWN[table]
        mine, theirs = rows_of(tables[table], names), rows_of(whole(cut.name)[table], names)
        for rows in (theirs - mine, mine - theirs):
            assert rows.total() <= len(straddling), (cut, table, rows)


def landed(name: str, places: Iterable[int], root: Path) -> tuple[Cut, JoinPlan]:
    """A sample landed in parts, and what belongs together of them."""
    cut = land_cut(name, places, root / "lake", root)
    with open_lake(root / "lake") as lake:
        return cut, planned(lake)


def is_lost(frame: dict[str, Any]) -> bool:
    """Whether a frame that straddles a cut is lost: it does not say whose it is."""
    if frame["protocol"] == "cursus":
        return frame["command"] is None
    return frame["producer_id"] is None and frame["consumer_id"] is None


@pytest.mark.parametrize("name", [*NAMES[:6], *SPECIAL])
def test_rows_joined_are_those_of_the_whole_but_for_frames_that_straddle(
    name: str, tmp_path: Path
) -> None:
    places = [SPECIAL[name]] if name in SPECIAL else cut_places(read(name), CUTS, seed=7)
    for number, place in enumerate(places):
        root = tmp_path / str(number)
        root.mkdir()
        cut, plan = landed(name, [place], root)
        assert plan.captures == set(cut.captures)
        differences(cut, plan, root, is_exact=True)


def test_clients_of_one_broker_in_captures_of_their_own_are_one_by_their_messages(
    tmp_path: Path,
) -> None:
    """One consumer was killed, the other got what it held: no connection goes on, but entries
    with their checksums were delivered in both, at the same time."""
    name = "cpp-c40_killed_Shared.pcap"
    for number, part in enumerate(by_client(read(name), lambda port: port % 3 > 0)):
        land(part, f"part{number}", tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        plan = planned(lake)
        (group,) = plan.groups
        assert not group.is_in_turn and plan.handovers == ()
        tables = closed(lake, plan, tmp_path / "closed")
    for table in CLOSED:
        assert rows_of(tables[table]) == rows_of(whole(name)[table])
    elsewhere = [row for row in tables["deliveries"].to_pylist() if row["previous_capture"]]
    assert len(elsewhere) > 10


def test_frames_that_were_sent_again_at_a_border_count_once(tmp_path: Path) -> None:
    _, plan = landed("node-flex.pcap", [72], tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        tables = closed(lake, plan, tmp_path / "closed")
    assert tables["left_out"].num_rows == 3
    of_whole = whole("node-flex.pcap")["connections"]
    kinds = "frames", "stream_bytes", "decoded_bytes", "last_seq"
    names = ["connection_key", *(f"{kind}_{to}" for kind in kinds for to in BOTH_DIRECTIONS)]
    counts = tables["connections"].select(names).to_pylist()
    assert sorted(counts, key=str) == sorted(of_whole.select(names).to_pylist(), key=str)


def test_a_task_goes_to_another_process_and_writes_the_same_bytes(tmp_path: Path) -> None:
    """However many threads there are, and whether its queries are planned for few rows or many."""
    _, plan = landed("java-j24_unload.pcap", [203], tmp_path)
    (part,) = parts_of(plan)
    digests = []
    with open_lake(tmp_path / "lake") as lake:
        source = files_of(lake, part.captures)
        assert source.rows == lake.rows() <= FEW_ROWS
        for threads, rows in ((1, source.rows), (1, FEW_ROWS + 1), (2, FEW_ROWS + 1)):
            target = Target(tmp_path / f"{threads} {rows}", "group")
            task = (source._replace(rows=rows), part, target, JoinSettings(threads=threads))
            counts = close_group(*pickle.loads(pickle.dumps(task)))
            assert counts.keys() == SCHEMAS.keys() and counts["deliveries"] > 50
            files = [target.path(name).read_bytes() for name in SCHEMAS]
            digests.append([hashlib.sha256(data).hexdigest() for data in files])
    assert digests[0] == digests[1] == digests[2]


def test_joining_has_the_threads_and_the_memory_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed("java-j24_unload.pcap", [203], tmp_path)
    connect, had = duckdb.connect, []

    def connected(**options: Any) -> duckdb.DuckDBPyConnection:
        database = connect(**options)
        limits = "SELECT current_setting('threads'), current_setting('memory_limit')"
        had.append(database.execute(limits).fetchone())
        return database

    monkeypatch.setattr(closing, "FEW_ROWS", 0)  # few rows have one thread
    with open_lake(tmp_path / "lake") as lake, DuckdbEngine(tmp_path, 3, "300MiB") as engine:
        plan = survey_captures(lake, digests(lake.captures), None, tmp_path)
        monkeypatch.setattr(duckdb, "connect", connected)
        assert join_captures(engine, plan, plan.captures, tmp_path) is not None
    assert had == [(3, "300.0 MiB")]


@settings(max_examples=examples(12, 6))
@given(name=st.sampled_from(NAMES), places=st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_only_frames_that_straddle_a_cut_differ(name: str, places: list[float]) -> None:
    last = len(packets(read(name))) - 1
    cuts = sorted({1 + int(place * (last - 2)) for place in places})
    with TemporaryDirectory() as folder:
        root = Path(folder)
        cut, plan = landed(name, cuts, root)
        assume(plan.captures == set(cut.captures))  # not cut within a handshake
        differences(cut, plan, root, is_exact=False)
