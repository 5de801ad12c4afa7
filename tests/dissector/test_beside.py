"""Traffic beside other traffic: the rows and findings of both are those of each alone."""

import heapq
import io
import json
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import accumulate
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dissector.cli.main import run
from tests.anycut import bytes_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.joining.cutting import land
from tests.dissector.observed import CAPTURES
from tests.split import facts, unlike
from tests.wire.captures import ETHERNET, Record, pcap
from tests.wire.recut import headers, is_pcap, records, with_losses

# Two clusters whose topics have the same names are told as one.
FOLDERS = ("pulsar", "pulsar-apache", "threads")
_NANOSECONDS = b"\x4d\x3c\xb2\xa1"


def read(capture: bytes) -> list[Record]:
    unit = 1 if capture[:4] == _NANOSECONDS else 1000
    return [
        Record(seconds * 10**9 + part * unit, data, wire)
        for head, data, wire in records(capture)
        for seconds, part in [struct.unpack("<II", head)]
    ]


def elsewhere(data: bytes) -> bytes:
    """A packet between other hosts; checksums stay as right as they were (RFC 1624)."""
    at = headers(data, ETHERNET)
    if at is None or data[at.ip] >> 4 != 4:
        return data
    packet = bytearray(data)
    for address in (at.ip + 12, at.ip + 16):
        (old,) = struct.unpack_from(">H", packet, address)
        new = old & 0xFF00 | (old + 101) & 0xFF
        struct.pack_into(">H", packet, address, new)
        for place in (at.ip + 10, at.tcp + 16):
            if place + 2 <= len(packet):
                (checksum,) = struct.unpack_from(">H", packet, place)
                total = (~checksum & 0xFFFF) + (~old & 0xFFFF) + new
                total = (total & 0xFFFF) + (total >> 16)
                struct.pack_into(">H", packet, place, ~(total + (total >> 16)) & 0xFFFF)
    return bytes(packet)


def at_the_time_of(one: list[Record], other: list[Record]) -> list[Record]:
    """The other capture as if it had begun with the first one, between other hosts."""
    later = one[0].ts_ns + 12_345 - other[0].ts_ns
    return [Record(row.ts_ns + later, elsewhere(row.data), row.wire_bytes) for row in other]


def merged(one: list[Record], other: list[Record]) -> list[Record]:
    """Both by time; where times of a capture go back, its packets keep their order."""
    ways = [
        zip(accumulate((row.ts_ns for row in way), max), way, strict=True) for way in (one, other)
    ]
    return [row for _, row in heapq.merge(*ways, key=lambda each: each[0])]


def found(capture: Path) -> Counter[tuple[str, str, str]]:
    """Findings without frame numbers; not those over totals, nor D30, which compares clients."""
    with redirect_stdout(io.StringIO()) as said:
        assert run(["findings", "-q", "--json", str(capture)]) == 0
    return Counter(
        (one["id"], one["severity"], re.sub(r"frame [\d,]+", "", one["text"]))
        for one in json.loads(said.getvalue())["findings"]
        if not one["id"].startswith(("V", "D30"))
    )


def pairs() -> Iterator[tuple[str, str, float]]:
    """A few by day, at night drawn ones, too; half of these lose packets of the second capture."""
    yield (
        "threads/t14-terminated-topic-retried.pcap",
        "cursus/go-crash_redelivery_streaming.pcap",
        0,
    )
    yield "pulsar-apache/cpp-c41_unload.pcap", "cursus/go-group_rebalance_two_consumers.pcap", 0.1
    yield (
        "cursus/go-broker_stall_ack_timeout.pcap",
        "pulsar-apache/java-j73_broker_restart-bem.pcap",
        0,
    )
    # Two clusters, whose ledgers and producers have the same numbers and names.
    yield "pulsar/cpp-s12_seek.pcap", "pulsar/ring.pcap2", 0
    if LOOKS_AT_ALL:
        pulsar, cursus = (
            [f"{folder}/{path.name}" for folder in folders
             for path in sorted((CAPTURES / folder).glob("*.pcap*"))]
            for folders in (FOLDERS, ("cursus",))
        )  # fmt: skip
        drawn = random.Random(0)
        for number in range(120):
            pair = drawn.choice(pulsar), drawn.choice(cursus if number < 60 else pulsar)
            one, other = pair if drawn.random() < 0.5 else pair[::-1]
            yield one, other, 0.1 * (number % 2)


def topics(lake: Path) -> set[str]:
    """All topics of the frames of a lake."""
    files = [pq.read_table(path, columns=["topic"]) for path in lake.rglob("frames/**/*.parquet")]
    return {topic for rows in files for topic in rows["topic"].to_pylist() if topic is not None}


@pytest.mark.parametrize(("one", "other", "losses"), [*pairs()])
def test_traffic_is_told_as_it_is_alone(
    one: str, other: str, losses: float, tmp_path: Path
) -> None:
    captures = [bytes_of(CAPTURES / name) for name in (one, other)]
    for capture in captures:
        if not is_pcap(capture) or struct.unpack_from("<I", capture, 20) != (ETHERNET,):
            pytest.skip("a sample is no pcap of Ethernet")
    first = read(captures[0])
    second = at_the_time_of(first, read(with_losses(captures[1], losses, other)))
    rows = {"first": first, "second": second, "both": merged(first, second)}
    for name, each in rows.items():
        land(pcap(each), name, tmp_path / name, tmp_path)
    if topics(tmp_path / "first") & topics(tmp_path / "second"):
        pytest.skip("both samples have topics of one name")
    apart, beside = ([facts(tmp_path / name, tmp_path / f"closed-{name}") for name in names]
                     for names in (("first", "second"), ("both",)))  # fmt: skip
    whole = {table: apart[0][table] + apart[1][table] for table in apart[0]}
    assert sum(each.total() for each in whole.values()) > 10
    # A hole is given up as time goes on, which the other capture's packets tell, too.
    assert {*unlike(whole, beside[0])} <= ({"exchanges: tainted"} if losses else set())
    for name, each in rows.items():
        (tmp_path / f"{name}.pcap").write_bytes(pcap(each))
    alone = found(tmp_path / "first.pcap") + found(tmp_path / "second.pcap")
    assert alone == found(tmp_path / "both.pcap")
