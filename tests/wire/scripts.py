"""Ranges of many connections, drawn by a seed, of which frames are not known at some places."""

import random

from tests.wire.ranges import WHOLE, Ranges
from tests.wire.toy import EITHER, PROVEN, TO_BROKER, TO_CLIENT, frame

CONNECTIONS = 4
TLS = b"\x17\3\3\0\x05hello"
PROXY = b"PROXY TCP4 10.0.0.1 10.0.0.2 40000 7000\r\n"
# What a connection that is no broker's may begin with, or one that is.
STARTS = (b"", b"GET / HTTP/1.1\r\n", TLS, 2 * TLS, 3 * TLS, PROXY, b"\x16\3\1", b"\r\n\r\n\0\r")


def lossy(seed: int, packets: int = 1500) -> Ranges:
    """Connections of which packets are lost, now and then cut, and whose payloads hold frames."""
    chance = random.Random(seed)
    script = Ranges()
    streams: dict[tuple[int, int], bytes] = {}
    for connection in range(CONNECTIONS):
        script.open(connection, from_syn=chance.random() < 0.7)
    for _ in range(packets):
        connection, side = chance.randrange(CONNECTIONS), chance.randrange(2)
        one_way = TO_BROKER if side == 0 else TO_CLIENT
        stream = streams.pop((connection, side), b"")
        while len(stream) < 200:
            inner = frame(EITHER) * chance.randrange(3)
            body = inner + chance.randbytes(chance.choice((0, 3, 20, 150)))
            stream += frame(chance.choice((one_way, PROVEN, EITHER)), body)
        size = chance.randrange(1, 200)
        fate = chance.random()
        if fate < 0.03:
            script.lose(size, side, connection)
        elif fate < 0.04:
            script.cut(size, side, connection)
        elif fate < 0.042:
            script.send(chance.randbytes(size), side, connection)
        else:
            script.send(stream[:size], side, connection)
        if chance.random() < 0.002:
            script.packet += 1_500_000  # a second and a half
        streams[connection, side] = stream[size:]
    for connection in range(CONNECTIONS):
        script.close(connection)
    return script


def opaque(seed: int) -> Ranges:
    """Connections from within: TLS records whose payloads begin like long frames, and frames."""
    chance = random.Random(seed)
    script = Ranges()
    for connection in range(CONNECTIONS):
        script.open(connection, from_syn=False)
    for number in range(300):
        connection, side = chance.randrange(CONNECTIONS), chance.randrange(2)
        script.offsets.setdefault((connection, side), 1_000)
        header = frame(EITHER, bytes(chance.choice((300, 3_000, 9_000))))[:6]
        payload = header + chance.randbytes(chance.choice((40, 150, 600)))
        record = b"\x17\3\3" + len(payload).to_bytes(2, "big") + payload
        is_tls = number > 100 and connection % 2 and chance.random() < 0.3
        flags = chance.choice((WHOLE, WHOLE, WHOLE, 0))
        script.send(record if is_tls else payload, side, connection, flags=flags)
    for connection in range(CONNECTIONS):
        script.close(connection)
    return script


def from_within(seed: int, connections: int = 12, packets: int = 400) -> Ranges:
    """Connections that began before: frames and parts of them, other protocols, gaps, ends."""
    chance = random.Random(seed)
    script = Ranges()
    streams: dict[tuple[int, int], bytes] = {}
    over: set[tuple[int, int]] = set()
    for connection in range(connections):
        script.open(connection, from_syn=chance.random() < 0.1)
        for side in (0, 1):
            script.offsets[connection, side] = chance.choice((0, 0, 5_000))
            cut = frame(EITHER, chance.randbytes(60))[chance.randrange(1, 40) :]
            streams[connection, side] = chance.choice((b"", cut, chance.choice(STARTS)))
    for _ in range(packets):
        connection, side = chance.randrange(connections), chance.randrange(2)
        key = connection, side
        if key in over:
            continue
        stream = streams[key]
        is_opaque = connection % 6 == 5
        while len(stream) < 300:
            one_way = TO_BROKER if side == 0 else TO_CLIENT
            body = chance.randbytes(chance.choice((0, 3, 20, 150, 150)))
            inner = frame(EITHER) * chance.randrange(2)
            one = frame(chance.choice((one_way, PROVEN, EITHER)), inner + body)
            stream += chance.randbytes(len(one)) if is_opaque else one
        # Most packets end where a frame does.
        ends = int.from_bytes(stream[:4], "big") + 4
        size = ends if ends < 300 and chance.random() < 0.8 else chance.randrange(1, 200)
        fate = chance.random()
        if fate < 0.02:
            script.lose(size, side, connection)
        elif fate < 0.03:
            script.cut(size, side, connection)
        elif fate < 0.05:
            script.fin(side, connection)
            over.add(key)
        else:
            flags = chance.choice((WHOLE, WHOLE, WHOLE, 0))
            script.send(stream[:size], side, connection, flags=flags)
        streams[key] = stream[size:]
        if chance.random() < 0.02:
            script.packet += 400_000  # of a microsecond each
    for connection in range(connections):
        script.close(connection)
    return script


def in_turns(seed: int, connections: int = 30) -> Ranges:
    """Connections in which both sides send a few frames by turns: one waits for the other."""
    chance = random.Random(seed)
    script = Ranges()
    turns = []
    for connection in range(connections):
        script.open(connection, from_syn=False)
        share, count = chance.choice((0.2, 0.5, 0.8)), chance.randrange(2, 25)
        turns += [(connection, int(chance.random() < share)) for _ in range(count)]
    chance.shuffle(turns)
    over: set[tuple[int, int]] = set()
    for connection, side in turns:
        if (connection, side) in over:
            continue
        kind = chance.choice((PROVEN, EITHER, TO_CLIENT if side else TO_BROKER))
        data = frame(kind, chance.randbytes(chance.choice((1, 10, 100, 600, 2_000))))
        if chance.random() < 0.05:
            data = data[chance.randrange(len(data)) :]
        fate = chance.random()
        if fate < 0.01:
            script.lose(30, side, connection)
        elif fate < 0.02:
            script.fin(side, connection)
            over.add((connection, side))
        elif fate < 0.04:
            script.close(connection)
            over |= {(connection, 0), (connection, 1)}
        else:
            script.send(data, side, connection)
        if chance.random() < 0.01:
            script.packet += 600_000  # of a microsecond each
    return script
