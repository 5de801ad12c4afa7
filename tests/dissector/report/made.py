"""Rows of lake tables made by hand or by chance, as record batches and as a lake on disk."""

import hashlib
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.buckets import bucket_of
from dissector.lake.digest import Marks, SourceFile
from dissector.lake.manifest import MANIFEST_FOLDER, Manifest, PartFile, to_json
from dissector.lake.partitions import day_of
from dissector.schemas import SCHEMA_VERSION, TABLES
from dissector.schemas.arrow import arrow_schema, in_memory_schema

Row = dict[str, Any]
Tables = dict[str, list[Row]]
START_NS: Final = 1_750_000_000_000_000_000
SECOND_NS: Final = 1_000_000_000
_PRODUCERS: Final = ("p-0", "pulsar.repl.a-->b", None)
_OUTCOMES: Final = (
    "ok", "ok", "ok", "ok", "ok", "ok", "error", "dup_or_dropped", "dropped_after_close",
    "unanswered_at_end", "lost_in_gap", "other_side_not_captured",
)  # fmt: skip


def batch(table: str, rows: Iterable[Row], *, is_coded: bool = True) -> pa.RecordBatch:
    """Rows as a batch; columns that a row does not name are null. `ts` is given in µs."""
    schema = in_memory_schema(table) if is_coded else arrow_schema(table)
    found = list(rows)
    unknown = {name for row in found for name in row} - set(schema.names)
    assert not unknown, f"{table} has no {unknown}"
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in found]
        if pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode().cast(field.type))
        elif pa.types.is_timestamp(field.type):
            arrays.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_lake(folder: Path, captures: Mapping[str, Tables]) -> Path:
    """A lake that holds these rows, with manifests; returns its folder."""
    for capture_id, tables in captures.items():
        files = []
        for table in TABLES:
            day = folder / table / f"day={day_of(START_NS)}"
            part = day / f"landing={capture_id}" / "part-00000.parquet"
            part.parent.mkdir(parents=True)
            mine = ({"capture": capture_id, **row} for row in tables.get(table, ()))
            rows = batch(table, mine, is_coded=False)
            pq.write_table(pa.Table.from_batches([rows]), part, compression="zstd")
            content = part.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files.append(PartFile(table, part.name, rows.num_rows, len(content), digest))
        name = capture_id.removeprefix("c-")
        digest = hashlib.sha256(name.encode()).hexdigest()
        manifest = Manifest(
            capture_id, name, SCHEMA_VERSION, 1, digest, Marks(256),
            (SourceFile(f"{name}.pcap", 1, digest, digest),), START_NS, START_NS + 1,
            tuple(files), {"dissector": "0"}, {}, {},
        )  # fmt: skip
        target = folder / MANIFEST_FOLDER / f"{capture_id}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(to_json(manifest), "utf-8")
    return folder


def publish(**values: Any) -> Row:
    """One publish that was answered 5 ms after it was sent; values replace what is given here."""
    row: Row = {
        "connection_id": 0, "kind": "publish", "request_command": "SEND",
        "response_command": "SEND_RECEIPT", "request_frame_no": 1, "response_frame_no": 2,
        "request_first_ns": START_NS, "request_last_ns": START_NS, "latency_ns": 5_000_000,
        "transmit_ns": 0, "outcome": "ok", "tainted": False, "topic": "t", "producer_name": "p",
        "producer_id": 0, "incarnation": 0, "sequence_id": 0, "attempt": 1, "message_count": 1,
        "request_bytes": 100, "outstanding_before": 0, "client_ip": "10.0.0.1",
        "broker_ip": "10.0.0.2",
    }  # fmt: skip
    row |= values
    if row["latency_ns"] is not None:
        row.setdefault("response_last_ns", row["request_last_ns"] + row["latency_ns"])
        row.setdefault("latency_bucket", int(bucket_of(row["latency_ns"])))
    row.setdefault("ts", row["request_last_ns"] // 1000)
    return row


class RandomCapture:
    """Tables of a capture that never was: every case that the report tells apart occurs."""

    def __init__(self, seed: int, sends: int = 400, changes: int = 400) -> None:
        self._random = random.Random(seed)
        self._frame_no = 0
        self._now_ns = START_NS
        self.tables: Tables = {name: [] for name in TABLES}
        self._make_names()
        for _ in range(sends):
            self._send()
        for connection in (0, 2):
            for consumer in (0, 1):
                self._consumer(connection, consumer, changes)
        self._requests()
        self._notices()
        self._file()

    def _tick(self, most_ns: int = 20_000_000) -> int:
        self._now_ns += self._random.randrange(most_ns)
        return self._now_ns

    def _frame(self, command: str, connection: int, **values: Any) -> int:
        self._frame_no += 1
        self.tables["frames"].append(
            {
                "connection_id": connection, "frame_no": self._frame_no, "protocol": "pulsar",
                "command": command, "ts": self._now_ns // 1000, "first_ts_ns": self._now_ns,
                "last_ts_ns": self._now_ns, "first_packet": 3 * self._frame_no,
                "last_packet": 3 * self._frame_no + 1, "frame_bytes": 50, "status": "complete",
                "retransmitted": False, **values,
            }
        )  # fmt: skip
        return self._frame_no

    def _make_names(self) -> None:
        for number in range(4):
            # Connection 3 is the broker's leg of what connection 2 carries.
            leg = {2: ("client", 3), 3: ("broker", 2)}.get(number, (None, None))
            sizes = {
                f"{name}_{way}": self._random.randrange(1000)
                for name in ("packets", "payload_bytes", "stream_bytes", "decoded_bytes", "gaps",
                             "gap_bytes", "unparsed_bytes", "duplicate_packets")
                for way in ("to_broker", "to_client")
            }  # fmt: skip
            self.tables["connections"].append(
                {
                    "connection_id": number, "protocol": "tls" if number == 1 else "pulsar",
                    "client_ip": f"10.0.0.{number % 2}", "client_port": 40_000 + number,
                    "broker_ip": "10.0.1.1", "broker_port": 6650, "started": "syn",
                    "ended": "capture_end", "role_source": "syn", "leg": leg[0],
                    "twin_connection_id": leg[1], "first_ts_ns": START_NS,
                    "last_ts_ns": START_NS + 40 * SECOND_NS,
                    "handshake_rtt_ns": None if number == 1 else 100_000_000 * number, **sizes,
                }
            )  # fmt: skip
        for connection in (0, 2, 3):
            for producer, name in enumerate(("p-0", "pulsar.repl.a-->b", "late")):
                self.tables["producers"].append(
                    {"connection_id": connection, "producer_id": producer, "incarnation": 0,
                     "topic": "persistent://t/n/a", "name": name}
                )  # fmt: skip
            for consumer in range(2):
                self.tables["consumers"].append(
                    {"connection_id": connection, "consumer_id": consumer, "incarnation": 0,
                     "topic": "persistent://t/n/a", "subscription": f"s-{consumer}",
                     "subscription_type": "Shared", "name": f"c-{connection}-{consumer}"}
                )  # fmt: skip

    def _send(self) -> None:
        pick = self._random
        connection, producer = pick.choice((0, 0, 2, 3)), pick.randrange(3)
        outcome = pick.choice(_OUTCOMES)
        sent = self._tick()
        sequence, count = pick.randrange(200), pick.choice((1, 1, 10, None))
        is_bad = pick.random() < 0.1
        topic = pick.choice(("persistent://t/n/a", "persistent://t/n/a-s-0-DLQ", None))
        request = self._frame(
            "SEND", connection, direction="to_broker", producer_id=producer, incarnation=0,
            topic=topic, checksum="mismatch" if is_bad else pick.choice(("ok", "absent")),
            message_count=count, sequence_id=sequence, crc32c_stored=sequence,
            crc32c_computed=sequence ^ (pick.randrange(1, 1 << 32) if is_bad else 0),
            metadata_bytes=pick.choice((20, None)), payload_bytes=26,
            reconsume_times=pick.choice((None, None, None, 2)),
        )  # fmt: skip
        latency = pick.randrange(1, 3_000_000_000) if outcome in ("ok", "error") else None
        if outcome == "ok" and pick.random() < 0.1:
            latency = None
        response = None
        if outcome in ("ok", "error", "dup_or_dropped"):
            response = self._frame("SEND_RECEIPT", connection, direction="to_client",
                                   producer_id=producer, incarnation=0)  # fmt: skip
        row = publish(
            connection_id=connection, request_frame_no=request, response_frame_no=response,
            request_first_ns=sent, request_last_ns=sent, latency_ns=latency,
            response_last_ns=sent + (latency or 7) if response else None,
            transmit_ns=pick.randrange(1000), outcome=outcome, tainted=pick.random() < 0.1,
            topic=topic, producer_name=_PRODUCERS[producer], producer_id=producer,
            sequence_id=sequence, crc32c_stored=sequence % 50, message_count=count,
            attempt=None if topic is None else pick.choice((1, 1, 2, 3)),
            error_code=pick.choice(("ChecksumError", "PersistenceError"))
            if outcome == "error" else None,
            ledger_id=7 if outcome == "ok" else None,
            entry_id=sequence if outcome == "ok" else None,
            client_ip=f"10.0.0.{connection % 2}", broker_ip=f"10.0.1.{producer % 2}",
        )  # fmt: skip
        self.tables["exchanges"].append(row)
        if pick.random() < 0.05:
            orphan = {name: None for name in row if name.startswith(("request", "latency"))}
            self.tables["exchanges"].append(
                row | orphan | {"outcome": "orphan_response", "transmit_ns": None,
                                "attempt": None, "message_count": None,
                                "response_frame_no": response or request}
            )  # fmt: skip

    def _consumer(self, connection: int, consumer: int, changes: int) -> None:
        pick = self._random
        self._now_ns = START_NS
        available, unacked, is_known = 0, 0, consumer == 0
        who = {"connection_id": connection, "consumer_id": consumer, "incarnation": 0,
               "topic": "persistent://t/n/a" if consumer else None,
               "subscription": "s-1" if consumer else None}  # fmt: skip
        for number in range(changes):
            self._tick(pick.choice((1000, 100_000_000, 2_500_000_000)))
            event = pick.choice(("grant", "delivery", "delivery", "delivery"))
            event = "grant" if number == 0 else "reset" if pick.random() < 0.01 else event
            is_known = is_known or number > changes // 2
            if event == "grant":
                delta: int | None = pick.choice((0, 1, 5, 10))
                frame_no = self._frame("FLOW", connection, direction="to_broker")
            elif event == "delivery":
                delta = -pick.choice((1, 1, 2, 10))
                frame_no = self._delivery(who, -delta)
            else:
                delta = None
                frame_no = self._frame("CLOSE_CONSUMER", connection, direction="to_client")
            available = 0 if delta is None else available + delta
            unacked = max(0, unacked + pick.choice((-1, 0, 1)))
            self.tables["permits"].append(
                {**who, "frame_no": frame_no, "ts": self._now_ns // 1000, "event": event,
                 "delta": delta, "available_after": available if is_known else None,
                 "unacked_after": unacked, "baseline_known": is_known}
            )  # fmt: skip

    def _delivery(self, who: Row, cost: int) -> int:
        pick = self._random
        is_bad = pick.random() < 0.05
        ledger, entry = 7, pick.randrange(100)
        frame_no = self._frame(
            "MESSAGE", direction="to_client", checksum="mismatch" if is_bad else "ok",
            ledger_id=ledger, entry_id=entry, crc32c_stored=entry % 7,
            crc32c_computed=entry % 7 + is_bad, metadata_bytes=20, payload_bytes=26,
            **{("connection" if k == "connection_id" else k): v for k, v in who.items()},
        )  # fmt: skip
        is_again = pick.random() < 0.3
        self.tables["deliveries"].append(
            {**who, "frame_no": frame_no, "ts": self._now_ns // 1000, "ledger_id": ledger,
             "entry_id": entry, "message_count": pick.choice((cost, cost, None)),
             "redelivery_count": pick.choice((0, 0, 1, 4)), "is_redelivered": is_again,
             "redelivery_cause": pick.choice(("explicit", "seek")) if is_again else None,
             "previous_frame_no": 1 if is_again else None, "crc32c_stored": entry % 7,
             "checksum": "mismatch" if is_bad else "ok",
             "ack_latency_ns": pick.choice((None, pick.randrange(10**9))),
             "publish_to_delivery_ns": pick.choice((None, pick.randrange(10**9))),
             "deliver_at_ms": pick.choice((None, None, 0, 7)),
             "outcome": pick.choice(("acked", "unacked_at_end"))}
        )  # fmt: skip
        if is_bad or pick.random() < 0.2:
            ends = {"outcome": "discarded", "ack_frame_no": frame_no + 1}
            self.tables["deliveries"][-1] |= ends if frame_no % 3 else {}
            self.tables["acks"].append(
                {**who, "frame_no": self._frame("ACK", who["connection_id"], direction="to_broker"),
                 "ts": self._now_ns // 1000, "action": pick.choice(("ack", "redeliver")),
                 "ledger_id": pick.choice((ledger, None)), "entry_id": entry,
                 "request_id": pick.choice((None, 5)), "ack_type": "Individual",
                 "validation_error": pick.choice(("ChecksumMismatch", None)) if is_bad else None}
            )  # fmt: skip
        return frame_no

    def _requests(self) -> None:
        self._now_ns = START_NS
        for number in range(40):
            self._round_trips(number)
            at = self._tick(20 * SECOND_NS)
            refused = number % 3 != 0
            request = self._frame("PRODUCER", 0, direction="to_broker")
            response = self._frame("ERROR", 0, direction="to_client")
            self.tables["exchanges"].append(
                publish(
                    kind="request", request_command="PRODUCER", response_command="ERROR",
                    request_frame_no=request, response_frame_no=response, request_last_ns=at,
                    latency_ns=1000 * number, topic=self._random.choice(("a", "b", None)),
                    outcome="error" if refused else "ok", producer_name=None, sequence_id=None,
                    error_code="ProducerBusy" if refused else None, attempt=None,
                    error_text=f"text {number % 2}" if refused else None, message_count=None,
                )
            )  # fmt: skip

    def _round_trips(self, number: int) -> None:
        """A ping of one side or the other, and what a client does to get to a topic."""
        way = self._random.choice(("to_broker", "to_client"))
        steps = [("ping", "PING", way, None)]
        for command in ("LOOKUP", "CONNECT", self._random.choice(("PRODUCER", "SUBSCRIBE"))):
            topic = None if command == "CONNECT" else self._random.choice(("a", "b"))
            steps.append(("request", command, "to_broker", topic))
        for kind, command, direction, topic in steps:
            at = self._tick()
            request = self._frame(command, number % 2, direction=direction)
            outcome = self._random.choice(("ok", "ok", "error", "conn_closed"))
            took = None if outcome == "conn_closed" else self._random.randrange(10**8)
            row = publish(
                connection_id=number % 2, kind=kind, request_command=command,
                response_command=None, request_frame_no=request, response_frame_no=None,
                request_first_ns=at, request_last_ns=at, latency_ns=took, outcome=outcome,
                topic=topic, producer_name=None, sequence_id=None, attempt=None,
                message_count=None, client_ip=f"10.0.0.{number % 2}",
            )  # fmt: skip
            self.tables["exchanges"].append(row)

    def _notices(self) -> None:
        for number in range(30):
            code = ("resync", "gap_lost", "names_limit")[number % 3]
            self.tables["notices"].append(
                {"ts": START_NS // 1000, "code": code, "severity": "info", "bytes": number}
            )

    def _file(self) -> None:
        self.tables["capture_files"].append(
            {"file_name": "made.pcap", "file_index": 0, "sha256": "00", "file_bytes": 1000,
             "format": "pcap", "packets": 3000, "first_packet": 1, "link_types": ["ETHERNET"],
             "first_ts_ns": START_NS, "last_ts_ns": START_NS + 2000 * SECOND_NS,
             "is_truncated": False, "packets_tcp": 2990, "clock_steps": 0,
             "packets_ignored_by_reason": [("not_ip", 10)], "schema_version": SCHEMA_VERSION}
        )  # fmt: skip
