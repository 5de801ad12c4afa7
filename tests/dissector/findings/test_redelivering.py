"""Rules of redelivery and of acknowledgements in vain: made captures and their twins."""

from typing import Any

import pytest

from tests.dissector.findings.asking import findings_of_lines, variant
from tests.dissector.findings.sending_captures import LEDGER, Line
from tests.hard.tape import simple

# Rules that fire on what is made here, and on no sample capture.
MADE = {"D32", "D33"}


# -- D32


def looping(times: int, *, is_acked: bool = False, every: float = 3.0) -> Line:
    """One entry that is refused and comes again; the others of the topic are acknowledged."""
    line = Line()
    line.begin()
    line.subscribe(0.1)
    line.message(1, 0)
    if is_acked:
        line.message(1.1, 1)
        line.ack(1.2, 1)
    for number in range(1, times):
        line.redeliver(1.5 + (number - 1) * every, 0)
        line.message(1 + number * every, 0, count=number)
    line.ping(100, 100.001)
    return line


@pytest.mark.parametrize(
    ("times", "is_acked", "name"),
    [(5, False, "nothing_acked"), (12, True, ""), (18, True, "no_dlq")],
)
def test_an_entry_that_comes_again_and_again(tmp_path, times, is_acked, name):
    (one,) = findings_of_lines(tmp_path, "D32", looping(times, is_acked=is_acked))
    assert variant(one) == name and one.severity == "error"
    assert one.measured["most_times"] == times and one.measured["entries"] == 1
    assert one.measured["period_s"] == pytest.approx(3.0, abs=0.01)
    assert one.measured["acks"] == is_acked


@pytest.mark.parametrize(("times", "is_acked"), [(4, False), (9, True)])
def test_an_entry_that_comes_a_few_times_is_no_finding(tmp_path, times, is_acked):
    assert findings_of_lines(tmp_path, "D32", looping(times, is_acked=is_acked)) == []


def test_a_timeout_that_asks_for_the_whole_queue(tmp_path):
    line = Line()
    line.begin()
    line.subscribe(0.1, permits=10)
    for turn in range(5):
        for entry in range(10):
            line.message(1 + turn * 5 + entry * 0.01, entry, count=turn)
        line.redeliver(5.9 + turn * 5, *range(9))
    (one,) = findings_of_lines(tmp_path, "D32", line)
    assert variant(one) == "prefetch_timeout" and one.measured["requests"] == 5
    assert one.measured["most_asked"] == 9 and one.measured["queue"] == 10
    assert one.measured["period_s"] == pytest.approx(5.0, abs=0.01)


def recounted(*counts: int) -> Line:
    """An entry with these counters, the consumer closed by the broker before the last."""
    line = Line()
    line.begin()
    line.subscribe(0.1)
    for turn, count in enumerate(counts[:-1]):
        line.message(1 + turn, 0, count=count)
        line.redeliver(1.5 + turn, 0)
    line.close_consumer(10)
    line.subscribe(10.2)
    line.message(11, 0, count=counts[-1])
    return line


def test_a_counter_that_starts_again(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D32", recounted(0, 1, 2, 0))
    assert variant(one) == "counter_reset" and one.severity == "warning"
    assert (one.measured["count_before"], one.measured["count_after"]) == (2, 0)


def test_a_counter_that_goes_on_is_no_finding(tmp_path):
    assert findings_of_lines(tmp_path, "D32", recounted(0, 1, 2, 3)) == []


# -- D33


def refused(*, between: bool) -> Line:
    line = Line()
    line.begin()
    line.subscribe(0.1)
    for entry in range(3):
        line.message(1 + entry * 0.1, entry)
    line.redeliver(2, 0, 1)
    if between:
        line.message(2.1, 0, count=1)
        line.message(2.2, 1, count=1)
    line.redeliver(3, 0, 1, 2)
    line.message(3.1, 2, count=1)
    return line


def test_a_delivery_that_is_asked_for_again_twice(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D33", refused(between=False))
    assert variant(one) == "" and one.measured["ids"] == 2
    assert one.measured["apart_s"] == pytest.approx(1.0, abs=0.01)


def test_deliveries_that_are_each_asked_for_again_once_are_no_finding(tmp_path):
    assert findings_of_lines(tmp_path, "D33", refused(between=True)) == []


def test_a_negative_ack_of_what_was_asked_for_already(tmp_path):
    """Newer clients say apart what the application refused and what it gives back unseen."""
    line = Line()
    line.begin()
    line.subscribe(0.1)
    for entry in range(3):
        line.message(1 + entry * 0.1, entry)
    line.redeliver(2, 0, 1)
    ids = [{"ledgerId": LEDGER, "entryId": entry} for entry in range(3)]
    line.up(3, simple("NEGATIVE_ACK", consumer_id=1, negative_acked=ids[:1], returned=ids[1:]))
    for entry in range(3):
        line.message(3.1 + entry * 0.1, entry, count=1)
    (one,) = findings_of_lines(tmp_path, "D33", line)
    assert variant(one) == "" and one.measured["ids"] == 2


@pytest.mark.parametrize(("kind", "findings"), [("Shared", 1), ("Exclusive", 0)])
def test_a_request_that_names_nothing(tmp_path, kind, findings):
    line = Line()
    line.begin()
    line.subscribe(0.1, kind=kind)
    for entry in range(3):
        line.message(1 + entry * 0.1, entry)
    line.redeliver(2)
    for entry in range(3):
        line.message(2.1 + entry * 0.1, entry, count=1)
    named = findings_of_lines(tmp_path, "D33", line)
    assert [variant(one) for one in named] == ["redeliver_all"] * findings
    assert all(one.measured["caused"] == 3 for one in named)


# -- D37


def acked_at_close(before: float, *, by_broker: bool) -> list[Line]:
    """Three entries acknowledged before or behind (negative) the close, and delivered again."""
    line = Line()
    line.begin()
    line.subscribe(0.1)
    for entry in range(3):
        line.message(1 + entry * 0.1, entry)
    if before >= 0:
        line.ack(10 - before, 0, 1, 2)
    if by_broker:
        line.close_consumer(10)
    else:
        line.finish(10)
    if before < 0:
        line.ack(10 - before, 0, 1, 2)
    again = line if by_broker else Line(40_001)
    if again is not line:
        again.begin(10.5)
    again.subscribe(11)
    for entry in range(3):
        again.message(12 + entry * 0.1, entry)
    return [line] if again is line else [line, again]


@pytest.mark.parametrize(("before", "by_broker"), [(0.5, True), (0.5, False), (-0.1, True)])
def test_acks_that_are_lost_at_a_close(tmp_path, before, by_broker):
    (one,) = findings_of_lines(tmp_path, "D37", *acked_at_close(before, by_broker=by_broker))
    assert variant(one) == "" and one.measured["entries"] == 3
    assert one.measured["before_close_s"] == pytest.approx(before, abs=0.02)


def test_acks_long_before_the_close_were_not_lost_but_not_kept(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D37", *acked_at_close(5, by_broker=True))
    assert variant(one) == "not_kept" and one.measured["entries"] == 3
    assert one.measured["least_before_close_s"] == pytest.approx(5, abs=0.02)


def acked_in_vain(times: int = 1, every: float = 1.0, **more: Any) -> Line:
    """Entries each of which is acknowledged in a transaction of its own, and an ACK's answer."""
    line = Line()
    line.begin()
    line.subscribe(0.1)
    for turn in range(times):
        at = 1 + turn * every
        line.message(at, turn)
        line.ack(at + 0.1, turn, request_id=50 + turn, txnid_most_bits=7, txnid_least_bits=turn)
        line.down(at + 0.2, simple("ACK_RESPONSE", consumer_id=1, request_id=50 + turn, **more))
    return line


REFUSED = {"error": "TransactionConflict", "message": "already acked"}


@pytest.mark.parametrize(
    ("times", "every", "name", "severity"),
    [(2, 1.0, "refused", "warning"), (4, 6.0, "refused_lasting", "error")],
)
def test_acks_that_the_broker_refuses(tmp_path, times, every, name, severity):
    line = acked_in_vain(times, every, **REFUSED)
    line.message(100, 0, count=1)
    line.message(101, 9)
    line.ack(102, 9, request_id=99)
    line.down(103, simple("ACK_RESPONSE", consumer_id=1, request_id=99))
    (one,) = findings_of_lines(tmp_path, "D37", line)
    assert variant(one) == name and one.severity == severity
    measured = one.measured
    assert measured["acks"] == measured["entries"] == times and measured["again"] == 1
    assert measured["granted"] == 1 and measured["elsewhere"] == 0
    assert measured["first_id"] == "7:0" and measured["transaction"] == "(7,0)"
    assert "'already acked'" in one.text


def test_acks_that_are_refused_since_another_ack_was_taken_lose_nothing(tmp_path):
    line = acked_in_vain(1, **REFUSED)
    line.ack(2, 0)
    (one,) = findings_of_lines(tmp_path, "D37", line)
    assert variant(one) == "refused_elsewhere" and one.severity == "info"


def test_acks_whose_transaction_is_aborted(tmp_path):
    line = acked_in_vain(2)
    for number in range(2):
        at = 10 + number
        fields = {"request_id": 80 + number, "txnid_most_bits": 7, "txnid_least_bits": number}
        line.up(at, simple("END_TXN", txn_action="ABORT" if number else "COMMIT", **fields))
        line.down(at + 0.1, simple("END_TXN_RESPONSE", **fields))
    line.message(12, 1, count=1)
    (one,) = findings_of_lines(tmp_path, "D37", line)
    assert variant(one) == "rolled_back" and one.severity == "info"
    assert one.measured["entries"] == one.measured["again"] == one.measured["transactions"] == 1
    assert one.measured["first_id"] == "7:1" and one.measured["transaction"] == "(7,1)"


@pytest.mark.parametrize("kept", [True, False])
def test_acks_of_single_messages_of_a_batch(tmp_path, kept):
    """Six of ten messages are acknowledged; the batch comes again, with or without these."""
    left = [0b1111000000]
    line = Line()
    line.begin()
    line.subscribe(0.1)
    line.message(1, 0, batch=10)
    ids = [{"ledgerId": LEDGER, "entryId": 0, "ack_set": left, "batch_size": 10}]
    line.up(2, simple("ACK", consumer_id=1, ack_type="Individual", message_id=ids))
    line.redeliver(3, 0)
    line.message(4, 0, batch=10, count=1, ack_set=left if kept else None)
    findings = findings_of_lines(tmp_path, "D37", line)
    assert [variant(one) for one in findings] == ["index_acks"] * (not kept)
    assert all((one.measured["entries"], one.measured["messages"]) == (1, 6) for one in findings)


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared", "Failover"])
def test_cumulative_acks_where_each_message_counts_by_itself(tmp_path, kind):
    line = Line()
    line.begin()
    line.subscribe(0.1, kind=kind)
    for entry in range(4):
        line.message(1 + entry * 0.1, entry)
    line.ack(2, 0)
    for at, entry in ((3, 1), (4, 2)):
        ids = [{"ledgerId": LEDGER, "entryId": entry}]
        line.up(at, simple("ACK", consumer_id=1, ack_type="Cumulative", message_id=ids))
    findings = findings_of_lines(tmp_path, "D37", line)
    assert [variant(one) for one in findings] == ["cumulative_shared"] * (kind != "Failover")
    for one in findings:
        assert one.severity == "error" and f"of type {kind}" in one.text
        assert (one.measured["acks"], one.measured["entries"]) == (2, 2)
