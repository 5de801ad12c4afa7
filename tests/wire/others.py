"""Messages of protocols that are not decoded, as their public specifications have them.

Each talk is a port and messages in turn: to the server (True) or to its client, from the first one
of a connection on.
"""

import json
import random
import struct
from collections.abc import Iterator
from typing import NamedTuple


class Talk(NamedTuple):
    """port: of the server; said: (whether to the server, bytes)."""

    port: int
    said: tuple[tuple[bool, bytes], ...]


def prefixed(body: bytes) -> bytes:
    """A body behind its length, four bytes, big-endian."""
    return struct.pack(">I", len(body)) + body


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _request(key: int, version: int, number: int, body: bytes, client: str = "loader") -> bytes:
    return prefixed(struct.pack(">hhi", key, version, number) + _text(client) + body)


def _answer(number: int, body: bytes) -> bytes:
    return prefixed(struct.pack(">i", number) + body)


def kafka() -> Talk:
    """ApiVersions, metadata, produce and fetch."""
    batch = struct.pack(">qiib", 0, 56, 0, 2) + bytes(40) + b"\x0c\x00\x00\x00\x01\x0ahello\x00"
    said = [(True, _request(18, 3, 0, b"\x00\x12apache-kafka-java\x063.7.0\x00"))]
    said.append((False, _answer(0, b"\0\0\x3b" + bytes(range(60)))))
    for number in range(1, 8):
        topic = _text("orders") + struct.pack(">ii", 1, 0)
        produce = struct.pack(">hhii", -1, 1, 30_000, 1) + topic + prefixed(batch)
        said.append((True, _request(0, 8, 2 * number, produce)))
        said.append((False, _answer(2 * number, struct.pack(">i", 1) + topic + bytes(26))))
        said.append((True, _request(1, 11, 2 * number + 1, bytes(21) + topic + bytes(28))))
        said.append((False, _answer(2 * number + 1, bytes(18) + topic + prefixed(batch))))
    return Talk(9092, tuple(said))


def zookeeper() -> Talk:
    """A session: connect, reads of a node, pings."""
    password = prefixed(bytes(16))
    said = [
        (True, prefixed(struct.pack(">iqiq", 0, 0, 30_000, 0) + password + b"\0")),
        (False, prefixed(struct.pack(">iiq", 0, 30_000, 0x1000_0F3A) + password + b"\0")),
    ]
    for number in range(1, 8):
        path = b"/admin/clusters/standalone"
        said.append((True, prefixed(struct.pack(">ii", number, 4) + prefixed(path) + b"\0")))
        stat = struct.pack(">qqqqiiiqiiq", 5, 5, 1, 1, 0, 0, 0, 0, 2, 0, 5)
        header = struct.pack(">iqi", number, 0x1000 + number, 0)
        said.append((False, prefixed(header + prefixed(b"{}") + stat)))
        said.append((True, prefixed(struct.pack(">ii", -2, 11))))
        said.append((False, prefixed(struct.pack(">iqi", -2, 0x1000 + number, 0))))
    return Talk(2181, tuple(said))


def bookkeeper(is_binary: bool = False) -> Talk:
    """Entries that are added: protobuf, or the older binary form."""
    said = []
    for number in range(8):
        entry = struct.pack(">qqqq", 77, number, number - 1, 100) + bytes(range(40))
        if is_binary:
            added = struct.pack(">BBH", 2, 1, 0) + bytes(20) + entry
            answered = struct.pack(">BBHiqq", 2, 1, 0, 0, 77, number)
        else:
            header = b"\x08\x03\x10" + bytes([2 if number else 6]) + b"\x18" + bytes([number])
            head = b"\x0a" + bytes([len(header)]) + header
            added = head + b"\xa2\x06\x40" + entry
            answered = head + b"\x10\x00\xa2\x06\x06\x08\x00\x10\x4d\x18" + bytes([number])
        said += [(True, prefixed(added)), (False, prefixed(answered))]
    return Talk(3181, tuple(said))


def mqtt() -> Talk:
    """A client that connects, subscribes and publishes."""
    said = [
        (True, b"\x10\x12\x00\x04MQTT\x04\x02\x00\x3c\x00\x06sensor"),
        (False, b"\x20\x02\x00\x00"),
        (True, b"\x82\x0c\x00\x01\x00\x07topic/#\x01"),
        (False, b"\x90\x03\x00\x01\x01"),
    ]
    for number in range(8):
        said.append(
            (True, b"\x32\x1c\x00\x0etopic/sensor/1" + bytes([0, number + 2]) + b'{"t":21.4}')
        )
        said.append((False, b"\x40\x02" + bytes([0, number + 2])))
    return Talk(1883, (*said, (True, b"\xc0\x00"), (False, b"\xd0\x00")))


def amqp() -> Talk:
    """AMQP 0-9-1: the handshake, messages, heartbeats."""

    def frame(kind: int, channel: int, body: bytes) -> bytes:
        return struct.pack(">BHI", kind, channel, len(body)) + body + b"\xce"

    said = [
        (True, b"AMQP\0\0\x09\x01"),
        (False, frame(1, 0, struct.pack(">HHBB", 10, 10, 0, 9) + bytes(300))),
        (True, frame(1, 0, struct.pack(">HH", 10, 11) + bytes(100))),
    ]
    for number in range(8):
        body = b'{"order":%d}' % number
        publish = frame(1, 1, struct.pack(">HHH", 60, 40, 0) + b"\x00\x06orders\x00")
        header = frame(2, 1, struct.pack(">HHQH", 60, 0, len(body), 0))
        said.append((True, publish + header + frame(3, 1, body)))
        said.append((False, frame(1, 1, struct.pack(">HHQB", 60, 80, number + 1, 0))))
    return Talk(5672, (*said, (True, frame(8, 0, b"")), (False, frame(8, 0, b""))))


def _postgres() -> Talk:
    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack(">I", len(body) + 4) + body

    said = [
        (True, struct.pack(">II", 22, 196_608) + b"user\0shop\0\0\0\0"),
        (False, b"R\0\0\0\x08\0\0\0\0"),
    ]
    for text in (
        b"delete from orders where id = 7",
        b"create table t (a int)",
        b"LIST ",
        b"commit",
    ):
        said.append((True, message(b"Q", text + b"\0")))
        said.append((False, message(b"C", text[:6].upper() + b" 1\0") + message(b"Z", b"I")))
    return Talk(5432, tuple(said))


def _rocketmq() -> Talk:
    said = []
    for number in range(6):
        asked = {"code": 310, "flag": 0, "language": "JAVA", "opaque": number, "version": 433}
        answered = {"code": 0, "flag": 1, "language": "JAVA", "opaque": number, "remark": "ok"}
        for is_asked, head in ((True, asked), (False, answered)):
            text = json.dumps(head, separators=(",", ":")).encode()
            said.append((is_asked, prefixed(prefixed(text) + bytes(50))))
    return Talk(10911, tuple(said))


def _mysql() -> Talk:
    def packet(number: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "little") + bytes([number]) + body

    said = [(False, packet(0, b"\x0a8.0.36\0" + bytes(60)))]
    for text in (b"delete from orders where id=7", b"CREATE TABLE t(a int)", b"DESCRIBE t"):
        said += [(True, packet(0, b"\x03" + text)), (False, packet(1, b"\0\x01\0\x02\0\0\0"))]
    return Talk(3306, tuple(said))


def _exchanges(port: int, pairs: list[tuple[bytes, bytes]]) -> Talk:
    said = [each for asked, answered in pairs for each in ((True, asked), (False, answered))]
    return Talk(port, tuple(said))


def _modbus() -> Talk:
    head = [struct.pack(">HHHBB", number, 0, 6, 1, 3) for number in range(1, 8)]
    return _exchanges(502, [
        (each + b"\0\0\0\x0a", each[:4] + b"\0\x17\x01\x03\x14" + bytes(20)) for each in head
    ])  # fmt: skip


def _s7() -> Talk:
    asked = bytes.fromhex("0300002102f08032010000050000100000290000000000095f5f50524f4752414d")
    return _exchanges(102, [(asked, bytes.fromhex("0300001402f08032030000050000010000000029"))] * 6)


def _diameter() -> Talk:
    body = struct.pack(">IB3s", 264, 0x40, b"\0\0\x10") + b"peer.one" + bytes(40)
    return _exchanges(3868, [
        (struct.pack(">B3sB3sIII", 1, b"\0\0\x4c", flags, b"\0\x01\x18", 0, number, number) + body
         for flags in (0x80, 0)) for number in range(6)
    ])  # fmt: skip


def _dnp3() -> Talk:
    asked = bytes.fromhex("056408c40a0001005f53c0c0010c0128")
    return _exchanges(20000, [(asked, bytes.fromhex("05640a4401000a00b1f3c0c08100000028"))] * 6)


def _redis() -> Talk:
    asked = b"*3\r\n$3\r\nSET\r\n$4\r\nlist\r\n$9\r\n\0\0\0\x05LIST \r\n"
    return _exchanges(6379, [(asked, b"+OK\r\n"), (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n")] * 4)


def _dns() -> Talk:
    asked = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07brokers\x07example\0\0\x01\0\x01"
    answered = asked[:2] + b"\x81\x80\0\x01\0\x01\0\0\0\0" + asked[12:] + b"\xc0\x0c" + bytes(14)
    return _exchanges(53, [
        (struct.pack(">H", len(one)) + one, struct.pack(">H", len(two)) + two)
        for one, two in [(asked, answered)] * 4
    ])  # fmt: skip


def _ssh() -> Talk:
    chance = random.Random(22)
    sizes = [chance.randrange(12, 300) & ~7 for _ in range(8)]
    said = [(True, b"SSH-2.0-OpenSSH_9.6\r\n"), (False, b"SSH-2.0-OpenSSH_9.6\r\n")]
    return Talk(
        22,
        (
            *said,
            *((bool(size & 8), prefixed(b"\x06\x14" + chance.randbytes(size))) for size in sizes),
        ),
    )


NAMED = {
    "bookkeeper": bookkeeper(),
    "zookeeper": zookeeper(),
    "kafka": kafka(),
    "mqtt": mqtt(),
    "amqp": amqp(),
}
UNNAMED = {
    "postgres": _postgres(), "rocketmq": _rocketmq(), "mysql": _mysql(), "modbus": _modbus(),
    "s7": _s7(), "diameter": _diameter(), "dnp3": _dnp3(), "redis": _redis(), "dns": _dns(),
    "ssh": _ssh(),
}  # fmt: skip


def random_bodies(chance: random.Random) -> Iterator[bytes]:
    """Bodies as a made-up protocol may have them: numbers, texts, names, packed bytes, JSON."""
    words = [b"delete from orders where id = 7", b"LIST ", b"ERROR: none", b"OK", b"hello world"]
    head = chance.randbytes(chance.randrange(1, 6))
    kind = chance.randrange(5)
    while True:
        if kind == 0:
            yield chance.randbytes(chance.randrange(1, 300))
        elif kind == 1:
            yield head + chance.choice(words)
        elif kind == 2:
            yield _text("topic-name") + bytes(chance.randrange(3)) + chance.choice(words) + b"\0"
        elif kind == 3:
            yield b"\x1f\x8b\x08\0" + chance.randbytes(60)
        else:
            yield head + json.dumps({"status": chance.randrange(9), "id": 7}).encode()


def random_protocol(seed: int) -> Talk:
    """A made-up protocol of bodies behind lengths."""
    chance = random.Random(seed)
    width, order = chance.choice((2, 3, 4, 4, 4)), chance.choice(("big", "big", "little"))
    before = chance.randbytes(chance.choice((0, 0, 1, 2)))
    more = chance.choice((0, 0, width, width + len(before)))
    bodies = random_bodies(chance), random_bodies(chance)
    said = []
    for _ in range(12):
        to_server = chance.random() < 0.5
        body = next(bodies[to_server])
        length = (len(body) + more).to_bytes(width, order)  # type: ignore[arg-type]
        said.append((to_server, before + length + body))
    return Talk(chance.randrange(1024, 30_000), tuple(said))
