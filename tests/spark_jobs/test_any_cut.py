"""A capture cut at any packets and joined again has the rows of the whole, without Spark."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed")

from tests.spark_jobs import plainly
from tests.spark_jobs.cutting import packets, parts, plain, read

# Acknowledgements and redeliveries, chunks, a transaction, a consumer that was killed, resends, and
# packets that were lost or sent again; groups and transactions of Cursus.
NAMES = (
    "java-j12_nack.pcap", "java-j05_chunk64k_zstd.pcap.gz", "java-j61_txn_abort.pcap",
    "cpp-c40_killed_Shared.pcap", "java-j74_corrupt.pcap", "node-flex.pcap",
    "../cursus/go-consume_polling.pcap", "../cursus/go-group_rebalance_two_consumers.pcap",
    "../cursus/go-transactions.pcap",
)  # fmt: skip


# What a row says that no other frame decides: the rest may hang on a frame that was lost.
OWN = {
    "exchanges": ("kind", "request_command", "request_bytes", "sequence_id", "producer_id"),
    "deliveries": ("consumer_id", "ledger_id", "entry_id", "redelivery_count", "batch_size"),
    "permits": ("consumer_id", "event", "delta"),
}


@cache
def whole(name: str) -> tuple[bytes, plainly.Rows]:
    data = read(name)
    return data, plainly.dissected(data)


def compared(rows: list[Any], names: Iterable[str]) -> Counter[Any]:
    # How far the log reaches is known to each capture by itself.
    return plain(({name: row.get(name) for name in names} for row in rows), ["lag"])


def cut_frames(rows: plainly.Rows) -> list[plainly.Row]:
    return [row for row in rows["frames"] if row["status"] == "cut_by_end"]


def is_lost(frame: plainly.Row) -> bool:
    """Whether a frame that straddles a cut is lost: it does not say whose it is."""
    if frame["protocol"] == "cursus":
        return frame["command"] is None
    return frame["producer_id"] is None and frame["consumer_id"] is None


@settings(max_examples=30)
@given(name=st.sampled_from(NAMES), places=st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_only_frames_that_straddle_a_cut_differ(name: str, places: list[float]) -> None:
    data, found = whole(name)
    last = len(packets(data)) - 1
    cuts = sorted({1 + int(place * (last - 2)) for place in places})
    captures = {
        f"c-{number}": plainly.dissected(part) for number, part in enumerate(parts(data, cuts))
    }
    straddling = [frame for rows in captures.values() for frame in cut_frames(rows)]
    joined = plainly.joined(captures)
    for table in plainly.TABLES:
        names = OWN[table] if any(map(is_lost, straddling)) else (found[table] or [{}])[0].keys()
        mine, theirs = compared(joined[table], names), compared(found[table], names)
        missing, more = theirs - mine, mine - theirs
        assert missing.total() <= len(straddling), (cuts, table, missing)
        assert more.total() <= len(straddling), (cuts, table, more)
