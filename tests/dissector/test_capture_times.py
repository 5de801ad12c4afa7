"""Times that are not as things happened, and packets twice: what a capture tells stays true."""

import io
import json
import random
import struct
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dissector.cli.main import run
from tests.anycut import bytes_of, rows_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.observed import (
    CAPTURES,
    CASES,
    CURSUS_CASES,
    RANDOM_CASES,
    Tables,
    name_of,
)
from tests.wire.captures import ETHERNET
from tests.wire.recut import headers, is_pcap, records

NS = b"\x4d\x3c\xb2\xa1"  # of a pcap file whose times are in nanoseconds
JITTER_NS = 5_000_000
STEP_NS = 2_000_000_000
COPY_NS = 100_000
SAMPLES = (
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/java-j40_slow_consumer.pcap",
    "pulsar/fake-f12_slow_receipts.pcap",
    "cursus/go-consume_streaming.pcap",
)
ALL = tuple(map(name_of, (*CASES, *RANDOM_CASES, *CURSUS_CASES)))
# Where bytes are missing, or may be, timers decide for how long they are waited for.
WHOLE = tuple(
    name_of(case)
    for case in (*CASES, *RANDOM_CASES, *CURSUS_CASES)
    if not (case.is_lossy or case.is_midstream or case.is_cut)
)
# What a copy adds to.
PER_PACKET = ("payload_bytes_to_broker", "payload_bytes_to_client", "vlan_ids")
# Rules that speak of times in seconds or of what came first, which two clocks do not tell.
OF_TIMES = {"D01", "D22", "D24", "D30", "D40"}


class Packet(NamedTuple):
    """A captured packet, and whether its sender has the higher port, as clients have."""

    ns: int
    data: bytes
    length: int
    is_of_client: bool


def packets(capture: bytes) -> list[Packet]:
    unit = 1 if capture[:4] == NS else 1000
    (link_type,) = struct.unpack_from("<I", capture, 20)
    found = []
    for time, data, length in records(capture):
        seconds, fraction = struct.unpack("<II", time)
        at = headers(data, link_type)
        source, target = struct.unpack_from(">HH", data, at.tcp) if at else (0, 0)
        found.append(Packet(seconds * 10**9 + fraction * unit, data, length, source > target))
    return found


def written(capture: bytes, some: list[Packet]) -> bytes:
    head = NS + capture[4:24]
    return head + b"".join(
        struct.pack("<IIII", *divmod(each.ns, 10**9), len(each.data), each.length) + each.data
        for each in some
    )


def jittered(some: list[Packet], drawn: random.Random) -> list[Packet]:
    """The order of packets is right, their times are not."""
    return [each._replace(ns=each.ns + drawn.randrange(-JITTER_NS, JITTER_NS)) for each in some]


def set_back(some: list[Packet], _drawn: random.Random) -> list[Packet]:
    """The clock is set in the middle."""
    half = len(some) // 2
    return some[:half] + [each._replace(ns=each.ns - STEP_NS) for each in some[half:]]


def of_two_clocks(some: list[Packet], drawn: random.Random) -> list[Packet]:
    """Two interfaces, one for each direction, have clocks of their own."""
    apart = drawn.choice((STEP_NS, -STEP_NS))
    return [each._replace(ns=each.ns + apart) if each.is_of_client else each for each in some]


def twice(some: list[Packet], _drawn: random.Random) -> list[Packet]:
    """A mirror shows each packet where it comes in, and with a tag where it goes out."""
    copies = [
        each._replace(
            ns=each.ns + COPY_NS,
            data=each.data[:12] + b"\x81\x00\x00\x07" + each.data[12:],
            length=each.length + 4,
        )
        for each in some
    ]
    return sorted((*some, *copies), key=lambda each: each.ns)


Way = Callable[[list[Packet], random.Random], list[Packet]]
TIMES: tuple[Way, ...] = (jittered, set_back, of_two_clocks)


def sample(name: str) -> bytes:
    capture = bytes_of(CAPTURES / name)
    if not is_pcap(capture):
        pytest.skip("the sample is no pcap")
    return capture


def without_times(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    """All rows but notices, without times and what they decide."""
    return {
        table: [
            {
                name: value
                for name, value in row.items()
                if name not in ("ts", "latency_bucket", *PER_PACKET)
                and not name.endswith(("_ns", "_ns_to_broker", "_ns_to_client"))
            }
            for row in rows
        ]
        for table, rows in tables.items()
        if table != "notices"
    }


def found_in(capture: bytes, path: Path) -> set[str]:
    """Numbers of the findings in a capture."""
    path.write_bytes(capture)
    with redirect_stdout(io.StringIO()) as said:
        assert run(["findings", "-q", "--json", str(path)]) == 0
    return {row["id"] for row in json.loads(said.getvalue())["findings"]}


@pytest.mark.parametrize("way", TIMES)
@pytest.mark.parametrize("name", WHOLE if LOOKS_AT_ALL else SAMPLES)
def test_rows_do_not_depend_on_times(name: str, way: Way) -> None:
    capture = sample(name)
    some = packets(capture)
    whole = rows_of(written(capture, some))
    said = rows_of(written(capture, way(some, random.Random(f"{name} {way.__name__}"))))
    assert without_times(said) == without_times(whole)
    for table, rows in said.items():
        for row, expected in zip(rows, whole[table], strict=table != "notices"):
            if table == "notices":
                break
            for name_, value in row.items():
                is_duration = "latency" in name_ or name_.endswith("_delivery_ns")
                if is_duration and value is not None and name_ != "latency_bucket":
                    assert value >= 0, name_
                    if way is jittered and (right := expected[name_]) is not None:
                        assert abs(value - right) <= 2 * JITTER_NS, name_


@pytest.mark.parametrize("way", TIMES)
@pytest.mark.parametrize("name", SAMPLES)
def test_an_unsteady_clock_makes_no_finding_but_that_it_is_one(
    name: str, way: Way, tmp_path: Path
) -> None:
    capture = sample(name)
    some = packets(capture)
    changed = way(some, random.Random(f"{name} {way.__name__}"))
    whole = found_in(written(capture, some), tmp_path / "whole.pcap")
    said = found_in(written(capture, changed), tmp_path / "changed.pcap")
    assert said - whole <= (set() if way is jittered else {"V04"})
    assert whole - said <= (set() if way is jittered else OF_TIMES)
    assert ("V04" in said) == (way is not jittered)


def test_an_answer_that_comes_before_its_request_is_no_silence(tmp_path: Path) -> None:
    """Queues of a card that are read late: a tap has packets in another order than the wire."""
    capture = sample(SAMPLES[-1])
    some = jittered(packets(capture), random.Random("late"))
    some.sort(key=lambda each: each.ns)
    assert "C01" not in found_in(written(capture, some), tmp_path / "late.pcap")


@pytest.mark.parametrize("name", ALL if LOOKS_AT_ALL else SAMPLES)
def test_packets_that_are_there_twice_count_once(name: str) -> None:
    capture = sample(name)
    (link_type,) = struct.unpack_from("<I", capture, 20)
    some = sorted(packets(capture), key=lambda each: each.ns)
    if link_type != ETHERNET:
        pytest.skip("no tag is put into such a packet")
    whole = rows_of(written(capture, some))
    said = rows_of(written(capture, twice(some, random.Random(name))))
    for row, expected in zip(said["connections"], whole["connections"], strict=True):
        assert 0 <= row.pop("last_ts_ns") - expected.pop("last_ts_ns") <= COPY_NS
    for table in whole.keys() - {"notices"}:
        for rows in (said[table], whole[table]):
            for row in rows:
                is_close = row.get("event") == "close"  # with the last packet
                for column in (*PER_PACKET, *(("ts", "ts_ns") if is_close else ())):
                    row.pop(column, None)
        assert said[table] == whole[table]
