"""A capture that begins later or ends earlier: it tells what the whole one does, or less."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

from tests.anycut import rows_of
from tests.dissector.observed import Tables
from tests.dissector.test_lost_packets import whole
from tests.dissector.test_snap_length import SAMPLES, places, told_otherwise
from tests.dissector.test_some_connections import ends_of
from tests.wire.recut import beginning_at, ending_at, records

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
# A receipt is taken for that of another send with its key: chunks share a sequence id, and the
# first ones are missing, and a copy's receipt names its place in the source cluster.
_ANSWERS: Final = {
    *(f"exchanges.{name}" for name in ("response_frame_no", "response_first_ns", "response_last_ns",
                                       "latency_ns", "latency_bucket", "ledger_id", "entry_id",
                                       "outstanding_before")),
    "deliveries.publish_to_delivery_ns",
}  # fmt: skip
_ANSWERED: Final = {*_ANSWERS, "exchanges.outcome", "exchanges.response_command"}
# Frames of one connection wait until it is known what they are, and those of others go before them.
_ORDER: Final = {"exchanges.attempt", "deliveries.lag", "acks.lag", "deliveries.ack_frame_no",
                 "deliveries.ack_latency_ns"}  # fmt: skip
# Of Cursus, answers name no request: the first one is taken for that of the first request.
_IN_TURN: Final = {
    *_ANSWERED, *_ORDER, "exchanges.error_text", "frames.topic", "frames.subscription",
    "frames.consumer_name", "deliveries.outcome",
}  # fmt: skip
# Which connections are the legs of a proxied one is not known without their first frames.
_PROXIED: Final = {
    *_COPIES, *_ORDER, "exchanges.entry_id", "deliveries.is_redelivered", "deliveries.outcome",
    "deliveries.messages_acked", "deliveries.previous_frame_no", "permits.unacked_after",
    # Of a connection without data the sender of the first packet is taken for the client.
    *(f"connections.{end}_{name}" for end in ("client", "broker") for name in ("ip", "port")),
}  # fmt: skip
KNOWN: Final = {
    "pulsar/fake-f03_senderror_persist.pcap": _ORDER,
    "pulsar/fake-f07_chunking64k.pcap": _ANSWERS,
    "pulsar/fake-f12_noreceipt.pcap": _ORDER,
    "pulsar/tap-duplicated.pcap": _COPIES,
    "pulsar-apache/cpp-s08_nack-proxy-any.pcap": _PROXIED,
    "pulsar-apache/java-j05_chunk64k_zstd.pcap.gz": _ANSWERS,
    "pulsar-apache/java-j74_corrupt.pcap": _ANSWERED | _ORDER,
    "pulsar-apache/java-j80_geo-link.pcap": {*_ANSWERS, "exchanges.highest_sequence_id"},
    "pulsar-apache/mut-dup-java-j12_nack_batch.pcap": _COPIES,
    "pulsar-live/live-retry_letters.pcap": _COPIES,
}
# What a capture that ends within a connection tells of what was open: as far as it was seen.
AT_THE_END: Final = {
    *(f"connections.{name}" for name in ("history", "last_ts_ns", "ended", "protocol")),
    *(
        f"connections.{name}{way}"
        for name in ("payload_bytes_", "stream_bytes_", "last_seq_", "gaps_", "gap_bytes_",
                     "snaplen_cut_bytes_", "zero_window_ns_")
        for way in WAYS
    ),
    # Of a frame that the end cuts.
    *(f"frames.{name}" for name in ("ts", "last_ts_ns", "status", "checksum_note")),
    *(f"exchanges.{name}" for name in ("ts", "request_last_ns", "response_last_ns",
                                       "outstanding_before")),
    "deliveries.ts", "permits",
}  # fmt: skip
_OPEN: Final = {
    "exchanges.outcome": {"unanswered_at_end", "not_awaited", "dropped_after_close"},
    "deliveries.outcome": {"unacked_at_end", "ack_uncommitted", "conn_closed"},
}


def later_part(tables: Tables, part: Tables) -> Tables:
    """The tables of a capture without its first packets, with the connection ids and stream offsets
    of the whole one."""
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
    return {table: [dict(_moved(row, ids, shifts)) for row in rows] for table, rows in part.items()}


def _moved(
    row: dict[str, object],
    ids: dict[int, int],
    shifts: dict[tuple[int, str], int],
) -> Iterator[tuple[str, object]]:
    for name, value in row.items():
        if value is None:
            yield name, value
        elif name.endswith("connection_id"):
            yield name, ids.get(value, value)
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
        moved = later_part(tables, part)
        for each in told_otherwise(tables, moved):
            if each[2] != "other_side_not_captured":
                found.append(each)
        seen = {*places(moved).values()}
        first: dict[tuple[int, str], int] = {}
        for connection, way, offset in seen:
            first[connection, way] = min(offset, first.get((connection, way), offset))
        later = {
            each for each in places(tables).values() if each[2] >= first.get(each[:2], 1 << 62)
        }
        assert later == seen, "no frame behind the first one is lost, none is invented"
    columns = {column for column, *_ in found} - AS_SEEN
    if name.startswith("cursus/"):
        columns -= _IN_TURN
    known = KNOWN.get(name, set())
    assert columns <= known, [each for each in found if each[0] in columns - known][:5]
    assert bool(columns) == bool(known), "it is no known case any more"


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_told_so_far_is_what_the_whole_capture_tells(name: str) -> None:
    data, tables = whole(name)
    count = sum(1 for _ in records(data))
    for kept in sorted({int((1 - share) * count) for share in SHARES}):
        part = rows_of(ending_at(data, kept))
        ends = {
            (row["connection_id"], way): row[f"stream_bytes_{way}"]
            for row in part["connections"]
            for way in WAYS
        }
        whole_frames = {
            place
            for row in tables["frames"]
            for place in ((row["connection_id"], row["direction"], row["stream_offset"]),)
            if row["stream_offset"] + row["frame_bytes"] <= ends.get(place[:2], 0)
        }
        assert whole_frames <= {*places(part).values()}, "no frame that was captured is lost"
        for column, true, value in told_otherwise(tables, part):
            if value in _OPEN.get(column, ()) or column in AT_THE_END:
                continue
            if column == "frames.consumer_name" and name.startswith("cursus/"):
                assert true.startswith(value), "the broker's answer tells the rest"
                continue
            # More acknowledgements may come, and what is cut off later tells which frames are torn.
            assert column in ("deliveries.messages_acked", "exchanges.tainted"), (true, value)
            assert value < true
