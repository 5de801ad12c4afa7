"""Every Cursus capture against a slow decoder's counts, a plain reader's, and its clients' own."""

import json
from collections import Counter, defaultdict

import pytest

from tests.accounting import check
from tests.dissector.observed import CURSUS_CASES, Case, Row, name_of
from tests.naive.cursus import NaiveFrame, pairs_of, talks_of

each_capture = pytest.mark.parametrize("case", CURSUS_CASES, ids=name_of)

# Connections that began before the capture and sent nothing but empty frames: four zero bytes are
# no evidence, only the port tells what they are.
ONLY_EMPTY_FRAMES = {"java-produce_acks0.pcap": {"to_client KEEPALIVE": 2}}
MIDSTREAM = ("java-produce_acks0.pcap", "py-txn_token_in_payload.pcap")


def by_kind(rows: list[Row]) -> Counter[str]:
    return Counter(f"{row['direction']} {row['command']}" for row in rows)


@each_capture
def test_frames_by_direction_and_command(case: Case) -> None:
    told = Counter(case.truth["frames"])
    told.subtract(ONLY_EMPTY_FRAMES.get(case.name, {}))
    whole = [row for row in case.tables["frames"] if row["status"] in ("complete", "malformed")]
    assert by_kind(whole) == +told


@each_capture
def test_every_packet_and_byte_is_accounted_for(case: Case) -> None:
    (file,) = case.tables["capture_files"]
    assert file["packets"] == case.truth["packets"]
    check(case.tables)


@each_capture
def test_protocols_of_connections(case: Case) -> None:
    protocols = {row["protocol"] for row in case.tables["connections"]}
    wanted = {"cursus"}
    if case.name == "tls-mixed.pcap":
        wanted.add("tls")
    if case.name in ONLY_EMPTY_FRAMES:
        wanted.add("unknown")
    assert protocols == wanted


@each_capture
def test_requests_and_answers_pair_as_the_slow_decoder_pairs_them(case: Case) -> None:
    pairs = case.truth["pairs"]
    rows = case.tables["exchanges"]
    answered = [row for row in rows if row["outcome"] in ("ok", "error", "dup_or_dropped")]
    streams = [row for row in answered if row["request_command"] == "STREAM"]
    refused = sum(row["outcome"] == "error" for row in streams)
    assert refused == pairs.get("STREAM refused", 0)
    assert len(answered) - len(streams) == pairs.get("paired", 0)
    unanswered = Counter(
        f"CMD {row['request_command']}"
        for row in rows
        if row["outcome"] in ("conn_closed", "not_awaited", "unanswered_at_end")
    )
    assert unanswered == Counter(case.truth["unanswered"])
    assert not [row for row in rows if row["outcome"] == "orphan_response"]


def batch_rows(frames: list[NaiveFrame]) -> Counter[tuple[object, ...]]:
    counts: Counter[tuple[object, ...]] = Counter()
    for frame in frames:
        if frame.batch is None:
            continue
        for record in frame.batch.records:
            if record.payload == b"__cursus_txn_control_marker__":
                continue
            counts[
                frame.batch.topic.decode(),
                frame.batch.partition,
                record.producer.decode() or None,
                record.key.decode() or None,
                record.seq_num,
                len(record.payload),
            ] += 1
    return counts


@each_capture
def test_messages_are_those_of_a_plain_reader(case: Case) -> None:
    if case.name in MIDSTREAM:
        return
    talks = talks_of(str(case.path))
    for way, frames in (
        ("to_broker", [frame for talk in talks for frame in talk.client]),
        ("to_client", [frame for talk in talks for frame in talk.broker]),
    ):
        counts = Counter(
            (
                row["topic"],
                row["partition"],
                row["producer_name"],
                row["partition_key"],
                row["sequence_id"],
                row["payload_bytes"],
            )
            for row in case.tables["messages"]
            if row["direction"] == way and row["batch_size"] is not None
        )
        assert counts == batch_rows(frames)


@each_capture
def test_exchanges_are_those_of_a_plain_reader(case: Case) -> None:
    if case.name in MIDSTREAM:
        return
    told: Counter[tuple[str, str | None]] = Counter()
    for talk in talks_of(str(case.path)):
        for pair in pairs_of(talk):
            told[pair.request.command, pair.answer.command if pair.answer else None] += 1
    counts = Counter(
        (row["request_command"], row["response_command"]) for row in case.tables["exchanges"]
    )
    assert counts == told


@each_capture
def test_acks_of_publishes_repeat_their_batch(case: Case) -> None:
    frames = {row["frame_no"]: row for row in case.tables["frames"]}
    for row in case.tables["exchanges"]:
        if row["request_command"] == "BATCH" and row["response_command"] == "RESPONSE_JSON":
            answer, request = frames[row["response_frame_no"]], frames[row["request_frame_no"]]
            for column in ("sequence_id", "highest_sequence_id", "producer_epoch"):
                assert answer[column] == request[column]
            assert answer["producer_name"] == request["producer_name"]


def handled(seen: Row) -> Counter[tuple[int, int]]:
    """Offsets and sequence numbers that the application's handler saw, over all consumers."""
    counts: Counter[tuple[int, int]] = Counter()
    for value in [seen, *seen.values()]:
        if isinstance(value, dict):
            for pair in value.get("offset:seq") or ():
                offset, _, sequence = pair.partition(":")
                counts[int(offset), int(sequence)] += 1
    return counts


@each_capture
def test_what_applications_handled_was_delivered(case: Case) -> None:
    told = handled(case.seen)
    delivered = Counter(
        (row["entry_id"], row["sequence_id"])
        for row in case.tables["messages"]
        if row["direction"] == "to_client"
    )
    assert not told - delivered


@each_capture
def test_deliveries_are_the_batches_for_clients(case: Case) -> None:
    batches = [
        row
        for row in case.tables["frames"]
        if (row["direction"], row["command"]) == ("to_client", "BATCH")
    ]
    rows = sorted(case.tables["deliveries"], key=lambda row: row["frame_no"])
    assert [row["frame_no"] for row in rows] == [row["frame_no"] for row in batches]
    for row, frame in zip(rows, batches, strict=True):
        assert row["message_count"] == frame["message_count"]
        assert row["entry_id"] == frame["entry_id"]
        assert (row["outcome"] is None) == (row["message_count"] == 0 or not row["subscription"])
        assert row["is_redelivered"] == (row["redelivery_cause"] is not None)


def test_the_crash_brings_what_was_not_committed_again() -> None:
    (case,) = (each for each in CURSUS_CASES if each.name.startswith("go-crash"))
    again = [row for row in case.tables["deliveries"] if row["is_redelivered"]]
    assert {row["redelivery_cause"] for row in again} == {"rebalance"}
    first = min(row["entry_id"] for row in again)
    assert first == 20, "what the first consumer had committed"
    acked = sum(row["messages_acked"] for row in case.tables["deliveries"])
    assert acked == case.seen["produced"]


def test_resends_without_an_answer_that_the_client_takes() -> None:
    """The Java client reads `OK` as a failure and sends each batch four times."""
    (case,) = (each for each in CURSUS_CASES if each.name == "java-produce_acks0.pcap")
    rows = [row for row in case.tables["exchanges"] if row["kind"] == "publish"]
    assert Counter(row["attempt"] for row in rows) == {1: 5, 2: 5, 3: 5, 4: 5}


def test_a_stalled_broker_gets_three_copies_of_a_batch_and_answers_each() -> None:
    (case,) = (each for each in CURSUS_CASES if each.name.startswith("go-broker_stall"))
    rows = [row for row in case.tables["exchanges"] if row["kind"] == "publish"]
    attempts = defaultdict(list)
    for row in rows:
        attempts[row["topic"], row["producer_name"], row["sequence_id"]].append(row)
    copies = max(attempts.values(), key=len)
    assert [row["attempt"] for row in copies] == [1, 2, 3]
    assert {row["outcome"] for row in rows} == {"ok"}
    assert max(row["latency_ns"] for row in rows) > 3_000_000_000


@each_capture
def test_no_token_is_in_any_row(case: Case) -> None:
    """Every token in the captures has FAKE in it."""
    for table, rows in case.tables.items():
        assert "FAKE" not in json.dumps(rows, default=str), table
