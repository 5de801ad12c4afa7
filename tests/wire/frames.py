"""Builds blocks of frame columns from plain dicts, for tests of the readers of frames.

A row is a dict of column names of FrameColumns; other columns are null. Texts are given as
str (`topic="persistent://a/b/c"`): name columns get a code of the block's names, span columns
(`error_text=`, `chunk_uuid=`, …) become bytes of source 0. `ids=[{...}]` are the
message ids of an ACK or REDELIVER (`ack_set=[...]` inside), `ack_set=[...]` the words of a MESSAGE.
Frames get frame_no, packets and stamps that rise by themselves where a row does not set them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.limits import NULL
from dissector.protocols.columns import (
    COLUMN_NUMBER,
    COMPLETE,
    TO_BROKER,
    TO_CLIENT,
    FrameColumns,
    FrameEvent,
    IdColumns,
    new_frame_columns,
    new_id_columns,
)

STEP_NS = 1_000_000  # between two rows that set no stamps
NAME_COLUMNS = {
    "topic": "wire_topic",
    "subscription": "wire_subscription",
    "producer_name": "wire_producer_name",
    "consumer_name": "wire_consumer_name",
    "wire_topic": "wire_topic",
    "wire_subscription": "wire_subscription",
    "wire_producer_name": "wire_producer_name",
    "wire_consumer_name": "wire_consumer_name",
    "replicated_from": "replicated_from",
    "real_topic": "real_topic",
    "real_subscription": "real_subscription",
}
SPAN_COLUMNS = ("error_text", "schema_version_hex", "chunk_uuid")


class FrameBlock(NamedTuple):
    """One block of frames with all that the facts get beside them."""

    frames: FrameColumns
    rows: int
    ids: IdColumns
    words: Int64Array
    names: list[bytes]
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray]
    matrix: Int64Array


class FrameMaker:
    """Builds blocks whose names and counters continue from block to block."""

    def __init__(self, protocol: int = 0, start_ns: int = 1_000_000_000) -> None:
        self.protocol = protocol
        self.names: list[bytes] = []
        self.frame_no = 0
        self.packet = 0
        self.now_ns = start_ns
        self._ways: dict[int, set[int]] = defaultdict(set)

    def code(self, text: str | bytes) -> int:
        """The code of a name."""
        name = text.encode() if isinstance(text, str) else text
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def block(self, rows: Sequence[Mapping[str, Any]]) -> FrameBlock:
        """A block of these rows (one unused row behind them, as in real blocks)."""
        matrix, frames = new_frame_columns(len(rows) + 1)
        id_rows = [
            dict(each, parent=row)
            for row, given in enumerate(rows)
            for each in given.get("ids", [])
        ]
        _, ids = new_id_columns(len(id_rows) + 1)
        words: list[int] = []
        heap = bytearray(b"\0" * 8)
        for row, given in enumerate(rows):
            self._fill(matrix, row, given, words, heap)
        self._fill_ids(matrix, ids, id_rows, words)
        nothing = np.zeros(0, np.uint8)
        sources = (np.frombuffer(bytes(heap), np.uint8), nothing, nothing, nothing)
        block_words = np.array([*words, 0], np.int64)
        return FrameBlock(frames, len(rows), ids, block_words, self.names, sources, matrix)

    def _fill(
        self,
        matrix: Int64Array,
        row: int,
        given: Mapping[str, Any],
        words: list[int],
        heap: bytearray,
    ) -> None:
        values = {
            "connection_id": 0,
            "protocol": self.protocol,
            "status": COMPLETE,
            "retransmitted": 0,
            "source": 0,
            "data_offset": 0,
            "data_bytes": 0,
            "frame_bytes": 0,
            "id_count": 0,
        }
        self._number(values, given)
        for name, value in given.items():
            if name in SPAN_COLUMNS:
                content = value.encode() if isinstance(value, str) else value
                values[f"{name}_at"], values[f"{name}_bytes"] = len(heap), len(content)
                heap.extend(content)
            elif name in NAME_COLUMNS:
                values[NAME_COLUMNS[name]] = NULL if value is None else self.code(value)
            elif name == "ack_set":
                values["ack_set_at"], values["ack_set_count"] = len(words), len(value)
                words.extend(value)
            elif name != "ids":
                values[name] = NULL if value is None else int(value)
        if "direction" in values and "endpoint_index" not in values:
            values["endpoint_index"] = 0 if values["direction"] == TO_BROKER else 1
        if "endpoint_index" in values and "direction" not in values:
            values["direction"] = TO_BROKER if values["endpoint_index"] == 0 else TO_CLIENT
        ways = self._ways[values["connection_id"]]
        if values.get("command") != FrameEvent.CLOSE:
            ways.add(values.get("endpoint_index", 0))
        values.setdefault("is_two_way", int(len(ways) > 1))
        for name, number in values.items():
            matrix[COLUMN_NUMBER[name], row] = number

    def _number(self, values: dict[str, int], given: Mapping[str, Any]) -> None:
        """frame_no (none for events), packets and stamps: one more than the row before."""
        self.packet += 1
        self.now_ns = int(given.get("last_ts_ns", self.now_ns + STEP_NS))
        values["last_ts_ns"] = values["first_ts_ns"] = self.now_ns
        values["first_packet"] = values["last_packet"] = values["release_packet"] = self.packet
        if given.get("command") is None or int(given["command"]) >= 0:
            self.frame_no = int(given.get("frame_no", self.frame_no + 1))
            values["frame_no"] = self.frame_no

    def _fill_ids(
        self,
        matrix: Int64Array,
        ids: IdColumns,
        id_rows: Sequence[Mapping[str, Any]],
        words: list[int],
    ) -> None:
        for place, given in enumerate(id_rows):
            parent = int(given["parent"])
            if matrix[COLUMN_NUMBER["id_count"], parent] == 0:
                matrix[COLUMN_NUMBER["first_id"], parent] = place
            matrix[COLUMN_NUMBER["id_count"], parent] += 1
            for name, value in given.items():
                if name == "ack_set":
                    ids.ack_set_at[place], ids.ack_set_count[place] = len(words), len(value)
                    words.extend(value)
                elif value is not None:
                    getattr(ids, name)[place] = value


def in_blocks(
    maker: FrameMaker, rows: Sequence[Mapping[str, Any]], cuts: Iterable[int]
) -> Iterator[FrameBlock]:
    """The same rows as several blocks, cut before these row numbers."""
    edges = [0, *sorted(cuts), len(rows)]
    for start, end in pairwise(edges):
        yield maker.block(rows[start:end])
