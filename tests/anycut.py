"""Every capture with its segments cut elsewhere: python -m tests.anycut [CAPTURE...].

TCP may cut a stream anywhere, and what is decoded may not depend on it. Each capture, by default
every sample, is written again with its segments cut behind the first, second, … byte of each frame,
behind each byte, and at random; all rows of all tables must be the same but for what counts or
numbers packets. Differences are printed, and make the exit code 1.
"""

import argparse
import gzip
import ipaddress
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from dissector.dissection import Dissection, Options
from dissector.tls.keylog import KeyLog
from tests.dissector.observed import CAPTURES, TABLES, Row, Tables
from tests.plain import rows_of_block
from tests.wire.recut import Places, Segment, Way, is_pcap, recut

BEHIND: Final = (*range(1, 17), 20, 33, 64)
EACH_BYTES: Final = 300  # of a segment: behind so many of its bytes it is cut one by one
LONGEST: Final = 150_000  # captures up to so many bytes are cut behind each byte
SEEDS: Final = 3

# What counts or numbers packets. A byte that is sent again alone looks as a keep-alive does, and a
# segment that was sent again marks the frames that are in it.
PER_PACKET: Final = {
    "packet", "first_packet", "last_packet", "ended_packet", "retransmitted",
    *(
        f"{name}_{way}"
        for way in ("to_broker", "to_client")
        for name in (
            "packets", "retransmitted_packets", "duplicate_packets", "out_of_order_packets",
            "keepalive_packets", "fin_packet",
        )
    ),
}  # fmt: skip


def bytes_of(path: Path) -> bytes:
    """The bytes of a capture, unzipped."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def rows_of(capture: bytes, options: Options | None = None, keys: KeyLog | None = None) -> Tables:
    """The rows of all tables but capture_files, without what counts or numbers packets.

    Notices stand in the order of their packets: here in one of their own. Where frames are found
    again, large packets may confirm them and tiny ones not: whether, and when, is left out.
    """
    data = np.frombuffer(bytearray(capture), np.uint8)
    dissection = Dissection(options or Options(), keys=keys)
    dissection.start_file()
    blocks = list(dissection.feed(data, 0, len(data), True)[1])
    rows = [(block.table, rows_of_block(block)) for block in blocks]
    dissection.end_file()
    rows += [(block.table, rows_of_block(block)) for block in dissection.finish()]
    tables: Tables = {table: [] for table in TABLES if table != "capture_files"}
    for table, found in rows:
        tables[table].extend(_kept(row) for row in found)
    told = [row for row in tables["notices"] if row["code"] != "resync_unconfirmed"]
    for row in told:
        if row["code"] in ("resync", "midstream_start"):
            del row["ts"]
    tables["notices"] = sorted(told, key=repr)
    return tables


def _kept(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in PER_PACKET}


def differences(whole: Tables, cut: Tables) -> dict[str, Any]:
    """By table, how many rows there are of how many, or in which columns how many differ."""
    differences: dict[str, Any] = {}
    for table, rows in whole.items():
        others = cut[table]
        if len(rows) != len(others):
            differences[table] = f"{len(others)} rows for {len(rows)}"
        elif rows != others:
            pairs = zip(rows, others, strict=True)
            differences[table] = dict(
                Counter(name for row, other in pairs for name in row if row[name] != other[name])
            )
    return differences


def ways_of(tables: Tables) -> dict[tuple[int, str], Way]:
    """The directions of all connections, by connection and name."""
    ways = {}
    for row in tables["connections"]:
        client, broker = (
            ipaddress.ip_address(row[f"{end}_ip"]).packed + row[f"{end}_port"].to_bytes(2, "big")
            for end in ("client", "broker")
        )
        ways[row["connection_id"], "to_broker"] = client, broker
        ways[row["connection_id"], "to_client"] = broker, client
    return ways


def frame_starts(tables: Tables) -> dict[Way, set[int]]:
    """Where the frames of each direction begin in its stream."""
    ways, found = ways_of(tables), defaultdict(set)
    for row in tables["frames"]:
        found[ways[row["connection_id"], row["direction"]]].add(row["stream_offset"])
    return found


def behind(starts: dict[Way, set[int]], count: int) -> Places:
    """Cuts behind so many bytes of each frame."""

    def places(segment: Segment) -> Collection[int]:
        return [start + count - segment.at for start in starts[segment.way]]

    return places


def each_byte(segment: Segment) -> Collection[int]:
    """A cut behind each of a segment's first bytes, and before its last ones."""
    size = len(segment.payload)
    return {*range(1, min(size, EACH_BYTES)), *range(max(1, size - EACH_BYTES // 10), size)}


def at_random(seed: int) -> Places:
    """Cuts at places that a seed decides, some of them close together; copies are cut alike."""

    def places(segment: Segment) -> Collection[int]:
        drawn = random.Random(f"{seed} {segment.at} {segment.way}")
        size = len(segment.payload)
        found = {drawn.randrange(size + 1) for _ in range(drawn.randrange(6))} if size else set()
        return found | {place + drawn.randrange(1, 4) for place in found}

    return places


def ways_to_cut(capture: bytes, whole: Tables) -> Iterator[tuple[str, Places]]:
    """Every way in which a capture is cut, by name."""
    starts = frame_starts(whole)
    for count in BEHIND:
        yield f"behind byte {count} of each frame", behind(starts, count)
    for seed in range(SEEDS):
        yield f"at random, seed {seed}", at_random(seed)
    if len(capture) <= LONGEST:
        yield "behind each byte", each_byte


def main(arguments: list[str] | None = None) -> int:
    """Cut captures, print what differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.anycut", description=__doc__)
    parser.add_argument("capture", nargs="*", type=Path, help="files; all samples if none")
    paths = parser.parse_args(arguments).capture or sorted(CAPTURES.glob("*/*.pcap*"))
    bad = done = cuts = 0
    for path in paths:
        capture = bytes_of(path)
        if not is_pcap(capture):
            print(f"{path.name}: no little-endian pcap file, not cut")
            continue
        done += 1
        whole = rows_of(capture)
        found = []
        for name, places in ways_to_cut(capture, whole):
            cuts += 1
            differ = differences(whole, rows_of(recut(capture, places)))
            if differ:
                found.append(f"  cut {name}: {differ}")
        bad += bool(found)
        print("\n".join([f"{path.name}: {'differs' if found else 'the same'}", *found]), flush=True)
    print(f"{done} captures cut in {cuts} ways: {done - bad} the same, {bad} not")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
