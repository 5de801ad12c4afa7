"""Deliveries, acks, permits and messages of every sample capture against what the clients saw."""

from collections import Counter, defaultdict

import pytest

from tests.dissector.observed import (
    CASES,
    LOGGED,
    Case,
    Id,
    Row,
    ids_of,
    is_topic,
    milliseconds,
    name_of,
)

each_capture = pytest.mark.parametrize("case", CASES, ids=name_of)
each_log = pytest.mark.parametrize("case", LOGGED, ids=name_of)


def consumer_of(row: Row) -> tuple[int, int, int]:
    return row["connection_id"], row["consumer_id"], row["incarnation"]


def deliveries_by_id(case: Case) -> dict[tuple[int, int], list[Row]]:
    found = defaultdict(list)
    for row in sorted(case.tables["deliveries"], key=lambda row: row["frame_no"]):
        found[row["ledger_id"], row["entry_id"]].append(row)
    return found


def is_before_capture(case: Case, wanted: Id) -> bool:
    """Five messages of it were delivered, and acked, before the capture began."""
    return case.name == "java-j72_midstream.pcap" and wanted.entry < 5


def is_hidden(case: Case, wanted: Id) -> bool:
    """Its MESSAGE is not in the capture, or begins in the part of a packet that was cut away."""
    if case.name == "mut-snap200-java-j03_batch_lz4.pcap":
        return wanted.entry not in (0, 1, 3)
    return case.is_one_way or is_before_capture(case, wanted)


# -- deliveries


@each_capture
def test_every_message_frame_is_one_delivery(case):
    frames = {
        row["frame_no"]: row
        for row in case.tables["frames"]
        if row["command"] == "MESSAGE" and row["consumer_id"] is not None
    }
    rows = case.tables["deliveries"]
    assert sorted(row["frame_no"] for row in rows) == sorted(frames)
    for row in rows:
        frame = frames[row["frame_no"]]
        for column in ("connection_id", "consumer_id", "ledger_id", "entry_id", "topic"):
            assert row[column] == frame[column], column
        assert row["redelivery_count"] == (frame["redelivery_count"] or 0)
        assert (row["redelivery_cause"] is None) == (not row["is_redelivered"])
        if row["ack_set"]:
            size = frame["message_count"]
            words = enumerate(word & (2**64 - 1) for word in row["ack_set"])
            bits = sum(word << (64 * place) for place, word in words) & ((1 << size) - 1)
            assert row["message_count"] == bits.bit_count()
        else:
            assert row["message_count"] == frame["message_count"]


@each_capture
def test_what_was_delivered_before_is_known(case):
    """A naive twin: an id of one subscription that comes a second time is a redelivery."""
    legs = {row["connection_id"]: row["leg"] for row in case.tables["connections"]}
    last: dict[tuple, tuple[int, int]] = {}
    rows = sorted(case.tables["deliveries"], key=lambda row: row["frame_no"])
    for row in rows:
        where = (row["topic"], row["subscription"])
        if None in where:
            where = (row["connection_id"], row["consumer_id"])
        key = (*where, legs[row["connection_id"]], row["ledger_id"], row["entry_id"])
        place = row["previous_connection_id"], row["previous_frame_no"]
        assert place == last.get(key, (None, None))
        assert row["is_redelivered"] == (key in last or row["redelivery_count"] > 0)
        last[key] = row["connection_id"], row["frame_no"]


@each_log
def test_messages_received_were_delivered_first(case):
    """Each as often, to the same consumer, with the same redelivery count, and not later."""
    by_id = deliveries_by_id(case)
    taken = Counter()
    for event in case.events:
        if event["ev"] != "recv":
            continue
        for wanted in ids_of(event):
            if is_hidden(case, wanted):
                continue
            taken[wanted, event.get("sub")] += 1
            rows = by_id[wanted.ledger, wanted.entry]
            fitting = [row for row in rows if is_delivery_of(case, row, event)]
            assert fitting, event
            wide = [row for row in rows if event.get("sub") in (None, row["subscription"])]
            if not case.is_midstream:
                assert taken[wanted, event.get("sub")] <= len(wide)


def is_delivery_of(case: Case, row: Row, event: Row) -> bool:
    if row["redelivery_count"] != event["redelivery_count"] or row["checksum"] == "mismatch":
        return False
    if milliseconds(row) > event["t"] + (3 if case.name.startswith("mut-tsjitter") else 1):
        return False
    if case.is_midstream:
        return row["topic"] is None
    return (
        is_topic(row["topic"], event["topic"])
        and event.get("sub", row["subscription"]) == row["subscription"]
        and event.get("consumer", row["consumer_name"]) == row["consumer_name"]
    )


# Messages that were delivered to a client's queue beyond those that the application was given:
# thrown away with the queue at an unload, a close or a seek, or taken by the library itself.
NEVER_RECEIVED = {
    "cpp-c40_killed_Failover.pcap": 30,  # the one that was killed
    "cpp-c40_killed_Shared.pcap": 30,
    "cpp-c41_unload.pcap": 101,
    "cpp-s08_nack-proxy-any.pcap": 25,  # the other leg
    "cpp-s12_seek-bem.pcap": 1,
    "java-j11_failover_switch.pcap": 5,
    "java-j16_dlq_retry.pcap": 2,  # dead letters
    "java-j21_seek.pcap": 1,
    "java-j22_reader.pcap": 14,  # a reader's messages are not logged
    "java-j24_unload.pcap": 243,
    "mut-loss1-java-j24_unload.pcap": 242,
    # A batch of ten of which compaction left four, and a reader, which is not logged, given the
    # same fourteen again.
    "java-j28_compaction.pcap": 20,
    "java-j32_encryption.pcap": 60,  # two consumers without the key
    "java-j74_corrupt.pcap": 27,  # the connection that was closed
    "mut-dup-java-j12_nack_batch.pcap": 16,  # of 20 messages 4 were wanted again, by whole batches
    "java-j05_chunk64k_zstd.pcap.gz": 9,  # 12 chunks of 3 messages
    "java-j73_broker_restart-bem.pcap": 30,  # lost with the broker, and sent again by the next one
}


@each_log
def test_messages_delivered_beyond_those_received(case):
    if case.is_one_way or case.is_cut:
        return
    received = sum(event["ev"] == "recv" for event in case.events)
    received -= 5 if case.name == "java-j72_midstream.pcap" else 0
    delivered = sum(row["message_count"] for row in case.tables["deliveries"])
    assert delivered - received == NEVER_RECEIVED.get(case.name, 0)


# Deliveries that were not the first, by cause; what the clients' logs and the brokers' commands of
# these runs say. All other captures have none.
CAUSES = {
    "cpp-s08_nack.pcap": {"explicit": 5},
    "cpp-s09_ack_timeout.pcap": {"explicit": 3},
    "cpp-s11_dlq.pcap": {"explicit": 4},
    "cpp-s14_reconnect.pcap": {"reconnect": 10},
    "fake-f05_unload.pcap": {"unload": 9},
    "fake-f13_failover_two_clients.pcap": {"failover_switch": 7},
    "fake-f14_batch_index_ack.pcap": {"explicit": 1},
    "tap-duplicated.pcap": {"explicit": 5},
    "var-dumpcap.pcapng": {"explicit": 5},
    "cpp-c40_killed_Failover.pcap": {"failover_switch": 30},
    "cpp-c40_killed_Shared.pcap": {"consumer_gone": 30},
    "cpp-c41_unload.pcap": {"unload": 101},
    "cpp-s08_nack-proxy-any.pcap": {"explicit": 10},
    "cpp-s08_nack-proxy-back.pcap": {"explicit": 5},
    "cpp-s08_nack-proxy-front.pcap": {"explicit": 5},
    "cpp-s12_seek-bem.pcap": {"seek": 46},
    "go-g03_nack-bem.pcap": {"explicit": 6},
    "java-j11_failover_switch.pcap": {"failover_switch": 9},
    "java-j12_nack.pcap": {"explicit": 10},
    "java-j12_nack_batch_index.pcap": {"explicit": 2},
    "java-j16_dlq_retry.pcap": {"explicit": 6},
    "java-j21_seek.pcap": {"seek": 46},
    "java-j24_unload.pcap": {"unload": 243},
    "java-j61_txn_abort.pcap": {"txn_abort": 10},
    # The client closed its connection after the SEND_ERROR, opened another and subscribed again.
    "java-j74_corrupt.pcap": {"reconnect": 27},
    "mut-dup-java-j12_nack_batch.pcap": {"explicit": 2},
    # One delivery less than in the whole capture: a packet with a MESSAGE is missing.
    "mut-loss1-java-j24_unload.pcap": {"unload": 242},
    "rust-single.pcap": {"explicit": 4},
    "java-j73_broker_restart-bem.pcap": {"reconnect": 30},
}


@each_capture
def test_causes_of_redeliveries(case):
    rows = case.tables["deliveries"]
    counts = Counter(row["redelivery_cause"] for row in rows if row["is_redelivered"])
    assert dict(counts) == CAUSES.get(case.name, {})
    told = case.seen.get("recv_redelivered")
    if told is not None and not case.is_one_way:
        counted = sum(row["message_count"] for row in rows if row["redelivery_count"] > 0)
        legs = 2 if case.has_both_proxy_sides else 1
        # Dead letters are taken by the library; a whole batch comes again for some of it.
        extra = {"java-j16_dlq_retry.pcap": 2, "mut-dup-java-j12_nack_batch.pcap": 16}
        assert counted == told * legs + extra.get(case.name, 0)


@each_log
def test_what_the_client_asked_for_again_was_asked_for_and_came(case):
    asked = {
        (row["ledger_id"], row["entry_id"])
        for row in case.tables["acks"]
        if row["action"] == "redeliver"
    }
    by_id = deliveries_by_id(case)
    for event in case.events:
        if event["ev"] != "nack":
            continue
        for wanted in ids_of(event):
            key = wanted.ledger, wanted.entry
            assert key in asked
            if not is_hidden(case, wanted):
                outcomes = {row["outcome"] for row in by_id[key]}
                causes = {row["redelivery_cause"] for row in by_id[key]}
                assert "redelivery_requested" in outcomes and "explicit" in causes


# -- acks

# Calls of acknowledge() whose id is in no ACK: thrown away by the client at a seek and at the
# unsubscribe, or kept back until all of the batch is acked, which compaction and nacks prevent.
ACKED_IN_VAIN = {
    "java-j21_seek.pcap": 10,
    "java-j28_compaction.pcap": 4,
    "mut-dup-java-j12_nack_batch.pcap": 20,
}


@each_log
def test_acks_are_those_of_the_application(case):
    """Ids on the wire are ids that the application acked, and the other way round."""
    called = Counter()
    for event in case.events:
        if event["ev"] in ("ack", "txn_ack"):
            for wanted in ids_of(event):
                called[wanted.ledger, wanted.entry] += 1
    # The library itself acks what it sent on to a retry or dead letter topic, and every chunk.
    by_library = {
        (row["ledger_id"], row["entry_id"])
        for row in case.tables["frames"]
        if row["command"] == "MESSAGE"
        and (row["chunk_id"] is not None or case.name.endswith(("_dlq.pcap", "_dlq_retry.pcap")))
    }
    acked = {
        (row["ledger_id"], row["entry_id"])
        for row in case.tables["acks"]
        if row["ack_type"] == "Individual" and row["validation_error"] is None
    }
    if not called:
        return
    assert acked - by_library <= set(called)
    missing = sum(count for key, count in called.items() if key not in acked)
    assert missing == ACKED_IN_VAIN.get(case.name, 0)


@each_capture
def test_an_acked_delivery_was_acked(case):
    """A naive twin of individual acks: which frames name an id, and what then became of it."""
    named = defaultdict(list)
    cumulative = defaultdict(list)
    for row in case.tables["acks"]:
        if row["action"] == "ack" and row["ack_type"] == "Individual":
            named[row["subscription"], row["ledger_id"], row["entry_id"]].append(row)
        elif row["action"] == "ack":
            cumulative[row["connection_id"], row["consumer_id"]].append(row)
    for row in case.tables["deliveries"]:
        rows = list(named[row["subscription"], row["ledger_id"], row["entry_id"]])
        rows += [
            each
            for each in cumulative[row["connection_id"], row["consumer_id"]]
            if (each["ledger_id"], each["entry_id"]) >= (row["ledger_id"], row["entry_id"])
        ]
        later = [each for each in rows if each["frame_no"] > row["frame_no"]]
        if row["outcome"] in ("acked", "discarded"):
            (ack,) = [each for each in later if each["frame_no"] == row["ack_frame_no"]][:1]
            assert (ack["validation_error"] is not None) == (row["outcome"] == "discarded")
            if row["outcome"] == "acked":
                assert row["messages_acked"] == row["message_count"]
                if case.name.startswith("mut-tsjitter"):
                    continue
                assert row["ack_latency_ns"] >= 0
        elif row["outcome"] in ("unacked_at_end", "consumer_closed", "conn_closed"):
            whole = [each for each in later if not each["ack_set"]]
            again = any(
                other["previous_frame_no"] == row["frame_no"] for other in case.tables["deliveries"]
            )
            assert again or not whole


# -- permits


@each_capture
def test_permits_add_up(case):
    """A naive twin: grants less costs since the subscription, as FLOW and MESSAGE frames say."""
    frames = {row["frame_no"]: row for row in case.tables["frames"]}
    cost = {row["frame_no"]: row["message_count"] for row in case.tables["deliveries"]}
    balance: dict[tuple, int] = {}
    for row in case.tables["permits"]:
        key = consumer_of(row)
        frame = frames[row["frame_no"]]
        if row["event"] == "grant":
            assert frame["command"] == "FLOW" and row["delta"] == frame["permits"]
        elif row["event"] == "delivery":
            assert frame["command"] == "MESSAGE" and row["delta"] == -cost[row["frame_no"]]
        balance[key] = balance.get(key, 0) + (row["delta"] or 0)
        if row["baseline_known"]:
            assert row["available_after"] == balance[key]
        else:
            assert row["available_after"] is None
        if case.is_whole:
            assert row["baseline_known"]
        if case.is_midstream or case.is_one_way:
            assert not row["baseline_known"]
    if case.is_cut or case.is_lossy:
        assert not all(row["baseline_known"] for row in case.tables["permits"])


@each_capture
def test_every_flow_and_message_changes_a_balance(case):
    frames = [
        row["frame_no"]
        for row in case.tables["frames"]
        if row["command"] in ("FLOW", "MESSAGE") and row["consumer_id"] is not None
    ]
    rows = [row for row in case.tables["permits"] if row["event"] != "reset"]
    assert [row["frame_no"] for row in rows] == frames


@each_capture
def test_receiver_queues_as_configured(case):
    queue = case.seen.get("receiver_queue")
    if queue:
        opened = [row for row in case.tables["consumers"] if row["ready_frame_no"]]
        assert opened and all(row["first_flow_permits"] == queue for row in opened)


def test_a_batch_may_take_the_balance_below_zero():
    """Ten permits, and the broker sends a batch of fifty: -40, which ten grants of five repay."""
    (case,) = [case for case in CASES if case.name == "go-g02_batch_zstd-bem.pcap"]
    lowest = min(row["available_after"] for row in case.tables["permits"])
    assert lowest == -40


def test_a_consumer_blocked_by_unacked_messages_has_permits_left():
    """At most 20 unacked; 980 permits stay unused until the application acks."""
    (case,) = [case for case in CASES if case.name == "java-j17_blocked_unacked.pcap"]
    rows = case.tables["permits"]
    assert max(row["unacked_after"] for row in rows) == case.seen["received_before_ack"] == 20
    assert (rows[20]["available_after"], rows[20]["unacked_after"]) == (980, 20)
    gap_s = (rows[21]["ts"] - rows[20]["ts"]).total_seconds()
    assert gap_s > 1


@pytest.mark.parametrize("case", [case for case in CASES if case.is_midstream], ids=name_of)
def test_where_no_topic_is_known_entries_are_timed_on_their_connection(case: Case) -> None:
    """Each SEND's receipt names the entry that a MESSAGE of the same connection carries."""
    sent: dict[tuple[int, ...], int] = {}
    stored: dict[tuple[int, ...], int] = {}
    expected = {}
    for row in case.tables["frames"]:
        place = (row["connection_id"], row["producer_id"], row["sequence_id"])
        entry = (row["connection_id"], row["ledger_id"], row["entry_id"])
        if row["command"] == "SEND":
            sent[place] = row["last_ts_ns"]
        elif row["command"] == "SEND_RECEIPT" and place in sent:
            stored[entry] = sent[place]
        elif row["command"] == "MESSAGE":
            expected[row["frame_no"]] = (entry, row["last_ts_ns"])
    assert expected
    for row in case.tables["deliveries"]:
        entry, arrived = expected[row["frame_no"]]
        took = arrived - stored[entry] if entry in stored else None
        assert row["publish_to_delivery_ns"] == took, row["frame_no"]
