"""Rules about consumers that get nothing, on captures made for them and on harmless twins."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.findings.finding import Finding, findings_of
from dissector.findings.loading import load_rules
from dissector.lake.reader import open_lake
from dissector.queries.sandbox import sandbox_over
from tests.dissector.findings.stuck_captures import START_NS, Scene

MADE = {"D05"}  # rules whose firing captures are made here
RULES = {rule.number: rule for rule in load_rules()[0]}

Found = Callable[[Scene, str], list[Finding]]


@pytest.fixture
def found(tmp_path: Path) -> Found:
    def findings(scene: Scene, number: str) -> list[Finding]:
        number_of = len(list(tmp_path.iterdir()))
        capture, lake = tmp_path / f"made{number_of}.pcap", tmp_path / f"lake{number_of}"
        capture.write_bytes(scene.pcap())
        assert run(["land", "-q", "--lake", str(lake), str(capture)]) == 0
        with open_lake(lake) as opened, sandbox_over(opened) as engine:
            answer, problems = findings_of(engine, [RULES[number]])
        assert not problems
        assert all(each.packet for one in answer for each in one.evidence)
        return answer

    return findings


def seconds(ns: int) -> float:
    """Since the begin of a scene."""
    return (ns - START_NS) / 1e9


def stopping(kind: str = "Shared", is_acked: bool = True, **fields: object) -> Scene:
    """Ten entries come and are acknowledged; the eleventh is stored and never sent."""
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(kind=kind, **fields)
    for _ in range(10):
        entry = consumer.message(producer.send())
        if is_acked:
            consumer.ack(entry)
        scene.wait(0.05)
    producer.send()
    for _ in range(4):
        scene.wait(3)
        consumer.line.ping()
    return scene


# -- D05


def test_a_broker_that_stops_is_found_without_a_cause(found):
    scene = stopping()
    (one,) = found(scene, "D05")
    assert (one.severity, one.verdict) == ("error", "proven")
    assert one.title == RULES["D05"].words[""].title
    # It waits from the receipt on; the last that the broker says is a PONG after 4 * 3 s.
    assert one.measured["lasted_s"] == pytest.approx(12, abs=0.05)
    assert one.measured["entry"] == "7:10" and one.measured["available"] == 990
    assert one.measured["left_unacked"] == 0
    assert len(one.ruled_out) == 4
    assert seconds(one.last_ns) == pytest.approx(scene.now, abs=0.01)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Key_Shared"])
def test_a_broker_that_stops_is_found_for_every_type(found, kind):
    (one,) = found(stopping(kind), "D05")
    assert one.severity == "error"


def test_an_idle_topic_is_no_stop(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    for _ in range(4):
        scene.wait(3)
        consumer.line.ping()
    assert found(scene, "D05") == []


def test_what_another_consumer_of_the_subscription_gets_is_no_stop(found):
    scene = Scene()
    producer, first, second = scene.producer(), scene.consumer(), scene.consumer(name="other")
    first.ack(first.message(producer.send()))
    for _ in range(8):
        scene.wait(2)
        second.ack(second.message(producer.send()))
        first.line.ping()
    assert found(scene, "D05") == []


def test_a_send_that_was_never_confirmed_is_no_stop(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send(is_stored=False)
    for _ in range(4):
        scene.wait(3)
        consumer.line.ping()
    assert found(scene, "D05") == []


def test_without_permits_it_is_the_client_that_waits(found):
    assert found(stopping(permits=10), "D05") == []


def test_a_connection_on_which_the_broker_says_nothing_is_no_proof(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send()
    scene.wait(20)
    producer.line.ping()
    assert found(scene, "D05") == []


def test_what_is_unacknowledged_explains_a_stop(found):
    (one,) = found(stopping(is_acked=False), "D05")
    assert one.severity == "info" and one.measured["left_unacked"] == 10
    (one,) = found(stopping("Key_Shared", is_acked=False), "D05")
    assert one.severity == "info" and "Key_Shared" in one.text
    (one,) = found(stopping("Exclusive", is_acked=False), "D05")
    assert one.severity == "error"  # brokers have no such limit for it


def test_an_inactive_consumer_waits_by_design(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(kind="Failover")
    consumer.active(True)
    consumer.ack(consumer.message(producer.send()))
    consumer.active(False)
    producer.send()
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = found(scene, "D05")
    assert one.severity == "info" and "not the active one" in one.text


def test_an_entry_with_a_time_of_its_own_waits_for_it(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send(deliver_at_time=START_NS // 1_000_000 + 3_600_000)
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = found(scene, "D05")
    assert one.severity == "info" and one.title == RULES["D05"].words["delayed"].title


def test_an_open_transaction_holds_back_what_is_behind_it(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send(txnid_most_bits=0, txnid_least_bits=3)
    producer.send()
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = found(scene, "D05")
    assert one.severity == "info" and one.title == RULES["D05"].words["transaction"].title


def test_a_rhythm_is_a_rate(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    for _ in range(30):
        consumer.ack(consumer.message(producer.send()))
    waiting = [producer.send() for _ in range(16)]
    for place in range(0, 16, 4):
        scene.wait(6)
        consumer.ack(*(consumer.message(each) for each in waiting[place : place + 4]))
    (one,) = found(scene, "D05")
    assert one.severity == "info" and one.measured["waits_alike"] == 4


def test_a_broker_that_does_not_read_is_named(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send()
    scene.wait(1)
    consumer.line.say(True, "PING")
    scene.wait(9)
    consumer.line.say(False, "PONG")
    (one,) = found(scene, "D05")
    assert one.severity == "info" and one.measured["paused_requests"] == 1


def test_a_chunk_without_its_beginning_is_named(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    chunk = {"uuid": "m-1", "num_chunks_from_msg": 2, "total_chunk_msg_size": 28}
    consumer.ack(consumer.message(producer.send(chunk_id=0, **chunk)))
    producer.send(chunk_id=1, **chunk)
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = found(scene, "D05")
    assert one.severity == "error" and one.title == RULES["D05"].words["orphan_chunk"].title
    assert one.measured["chunk_id"] == 1


def test_holes_mean_that_others_may_have_got_it(found):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    for _ in range(5):
        producer.send()  # goes to somebody else
        consumer.ack(consumer.message(producer.send()))
    producer.send()
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = found(scene, "D05")
    assert one.severity == "info" and one.measured["holes"] == 5
