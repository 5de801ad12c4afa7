"""Wrong checksums: what is said about each, and which other frame carries the same entry."""

from collections.abc import Iterator
from typing import Any

import pytest

from dissector.queries.duckdb_engine import DuckdbEngine
from tests.dissector.queries.query_engine import QueryEngine, Row

WRONG, RIGHT = 0xBAD, 0x600D


@pytest.fixture(scope="module")
def db() -> Iterator[QueryEngine]:
    with DuckdbEngine(threads=1) as db:
        yield QueryEngine(engine=db)


def frame(frame_no: int, command: str = "SEND", **more: Any) -> Row:
    """A frame whose checksum does not match, if nothing else is said."""
    direction = "to_broker" if command == "SEND" else "to_client"
    return {
        "connection_id": 0, "frame_no": frame_no, "command": command, "direction": direction,
        "protocol": "pulsar", "checksum": "mismatch", "last_ts_ns": frame_no, "topic": "t",
        "crc32c_stored": RIGHT, "crc32c_computed": WRONG, "producer_id": 0, "incarnation": 0,
    } | more  # fmt: skip


def send(frame_no: int, outcome: str, **more: Any) -> Row:
    """The exchange of a SEND."""
    answer = {"connection_id": 0, "request_frame_no": frame_no, "response_frame_no": frame_no + 1}
    return answer | {"kind": "publish", "outcome": outcome} | more


def delivery(frame_no: int, **more: Any) -> Row:
    """A MESSAGE as a delivery."""
    return {"connection_id": 0, "frame_no": frame_no, "outcome": "acked"} | more


def said(db: QueryEngine, tables: dict[str, list[Row]]) -> dict[int, tuple[str, int | None]]:
    """The verdict of each wrong frame, and the frame that proves it."""
    db.give(tables)
    found = db.per_capture("checksum_failures")
    counted: dict[str, int] = {}
    for row in db.per_capture("checksums"):
        if row["grouping"] == "topic" and row["checksum"] == "mismatch":
            counted[row["verdict"]] = counted.get(row["verdict"], 0) + row["frames"]
    told = {row["frame_no"]: (row["verdict"], row["evidence_frame_no"]) for row in found}
    for verdict in counted:
        assert counted[verdict] == sum(each == verdict for each, _ in told.values())
    return told


def test_what_a_broker_answers_says_whether_the_frame_was_good(db: QueryEngine) -> None:
    tables = {
        "frames": [frame(number) for number in (1, 3, 5, 7, 9)],
        "exchanges": [
            send(1, "error", error_code="ChecksumError"), send(3, "error", error_code="NotAllowed"),
            send(5, "ok"), send(7, "dup_or_dropped"),
        ],
    }  # fmt: skip
    assert said(db, tables) == {
        1: ("confirmed_by_peer", 2), 3: ("unconfirmed", 4), 5: ("capture_artefact", 6),
        7: ("unconfirmed", 8), 9: ("unconfirmed", None),
    }  # fmt: skip


def test_only_the_ack_that_ended_a_delivery_confirms_it(db: QueryEngine) -> None:
    """An entry may be delivered several times; an ACK with an error speaks of one delivery."""
    tables = {
        "frames": [frame(number, "MESSAGE") for number in (1, 2, 3)],
        "deliveries": [
            delivery(1, outcome="discarded", ack_frame_no=8),
            delivery(2, outcome="discarded", ack_frame_no=9), delivery(3, ack_frame_no=8),
        ],
        "acks": [
            {"connection_id": 0, "frame_no": 8, "validation_error": "ChecksumMismatch"},
            {"connection_id": 0, "frame_no": 9, "validation_error": "DecryptionError"},
        ],
    }  # fmt: skip
    assert said(db, tables) == {
        1: ("confirmed_by_peer", 8), 2: ("unconfirmed", None), 3: ("unconfirmed", None),
    }  # fmt: skip


def test_a_copy_is_the_same_entry_with_one_of_both_checksums(db: QueryEngine) -> None:
    of_entry = {"ledger_id": 1, "entry_id": 2}
    db.give({
        "frames": [
            frame(10, sequence_id=4), frame(20, "MESSAGE", **of_entry), frame(30, sequence_id=9),
        ],
        "exchanges": [
            send(10, "ok", sequence_id=4, crc32c_stored=RIGHT),  # the frame itself
            send(12, "ok", sequence_id=4, crc32c_stored=0xAB),  # another entry
            send(14, "ok", sequence_id=4, crc32c_stored=RIGHT),
            send(16, "ok", sequence_id=4, crc32c_stored=WRONG),
        ],
        "deliveries": [
            delivery(5, checksum="mismatch", crc32c_stored=RIGHT, **of_entry),
            delivery(25, checksum="ok", crc32c_stored=WRONG, **of_entry),
            delivery(22, checksum="ok", crc32c_stored=RIGHT, ledger_id=1, entry_id=3),
        ],
    })  # fmt: skip
    found = {
        row["frame_no"]: (row["copy_frame_no"], row["copy_crc32c"])
        for row in db.per_capture("checksum_failures")
    }
    assert found == {10: (14, RIGHT), 20: (25, WRONG), 30: (None, None)}


def test_frames_count_by_topic_and_by_connection_and_the_brokers_leg_does_not(
    db: QueryEngine,
) -> None:
    """A topic that is learnt late is the topic of what came before."""
    good: dict[str, Any] = {"checksum": "ok", "topic": None}
    db.give({
        "frames": [
            frame(1, **good), frame(2, **good), frame(3), frame(4, connection_id=1, **good),
            frame(5, checksum="not_evaluated", checksum_note="snaplen"),
        ],
        "connections": [
            {"connection_id": 0, "client_port": 50, "leg": "client", "twin_connection_id": 1},
            {"connection_id": 1, "client_port": 51, "leg": "broker", "twin_connection_id": 0},
        ],
        "producers": [{"connection_id": 0, "producer_id": 0, "incarnation": 0, "topic": "t"}],
    })  # fmt: skip
    rows = db.per_capture("checksums")
    by_topic = [(r["topic"], r["checksum"], r["checksum_note"], r["frames"]) for r in rows
                if r["grouping"] == "topic"]  # fmt: skip
    expected = {
        ("t", "ok", None, 2),
        ("t", "mismatch", None, 1),
        ("t", "not_evaluated", "snaplen", 1),
    }
    assert set(by_topic) == expected and len(by_topic) == 3
    connections = [row for row in rows if row["grouping"] == "connection"]
    assert sum(row["frames"] for row in connections) == 4
    assert {(row["connection_id"], row["client_port"]) for row in connections} == {(0, 50)}
