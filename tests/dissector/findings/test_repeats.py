"""What is said of deliveries that came again: the cause, and frames of that cause."""

from pathlib import Path

import pytest

from dissector.cli.main import run
from tests.dissector.findings.tape import TOPIC, Link, Tape

CAPTURES = Path(__file__).resolve().parents[3] / "captures"


def summary_of(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["summary", "-q", str(file)]) == 0
    return " ".join(capsys.readouterr().out.split())


def deliver(link: Link, at: float, entries: range, again: int = 0) -> None:
    for entry in entries:
        link.message(at + 0.01 * entry, 1, entry, again, publish_time=1)


def test_frames_are_those_of_the_cause_that_is_named(tmp_path, capsys):
    """Sixty entries are asked for again, then the broker closes, and all eighty come again."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    deliver(link, 1.0, range(80))
    ids = [{"ledgerId": 7, "entryId": entry} for entry in range(60)]
    link.tell(3.0, "REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=ids)
    deliver(link, 3.1, range(60), 1)
    link.hear(6.0, "CLOSE_CONSUMER", consumer_id=1, request_id=-1)
    link.subscribe(6.1, 1)
    deliver(link, 7.0, range(80))
    file = tmp_path / "made.pcap"
    file.write_bytes(tape.capture())
    text = summary_of(file, capsys)
    assert TOPIC in text and "140 of 220 deliveries were repeats: 80 after the broker gave" in text
    # 5 frames, 80 deliveries, the request, 60 more, the close, three to open: then the 151st.
    assert "See the broker's log for unloads" in text and "frame_no in (87, 151)" in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pulsar-apache/java-j74_corrupt.pcap", "the client closed its connection then"),
        ("pulsar/cpp-s14_reconnect.pcap", "See the broker's log: it closed the connection"),
    ],
)
def test_who_closed_a_connection_is_named(capsys, name, words):
    text = summary_of(CAPTURES / name, capsys)
    step = text.rpartition(" V10 What to do")[2].partition("frame_no")[0]
    assert words in step and "network" not in step
