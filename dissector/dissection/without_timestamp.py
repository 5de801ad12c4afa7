"""Set timestamps and durations that depend on packets without a timestamp to null."""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Column, Int64Array, TableBlock
from dissector.capture.without_timestamp import NumberRanges, PacketsWithoutTimestamp
from dissector.limits import NULL


class TimeRule(NamedTuple):
    """`columns` become null if one of `numbers` is a packet, or frame, without a timestamp."""

    numbers: tuple[str, ...]
    columns: tuple[str, ...]


_OF_FRAMES: Final = (
    TimeRule(("first_packet",), ("first_ts_ns",)),
    TimeRule(("last_packet",), ("last_ts_ns", "ts")),
)
_OF_ITS_FRAME: Final = TimeRule(("frame_no",), ("ts",))
_BY_FRAME: Final = {
    "messages": (_OF_ITS_FRAME,),
    "acks": (_OF_ITS_FRAME,),
    "permits": (_OF_ITS_FRAME,),
    "deliveries": (
        TimeRule(("frame_no",), ("ts", "publish_to_delivery_ns")),
        TimeRule(("frame_no", "ack_frame_no"), ("ack_latency_ns",)),
    ),
    "exchanges": (
        TimeRule(("request_frame_no",), ("request_first_ns", "request_last_ns", "transmit_ns")),
        TimeRule(("response_frame_no",), ("response_first_ns", "response_last_ns")),
        TimeRule(("request_frame_no", "response_frame_no"), ("latency_ns", "latency_bucket", "ts")),
    ),
}
_OF_CONNECTIONS: Final = (
    "handshake_rtt_ns", "zero_window_ns_to_broker", "zero_window_ns_to_client",
)  # fmt: skip


class RowsWithoutTimestamp:
    """Clears times in the rows of a capture that has packets without a timestamp.

    Rows of frames are cleared before rows that refer to them, which need the frames' numbers.
    """

    def __init__(self, packets: PacketsWithoutTimestamp) -> None:
        self._packets = packets
        self._frames = NumberRanges()

    def cleared(self, blocks: list[TableBlock]) -> list[TableBlock]:
        """The blocks, with times null that were not captured; unchanged if all were captured."""
        if self._packets:
            for block in blocks:
                self._clear(block)
        return blocks

    def _clear(self, block: TableBlock) -> None:
        if block.table == "frames":
            is_without_timestamp = np.zeros(block.rows, bool)
            for rule in _OF_FRAMES:
                is_without_timestamp |= _apply(rule, block, self._packets)
            numbers = block.columns["frame_no"]
            assert isinstance(numbers, np.ndarray), "frames are numbered"
            self._frames.add(numbers[is_without_timestamp])
        elif block.table == "notices":
            _apply(TimeRule(("packet",), ("ts",)), block, self._packets)
        elif block.table == "events":
            _apply(TimeRule(("packet",), ("ts", "ts_ns")), block, self._packets)
        elif block.table == "connections":
            self._clear_connections(block)
        for rule in _BY_FRAME.get(block.table, ()):
            _apply(rule, block, self._frames)

    def _clear_connections(self, block: TableBlock) -> None:
        """Set durations to null as long as no packet had a timestamp."""
        if not self._packets.has_time:
            for name in _OF_CONNECTIONS:
                if name in block.columns:
                    block.columns[name] = np.full(block.rows, NULL, np.int64)


def _apply(rule: TimeRule, block: TableBlock, without_timestamp: NumberRanges) -> np.ndarray:
    """Set the rule's columns in a block to null; return bool[rows], which rows it matched."""
    is_without_timestamp = np.zeros(block.rows, bool)
    for name in rule.numbers:
        numbers = block.columns.get(name)
        if isinstance(numbers, np.ndarray):
            is_without_timestamp |= without_timestamp.holds(numbers[: block.rows])
    if is_without_timestamp.any():
        for name in rule.columns:
            column = block.columns.get(name)
            if column is not None:
                block.columns[name] = _without(column, is_without_timestamp)
    return is_without_timestamp


def _without(column: Column, is_without_timestamp: np.ndarray) -> Int64Array:
    assert isinstance(column, np.ndarray), "times are numbers"
    times: Int64Array = np.where(is_without_timestamp, NULL, column[: len(is_without_timestamp)])
    return times
