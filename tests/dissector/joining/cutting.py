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
from dissector.joining.closing import CLOSED, SCHEMAS, Target, close_group
from dissector.joining.files import FEW_ROWS, JoinSettings, digests, files_of
from dissector.joining.links import JoinPlan
from dissector.joining.planning import parts_of
from dissector.lake.land import land_chain
from dissector.lake.reader import Lake
from dissector.sources.rings import Chain

SAMPLES = Path(__file__).resolve().parents[3] / "captures" / "pulsar-apache"

MAGIC = (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")
# How long the header of a link is, and where it says what follows.
LINKS: dict[int, tuple[int, int | None]] = {
    0: (4, None), 1: (14, 12), 104: (4, None), 113: (16, 14), 276: (20, 0),
}  # fmt: skip

# Columns that name places or are decided by them: they differ between one capture and several.
PLACES = {
    "capture", "connection_id", "frame_no", "request_frame_no", "response_frame_no",
    "previous_frame_no", "previous_connection_id", "ack_frame_no", "origin_capture",
}  # fmt: skip


def packets(data: bytes) -> list[bytes]:
    """The records of a little-endian pcap file, its header first."""
    assert data[:4] in MAGIC
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
    """A capture in two, by the clients' ports, which are the higher ones."""
    header, *records = packets(data)
    link = link_of(data)
    found: list[list[bytes]] = [[], []]
    for record in records:
        found[not is_first(max(_ports(record[16:], link)))].append(record)
    return [header + b"".join(each) for each in found]


def link_of(data: bytes) -> int:
    """The link type of a pcap file."""
    number: int = struct.unpack_from("<H", data, 20)[0]
    return number


def _ports(packet: bytes, link: int) -> tuple[int, int]:
    """The ports of a packet, 0 where there are none."""
    ip, kind = LINKS[link]
    while kind is not None and packet[kind : kind + 2] == b"\x81\x00":
        ip, kind = ip + 4, kind + 4
    header = packet[ip : ip + 60]
    if len(header) < 20 or header[0] >> 4 not in (4, 6):
        return 0, 0
    tcp = ip + (40 if header[0] >> 4 == 6 else 4 * (header[0] & 15))
    is_tcp = header[6 if header[0] >> 4 == 6 else 9] == 6
    return struct.unpack_from(">HH", packet, tcp) if is_tcp and len(packet) >= tcp + 4 else (0, 0)


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
    return as_read(folder, lake)


def as_read(folder: Path, lake: Lake) -> dict[str, pa.Table]:
    """What joining wrote, with the rows that it left as their captures have them."""
    tables = {
        name: pa.concat_tables(
            [schema.empty_table()]
            + [pq.ParquetFile(path).read() for path in sorted((folder / name).glob("*.parquet"))]
        )
        for name, schema in SCHEMAS.items()
    }
    left = tables["untouched"]
    if left.num_rows:
        rows = {(row["capture"], row["connection_id"]): row for row in left.to_pylist()}
        for name in (*CLOSED, "producers", "consumers"):
            own = [
                {**row, "own_capture": row["capture"], "own_connection_id": row["connection_id"]}
                for row in lake.table(name).to_pylist()
                if (at := rows.get((row["capture"], row["connection_id"])))
                and (name != "deliveries" or at["keeps_deliveries"])
            ]
            tables[name] = pa.concat_tables(
                [tables[name], pa.Table.from_pylist(own, SCHEMAS[name])]
            )
    return tables


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
