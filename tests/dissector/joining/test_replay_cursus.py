"""Hand-made frames of Cursus through its pairing: two captures, one behind the other."""

import json
from typing import Any

import pytest

from dissector.joining.replay import InputKind
from dissector.joining.replay_cursus import answer_of, line_of
from dissector.joining.replays import Replays
from dissector.protocols.cursus.commands import NUMBER, RESPONSE_JSON, RESPONSE_OK
from tests.dissector.joining import test_replay

MS = 1_000_000


def frame(rank: int, number: int, command: str, direction: str, **given: Any) -> dict[str, Any]:
    detail = given.pop("said", None)
    more = {"read_by": "cursus", "detail": None if detail is None else json.dumps(detail)}
    return test_replay.frame(rank, number, command, direction, **more, **given)


def cost(rank: int, number: int, **given: Any) -> dict[str, Any]:
    return test_replay.beside(rank, number, InputKind.COST, read_by="cursus", **given)


def replayed(rows: list[dict[str, Any]], at_once: int) -> dict[str, list[dict[str, Any]]]:
    return test_replay.replayed(rows, at_once, Replays(200 * MS))


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
        # Of the other protocol, in the same group of captures.
        test_replay.frame(0, 9, "PING", there, chain=7, read_by="pulsar"),
        test_replay.frame(1, 9, "PONG", back, chain=7, read_by="pulsar"),
    ]  # fmt: skip
    closed_rows = replayed(rows, at_once)
    sent, ping = (next(row for row in closed_rows["exchanges"] if row["request_command"] == name)
                  for name in ("BATCH", "PING"))  # fmt: skip
    assert (sent["outcome"], sent["entry_id"], sent["attempt"]) == ("ok", 6, 1)
    assert (sent["request_rank"], sent["response_rank"]) == (0, 1)
    assert (ping["outcome"], ping["response_rank"]) == ("ok", 1)
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
