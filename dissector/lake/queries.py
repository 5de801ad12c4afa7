"""Questions that people bring to a lake, with their queries, for docs/lake.md; a test runs them.

They are DuckDB's SQL over views that are named like the tables; see VIEW.
"""

from typing import Final, NamedTuple

VIEW: Final = (
    "create view {table} as select * from "
    "read_parquet('{lake}/{table}/*/*/*.parquet', hive_partitioning = true);"
)


class ExampleQuery(NamedTuple):
    """name: of its rows, for tests; question: what it answers; sql: one statement."""

    name: str
    question: str
    sql: str


class Join(NamedTuple):
    """Rows of a table that name rows of another one.

    by: columns of the one, in the order of the other's, which have the same names unless `to` says
    others, or what is named is a frame.
    """

    table: str
    by: str
    to: str


_FRAME: Final = "frames, by (capture, connection_id, frame_no): one row"
JOINS: Final = (
    Join(
        "messages, acks, deliveries, permits, notices",
        "capture, connection_id, frame_no",
        _FRAME,
    ),
    Join("exchanges", "capture, connection_id, request_frame_no or response_frame_no", _FRAME),
    Join(
        "producers, consumers",
        "capture, connection_id, opened_frame_no, ready_frame_no or closed_frame_no",
        _FRAME,
    ),
    Join(
        "deliveries",
        "capture, previous_connection_id, previous_frame_no",
        "deliveries: the one before",
    ),
    Join(
        "deliveries",
        "capture, ack_frame_no",
        "acks, by (capture, frame_no): a row per id that the frame acked (Cursus commits on any "
        "connection)",
    ),
    Join(
        "deliveries",
        "capture, connection_id, frame_no",
        "messages: a row per message of the batch",
    ),
    Join(
        "deliveries",
        "capture, topic, ledger_id, entry_id",
        "exchanges of kind publish: the send, if the capture has it",
    ),
    Join(
        "frames, exchanges",
        "capture, connection_id, producer_id, incarnation",
        "producers: one row",
    ),
    Join(
        "frames, exchanges, deliveries, acks, permits",
        "capture, connection_id, consumer_id, incarnation",
        "consumers: one row",
    ),
    Join(
        "events",
        "capture, connection_id, behind_frame_no",
        "frames of its connection: those before it have that frame_no or a lower one",
    ),
    Join("all but capture_files", "capture, connection_id", "connections: one row"),
    Join(
        "all",
        "capture",
        "capture_files: a row per file of the chain; a packet's number in its file is the number "
        "- first_packet + 1",
    ),
)

QUERIES: Final = (
    ExampleQuery(
        "slowest",
        "Which sends took longest, and in which packets are they?",
        """\
select e.capture, e.topic, e.producer_name, e.sequence_id, e.latency_ns / 1e6 as latency_ms,
       s.first_packet as send_packet, r.last_packet as receipt_packet
from exchanges e
join frames s on (s.capture, s.connection_id, s.frame_no)
              = (e.capture, e.connection_id, e.request_frame_no)
join frames r on (r.capture, r.connection_id, r.frame_no)
              = (e.capture, e.connection_id, e.response_frame_no)
where e.kind = 'publish' and e.latency_ns is not null
order by e.latency_ns desc, e.capture, e.request_frame_no limit 20""",
    ),
    ExampleQuery(
        "latency",
        "How long do sends of each topic take?",
        """\
select topic, count(*) as sends, quantile_disc(latency_ns, 0.5) / 1e6 as p50_ms,
       quantile_disc(latency_ns, 0.99) / 1e6 as p99_ms, max(latency_ns) / 1e6 as max_ms
from exchanges
where kind = 'publish' and outcome = 'ok' and latency_ns is not null
group by topic order by p99_ms desc, topic""",
    ),
    ExampleQuery(
        "outcomes",
        "What became of requests?",
        """\
select kind, coalesce(request_command, 'not seen') as command, outcome, count(*) as exchanges
from exchanges group by all order by exchanges desc, kind, command, outcome""",
    ),
    ExampleQuery(
        "errors",
        "What did brokers refuse, to whom, and why?",
        """\
select error_code, error_text, coalesce(request_command, 'not seen') as command, client_ip,
       count(*) as times, min(ts) as first, max(ts) as last
from exchanges where outcome = 'error'
group by error_code, error_text, command, client_ip order by times desc, first""",
    ),
    ExampleQuery(
        "journey",
        "How long is each entry under way, from the send over the delivery to the ack?",
        """\
select d.topic, d.subscription, d.ledger_id, d.entry_id, s.latency_ns / 1e6 as stored_ms,
       d.publish_to_delivery_ns / 1e6 as delivered_ms, d.ack_latency_ns / 1e6 as acked_ms
from deliveries d
join exchanges s on (s.capture, s.topic, s.ledger_id, s.entry_id)
                 = (d.capture, d.topic, d.ledger_id, d.entry_id)
where s.kind = 'publish' and s.outcome = 'ok' and d.outcome = 'acked'
order by d.ts, d.frame_no""",
    ),
    ExampleQuery(
        "again",
        "Why was an entry delivered again, and how long after the time before?",
        """\
select d.topic, d.subscription, d.redelivery_cause, d.consumer_name, b.consumer_name as before,
       d.connection_id <> b.connection_id as is_elsewhere, d.ts - b.ts as after
from deliveries d
join deliveries b on (b.capture, b.connection_id, b.frame_no)
                  = (d.capture, d.previous_connection_id, d.previous_frame_no)
order by d.ts, d.frame_no""",
    ),
    ExampleQuery(
        "unacked",
        "Which consumers hold entries that they never acknowledged?",
        """\
select capture, topic, subscription, consumer_name, connection_id, outcome, count(*) as entries,
       sum(message_count) as messages, min(ts) as oldest
from deliveries where outcome <> 'acked' and outcome is not null
group by all order by messages desc, oldest""",
    ),
    ExampleQuery(
        "checksums",
        "Which frames arrived damaged, and where are they in their file, as Wireshark counts?",
        """\
select f.capture, f.command, f.topic, f.crc32c_stored, f.crc32c_computed, c.file_name,
       f.last_packet - c.first_packet + 1 as packet_of_file
from frames f
join capture_files c on c.capture = f.capture
    and f.last_packet >= c.first_packet and f.last_packet < c.first_packet + c.packets
where f.checksum = 'mismatch' order by f.capture, f.frame_no""",
    ),
    ExampleQuery(
        "starved",
        "Which consumers ran out of permits, and for how long?",
        """\
with balance as (
    select *, lead(ts) over (partition by capture, connection_id, consumer_id, incarnation
                             order by ts, frame_no) as until
    from permits where baseline_known)
select capture, topic, subscription, connection_id, consumer_id,
       count(*) as times, sum(date_diff('microseconds', ts, until)) / 1e6 as seconds
from balance where available_after <= 0 and until is not null
group by all order by seconds desc""",
    ),
    ExampleQuery(
        "names",
        "How much did each producer publish, also where its name was learnt late?",
        """\
select coalesce(m.topic, p.topic) as topic, coalesce(m.producer_name, p.name) as producer,
       count(*) as messages, sum(m.payload_bytes) as payload_bytes
from messages m
join frames f on (f.capture, f.connection_id, f.frame_no)
              = (m.capture, m.connection_id, m.frame_no)
left join producers p on (p.capture, p.connection_id, p.producer_id, p.incarnation)
                      = (f.capture, f.connection_id, f.producer_id, f.incarnation)
where m.direction = 'to_broker' and f.protocol = 'pulsar'
group by all order by payload_bytes desc, producer""",
    ),
)
