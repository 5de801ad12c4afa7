"""Make large captures of plausible Cursus traffic, deterministic, for measuring speed.

    python captures/make/cursus_traffic.py cursus 300 cursus.pcap

A producer, a stream and a committing connection for each of four topics: batches with their
acknowledgements, the same records pushed to the stream, a commit for every few. Mixes: `cursus`
(batches of 100 records of 100 B), `cursus-single` (one record a batch). The bytes depend on the mix
and the size alone.
"""

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from captures.make.traffic import TOPICS, Connection, write_packets

MIXES = {"cursus": 100, "cursus-single": 1}  # records in a batch
RECORD_BYTES = 100
BATCHES_PER_COMMIT = 10
EPOCH = 1_700_000_000


def frame(body: bytes) -> bytes:
    """A body with its length in front."""
    return struct.pack(">I", len(body)) + body


def short(text: bytes) -> bytes:
    """A text with its length in two bytes."""
    return struct.pack(">H", len(text)) + text


def line(text: str) -> bytes:
    """A command in an empty envelope."""
    return frame(short(b"") + text.encode())


def batch(topic: int, first: int, count: int, is_stored: bool) -> bytes:
    """Records with sequence numbers from `first` on; stored ones have their offsets."""
    producer = short(b"bench-producer-%d" % topic)
    made = [struct.pack(">H", 0xBA7C), short(b"bench-%d" % topic)]
    made.append(struct.pack(">iB", 0, 1) + b"1" + b"\0")
    made.append(struct.pack(">QQi", first + 1, first + count, count))
    payload = (b'{"topic":%d,"text":"' % topic + b"the quick broker delivers " * 5)[:RECORD_BYTES]
    behind = struct.pack(">qI", EPOCH, RECORD_BYTES) + payload + bytes(16)
    for sequence in range(first, first + count):
        offset = sequence if is_stored else 0
        key = short(b"key-%d" % (sequence % 50))
        made.append(struct.pack(">QQ", offset, sequence + 1) + producer + key + behind)
    return frame(b"".join(made))


def acknowledgement(topic: int, first: int, count: int) -> bytes:
    """The answer to a batch."""
    return frame(
        b'{"status":"OK","last_offset":%d,"producer_epoch":%d,"producer_id":"bench-producer-%d",'
        b'"seq_start":%d,"seq_end":%d}'
        % (first + count - 1, EPOCH, topic, first + 1, first + count)
    )


def packets(count: int) -> Iterator[bytes]:
    """The packets of a capture without end; count: records in a batch."""
    found = [Connection(index, 9000) for index in range(3 * TOPICS)]
    for topic in range(TOPICS):
        producer, stream, commits = found[3 * topic : 3 * topic + 3]
        yield from producer.open()
        yield from producer.say(line(f"METADATA topic=bench-{topic}"))
        yield from producer.answer(frame(b"OK topic=bench partitions=1 leaders=h:9000 epochs=0"))
        yield from stream.open()
        where = f"topic=bench-{topic} partition=0 group=g"
        yield from stream.say(line(f"STREAM {where} offset=0 generation=1 member=m"))
        yield from commits.open()
    first = 0
    while True:
        for topic in range(TOPICS):
            producer, stream, commits = found[3 * topic : 3 * topic + 3]
            for number in range(BATCHES_PER_COMMIT):
                at = first + number * count
                producer.to_broker.write(batch(topic, at, count, False))
                producer.to_client.write(acknowledgement(topic, at, count))
                stream.to_client.write(batch(topic, at, count, True))
            yield from producer.to_broker.flush(producer.to_client.sequence)
            yield from producer.to_client.flush(producer.to_broker.sequence)
            yield from stream.to_client.flush(stream.to_broker.sequence)
            following = first + BATCHES_PER_COMMIT * count
            where = f"topic=bench-{topic} group=g member=m generation=1"
            yield from commits.say(line(f"BATCH_COMMIT {where} P0:{following}"))
            yield from commits.answer(frame(b"OK batched=1"))
        first += BATCHES_PER_COMMIT * count


def write_capture(path: Path, mix: str, size: int) -> int:
    """Write a capture of about `size` bytes; returns the packets in it."""
    return write_packets(path, packets(MIXES[mix]), size)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mix", choices=MIXES)
    parser.add_argument("megabytes", type=int)
    parser.add_argument("path", type=Path)
    chosen = parser.parse_args()
    print(write_capture(chosen.path, chosen.mix, chosen.megabytes * 1_000_000), "packets")


if __name__ == "__main__":
    main()
