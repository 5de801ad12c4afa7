"""Transactions: which of them never end, and what is in one."""

import csv
import io
from typing import Any

import pytest

from dissector.cli.main import run
from tests.dissector.findings.asking import findings_of_lines, variant
from tests.dissector.findings.samples import sample
from tests.dissector.findings.sending_captures import TOPIC, Line
from tests.hard.tape import simple
from tests.wire import pulsar

# Rules that fire on what is made here, and on no sample capture.
MADE = {"D44"}
ID: dict[str, int] = {"txnid_most_bits": 3, "txnid_least_bits": 8}


def opened(timeout_s: float = 20.0) -> Line:
    """A transaction of coordinator 3 with two sends and an ACK in it."""
    line = Line()
    line.begin()
    line.produce(0.1)
    line.subscribe(0.2, consumer=2)
    line.message(0.5, 4, consumer=2)
    line.up(1, simple("NEW_TXN", request_id=70, txn_ttl_millis=round(timeout_s * 1000), tc_id=3))
    line.down(1.01, simple("NEW_TXN_RESPONSE", request_id=70, **ID))
    for sequence in range(2):
        head = pulsar.command("SEND", producer_id=1, sequence_id=sequence, **ID)
        line.up(1.1 + sequence, pulsar.entry(head, pulsar.metadata("p", sequence, 1), b"x"))
        line.receipt(1.2 + sequence, sequence, sequence)
    line.ack(3, 4, consumer=2, **ID)
    return line


def ended(line: Line, at: float, answered: float | None, **more: Any) -> None:
    line.up(at, simple("END_TXN", request_id=71, txn_action="COMMIT", **ID))
    if answered is not None:
        line.down(answered, simple("END_TXN_RESPONSE", request_id=71, **ID, **more))


@pytest.mark.parametrize(
    ("name", "severity", "at"),
    [("", "error", 40), ("still_open", "warning", 40), ("abandoned", "error", 5)],
    ids=["timeout", "still open", "abandoned"],
)
def test_a_transaction_that_never_ends(tmp_path, name, severity, at):
    line = opened(60 if name == "still_open" else 20)
    line.ping(at, at + 0.01)
    if name == "abandoned":
        line.finish(at + 0.02)
    (one,) = findings_of_lines(tmp_path, "D44", line)
    assert (variant(one), one.severity) == (name, severity)
    assert one.subject["transaction"] == "(3,8)" and one.measured["topic"] == TOPIC
    assert (one.measured["sends"], one.measured["acks"]) == (2, 1)
    assert one.measured["timeout_s"] == (60 if name == "still_open" else 20)
    assert one.measured["open_s"] == pytest.approx(at - 1, abs=0.05)
    assert "-m 3 -l 8" in one.text and "txn_least_bits == 8" in one.text


def test_an_end_that_nobody_answers(tmp_path):
    line = opened()
    ended(line, 5, None)
    line.ping(25, 25.01)
    (one,) = findings_of_lines(tmp_path, "D44", line)
    assert variant(one) == "unanswered" and one.measured["waited_s"] == pytest.approx(20, abs=0.05)


@pytest.mark.parametrize("error", [None, "TransactionNotFound"])
def test_a_transaction_that_ends_or_may_still_end_is_no_finding(tmp_path, error):
    line = opened()
    ended(line, 5, 5.1, **({} if error is None else {"error": error}))
    line.ping(50, 50.01)
    young = opened()
    young.ping(10, 10.01)
    assert findings_of_lines(tmp_path, "D44", line) == []
    (tmp_path / "young").mkdir()
    assert findings_of_lines(tmp_path / "young", "D44", young) == []


def test_transactions_are_listed_with_what_is_in_them(capsys):
    """The log of `java-j61_txn_abort` has two, each with five acks."""
    names = ("java-j61_txn_abort.pcap", "live-transaction_open.pcap")
    query = (
        "select id, state, timeout_ms, sends, acks, topic from transactions order by capture, id"
    )
    assert run(["sql", "-q", *(str(sample(name)) for name in names), query, "--format", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    aborted = ["30000", "6", "5", "persistent://public/default/txoutfalse"]
    assert rows[1:] == [
        ["(0,2)", "aborted", *aborted],
        ["(0,3)", "aborted", *aborted],
        ["(0,9)", "committed", "60000", "5", "0", "persistent://public/default/java-j_txn_long"],
    ]


def test_a_transaction_of_a_topic_ends_although_its_end_names_none(capsys):
    path = str(sample("go-g06_txn-bem.pcap"))
    query = "select id, state from transactions order by id"
    for option, name in (("--topic", "go-g06"), ("--since", "2000-01-01")):
        assert run(["sql", "-q", option, name, path, query, "--format", "csv"]) == 0
        rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
        assert rows[1:] == [["(0,0)", "committed"], ["(0,1)", "aborted"]]
