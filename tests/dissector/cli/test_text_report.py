"""The numbers of a report as text: every section, nothing missing, nothing raw."""

from typing import Any

from dissector.cli.terminal import Paint
from dissector.cli.text_report import STEPS, text_report
from tests.dissector.findings.judged import judged
from tests.dissector.report import made
from tests.numbers import Numbers

PLAIN = Paint("never")
FRAME: dict[str, Any] = {"connection_id": 0, "frame_no": 1, "status": "complete", "last_packet": 1}


def lines_of(**tables: list[dict[str, Any]]) -> list[str]:
    summary = Numbers()
    for table, rows in tables.items():
        summary.add(table, made.batch(table, rows), "night")
    return list(text_report(summary.result(), PLAIN))


def test_an_empty_report_says_what_there_is_not() -> None:
    lines = lines_of()
    assert lines[0] == "0 packets in 0 files"
    assert any("No packet was captured: there is nothing to judge." in line for line in lines)
    assert not any(line.startswith("  ok") for line in lines), "nothing was seen that could be ok"
    titles = [line for line in lines[2:] if line and not line.startswith(" ")]
    assert titles == [STEPS], "no empty table"
    lines = lines_of(frames=[FRAME])
    said = ("No send was seen", "No consumer was seen", "No delivery was seen",
            "No checksum could be evaluated", "Refusals cannot be evaluated")  # fmt: skip
    for sentence in said:
        assert any(sentence in line for line in lines), sentence


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
    text = "\n".join(lines_of(exchanges=sends, frames=[FRAME]))
    assert "3 sends with 3 messages, 2 of them confirmed as stored; half" in text
    assert "Not confirmed: 1 refused." in text
    assert "1.500  1.500  1.500  1.500      3         3        1  t\\x1b[2J" in text
    assert "\x1b" not in text
    assert "1 request was refused: ChecksumError." in text
    assert "      1           0     13     SEND  ChecksumError: no text" in text


def test_long_lists_are_cut_and_numbers_stay_in_columns() -> None:
    rows = [made.publish(topic=f"topic-{number}", sequence_id=number) for number in range(9)]
    lines = lines_of(exchanges=rows)
    start = lines.index("send latency in ms, from the end of a SEND to the end of its receipt")
    table = lines[start + 1 : start + 9]
    assert table[0].split() == ["p50", "p90", "p99", "max", "sends", "answered", "refused", "topic"]
    assert table[-2].endswith("9         9        0  all topics")
    assert table[-1] == "  … and 4 more (10 in all), see --json"
    assert len({line.index(line.split()[-1]) for line in table[1:6]}) == 1


def test_what_the_capture_lacks_is_said() -> None:
    lines = lines_of(
        notices=[{"code": "gap_lost", "severity": "warning", "ts": made.START_NS // 1000}],
        frames=[{"connection_id": 0, "frame_no": 1, "status": "cut_by_gap", "last_packet": 1}],
    )
    assert lines[-3:] == [
        "what the capture lacks",
        "  frames that are not whole: 1 (bytes in it were never captured)",
        "  gap_lost (1 notice): … bytes were never captured",
    ]


def test_lines_fit_the_terminal_and_nothing_is_lost_or_broken_apart() -> None:
    sends = [made.publish(topic=f"persistent://tenant/space/{'long-' * 9}{n}") for n in range(2)]
    summary = Numbers()
    summary.add("exchanges", made.batch("exchanges", sends), "night")
    summary.add("frames", made.batch("frames", [FRAME]), "night")
    report = summary.result()
    whole = list(text_report(report, PLAIN))
    for width in (40, 60, 80, 200):
        lines = list(text_report(report, PLAIN, width))
        commands = [line for line in lines if line.strip().startswith("dissector ")]
        # Columns of numbers are not broken, however narrow the terminal is.
        longest = max(len(line) for line in lines if line not in commands)
        assert longest <= max(width, 56), width
        assert set(commands) <= set(whole), "a command can be copied as it stands"
        assert "".join("".join(lines).split()) == "".join("".join(whole).split()), width
        words = {word for line in lines for word in line.split()}
        numbers = {word for line in whole for word in line.split() if word[0].isdigit()}
        assert numbers <= words, "numbers are whole"


def test_codes_and_words_of_one_thing_are_the_same_everywhere() -> None:
    row = {"connection_id": 0, "frame_no": 1, "is_redelivered": True, "message_count": 1,
           "redelivery_cause": "consumer_gone", "topic": "t", "subscription": "s",
           "ts": made.START_NS // 1000}  # fmt: skip
    text = "\n".join(lines_of(frames=[FRAME], deliveries=[row]))
    assert text.count("after their consumer went away") == 2
    assert "consumer_gone" not in text and "consumer gone" not in text


def test_the_same_next_step_is_told_once() -> None:
    summary = Numbers()
    summary.add("frames", made.batch("frames", [FRAME]), "night")
    report = summary.result()
    report["coverage"]["total"]["one_way_connections"] = {"to_broker": 1}
    report["coverage"]["total"] |= {"snaplen_cut_bytes": 9, "stream_bytes": 99, "decoded_share": 0}
    report["coverage"]["total"]["decoded_share_of_recognised"] = 0
    report["send_latency"]["total"] |= {"sends": 5, "outcomes": {"lost_in_gap": 5}}
    text = "\n".join(text_report(judged(report), PLAIN))
    assert text.count("look  ") >= 2 and text.count("Capture whole packets") == 1


def test_what_answers_said_that_nobody_could_read_is_no_zero() -> None:
    send = {
        "connection_id": 0, "kind": "publish", "request_command": "SEND", "topic": "t",
        "request_frame_no": 1, "producer_id": 1, "sequence_id": 1, "message_count": 1,
        "attempt": 1, "request_last_ns": made.START_NS, "outcome": "lost_in_gap",
        "ts": made.START_NS // 1000,
    }  # fmt: skip
    text = "\n".join(lines_of(exchanges=[send], frames=[FRAME]))
    assert "      1         -        -  t" in text
    text = "\n".join(lines_of(exchanges=[{**send, "outcome": "response_cut"}], frames=[FRAME]))
    assert "      1         1        -  t" in text
