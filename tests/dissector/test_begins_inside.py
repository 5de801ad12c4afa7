"""A capture that begins later: it tells what the whole one tells, or that it is unknown."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

from tests.anycut import rows_of
from tests.dissector.observed import Tables
from tests.dissector.test_lost_packets import whole
from tests.dissector.test_snap_length import SAMPLES, told_otherwise
from tests.dissector.test_some_connections import ends_of
from tests.wire.recut import beginning_at, records

SHARES: Final = (0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.95)  # of the packets that are left out
WAYS: Final = ("to_broker", "to_client")
# Columns that tell of packets, or of frames as far as they were seen: their meaning says so.
AS_SEEN: Final = {
    *(
        f"connections.{name}{way}"
        for name in ("payload_bytes_", "stream_bytes_", "first_seq_", "last_seq_", "gaps_",
                     "gap_bytes_", "snaplen_cut_bytes_", "zero_window_ns_")
        for way in WAYS
    ),
    *(f"connections.{name}" for name in ("history", "first_ts_ns", "started", "ended",
                                         "role_source", "protocol")),
}  # fmt: skip
# A packet was captured twice, and the capture begins between both.
_COPIES: Final = {
    *(f"frames.{name}" for name in ("ts", "first_ts_ns", "last_ts_ns")),
    *(f"exchanges.{name}" for name in ("ts", "request_first_ns", "request_last_ns", "latency_ns",
                                       "latency_bucket")),
    "acks.ts", "messages.ts", "deliveries.ts", "deliveries.ack_latency_ns",
    "deliveries.publish_to_delivery_ns", "permits",
}  # fmt: skip
_ANSWERS: Final = {
    *(f"exchanges.{name}" for name in ("response_frame_no", "response_first_ns", "response_last_ns",
                                       "latency_ns", "latency_bucket", "ledger_id", "entry_id",
                                       "outstanding_before")),
    "deliveries.publish_to_delivery_ns",
}  # fmt: skip
# Frames of one connection wait until it is known what they are, and those of others go before them.
_ORDER: Final = {"exchanges.attempt", "deliveries.lag", "acks.lag", "deliveries.ack_frame_no",
                 "deliveries.ack_latency_ns"}  # fmt: skip
# Of Cursus, answers name no request: the first one is taken for that of the first request.
_IN_TURN: Final = {
    *_ANSWERS, *_ORDER, "exchanges.outcome", "exchanges.response_command", "exchanges.error_text",
    "frames.topic", "frames.subscription", "deliveries.outcome",
}  # fmt: skip
KNOWN: Final = {}


def later_part(tables: Tables, part: Tables, left_out: int) -> Tables:
    """The tables of a capture without its first packets, with the connection ids, packet numbers
    and stream offsets of the whole one."""
    true, own = (defaultdict(list) for _ in range(2))
    for group, rows in ((true, tables["connections"]), (own, part["connections"])):
        for row in rows:
            group[ends_of(row)].append(row)
    ids, shifts = {}, {}
    for ends, rows in own.items():
        for row, other in zip(reversed(rows), reversed(true[ends]), strict=False):
            ids[row["connection_id"]] = other["connection_id"]
            for way in WAYS:
                first, origin = (
                    each[f"first_seq_{way}"] if each[f"isn_{way}"] is None
                    else each[f"isn_{way}"] + 1
                    for each in (row, other)
                )  # fmt: skip
                if first is not None and origin is not None:
                    shifts[row["connection_id"], way] = (first - origin) & 0xFFFFFFFF
    return {
        table: [dict(_moved(row, ids, shifts, left_out)) for row in rows]
        for table, rows in part.items()
    }


def _moved(
    row: dict[str, object],
    ids: dict[int, int],
    shifts: dict[tuple[int, str], int],
    left_out: int,
) -> Iterator[tuple[str, object]]:
    for name, value in row.items():
        if value is None:
            yield name, value
        elif name.endswith("connection_id"):
            yield name, ids.get(value, value)
        elif "_packet" in name and not name.endswith("packets"):
            yield name, value + left_out
        elif name == "stream_offset":
            yield name, value + shifts.get((row["connection_id"], row["direction"]), 0)
        else:
            yield name, value


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_told_is_what_the_whole_capture_tells(name: str) -> None:
    data, tables = whole(name)
    count = sum(1 for _ in records(data))
    found = []
    for left_out in sorted({int(share * count) for share in SHARES}):
        part = rows_of(beginning_at(data, left_out))
        found += told_otherwise(tables, later_part(tables, part, left_out))
    columns = {column for column, *_ in found} - AS_SEEN
    if name.startswith("cursus/"):
        columns -= _IN_TURN
    known = KNOWN.get(name, set())
    assert columns <= known, [each for each in found if each[0] in columns - known][:5]
    assert bool(columns) == bool(known), "it is no known case any more"
