"""Rules about subscriptions that get nothing, on captures made for them and on harmless twins."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dissector.findings.finding import Finding
from tests.dissector.findings.stuck_captures import RULES, START_NS, Scene, judged

# Rules that captures made here alone fire.
MADE = {"D05", "D07"}

Judge = Callable[[Scene, str], list[Finding]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return partial(judged, tmp_path)


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


def test_a_broker_that_stops_is_found_without_a_cause(judge):
    scene = stopping()
    (one,) = judge(scene, "D05")
    assert (one.severity, one.verdict) == ("error", "proven")
    assert one.title == RULES["D05"].words[""].title
    # It waits from the receipt on; the last that the broker says is a PONG after 4 * 3 s.
    assert one.measured["lasted_s"] == pytest.approx(12, abs=0.05)
    assert one.measured["entry"] == "7:10" and one.measured["available"] == 990
    assert one.measured["left_unacked"] == 0
    assert len(one.ruled_out) == 4
    assert seconds(one.last_ns) == pytest.approx(scene.now, abs=0.01)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Key_Shared"])
def test_a_broker_that_stops_is_found_for_every_type(judge, kind):
    (one,) = judge(stopping(kind), "D05")
    assert one.severity == "error"


def test_an_idle_topic_is_no_stop(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    for _ in range(4):
        scene.wait(3)
        consumer.line.ping()
    assert judge(scene, "D05") == []


def test_what_another_consumer_of_the_subscription_gets_is_no_stop(judge):
    scene = Scene()
    producer, first, second = scene.producer(), scene.consumer(), scene.consumer(name="other")
    first.ack(first.message(producer.send()))
    for _ in range(8):
        scene.wait(2)
        second.ack(second.message(producer.send()))
        first.line.ping()
    assert judge(scene, "D05") == []


def test_a_send_that_was_never_confirmed_is_no_stop(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send(is_stored=False)
    for _ in range(4):
        scene.wait(3)
        consumer.line.ping()
    assert judge(scene, "D05") == []


def test_without_permits_it_is_the_client_that_waits(judge):
    assert judge(stopping(permits=10), "D05") == []


def test_a_connection_on_which_the_broker_says_nothing_is_no_proof(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send()
    scene.wait(20)
    producer.line.ping()
    assert judge(scene, "D05") == []


def test_what_is_unacknowledged_explains_a_stop(judge):
    (one,) = judge(stopping(is_acked=False), "D05")
    assert one.severity == "info" and one.measured["left_unacked"] == 10
    (one,) = judge(stopping("Key_Shared", is_acked=False), "D05")
    assert one.severity == "info" and "Key_Shared" in one.text
    (one,) = judge(stopping("Exclusive", is_acked=False), "D05")
    assert one.severity == "error"  # brokers have no such limit for it


def test_a_key_that_one_message_holds_explains_a_stop(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(kind="Key_Shared")
    for number in range(10):
        entry = consumer.message(producer.send(key="k"))
        if number != 3:
            consumer.ack(entry)
    producer.send(key="k")
    for _ in range(4):
        scene.wait(3)
        consumer.line.ping()
    (one,) = judge(scene, "D05")
    assert one.severity == "info" and one.measured["left_unacked"] == 1


def test_a_client_that_did_not_read_is_no_stop(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    entry = producer.send()
    scene.wait(20)
    consumer.message(entry)  # and nothing between
    consumer.line.ping()
    assert judge(scene, "D05") == []


def test_an_inactive_consumer_waits_by_design(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(kind="Failover")
    consumer.active(True)
    consumer.ack(consumer.message(producer.send()))
    consumer.active(False)
    producer.send()
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = judge(scene, "D05")
    assert one.severity == "info" and "not the active one" in one.text


def test_an_entry_with_a_time_of_its_own_waits_for_it(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send(deliver_at_time=START_NS // 1_000_000 + 3_600_000)
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = judge(scene, "D05")
    assert one.severity == "info" and one.title == RULES["D05"].words["delayed"].title


def test_an_open_transaction_holds_back_what_is_behind_it(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send(txnid_most_bits=0, txnid_least_bits=3)
    producer.send()
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = judge(scene, "D05")
    assert one.severity == "info" and one.title == RULES["D05"].words["transaction"].title


def test_a_rhythm_is_a_rate(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    for _ in range(30):
        consumer.ack(consumer.message(producer.send()))
    waiting = [producer.send() for _ in range(16)]
    for place in range(0, 16, 4):
        scene.wait(5.9)
        consumer.line.ping()
        scene.wait(0.1)
        consumer.ack(*(consumer.message(each) for each in waiting[place : place + 4]))
    (one,) = judge(scene, "D05")
    assert one.severity == "info" and one.measured["waits_alike"] == 4


def test_a_broker_that_does_not_read_is_named(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    consumer.ack(consumer.message(producer.send()))
    producer.send()
    scene.wait(1)
    consumer.line.tell(True, "PING")
    scene.wait(9)
    consumer.line.tell(False, "PONG")
    (one,) = judge(scene, "D05")
    assert one.severity == "info" and one.measured["paused_requests"] == 1


def test_a_chunk_without_its_beginning_is_named(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    chunk = {"uuid": "m-1", "num_chunks_from_msg": 2, "total_chunk_msg_size": 28}
    consumer.ack(consumer.message(producer.send(chunk_id=0, **chunk)))
    producer.send(chunk_id=1, **chunk)
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = judge(scene, "D05")
    assert one.severity == "error" and one.title == RULES["D05"].words["orphan_chunk"].title
    assert one.measured["chunk_id"] == 1


def test_holes_mean_that_others_may_have_got_it(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    for _ in range(5):
        producer.send()  # goes to somebody else
        consumer.ack(consumer.message(producer.send()))
    producer.send()
    for _ in range(3):
        scene.wait(3)
        consumer.line.ping()
    (one,) = judge(scene, "D05")
    assert one.severity == "info" and one.measured["holes"] == 5


# -- D06


def limited(limit: int, consumers: int, hold_s: float, **fields: object) -> tuple[Scene, list]:
    """A broker that stops at a number of unacknowledged messages of the whole subscription."""
    scene = Scene(**fields)
    producer = scene.producer()
    readers = [scene.consumer(name=f"reader-{number}") for number in range(consumers)]
    waiting = [producer.send() for _ in range(3 * limit)]
    return scene, [readers, waiting, producer]


def plateau(scene: Scene, readers: list, waiting: list, limit: int, hold_s: float) -> None:
    """Entries up to the limit, silence, and their acknowledgements."""
    held = []
    for number in range(limit):
        reader = readers[number % len(readers)]
        held.append((reader, reader.message(waiting.pop(0))))
    scene.wait(hold_s)
    for reader, entry in held:
        reader.ack(entry)


def test_a_limit_of_one_consumer_is_measured(judge):
    scene, (readers, waiting, _) = limited(12, 1, 0)
    plateau(scene, readers, waiting, 12, 3)
    plateau(scene, readers, waiting, 12, 2)
    readers[0].message(waiting.pop(0))
    (one,) = judge(scene, "D06")
    assert (one.severity, one.verdict, one.title) == (
        "error", "proven", RULES["D06"].words[""].title,
    )  # fmt: skip
    assert one.measured["unacked"] == 12 and one.measured["available"] == 1000 - 12
    assert one.measured["plateaus"] == 2
    assert one.measured["silence_measured_s"] == pytest.approx(3, abs=0.01)


def test_a_limit_of_a_whole_subscription_is_measured(judge):
    scene, (readers, waiting, _) = limited(12, 3, 0)
    plateau(scene, readers, waiting, 12, 3)
    readers[2].message(waiting.pop(0))
    (one,) = judge(scene, "D06")
    assert one.title == RULES["D06"].words["subscription"].title
    assert one.measured["unacked"] == 12 and one.measured["consumers"] == 3


def test_a_silence_without_a_backlog_is_no_limit(judge):
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer()
    for _ in range(3):
        held = [consumer.message(producer.send()) for _ in range(12)]
        scene.wait(3)
        consumer.ack(*held)
    assert judge(scene, "D06") == []


def trickling(
    limit: int, turns: int, consumers: int = 1, first_s: float = 0.2, resumes_at: float = 0.5
) -> Scene:
    """ACKs 0.2 s apart, the first after a time of its own; at a share of the limit more comes."""
    scene, (readers, waiting, _) = limited(limit, consumers, 0)
    held: list = []
    for _ in range(turns):
        while len(held) < limit:
            reader = readers[len(held) % consumers]
            held.append((reader, reader.message(waiting.pop(0))))
        scene.wait(first_s - 0.2)
        while len(held) > limit * (1 - resumes_at):
            scene.wait(0.2)
            reader, entry = held.pop(0)
            reader.ack(entry)
    readers[len(held) % consumers].message(waiting.pop(0))
    return scene


@pytest.mark.parametrize(
    ("turns", "consumers", "first_s", "variant", "verdict"),
    [
        (3, 1, 0.2, "halfway", "proven"),
        (3, 2, 0.2, "subscription_halfway", "proven"),
        (1, 1, 1.5, "halfway_once", "pattern"),
    ],
)
def test_a_limit_is_measured_by_the_acknowledgement_of_its_half(
    judge, turns, consumers, first_s, variant, verdict
):
    (one,) = judge(trickling(20, turns, consumers, first_s), "D06")
    assert one.title == RULES["D06"].words[variant].title
    assert (one.severity, one.verdict) == ("error", verdict)
    assert one.measured["unacked"] == 20 and one.measured["plateaus"] == turns
    # The tenth ACK, each of them 0.2 s behind the one before.
    assert one.measured["silence_measured_s"] == pytest.approx(first_s + 9 * 0.2, abs=0.05)
    assert one.measured["resume_measured_s"] == pytest.approx(0, abs=0.01)
    assert one.measured["owner_name"] == "reader-0"
    assert "ack of half" in {each.role for each in one.evidence}


@pytest.mark.parametrize(
    ("turns", "resumes_at"),
    [(1, 0.5), (3, 0.3), (3, 0.8)],
)
def test_slow_acknowledgements_alone_are_no_limit(judge, turns, resumes_at):
    """Once, soon after the silence began; or delivery goes on at another share each time."""
    assert judge(trickling(20, turns, resumes_at=resumes_at), "D06") == []


def test_acknowledgements_that_change_nothing_are_named(judge):
    scene, (readers, waiting, _) = limited(12, 1, 0, server_version="4.0.2")
    plateau(scene, readers, waiting, 12, 3)
    for _ in range(4):
        scene.wait(2)
        readers[0].line.ping()
    (one,) = judge(scene, "D06")
    assert one.title == RULES["D06"].words["blocked_flag_stuck"].title
    assert "4.0.2" in one.text and one.measured["unacked"] == 12
    assert [each.severity for each in judge(scene, "D05")] == ["info"]


def test_a_stop_that_no_acknowledgement_ends_is_named(judge):
    (one,) = judge(stopping(is_acked=False), "D06")
    assert one.title == RULES["D06"].words["still"].title and one.severity == "warning"
    assert one.measured["unacked"] == 10
    assert judge(stopping("Exclusive", is_acked=False), "D06") == []


# -- D07


def joining(keys: int, holds_s: float, gets_at_once: bool = False, releases: bool = True) -> Scene:
    """One consumer holds a message of each key; another joins, and more is sent."""
    scene = Scene(server_version="3.0.5")
    producer, first = scene.producer(), scene.consumer(kind="Key_Shared", name="owner")
    held = [first.message(producer.send(key=f"key-{number}")) for number in range(keys)]
    second = scene.consumer(kind="Key_Shared", name="newcomer")
    entry = producer.send(key="key-1")
    if gets_at_once:
        second.message(entry)
    for _ in range(4):
        scene.wait(holds_s / 4)
        second.line.ping()
    if releases:
        first.ack(*held)
        if not gets_at_once:
            second.message(entry)
    return scene


@pytest.mark.parametrize(("keys", "severity"), [(20, "warning"), (4, "info")])
def test_a_consumer_that_joins_waits_for_what_is_held(judge, keys, severity):
    (one,) = judge(joining(keys, 3), "D07")
    assert one.severity == severity and one.subject["consumer_name"] == "newcomer"
    assert one.measured["held"] == one.measured["keys_seen"] == keys
    assert one.measured["waited_s"] == pytest.approx(3, abs=0.05)
    assert one.measured["owner_name"] == "owner" and "3.0.5" in one.text


def test_a_consumer_that_joins_and_still_waits(judge):
    (one,) = judge(joining(20, 12, releases=False), "D07")
    assert one.title == RULES["D07"].words["still"].title


def test_a_consumer_that_joins_and_gets_its_keys(judge):
    assert judge(joining(20, 3, gets_at_once=True), "D07") == []
    assert judge(joining(20, 12, gets_at_once=True, releases=False), "D07") == []


# -- D08


@pytest.mark.parametrize("level", [0, 1])
def test_a_consumer_of_a_later_priority_waits(judge, level):
    scene = Scene()
    producer, first = scene.producer(), scene.consumer()
    scene.consumer(name="reserve", priority_level=level)
    for _ in range(12):
        first.ack(first.message(producer.send()))
        scene.wait(0.5)
    findings = judge(scene, "D08")
    assert len(findings) == level
    for one in findings:
        assert one.severity == "info" and one.subject["consumer_name"] == "reserve"
        assert one.measured["others_messages"] == 12 and one.measured["priority"] == 1


@pytest.mark.parametrize("is_acked", [False, True])
def test_a_consumer_that_holds_everything(judge, is_acked):
    scene = Scene()
    producer, first = scene.producer(), scene.consumer(permits=100)
    scene.consumer(name="idle", permits=5)
    for _ in range(20):
        entry = first.message(producer.send())
        if is_acked:
            first.ack(entry)
        scene.wait(0.2)
    findings = judge(scene, "D08")
    assert len(findings) == (not is_acked)
    for one in findings:
        assert one.title == RULES["D08"].words["prefetch_hoard"].title
        assert one.measured["held"] == 20


def test_a_consumer_that_became_active_later_waited_until_then(judge):
    scene = Scene()
    producer, first = scene.producer(), scene.consumer(kind="Failover")
    second = scene.consumer(name="next", kind="Failover")
    first.active(True)
    second.active(False)
    for _ in range(15):
        first.ack(first.message(producer.send()))
        scene.wait(0.2)
    first.close()
    second.active(True)
    (one,) = judge(scene, "D08")
    assert one.title == RULES["D08"].words[""].title
    assert one.subject["consumer_name"] == "next" and one.measured["others_messages"] == 15
    assert one.measured["waited_s"] == pytest.approx(14 * 0.204, abs=0.1)
