"""What must come of a tape whose bytes are all there: every frame of it, and nothing else."""

from typing import Any

from tests.hard.tape import Row, Tables, Tape, capture, dissected

DIRECTIONS = ("to_broker", "to_client")


def rows_of(tables: Tables, side: int) -> list[Row]:
    """The frames of a direction, in the order of the stream."""
    rows = [row for row in tables.get("frames", []) if row["direction"] == DIRECTIONS[side]]
    return sorted(rows, key=lambda row: row["stream_offset"])


def said(tape: Tape, side: int) -> list[tuple[int, int]]:
    """Offset and size of every frame that a side said."""
    found, offset = [], 0
    for frame in tape.frames[side]:
        found.append((offset, len(frame)))
        offset += len(frame)
    return found


def came(tables: Tables, side: int, status: str = "complete") -> list[tuple[int, int]]:
    """Offset and size of the frames of a direction that came out with a status."""
    return [
        (row["stream_offset"], row["frame_bytes"])
        for row in rows_of(tables, side)
        if row["status"] == status
    ]


def assert_accounts_close(tables: Tables) -> None:
    """Every stream byte is decoded, unparsed, lost or cut; every packet was used or refused."""
    for row in tables["connections"]:
        for direction in DIRECTIONS:
            parts = ("decoded", "unparsed", "gap", "snaplen_cut")
            total = sum(row[f"{part}_bytes_{direction}"] for part in parts)
            assert row[f"stream_bytes_{direction}"] == total
    used = sum(
        row[f"packets_{direction}"] for row in tables["connections"] for direction in DIRECTIONS
    )
    for row in tables["capture_files"]:
        ignored = dict(row["packets_ignored_by_reason"] or [])
        assert row["packets"] == row["packets_tcp"] + sum(ignored.values())
    assert used == sum(row["packets_tcp"] for row in tables["capture_files"])


def assert_whole(tape: Tape, data: bytes | None = None, **options: Any) -> Tables:
    """All frames of a tape come out of its capture, whole, once, and nothing was lost."""
    tables = dissected(capture(tape.records()) if data is None else data, **options)
    for side, direction in enumerate(DIRECTIONS):
        assert came(tables, side) == said(tape, side)
        assert len(rows_of(tables, side)) == len(tape.frames[side])
        (connection,) = tables["connections"]
        assert connection[f"stream_bytes_{direction}"] == len(tape.sent[side])
        assert connection[f"decoded_bytes_{direction}"] == len(tape.sent[side])
        assert connection[f"gaps_{direction}"] == 0
    assert {row["checksum"] for row in tables["frames"]} <= {"ok", None}
    assert_accounts_close(tables)
    return tables


def counters(tables: Tables, side: int, connection: int = 0) -> dict[str, int]:
    """What was odd about the packets of a direction, where it is not 0."""
    row = tables["connections"][connection]
    names = ("retransmitted", "duplicate", "out_of_order", "keepalive")
    values = {name: row[f"{name}_packets_{DIRECTIONS[side]}"] for name in names}
    return {name: value for name, value in values.items() if value}
