"""Rules of sends without an answer and of reading that stops: made captures and their twins."""

import random

import pytest

from tests.dissector.findings.asking import findings_of_lines, variant
from tests.dissector.findings.sending_captures import LEDGER, TOPIC, Line

OTHER = "persistent://public/default/invoices"
# Rules that fire on what is made here, and on no sample capture.
MADE = {"D12"}


# -- D12


def stuck(answered: float | None, *, ledger: int = LEDGER, others: bool = True) -> Line:
    """Five sends at 5 s that wait; sends to another topic go on beside them."""
    line = Line()
    line.begin()
    line.produce(0.1)
    line.produce(0.2, OTHER, 2, "q")
    for number in range(5):
        line.send(1 + number * 0.1, number)
        line.receipt(1.01 + number * 0.1, number, number)
    for number in range(5, 10):
        line.send(5 + number * 0.01, number)
    for number in range(8 if others else 0):
        line.send(6 + number, number, 2)
        line.receipt(6.01 + number, number, 100 + number, 2)
    if answered is not None:
        for number in range(5, 10):
            line.receipt(5 + answered + number * 0.01, number, number, ledger=ledger)
    line.ping(70, 70.001)
    return line


def test_sends_to_one_topic_wait_while_others_on_the_connection_are_answered(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D12", stuck(None))
    assert variant(one) == "one_topic" and one.severity == "error"
    assert one.subject["topic"] == TOPIC and one.subject["producer_name"] == "p"
    assert one.measured["sends"] == 5 and one.measured["answered"] == 0
    assert one.measured["longest_s"] == pytest.approx(70.002 - 5.05, abs=0.01)
    assert one.measured["other_receipts"] == 8 and one.measured["pongs"] == 1


def test_sends_that_wait_for_a_new_ledger(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D12", stuck(48.0, ledger=LEDGER + 1))
    assert variant(one) == "ledger_rollover"
    assert one.measured["last_ledger_id"] == LEDGER
    assert one.measured["next_ledger_id"] == LEDGER + 1
    assert one.measured["longest_s"] == pytest.approx(48.0, abs=0.01)
    assert one.measured["answered"] == 5


def test_sends_that_are_answered_in_time_are_no_finding(tmp_path):
    assert findings_of_lines(tmp_path, "D12", stuck(9.5)) == []


def test_sends_without_anything_to_compare_with(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D12", stuck(None, others=False))
    assert variant(one) == "" and one.measured["other_receipts"] == 0


def swallowed(*, reopened_s: float | None) -> Line:
    line = Line()
    line.begin()
    line.produce(0.1)
    line.send(1, 0)
    line.receipt(1.01, 0, 0)
    line.close_producer(5)
    for number in range(1, 4):
        line.send(5 + number * 0.01, number)
    if reopened_s is not None:
        line.produce(reopened_s)
        for number in range(1, 4):
            line.send(reopened_s + 0.1 + number * 0.01, number)
            line.receipt(reopened_s + 0.105 + number * 0.01, number, number)
    line.ping(30, 30.001)
    return line


def test_sends_behind_the_close_of_the_broker(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D12", swallowed(reopened_s=None))
    assert variant(one) == "swallowed_after_close" and one.verdict == "proven"
    assert one.measured["sends"] == 3


def test_sends_that_are_sent_again_long_behind_the_close(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D12", swallowed(reopened_s=20))
    assert variant(one) == "swallowed_after_close_answered" and one.severity == "warning"
    assert one.measured["answered"] == 3
    assert one.measured["longest_s"] == pytest.approx(15.1, abs=0.02)


def test_sends_that_are_sent_again_behind_the_close_are_no_finding(tmp_path):
    assert findings_of_lines(tmp_path, "D12", swallowed(reopened_s=5.2)) == []


def sender(port: int, broker: str, topic: str, *, until: float, pause: float) -> Line:
    """A send each second until `until`; those behind `pause` get no receipt."""
    line = Line(port, broker)
    line.begin()
    line.produce(0.1, topic, 1, topic[-1])
    for number in range(1, round(until)):
        line.send(number, number)
        if number < pause:
            line.receipt(number + 0.01, number, number)
    return line


def test_sends_to_one_broker_wait_while_another_answers(tmp_path):
    lines = [
        sender(40_001, "10.0.0.2", TOPIC, until=40, pause=10),
        sender(40_002, "10.0.0.2", OTHER, until=40, pause=10),
        sender(40_003, "10.0.0.3", TOPIC + "-2", until=40, pause=99),
    ]
    findings = findings_of_lines(tmp_path, "D12", *lines)
    assert {variant(one) for one in findings} == {"one_broker"}
    assert {one.subject["topic"] for one in findings} == {TOPIC, OTHER}
    assert all(one.measured["broker_topics"] == 2 for one in findings)
    assert all(one.measured["elsewhere_receipts"] >= 15 for one in findings)


def paused(pause: float, *, is_pinged: bool = True) -> list[Line]:
    """Nothing is answered on the first connection from 10 s on; on the second all is."""
    line = Line(40_001)
    line.begin()
    line.produce(0.1)
    line.produce(0.2, OTHER, 2, "q")
    line.subscribe(0.3, TOPIC + "-3")
    line.send(1, 0)
    line.receipt(1.01, 0, 0)
    line.send(10, 1)
    line.send(10.1, 0, 2)
    if is_pinged:
        line.ping(10.2, None)
    for number in range(3):
        line.message(10.3 + number * 0.01, number)
    line.receipt(10 + pause, 1, 1)
    line.receipt(10.001 + pause, 0, 9, 2)
    if is_pinged:
        line.down(10.002 + pause, Line.pong())
    line.ping(60, 60.001)
    return [line, sender(40_002, "10.0.0.2", TOPIC + "-4", until=60, pause=99)]


def test_sends_wait_on_a_connection_on_which_nothing_is_answered(tmp_path):
    findings = findings_of_lines(tmp_path, "D12", *paused(20.0))
    assert {variant(one) for one in findings} == {"reads_paused_answered"}
    assert {one.severity for one in findings} == {"warning"}  # no client gave up so soon
    assert {one.measured["others_waiting"] for one in findings} == {1, 2}


def test_what_clients_give_up_is_an_error_though_it_is_answered_then(tmp_path):
    findings = findings_of_lines(tmp_path, "D12", *paused(31.0))
    assert {variant(one) for one in findings} == {"reads_paused"}
    assert {one.severity for one in findings} == {"error"}


# -- D13


def test_a_pause_of_the_brokers_reading_is_told_from_a_standstill(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D13", *paused(4.0))
    assert variant(one) == "" and one.severity == "warning"
    assert one.measured["longest_s"] == pytest.approx(4.0, abs=0.01)
    assert one.measured["waiting"] == 3 and one.measured["pings"] == 1
    assert one.measured["topics"] == 2 and one.measured["messages"] == 3
    assert one.measured["elsewhere"] == 4 and one.ruled_out


@pytest.mark.parametrize(("pause", "is_pinged"), [(0.4, True), (0.9, False)])
def test_a_short_pause_is_no_finding(tmp_path, pause, is_pinged):
    assert findings_of_lines(tmp_path, "D13", *paused(pause, is_pinged=is_pinged)) == []


def comb(pause: float, *, is_even: bool = True, store_ms: float | None = None) -> Line:
    """Forty sends at once, and receipts at an even pace, or at an uneven one.

    store_ms: each entry is delivered, too, with the time at which the broker took it, so long
    before its receipt.
    """
    chance = random.Random(1)
    line = Line()
    line.begin()
    line.produce(0.1)
    if store_ms is not None:
        line.subscribe(0.5)
    for number in range(40):
        line.send(1 + number * 0.003, number)
    at = 1.2
    for number in range(40):
        line.receipt(at, number, number)
        if store_ms is not None:
            line.message(at + 0.005, number, stored_at=at - store_ms / 1000)
        at += pause if is_even else pause * (0.1 + 2 * chance.random())
    return line


def test_receipts_at_an_even_pace(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D13", comb(0.1))
    assert variant(one) == "rate_comb" and one.measured["pause_ms"] == pytest.approx(100, abs=1)
    assert one.measured["share"] > 0.95 and one.measured["waiting_ms"] is None


@pytest.mark.parametrize(("pause", "is_even"), [(0.01, True), (0.1, False)])
def test_receipts_that_are_quick_or_uneven_are_no_finding(tmp_path, pause, is_even):
    assert findings_of_lines(tmp_path, "D13", comb(pause, is_even=is_even)) == []


def test_the_time_before_storing_tells_a_limit_from_slow_storage(tmp_path):
    (one,) = findings_of_lines(tmp_path, "D13", comb(0.1, store_ms=5))
    assert one.measured["storing_ms"] == pytest.approx(5, abs=1.5)
    assert one.measured["waiting_ms"] > 1000


def test_storage_at_an_even_pace_is_no_limit(tmp_path):
    assert findings_of_lines(tmp_path, "D13", comb(0.1, store_ms=3000)) == []
