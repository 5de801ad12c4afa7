"""Everything that the numbers of a report are made from, as both ways hand it over.

Most of it are tallies (`dissector.report.tallies`). The rest are rows: what is listed one by one,
and what needs its own order of events (permits). All tables carry capture and connection.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dissector.report.names import Names, no_names
from dissector.report.tallies import TALLIES

_INT: Final = pa.int64()
_TEXT: Final = pa.string()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


# capture_files as it is, with its capture.
FILES: Final = _schema(
    capture=_TEXT,
    file_name=_TEXT,
    file_index=_INT,
    tap_run=_TEXT,
    cluster=_TEXT,
    sha256=_TEXT,
    file_bytes=_INT,
    format=_TEXT,
    compressed=_TEXT,
    packets=_INT,
    first_packet=_INT,
    link_types=pa.list_(pa.string()),
    snaplen=_INT,
    first_ts_ns=_INT,
    last_ts_ns=_INT,
    is_truncated=pa.bool_(),
    dropped_by_interface=_INT,
    packets_tcp=_INT,
    packets_ignored_by_reason=pa.map_(pa.string(), pa.int64()),
    clock_steps=_INT,
)
# Messages published: distinct (topic, producer_name, sequence_id), each with the largest
# message_count of its sends. grouping says which of the other columns are set: producer (topic
# and producer_name), client (client_ip) or broker (broker_ip).
MESSAGES: Final = _schema(
    grouping=_TEXT,
    topic=_TEXT,
    producer_name=_TEXT,
    client_ip=_TEXT,
    broker_ip=_TEXT,
    messages=_INT,
)
# One row per consumer incarnation, the outcome of walking its permits in order. Times in µs; see
# dissector/report/balance.py for each number.
CONSUMERS: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    consumer_id=_INT,
    incarnation=_INT,
    topic=_TEXT,
    subscription=_TEXT,
    subscription_type=_TEXT,
    grants=_INT,
    granted=_INT,
    deliveries=_INT,
    delivered=_INT,
    known_rows=_INT,
    unknown_rows=_INT,
    known_granted=_INT,
    known_delivered=_INT,
    start_balance=_INT,
    first_grant=_INT,
    available_min=_INT,
    available_max=_INT,
    unacked_max=_INT,
    observed_us=_INT,
    occupied=_INT,
    exhausted_us=_INT,
    open_stall_us=_INT,
    quiets=_INT,
    quiet_us=_INT,
    quiet_max_us=_INT,
    open_stall_frame=_INT,
    open_stall_start_us=_INT,
)
STALLS: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    consumer_id=_INT,
    incarnation=_INT,
    start_frame_no=_INT,
    end_frame_no=_INT,
    start_us=_INT,
    stall_us=_INT,
    confirmed=pa.bool_(),
)
ERRORS: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    kind=_TEXT,
    request_command=_TEXT,
    response_command=_TEXT,
    error_code=_TEXT,
    error_text=_TEXT,
    topic=_TEXT,
    subscription=_TEXT,
    producer_name=_TEXT,
    producer_id=_INT,
    consumer_id=_INT,
    incarnation=_INT,
    sequence_id=_INT,
    client_ip=_TEXT,
    broker_ip=_TEXT,
    request_frame_no=_INT,
    response_frame_no=_INT,
    at_ns=_INT,
    packet=_INT,
)
SLOW: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    kind=_TEXT,
    request_command=_TEXT,
    response_command=_TEXT,
    outcome=_TEXT,
    tainted=pa.bool_(),
    latency_ns=_INT,
    transmit_ns=_INT,
    request_last_ns=_INT,
    topic=_TEXT,
    subscription=_TEXT,
    producer_name=_TEXT,
    producer_id=_INT,
    consumer_id=_INT,
    incarnation=_INT,
    sequence_id=_INT,
    message_count=_INT,
    request_bytes=_INT,
    outstanding_before=_INT,
    client_ip=_TEXT,
    broker_ip=_TEXT,
    request_frame_no=_INT,
    response_frame_no=_INT,
    request_packet=_INT,
    response_packet=_INT,
)
REDELIVERED: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    frame_no=_INT,
    previous_frame_no=_INT,
    packet=_INT,
    at_us=_INT,
    topic=_TEXT,
    subscription=_TEXT,
    consumer_id=_INT,
    incarnation=_INT,
    consumer_name=_TEXT,
    ledger_id=_INT,
    entry_id=_INT,
    message_count=_INT,
    redelivery_count=_INT,
    redelivery_cause=_TEXT,
)
# Frames whose checksum does not match, each with what its peer said about it. is_refused: its
# consumer did; refused_frame_no: where, null if that is in another capture.
MISMATCHES: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    frame_no=_INT,
    first_packet=_INT,
    last_packet=_INT,
    at_ns=_INT,
    direction=_TEXT,
    command=_TEXT,
    topic=_TEXT,
    producer_id=_INT,
    consumer_id=_INT,
    incarnation=_INT,
    sequence_id=_INT,
    ledger_id=_INT,
    entry_id=_INT,
    frame_bytes=_INT,
    checksum_note=_TEXT,
    crc32c_stored=_INT,
    crc32c_computed=_INT,
    send_outcome=_TEXT,
    send_error_code=_TEXT,
    answer_frame_no=_INT,
    is_refused=pa.bool_(),
    refused_frame_no=_INT,
    metadata_bytes=_INT,
    payload_bytes=_INT,
    copy_frame_no=_INT,
    copy_crc32c=_INT,
)
# Requests by which a client finds its broker and opens something there.
SETUP_COMMANDS: Final = ("CONNECT", "PARTITIONED_METADATA", "LOOKUP", "PRODUCER", "SUBSCRIBE")
SETUP: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    request_command=_TEXT,
    topic=_TEXT,
    client_ip=_TEXT,
    outcome=_TEXT,
    error_code=_TEXT,
    request_first_ns=_INT,
    response_last_ns=_INT,
    request_frame_no=_INT,
    response_frame_no=_INT,
)
# Distinct entries (ledger and entry): with a receipt, delivered, or one of both.
ENTRIES: Final = _schema(cluster=_TEXT, confirmed=_INT, delivered=_INT, either=_INT)
# Sends that were never answered although a later one of the same producer was.
PASSED_OVER: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    producer_id=_INT,
    incarnation=_INT,
    topic=_TEXT,
    producer_name=_TEXT,
    sequence_id=_INT,
    message_count=_INT,
    outcome=_TEXT,
    at_ns=_INT,
    request_frame_no=_INT,
    request_packet=_INT,
)
PASSED_OUTCOMES: Final = ("unanswered_at_end", "conn_closed")  # no hole and no close explains them
ANSWERED: Final = ("ok", "dup_or_dropped")  # a receipt came, in the order of the sends
MAX_PASSED_OVER: Final = 1000
# Deliveries that nobody acked although a later one to the same consumer was, or that it discarded.
PASSED_DELIVERIES: Final = _schema(
    capture=_TEXT,
    connection_id=_INT,
    consumer_id=_INT,
    incarnation=_INT,
    topic=_TEXT,
    subscription=_TEXT,
    consumer_name=_TEXT,
    ledger_id=_INT,
    entry_id=_INT,
    message_count=_INT,
    outcome=_TEXT,
    at_us=_INT,
    frame_no=_INT,
    packet=_INT,
)
LEFT_OUTCOMES: Final = ("consumer_closed", "conn_closed", "unacked_at_end", "discarded")
# Exact percentiles (`--exact`): grouping as the name of the list, measure latency, transmit or
# logical.
EXACT: Final = _schema(
    grouping=_TEXT,
    topic=_TEXT,
    producer_name=_TEXT,
    client_ip=_TEXT,
    broker_ip=_TEXT,
    measure=_TEXT,
    p50=_INT,
    p90=_INT,
    p95=_INT,
    p99=_INT,
    p999=_INT,
)
ROWS: Final = {
    "files": FILES,
    "messages": MESSAGES,
    "consumers": CONSUMERS,
    "stalls": STALLS,
    "errors": ERRORS,
    "slow": SLOW,
    "redelivered": REDELIVERED,
    "mismatches": MISMATCHES,
    "setup": SETUP,
    "entries": ENTRIES,
    "passed_over": PASSED_OVER,
    "passed_deliveries": PASSED_DELIVERIES,
    "exact": EXACT,
}

# Which of them are foremost, wherever only some are kept: (column, direction).
SLOW_ORDER: Final = (
    ("latency_ns", "descending"),
    ("request_last_ns", "ascending"),
    ("request_frame_no", "ascending"),
)
REDELIVERED_ORDER: Final = (("frame_no", "ascending"),)

# How many rows the lists of single findings hold; the longest, the slowest or the first ones.
MAX_SLOW: Final = 50
MAX_STALLS: Final = 50
MAX_EXAMPLES: Final = 50
MAX_FAILURES: Final = 1000
MAX_INCIDENTS: Final = 500
MAX_VERDICTS: Final = 1000  # captures, the worst; the total counts all


class Parts(NamedTuple):
    """What `dissector.report.result.build` needs.

    tables: every tally and every table of ROWS by its name. names: late names and proxy legs.
    step_ns: width of the points of series over time. limits: rows left out per bound that was hit.
    steps: the same of each capture, for series of one connection: many nights may lie between two
    captures of a lake. heads: of connections that were joined over captures, the place (capture,
    connection_id) under which one counts, by its place in each capture. wholes: of captures that
    were joined, the one that stands for all of its group.
    """

    tables: dict[str, pa.Table]
    names: Names
    step_ns: int
    limits: dict[str, int]
    steps: Mapping[str | None, int]
    heads: Mapping[tuple[str, int], tuple[str, int]] = MappingProxyType({})
    wholes: Mapping[str, str] = MappingProxyType({})

    def whole_of(self, row: Mapping[str, Any]) -> str:
        """What a row's capture is part of: the same for all captures that were joined."""
        capture: str = row["capture"]
        return self.wholes.get(capture, capture)

    def is_counted(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is about a connection as it counts, not about a part of a joined one."""
        place = (row["capture"], row["connection_id"])
        return self.heads.get(place, place) == place

    def counted(self, table: pa.Table) -> pa.Table:
        """The rows of a table that are counted; nearly always all of them."""
        if not self.heads:
            return table
        places = table.select(["capture", "connection_id"]).to_pylist()
        return table.filter(pa.array([self.is_counted(row) for row in places], pa.bool_()))

    def wholes_of(self, table: pa.Table) -> pa.Array:
        """`whole_of` of each row of a table."""
        captures = table.column("capture").combine_chunks().dictionary_encode()
        texts = [self.wholes.get(text, text) for text in captures.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(captures.indices)


def no_parts() -> Parts:
    """The parts of nothing."""
    tables = {name: tally.schema().empty_table() for name, tally in TALLIES.items()}
    tables |= {name: schema.empty_table() for name, schema in ROWS.items()}
    return Parts(tables, no_names(), 1_000_000, {}, {})
