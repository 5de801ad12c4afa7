"""What applications waited for their sends, against what they logged themselves.

A client measures from its call to its callback. The capture has the time that the client stamped,
in whole milliseconds, after the call; a batch is stamped when it is closed.
"""

import functools
import math
from pathlib import Path
from typing import Any

import pytest

from dissector.dissection import Options
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.dissector.findings.tape import Tape
from tests.dissector.observed import LOGGED, Case, name_of
from tests.numbers import Numbers
from tests.reports import summary

# The first send of a client pays for what its process loads behind the call and before the stamp.
BEFORE_THE_STAMP = 80.0


def log_of(case: Case) -> dict[str, list[float]]:
    """By topic the durations of sends that succeeded for the application, ms, in order of size."""
    log: dict[str, list[float]] = {}
    for event in case.events:
        if event["ev"] == "send" and event.get("lat_ms") is not None and not event.get("err"):
            log.setdefault(event["topic"], []).append(event["lat_ms"])
    return {topic: sorted(durations) for topic, durations in log.items()}


SENDING = [case for case in LOGGED if case.is_whole and log_of(case)]


@functools.cache
def reports() -> dict[str, dict[str, Any]]:
    numbers = Numbers()
    for case in SENDING:
        (chain,) = chains([str(case.path)], "auto").chains
        for block in dissect(chain, Options()):
            numbers.add_block(block, case.name)
    return numbers.results()


def median(values: list[float]) -> float:
    return values[max(0, math.ceil(len(values) / 2) - 1)]


def is_near(measured: float, logged: float) -> bool:
    return abs(measured - logged) <= max(10.0, 0.02 * logged)


@pytest.mark.parametrize("case", SENDING, ids=name_of)
def test_an_application_waited_what_its_log_says(case: Case) -> None:
    topics = {row["topic"]: row for row in reports()[case.name]["send_latency"]["by_topic"]}
    slack = 3 if case.name.startswith("mut-tsjitter") else 1
    compared = 0
    for topic, log in log_of(case).items():
        if topic not in topics:  # partitions, which the log does not tell apart
            continue
        compared += 1
        felt, since = topics[topic]["application_ms"], topics[topic]["application_since"]
        # Never more than the application itself measured: nothing is invented.
        assert felt["max"] <= log[-1] + slack and felt["p50"] <= median(log) * 1.02 + slack
        if "batch_closed" in since:
            continue  # at least
        assert since == {"publish_time": felt["count"]} and felt["count"] == len(log)
        assert is_near(felt["p50"], median(log))
        assert is_near(felt["max"], log[-1]) or log[-1] - felt["max"] < BEFORE_THE_STAMP
    assert compared or any("-partition-" in (topic or "") for topic in topics)


def set_back() -> Tape:
    """Two clients; behind thirty sends of the first its clock is set back by five seconds."""
    tape = Tape()
    for client, count in (("10.0.0.10", 40), ("10.0.0.11", 10)):
        link = tape.pulsar(0.0, 40000, client=client)
        link.produce(0.1, 1, name=client)
        for number in range(count):
            clock_s = -5.0 if number >= 30 else 0.0
            link.publish(1 + number * 0.1, 1, number, number, clock_s=clock_s, name=client)
    return tape


def test_a_clock_that_was_set_back_is_not_reckoned_with(tmp_path: Path) -> None:
    path = tmp_path / "set_back.pcap"
    path.write_bytes(set_back().capture())
    section = summary(path)["send_latency"]
    one, other = sorted(section["by_client"], key=lambda row: str(row["client_ip"]))
    assert one["application_ms"] is None and one["application_unknown"] == {"clock_set_back": 40}
    assert other["application_ms"]["count"] == 10 and other["application_unknown"] == {}
    assert other["application_ms"]["max"] < 20
    total = section["total"]
    assert total["application_ms"]["count"] == 10
    assert total["application_unknown"] == {"clock_set_back": 40}


def test_a_restart_of_the_broker_is_felt_although_the_wire_is_quick() -> None:
    total = reports()["java-j73_broker_restart-bem.pcap"]["send_latency"]["total"]
    (log,) = log_of(next(case for case in SENDING if case.name.startswith("java-j73"))).values()
    felt = total["application_ms"]
    assert total["latency_ms"]["max"] < 200 and felt["max"] > 9000
    assert is_near(felt["p50"], median(log)) and is_near(felt["max"], log[-1])
    assert sum(value > 1000 for value in log) == 75
    parts = total["application_parts_ms"]
    assert math.isclose(sum(parts.values()), felt["mean"], abs_tol=0.01)
    assert parts["client"] > 10 * parts["answer"]
