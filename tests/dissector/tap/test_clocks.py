"""What a tap says of applications is what a report says, however large its windows are."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from dissector.limits import MAX_WINDOW_BYTES
from dissector.tap import clocks
from dissector.tap.view import times_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.findings.tape import Tape
from tests.dissector.tap.test_metrics import replayed, report_of, sums_of
from tests.dissector.test_application_times import set_back

APPLICATIONS = (
    "pulsar-apache/java-j24_unload.pcap",  # sent again
    "pulsar-apache/cpp-s30_latency_mix-wireloss.pcap.gz",
    "pulsar-apache/java-j03_batch_lz4.pcap",
    "pulsar/fake-f07_chunking64k.pcap",
    "pulsar-apache/cpp-s08_nack-proxy-any.pcap",
    "cursus/go-produce_singles_acks_1.pcap",  # no publish times
)
# Small windows and tiny ones, in turns; at night both.
SMALLER = (40_000, 5_000)
CUT = [
    (name, SMALLER if LOOKS_AT_ALL else SMALLER[number % 2 :][:1])
    for number, name in enumerate(APPLICATIONS)
]
NEAR_MS = 0.02  # a clock is known better behind the first window


@pytest.mark.parametrize(("name", "smaller"), CUT)
def test_applications_felt_live_what_the_report_says(name, smaller):
    rows = report_of(name)["send_latency"]["by_topic"]
    expected = {row["topic"]: row["application_ms"] for row in rows}
    for window_bytes in (MAX_WINDOW_BYTES, *smaller):
        sums = sums_of(name, window_bytes)[0].sums
        for topic, times in expected.items():
            found = times_of(sums, "application", topic)
            if window_bytes == MAX_WINDOW_BYTES:
                assert found == times
            assert found == {key: pytest.approx(each, abs=NEAR_MS) for key, each in times.items()}


def felt(tape: Tape, path: Path, window_bytes: int) -> dict:
    """What applications waited, ms, as a tap has it that looks at each second by itself."""
    path.write_bytes(tape.capture())
    sums = replayed(str(path), window_bytes=window_bytes)[0].sums
    (topic,) = {topic for topic, _ in sums.counts["sends"].values}
    return times_of(sums, "application", topic)


def test_what_waited_in_a_client_is_no_clock_that_is_behind(tmp_path):
    """Behind one that did not, a second of sends that all waited looks like another clock."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    for number in range(21):
        clock_s = -0.2 if number else 0.0
        link.publish(1 + number * 0.3, 1, number, number, clock_s=clock_s)
    whole, by_second = (felt(tape, tmp_path / "x.pcap", size) for size in (MAX_WINDOW_BYTES, 1))
    assert whole == by_second and by_second["count"] == 21 and 199 < by_second["p50"] < 215


def test_a_clock_that_was_set_back_is_left_out_as_far_as_it_is_known(tmp_path):
    whole = felt(set_back(), tmp_path / "x.pcap", MAX_WINDOW_BYTES)
    assert whole["count"] == 10 and whole["max"] < 20


def test_clients_beyond_the_bound_are_judged_by_each_window(tmp_path, monkeypatch):
    monkeypatch.setattr(clocks, "MAX_FOLLOWED_CLOCKS", 1)
    known = clocks.Clocks()
    rows = [{"client_ip": ip, "distance_ns": 5, "sends": 2, "is_set_back": 0} for ip in "aab"]
    known.take(SimpleNamespace(table=lambda _: SimpleNamespace(to_pylist=lambda: rows)))
    assert known.carried().column("client_ip").to_pylist() == ["a", "a"]
    known.forget()
    assert known.carried().num_rows == 0
