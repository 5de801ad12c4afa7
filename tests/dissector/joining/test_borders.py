"""Conversations that depend on what was said before a border, cut at two thirds of their frames.

The rows are those of one capture over all of it, stitched at once and in increments.
"""

from collections import Counter
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
from tests.hard.tape import TOPIC, Tape, capture, receipt, send, simple
from tests.wire import pulsar

OPENING: Final = 3 + 8  # packets before the first frame that a border may stand behind
TXN: Final = {"txnid_least_bits": 4, "txnid_most_bits": 1}
Said = tuple[bool, bytes]


def to_broker(name: str, **fields: Any) -> Said:
    return True, simple(name, **fields)


def to_client(name: str, **fields: Any) -> Said:
    return False, simple(name, **fields)


def subscribed(request: int) -> tuple[Said, Said, Said]:
    fields = {"topic": TOPIC, "subscription": "s", "subType": "Shared", "consumer_id": 1}
    return (
        to_broker("SUBSCRIBE", request_id=request, **fields),
        to_client("SUCCESS", request_id=request),
        to_broker("FLOW", consumer_id=1, messagePermits=100),
    )


def message(entry: int, messages: int, **more: Any) -> Said:
    place = {"ledgerId": 7, "entryId": entry}
    command = pulsar.command("MESSAGE", consumer_id=1, message_id=place, **more)
    content = pulsar.metadata(sequence_id=entry, num_messages_in_batch=messages)
    return False, pulsar.entry(command, content, pulsar.batch([({}, b"text")] * messages))


def acked(entry: int, left: int | None, messages: int, request: int, **more: Any) -> Said:
    """An ack of those messages of a batch whose bits are 0 in `left`, of all if it is None."""
    place: dict[str, Any] = {"ledgerId": 7, "entryId": entry}
    if left is not None:
        place |= {"ack_set": [left], "batch_size": messages}
    return to_broker("ACK", consumer_id=1, message_id=[place], ack_type="Individual",
                     request_id=request, **more)  # fmt: skip


def ack_answer(request: int, **more: Any) -> Said:
    return to_client("ACK_RESPONSE", consumer_id=1, request_id=request, **more)


def ended(request: int, action: str) -> tuple[Said, Said]:
    return (
        to_broker("END_TXN", request_id=request, txn_action=action, **TXN),
        to_client("END_TXN_RESPONSE", request_id=request, **TXN),
    )


def lookup(request: int) -> Said:
    return to_broker("LOOKUP", request_id=request, topic=TOPIC)


def found(request: int) -> Said:
    return to_client("LOOKUP_RESPONSE", request_id=request, response="Connect")


def sent(number: int) -> Said:
    return True, send(number, b"text")


def stored(number: int) -> Said:
    return False, receipt(number)


SCRIPTS: Final[dict[str, tuple[Said, ...]]] = {
    "an id that asks something else": (
        lookup(5), to_broker("PARTITIONED_METADATA", request_id=5, topic=TOPIC), found(5),
        to_client("PARTITIONED_METADATA_RESPONSE", request_id=5, partitions=3, response="Success"),
    ),
    "an id of two requests that SUCCESS answers": (
        subscribed(5)[0], to_broker("CLOSE_CONSUMER", request_id=5, consumer_id=1),
        to_client("SUCCESS", request_id=5), to_client("SUCCESS", request_id=5),
        *subscribed(5),
    ),
    "an id whose first request is refused": (
        lookup(5), to_client("ERROR", request_id=5, error="MetadataError", message="no"),
        subscribed(5)[0], to_client("SUCCESS", request_id=5), lookup(5), found(5), found(5),
    ),
    "a consumer that is closed before it is refused": (
        subscribed(5)[0], to_broker("CLOSE_CONSUMER", request_id=6, consumer_id=1),
        to_client("ERROR", request_id=5, error="MetadataError", message="no"),
        to_client("SUCCESS", request_id=6), *subscribed(7),
    ),
    "second receipts": (
        sent(1), stored(1), sent(2), stored(1), stored(2), stored(2), sent(3), stored(3), stored(1),
    ),
    "receipts of a send that was sent again": (
        sent(1), sent(1), stored(1), stored(1), stored(1), sent(1), stored(1),
    ),
    "parts of a batch in a transaction that is committed": (
        *subscribed(2), message(0, 3), acked(0, 0b110, 3, 3, **TXN), ack_answer(3, **TXN),
        acked(0, 0b101, 3, 4, **TXN), ack_answer(4, **TXN), *ended(5, "COMMIT"),
        acked(0, 0b011, 3, 6), ack_answer(6), message(1, 2),
    ),
    "parts of a batch in a transaction that is aborted": (
        *subscribed(2), message(0, 3), acked(0, 0b110, 3, 3, **TXN), ack_answer(3, **TXN),
        acked(0, 0b001, 3, 4, **TXN), ack_answer(4, **TXN), *ended(5, "ABORT"),
        message(0, 3, redelivery_count=1), acked(0, None, 3, 6), ack_answer(6),
    ),
    "a part of a batch in a transaction that the broker refuses": (
        *subscribed(2), message(0, 2), acked(0, 0b10, 2, 3, **TXN),
        ack_answer(3, error="TransactionConflict", **TXN), acked(0, 0b01, 2, 4), ack_answer(4),
        message(0, 2, redelivery_count=1), acked(0, None, 2, 5), ack_answer(5),
    ),
    "a part of a batch in a transaction that never ends": (
        *subscribed(2), message(0, 2), acked(0, 0b10, 2, 3, **TXN), ack_answer(3, **TXN),
        acked(0, 0b01, 2, 4), ack_answer(4), message(0, 2, redelivery_count=1),
    ),
}  # fmt: skip


def test_a_peer_that_asks_and_asks_leaves_so_much_open_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stitching, "MAX_CARRIED_REQUESTS", 3)
    tape = Tape()
    tape.open()
    tape.connect()
    for is_to_broker, frame in (*map(lookup, range(10, 18)), *map(found, range(10, 18))):
        tape.frame(is_to_broker, frame, is_acked=False)
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


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_border_in_a_conversation_leaves_the_rows_of_the_whole(
    name: str, tmp_path: Path
) -> None:
    tape = Tape()
    tape.open()
    tape.connect()
    for is_to_broker, frame in SCRIPTS[name]:
        tape.frame(is_to_broker, frame, is_acked=False)
    data = capture(tape.records())
    land(data, "whole", tmp_path / "whole", tmp_path)
    with open_lake(tmp_path / "whole") as lake:
        whole = {table: rows_of(lake.table(table)) for table in CLOSED}
        handles = {kind: handles_of(lake.table(kind)) for kind in ("producers", "consumers")}
    last = len(tape.packets) - 1
    for number, cuts in enumerate((range(OPENING, last, 3), range(OPENING + 1, last, 3))):
        root = tmp_path / str(number)
        root.mkdir()
        for part, content in enumerate(parts(data, cuts)):
            land(content, f"part{part}", root / "lake", root)
        with open_lake(root / "lake") as lake:
            tables = closed(lake, planned(lake), root / "at-once")
        for table in CLOSED:
            mine = rows_of(tables[table])
            assert (mine - whole[table], whole[table] - mine) == (Counter(), Counter()), (
                cuts, table,
            )  # fmt: skip
        assert {kind: handles_of(tables[kind]) for kind in handles} == handles, cuts
        with open_lake(root / "lake") as lake:
            (part,) = parts_of(planned(lake))
            assert closed_in_increments(lake, part, root / "increments", 1) == len(cuts) + 1
        assert in_tables(root / "increments") == in_tables(root / "at-once")
