"""Messages, sums and errors of every sample capture as the clients saw them."""

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tests.dissector.observed import CASES, LOGGED, Case, Row, ids_of, name_of

each_capture = pytest.mark.parametrize("case", CASES, ids=name_of)
each_log = pytest.mark.parametrize("case", LOGGED, ids=name_of)


def named(name: str, folder: str = "pulsar-apache") -> Case:
    return Case(folder, name)


# -- the table messages


@each_capture
def test_messages_of_each_frame(case):
    """One row for each message of a whole frame with a right checksum, batches in order."""
    rows = defaultdict(list)
    for row in case.tables["messages"]:
        rows[row["frame_no"]].append(row)
    for frame in case.tables["frames"]:
        found = rows.pop(frame["frame_no"], [])
        if frame["command"] not in ("SEND", "MESSAGE"):
            assert not found
            continue
        is_readable = frame["status"] == "complete" and frame["checksum"] != "mismatch"
        if frame["chunk_id"] is not None:
            is_readable = is_readable and frame["chunk_id"] == frame["chunk_count"] - 1
        if frame["is_batch"] and frame["is_encrypted"]:
            is_readable = False
        expected = frame["message_count"] if is_readable else 0
        assert len(found) == expected
        if frame["is_batch"] and is_readable:
            assert [row["batch_index"] for row in found] == list(range(expected))
            assert {row["batch_size"] for row in found} == {expected}
        else:
            assert all(row["batch_index"] is None and row["batch_size"] is None for row in found)
        for row in found:
            assert row["direction"] == frame["direction"]
            assert (row["payload_bytes"] is None) == bool(frame["is_encrypted"])
    assert not rows


def sent_by_id(case: Case) -> dict[tuple, Row]:
    """Messages towards the broker by the id that their receipt gave them."""
    ids = {
        row["request_frame_no"]: (row["ledger_id"], row["entry_id"])
        for row in case.tables["exchanges"]
        if row["kind"] == "publish" and row["outcome"] == "ok"
    }
    return {
        (*ids[row["frame_no"]], row["batch_index"]): row
        for row in case.tables["messages"]
        if row["direction"] == "to_broker" and row["frame_no"] in ids
    }


def check_message(row: Row, event: Row) -> None:
    if row["payload_bytes"] is not None and "len" in event:
        assert row["payload_bytes"] == event["len"]
    if event.get("key"):
        assert row["partition_key"] == event["key"] or row["is_key_base64"]
    elif "key" in event:
        assert not row["partition_key"]
    if event.get("seq") is not None and row["sequence_id"] is not None:
        assert row["sequence_id"] == event["seq"]
    if "producer" in event:
        assert row["producer_name"] == event["producer"]


@each_log
def test_messages_have_the_sizes_keys_and_numbers_that_clients_gave_them(case):
    by_id = sent_by_id(case)
    checked = 0
    for event in case.events:
        if event["ev"] == "send" and ids_of(event):
            each = ids_of(event)[-1]
            row = by_id.get((each.ledger, each.entry, each.batch_index))
            row = row or by_id.get((each.ledger, each.entry, None))
            if row is not None:
                check_message(row, event)
                checked += 1
    whole = case.is_whole and case.name != "node-flex.pcap"
    if whole and not any(row["code"] == "encrypted_batch" for row in case.tables["notices"]):
        told = [event for event in case.events if event["ev"] == "send" and ids_of(event)]
        assert checked == sum(ids_of(event)[0].ledger >= 0 for event in told)


@each_log
def test_messages_received_are_those_of_the_table(case):
    rows = defaultdict(list)
    for row in case.tables["messages"]:
        if row["direction"] == "to_client":
            rows[row["ledger_id"], row["entry_id"], row["batch_index"]].append(row)
    for event in case.events:
        if event["ev"] != "recv" or not ids_of(event):
            continue
        each = ids_of(event)[-1]
        index = each.batch_index
        found = rows[each.ledger, each.entry, index] or rows[each.ledger, each.entry, None]
        if found:
            check_message(found[0], event)
            counts = {row["redelivery_count"] for row in found}
            assert event["redelivery_count"] in counts
            assert not any(row["is_compacted_out"] for row in found)
        else:
            assert not case.is_whole or case.name == "java-j32_encryption.pcap"


# -- sums that the client tells


def sent(case: Case) -> int:
    """Messages that the broker stored: each once, however often it was sent."""
    largest = Counter()
    for row in case.tables["exchanges"]:
        if row["kind"] == "publish" and row["outcome"] == "ok":
            key = row["topic"], row["producer_name"], row["sequence_id"]
            largest[key] = max(largest[key], row["message_count"])
    return sum(largest.values())


def answered_messages(case: Case) -> int:
    """Messages of the sequence ids of which both the SEND and the receipt were captured."""
    frames = case.tables["frames"]
    receipts = {row["sequence_id"] for row in frames if row["command"] == "SEND_RECEIPT"}
    sends = {row["sequence_id"]: row for row in frames if row["command"] == "SEND"}
    return sum(row["message_count"] for number, row in sends.items() if number in receipts)


def delivered(case: Case) -> int:
    """Messages handed to a client and neither damaged nor handed out before."""
    return sum(
        row["message_count"]
        for row in case.tables["deliveries"]
        if row["checksum"] != "mismatch" and row["outcome"] != "discarded"
    )


# What the small broker's captures hold beyond what the application saw, and why.
SENT = {
    "cpp-s11_dlq.pcap": 7,  # and 2 that the library sent on to the dead letter topic
    "tap-oneway.pcap": 0,  # no receipts
    "var-snaplen96.pcap": 0,
    "fake-f11_auth_challenge.pcap": 0,  # it never got so far
    "java-j80_geo-link.pcap": 44,
}
RECEIVED = {
    "cpp-s11_dlq.pcap": 11,  # 2 more from the dead letter topic
    "fake-f05_unload.pcap": 31 + 9,  # 9 were in the queue that the unload threw away
    "fake-f13_failover_two_clients.pcap": 27,
    "cpp-s12_seek.pcap": 20,
    "tap-oneway.pcap": 0,
    "var-snaplen96.pcap": 0,
    "tap-caploss.pcap": 884,
}


@pytest.mark.parametrize("case", [case for case in CASES if case.folder == "pulsar"], ids=name_of)
def test_sums_of_the_small_brokers_clients(case):
    if case.is_opaque or case.name.startswith("ring.pcap"):
        return
    seen = case.seen
    told = seen.get("sent", seen.get("sent_after_start"))
    if case.is_lossy:
        told = answered_messages(case)
    if told is not None:
        assert sent(case) == SENT.get(case.name, told)
    if "received" in seen:
        count = seen["received"]
        if isinstance(count, list):
            count = len(count) if case.name == "fake-f07_chunking64k.pcap" else sum(count)
        if case.name == "fake-f07_chunking64k.pcap":
            rows = [row for row in case.tables["messages"] if row["direction"] == "to_client"]
            assert [row["payload_bytes"] for row in rows] == seen["received"]
        else:
            assert delivered(case) == RECEIVED.get(case.name, count)
    if "batches" in seen:
        batches = [row for row in case.tables["frames"] if row["is_batch"]]
        assert sum(row["command"] == "SEND" for row in batches) == seen["batches"]
    if "nacked" in seen:
        asked = [row for row in case.tables["acks"] if row["action"] == "redeliver"]
        assert len(asked) == seen["nacked"]
        if not case.is_one_way:
            again = [row for row in case.tables["deliveries"] if row["redelivery_count"]]
            assert len(again) == seen["redelivered"]
        acked = [row for row in case.tables["acks"] if row["action"] == "ack"]
        assert len(acked) == seen["acked"]
    if "cumulative_acks" in seen:
        found = [row for row in case.tables["acks"] if row["ack_type"] == "Cumulative"]
        assert len(found) == seen["cumulative_acks"]
    if "payload" in seen:
        sizes = {row["payload_bytes"] for row in case.tables["messages"]}
        assert sizes == {seen["payload"]}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if isinstance(case.seen.get("received"), list) and "kind" in case.seen],
    ids=name_of,
)
def test_each_consumer_got_its_share(case):
    counts = Counter()
    for row in case.tables["consumers"]:
        counts[row["connection_id"], row["consumer_id"]] += 0
    for row in case.tables["deliveries"]:
        counts[row["connection_id"], row["consumer_id"]] += row["message_count"]
    assert sorted(counts.values()) == sorted(case.seen["received"])
    names = {"keyshared": "Key_Shared"}
    kind = case.seen["kind"]
    assert {row["subscription_type"] for row in case.tables["consumers"]} == {
        names.get(kind, kind.capitalize())
    }


def test_crashed_and_stuck_consumers_leave_messages_open():
    stuck = named("fake-f20_stuck_consumer.pcap", "pulsar")
    outcomes = Counter(row["outcome"] for row in stuck.tables["deliveries"])
    assert outcomes == {"acked": stuck.seen["received_by_app"], "consumer_closed": 3}
    assert stuck.tables["permits"][-1]["available_after"] == 0
    crashed = named("cpp-s27_crash_client.pcap", "pulsar")
    assert {row["outcome"] for row in crashed.tables["deliveries"]} == {"conn_closed"}
    assert [row["ended"] for row in crashed.tables["connections"]] == ["rst"]
    saga = named("tap-mirror-saga.pcap", "pulsar")
    topics = Counter(
        row["topic"].rsplit("/")[-1] for row in saga.tables["exchanges"] if row["kind"] == "publish"
    )
    assert sorted(topics.values()) == [27, 30, 30]


# -- special runs


def test_both_legs_of_a_proxy_are_told_apart():
    case = named("cpp-s08_nack-proxy-any.pcap")
    legs = {row["connection_id"]: row for row in case.tables["connections"] if row["leg"]}
    (client,) = [row for row in legs.values() if row["leg"] == "client"]
    (broker,) = [row for row in legs.values() if row["leg"] == "broker"]
    assert client["twin_connection_id"] == broker["connection_id"]
    assert broker["twin_connection_id"] == client["connection_id"]
    assert (client["broker_port"], broker["broker_port"]) == (6652, 6650)
    assert {row["attempt"] for row in case.tables["exchanges"] if row["kind"] == "publish"} == {1}
    for leg in legs:
        rows = [row for row in case.tables["deliveries"] if row["connection_id"] == leg]
        causes = Counter(row["redelivery_cause"] for row in rows)
        assert causes == {None: case.seen["sent"], "explicit": case.seen["redelivered"]}
        outcomes = Counter(row["outcome"] for row in rows)
        assert outcomes == {"acked": case.seen["acked"], "redelivery_requested": 5}
    for name in ("front", "back"):
        alone = named(f"cpp-s08_nack-proxy-{name}.pcap")
        assert not any(row["leg"] for row in alone.tables["connections"])


def test_the_client_behind_a_proxy_header():
    (row,) = named("java-j83_haproxy-v1.pcap").tables["connections"]
    assert row["proxied_client_ip"] == "192.0.2.10"
    assert row["unparsed_bytes_to_broker"] == 44


def test_repeated_sends_are_counted_and_a_message_once():
    """Sends in the gap of an unload, or after a close, come again with their sequence ids."""
    unload = named("java-j24_unload.pcap")
    rows = [row for row in unload.tables["exchanges"] if row["kind"] == "publish"]
    assert len(rows) == 320 and len({row["sequence_id"] for row in rows}) == 310
    assert Counter(row["attempt"] for row in rows) == {1: 310, 2: 10}
    outcomes = Counter(row["outcome"] for row in rows)
    assert outcomes == {"ok": 314, "dropped_after_close": 5, "error": 1}
    assert {row["topic"] for row in rows} == {"persistent://public/default/j24"}
    corrupt = named("java-j74_corrupt.pcap")
    rows = [row for row in corrupt.tables["exchanges"] if row["kind"] == "publish"]
    assert len(rows) == 65 and len({row["sequence_id"] for row in rows}) == 30
    assert Counter(row["outcome"] for row in rows) == {"ok": 42, "error": 1, "conn_closed": 22}
    (error,) = [row for row in rows if row["outcome"] == "error"]
    assert error["error_code"] == "ChecksumError"


def test_replicated_messages_come_from_the_other_cluster():
    """Receipts between brokers name the source's position instead of a sequence id."""
    case = named("java-j80_geo-link.pcap")
    rows = [row for row in case.tables["exchanges"] if row["kind"] == "publish"]
    assert {row["outcome"] for row in rows} == {"ok"}
    seen = case.seen
    expected = seen["west_replicated_from"] + seen["local_replicated_from"]
    assert len(case.tables["messages"]) == expected
    sends = [row for row in case.tables["frames"] if row["command"] == "SEND"]
    assert all(row["replicated_from"] for row in sends)
    # A SEND belongs to the producer that opened, whatever the metadata says of the first one.
    assert {row["producer_name"] for row in case.tables["messages"]} == {
        "pulsar.repl.west-->standalone",
        "pulsar.repl.standalone-->west",
    }


def test_compacted_messages_are_placeholders():
    case = named("java-j28_compaction.pcap")
    rows = [row for row in case.tables["messages"] if row["direction"] == "to_client"]
    kept = [row for row in rows if not row["is_compacted_out"]]
    assert len(kept) == case.seen["read_compacted"] + case.seen["reader_compacted"]


def test_delayed_messages_say_when():
    case = named("java-j29_delayed.pcap")
    rows = [row for row in case.tables["deliveries"] if row["deliver_at_ms"] is not None]
    sent = [
        row for row in case.tables["frames"] if row["command"] == "SEND" and row["deliver_at_ms"]
    ]
    assert len(rows) == len(sent) > 0
    assert all(row["publish_to_delivery_ns"] >= 0 for row in case.tables["deliveries"])


def test_dead_letters_and_retries_name_where_they_come_from():
    case = named("java-j16_dlq_retry.pcap")
    rows = [
        row
        for row in case.tables["frames"]
        if row["command"] == "SEND" and row["topic"].endswith(("-DLQ", "-RETRY"))
    ]
    assert len(rows) == 5
    assert {row["real_topic"] for row in rows} == {case.seen["dead_props"]["REAL_TOPIC"]}
    assert {row["real_subscription"] for row in rows} <= {"sub"}
    dead = [row for row in rows if row["topic"].endswith("-DLQ")]
    assert len(dead) == case.seen["dead"]


def test_acks_in_an_aborted_transaction_do_not_hold():
    case = named("java-j61_txn_abort.pcap")
    again = [row for row in case.tables["deliveries"] if row["is_redelivered"]]
    assert len(again) == case.seen["in_redelivered_after_abort"]
    assert {row["redelivery_count"] for row in again} == {1}
    transactions = {
        (row["txn_most_bits"], row["txn_least_bits"])
        for row in case.tables["acks"]
        if row["txn_most_bits"] is not None
    }
    told = {tuple(int(bits) for bits in each[1:-1].split(",")) for each in case.seen["txns"]}
    assert transactions and transactions <= told
    assert not any(row["action"] == "redeliver" for row in case.tables["acks"])


def test_keep_alive_pings_are_answered():
    for case in (named("java-j36_keepalive.pcap"), named("cpp-s18_keepalive.pcap", "pulsar")):
        rows = [row for row in case.tables["exchanges"] if row["kind"] == "ping"]
        pings = sum(row["command"] == "PING" for row in case.tables["frames"])
        assert len(rows) == pings > 0
        assert {row["outcome"] for row in rows} == {"ok"}


# -- errors


def errors_of(case: Case) -> list[Row]:
    return [row for row in case.tables["exchanges"] if row["outcome"] == "error"]


def test_errors_as_the_client_names_them():
    """Names of the client's results for the codes that the stand-in broker sends by topic."""
    case = named("fake-f02_errors.pcap", "pulsar")
    names = {
        "TopicTerminatedError": "TopicTerminated",
        "InvalidTopicName": "Timeout",
        "ServiceNotReady": "Timeout",
        "SubscriptionNotFound": "Timeout",
        "TooManyRequests": "TooManyLookupRequestException",
    }
    counts = Counter(names.get(row["error_code"], row["error_code"]) for row in errors_of(case))
    told = Counter(case.seen.values())
    assert set(counts) == set(told)
    for code, count in told.items():
        # What the client calls a timeout are refusals that it tried again, several times.
        assert counts[code] >= count if code == "Timeout" else counts[code] in (count, count - 1)


def test_error_texts_are_those_that_the_client_was_given():
    case = named("java-j23_errors.pcap")
    texts = {(row["error_code"], row["error_text"]) for row in errors_of(case)}
    told = [text for text in case.seen.values() if isinstance(text, str) and "errorMsg" in text]
    assert len(told) == len(errors_of(case)) == 10
    for text in told:
        message = text.split('"errorMsg":"', 1)[1].split('","reqId"', 1)[0]
        assert any(given == message for _, given in texts)
    requests = {row["request_id"] for row in case.tables["frames"] if row["error_code"]}
    numbers = {int(text.split('"reqId":', 1)[1].split(",", 1)[0]) for text in told}
    assert numbers <= requests


def test_one_refusal_after_another_until_the_quota_is_free():
    rows = errors_of(named("java-j26_backlog_quota.pcap"))
    assert len(rows) == 15
    assert {row["error_code"] for row in rows} == {"ProducerBlockedQuotaExceededException"}
    named_ones = [row["ts"] for row in rows if row["producer_name"]]
    gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(named_ones)]
    assert gaps == sorted(gaps)


# -- handshakes

VERSIONS = {
    "pulsar-client 3.13.0": "Pulsar-CPP-v4.2.0",
    "pulsar-client 3.5.0": "Pulsar-CPP-v3.5.1",
    "pulsar-client 4.0.6": "Pulsar-Java-v4.0.6",
    "pulsar-client-go 0.18.0": "Pulsar-Go-v0.18.0",
    "pulsar-client-go 0.19.0": "Pulsar-Go-v0.19.0",
    "pulsar-flex 1.1.1": "Pulsar-Flex Nodejs Client v0.0.0",
    "pulsar-rs 6.9.1": "pulsar-rs-v6.9.1",
    "replicator inside": "Pulsar-Java-v4.0.6",
}


@each_capture
def test_versions_of_clients_and_brokers(case):
    rows = [row for row in case.tables["connections"] if row["protocol"] == "pulsar"]
    (client,) = [text for start, text in VERSIONS.items() if case.truth["client"].startswith(start)]
    clients = {row["client_version"] for row in rows} - {None}
    brokers = {row["server_version"] for row in rows} - {None}
    if "-proxy-" not in case.name:
        assert clients <= {client}
    if case.is_whole:
        assert client in clients
        start = {True: "Pulsar-Lite-0.1.0", False: "Pulsar Server 4.0.0-fake"}[
            case.truth["broker_is_real"]
        ]
        start = "Pulsar Server4.0.6" if case.folder == "pulsar-apache" else start
        if case.name != "fake-f11_auth_challenge.pcap":
            assert brokers == {start}
