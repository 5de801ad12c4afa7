"""What comes out of a capture with a key log: rows, and the bytes of each direction."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dissector.dissection import Dissection, Options
from dissector.dissection.conversation import TABLE
from dissector.tls.keylog import KeyLog
from tests.plain import rows_of_block
from tests.wire import captures
from tests.wire.tls import Said, packets_of

CAPTURES = Path(__file__).parent / "captures"
SAMPLES = Path(__file__).resolve().parents[3] / "captures"


class Seen(NamedTuple):
    """tables: rows by table; streams: by connection and side, what was there, in order."""

    tables: dict[str, list[dict[str, Any]]]
    streams: dict[tuple[int, int], bytes]

    @property
    def connection(self) -> dict[str, Any]:
        """The only connection."""
        (row,) = self.tables["connections"]
        return row

    @property
    def codes(self) -> Counter:
        """Notices by code."""
        return Counter(row["code"] for row in self.tables["notices"])

    @property
    def frames(self) -> dict[str, list[tuple[str, int]]]:
        """Command and bytes of each frame, by direction."""
        found: dict[str, list[tuple[str, int]]] = {"to_broker": [], "to_client": []}
        for row in self.tables.get("frames", []):
            found[row["direction"]].append((row["command"], row["frame_bytes"]))
        return found

    def digest(self, side: int, connection: int = 0) -> str:
        """SHA-256 of what was there of a direction."""
        return hashlib.sha256(self.streams.get((connection, side), b"")).hexdigest()


def seen(data: bytes, keys: str | bytes | None = None, piece: int = 0, **options: Any) -> Seen:
    """Dissect a file in memory, once for each connection. piece: bytes fed at once, 0: all."""
    text = keys.encode() if isinstance(keys, str) else keys
    found = _followed(data, text, piece, Options(follow_connection=0, **options))
    for row in found.tables["connections"]:
        if row["connection_id"] > 0:
            own = Options(follow_connection=row["connection_id"], **options)
            found.streams.update(_followed(data, text, piece, own).streams)
    return found


def rows_seen(data: bytes, keys: bytes) -> dict[str, list[dict[str, Any]]]:
    """The rows alone, for which one dissection is enough however many connections there are."""
    return _followed(data, keys, 0, Options(follow_connection=0)).tables


def _followed(data: bytes, keys: bytes | None, piece: int, options: Options) -> Seen:
    """All rows, and the bytes of one connection."""
    dissection = Dissection(options, keys=None if keys is None else KeyLog(keys))
    held = np.frombuffer(bytearray(data), np.uint8)
    dissection.start_file()
    blocks = []
    position, end = 0, 0
    while end < len(held):
        end = len(held) if not piece else min(end + piece, len(held))
        position, more = dissection.feed(held, position, end, end == len(held))
        blocks += more
    dissection.end_file()
    blocks += dissection.finish()
    tables: dict[str, list[dict[str, Any]]] = {"notices": [], "connections": []}
    streams: dict[tuple[int, int], bytes] = {}
    for block in blocks:
        if block.table != TABLE:
            tables.setdefault(block.table, []).extend(rows_of_block(block))
            continue
        columns: Any = block.columns
        bytes_of = columns["data"]
        for row in range(block.rows):
            key = int(columns["connection"][row]), int(columns["endpoint_index"][row])
            start, size = int(bytes_of.starts[row]), max(0, int(bytes_of.lengths[row]))
            part = bytes_of.data[start : start + size].tobytes()
            streams[key] = streams.get(key, b"") + part
    return Seen(tables, streams)


def capture(said: Said, **settings: Any) -> bytes:
    """A pcap file with one connection."""
    return captures.pcap(packets_of(said, **settings))
