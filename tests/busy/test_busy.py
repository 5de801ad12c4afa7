"""Made traffic holds what it says it holds: engines are measured, and held against its counts."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dissector.dissection import Options
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.busy.traffic import SUMS, Size, write_capture

Tables = dict[str, list[dict[str, Any]]]
# What is looked at. A table has a hundred columns: as Python values all of them take longer than
# to dissect them does.
COLUMNS = {
    "frames": ("command", "status", "checksum"),
    "connections": ("started", "ended"),
    "capture_files": ("packets",),
    "notices": ("code",),
    "deliveries": ("connection_id", "consumer_id", "message_count", "redelivery_count",
                   "is_redelivered", "subscription_type", "outcome"),
    "exchanges": ("request_command", "response_command", "message_count"),
    "messages": ("frame_no",),
    "permits": ("event", "delta", "available_after"),
    "acks": ("action", "ack_type", "remaining_in_batch", "frame_no", "request_id"),
}  # fmt: skip


def tables_of(path: Path) -> Tables:
    tables: Tables = {}
    (chain,) = chains([str(path)]).chains
    for block in dissect(chain, Options()):
        if block.table in COLUMNS:
            rows = arrow_batch(block).select(COLUMNS[block.table])
            tables.setdefault(block.table, []).extend(rows.to_pylist())
    return tables


@pytest.mark.parametrize(
    "size",
    [
        Size(2_600),
        Size(30_000, 40, 5_000),
        Size(45_000, message_bytes=(1_000,) * 4),
        Size(9_000, message_bytes=(200,) * 4, batch=100),
        Size(9_000, message_bytes=(200,) * 4, batch=100, is_lz4=True),
        Size(9_000, message_bytes=(20, 150, 1_200, 9_000), bursts=20),
    ],
    ids=["small", "brief connections", "large messages", "batches", "lz4", "bursts"],
)
def test_every_frame_is_read_as_it_was_counted(tmp_path: Path, size: Size) -> None:
    path = tmp_path / "busy.pcap"
    counts = write_capture(path, size, seed=3)
    tables = tables_of(path)
    commands = {name: count for name, count in counts.items() if name not in SUMS and count}
    assert dict(Counter(row["command"] for row in tables["frames"])) == commands
    assert {row["status"] for row in tables["frames"]} == {"complete"}
    assert len(tables["connections"]) == counts["connections"] == 16 + size.connections
    assert {row["ended"] for row in tables["connections"]} == {"fin"}
    assert sum(row["packets"] for row in tables["capture_files"]) == counts["packets"]
    assert {row["code"] for row in tables["notices"]} == {"checksum_offload"}
    deliveries = tables["deliveries"]
    checked = [row["checksum"] for row in tables["frames"] if row["command"] in ("SEND", "MESSAGE")]
    assert set(checked) == {"ok"}
    assert sum(row["message_count"] for row in deliveries) == counts["delivered"]
    assert sum(row["redelivery_count"] > 0 for row in deliveries) == counts["redelivered"]
    assert sum(row["is_redelivered"] for row in deliveries) == counts["redelivered"]
    assert sum(row["message_count"] for row in sends(tables)) == counts["messages"]
    granted = [row["delta"] for row in tables["permits"] if row["event"] == "grant"]
    assert sum(granted) == counts["permits"]
    balances = [row["available_after"] for row in tables["permits"] if row["event"] != "reset"]
    assert min(balances) >= 0
    if size.rows:
        most = Counter((row["connection_id"], row["consumer_id"]) for row in deliveries)
        assert 0.7 * size.rows < most.most_common(1)[0][1] < 1.4 * size.rows


def sends(tables: Tables) -> list[dict[str, Any]]:
    """The exchanges of published messages."""
    return [row for row in tables["exchanges"] if row["request_command"] == "SEND"]


def test_it_talks_in_all_styles_and_runs_out_of_permits(tmp_path: Path) -> None:
    path = tmp_path / "busy.pcap"
    write_capture(path, Size(60_000, rows=100), seed=1)
    tables = tables_of(path)
    types = ["Exclusive", "Failover", "Key_Shared", "Shared"]
    assert sorted({row["subscription_type"] for row in tables["deliveries"]}) == types
    acks = [row for row in tables["acks"] if row["action"] == "ack"]
    assert {row["ack_type"] for row in acks} == {"Individual", "Cumulative"}
    assert {row["remaining_in_batch"] for row in acks} == {None, 5}
    assert max(Counter(row["frame_no"] for row in acks).values()) == 64
    assert any(row["request_id"] for row in acks)
    assert {row["action"] for row in tables["acks"]} == {"ack", "redeliver"}
    assert (
        min(row["available_after"] for row in tables["permits"] if row["event"] == "delivery") == 0
    )


def test_the_same_size_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one", "again", "other")]
    for file, seed in zip(files, (1, 1, 2), strict=True):
        write_capture(file, Size(2_600, 3), seed)
    one, again, other = (file.read_bytes() for file in files)
    assert one == again != other
