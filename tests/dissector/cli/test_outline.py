"""The numbers of a report as text: every section, nothing missing, nothing raw."""

from typing import Any

from dissector.cli.outline import outline
from dissector.cli.terminal import Paint
from dissector.report.summary import Summary
from tests.dissector.report import made

PLAIN = Paint("never")


def lines_of(**tables: list[dict[str, Any]]) -> list[str]:
    summary = Summary()
    for table, rows in tables.items():
        summary.add(table, made.batch(table, rows), "night")
    return list(outline(summary.result(), PLAIN))


def test_an_empty_report_says_what_there_is_not() -> None:
    lines = lines_of()
    titles = [line for line in lines if not line.startswith(" ")]
    assert titles == [
        "coverage",
        "send latency",
        "permit utilization",
        "redelivery",
        "checksum failures",
        "errors",
    ]
    for said in ("no publishes", "no consumers", "no deliveries", "0 of 0 frames", "none"):
        assert any(said in line for line in lines), said


def test_a_refused_send_shows_in_latency_and_errors() -> None:
    sends = [
        {
            "connection_id": 0, "kind": "publish", "request_command": "SEND", "topic": "t\x1b[2J",
            "request_frame_no": number, "outcome": "error" if number == 3 else "ok",
            "producer_name": "p", "producer_id": 1, "incarnation": 0, "sequence_id": number,
            "message_count": 1, "attempt": 1, "request_last_ns": made.START_NS + number,
            "latency_ns": None if number == 3 else 1_500_000,
            "latency_bucket": None if number == 3 else made.bucket_of(1_500_000),
            "response_command": "SEND_ERROR" if number == 3 else "SEND_RECEIPT",
            "response_frame_no": 10 + number, "response_last_ns": made.START_NS + 2_000_000,
            "error_code": "ChecksumError" if number == 3 else None, "tainted": False,
            "client_ip": "10.0.0.1", "broker_ip": "10.0.0.2", "ts": made.START_NS // 1000,
        }
        for number in (1, 2, 3)
    ]  # fmt: skip
    text = "\n".join(lines_of(exchanges=sends))
    assert "3 sends of 3 messages: ok 2, error 1" in text
    assert "ms over 2 answered: p50 1.500" in text
    assert r"t\x1b[2J: 3 sends" in text and "\x1b" not in text
    assert "1 answer with an error in 1 incident" in text
    assert "ChecksumError: 1 answer to SEND 1" in text
