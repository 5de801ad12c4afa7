"""Every section against a naive report: on rows made by chance, and on real captures."""

from functools import cache
from typing import Any

import pytest

from dissector.buckets import bucket_bounds
from dissector.limits import MAX_SLOW
from dissector.report.merged_tables import MergedTables, empty_tables
from dissector.report.numbers import NOT_EVALUATED
from dissector.report.result import SECTIONS
from dissector.report.sections.redelivery import has_identity
from dissector.report.sections.send_latency import GROUPINGS
from dissector.report.sections.slowest import LISTS
from tests.dissector import observed
from tests.dissector.report import made
from tests.naive import report as naive
from tests.numbers import Numbers

REAL = (
    "java-j74_corrupt.pcap", "java-j24_unload.pcap", "java-j40_slow_consumer.pcap",
    "java-j16_dlq_retry.pcap", "java-j61_txn_abort.pcap", "cpp-s08_nack-proxy-any.pcap",
    "mut-snap200-java-j03_batch_lz4.pcap", "mut-loss1-java-j24_unload.pcap",
)  # fmt: skip


@cache
def tables_of(name: str) -> made.Tables:
    """Rows of a capture, made by chance (a number) or real (a name); `ts` in µs."""
    if name.isdigit():
        tables = made.RandomCapture(int(name)).tables
    else:
        found = observed.tables_of(str(observed.CAPTURES / "pulsar-apache" / name))
        tables = {
            table: [
                {
                    key: value
                    if value is None or key != "ts"
                    else int(value.timestamp() * 1_000_000 + 0.5)
                    for key, value in row.items()
                }
                for row in rows
            ]
            for table, rows in found.items()
        }
    return {
        table: [
            {column.name: row.get(column.name) for column in made.TABLES[table].columns}
            for row in rows
        ]
        for table, rows in tables.items()
    }


ALL = ("1", "2", *REAL)


@cache
def numbers_of(*names: str) -> Numbers:
    """Of captures, each of its name, whose rows come in pieces."""
    summary = Numbers()
    for name in names:
        tables = tables_of(name)
        for table in sorted(tables, key=lambda table: table != "frames"):
            rows = tables[table]
            for start in range(0, len(rows), 61):
                summary.add(table, made.batch(table, rows[start : start + 61]), name)
    return summary


@cache
def reports(*names: str) -> dict[str, dict[str, Any]]:
    """The report of each capture alone: the queries run once for all of them."""
    return numbers_of(*names).results()


def report_of(name: str) -> dict[str, Any]:
    return reports(*ALL)[name]


each = pytest.mark.parametrize("name", ALL)


@each
def test_sends_and_their_latencies(name: str) -> None:
    total = report_of(name)["send_latency"]["total"]
    tables = naive.settled(tables_of(name))
    expected = naive.send_latency(tables)
    values = expected.pop("latencies")
    assert {key: total[key] for key in expected} == expected
    latency = total["latency_ms"]
    assert latency["count"] == len(values)
    if values:
        assert latency["min"] == pytest.approx(values[0] / 1e6, abs=0.0006)
        assert latency["max"] == pytest.approx(values[-1] / 1e6, abs=0.0006)
        assert latency["mean"] == pytest.approx(sum(values) / len(values) / 1e6, abs=0.0006)
        for key, permille in (("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999)):
            exact = naive.percentile(values, permille) / 1e6
            assert latency[key] == pytest.approx(exact, rel=0.016, abs=0.0006), key
    histogram = total["latency_histogram"]
    edges = [bucket_bounds(bucket)[1] for bucket, _ in histogram]
    assert naive.within(histogram, values, edges)


@pytest.mark.parametrize("name", REAL)
def test_messages_are_counted_once_however_often_they_are_sent(name: str) -> None:
    tables = naive.settled(tables_of(name))
    assert report_of(name)["send_latency"]["total"]["messages"] == naive.distinct_messages(tables)


@each
def test_groups_of_sends_add_up_to_the_total(name: str) -> None:
    section = report_of(name)["send_latency"]
    for grouping in sorted({*GROUPINGS} - {"total"}):
        for key in ("sends", "request_bytes", "tainted", "resent"):
            assert sum(row[key] for row in section[grouping]) == section["total"][key], grouping
    minutes = section["total"]["per_minute"]
    assert sum(minute["sends"] for minute in minutes) == section["total"]["sends"]
    left_out, outcomes = section["total"]["not_evaluated_by_reason"], section["total"]["outcomes"]
    assert {*NOT_EVALUATED} & {*left_out} == {*NOT_EVALUATED} & {*outcomes}
    assert all(left_out[key] == outcomes[key] for key in {*NOT_EVALUATED} & {*outcomes})


@each
def test_deliveries_and_why_they_came_again(name: str) -> None:
    total = report_of(name)["redelivery"]["total"]
    expected = naive.redelivery(naive.settled(tables_of(name)))
    assert {key: total[key] for key in expected} == expected
    assert total["asked_for"] + total["infrastructure"] == total["redelivered"]


@each
def test_permits_time_without_them_and_stalls(name: str) -> None:
    total = report_of(name)["permit_utilization"]["total"]
    expected = naive.permits(naive.settled(tables_of(name)))
    stalls = expected.pop("stalls_us")
    exhausted, observed_us = expected.pop("exhausted_us"), expected.pop("observed_us")
    assert {key: total[key] for key in expected} == expected
    assert total["observed_ms"] == pytest.approx(observed_us / 1000, abs=0.0006)
    if observed_us:
        assert total["exhausted_share"] == pytest.approx(exhausted / observed_us, abs=1e-6)
    if total["stalls"]["count"] is None:
        assert not stalls and total["utilization"] is None and total["overshoot"] is None
        assert sum(total["not_evaluated_by_reason"].values()) == total["consumers"]
        return
    assert total["stalls"]["count"] == len(stalls)
    assert total["stalls"]["total_ms"] == pytest.approx(sum(stalls) / 1000, abs=0.001)
    confirmed = total["stalls"]["confirmed"]["count"]
    assert confirmed + total["stalls"]["unconfirmed"]["count"] == len(stalls)


@each
def test_checksums(name: str) -> None:
    total = report_of(name)["checksum_failures"]["total"]
    tables = tables_of(name)
    twins = {
        row["connection_id"] for row in tables["connections"]
        if row["leg"] == "broker" and row["twin_connection_id"] is not None
    }  # fmt: skip
    frames = [row for row in tables["frames"] if row["connection_id"] not in twins]
    expected = naive.checksums({"frames": frames})
    for key in ("ok", "mismatch", "absent", "not_evaluated"):
        assert total[key] == expected.get(key, 0)
    verdicts = sum(total[key] for key in ("confirmed_by_peer", "capture_artefact", "unconfirmed"))
    assert verdicts == total["mismatch"]


@each
def test_coverage_adds_up(name: str) -> None:
    total = report_of(name)["coverage"]["total"]
    tables = tables_of(name)
    assert total["frames"] == len(tables["frames"]) == sum(total["frames_by_status"].values())
    assert total["connections"] == len(tables["connections"])
    for key in ("stream_bytes", "decoded_bytes", "gap_bytes", "gaps", "unparsed_bytes"):
        assert total[key] == sum(
            (row[f"{key}_to_broker"] or 0) + (row[f"{key}_to_client"] or 0)
            for row in tables["connections"]
        )
    ignored = sum(total["packets_ignored_by_reason"].values())
    assert total["packets"] == total["packets_tcp"] + ignored
    assert sum(total["notices_by_code"].values()) == len(tables["notices"])


@each
def test_the_slowest_are_the_slowest(name: str) -> None:
    section = report_of(name)["slowest"]
    rows = naive.settled(tables_of(name))["exchanges"]
    for listed in LISTS:
        is_publish = listed == "publish"
        values = sorted(
            (row["latency_ns"] for row in rows
             if (row["kind"] == "publish") == is_publish and row["latency_ns"] is not None
             and (row["kind"], row["outcome"]) != ("publish", "error")), reverse=True,
        )[:MAX_SLOW]  # fmt: skip
        assert [row["latency_ms"] for row in section[listed]] == pytest.approx(
            [value / 1e6 for value in values], abs=0.0006
        )
        for row in section[listed]:
            assert row["request_packet"] is not None or row["request_frame_no"] is None


# -- rules, one by one


SENT = {"frame_no": 5, "command": "SEND", "direction": "to_broker", "producer_id": 1,
        "sequence_id": 3, "checksum": "mismatch"}  # fmt: skip
GOT = {"frame_no": 5, "command": "MESSAGE", "direction": "to_client", "consumer_id": 1,
       "ledger_id": 1, "entry_id": 2, "checksum": "mismatch"}  # fmt: skip


@pytest.mark.parametrize(
    ("frame", "answer", "expected"),
    [
        (GOT, {"validation_error": "ChecksumMismatch"}, "confirmed_by_peer"),
        (GOT, {"validation_error": None}, "unconfirmed"),
        (SENT, {"outcome": "error", "error_code": "ChecksumError"}, "confirmed_by_peer"),
        (SENT, {"outcome": "error", "error_code": "PersistenceError"}, "unconfirmed"),
        (SENT, {"outcome": "ok"}, "capture_artefact"),
        (SENT, {"outcome": "dup_or_dropped"}, "unconfirmed"),
        (SENT, None, "unconfirmed"),
    ],
    ids=["refused by the consumer", "a plain ack", "refused by the broker", "another error",
         "confirmed send", "a receipt without an id", "nobody says"],
)  # fmt: skip
def test_who_confirms_a_wrong_checksum(
    frame: made.Row, answer: made.Row | None, expected: str
) -> None:
    numbers = Numbers()
    place = {"connection_id": 0}
    numbers.add("frames", made.batch("frames", [place | frame]))
    if frame is SENT and answer is not None:
        row = made.publish(request_frame_no=5, response_frame_no=6, sequence_id=3) | answer
        numbers.add("exchanges", made.batch("exchanges", [row | place]))
    elif answer is not None:
        ids = {"consumer_id": 1, "ledger_id": 1, "entry_id": 2}
        ack = place | ids | {"frame_no": 7, "action": "ack", **answer}
        numbers.add("acks", made.batch("acks", [ack]))
        outcome = "discarded" if answer["validation_error"] else "acked"
        delivery = place | ids | {"frame_no": 5, "ack_frame_no": 7, "outcome": outcome}
        numbers.add("deliveries", made.batch("deliveries", [delivery]))
    (failure,) = SECTIONS["checksum_failures"].build(numbers.parts())["failures"]
    assert failure["verdict"] == expected


def test_entries_of_topics_that_are_not_persistent_have_no_identity() -> None:
    assert has_identity("persistent://a/b/c") and has_identity(None)
    assert not has_identity("non-persistent://a/b/c")


def test_messages_put_aside_are_counted_under_any_name_and_in_batches() -> None:
    """C++ says where they come from and no count; Go puts dead letters into batches."""
    summary = Numbers()
    sends = [
        {"topic": "t-s-DLQ", "real_topic": "t", "message_count": 3},
        {"topic": "aside", "real_topic": "t", "message_count": 1},
        {"topic": "aside", "real_topic": "t", "message_count": 2, "reconsume_times": 1},
        {"topic": "t", "message_count": 1},
    ]
    rows = [{"frame_no": number, "command": "SEND", "direction": "to_broker", **send}
            for number, send in enumerate(sends, 1)]  # fmt: skip
    summary.add("frames", made.batch("frames", rows))
    total = summary.result()["redelivery"]["total"]
    names = ("dead_letter_publishes", "retry_publishes", "other_reconsume_publishes")
    assert [total[name] for name in names] == [3, 0, 3]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_of_nothing_has_its_keys(section: str) -> None:
    content = SECTIONS[section].build(empty_tables())
    assert "total" in content and all(value == [] for key, value in content.items()
                                    if key.startswith("by_"))  # fmt: skip


@pytest.mark.parametrize(
    ("section", "query", "listed"),
    [
        ("send_latency", "passed_over", "passed_over"),
        ("checksum_failures", "checksum_failures", "failures"),
    ],
)
def test_what_has_no_time_is_listed_last(section: str, query: str, listed: str) -> None:
    """A capture without times, in a lake beside others."""
    names = ("frame_no", "request_frame_no", "metadata_bytes", "payload_bytes", "crc32c_stored",
             "crc32c_computed", "copy_crc32c", "verdict", "evidence_frame_no")  # fmt: skip
    rows = [
        {"capture": capture, "at_ns": at_ns, **dict.fromkeys(names)}
        for capture, at_ns in (("a", None), ("b", 5), ("c", None), ("d", 1))
    ]
    merged = MergedTables({**empty_tables().tables, query: rows}, 1)
    content = SECTIONS[section].build(merged)[listed]
    assert [row["capture"] for row in content] == ["d", "b", "a", "c"]
