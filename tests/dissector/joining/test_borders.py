"""Conversations that depend on what was said before a boundary, cut at two thirds of their frames.

They go on side by side in one capture, so that its boundaries are those of all of them. The rows
are those of one capture over all of it, stitched at once and in increments.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from dissector.joining import stitching
from dissector.joining.closing import CLOSED
from dissector.joining.planning import parts_of
from dissector.lake.reader import open_lake
from dissector.schemas.arrow import arrow_schema
from tests.dissector.joining.cutting import closed, land, parts, plain, planned
from tests.dissector.joining.test_closing import rows_of
from tests.dissector.joining.test_increments import closed_in_increments
from tests.dissector.joining.test_increments import rows_of as in_tables
from tests.hard.tape import START_NS, STEP_NS, TOPIC, Tape, capture, send, simple
from tests.wire import packets, pulsar
from tests.wire.captures import Record

OPENING: Final = 3 + 8  # packets before the first frame that a boundary may stand behind
Said = tuple[bool, bytes]


def to_broker(name: str, **fields: Any) -> Said:
    return True, simple(name, **fields)


def to_client(name: str, **fields: Any) -> Said:
    return False, simple(name, **fields)


class Place:
    """Where a conversation takes place: its topic, ledger and transaction are those of no other one
    in its capture."""

    def __init__(self, number: int = 0) -> None:
        self.topic, self.ledger = f"{TOPIC}-{number}", 7 + number
        self.txn = {"txnid_least_bits": 4 + number, "txnid_most_bits": 1}

    def _entry(self, number: int) -> dict[str, Any]:
        return {"ledgerId": self.ledger, "entryId": number}

    def connected(self) -> tuple[Said, ...]:
        return (
            to_broker("CONNECT", client_version="hard-1", protocol_version=21),
            to_client("CONNECTED", server_version="broker-1", protocol_version=21),
            to_broker("PRODUCER", topic=self.topic, producer_id=1, request_id=1),
            to_client("PRODUCER_SUCCESS", request_id=1, producer_name="p"),
        )

    def asked(self, request: int) -> Said:
        return to_broker("PARTITIONED_METADATA", request_id=request, topic=self.topic)

    def lookup(self, request: int) -> Said:
        return to_broker("LOOKUP", request_id=request, topic=self.topic)

    def subscribed(self, request: int) -> tuple[Said, Said, Said]:
        fields = {"topic": self.topic, "subscription": "s", "subType": "Shared", "consumer_id": 1}
        return (
            to_broker("SUBSCRIBE", request_id=request, **fields),
            to_client("SUCCESS", request_id=request),
            to_broker("FLOW", consumer_id=1, messagePermits=100),
        )

    def message(self, entry: int, messages: int, **more: Any) -> Said:
        command = pulsar.command("MESSAGE", consumer_id=1, message_id=self._entry(entry), **more)
        content = pulsar.metadata(sequence_id=entry, num_messages_in_batch=messages)
        return False, pulsar.entry(command, content, pulsar.batch([({}, b"text")] * messages))

    def acked(self, entry: int, left: int | None, messages: int, request: int, **more: Any) -> Said:
        """An ack of those messages of a batch whose bits are 0 in `left`, of all if it is None."""
        place = self._entry(entry)
        if left is not None:
            place |= {"ack_set": [left], "batch_size": messages}
        return to_broker("ACK", consumer_id=1, message_id=[place], ack_type="Individual",
                         request_id=request, **more)  # fmt: skip

    def ended(self, request: int, action: str) -> tuple[Said, Said]:
        return (
            to_broker("END_TXN", request_id=request, txn_action=action, **self.txn),
            to_client("END_TXN_RESPONSE", request_id=request, **self.txn),
        )

    def stored(self, number: int) -> Said:
        place = self._entry(number)
        return to_client("SEND_RECEIPT", producer_id=1, sequence_id=number, message_id=place)


def ack_answer(request: int, **more: Any) -> Said:
    return to_client("ACK_RESPONSE", consumer_id=1, request_id=request, **more)


def found(request: int) -> Said:
    return to_client("LOOKUP_RESPONSE", request_id=request, response="Connect")


def sent(number: int) -> Said:
    return True, send(number, b"text")


SCRIPTS: Final[dict[str, Callable[[Place], tuple[Said, ...]]]] = {
    "an id that asks something else": lambda at: (
        at.lookup(5), at.asked(5), found(5),
        to_client("PARTITIONED_METADATA_RESPONSE", request_id=5, partitions=3, response="Success"),
    ),
    "an id of two requests that SUCCESS answers": lambda at: (
        at.subscribed(5)[0], to_broker("CLOSE_CONSUMER", request_id=5, consumer_id=1),
        to_client("SUCCESS", request_id=5), to_client("SUCCESS", request_id=5),
        *at.subscribed(5),
    ),
    "an id whose first request is refused": lambda at: (
        at.lookup(5), to_client("ERROR", request_id=5, error="MetadataError", message="no"),
        at.subscribed(5)[0], to_client("SUCCESS", request_id=5), at.lookup(5), found(5), found(5),
    ),
    "a consumer that is closed before it is refused": lambda at: (
        at.subscribed(5)[0], to_broker("CLOSE_CONSUMER", request_id=6, consumer_id=1),
        to_client("ERROR", request_id=5, error="MetadataError", message="no"),
        to_client("SUCCESS", request_id=6), *at.subscribed(7),
    ),
    "second receipts": lambda at: (
        sent(1), at.stored(1), sent(2), at.stored(1), at.stored(2), at.stored(2), sent(3),
        at.stored(3), at.stored(1),
    ),
    "receipts of a send that was sent again": lambda at: (
        sent(1), sent(1), at.stored(1), at.stored(1), at.stored(1), sent(1), at.stored(1),
    ),
    "parts of a batch in a transaction that is committed": lambda at: (
        *at.subscribed(2), at.message(0, 3),
        at.acked(0, 0b110, 3, 3, **at.txn), ack_answer(3, **at.txn),
        at.acked(0, 0b101, 3, 4, **at.txn), ack_answer(4, **at.txn), *at.ended(5, "COMMIT"),
        at.acked(0, 0b011, 3, 6), ack_answer(6), at.message(1, 2),
    ),
    "parts of a batch in a transaction that is aborted": lambda at: (
        *at.subscribed(2), at.message(0, 3),
        at.acked(0, 0b110, 3, 3, **at.txn), ack_answer(3, **at.txn),
        at.acked(0, 0b001, 3, 4, **at.txn), ack_answer(4, **at.txn), *at.ended(5, "ABORT"),
        at.message(0, 3, redelivery_count=1), at.acked(0, None, 3, 6), ack_answer(6),
    ),
    "a part of a batch in a transaction that the broker refuses": lambda at: (
        *at.subscribed(2), at.message(0, 2), at.acked(0, 0b10, 2, 3, **at.txn),
        ack_answer(3, error="TransactionConflict", **at.txn),
        at.acked(0, 0b01, 2, 4), ack_answer(4),
        at.message(0, 2, redelivery_count=1), at.acked(0, None, 2, 5), ack_answer(5),
    ),
    "a part of a batch that the broker refuses late": lambda at: (
        *at.subscribed(2), at.message(0, 3), at.acked(0, 0b110, 3, 3, **at.txn), at.message(1, 1),
        at.acked(0, 0b101, 3, 4), ack_answer(4), at.message(2, 1),
        ack_answer(3, error="TransactionConflict", **at.txn), at.message(3, 1),
        at.acked(0, 0b000, 3, 5), at.message(4, 1), ack_answer(5), at.message(5, 1),
    ),
    "a part of a batch in a transaction that is aborted before others": lambda at: (
        *at.subscribed(2), at.message(0, 3),
        at.acked(0, 0b110, 3, 3, **at.txn), ack_answer(3, **at.txn), at.message(1, 1),
        *at.ended(4, "ABORT"), at.message(2, 1), at.acked(0, 0b101, 3, 5), ack_answer(5),
        at.message(3, 1), at.acked(0, None, 3, 6), ack_answer(6), at.message(4, 1),
    ),
    "a part of a batch in a transaction behind the ack of all": lambda at: (
        *at.subscribed(2), at.message(0, 3), at.acked(0, None, 3, 3), ack_answer(3),
        at.acked(0, 0b110, 3, 4, **at.txn), ack_answer(4, **at.txn), at.message(1, 1),
    ),
    "a part of a batch in a transaction that never ends": lambda at: (
        *at.subscribed(2), at.message(0, 2),
        at.acked(0, 0b10, 2, 3, **at.txn), ack_answer(3, **at.txn),
        at.acked(0, 0b01, 2, 4), ack_answer(4), at.message(0, 2, redelivery_count=1),
    ),
}  # fmt: skip


def said(at: Place, number: int, script: Iterable[Said]) -> Tape:
    """A conversation on a connection of its own, begun a little behind those before it."""
    client = packets.CLIENT, packets.CLIENT_PORT + number
    tape = Tape(client=client, start_ns=START_NS + number * STEP_NS // len(SCRIPTS))
    tape.open()
    for is_to_broker, frame in at.connected():
        tape.frame(is_to_broker, frame)
    for is_to_broker, frame in script:
        tape.frame(is_to_broker, frame, is_acked=False)
    return tape


def test_a_peer_that_asks_and_asks_leaves_so_much_open_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stitching.BOUNDS, "{carried}", 3)
    at = Place()
    tape = said(at, 0, (*map(at.lookup, range(10, 18)), *map(found, range(10, 18))))
    for part, content in enumerate(parts(capture(tape.records()), [OPENING + 4, OPENING + 8])):
        land(content, f"part{part}", tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        (group,) = parts_of(planned(lake))
        assert closed_in_increments(lake, group, tmp_path / "increments", 1) == 3
    told = [
        row["outcome"]
        for path in sorted((tmp_path / "increments" / "exchanges").glob("*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
        if "LOOKUP" in (row["request_command"] or row["response_command"])
    ]
    assert Counter(told) == {"evicted": 5, "ok": 3, "orphan_response": 5}


def test_an_ack_ends_the_delivery_that_came_last_whatever_is_told_before(tmp_path: Path) -> None:
    """A message came twice. The second delivery is told, the first one open at the border: what
    ended the second is no end of the first."""
    at = Place()
    twice = at.message(0, 1), at.message(0, 1, redelivery_count=1)
    ended = at.acked(0, None, 1, 3), ack_answer(3), at.lookup(4), found(4)
    tape = said(at, 0, (*at.subscribed(2), *twice, *ended))
    for part, content in enumerate(parts(capture(tape.records()), [OPENING + 7])):
        land(content, f"part{part}", tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        plan = planned(lake)
        told = closed(lake, plan, tmp_path / "at-once")["deliveries"]
        (group,) = parts_of(plan)
        assert closed_in_increments(lake, group, tmp_path / "increments", 1) == 2
    assert told.column("outcome").to_pylist() == ["unacked_at_end", "acked"]
    assert in_tables(tmp_path / "increments") == in_tables(tmp_path / "at-once")


def handles_of(table: Any) -> Counter[tuple[Any, ...]]:
    """Producers or consumers: of frames whether there is one, for each capture counts its own."""
    names = arrow_schema("producers").names + arrow_schema("consumers").names
    return plain(
        {
            name: value is not None if name.endswith("_frame_no") else value
            for name, value in row.items()
            if name in names
        }
        for row in table.to_pylist()
    )


@pytest.fixture(scope="module")
def conversations() -> list[Record]:
    """The packets of all scripts, which go on at the same time: the first of each, the second..."""
    tapes = [
        said(at := Place(number), number, script(at))
        for number, script in enumerate(SCRIPTS.values())
    ]
    return sorted((each for tape in tapes for each in tape.records()), key=lambda each: each.ts_ns)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_each_border_in_a_conversation_leaves_the_rows_of_the_whole(
    first: int, conversations: list[Record], tmp_path: Path
) -> None:
    """Behind so many frames and then every third one of each conversation. What a row of one that
    differs says of its topic or ledger tells which one it is: `Place` numbers them."""
    data = capture(conversations)
    land(data, "whole", tmp_path / "whole", tmp_path)
    with open_lake(tmp_path / "whole") as lake:
        whole = {table: rows_of(lake.table(table)) for table in CLOSED}
        handles = {kind: handles_of(lake.table(kind)) for kind in ("producers", "consumers")}
    times = [each.ts_ns for each in conversations]
    last = (times[-1] - START_NS) // STEP_NS
    cuts = [
        bisect(times, START_NS + place * STEP_NS - 1) for place in range(OPENING + first, last, 3)
    ]
    for part, content in enumerate(parts(data, cuts)):
        land(content, f"part{part}", tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        plan = planned(lake)
        tables = closed(lake, plan, tmp_path / "at-once")
        (group,) = parts_of(plan)
        assert closed_in_increments(lake, group, tmp_path / "increments", 1) == len(cuts) + 1
    for table in CLOSED:
        mine = rows_of(tables[table])
        assert (mine - whole[table], whole[table] - mine) == (Counter(), Counter()), table
    assert {kind: handles_of(tables[kind]) for kind in handles} == handles
    assert in_tables(tmp_path / "increments") == in_tables(tmp_path / "at-once")
