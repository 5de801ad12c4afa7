"""Conversations of clients with a broker from a script, as captures, and the tables of several.

A script is a list of steps; one that makes no sense where it stands (an answer that nothing waits
for, a consumer that is not open) is left out. There are two connections, each with a producer;
consumers 0 and 1 of the first and 2 of the second share one subscription.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from dissector.dissection import Dissection, Options
from dissector.schemas.arrow import in_memory_schema
from dissector.schemas.rows import arrow_batch
from tests.hard.tape import TOPIC, Packet, Tape, capture, simple
from tests.oracle.facts import INPUTS, KEYS
from tests.wire import packets, pulsar

KINDS: Final = (
    "send", "send", "receipt", "receipt", "error", "duplicate", "ping", "pong", "look up", "found",
    "message", "message", "message", "ack", "ack", "ack a part", "flow", "redeliver",
    "redeliver all", "open", "close", "broker closes", "hang up",
)  # fmt: skip
CONSUMERS: Final = 3
LEDGER: Final = 7

Row = dict[str, Any]


class Step(NamedTuple):
    """A step of a script. consumer: 0 to 2, whose connection it is on; number: 0 to 7."""

    kind: str
    consumer: int
    number: int


class Conversation:
    """What was said so far; `packets` have the time at which each was."""

    def __init__(self, script: Sequence[Step], subscription_type: str) -> None:
        self._type = subscription_type
        self._tapes = [Tape(client=(packets.CLIENT, 40_000 + number)) for number in range(2)]
        self._now = self._tapes[0].now
        self._requests = 10
        self._over: set[int] = set()
        self._open: set[int] = set()
        self._waiting: list[list[int]] = [[], []]
        self._looked_up: list[list[int]] = [[], []]
        self._pings = [0, 0]
        self._sent = self._stored = 0
        for connection in range(2):
            self._begin(connection)
        for consumer in range(CONSUMERS):
            self._do(Step("open", consumer, 0))
        for step in script:
            if step.consumer // 2 not in self._over:
                self._do(step)

    def records(self) -> bytes:
        """The capture of it."""
        found: list[tuple[Tape, Packet]] = [
            (tape, packet) for tape in self._tapes for packet in tape.packets
        ]
        found.sort(key=lambda each: each[1].ts_ns)
        records = {
            id(tape): dict(zip(tape.packets, tape.records(), strict=True)) for tape in self._tapes
        }
        return capture([records[id(tape)][packet] for tape, packet in found])

    def _begin(self, connection: int) -> None:
        tape = self._tapes[connection]
        tape.now = self._now
        tape.open()
        self._now = tape.now
        self._say(connection, True, "CONNECT", client_version="c", protocol_version=21)
        self._say(connection, False, "CONNECTED", server_version="b", protocol_version=21)
        self._say(connection, True, "PRODUCER", topic=TOPIC, producer_id=1, request_id=1)
        name = f"p{connection}"
        self._say(connection, False, "PRODUCER_SUCCESS", request_id=1, producer_name=name)

    def _frame(self, connection: int, to_broker: bool, frame: bytes) -> None:
        tape = self._tapes[connection]
        tape.now = self._now
        tape.frame(to_broker, frame, is_acked=False)
        self._now = tape.now

    def _say(self, connection: int, to_broker: bool, name: str, **fields: Any) -> None:
        self._frame(connection, to_broker, simple(name, **fields))

    def _ask(self, connection: int, name: str, **fields: Any) -> None:
        self._requests += 1
        self._say(connection, True, name, request_id=self._requests, **fields)
        self._say(connection, False, "SUCCESS", request_id=self._requests)

    def _do(self, step: Step) -> None:
        connection = step.consumer // 2
        if step.kind in _OF_CONNECTIONS:
            self._of_connection(step.kind, connection, step.number)
        elif step.kind == "open":
            if step.consumer not in self._open:
                self._open.add(step.consumer)
                self._ask(connection, "SUBSCRIBE", topic=TOPIC, subscription="s",
                          subType=self._type, consumer_id=step.consumer)  # fmt: skip
        elif step.consumer in self._open:
            self._of_consumer(step, connection)

    def _of_connection(self, kind: str, connection: int, number: int) -> None:
        waiting, looked_up = self._waiting[connection], self._looked_up[connection]
        if kind == "send":
            self._sent += 1
            waiting.append(self._sent)
            fields = {"sequence_id": self._sent, "publish_time": 1}
            self._frame(connection, True, pulsar.send(metadata_fields=fields, producer_id=1,
                                                      sequence_id=self._sent))  # fmt: skip
        elif kind in ("receipt", "duplicate", "error") and waiting:
            answered = {"producer_id": 1, "sequence_id": waiting.pop(number % len(waiting))}
            if kind == "error":
                more: Row = {"error": "PersistenceError", "message": "no room"}
                self._say(connection, False, "SEND_ERROR", **answered, **more)
            else:
                place = (LEDGER, self._stored) if kind == "receipt" else (-1, -1)
                self._stored += kind == "receipt"
                more = {"message_id": {"ledgerId": place[0], "entryId": place[1]}}
                self._say(connection, False, "SEND_RECEIPT", **answered, **more)
        elif kind == "ping":
            self._pings[connection] += 1
            self._say(connection, True, "PING")
        elif kind == "pong" and self._pings[connection]:
            self._pings[connection] -= 1
            self._say(connection, False, "PONG")
        elif kind == "look up":
            self._requests += 1
            looked_up.append(self._requests)
            self._say(connection, True, "LOOKUP", request_id=self._requests, topic=TOPIC)
        elif kind == "found" and looked_up:
            request = looked_up.pop(number % len(looked_up))
            self._say(connection, False, "LOOKUP_RESPONSE", request_id=request, response="Connect")
        elif kind == "hang up" and number == 0:
            self._over.add(connection)
            tape = self._tapes[connection]
            tape.now = self._now
            tape.close()
            self._now = tape.now

    def _of_consumer(self, step: Step, connection: int) -> None:
        consumer, number = step.consumer, step.number
        place: Row = {"ledgerId": LEDGER, "entryId": number}
        kind, messages = step.kind, 1 + number % 3
        if kind == "message":
            command = pulsar.command("MESSAGE", consumer_id=consumer, message_id=place)
            fields: Row = {"num_messages_in_batch": messages} if messages > 1 else {}
            content = pulsar.metadata(sequence_id=number, **fields)
            payload = pulsar.batch([({}, b"text")] * messages) if messages > 1 else b"text"
            self._frame(connection, False, pulsar.entry(command, content, payload))
        elif kind == "flow":
            self._say(connection, True, "FLOW", consumer_id=consumer, messagePermits=10 + number)
        elif kind in ("ack", "ack a part"):
            is_cumulative = self._type == "Exclusive"
            if kind == "ack a part" and messages > 1:
                place |= {"ack_set": [(1 << messages) - 2], "batch_size": messages}
            self._say(connection, True, "ACK", consumer_id=consumer, message_id=[place],
                      ack_type="Cumulative" if is_cumulative else "Individual")  # fmt: skip
        elif kind in ("redeliver", "redeliver all"):
            places = [place, place | {"entryId": (number + 1) % 8}] if kind == "redeliver" else []
            self._say(connection, True, "REDELIVER_UNACKNOWLEDGED_MESSAGES",
                      consumer_id=consumer, message_ids=places)  # fmt: skip
        elif kind == "close":
            self._open.discard(consumer)
            self._ask(connection, "CLOSE_CONSUMER", consumer_id=consumer)
        elif kind == "broker closes":
            self._open.discard(consumer)
            self._say(connection, False, "CLOSE_CONSUMER", consumer_id=consumer, request_id=-1)


_OF_CONNECTIONS: Final = frozenset(
    ("send", "receipt", "error", "duplicate", "ping", "pong", "look up", "found", "hang up")
)


def tables_of(captures: Mapping[str, tuple[bytes, Collection[int]]]) -> dict[str, pa.Table]:
    """The tables of captures by name, each read in pieces that end at some of its bytes."""
    batches: dict[str, list[pa.Table]] = {
        name: [named(in_memory_schema(name).empty_table(), "")] for name in (*INPUTS, *KEYS)
    }
    for name, (content, cuts) in captures.items():
        for block in _blocks(content, cuts):
            if block.table in batches:
                rows = pa.Table.from_batches([arrow_batch(block)])
                batches[block.table].append(named(rows, name))
    names = pa.array(list(captures), pa.string())
    batches["capture_files"] = [pa.table({"capture": names, "file_name": names})]
    return {name: pa.concat_tables(found) for name, found in batches.items()}


def named(rows: pa.Table, capture_id: str) -> pa.Table:
    """Rows with the id of their capture, which landing gives them else."""
    if "capture" in rows.column_names:
        rows = rows.drop_columns(["capture"])
    names = pa.array([capture_id] * rows.num_rows, pa.string())
    return rows.append_column("capture", names)


def _blocks(content: bytes, cuts: Collection[int]) -> list[Any]:
    """What a dissection gives for a capture that comes in pieces."""
    data = np.frombuffer(bytearray(content), np.uint8)
    dissection = Dissection(Options())
    dissection.start_file()
    blocks, at = [], 0
    for end in sorted({*(cut for cut in cuts if cut < len(data)), len(data)}):
        at, found = dissection.feed(data, at, end, end == len(data))
        blocks += found
    dissection.end_file()
    return blocks + dissection.finish()
