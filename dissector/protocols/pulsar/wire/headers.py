"""The layout of a Pulsar frame around its protobuf parts, and how a frame is verified.

    TOTAL(4) COMMAND_SIZE(4) BaseCommand                                          every frame
    [0x0e02(2) SIZE(4) BrokerEntryMetadata] [0x0e01(2) CRC32C(4)]
    METADATA_SIZE(4) MessageMetadata PAYLOAD                                      SEND and MESSAGE

Sizes are big-endian; TOTAL counts all bytes after itself, and the payload is the rest of them.
Whether there is a second half follows from the command, not from the sizes. Broker entry metadata
and checksum are both optional, in this order; the checksum covers all bytes behind it. The type is
always first in a BaseCommand (tag 0x08), and the number of the field with the command's body equals
the type: so a header can be recognised anywhere in a stream.
"""

from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.crc32c import crc32c
from dissector.codecs.integers import be16, be32, byte, varint
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.columns import TO_BROKER, TO_CLIENT, UNKNOWN_DIRECTION
from dissector.protocols.pulsar.wire import commands

MAGIC_CHECKSUM: Final = 0x0E01
MAGIC_BROKER_ENTRY: Final = 0x0E02
# A broker's frame limit is its message limit plus this much for everything around the payload.
FRAME_PADDING_BYTES: Final = 10 * 1024

_TYPE_TAG: Final = 0x08
_WITHIN_HEADER: Final = 40  # behind a command up to this size, the second half is checked, too

_DIRECTIONS: Final[Int64Array] = np.full(128, -1, np.int64)  # by command number; -1: unknown one
for _command in commands.COMMANDS:
    _DIRECTIONS[_command.number] = _command.direction


@inlined
def _direction_of(command: int) -> int:
    return _DIRECTIONS[command] if 0 <= command < 128 else -1


@inlined
def read_command(data: ByteArray, offset: int, end: int) -> int:
    """The command number of the frame at offset, NULL if the bytes up to end are too few."""
    if end - offset < 10 or byte(data, offset + 8) != _TYPE_TAG:
        return NULL
    command = varint(data, offset + 9, end)
    return command.value if command.next > 0 else NULL


@inlined
def _body_size_fits(data: ByteArray, at: int, end: int, command: int, command_end: int) -> int:
    """Whether the command's body, and nothing else, fills the BaseCommand from `at` on.

    Returns 1 if so, 0 if more bytes are needed, -1 if not.
    """
    tag = varint(data, at, min(end, at + 2))
    if tag.next < 0:
        return 0 if end < at + 2 else -1
    if tag.value != (command << 3) | 2:
        return -1
    size = varint(data, tag.next, min(end, tag.next + 5))
    if size.next < 0:
        return 0 if end < tag.next + 5 else -1
    return 1 if size.next + size.value == command_end else -1


@inlined
def _second_half_fits(data: ByteArray, at: int, end: int, left: int) -> int:
    """Whether the `left` bytes behind a SEND or MESSAGE command can be its second half.

    Returns 1 if so, 0 if more bytes are needed, -1 if not.
    """
    if end - at < 2:
        return 0
    magic = be16(data, at)
    if magic == MAGIC_CHECKSUM:
        return 1 if left >= 10 else -1
    if end - at < 6:
        return 0
    if magic == MAGIC_BROKER_ENTRY:
        return 1 if be32(data, at + 2) <= left - 10 else -1
    return 1 if be32(data, at) <= left - 4 else -1


@inlined
def _is_legal(command: int, direction: int) -> bool:
    """Whether a command is known and may have this direction."""
    allowed = _direction_of(command)
    if allowed < 0:
        return False
    return direction == UNKNOWN_DIRECTION or allowed in (UNKNOWN_DIRECTION, direction)


def check_header(
    data: ByteArray, offset: int, end: int, direction: int, max_frame_bytes: int, is_strict: int
) -> int:
    """Check the frame header at offset; reads no more than 64 bytes.

    Args:
        end: exclusive end of the bytes; direction: of protocols.columns; max_frame_bytes: largest
            frame, its length field included; is_strict: 1 and more in a search: the command must be
            known, legal for the direction, and consist of its body alone. 0 where one frame follows
            another: sizes and the type's tag are enough, and newer commands are valid.

    Returns:
        The bytes of the whole frame if the header is valid, 0 if more bytes are needed, -1 if it is
        invalid.
    """
    have = end - offset
    if have < 4:
        return 0
    total = be32(data, offset)
    if total < 8 or total + 4 > max_frame_bytes:
        return -1
    if have < 8:
        return 0
    size = be32(data, offset + 4)
    if size < 2 or size > total - 4:
        return -1
    if have < 9:
        return 0
    if byte(data, offset + 8) != _TYPE_TAG:
        return -1
    stop = offset + 8 + size
    command = varint(data, offset + 9, min(end, offset + 14, stop))
    if command.next < 0:
        return 0 if end < min(offset + 14, stop) else -1
    if command.value == commands.SEND or command.value == commands.MESSAGE:
        if total - size < 8:
            return -1
    elif total != size + 4 and _direction_of(command.value) >= 0:
        return -1
    if is_strict == 0:
        return total + 4
    if not _is_legal(command.value, direction):
        return -1
    fits = _body_size_fits(data, command.next, min(end, stop), command.value, stop)
    # More bytes do not help if the command's end cuts its body's size.
    if fits <= 0:
        return -1 if fits < 0 or end >= stop else 0
    if (
        command.value == commands.SEND or command.value == commands.MESSAGE
    ) and size <= _WITHIN_HEADER:
        fits = _second_half_fits(data, stop, end, total - 4 - size)
        if fits <= 0:
            return fits
    return total + 4


@inlined
def checksum_offset(data: ByteArray, offset: int, end: int) -> int:
    """The offset of the 0x0e01 in a SEND or MESSAGE frame.

    Args:
        offset, end: of a frame, which may be cut.

    Returns:
        -1 if the frame has no checksum or is too short.
    """
    command = read_command(data, offset, end)
    if command != commands.SEND and command != commands.MESSAGE:
        return -1
    size = be32(data, offset + 4)
    if size > end - offset - 8:
        return -1
    at = offset + 8 + size
    if end - at >= 6 and be16(data, at) == MAGIC_BROKER_ENTRY:
        block = be32(data, at + 2)
        if block > end - at - 6:
            return -1
        at += 6 + block
    if end - at >= 6 and be16(data, at) == MAGIC_CHECKSUM:
        return at
    return -1


def prove_frame(data: ByteArray, offset: int, length: int) -> int:
    """Verify a complete frame by its checksum: 1 right, 0 it has none, -1 wrong."""
    end = offset + length
    at = checksum_offset(data, offset, end)
    if at < 0:
        return 0
    return 1 if crc32c(data, at + 6, end - at - 6) == be32(data, at + 2) else -1


@inlined
def _field_of_body(data: ByteArray, offset: int, end: int, number: int) -> int:
    """A varint field of the command's body, NULL if it is missing; bytes behind end are not read.

    Only the body's own fields are parsed: the few values that framing needs before field decoding.
    """
    at = offset + 9
    command = varint(data, at, end)
    stop = min(end, offset + 8 + be32(data, offset + 4)) if command.next > 0 else -1
    if stop < 0:
        return NULL
    tag = varint(data, command.next, stop)
    size = varint(data, tag.next, stop) if tag.next > 0 else tag
    at = size.next
    while 0 < at < stop:
        key = varint(data, at, stop)
        value = varint(data, key.next, stop) if key.next > 0 else key
        kind = key.value & 7
        if value.next < 0 or (kind != 0 and kind != 2):
            return NULL
        if kind == 0 and key.value >> 3 == number:
            return value.value
        if kind == 2 and not 0 <= value.value <= stop - value.next:
            return NULL
        at = value.next + (value.value if kind == 2 else 0)
    return NULL


def one_way(data: ByteArray, offset: int, end: int) -> int:
    """The direction that the frame at offset must have: to_broker, to_client, or unknown.

    Most commands have one direction. CLOSE_* have two: the broker's have request id -1, because it
    expects no answer.
    """
    command = read_command(data, offset, end)
    if command in (commands.CLOSE_PRODUCER, commands.CLOSE_CONSUMER):
        request_id = _field_of_body(data, offset, end, 2)
        if request_id == NULL:
            return UNKNOWN_DIRECTION
        return TO_CLIENT if request_id == -1 else TO_BROKER
    direction = _direction_of(command)
    return direction if direction >= 0 else UNKNOWN_DIRECTION


def announced_limit(data: ByteArray, offset: int, length: int) -> int:
    """The largest frame that CONNECTED allows, its length field included; 0 if it has no limit."""
    end = offset + length
    if read_command(data, offset, end) != commands.CONNECTED:
        return 0
    size = _field_of_body(data, offset, end, 3)
    return size + FRAME_PADDING_BYTES if size != NULL and 0 < size < 1 << 31 else 0
