"""Captures of what public threads tell of the wire, each made small; the names are the threads'."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tests.dissector.findings.sending_captures import Line, ns
from tests.dissector.findings.stuck_captures import Consumer, Entry, Scene
from tests.hard.tape import capture, simple
from tests.wire import pulsar


class Made(NamedTuple):
    """A capture, and the packets in it that a test looks for, by name."""

    file: bytes
    packets: Mapping[str, int]


def topic(thread: str) -> str:
    """The topic of a thread's capture."""
    return f"persistent://public/default/{thread}"


def merged(*lines: Line) -> Made:
    """Connections in the order of time."""
    records = [record for line in lines for record in line.records()]
    return Made(capture(sorted(records, key=lambda record: record.ts_ns)), {})


def sent(
    line: Line, at: float, sequence: int, payload: bytes = b"hello", *, producer: int = 1,
    first: float | None = None, **metadata: Any,
) -> None:  # fmt: skip
    """A SEND whose publish time is its own, or that of its first attempt."""
    stamped = ns(at if first is None else first) // 1_000_000
    fields = pulsar.metadata(line.names[producer], sequence, stamped, **metadata)
    said = pulsar.command("SEND", producer_id=producer, sequence_id=sequence)
    line.up(at, pulsar.entry(said, fields, payload))


def pings(scene: Scene, consumers: Iterable[Consumer], turns: int, every_s: float = 3.0) -> None:
    """Time goes by, and the connections live."""
    for _ in range(turns):
        scene.wait(every_s)
        for each in consumers:
            each.line.ping()


# -- consumers that get nothing


def pulsar_100() -> Made:
    """Messages that nobody takes from the queue are asked for again until no permit is left."""
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=10)
    flow = len(scene.records)
    queue = [consumer.message(producer.send()) for _ in range(4)]
    for again in (1, 2):
        pings(scene, [consumer], 3)
        consumer.redeliver(*queue)
        for entry in queue if again == 1 else queue[:2]:
            consumer.message(entry, redelivery_count=again)
    last = len(scene.records)
    producer.send()
    pings(scene, [consumer], 5)
    return Made(scene.pcap(), {"last flow": flow, "last message": last})


def pulsar_6173() -> Made:
    """A reader that gives back one permit for each batch of ten."""
    scene = Scene()
    producer, reader = scene.producer(), scene.consumer(kind="Exclusive", permits=200)
    for _ in range(18):
        reader.ack(reader.message(producer.send(batch=10)))
        reader.flow(1)
        scene.wait(0.1)
    return Made(scene.pcap(), {})


def client_go_155() -> Made:
    """A consumer that is open subscribes again, and its queue is granted twice."""
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=1000)
    for _ in range(12):
        consumer.message(producer.send())
    consumer.subscribe()
    second = len(scene.records) - 1
    consumer.flow(1000)
    for _ in range(5):
        consumer.ack(consumer.message(producer.send()))
    return Made(scene.pcap(), {"second subscribe": second})


def pulsar_9788() -> Made:
    """The broker stops with 723 permits left; all that came was acknowledged."""
    scene = Scene()
    producer, consumer = scene.producer(), scene.consumer(permits=1000)
    for _ in range(277):
        consumer.ack(consumer.message(producer.send()))
    producer.send()
    waits = len(scene.records)
    for _ in range(30):
        producer.send()
    pings(scene, [consumer], 4)
    return Made(scene.pcap(), {"its receipt": waits})


def pulsar_759() -> Made:
    """Three consumers hold 30 messages, one of them the oldest; nothing comes until an ACK."""
    scene = Scene()
    producer = scene.producer()
    readers = [scene.consumer(name=f"reader-{number}") for number in range(3)]
    waiting = [producer.send() for _ in range(40)]
    held: list[tuple[Consumer, Entry]] = []
    oldest = len(scene.records) + 1
    for number in range(30):
        reader = readers[number % 3]
        held.append((reader, reader.message(waiting.pop(0))))
    pings(scene, readers, 2, 2.0)
    for reader, entry in held:
        reader.ack(entry)
    for reader in (readers[1], readers[2], readers[0]):
        reader.ack(reader.message(waiting.pop(0)))
    return Made(scene.pcap(), {"oldest unacked": oldest})


def pulsar_10167() -> Made:
    """A consumer of 50 keys acknowledges nothing; one that joins gets nothing."""
    scene = Scene("2.7.1")
    producer, first = scene.producer(), scene.consumer(kind="Key_Shared", name="first")
    oldest = 0
    for number in range(50):
        first.message(producer.send(key=f"key-{number}"))
        oldest = oldest or len(scene.records)
    second = scene.consumer(kind="Key_Shared", name="second")
    for number in range(50):
        producer.send(key=f"key-{number}")
    pings(scene, [first, second], 4)
    return Made(scene.pcap(), {"oldest held": oldest})


# -- sends


def pulsar_8321() -> Made:
    """Five sends wait for 48 s and are stored in a new ledger; another topic goes on."""
    line = Line()
    line.begin()
    line.produce(0.1, topic("thread-8321"), 1, "waits")
    line.produce(0.2, topic("thread-8321-other"), 2, "goes-on")
    for number in range(5):
        sent(line, 1 + number, number)
        line.receipt(1.01 + number, number, number, ledger=41)
    for number in range(5, 10):
        sent(line, 7 + number * 0.01, number)
    for number in range(40):
        sent(line, 8 + number, number, producer=2)
        line.receipt(8.01 + number, number, number, 2, ledger=12)
        if number == 20:
            line.ping(28.5, 28.501)
    for number in range(5, 10):
        line.receipt(55 + number * 0.01, number, number - 5, ledger=42)
    return merged(line)


def client_go_650() -> Made:
    """The client closes when receipts come that it does not expect, and sends all again."""
    first, second = Line(), Line(40_001)
    first.begin()
    first.produce(0.1, topic("thread-650"), 1, "loops")
    for number in range(6):
        sent(first, 1 + number * 0.001, number)
    first.receipt(1.02, 0, 0)
    for number in range(2, 6):
        first.receipt(1.02 + number * 0.001, number, number)
    first.finish(1.04)
    second.begin(1.2)
    second.produce(1.3, topic("thread-650"), 1, "loops")
    for number in range(1, 6):
        sent(second, 1.4 + number * 0.01, number, first=1 + number * 0.001)
        second.receipt(1.405 + number * 0.01, number, 10 + number)
    return merged(first, second)


def pulsar_5218() -> Made:
    """A send fails in storage, and is taken for a duplicate when it comes again."""
    first, second = Line(), Line(40_001)
    first.begin()
    first.produce(0.1, topic("thread-5218"), 1, "deduplicated")
    for number in range(5):
        sent(first, 1 + number * 0.1, number)
        first.receipt(1.01 + number * 0.1, number, number)
    sent(first, 2, 5)
    first.down(
        2.5,
        simple(
            "SEND_ERROR", producer_id=1, sequence_id=5, error="PersistenceError",
            message="Bookie handle is not available",
        ),
    )  # fmt: skip
    first.finish(2.51)
    second.begin(2.7)
    second.produce(2.8, topic("thread-5218"), 1, "deduplicated", last_sequence_id=4)
    sent(second, 3, 5, first=2)
    second.receipt(3.01, 5)
    for number in range(6, 10):
        sent(second, 3 + number * 0.1, number)
        second.receipt(3.01 + number * 0.1, number, number)
    return merged(first, second)


LIMIT = 20_000
PROPERTY_BYTES = 31_000


def pulsar_13560() -> Made:
    """A small payload with large properties: the broker closes each time."""
    lines = []
    for attempt in range(3):
        line, at = Line(40_000 + attempt), attempt * 5.0
        line.begin(at, LIMIT)
        line.produce(at + 0.1, topic("thread-13560"), 1, "large")
        fields = {"properties": [{"key": "k", "value": "v" * PROPERTY_BYTES}]}
        sent(line, at + 1, 0, bytes(100), first=1, **fields)
        line.finish(at + 1.01, by_client=False)
        lines.append(line)
    return merged(*lines)


# -- connections


def pulsar_13342() -> Made:
    """The client's old connection is dead and the broker does not know: the name stays taken."""
    old, new = Line(), Line(40_001)
    old.begin()
    old.produce(0.1, topic("thread-13342"), 1, "named")
    sent(old, 1, 0)
    old.receipt(1.01, 0, 0)
    old.ping(30, 30.001)
    new.begin(90)
    at, pause = 90.1, 0.1
    for request in range(1, 9):
        new.up(
            at,
            simple(
                "PRODUCER", topic=topic("thread-13342"), producer_id=1, request_id=request,
                producer_name="named",
            ),
        )  # fmt: skip
        new.down(
            at + 0.002,
            simple(
                "ERROR", request_id=request, error="ProducerBusy",
                message="Producer with name 'named' is already connected to topic",
            ),
        )  # fmt: skip
        at += pause
        pause *= 2
    new.ping(at + 1, at + 1.001)
    return merged(old, new)


def dotpulsar_269() -> Made:
    """Thirty messages, and a producer for each."""
    line = Line()
    line.begin()
    for number in range(30):
        at = 1 + number * 0.5
        line.produce(at, topic("thread-269"), number + 1, f"short-{number}")
        sent(line, at + 0.01, 0, producer=number + 1)
        line.receipt(at + 0.02, 0, number, number + 1)
        line.requests += 1
        line.up(
            at + 0.03, simple("CLOSE_PRODUCER", producer_id=number + 1, request_id=line.requests)
        )
        line.down(at + 0.035, simple("SUCCESS", request_id=line.requests))
    return merged(line)


def pulsar_755() -> Made:
    """Four messages are acknowledged just before the connection ends, and come again."""
    first, second = Line(), Line(40_001)
    first.begin()
    first.subscribe(0.1, topic("thread-755"), name="reader")
    for entry in range(6):
        first.message(1 + entry * 0.1, entry)
    first.ack(5, 0, 1)
    first.ack(9.9, 2, 3, 4, 5)
    first.reset(10)
    second.begin(10.5)
    second.subscribe(11, topic("thread-755"), name="reader")
    for entry in range(2, 6):
        second.message(11.1 + entry * 0.1, entry)
        second.ack(11.15 + entry * 0.1, entry)
    return merged(first, second)


MAKERS: dict[str, Callable[[], Made]] = {
    each.__name__: each
    for each in (
        pulsar_100, pulsar_6173, client_go_155, pulsar_9788, pulsar_759, pulsar_10167,
        pulsar_8321, client_go_650, pulsar_5218, pulsar_13560, pulsar_13342, dotpulsar_269,
        pulsar_755,
    )
}  # fmt: skip
