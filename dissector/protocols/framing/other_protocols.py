"""Recognise protocols that are named but not decoded, by each direction's prefix and the ports.

A prefix is the first captured bytes of a direction, anywhere in the stream if the connection began
before the capture. One direction's prefix must match, and the port; a long pattern needs no port.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte
from dissector.jit import inlined
from dissector.protocols.framing.state import PREFIX_BYTES, PREFIX_WORD_BYTES, DirectionState
from dissector.schemas.enums import OTHER_PROTOCOLS
from dissector.stream.columns import RangeColumns

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]

_NAMES: Final = tuple(OTHER_PROTOCOLS)
_LONGEST: Final = 100 << 20  # of a message, bytes; brokers of all these protocols accept less
_LONGEST_OF_ZOOKEEPER: Final = 1 << 20
_ZOOKEEPER_XIDS: Final = (-1, -2, -4, -8)  # events, pings, credentials, watches
_ZOOKEEPER_TYPES: Final = (*range(23), *range(100, 108), -10, -11, -1)
_AMQP_CLASSES: Final = (10, 20, 30, 40, 50, 60, 85, 90)


@inlined
def store_prefix(
    directions: DirectionState,
    ranges: RangeColumns,
    index: int,
    direction_index: int,
    data: ByteArray,
) -> None:
    """Store the first bytes of a direction, up to the first missing byte."""
    have, offset = directions.prefix_bytes[direction_index], ranges.stream_offset[index]
    if have == 0:
        directions.prefix_offset[direction_index] = offset
    elif offset != directions.prefix_offset[direction_index] + have:
        return
    base = ranges.offset[index]
    for at in range(have, min(PREFIX_BYTES, have + ranges.length[index])):
        value = byte(data, base + at - have)
        if at < PREFIX_WORD_BYTES:
            directions.prefix_first[direction_index] |= value << 8 * (PREFIX_WORD_BYTES - 1 - at)
        else:
            directions.prefix_second[direction_index] |= value << 8 * (PREFIX_BYTES - 1 - at)
        directions.prefix_bytes[direction_index] = at + 1


class _Prefixes(NamedTuple):
    """data: int64[PREFIX_BYTES, n], prefixes of directions, padded with 0; size: int64[n], bytes
    of each."""

    data: Int64Array
    size: Int64Array

    def number(self, at: int, size: int) -> Int64Array:
        """A big-endian number, signed if it has four bytes; arbitrary if bytes are missing."""
        numbers = np.zeros(len(self.size), np.int64)
        for position in range(at, at + size):
            numbers = numbers << 8 | self.data[position]
        return np.where((size == 4) & (numbers >> 31 == 1), numbers - (1 << 32), numbers)

    def begins(self, text: bytes, at: int = 0) -> Flags:
        """Whether each prefix has these bytes at an offset."""
        is_equal = self.size >= at + len(text)
        for position, value in enumerate(text, start=at):
            is_equal &= self.data[position] == value
        return is_equal


def _prefixes(directions: DirectionState, direction_index: Int64Array) -> _Prefixes:
    words = (directions.prefix_first[direction_index], directions.prefix_second[direction_index])
    shifts = range(8 * (PREFIX_WORD_BYTES - 1), -1, -8)
    return _Prefixes(
        np.array([word >> position & 0xFF for word in words for position in shifts]),
        directions.prefix_bytes[direction_index],
    )


def _is_message(prefix: _Prefixes, least: int, most: int = _LONGEST) -> Flags:
    """Whether the first four bytes are a length within bounds."""
    length = prefix.number(0, 4)
    return (prefix.size >= 4 + min(least, 8)) & (length >= least) & (length <= most)


def _kafka_request(prefix: _Prefixes) -> Flags:
    is_client = (prefix.size < 14) | (prefix.number(12, 2) < 256) | (prefix.number(12, 2) == 0xFFFF)
    is_known = (prefix.number(4, 2) <= 100) & (prefix.number(6, 2) <= 20)
    is_request: Flags = _is_message(prefix, 8) & is_known & (prefix.number(8, 4) >= 0) & is_client
    return is_request


def _kafka_response(prefix: _Prefixes) -> Flags:
    return _is_message(prefix, 4) & (prefix.number(4, 4) >= 0)


def _kafka_start(prefix: _Prefixes) -> Flags:
    """ApiVersions, the first request of clients."""
    is_asked = (prefix.number(4, 2) == 18) & (prefix.number(6, 2) <= 4) & (prefix.number(8, 4) == 0)
    is_start: Flags = (
        _kafka_request(prefix) & is_asked & (prefix.size >= 14) & (prefix.number(0, 4) < 1024)
    )
    return is_start


def _zookeeper_start(prefix: _Prefixes) -> Flags:
    length = prefix.number(0, 4)
    is_first = (length == 44) | (length == 45)
    is_start: Flags = (
        is_first & (prefix.size >= 12) & (prefix.number(4, 4) == 0) & (prefix.number(8, 2) == 0)
    )
    return is_start


def _is_xid(prefix: _Prefixes) -> Flags:
    xid = prefix.number(4, 4)
    return (xid >= 0) | np.isin(xid, _ZOOKEEPER_XIDS)


def _zookeeper_request(prefix: _Prefixes) -> Flags:
    is_known = _is_xid(prefix) & np.isin(prefix.number(8, 4), _ZOOKEEPER_TYPES)
    is_message = _is_message(prefix, 8, _LONGEST_OF_ZOOKEEPER) & is_known
    return _zookeeper_start(prefix) | is_message


def _zookeeper_response(prefix: _Prefixes) -> Flags:
    is_zxid = np.isin(prefix.data[8], (0, 0xFF))
    return _is_message(prefix, 16, _LONGEST_OF_ZOOKEEPER) & _is_xid(prefix) & is_zxid


def _bookkeeper(prefix: _Prefixes) -> Flags:
    """A header of version, operation and transaction as protobuf; or version 2 and operation."""
    is_packed = prefix.begins(b"\x0a", 4) & prefix.begins(b"\x08", 6) & prefix.begins(b"\x10", 8)
    is_packed &= (prefix.data[7] <= 3) & (prefix.data[9] <= 32) & prefix.begins(b"\x18", 10)
    is_binary = prefix.begins(b"\x02", 4) & (prefix.data[5] >= 1) & (prefix.data[5] <= 16)
    is_known: Flags = _is_message(prefix, 8) & (
        is_packed | (is_binary & (prefix.number(6, 2) < 256))
    )
    return is_known


def _mqtt_start(prefix: _Prefixes) -> Flags:
    is_start = np.zeros(len(prefix.size), np.bool_)
    for size_bytes in (1, 2):
        for name in (b"\0\x04MQTT", b"\0\x06MQIsdp"):
            is_start |= prefix.begins(name, 1 + size_bytes)
    return is_start & prefix.begins(b"\x10")


def _mqtt(prefix: _Prefixes) -> Flags:
    """A packet: its type, the flags of that type, and a size that fits it."""
    kind, flags, size = prefix.data[0] >> 4, prefix.data[0] & 15, prefix.data[1]
    is_publish = (kind == 3) & (flags & 6 != 6) & (size >= 3)
    topic = np.where(size < 128, prefix.number(2, 2) + 2 <= size, prefix.number(3, 2) < 1 << 12)
    is_asking = np.isin(kind, (6, 8, 10)) & (flags == 2) & (size >= 2)
    is_plain = np.isin(kind, (2, 4, 5, 7, 9, 11)) & (flags == 0) & (size >= 2)
    is_ping = np.isin(kind, (12, 13, 14)) & (flags == 0) & (size == 0)
    is_any = (is_publish & (prefix.size >= 5) & topic) | is_asking | is_plain | is_ping
    is_mqtt: Flags = _mqtt_start(prefix) | ((prefix.size >= 2) & is_any)
    return is_mqtt


def _amqp_start(prefix: _Prefixes) -> Flags:
    return prefix.begins(b"AMQP")


def _amqp(prefix: _Prefixes) -> Flags:
    """A frame of AMQP 0-9-1, or of 1.0, which begins with its size and has a described type."""
    kind, size = prefix.data[0], prefix.number(3, 4)
    is_method = (kind == 1) & np.isin(prefix.number(7, 2), _AMQP_CLASSES) & (prefix.size >= 9)
    is_content = np.isin(kind, (2, 3)) & (prefix.number(1, 2) > 0) & (prefix.size >= 7)
    is_beat = (kind == 8) & (prefix.number(1, 2) == 0) & (size == 0) & prefix.begins(b"\xce", 7)
    is_old = (is_method | is_content | is_beat) & (size >= 0) & (size <= _LONGEST)
    is_new = prefix.begins(b"\x02", 4) & (prefix.data[5] < 2) & (prefix.begins(b"\0\x53", 8))
    is_new |= prefix.begins(b"\0\0\0\x08\x02\0\0\0")
    is_amqp: Flags = _amqp_start(prefix) | is_old | (is_new & (prefix.number(0, 4) <= _LONGEST))
    return is_amqp


def _none(prefix: _Prefixes) -> Flags:
    return np.zeros(len(prefix.size), np.bool_)


class _Rule(NamedTuple):
    """The ports of a protocol; patterns of requests, of responses, and one that needs no port."""

    ports: tuple[int, ...]
    request: Callable[[_Prefixes], Flags]
    response: Callable[[_Prefixes], Flags]
    unmistakable: Callable[[_Prefixes], Flags] = _none


_RULES: Final = {
    "bookkeeper": _Rule((3181,), _bookkeeper, _bookkeeper),
    "zookeeper": _Rule((2181,), _zookeeper_request, _zookeeper_response, _zookeeper_start),
    "kafka": _Rule((9092,), _kafka_request, _kafka_response, _kafka_start),
    "mqtt": _Rule((1883,), _mqtt, _mqtt, _mqtt_start),
    "amqp": _Rule((5672,), _amqp, _amqp, _amqp_start),
}


def named(
    directions: DirectionState, connection_indexes: Int64Array, ports: tuple[Int64Array, Int64Array]
) -> Int64Array:
    """Recognise the protocols of connections whose protocol is unknown.

    Args:
        connection_indexes: of the connections; ports: of side 0 and side 1.

    Returns:
        int64[n], the index of each protocol in `OTHER_PROTOCOLS`, -1 where none matches.
    """
    name_indexes = np.full(len(connection_indexes), -1, np.int64)
    prefixes = tuple(
        _prefixes(directions, 2 * connection_indexes + endpoint_index) for endpoint_index in (0, 1)
    )
    for name, rule in _RULES.items():
        fits = np.zeros(len(connection_indexes), np.bool_)
        for endpoint_index in (0, 1):
            is_server = np.isin(ports[endpoint_index], rule.ports)
            client, server = prefixes[1 - endpoint_index], prefixes[endpoint_index]
            is_match = rule.request(client) | rule.response(server)
            fits |= (is_server & is_match) | rule.unmistakable(server)
        name_indexes[fits & (name_indexes < 0)] = _NAMES.index(name)
    return name_indexes
