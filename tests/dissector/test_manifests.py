"""Every sample capture against what others saw of it: a slow decoder and the clients."""

import gzip
from collections import Counter, defaultdict

import pytest

from tests.dissector.observed import (
    CASES,
    LOGGED,
    Case,
    Row,
    ids_of,
    is_topic,
    name_of,
)

each_capture = pytest.mark.parametrize("case", CASES, ids=name_of)
each_log = pytest.mark.parametrize("case", LOGGED, ids=name_of)

BOTH_WAYS = ("to_broker", "to_client")


def whole_frames(case: Case) -> Counter[str]:
    return Counter(
        f"{row['direction']} {row['command']}"
        for row in case.tables["frames"]
        if row["status"] == "complete"
    )


def publishes(case: Case) -> list[Row]:
    return [row for row in case.tables["exchanges"] if row["kind"] == "publish"]


# -- frames, bytes, checksums


@each_capture
def test_whole_frames_by_direction_and_command(case):
    found = whole_frames(case)
    told = case.truth["frames"]
    if case.is_cut or case.is_lossy or case.has_both_proxy_sides:
        # The decoder's counts end at the first gap, and are those of one leg.
        assert all(found[key] >= count for key, count in told.items())
        assert sum(found.values()) > sum(told.values())
    else:
        assert dict(found) == told
    if "ideal_counts" in case.truth:
        assert dict(found) == case.truth["ideal_counts"]


@each_capture
def test_packets_are_those_of_the_slow_decoder_and_nothing_else_is_missing(case):
    """`test_accounts` adds up the rows of these captures."""
    (file,) = case.tables["capture_files"]
    assert file["packets"] == case.truth["packets"]
    if not (case.is_cut or case.is_lossy or case.has_both_proxy_sides):
        assert not any(
            row[f"gaps_{way}"] for row in case.tables["connections"] for way in BOTH_WAYS
        )


# Frames whose checksum is wrong, by direction. fake-f08: the stand-in broker spoils every third
# MESSAGE (12 sent, 8 received); java-j74: a relay flips one bit on the way to the broker.
SPOILT = {
    "fake-f08_badcrc.pcap": {"to_client": 4},
    "java-j74_corrupt.pcap": {"to_broker": 1},
}


@each_capture
def test_checksum_verdicts(case):
    found = defaultdict(Counter)
    for row in case.tables["frames"]:
        if row["command"] in ("SEND", "MESSAGE"):
            found[row["direction"]][row["checksum"]] += 1
            if row["status"] == "complete" and row["checksum"] != "absent":
                is_same = row["crc32c_stored"] == row["crc32c_computed"]
                assert row["checksum"] == ("ok" if is_same else "mismatch")
            if row["status"] != "complete":
                assert row["checksum"] == "not_evaluated"
        else:
            assert row["checksum"] is None
    mismatches = {way: count["mismatch"] for way, count in found.items() if count["mismatch"]}
    assert mismatches == SPOILT.get(case.name, {})
    frames = whole_frames(case)
    to_broker = found["to_broker"]
    assert to_broker["ok"] + to_broker["mismatch"] == frames["to_broker SEND"]
    to_client = found["to_client"]
    # The small broker puts no checksum on MESSAGE; Apache's always does.
    if case.truth["broker"].startswith("pulsar-lite") and case.truth["broker_is_real"]:
        assert to_client["absent"] == frames["to_client MESSAGE"]
    else:
        assert to_client["ok"] + to_client["mismatch"] == frames["to_client MESSAGE"]
    if not case.is_cut:
        assert to_broker["not_evaluated"] + to_client["not_evaluated"] == 0


@each_capture
def test_names_are_on_the_wire(case):
    """No topic, subscription or name is made up: each stands in the capture's bytes."""
    data = case.path.read_bytes()
    if case.name.endswith(".gz"):
        data = gzip.decompress(data)
    columns = ("topic", "subscription", "producer_name", "consumer_name", "name", "error_text")
    for table, rows in case.tables.items():
        for name in {row.get(column) for row in rows for column in columns} - {None}:
            assert name.encode() in data, (table, name)


@each_capture
def test_rows_stand_in_the_order_of_their_frames(case):
    tables = case.tables
    numbers = [row["frame_no"] for row in tables["frames"]]
    assert numbers == list(range(1, len(numbers) + 1))
    for table in ("acks", "permits", "messages"):
        numbers = [row["frame_no"] for row in tables[table]]
        assert numbers == sorted(numbers)
    by_connection = defaultdict(list)
    for row in tables["frames"]:
        by_connection[row["connection_id"], row["direction"]].append(row["stream_offset"])
    for offsets in by_connection.values():
        assert offsets == sorted(offsets)
    closed = [
        max(row["response_frame_no"] or 0, row["request_frame_no"] or 0)
        for row in tables["exchanges"]
        if row["outcome"] in ("ok", "error", "dup_or_dropped", "orphan_response")
    ]
    if case.is_whole:
        assert closed == sorted(closed)


# -- connections


def test_connections_that_are_not_pulsar_are_named():
    expected = {
        ("pulsar", "fake-f17_tls.pcap"): {"tls": 1},
        ("pulsar-apache", "java-j35_tls.pcap"): {"tls": 1},
        ("pulsar-apache", "java-j34_http_lookup.pcap"): {"http": 1, "pulsar": 1},
        # Attempts to connect to a broker that is down, refused by RST.
        ("pulsar", "cpp-s14_reconnect.pcap"): {"none": 4, "pulsar": 2},
        ("pulsar-apache", "java-j73_broker_restart-bem.pcap"): {"none": 9, "pulsar": 2},
    }
    for case in CASES:
        counts = Counter(row["protocol"] for row in case.tables["connections"])
        wanted = expected.get((case.folder, case.name))
        if wanted is None:
            assert set(counts) == {"pulsar"}, case
        else:
            assert dict(counts) == wanted, case


# -- publishing


@each_capture
def test_every_send_and_every_answer_is_in_one_exchange(case):
    frames = case.tables["frames"]
    sends = [row["frame_no"] for row in frames if row["command"] == "SEND"]
    answers = [
        row["frame_no"]
        for row in frames
        if row["command"] in ("SEND_RECEIPT", "SEND_ERROR") and row["sequence_id"] is not None
    ]
    rows = publishes(case)
    asked = [row["request_frame_no"] for row in rows if row["request_frame_no"] is not None]
    answered = [row["response_frame_no"] for row in rows if row["response_frame_no"] is not None]
    assert sorted(answered) == answers
    if not case.is_cut:
        assert sorted(asked) == sends
    by_number = {row["frame_no"]: row for row in frames}
    for row in rows:
        request = by_number.get(row["request_frame_no"])
        response = by_number.get(row["response_frame_no"])
        if request and response:
            assert request["producer_id"] == response["producer_id"] == row["producer_id"]
            assert response["sequence_id"] in (
                request["sequence_id"],
                request["highest_sequence_id"],
            ) or row["topic"].startswith("persistent://geo/")
            is_stored = response["ledger_id"] not in (-1, None)
            assert row["outcome"] == (
                "error"
                if response["command"] == "SEND_ERROR"
                else "ok"
                if is_stored
                else "dup_or_dropped"
            )
        elif response:
            assert row["outcome"] == "orphan_response"


@each_capture
def test_exchanges_name_the_ends_of_their_connections(case: Case) -> None:
    """Also those that close with their connection, or with the capture."""
    ends = ("client_ip", "broker_ip")
    known = {row["connection_id"]: [row[end] for end in ends] for row in case.tables["connections"]}
    for row in case.tables["exchanges"]:
        assert [row[end] for end in ends] == known[row["connection_id"]]


@each_capture
def test_outcomes_that_only_damage_explains(case):
    outcomes = Counter(row["outcome"] for row in case.tables["exchanges"])
    damage = {"lost_in_gap", "response_cut", "other_side_not_captured", "orphan_response"}
    found = {outcome for outcome in outcomes if outcome in damage}
    if case.is_whole:
        assert found == set()
        assert "unanswered_at_end" not in outcomes
    if case.is_one_way:
        answered = set(outcomes) - {"not_awaited"}
        assert answered == {"other_side_not_captured"}
        assert {row["outstanding_before"] for row in case.tables["exchanges"]} == {None}
    if case.is_midstream:
        assert found <= {"orphan_response"} and outcomes["orphan_response"] <= 1
    for row in case.tables["exchanges"]:
        if row["outcome"] in ("lost_in_gap", "response_cut"):
            assert row["tainted"]
        elif row["outcome"] == "orphan_response":
            # Without a hole the request was before the capture.
            assert row["tainted"] == (not case.is_midstream)


def sent_messages(case: Case, topics: set[str]) -> int:
    """Messages stored or found to be there already, each once however often it was sent."""
    largest: dict[tuple, int] = {}
    for row in publishes(case):
        if row["outcome"] not in ("ok", "dup_or_dropped"):
            continue
        if not case.is_midstream and not any(is_topic(row["topic"], each) for each in topics):
            continue
        key = (row["topic"], row["producer_name"], row["sequence_id"], row["outcome"])
        largest[key] = max(largest.get(key, 0), row["message_count"])
    return sum(largest.values())


# Messages sent whose exchange is not in the capture, and why.
SENT_OTHERWISE = {
    # Five were sent before the capture began.
    "java-j72_midstream.pcap": 200,
    # The client's direction alone: no receipt says what was stored.
    "mut-c2b-java-j12_nack.pcap": 0,
    # Six of ten batches begin in a packet's part that was cut away.
    "mut-snap200-java-j03_batch_lz4.pcap": 200,
}


@each_log
def test_messages_sent_as_the_client_counts_them(case):
    topics = {event["topic"] for event in case.events if event["ev"] in ("send", "send_batch")}
    expected = SENT_OTHERWISE.get(case.name, case.seen.get("sent_ok", 0))
    assert sent_messages(case, topics) == expected


def exchanges_by_id(case: Case) -> dict[tuple, list[Row]]:
    found = defaultdict(list)
    for row in publishes(case):
        if row["outcome"] in ("ok", "orphan_response"):
            found[row["ledger_id"], row["entry_id"]].append(row)
    return found


def is_sequence_of(row: Row, event: Row) -> bool:
    if event.get("seq") is None or row["request_frame_no"] is None:
        return True
    count = row["message_count"] or 1
    last = max(row["highest_sequence_id"] or 0, row["sequence_id"] + count - 1)
    return row["sequence_id"] <= event["seq"] <= last


@each_log
def test_receipts_as_the_client_saw_them(case):
    """Message ids, names, sequence ids; on the wire within the client's own call and callback."""
    if case.is_one_way:
        return
    by_id = exchanges_by_id(case)
    # Packets of mut-tsjitter were moved by up to 2 ms each.
    slack_ms = 2.0 if case.name.startswith("mut-tsjitter") else 0.0
    for event in case.events:
        if event["ev"] != "send" or event.get("err"):
            continue
        for wanted in ids_of(event):
            if wanted.ledger == -1:
                continue  # not stored: test_duplicates_have_no_id
            rows = by_id[wanted.ledger, wanted.entry]
            if not rows:
                before_it_began = case.is_midstream and event["seq"] < 5
                assert before_it_began or (case.is_cut and wanted.entry == 9)
                continue
            assert len(rows) == (2 if case.has_both_proxy_sides else 1)
            for row in rows:
                check_receipt(case, row, event, slack_ms)


def check_receipt(case: Case, row: Row, event: Row, slack_ms: float) -> None:
    if not case.is_midstream:
        assert is_topic(row["topic"], event["topic"])
    assert is_sequence_of(row, event)
    if "producer" in event:
        assert row["producer_name"] == event["producer"]
    assert row["response_last_ns"] <= (event["t"] + 1 + slack_ms) * 1e6
    if row["outcome"] == "orphan_response":
        assert case.is_cut or case.is_lossy
        return
    assert row["request_first_ns"] >= (event["t0"] - slack_ms) * 1e6
    if row["latency_ns"] is None:
        assert slack_ms
    else:
        # The client prints hundredths of a millisecond.
        assert 0 <= row["latency_ns"] <= (event["lat_ms"] + 0.01 + 2 * slack_ms) * 1e6


@each_log
def test_no_id_is_published_that_no_client_was_told(case):
    """Beyond the log's ids there are only chunks between the first and the last, dead letters and
    retries of the client library itself, and what was stored twice."""
    if case.name == "node-flex.pcap":
        return  # its log has no ids
    told = {(each.ledger, each.entry) for event in case.events for each in ids_of(event)}
    logged = {event["topic"] for event in case.events if event["ev"] == "send"}
    extra = Counter()
    for row in publishes(case):
        if row["outcome"] != "ok" or (row["ledger_id"], row["entry_id"]) in told:
            continue
        if row["topic"] not in logged:
            assert row["topic"].endswith(("-DLQ", "-RETRY"))
        elif row["chunk_id"] is not None:
            assert row["chunk_id"] > 0
        else:
            extra["stored twice"] += 1
    # j24: 4 receipts came right after CLOSE_PRODUCER, which the client no longer takes; j74: of
    # 30 messages the broker stored 64 entries, 42 receipts of which were captured.
    stored_twice = {"java-j24": 4, "mut-loss1-java-j24": 4, "java-j74": 12}
    for name, count in stored_twice.items():
        if case.name.startswith(name) and extra["stored twice"]:
            assert extra.pop("stored twice") == count
    assert not extra


@each_log
def test_duplicates_have_no_id(case):
    logged = [event for event in case.events if event["ev"] == "send" and "mid" in event]
    told = [event for event in logged if any(each.ledger == -1 for each in ids_of(event))]
    rows = [row for row in publishes(case) if row["outcome"] == "dup_or_dropped"]
    assert sum(row["message_count"] for row in rows) == len(told)
    for row in rows:
        assert row["ledger_id"] is None and row["entry_id"] is None
        assert any(
            event["producer"] == row["producer_name"]
            and event.get("seq", event.get("last_seq")) is not None
            for event in told
        )
