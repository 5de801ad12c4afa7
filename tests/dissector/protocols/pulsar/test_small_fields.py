"""Fields of rare commands that joins ask for have columns of `frames` beside `detail`."""

import json
from typing import Any

from tests.hard.tape import TOPIC, Tape, capture, dissected, simple
from tests.wire import pulsar

PLACE = {"ledgerId": 7, "entryId": 1}


def frames_of(*said: tuple[bool, bytes]) -> list[dict[str, Any]]:
    tape = Tape()
    tape.open()
    tape.connect()
    for to_broker, frame in said:
        tape.frame(to_broker, frame)
    tape.close()
    return dissected(capture(tape.records()))["frames"][4:]


def test_of_a_message_what_it_costs_and_what_is_left_of_it() -> None:
    payload = pulsar.batch([({}, b"text")] * 3)
    content = pulsar.metadata(num_messages_in_batch=3)
    left = pulsar.command("MESSAGE", consumer_id=1, message_id=PLACE, ack_set=[6, -1])
    plain = pulsar.command("MESSAGE", consumer_id=1, message_id=PLACE)
    # Field 6 of CommandMessage, which brokers to come will send.
    body = pulsar.body("CommandMessage", consumer_id=1, message_id=PLACE) + b"\x30\x05"
    priced = pulsar.body("BaseCommand", type="MESSAGE")
    priced += b"\x4a" + bytes([len(body)]) + body
    found = frames_of(
        *((False, pulsar.entry(each, content, payload)) for each in (plain, left, priced))
    )
    assert [row["ack_set"] for row in found] == [None, [6, -1], None]
    assert [row["message_permits"] for row in found] == [None, None, 5]


def test_of_rare_commands() -> None:
    watcher = {"namespace": "public/default", "topics_pattern": "x", "watcher_id": 4}
    found = frames_of(
        (True, simple("PRODUCER", topic=TOPIC, producer_id=2, request_id=2)),
        (False, simple("PRODUCER_SUCCESS", request_id=2, producer_name="q", producer_ready=False)),
        (False, simple("PRODUCER_SUCCESS", request_id=2, producer_name="q")),
        (False, simple("ACTIVE_CONSUMER_CHANGE", consumer_id=1, is_active=True)),
        (False, simple("ACTIVE_CONSUMER_CHANGE", consumer_id=1)),
        (True, simple("END_TXN", request_id=3, txn_action="ABORT")),
        (True, simple("WATCH_TOPIC_LIST", request_id=4, **watcher)),
        (False, simple("CONSUMER_STATS_RESPONSE", request_id=5, availablePermits=12)),
    )
    names = ("is_ready", "is_active", "txn_action", "watcher_id", "available_permits")
    told = [{name: row[name] for name in names if row[name] is not None} for row in found]
    assert told == [
        {},
        {"is_ready": False},
        {"is_ready": True},
        {"is_active": True},
        {"is_active": False},
        {"txn_action": "ABORT"},
        {"watcher_id": 4},
        {"available_permits": 12},
    ]
    # Lakes of older versions have them there alone, so queries find them there in all.
    assert json.loads(found[5]["detail"])["txn_action"] == "ABORT"
    assert json.loads(found[6]["detail"])["watcher_id"] == 4
