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
    assert lines[0] == "0 packets in 0 files"
    said = ("Nothing was published", "No consumer was seen", "Nothing was delivered",
            "No checksum could be evaluated", "No request was refused")  # fmt: skip
    for sentence in said:
        assert any(sentence in line for line in lines), sentence
    assert all(line.startswith(" ") or not line for line in lines[2:]), "no empty table"


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
    assert "3 messages in 3 sends" in text and "1 send without a receipt: 1 refused" in text
    assert "1.500  1.500  1.500  1.500      3         2  t\\x1b[2J" in text
    assert "\x1b" not in text
    assert "1 request refused, in 1 incident" in text
    assert "      1           0     13     SEND  ChecksumError: no text" in text


def test_long_lists_are_cut_and_numbers_stay_in_columns() -> None:
    rows = [made.publish(topic=f"topic-{number}", sequence_id=number) for number in range(9)]
    lines = lines_of(exchanges=rows)
    start = lines.index("send latency in ms, from the end of a SEND to the end of its receipt")
    table = lines[start + 1 : start + 9]
    assert table[0].split() == ["p50", "p90", "p99", "max", "sends", "answered", "topic"]
    assert table[-2].endswith("9         9  all topics") and "4 more" in table[-1]
    assert len({line.index(line.split()[-1]) for line in table[1:6]}) == 1


def test_what_the_capture_lacks_is_said() -> None:
    lines = lines_of(
        notices=[{"code": "gap_lost", "severity": "warning", "ts": made.START_NS // 1000}],
        frames=[{"connection_id": 0, "frame_no": 1, "status": "cut_by_gap", "last_packet": 1}],
    )
    assert lines[-3:] == [
        "what the capture lacks",
        "  frames that are not whole: 1 cut_by_gap",
        "  notices: 1 gap_lost",
    ]
