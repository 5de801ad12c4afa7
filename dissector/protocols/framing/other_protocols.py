"""Protocols that are named but not read, told by the first bytes of each direction and by port.

Of a connection that began before the capture, the first bytes may be any: then those of one
direction must fit, and one of its ports be the protocol's. What is hard to mistake needs no port.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte
from dissector.jit import inlined
from dissector.protocols.framing.state import HEAD_WORD_BYTES, HEADS, DirectionState
from dissector.schemas.enums import OTHER_PROTOCOLS
from dissector.stream.columns import RangeColumns

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]

_NAMES: Final = tuple(OTHER_PROTOCOLS)
_LONGEST: Final = 100 << 20  # of a message, bytes; brokers of all of them take less
_LONGEST_OF_ZOOKEEPER: Final = 1 << 20
_ZOOKEEPER_XIDS: Final = (-1, -2, -4, -8)  # events, pings, credentials, watches
_ZOOKEEPER_TYPES: Final = (*range(23), *range(100, 108), -10, -11, -1)
_AMQP_CLASSES: Final = (10, 20, 30, 40, 50, 60, 85, 90)


@inlined
def keep_head(
    directions: DirectionState,
    ranges: RangeColumns,
    index: int,
    direction_index: int,
    data: ByteArray,
) -> None:
    """Keep the first bytes of a direction, as far as nothing is missing between them."""
    have, offset = directions.head_bytes[direction_index], ranges.stream_offset[index]
    if have == 0:
        directions.head_from[direction_index] = offset
    elif offset != directions.head_from[direction_index] + have:
        return
    base = ranges.offset[index]
    for at in range(have, min(HEADS, have + ranges.length[index])):
        value = byte(data, base + at - have)
        if at < HEAD_WORD_BYTES:
            directions.head_first[direction_index] |= value << 8 * (HEAD_WORD_BYTES - 1 - at)
        else:
            directions.head_second[direction_index] |= value << 8 * (2 * HEAD_WORD_BYTES - 1 - at)
        directions.head_bytes[direction_index] = at + 1


class _Heads(NamedTuple):
    """First bytes of directions: int64[HEADS, n], 0 behind those that are there; and how many."""

    data: Int64Array
    size: Int64Array

    def number(self, at: int, size: int) -> Int64Array:
        """A big-endian number, signed if it has four bytes; of bytes that are missing, any."""
        numbers = np.zeros(len(self.size), np.int64)
        for place in range(at, at + size):
            numbers = numbers << 8 | self.data[place]
        return np.where((size == 4) & (numbers >> 31 == 1), numbers - (1 << 32), numbers)

    def begins(self, text: bytes, at: int = 0) -> Flags:
        """Whether bytes stand there."""
        is_equal = self.size >= at + len(text)
        for place, value in enumerate(text, start=at):
            is_equal &= self.data[place] == value
        return is_equal


def _heads(directions: DirectionState, direction_index: Int64Array) -> _Heads:
    words = (directions.head_first[direction_index], directions.head_second[direction_index])
    places = range(8 * (HEAD_WORD_BYTES - 1), -1, -8)
    return _Heads(
        np.array([word >> place & 0xFF for word in words for place in places]),
        directions.head_bytes[direction_index],
    )


def _is_message(heads: _Heads, least: int, most: int = _LONGEST) -> Flags:
    """Whether a length comes first."""
    length = heads.number(0, 4)
    return (heads.size >= 4 + min(least, 8)) & (length >= least) & (length <= most)


def _kafka_request(heads: _Heads) -> Flags:
    is_client = (heads.size < 14) | (heads.number(12, 2) < 256) | (heads.number(12, 2) == 0xFFFF)
    is_known = (heads.number(4, 2) <= 100) & (heads.number(6, 2) <= 20)
    is_request: Flags = _is_message(heads, 8) & is_known & (heads.number(8, 4) >= 0) & is_client
    return is_request


def _kafka_answer(heads: _Heads) -> Flags:
    return _is_message(heads, 4) & (heads.number(4, 4) >= 0)


def _kafka_start(heads: _Heads) -> Flags:
    """ApiVersions, with which clients begin."""
    is_asked = (heads.number(4, 2) == 18) & (heads.number(6, 2) <= 4) & (heads.number(8, 4) == 0)
    is_start: Flags = (
        _kafka_request(heads) & is_asked & (heads.size >= 14) & (heads.number(0, 4) < 1024)
    )
    return is_start


def _zookeeper_start(heads: _Heads) -> Flags:
    length = heads.number(0, 4)
    is_first = (length == 44) | (length == 45)
    is_start: Flags = (
        is_first & (heads.size >= 12) & (heads.number(4, 4) == 0) & (heads.number(8, 2) == 0)
    )
    return is_start


def _is_xid(heads: _Heads) -> Flags:
    xid = heads.number(4, 4)
    return (xid >= 0) | np.isin(xid, _ZOOKEEPER_XIDS)


def _zookeeper_request(heads: _Heads) -> Flags:
    is_known = _is_xid(heads) & np.isin(heads.number(8, 4), _ZOOKEEPER_TYPES)
    is_message = _is_message(heads, 8, _LONGEST_OF_ZOOKEEPER) & is_known
    return _zookeeper_start(heads) | is_message


def _zookeeper_answer(heads: _Heads) -> Flags:
    is_zxid = np.isin(heads.data[8], (0, 0xFF))
    return _is_message(heads, 16, _LONGEST_OF_ZOOKEEPER) & _is_xid(heads) & is_zxid


def _bookkeeper(heads: _Heads) -> Flags:
    """A header of version, operation and transaction as protobuf; or version 2 and operation."""
    is_packed = heads.begins(b"\x0a", 4) & heads.begins(b"\x08", 6) & heads.begins(b"\x10", 8)
    is_packed &= (heads.data[7] <= 3) & (heads.data[9] <= 32) & heads.begins(b"\x18", 10)
    is_binary = heads.begins(b"\x02", 4) & (heads.data[5] >= 1) & (heads.data[5] <= 16)
    is_known: Flags = _is_message(heads, 8) & (is_packed | (is_binary & (heads.number(6, 2) < 256)))
    return is_known


def _mqtt_start(heads: _Heads) -> Flags:
    is_start = np.zeros(len(heads.size), np.bool_)
    for size_bytes in (1, 2):
        for name in (b"\0\x04MQTT", b"\0\x06MQIsdp"):
            is_start |= heads.begins(name, 1 + size_bytes)
    return is_start & heads.begins(b"\x10")


def _mqtt(heads: _Heads) -> Flags:
    """A packet: its kind, the flags that this kind has, and a size that fits it."""
    kind, flags, size = heads.data[0] >> 4, heads.data[0] & 15, heads.data[1]
    is_publish = (kind == 3) & (flags & 6 != 6) & (size >= 3)
    topic = np.where(size < 128, heads.number(2, 2) + 2 <= size, heads.number(3, 2) < 1 << 12)
    is_asking = np.isin(kind, (6, 8, 10)) & (flags == 2) & (size >= 2)
    is_plain = np.isin(kind, (2, 4, 5, 7, 9, 11)) & (flags == 0) & (size >= 2)
    is_ping = np.isin(kind, (12, 13, 14)) & (flags == 0) & (size == 0)
    is_any = (is_publish & (heads.size >= 5) & topic) | is_asking | is_plain | is_ping
    is_mqtt: Flags = _mqtt_start(heads) | ((heads.size >= 2) & is_any)
    return is_mqtt


def _amqp_start(heads: _Heads) -> Flags:
    return heads.begins(b"AMQP")


def _amqp(heads: _Heads) -> Flags:
    """A frame of AMQP 0-9-1, or of 1.0, which has its size first and a described type behind."""
    kind, size = heads.data[0], heads.number(3, 4)
    is_method = (kind == 1) & np.isin(heads.number(7, 2), _AMQP_CLASSES) & (heads.size >= 9)
    is_content = np.isin(kind, (2, 3)) & (heads.number(1, 2) > 0) & (heads.size >= 7)
    is_beat = (kind == 8) & (heads.number(1, 2) == 0) & (size == 0) & heads.begins(b"\xce", 7)
    is_old = (is_method | is_content | is_beat) & (size >= 0) & (size <= _LONGEST)
    is_new = heads.begins(b"\x02", 4) & (heads.data[5] < 2) & (heads.begins(b"\0\x53", 8))
    is_new |= heads.begins(b"\0\0\0\x08\x02\0\0\0")
    is_amqp: Flags = _amqp_start(heads) | is_old | (is_new & (heads.number(0, 4) <= _LONGEST))
    return is_amqp


def _none(heads: _Heads) -> Flags:
    return np.zeros(len(heads.size), np.bool_)


class _Rule(NamedTuple):
    """How a protocol is told: its ports, what clients and servers say, and what needs no port."""

    ports: tuple[int, ...]
    asked: Callable[[_Heads], Flags]
    answered: Callable[[_Heads], Flags]
    alone: Callable[[_Heads], Flags] = _none


_RULES: Final = {
    "bookkeeper": _Rule((3181,), _bookkeeper, _bookkeeper),
    "zookeeper": _Rule((2181,), _zookeeper_request, _zookeeper_answer, _zookeeper_start),
    "kafka": _Rule((9092,), _kafka_request, _kafka_answer, _kafka_start),
    "mqtt": _Rule((1883,), _mqtt, _mqtt, _mqtt_start),
    "amqp": _Rule((5672,), _amqp, _amqp, _amqp_start),
}


def named(
    directions: DirectionState, connection_indexes: Int64Array, ports: tuple[Int64Array, Int64Array]
) -> Int64Array:
    """The protocols of connections whose protocol is not known.

    Args:
        connection_indexes: of the connections; ports: of side 0 and side 1.

    Returns:
        For each its number in `OTHER_PROTOCOLS`, -1 where it is none of them.
    """
    name_indexes = np.full(len(connection_indexes), -1, np.int64)
    heads = tuple(
        _heads(directions, 2 * connection_indexes + endpoint_index) for endpoint_index in (0, 1)
    )
    for name, rule in _RULES.items():
        fits = np.zeros(len(connection_indexes), np.bool_)
        for endpoint_index in (0, 1):
            is_server = np.isin(ports[endpoint_index], rule.ports)
            is_spoken = rule.asked(heads[1 - endpoint_index]) | rule.answered(heads[endpoint_index])
            fits |= (is_server & is_spoken) | rule.alone(heads[endpoint_index])
        name_indexes[fits & (name_indexes < 0)] = _NAMES.index(name)
    return name_indexes
