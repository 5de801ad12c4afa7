"""Hand-made frames of Cursus through its pairing: two captures, one behind the other."""

import json
from typing import Any

import pyarrow as pa
import pytest

from dissector.joining import replay_cursus
from dissector.joining.replay_cursus import INPUT, InputKind, answer_of, line_of
from dissector.protocols.cursus.commands import NUMBER, RESPONSE_JSON, RESPONSE_OK

MS = 1_000_000


def frame(rank: int, number: int, command: str, direction: str, **given: Any) -> dict[str, Any]:
    detail = given.pop("said", None)
    row = dict.fromkeys(INPUT.names)
    row |= {
        "rank": rank, "chain": 0, "frame_no": number, "kind": InputKind.FRAME, "command": command,
        "direction": direction, "status": "complete", "retransmitted": False,
        "first_ts_ns": (10 * rank + number) * MS, "last_ts_ns": (10 * rank + number) * MS,
        "stream_offset": 0, "frame_bytes": 50,
        "detail": None if detail is None else json.dumps(detail),
    }  # fmt: skip
    return row | given


def cost(rank: int, number: int, **given: Any) -> dict[str, Any]:
    row = dict.fromkeys(INPUT.names)
    return row | {"rank": rank, "chain": 0, "frame_no": number, "kind": InputKind.COST} | given


def replayed(rows: list[dict[str, Any]], at_once: int) -> dict[str, list[dict[str, Any]]]:
    table = pa.Table.from_pylist(rows, schema=INPUT)
    batches = [table.slice(start, at_once) for start in range(0, len(rows), at_once)]
    found: dict[str, list[dict[str, Any]]] = {}
    for name, each in replay_cursus.replayed(batches):
        found.setdefault(name, []).extend(each.to_pylist())
    return found


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_what_one_capture_asked_the_next_one_answers(at_once: int) -> None:
    there, back = "to_broker", "to_client"
    of_group = {"topic": "t", "subscription": "g", "partition": 0}
    rows = [
        frame(0, 1, "BATCH", there, topic="t", partition=0, producer_name="p", producer_epoch=1,
              sequence_id=1, highest_sequence_id=2, message_count=2),
        cost(0, 1, permits=1, redelivery_count=0),
        frame(1, 1, "RESPONSE_JSON", back, topic="t", producer_name="p", producer_epoch=1,
              sequence_id=1, highest_sequence_id=2, entry_id=6),
        frame(1, 2, "CONSUME", there, **of_group, said={"offset": "5"}),
        frame(1, 3, "BATCH", back, topic="t", partition=0, producer_name="p", producer_epoch=1),
        cost(1, 3, entry_id=5, message_count=2, producer_name="p", sequence_id=1),
        frame(2, 1, "COMMIT_OFFSET", there, **of_group, entry_id=6),
        frame(2, 2, "RESPONSE_OK", back, **of_group),
        frame(2, 3, "CONSUME", there, **of_group, said={"offset": "5"}),
    ]  # fmt: skip
    closed_rows = replayed(rows, at_once)
    (sent,) = [row for row in closed_rows["exchanges"] if row["request_command"] == "BATCH"]
    assert (sent["outcome"], sent["entry_id"], sent["attempt"]) == ("ok", 6, 1)
    assert (sent["request_rank"], sent["response_rank"]) == (0, 1)
    (got,) = closed_rows["deliveries"]
    assert (got["subscription"], got["entry_id"], got["message_count"]) == ("g", 5, 2)
    assert (got["outcome"], got["ack_rank"], got["ack_frame_no"]) == ("acked", 2, 1)
    assert got["publish_to_delivery_ns"] == 12 * MS
    waiting = [
        row["outcome"] for row in closed_rows["exchanges"] if row["response_frame_no"] is None
    ]
    assert waiting == ["unanswered_at_end"]


def test_a_command_is_read_again_from_its_row() -> None:
    row = frame(0, 1, "BATCH_COMMIT", "to_broker", topic="t", subscription="g",
                said={"generation": "3", "offsets": {"P0": 11, "P1": 21}})  # fmt: skip
    line = line_of(row, NUMBER["BATCH_COMMIT"])
    assert line.entries == ((0, 11), (1, 21)) and line.number(b"generation") == 3
    assert line.arguments[b"topic"] == b"t" and line.arguments[b"group"] == b"g"
    single = frame(0, 1, "COMMIT_OFFSET", "to_broker", entry_id=6)
    assert line_of(single, NUMBER["COMMIT_OFFSET"]).number(b"offset") == 7
    cut = frame(0, 1, "CREATE", "to_broker") | {"detail": '{"idempotent": "tr'}
    assert line_of(cut, NUMBER["CREATE"]).arguments == {}


def test_an_answer_is_read_again_from_its_row() -> None:
    joined = frame(0, 1, "RESPONSE_OK", "to_client", said={"generation": "4"})
    assert answer_of(joined, RESPONSE_OK).number("generation") == 4
    refused = frame(0, 1, "RESPONSE_JSON", "to_client", error_code="GEN_MISMATCH", error_text="no")
    answer = answer_of(refused, RESPONSE_JSON)
    assert (answer.is_error, answer.error_code, answer.error_text) == (True, "GEN_MISMATCH", b"no")
    stored = frame(0, 1, "RESPONSE_JSON", "to_client", entry_id=6, producer_name="p",
                   producer_epoch=1, sequence_id=1, highest_sequence_id=2)  # fmt: skip
    ack = answer_of(stored, RESPONSE_JSON).ack
    assert ack is not None and (ack.last_offset, ack.producer_id) == (6, b"p")
