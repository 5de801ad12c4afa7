"""Run random clients against a broker and record what is on the wire and what each client saw.

    python captures/make/random_clients.py 7 6 captures/pulsar-random --mix unloads

Seed, seconds and folder: `unloads-7.pcap.gz`, `unloads-7.events.jsonl.gz` and an entry of
manifest.json. It needs pulsar-client, tcpdump and the right to capture on the loopback interface,
tshark (its counts of frames are those of the manifest), and a broker there which nobody else uses:
Apache's standalone with `loadBalancerEnabled=false`, `systemTopicEnabled=false`,
`topicLevelPoliciesEnabled=false` (else it has connections to itself),
`acknowledgmentAtBatchIndexLevelEnabled=true` and `maxMessageSize=20480` (for small chunks).

Of a seed and a mix what clients do is the same in each run, step by step; when they do it is not:
each client is a process of its own. The keys of events are those of captures/README.md.
"""

import argparse
import contextlib
import os
import random
import time
from datetime import timedelta
from multiprocessing import Event, Process
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
from pulsar import CompressionType, ConsumerType, InitialPosition
from record import Place, mid, now, recorded

EXCLUSIVE, SHARED = ConsumerType.Exclusive, ConsumerType.Shared
FAILOVER, KEY_SHARED = ConsumerType.Failover, ConsumerType.KeyShared
ORDERED = (EXCLUSIVE, FAILOVER)
STYLES = ("each", "each", "some", "none", "nack", "mixed", "cumulative")


class Mix(NamedTuple):
    """What is likely in a run. Shares are of topics, producers or messages; `close`, `redeliver`
    and `seek` are chances per message received, `unload` and `kill` per step of half a second."""

    types: tuple[ConsumerType, ...] = (EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED)
    styles: tuple[str, ...] = STYLES
    topics: int = 1
    partitioned: float = 0.25
    batched: float = 0.6
    chunked: float = 0.1
    delayed: float = 0.1
    close: float = 0.005
    redeliver: float = 0.003
    seek: float = 0.002
    unload: float = 0.1
    kill: float = 0.05
    index_acks: float = 0.5
    queues: tuple[int, ...] = (1, 2, 10, 100, 1000)
    slow_s: tuple[float, ...] = (0, 0, 0.001, 0.02)
    sends: int = 120


MIXES = {
    "any": Mix(),
    "closes": Mix(types=(SHARED, KEY_SHARED), styles=("each", "some"), close=0.03, unload=0,
                  kill=0),
    "redeliver": Mix(types=(SHARED,), redeliver=0.02, unload=0, kill=0),
    "unloads": Mix(types=(SHARED, FAILOVER, KEY_SHARED), topics=2, unload=0.4, kill=0),
    "late_acks": Mix(types=(SHARED, FAILOVER), styles=("each",), batched=0.2, unload=0.9, kill=0,
                     delayed=0, queues=(1, 2), slow_s=(0.03,), sends=250),
    "seeks": Mix(types=(EXCLUSIVE,), seek=0.01, unload=0, kill=0, delayed=0.2),
    "batches": Mix(types=(SHARED, EXCLUSIVE), styles=("some", "mixed", "nack"), batched=1, kill=0,
                   index_acks=0.7, unload=0),
    "cumulative": Mix(types=ORDERED, styles=("cumulative",), partitioned=0.5),
    "chunks": Mix(batched=0, chunked=1, partitioned=0, sends=25, delayed=0.2),
    "kills": Mix(types=(SHARED, FAILOVER, KEY_SHARED), kill=0.3, unload=0.1),
    "partitions": Mix(partitioned=1, close=0.01),
}  # fmt: skip


class Producing:
    """One producer, and what it sends."""

    def __init__(self, place: Place, seed: str, mix: Mix, topic: str) -> None:
        self.place, self.mix, self.topic = place, mix, topic
        self.chance = chance = random.Random(seed)
        self.client = place.client()
        is_batched = chance.random() < mix.batched
        self.is_chunked = not is_batched and chance.random() < mix.chunked
        self.settings = {
            "producer_name": seed.replace(" ", "-"),
            "batching_enabled": is_batched,
            "batching_max_messages": chance.choice([3, 10, 100]),
            "batching_max_publish_delay_ms": chance.choice([1, 20, 100]),
            "chunking_enabled": self.is_chunked,
            "block_if_queue_full": True,
        }
        kind = getattr(CompressionType, chance.choice(["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"]))
        self.settings["compression_type"] = CompressionType.NONE if self.is_chunked else kind
        self.open()
        self.seq = 0
        self.has_seq = chance.random() < 0.5

    def open(self) -> None:
        self.producer = self.client.create_producer(self.topic, **self.settings)
        self.name = self.producer.producer_name()
        told = {key: str(value) for key, value in self.settings.items()}
        self.place.log("open_producer", pid=os.getpid(), topic=self.topic, producer=self.name,
                       settings=told)  # fmt: skip

    def send(self) -> None:
        """One message; its event is written when its receipt has come."""
        chance, seq = self.chance, self.seq
        size = chance.choice([100, 3000, 30_000, 50_000] if self.is_chunked else [1, 20, 60, 300])
        more: dict[str, Any] = {"sequence_id": seq} if self.has_seq else {}
        if chance.random() < 0.5:
            more["partition_key"] = f"k{chance.randrange(5)}"
        if chance.random() < self.mix.delayed:
            more["deliver_after"] = timedelta(milliseconds=chance.randrange(50, 800))
        told = {"topic": self.topic, "producer": self.name, "len": size, "t0": now()}
        told |= {"seq": seq} if self.has_seq else {}

        def back(result: Any, one: Any) -> None:
            lat = round(now() - told["t0"], 3)
            end = {"mid": mid(one)} if result == pulsar.Result.Ok else {"err": str(result)}
            self.place.log("send", **told, **end, lat_ms=lat)

        text = f"{self.topic[-2:]} {seq} ".encode()
        self.producer.send_async((text * (size // len(text) + 1))[:size], back, **more)
        self.seq += 1

    def run(self, stop: Any) -> None:
        chance = self.chance
        while not stop.is_set() and self.seq < self.mix.sends:
            for _ in range(chance.choice([1, 1, 3, 12])):
                self.send()
            time.sleep(chance.choice([0.02, 0.05, 0.1, 0.3]))
            if chance.random() < 0.03:
                self.producer.flush()
                self.place.log("close_producer", producer=self.name)
                self.producer.close()
                self.open()
        try:
            self.producer.flush()
        except pulsar.PulsarException as error:
            self.place.log("error", what="flush", err=str(error), producer=self.name)
        if chance.random() < 0.7:
            self.producer.close()
        self.client.close()


class Consuming:
    """One consumer of a subscription, and how it acknowledges."""

    def __init__(self, place: Place, seed: str, mix: Mix, topic: str, kind: ConsumerType) -> None:
        self.place, self.mix, self.kind, self.topic = place, mix, kind, topic
        self.chance = chance = random.Random(seed)
        self.client = place.client()
        styles = [each for each in mix.styles if kind in ORDERED or each != "cumulative"]
        self.style = chance.choice(styles or ["each"])
        self.subscription, name = seed.split()[1:]
        self.of = {"topic": topic, "sub": self.subscription, "consumer": name}
        self.settings = {
            "consumer_type": kind,
            "consumer_name": name,
            "receiver_queue_size": chance.choice(mix.queues),
            "batch_index_ack_enabled": chance.random() < mix.index_acks,
            "negative_ack_redelivery_delay_ms": chance.choice([100, 500]),
            "initial_position": chance.choice([InitialPosition.Earliest, InitialPosition.Latest]),
        }

    def log(self, ev: str, **more: Any) -> None:
        self.place.log(ev, **self.of, **more)

    def open(self) -> None:
        self.consumer = self.client.subscribe(self.topic, self.subscription, **self.settings)
        told = {key: str(value) for key, value in self.settings.items()}
        self.log("open_consumer", pid=os.getpid(), style=self.style, settings=told)

    def reopen(self) -> None:
        """Close what there is, and subscribe again."""
        self.log("close_consumer")
        with contextlib.suppress(pulsar.PulsarException):
            self.consumer.close()
        time.sleep(self.chance.random() * 0.3)
        with contextlib.suppress(pulsar.PulsarException):
            self.open()

    def take(self) -> None:
        """Wait for a message; acknowledge it, or not."""
        chance = self.chance
        try:
            message = self.consumer.receive(timeout_millis=200)
        except pulsar.Timeout:
            return
        one, count = message.message_id(), message.redelivery_count()
        more = {"mid": mid(one), "redelivery_count": count, "len": len(message.data())}
        self.log("recv", **more, producer=message.producer_name())
        style = self.style if self.style != "mixed" else chance.choice(["each", "some", "nack"])
        is_acked = {
            "each": True, "some": chance.random() < 0.6, "nack": chance.random() < 0.6 or count > 2,
        }.get(style, False)  # fmt: skip
        if is_acked:
            self.log("ack", mid=mid(one))
            self.consumer.acknowledge(message)
        elif style == "nack":
            self.log("nack", mid=mid(one))
            self.consumer.negative_acknowledge(message)
        elif style == "cumulative" and chance.random() < 0.1:
            self.log("cumack", mid=mid(one))
            self.consumer.acknowledge_cumulative(message)

    def act(self) -> None:
        """Sometimes close and open again, ask for everything again, or seek."""
        step, mix = self.chance.random(), self.mix
        if step < mix.close:
            self.reopen()
        elif step < mix.close + mix.redeliver:
            self.log("redeliver_all")
            self.consumer.redeliver_unacknowledged_messages()
        elif step < mix.close + mix.redeliver + mix.seek and self.kind == EXCLUSIVE:
            self.log("seek", mid="earliest")
            self.consumer.seek(pulsar.MessageId.earliest)

    def run(self, stop: Any) -> None:
        slow_s = self.chance.choice(self.mix.slow_s)
        self.open()
        while not stop.is_set():
            try:
                self.take()
                self.act()
            except pulsar.PulsarException as error:
                self.log("error", what="consume", err=str(error))
                time.sleep(0.2)
                self.reopen()
            time.sleep(slow_s)
        self.log("close_consumer")
        if self.chance.random() < 0.6:
            with contextlib.suppress(pulsar.PulsarException):
                self.consumer.close()
        self.client.close()


def act(client: type, place: Place, stop: Any, *more: Any) -> None:
    """A process: one client until `stop` is set."""
    client(place, *more).run(stop)


def drive(place: Place, name: str, mix: Mix, seconds: float) -> None:
    """Start the clients of a run, unload topics and kill processes, and wait for all to end."""
    chance = random.Random(name)
    stop = Event()
    topics = [f"persistent://public/default/{name}-t{n}" for n in range(mix.topics)]
    started: list[tuple[Any, ...]] = []
    for topic in topics:
        if chance.random() < mix.partitioned:
            place.ask(topic, "partitions", b"3")
        for n in range(chance.choice([1, 1, 2])):
            started.append((Producing, f"{topic[-2:]} {name} p{n}", mix, topic))
        for n in range(chance.choice([1, 2])):
            kind = chance.choice(mix.types)
            for c in range(1 if kind == EXCLUSIVE else chance.choice([1, 2, 3])):
                seed = f"{name} s{n} {topic[-2:]}s{n}c{c}"
                started.append((Consuming, seed, mix, topic, kind))
    chance.shuffle(started)
    clients = [Process(target=act, args=(one, place, stop, *more)) for one, *more in started]
    for client in clients:
        client.start()
        time.sleep(chance.random() * 0.2)
    end = time.time() + seconds
    while time.time() < end:
        time.sleep(0.5)
        if chance.random() < mix.unload:
            topic = chance.choice(topics)
            place.log("unload", topic=topic)
            place.ask(topic, "unload")
        victim = chance.choice(clients)
        if chance.random() < mix.kill and victim.is_alive():
            place.log("SIGKILL", pid=victim.pid)
            victim.kill()
    stop.set()
    for client in clients:
        client.join(15)
        if client.is_alive():
            place.log("SIGKILL", pid=client.pid)
            client.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mix", choices=MIXES, default="any")
    parser.add_argument("--broker", default="127.0.0.1:6650")
    parser.add_argument("--admin", default="127.0.0.1:8080")
    asked = parser.parse_args()
    name = f"{asked.mix}-{asked.seed}"
    with recorded(asked.folder, name, int(asked.broker.rpartition(":")[2])) as events:
        place = Place(asked.broker, asked.admin, events)
        drive(place, name, MIXES[asked.mix], asked.seconds)


if __name__ == "__main__":
    main()
