"""What must add up in the rows of any capture, and in the report of it, however damaged it is."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]

LOOKED_AT = ("capture_files", "connections", "frames", "notices")
WAYS = ("to_broker", "to_client")
PARTS = ("decoded_bytes", "unparsed_bytes", "gap_bytes", "snaplen_cut_bytes")


def check(tables: Tables) -> None:
    """Every packet and every byte of every stream ends in exactly one counter.

    Raises:
        AssertionError: something does not add up.
    """
    connections = tables.get("connections", ())
    used = 0
    for row in tables.get("capture_files", ()):
        ignored = sum(count for _, count in row["packets_ignored_by_reason"] or ())
        assert row["packets"] == row["packets_tcp"] + ignored
        used += row["packets_tcp"]
    if "capture_files" in tables:
        assert used == sum(row[f"packets_{way}"] for row in connections for way in WAYS)
    numbers = [row["connection_id"] for row in connections]
    assert len(numbers) == len(set(numbers)), "a connection has two rows"
    for row in connections:
        for way in WAYS:
            values = [row[f"{part}_{way}"] for part in PARTS]
            assert min(values) >= 0, (row["connection_id"], way, values)
            assert sum(values) == row[f"stream_bytes_{way}"], (row["connection_id"], way, values)
            _check_payload(row, way)
    _check_frames(tables)
    if not any(notice["code"] == "notices_limit" for notice in tables.get("notices", ())):
        said = sum(row["bytes"] for row in tables.get("notices", ()) if row["code"] == "gap_lost")
        assert said == sum(row[f"gap_bytes_{way}"] for row in connections for way in WAYS)


def _check_payload(row: Row, way: str) -> None:
    """All payload is in its stream, or was dropped, unless some of it came twice."""
    again = sum(
        row[f"{name}_packets_{way}"]
        for name in ("retransmitted", "duplicate", "out_of_order", "keepalive")
    )
    captured = row[f"stream_bytes_{way}"] - row[f"gap_bytes_{way}"] + row[f"dropped_bytes_{way}"]
    payload = row[f"payload_bytes_{way}"]
    assert payload == captured or (again and payload > 0), (row["connection_id"], way, payload)


def _check_frames(tables: Tables) -> None:
    """Frames are numbered one after the other and are those that their connection counts."""
    decoded: Counter[tuple[int, str]] = Counter()
    frames: Counter[tuple[int, str]] = Counter()
    for number, row in enumerate(tables.get("frames", ()), start=1):
        assert row["frame_no"] == number
        assert row["first_packet"] <= row["last_packet"]
        key = row["connection_id"], row["direction"]
        frames[key] += 1
        if row["status"] == "complete":
            decoded[key] += row["frame_bytes"]
    for row in tables.get("connections", ()):
        keys = [(row["connection_id"], way) for way in (*WAYS, "unknown")]
        counted = [row[f"frames_{way}"] for way in WAYS]
        sizes = [row[f"decoded_bytes_{way}"] for way in WAYS]
        assert sum(counted) == sum(frames[key] for key in keys)
        assert sum(sizes) == sum(decoded[key] for key in keys)
        if row["role_source"] != "first_seen":
            assert counted == [frames[key] for key in keys[:2]]
            assert sizes == [decoded[key] for key in keys[:2]]


def check_report(report: Row) -> None:
    """The sums of a report add up too.

    Raises:
        AssertionError: something does not add up.
    """
    total = report["coverage"]["total"]
    assert total["packets"] == total["packets_tcp"] + sum(
        total["packets_ignored_by_reason"].values()
    )
    for sums in _dictionaries(report["coverage"]):
        if {"stream_bytes", *PARTS} <= sums.keys():
            assert sums["stream_bytes"] == sum(sums[part] for part in PARTS)


def _dictionaries(value: Any) -> Iterator[Row]:
    """All dictionaries inside a JSON value."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _dictionaries(each)
    elif isinstance(value, list):
        for each in value:
            yield from _dictionaries(each)
