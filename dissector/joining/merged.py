"""SQL that merges the rows of a connection into one, and counts what joining changed."""

from typing import Final

import pyarrow as pa

from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.enums import BOTH_DIRECTIONS

CONNECTIONS: Final = arrow_schema("connections")
# How columns of a connection's rows are merged; a column not named here has its first known value.
_LEAST: Final = ("first_ts_ns",)
_GREATEST: Final = ("last_ts_ns", "max_message_bytes")
_OF_THE_LAST: Final = ("ended", "ended_packet")
_NOT_SUMMED: Final = ("isn", "first_seq", "last_seq", "fin_packet")
# Columns that would count a frame of two captures twice, and the aggregate that is subtracted.
_WITHOUT_REPEATS: Final = {"frames": "count(*)", "stream_bytes": "sum(bytes)",
                           "decoded_bytes": "sum(bytes)"}  # fmt: skip
_COLUMNS: Final = TABLES["connections"].columns
_NAMES: Final = tuple(column.name for column in _COLUMNS)
_KEY: Final = ("capture", "connection_id")
_SUMMED: Final = frozenset(
    column.name
    for column in _COLUMNS
    if column.type == "bigint"
    and column.name.endswith(BOTH_DIRECTIONS)
    and not column.name.startswith(_NOT_SUMMED)
)

# A connection whose directions ended in different captures is closed, though it was open at the end
# of each; else its end is that of the capture in which it ended.
_ENDED_AT: Final = "CASE WHEN ended <> 'capture_end' THEN rank END"
_IS_CLOSED: Final = (
    f"min({_ENDED_AT}) IS NULL AND max(fin_packet_to_broker) IS NOT NULL "
    "AND max(fin_packet_to_client) IS NOT NULL"
)
_LAST_FIN: Final = "greatest(fin_packet_to_broker, fin_packet_to_client)"
_CLOSED: Final = {"ended": "'fin'", "ended_packet": f"arg_max({_LAST_FIN}, rank)"}


def _without_repeats() -> str:
    """Columns of a part, less its frames that are left out."""
    return ", ".join(
        f"c.{name}_{direction} - coalesce(l.{name}_{direction}, 0) AS {name}_{direction}"
        for name in _WITHOUT_REPEATS
        for direction in BOTH_DIRECTIONS
    )


def _repeats() -> str:
    """The query of the counts and bytes that are left out of each connection."""
    sums = ", ".join(
        f"{value} FILTER (direction = '{direction}')::BIGINT AS {name}_{direction}"
        for name, value in _WITHOUT_REPEATS.items()
        for direction in BOTH_DIRECTIONS
    )
    return f"SELECT capture, connection_id, {sums} FROM left_out GROUP BY capture, connection_id"


def _one(name: str) -> str:
    """The SQL expression of a merged connection's column, from its parts' columns."""
    if name in _SUMMED:
        value = f"sum({name})::BIGINT"
    elif name in _LEAST:
        value = f"min({name})"
    elif name in _GREATEST:
        value = f"max({name})"
    elif name in _OF_THE_LAST:
        value = (
            f"CASE WHEN {_IS_CLOSED} THEN {_CLOSED[name]} WHEN min({_ENDED_AT}) IS NULL "
            f"THEN arg_max_null({name}, rank) ELSE arg_min_null({name}, {_ENDED_AT}) END"
        )
    elif name.startswith("last_seq"):
        # A FIN has a sequence number, too, and packets behind it count from there.
        last = f"CASE WHEN stream_bytes{name.removeprefix('last_seq')} > 0 THEN rank END"
        value = f"coalesce(arg_max({name}, {last}), arg_min({name}, rank))"
    elif name == "protocol":
        known = "CASE WHEN protocol NOT IN ('none', 'unknown') THEN rank END"
        value = f"coalesce(arg_min(protocol, {known}), arg_max(protocol, rank))"
    else:
        value = f"arg_min({name}, rank)"
    return f"{value} AS {name}"


_PARTS: Final = "connections AS c JOIN placed AS p USING (capture, connection_id)"
_IS_HEAD: Final = "p.capture = p.head_capture AND p.connection_id = p.head_connection_id"
# One row per joined connection, under its root.
MERGED: Final = f"""
CREATE TABLE merged AS
WITH each AS (
  SELECT c.* REPLACE ({_without_repeats()}), p.rank, p.head_capture, p.head_connection_id
  FROM {_PARTS} LEFT JOIN ({_repeats()}) AS l USING (capture, connection_id)
  UNION ALL BY NAME
  SELECT *, capture AS head_capture, connection_id AS head_connection_id
  FROM opened_before
),
parts AS (
  SELECT *, count(*) OVER (PARTITION BY head_capture, head_connection_id) AS count FROM each
)
SELECT {", ".join(_NAMES)} FROM parts WHERE count = 1
UNION ALL BY NAME
SELECT head_capture AS capture, head_connection_id AS connection_id,
  {", ".join(_one(name) for name in _NAMES if name not in _KEY)}
FROM parts WHERE count > 1 GROUP BY head_capture, head_connection_id
"""
# Connections that continue behind an increment: without an end, or known to continue (later).
GOING_ON: Final = """
CREATE TABLE going_on AS
SELECT capture, connection_id FROM merged WHERE ended = 'capture_end' UNION FROM later
"""
ENDED: Final = """
FROM merged ANTI JOIN going_on USING (capture, connection_id) ORDER BY capture, connection_id
"""
OPENED: Final = """
SELECT m.*, p.rank
FROM merged AS m SEMI JOIN going_on USING (capture, connection_id)
JOIN (
  SELECT head_capture, head_connection_id, max(rank) AS rank
  FROM placed GROUP BY ALL
) AS p ON p.head_capture = m.capture AND p.head_connection_id = m.connection_id
"""
# Connections that continue another one, as the rows of frames and acks name them.
BEHIND: Final = f"""
SELECT c.* REPLACE (m.leg AS leg, m.twin_connection_id AS twin_connection_id)
FROM {_PARTS}
JOIN merged AS m ON m.capture = p.head_capture AND m.connection_id = p.head_connection_id
WHERE NOT ({_IS_HEAD}) ORDER BY c.capture, c.connection_id
"""

COUNTERS: Final = (
    "exchanges_answered_later", "deliveries_ended_later", "redeliveries_recognised",
    "publishes_recognised", "balances_carried",
)  # fmt: skip
# Row counts of joined captures by outcome (of permits: by event), before and after joining.
CHANGES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("capture", "moment", "table", "value")),
        *((name, pa.int64()) for name in ("rows", *COUNTERS)),
    ]
)
# Frames that the end of a joined capture cut, and bytes before a capture's first frame.
_DIRECTION: Final = (
    ("capture", pa.string()), ("connection_id", pa.int64()), ("direction", pa.string()),
)  # fmt: skip
CUT: Final = pa.schema(
    [
        *_DIRECTION,
        ("command", pa.string()),
        *((name, pa.int64()) for name in ("frame_no", "frame_bytes", "producer_id", "consumer_id")),
    ]
)
SKIPPED: Final = pa.schema([*_DIRECTION, ("bytes", pa.int64())])
_CONDITIONS: Final = {
    "exchanges": {"exchanges_answered_later": "response_capture IS NOT NULL"},
    "deliveries": {
        "deliveries_ended_later": "ack_capture IS NOT NULL",
        "redeliveries_recognised": "previous_capture IS NOT NULL",
        "publishes_recognised": "publish_to_delivery_ns IS NOT NULL",
    },
    "permits": {"balances_carried": "baseline_known"},
}
CUT_QUERY: Final = f"""
SELECT {", ".join(CUT.names)} FROM frames WHERE status = 'cut_by_end'
ORDER BY capture, frame_no
"""
SKIPPED_QUERY: Final = f"""
SELECT {", ".join(SKIPPED.names)} FROM notices WHERE code = 'midstream_start'
ORDER BY ALL
"""

# Connections whose rows are copied from their capture; keeps_deliveries: also their deliveries.
UNTOUCHED: Final = pa.schema(
    [
        ("capture", pa.string()), ("connection_id", pa.int64()), ("keeps_deliveries", pa.bool_()),
    ]
)  # fmt: skip
UNTOUCHED_QUERY: Final = f"SELECT {', '.join(UNTOUCHED.names)} FROM untouched ORDER BY ALL"
# The connections of each table whose rows are read unchanged.
AS_THEY_ARE: Final = {
    "exchanges": "untouched",
    "deliveries": "(FROM untouched WHERE keeps_deliveries)",
    "permits": "untouched",
}
# The protocols of connections whose rows are stitched.
STITCHED_PROTOCOLS: Final = "SELECT DISTINCT read_by FROM placed ANTI JOIN untouched USING (chain)"


def changes() -> str:
    """The query of CHANGES, from the tables all_exchanges, closed_exchanges and so on."""
    parts = []
    for table, conditions in _CONDITIONS.items():
        value = "event" if table == "permits" else "outcome"
        for moment, rows in (("before", f"all_{table}"), ("after", f"closed_{table}")):
            sums = []
            for name in COUNTERS:
                condition = conditions.get(name, "false")
                if moment == "before" and "_capture" in condition:
                    condition = "false"
                sums.append(f"count(*) FILTER (WHERE {condition}) AS {name}")
            parts.append(
                f"SELECT capture, '{moment}' AS moment, '{table}' AS \"table\", {value} AS value, "
                f'count(*) AS "rows", {", ".join(sums)} FROM {rows} GROUP BY capture, {value}'
            )
    return f"{' UNION ALL '.join(parts)} ORDER BY ALL"
