"""Real captures cut at packets, landed apart, and what joining makes of them beside the whole."""

import gzip
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.dissection import Options
from dissector.joining import survey
from dissector.joining.closing import SCHEMAS, Target, close_group
from dissector.joining.files import FEW_ROWS, JoinSettings, digests, files_of
from dissector.joining.links import JoinPlan
from dissector.joining.planning import parts_of
from dissector.lake.land import land_chain
from dissector.lake.reader import Lake
from dissector.sources.rings import Chain

SAMPLES = Path(__file__).resolve().parents[3] / "captures" / "pulsar-apache"

# Columns that name places or are decided by them: they differ between one capture and several.
PLACES = {
    "capture", "connection_id", "frame_no", "request_frame_no", "response_frame_no",
    "previous_frame_no", "previous_connection_id", "ack_frame_no", "origin_capture",
}  # fmt: skip


def packets(data: bytes) -> list[bytes]:
    """The records of a little-endian pcap file, its header first."""
    assert data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")
    packets, at = [data[:24]], 24
    while at < len(data):
        size = 16 + struct.unpack_from("<I", data, at + 8)[0]
        packets.append(data[at : at + size])
        at += size
    return packets


def read(name: str) -> bytes:
    """The bytes of a sample."""
    content = (SAMPLES / name).read_bytes()
    return gzip.decompress(content) if name.endswith(".gz") else content


def parts(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """A capture in several, cut behind so many packets."""
    header, *records = packets(data)
    edges = [0, *sorted(cuts), len(records)]
    return [header + b"".join(records[first:last]) for first, last in pairwise(edges)]


def by_client(data: bytes, is_first: Callable[[int], bool]) -> list[bytes]:
    """An Ethernet capture in two, by the clients' ports, which are the higher ones."""
    header, *records = packets(data)
    assert header[20] == 1
    found: list[list[bytes]] = [[], []]
    for record in records:
        ip = 16 + 14
        tcp = ip + 4 * (record[ip] & 15)
        found[not is_first(max(struct.unpack_from(">HH", record, tcp)))].append(record)
    return [header + b"".join(each) for each in found]


class Cut(NamedTuple):
    """One capture in parts, with the ids of the parts in the lake."""

    name: str
    places: tuple[int, ...]
    captures: tuple[str, ...]


def land(data: bytes, name: str, lake: Path, folder: Path) -> str:
    """Land bytes under a name; returns the capture's id."""
    path = folder / f"{name}.pcap"
    path.write_bytes(data)
    _, landed = land_chain(Chain((str(path),), path.name), lake, Options())
    path.unlink()
    return landed.capture_id


def cut_places(data: bytes, count: int, seed: int) -> list[int]:
    """Positions to cut at: the same ones for a seed."""
    last = len(packets(data)) - 2
    return sorted(random.Random(seed).sample(range(1, last), min(count, last - 1)))


def land_cut(name: str, cuts: Iterable[int], lake: Path, folder: Path) -> Cut:
    """Land a sample in parts, each a capture of its own."""
    places = tuple(cuts)
    base = Path(name).name.partition(".")[0] + "".join(f"-at{place}" for place in places)
    captures = [
        land(part, f"{base}-part{number}", lake, folder)
        for number, part in enumerate(parts(read(name), places))
    ]
    return Cut(name, places, tuple(captures))


def planned(lake: Lake, captures: Iterable[str] = ()) -> JoinPlan:
    """The plan of some captures of a lake, or of all."""
    wanted = frozenset(captures) or frozenset(digests(lake.captures))
    known = survey.known(files_of(lake, wanted), JoinSettings())
    return survey.plan(known, lambda names: files_of(lake, names), JoinSettings())


def closed(
    lake: Lake, plan: JoinPlan, folder: Path, *, is_small: bool = True
) -> dict[str, pa.Table]:
    """The rows of all groups of a plan, closed one after the other. is_small: as what it is; else
    as if there were many rows."""
    for number, part in enumerate(parts_of(plan)):
        target = Target(folder, f"group-{number}")
        source = files_of(lake, part.captures)
        rows = source.rows if is_small else FEW_ROWS + 1
        close_group(source._replace(rows=rows), part, target, JoinSettings())
    return {
        name: pa.concat_tables(
            [schema.empty_table()]
            + [pq.ParquetFile(path).read() for path in sorted((folder / name).glob("*.parquet"))]
        )
        for name, schema in SCHEMAS.items()
    }


def plain(rows: Iterable[dict[str, Any]], leave: Iterable[str] = ()) -> Counter[tuple[Any, ...]]:
    """How often each row is there, without what names places."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        kept = [
            (name, tuple(value) if isinstance(value, list) else value)
            for name, value in sorted(row.items())
            if name not in PLACES and name not in leave
        ]
        counts[tuple(kept)] += 1
    return counts
