"""Hand-made frames through the passes: two captures of one connection, one behind the other."""

from typing import Any

import pyarrow as pa
import pytest

from dissector.joining import replay
from dissector.joining.replay import InputKind

MS = 1_000_000


def frame(rank: int, number: int, command: str, direction: str, **given: Any) -> dict[str, Any]:
    row = dict.fromkeys(replay.INPUT.names)
    row |= {
        "rank": rank, "chain": 0, "frame_no": number, "kind": InputKind.FRAME, "command": command,
        "direction": direction, "status": "complete", "retransmitted": False,
        "first_ts_ns": (10 * rank + number) * MS, "last_ts_ns": (10 * rank + number) * MS,
        "stream_offset": 0, "frame_bytes": 50,
    }  # fmt: skip
    return row | given


def beside(rank: int, number: int, kind: int, **given: Any) -> dict[str, Any]:
    row = dict.fromkeys(replay.INPUT.names)
    return row | {"rank": rank, "chain": 0, "frame_no": number, "kind": kind} | given


def replayed(
    rows: list[dict[str, Any]], at_once: int, run: Any = None
) -> dict[str, list[dict[str, Any]]]:
    run = run or replay.Replay(200 * MS)
    table = pa.Table.from_pylist(rows, schema=replay.INPUT)
    tables = []
    for start in range(0, len(rows), at_once):
        tables += list(run.feed(table.slice(start, at_once)))
    found: dict[str, list[dict[str, Any]]] = {}
    for name, each in [*tables, *run.finish()]:
        found.setdefault(name, []).extend(each.to_pylist())
    return found


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_send_is_answered_and_a_delivery_acked_in_the_next_capture(at_once: int) -> None:
    there, back = "to_broker", "to_client"
    rows = [
        frame(0, 1, "PRODUCER", there, request_id=1, producer_id=4, topic="persistent://a/b/t"),
        frame(0, 2, "PRODUCER_SUCCESS", back, request_id=1, producer_name="p"),
        frame(0, 3, "SUBSCRIBE", there, request_id=2, consumer_id=5, topic="persistent://a/b/t",
              subscription="s", detail='{"subType": "Shared"}'),
        frame(0, 4, "SUCCESS", back, request_id=2),
        frame(0, 5, "FLOW", there, consumer_id=5, permits=10),
        frame(0, 6, "SEND", there, producer_id=4, sequence_id=0, message_count=1),
        frame(0, 7, "MESSAGE", back, consumer_id=5, ledger_id=3, entry_id=0, message_count=1),
        frame(1, 1, "SEND_RECEIPT", back, producer_id=4, sequence_id=0, ledger_id=3, entry_id=1,
              incarnation=0),
        frame(1, 2, "ACK", there, consumer_id=5, ack_type="Individual"),
        beside(1, 2, InputKind.ID, ledger_id=3, entry_id=0),
        frame(1, 3, "MESSAGE", back, consumer_id=5, ledger_id=3, entry_id=1, message_count=5),
        beside(1, 3, InputKind.COST, message_count=4),
    ]  # fmt: skip
    closed_rows = replayed(rows, at_once)
    (send,) = [row for row in closed_rows["exchanges"] if row["kind"] == "publish"]
    assert (send["outcome"], send["topic"], send["producer_name"]) == (
        "ok", "persistent://a/b/t", "p",
    )  # fmt: skip
    assert (send["request_rank"], send["request_frame_no"]) == (0, 6)
    assert (send["response_rank"], send["response_frame_no"]) == (1, 1)
    first, second = sorted(closed_rows["deliveries"], key=lambda row: row["entry_id"])
    assert (first["outcome"], first["ack_rank"], first["ack_frame_no"]) == ("acked", 1, 2)
    assert (second["subscription_type"], second["message_count"]) == ("Shared", 4)
    assert [row["available_after"] for row in closed_rows["permits"]] == [10, 9, 5]
    numbers = [row for row in closed_rows[replay.INCARNATIONS] if row["rank"] == 1]
    assert {(row["producer_id"], row["own_incarnation"], row["incarnation"])
            for row in numbers} == {(4, 0, 0)}  # fmt: skip


@pytest.mark.parametrize("at_once", [1, 100])
def test_a_consumer_keeps_the_ranges_that_it_asked_for(at_once: int) -> None:
    there, back = "to_broker", "to_client"
    policy = '"keySharedMode": "STICKY", "hashRanges": [{"start": 8, "end": 9}]'
    said = {"topic": "persistent://a/b/t", "subscription": "s"}
    rows = [
        frame(0, 1, "SUBSCRIBE", there, request_id=2, consumer_id=5, **said,
              detail=f'{{"subType": "Key_Shared", "keySharedMeta": {{{policy}}}}}'),
        frame(0, 2, "ERROR", back, request_id=2, error_code="ConsumerAssignError", error_text="no"),
        frame(1, 1, "SUBSCRIBE", there, request_id=3, consumer_id=5, **said,
              detail='{"subType": "Key_Shared", "keySharedMeta": {"hashRanges": ["<9 more>"]}}'),
    ]  # fmt: skip
    first, second = replayed(rows, at_once)["consumers"]
    names = ("key_shared_mode", "sticky_ranges", "allows_out_of_order")
    assert [first.get(name) for name in names] == ["STICKY", [8, 9], False]
    assert [second.get(name) for name in names] == [None] * 3
    assert first["refused_code"] == "ConsumerAssignError"
