"""Captures that have messages in common, on hand-made rows."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from dissector.joining.shared import PRESENCE, SENDS_PRESENCE, Shared, overlapping, shared_captures
from tests.dissector.joining.made import tables

START = datetime(2026, 1, 1, tzinfo=UTC)
SEND = (
    "capture", "connection_id", "producer_name", "sequence_id", "crc32c_stored", "ledger_id",
    "entry_id", "ts",
)  # fmt: skip
GOT = ("capture", "connection_id", "topic", "ledger_id", "entry_id", "crc32c_stored", "ts")


def at(second: int, us: int = 0) -> datetime:
    return START + timedelta(seconds=second, microseconds=us)


def send(*values: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "publish", "topic": "t", **dict(zip(SEND, values, strict=True))} | more


def got(*values: Any, **more: Any) -> dict[str, Any]:
    return {"subscription": "s", **dict(zip(GOT, values, strict=True))} | more


def shared_of(
    sends: list[Any], got: list[Any], clusters: Mapping[str, str | None], **wholes: str
) -> Shared:
    """What is found by overlapping presences, and by the rows of captures that have these."""
    db = tables(exchanges=sends, deliveries=got)
    presence = db.sql(SENDS_PRESENCE).to_arrow_table().select(PRESENCE.names).cast(PRESENCE)
    db.register("presence", presence)
    names = list(clusters)
    labels = pa.array(clusters.values(), pa.string())
    db.register("clusters", pa.table({"capture": names, "cluster": labels}))
    whole = [wholes.get(name, name) for name in names]
    db.register("wholes", pa.table({"capture": names, "whole": whole}))
    touched = overlapping(db)
    shared = shared_captures(db)
    assert {name for each in shared.captures for name in each} <= touched
    return shared


def test_captures_that_share_messages_are_found() -> None:
    clusters = {"a": None, "b": None, "c": None, "d": "east"}
    sends = [
        send("a", 0, "p", 1, 9, 3, 4, at(0)), send("b", 0, "p", 1, 9, None, None, at(1)),
        send("c", 0, "p", 2, 8, 3, 5, at(2)), send("d", 0, "p", 1, 9, 3, 4, at(0)),
    ]  # fmt: skip
    rows = [got("b", 0, "t", 3, 5, 8, at(2)), got("c", 0, "u", 3, 4, 9, at(2))]
    assert shared_of(sends, [], clusters) == ([["a", "b"]], [], [])
    assert shared_of(sends, rows, clusters) == ([["a", "b"], ["b", "c"]], [], [])
    same = [row | {"ts": at(0)} for row in sends]
    assert shared_of(same, rows, clusters).views == [["a", "b"]]


def test_captures_that_do_not_know_a_topic_know_its_ledgers() -> None:
    """They begin in the middle. Entries of another topic have another checksum, and those of what
    is not stored have no numbers."""
    clusters = {"a": None, "b": None, "c": None, "d": "east"}
    sends = [send("a", 0, "p", 1, 9, 3, 4, at(0)), send("c", 0, "q", 1, 7, 0, 0, at(0), topic=None)]
    rows = [got("b", 0, None, 3, 4, 9, at(1)), got("d", 0, None, 3, 4, 9, at(1))]
    assert shared_of(sends, rows, clusters).captures == [["a", "b"]]
    both = [got("b", 0, None, 3, 4, 9, at(1)), got("c", 0, None, 3, 4, 9, at(1))]
    assert shared_of([], both, clusters).captures == [["b", "c"]]
    other = [got("b", 0, None, 3, 4, 8, at(1)), got("c", 0, "u", 0, 0, 7, at(0))]
    assert shared_of(sends, other, clusters).captures == []


def test_brokers_that_began_anew_have_equal_numbers_and_other_checksums() -> None:
    clusters = {"a": None, "b": None}
    sends = [send("a", 0, "p", 1, 9, 3, 4, at(0)), send("b", 0, "p", 1, 7, 3, 4, at(60))]
    rows = [got("a", 1, "t", 3, 4, 9, at(1)), got("b", 1, "t", 3, 4, 7, at(61))]
    assert shared_of(sends, rows, clusters).captures == []
    again = [*rows, got("b", 1, "t", 3, 4, 9, at(62))]
    assert shared_of(sends, again, clusters).captures == [["a", "b"]]


def test_without_a_checksum_only_what_is_seen_at_once_is_the_same() -> None:
    clusters = {"a": None, "b": None}
    sends = [send("a", 0, "p", 1, None, 3, 4, at(0)), send("b", 0, "p", 1, None, 3, 4, at(1))]
    rows = [got("a", 1, "t", 3, 4, None, at(1)), got("b", 1, "t", 3, 4, 9, at(1, 5))]
    assert shared_of(sends, rows, clusters).captures == []
    rows[1]["crc32c_stored"] = None
    assert shared_of(sends, rows, clusters).views == [["b", "a"]]


def test_captures_that_are_one_already_are_not_compared() -> None:
    clusters = {"a": None, "b": None}
    sends = [send("a", 0, "p", 1, 9, 3, 4, at(0)), send("b", 0, "p", 1, 9, 3, 4, at(60))]
    assert shared_of(sends, [], clusters, b="a").captures == []


def test_the_brokers_side_of_a_proxy_repeats_what_the_clients_side_shows() -> None:
    sends = [
        send("a", 3, "p", 1, 9, 3, 4, at(0, 700)), send("b", 5, "p", 1, 9, 3, 4, at(0, 200)),
        # Another client, who does not come by the proxy.
        send("a", 4, "q", 1, 7, 3, 5, at(1)),
    ]  # fmt: skip
    rows = [got("a", 6, "t", 3, 4, 9, at(2, 100)), got("b", 7, "t", 3, 4, 9, at(2, 500))]
    shared = shared_of(sends, rows, {"a": None, "b": None})
    assert shared.views == [["b", "a"]] and shared.proxy_peers == [("a", 3), ("a", 6)]


def test_partitions_number_their_entries_each_from_the_beginning() -> None:
    """Two consumers of one group of Cursus, before two taps: not one delivery, seen twice."""
    apart = [got("a", 0, "t", None, 7, None, at(0), partition=0),
             got("b", 0, "t", None, 7, None, at(0), partition=1)]  # fmt: skip
    clusters: dict[str, str | None] = {"a": None, "b": None}
    assert shared_of([], apart, clusters) == ([], [], [])
    same = [row | {"partition": 1} for row in apart]
    assert shared_of([], same, clusters).views == [["a", "b"]]
