"""Ranges of streams as the reassembly emits them, built by hand."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissector.protocols.columns import COLUMN_NUMBER
from dissector.protocols.framing.assembly import Framing, FramingOptions
from dissector.protocols.framing.connection_table import find_connections
from dissector.protocols.interface import FrameBlock, ProtocolSpec
from dissector.stream.columns import (
    ENDED_CAPTURE_END,
    ENDPOINT_BITS,
    ENDS_PACKET,
    STARTS_PACKET,
    RangeColumns,
    RangeKind,
)
from tests.wire.toy import NEVER

WHOLE = STARTS_PACKET | ENDS_PACKET


@dataclass
class Ranges:
    """A script of ranges; every data range is a packet of its own."""

    data: bytearray = field(default_factory=bytearray)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    packet: int = 0
    opener: dict[int, int] = field(default_factory=dict)

    def _add(
        self, connection: int, endpoint_index: int, kind: int, length: int, **more: int
    ) -> None:
        self.packet += 1
        start = self.offsets.get((connection, endpoint_index), 0)
        self.offsets[connection, endpoint_index] = start + length
        place = len(self.data)
        flags = more.get("flags", 0)
        self.rows.append(
            (
                connection,
                endpoint_index,
                kind,
                start,
                length,
                0,
                place,
                self.packet,
                self.packet * 1000,
                flags,
                more.get("cause", 0),
                self.opener.get(connection, -1),
                0,
                connection << ENDPOINT_BITS | connection + 1,
                self.packet,
            )
        )

    def open(self, connection: int = 0, from_syn: bool = True) -> "Ranges":
        """Open a connection."""
        self.packet += 1
        self.opener[connection] = 0 if from_syn else -1
        return self

    def send(
        self, data: bytes, endpoint_index: int = 0, connection: int = 0, flags: int = WHOLE
    ) -> "Ranges":
        """Append the bytes of one packet."""
        self._add(connection, endpoint_index, RangeKind.DATA, len(data), flags=flags)
        self.data += data
        return self

    def lose(self, count: int, endpoint_index: int = 0, connection: int = 0) -> "Ranges":
        """Append a gap of bytes that were never captured."""
        self._add(connection, endpoint_index, RangeKind.GAP_LOST, count)
        return self

    def cut(self, count: int, endpoint_index: int = 0, connection: int = 0) -> "Ranges":
        """Append a gap of bytes that the snap length cut off."""
        self._add(connection, endpoint_index, RangeKind.GAP_CUT, count)
        return self

    def fin(self, endpoint_index: int = 0, connection: int = 0) -> "Ranges":
        """End one direction by a FIN."""
        self._add(connection, endpoint_index, RangeKind.FIN, 0)
        return self

    def close(self, connection: int = 0, cause: int = ENDED_CAPTURE_END) -> "Ranges":
        """Close the connection."""
        self._add(connection, 0, RangeKind.CLOSE, 0, cause=cause)
        return self

    def columns(self) -> RangeColumns:
        """The rows as columns."""
        cells = np.array(self.rows, np.int64).reshape(len(self.rows), len(RangeColumns._fields))
        return RangeColumns(np.ascontiguousarray(cells.T))


@dataclass
class Collected:
    """The output of a framing: one dict per row, with the frame's bytes under `data`."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, block: FrameBlock) -> None:
        for row in range(block.rows):
            cells = {name: int(block.matrix[at, row]) for name, at in COLUMN_NUMBER.items()}
            at = cells["data_offset"]
            source = block.sources[cells["source"]]
            cells["data"] = source[at : at + cells["data_bytes"]].tobytes()
            self.rows.append(cells)

    def frames(self) -> list[dict[str, Any]]:
        """Rows that are frames."""
        return [row for row in self.rows if row["frame_no"] > 0]

    def values(self, *names: str) -> list[tuple[Any, ...]]:
        """Chosen columns of the frames."""
        return [tuple(row[name] for name in names) for row in self.frames()]


def framed(
    specs: Sequence[ProtocolSpec],
    script: Ranges,
    blocks: Iterable[int] = (),
    ports: tuple[int, int] = (40000, 7000),
    options: FramingOptions | None = None,
) -> tuple[Collected, Framing]:
    """Run a script through a framing.

    Args:
        specs: one is joined by one that nothing is of, see `toy.NEVER`.
        blocks: rows at which the ranges are cut into blocks.
    """
    collected = Collected()
    specs = (*specs, NEVER) if len(specs) == 1 else specs
    framing = Framing(specs, collected, options or FramingOptions())
    columns = script.columns()
    columns.ports[:] = ports[0] << 16 | ports[1]
    data = np.frombuffer(bytes(script.data) or b"\0", np.uint8).copy()
    empty = np.zeros(1, np.uint8)
    edges = [0, *sorted(blocks), len(script.rows)]
    for start, stop in itertools.pairwise(edges):
        part = RangeColumns(np.ascontiguousarray(columns.matrix[:, start:stop]))
        framing.advance(part, stop - start, (data, empty, empty))
        framing.flush()
    return collected, framing


def connection_in(framing: Framing, connection: int = 0) -> int:
    """The row of a connection in a framing; -1: none."""
    connection_indexes = np.empty(1, np.int64)
    find_connections(framing.state, np.array([connection]), connection_indexes)
    return int(connection_indexes[0])
