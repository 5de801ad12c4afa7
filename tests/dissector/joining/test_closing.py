"""Captures landed apart and joined have the rows of the whole; on whatever places they are cut."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dissector.joining.closing import CLOSED
from dissector.joining.links import Plan
from dissector.lake.reader import open_lake
from tests.dissector.joining.cutting import (
    Cut,
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
CUTS = 2
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
            return {table: lake.table(table) for table in CLOSED}


def differences(cut: Cut, plan: Plan, root: Path, *, is_exact: bool) -> None:
    """See that what differs from the whole is due to frames that straddle."""
    with open_lake(root / "lake") as lake:
        found = closed(lake, plan, root / "closed")
        straddling = [
            row for row in lake.table("frames").to_pylist() if row["status"] == "cut_by_end"
        ]
    is_named = is_exact or not any(map(is_lost, straddling))
    for table in CLOSED:
        names = None if is_named else OWN[table]
        mine, theirs = rows_of(found[table], names), rows_of(whole(cut.name)[table], names)
        for rows in (theirs - mine, mine - theirs):
            assert rows.total() <= len(straddling), (cut, table, rows)


def landed(name: str, places: Iterable[int], root: Path) -> tuple[Cut, Plan]:
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


def test_frames_that_were_sent_again_at_a_border_count_once(tmp_path: Path) -> None:
    _, plan = landed("node-flex.pcap", [72], tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        assert closed(lake, plan, tmp_path / "closed")["left_out"].num_rows == 3


@settings(max_examples=12)
@given(name=st.sampled_from(NAMES), places=st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_only_frames_that_straddle_a_cut_differ(name: str, places: list[float]) -> None:
    last = len(packets(read(name))) - 1
    cuts = sorted({1 + int(place * (last - 2)) for place in places})
    with TemporaryDirectory() as folder:
        root = Path(folder)
        cut, plan = landed(name, cuts, root)
        assume(plan.captures == set(cut.captures))  # not cut within a handshake
        differences(cut, plan, root, is_exact=False)
