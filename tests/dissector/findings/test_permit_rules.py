"""Rules about what a consumer asks for, on captures made for them and on harmless twins."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dissector.findings.finding import Finding
from tests.dissector.findings.stuck_captures import RULES, Consumer, Scene, judged

# Rules that captures made here alone fire.
MADE = {"D02", "D03", "D09", "D10", "D11", "D35"}

Judge = Callable[[Scene, str], list[Finding]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return partial(judged, tmp_path)


# -- D01


def exhausted(lasted_s: float, refills: int = 2) -> tuple[Scene, Consumer]:
    """A consumer that uses up its permits while more waits, and says nothing but PING then."""
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=10)
    for _ in range(refills):
        for _ in range(5):
            consumer.ack(consumer.message(producer.send()))
        scene.wait(0.1)
        consumer.flow(5)
    for _ in range(10):
        consumer.message(producer.send())
    producer.send()
    for _ in range(round(lasted_s / 3)):
        scene.wait(3)
        consumer.line.ping()
    return scene, consumer


@pytest.mark.parametrize(
    ("lasted_s", "refills", "variant", "severity"),
    [(60, 2, "", "error"), (60, 0, "never_refilled", "error"), (6, 2, "at_end", "warning")],
)
def test_a_consumer_that_owes_permits(judge, lasted_s, refills, variant, severity):
    (one,) = judge(exhausted(lasted_s, refills)[0], "D01")
    assert one.title == RULES["D01"].words[variant].title and one.severity == severity
    assert one.measured["available"] == 0 and one.measured["unacked"] == 10
    assert one.measured["lasted_s"] == pytest.approx(lasted_s, abs=0.1)


def test_a_consumer_that_asks_again_for_messages_but_gives_no_permits(judge):
    scene, consumer = exhausted(12)
    consumer.redeliver(scene.stored[-2], scene.stored[-3])
    for _ in range(10):
        scene.wait(3)
        consumer.line.ping()
    (one,) = judge(scene, "D01")
    assert one.title == RULES["D01"].words["redelivery_without_flow"].title
    assert one.measured["redelivers"] == 1


def test_a_consumer_that_is_killed_while_it_works_is_no_error(judge):
    scene, consumer = exhausted(12)
    consumer.line.close()
    (one,) = judge(scene, "D01")
    assert one.severity == "info" and one.title == RULES["D01"].words["gone"].title


def test_a_consumer_that_goes_on_acknowledging_is_slow(judge):
    scene, consumer = exhausted(12)
    consumer.ack(scene.stored[-2])
    scene.wait(30)
    consumer.line.ping()
    (one,) = judge(scene, "D01")
    assert one.severity == "info" and one.title == RULES["D01"].words["slow"].title


def test_a_consumer_without_permits_on_an_idle_topic_owes_nothing(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=10)
    for _ in range(10):
        consumer.message(producer.send())
    for _ in range(20):
        scene.wait(3)
        consumer.line.ping()
    assert judge(scene, "D01") == []


# -- D02


@pytest.mark.parametrize("given_back", [1, 5])
def test_a_consumer_that_counts_entries(judge, given_back):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=100)
    for _ in range(20):
        consumer.ack(consumer.message(producer.send(batch=5)))
        consumer.flow(given_back)
    findings = judge(scene, "D02")
    assert len(findings) == (given_back == 1)
    for one in findings:
        assert one.title == RULES["D02"].words["counts_entries"].title
        assert (one.severity, one.verdict) == ("error", "proven")
        assert one.measured["messages"] == 100 and one.measured["entries"] == 20
        assert one.measured["given_back"] == 20


@pytest.mark.parametrize("returned", [1, 10])
def test_batches_that_were_discarded_cost_permits(judge, returned):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=100)
    for number in range(18):
        entry, flips = producer.send(batch=10), number in (6, 7, 8)
        consumer.message(entry, flips=flips)
        consumer.ack(entry, **({"validation_error": "ChecksumMismatch"} if flips else {}))
        consumer.flow(returned if flips else 10)
    findings = judge(scene, "D02")
    assert len(findings) == (returned == 1)
    for one in findings:
        assert one.title == RULES["D02"].words["lost_by_discard"].title
        assert one.measured["discarded"] == 3 and one.measured["owed"] == 27
        assert one.measured["lost_permits"] == 27


@pytest.mark.parametrize("skipped", [0, 4])
def test_permits_that_are_never_given_back(judge, skipped):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=100)
    for _ in range(12):
        for _ in range(10):
            consumer.ack(consumer.message(producer.send()))
        consumer.flow(10 - skipped)
    findings = judge(scene, "D02")
    assert len(findings) == (skipped == 4)
    assert all(one.severity == "warning" for one in findings)


def test_a_queue_that_fills_up_is_no_leak(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=100)
    for _ in range(12):
        got = [consumer.message(producer.send()) for _ in range(10)]
        consumer.flow(4)
        consumer.ack(*got[:4])
    assert judge(scene, "D02") == []


# -- D03


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_second_subscribe_of_an_open_consumer_grants_twice(judge, is_closed):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=100)
    for _ in range(3):
        consumer.message(producer.send())
    if is_closed:
        consumer.taken_away()
    consumer.subscribe()
    consumer.flow(100)
    for _ in range(3):
        consumer.ack(consumer.message(producer.send()))
    findings = judge(scene, "D03")
    assert len(findings) == (not is_closed)
    for one in findings:
        assert one.severity == "warning" and one.measured["most_available"] == 197
        assert one.measured["dropped"] == 3


def test_permits_of_messages_that_were_acknowledged_before(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=20)
    for _ in range(4):
        entry = producer.send(batch=10)
        # Three of the ten are left, the broker charges three, the client gives back ten.
        consumer.message(entry, ack_set=[7])
        consumer.ack(entry)
        consumer.flow(10)
    (one,) = judge(scene, "D03")
    assert one.title == RULES["D03"].words["ack_set_overgrant"].title
    assert one.measured["surplus"] == one.measured["acked_before"] == 28


def test_a_queue_that_grows_is_no_fault(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=10)
    for _ in range(4):
        consumer.flow(10)
        consumer.ack(consumer.message(producer.send()))
    (one,) = judge(scene, "D03")
    assert one.severity == "info"


# -- D09


@pytest.mark.parametrize("flows_again", [False, True])
@pytest.mark.parametrize("unused", [0, 1])
def test_a_consumer_that_waited_and_does_not_ask_again(judge, unused, flows_again):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=1)
    consumer.ack(consumer.message(producer.send()))
    if unused:
        consumer.flow(1)
    consumer.taken_away()
    consumer.subscribe()
    if flows_again:
        consumer.flow(1)
    for _ in range(5):
        scene.wait(3)
        consumer.line.ping()
    findings = judge(scene, "D09")
    assert len(findings) == (unused == 1 and not flows_again)
    for one in findings:
        assert one.severity == "error" and one.measured["unused"] == 1
        assert one.measured["silent_s"] == pytest.approx(15, abs=0.05)


# -- D10


@pytest.mark.parametrize("permits", [0, 1])
@pytest.mark.parametrize("by_broker", [False, True])
def test_a_flow_of_nothing_before_the_broker_closes(judge, permits, by_broker):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=1)
    consumer.ack(consumer.message(producer.send()))
    consumer.flow(permits)
    scene.wait(0.02)
    consumer.line.close(by_broker)
    findings = judge(scene, "D10")
    assert len(findings) == (permits == 0 and by_broker)
    assert all(one.measured["closed_after_s"] < 0.1 for one in findings)


# -- D11


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("permits", [1, 10])
def test_a_queue_of_none_and_a_batch(judge, batch, permits):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=permits)
    consumer.message(producer.send(batch=batch))
    consumer.close()
    findings = judge(scene, "D11")
    assert len(findings) == (batch == 5 and permits == 1)
    assert all(one.measured["batch_messages"] == 5 for one in findings)


# -- D35


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_redeliveries_of_a_single_consumer_are_not_counted(judge, kind):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(kind=kind)
    entries = [consumer.message(producer.send()) for _ in range(3)]
    for _ in range(2):
        scene.wait(1)
        consumer.redeliver(entries[0])
        for entry in entries:
            consumer.message(entry)
    findings = judge(scene, "D35")
    assert len(findings) == (kind == "Exclusive")
    for one in findings:
        assert one.measured["requests"] == 2 and one.measured["redelivered"] == 6
        assert one.measured["highest_count"] == 0
