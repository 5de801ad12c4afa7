"""Recognition of Cursus frames: four bytes of length, and a body whose first bytes dispatch.

The length counts the body alone. Frames have no type, no version and no checksum, so only their
content proves them: a known command, bare or after a topic in an envelope, an answer's first word,
a batch that fills its frame exactly, or the mark of a compressed body.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16, be32, byte
from dissector.jit import inlined
from dissector.limits import MAX_CURSUS_BODY_BYTES
from dissector.protocols import strictness
from dissector.protocols.columns import TO_BROKER, TO_CLIENT, UNKNOWN_DIRECTION
from dissector.protocols.cursus import batches
from dissector.protocols.cursus.body_starts import (
    MAX_TOPIC_BYTES,
    BodyShape,
    Literal,
    literal_of,
    shape_of,
)
from dissector.protocols.cursus.commands import CUT_VERB, NO_VERB, find_verb, is_blank

LENGTH_BYTES: Final = 4
BROKER_BODY_LIMIT: Final = 16 << 20  # largest that brokers and the Go client accept since Aug 2026


_WINDOW: Final = 56  # bytes of a body that suffice to judge it
_SMALLEST_BATCH: Final = 30
_STAT: Final = 0x73746174
_SUCC: Final = 0x73756363
_ERRO: Final = 0x6572726F
_EQUALS: Final = 0x3D


@inlined
def _is_topic_byte(value: int) -> bool:
    """Letters, digits and . _ - = of topics, and the * and ? of patterns."""
    return (
        0x61 <= value <= 0x7A
        or 0x41 <= value <= 0x5A
        or 0x30 <= value <= 0x39
        or value in (0x2E, 0x5F, 0x2D, 0x3D, 0x2A, 0x3F)
    )


@inlined
def _is_topic(data: ByteArray, at: int, end: int) -> bool:
    cursor = at
    while cursor < end and _is_topic_byte(byte(data, cursor)):
        cursor += 1
    return cursor >= end


@inlined
def _is_text(data: ByteArray, at: int, end: int) -> bool:
    """Whether bytes are text: no control characters but blanks, no byte that UTF-8 never has."""
    for offset in range(at, end):
        value = byte(data, offset)
        if (value < 0x20 and not is_blank(value)) or value == 0x7F:
            return False
        if value == 0xC0 or value == 0xC1 or value >= 0xF5:
            return False
    return True


@inlined
def _judge_batch(data: ByteArray, at: int, end: int, body_end: int) -> int:
    if body_end - at < _SMALLEST_BATCH:
        return -1
    if end - at < 4:
        return 0
    size = be16(data, at + 2)
    if size < 1 or size > MAX_TOPIC_BYTES:
        return -1
    if not _is_topic(data, at + 4, min(end, at + 4 + size)):
        return -1
    return 1 if end - at > min(4 + size, _WINDOW) else 0


@inlined
def _judge_text(data: ByteArray, at: int, end: int, body_end: int) -> int:
    """Any text of two bytes or more: 1 when enough of it is there, 0 before, -1 if it is none."""
    if not _is_text(data, at, end):
        return -1
    if end == body_end:
        return 1 if end - at > 1 else -1
    return 1 if end - at >= _WINDOW - 20 else 0


@inlined
def _has_argument(data: ByteArray, at: int, end: int, body_end: int, level: int) -> int:
    """Whether the word at `at`, a command, has nothing behind it or a name, `=` and a value, as in
    Cursus: 1 if so, 0 if more bytes are needed, -1 if not. SQL begins with the same words, and
    payloads are single words."""
    while at < end and not is_blank(byte(data, at)):
        at += 1
    while at < end and is_blank(byte(data, at)):
        at += 1
    begin = at
    while at < end and _is_topic_byte(byte(data, at)) and byte(data, at) != _EQUALS:
        at += 1
    if at == end and end < body_end:
        return 0
    if at == end:
        return int(at == begin) if level < strictness.INSIDE else -1
    return 1 if at > begin and byte(data, at) == _EQUALS else -1


@inlined
def _judge_word(
    data: ByteArray, at: int, end: int, body_end: int, direction: int, level: int
) -> int:
    """A command's line: a known word, or any text where it can only be a client's.

    So it is where the direction is known, or where an envelope stands before it that is not the
    first frame of a search.
    """
    while at < end and is_blank(byte(data, at)):
        at += 1
    verb = find_verb(data, at, end, 1 if end == body_end else 0)
    if verb >= 0:
        return _has_argument(data, at, end, body_end, level) if level >= strictness.OWN else 1
    if level < strictness.OWN and (direction == TO_BROKER or level < strictness.FIRST):
        return _judge_text(data, at, end, body_end)
    return 0 if verb == CUT_VERB else -1


@inlined
def _judge_envelope(
    data: ByteArray, at: int, end: int, body_end: int, direction: int, level: int
) -> int:
    if direction == TO_CLIENT:
        return -1
    if end - at < 2:
        return 0 if end < body_end else -1
    size = byte(data, at + 1)
    if size > MAX_TOPIC_BYTES or size + 2 > body_end - at:
        return -1
    line = at + 2 + size
    if not _is_topic(data, at + 2, min(end, line)):
        return -1
    if end - at >= _WINDOW and end < line + 20 and end < body_end:
        return 1  # a topic so long that the word is not in the window
    if end <= line:
        return 0 if end < body_end else -1
    return _judge_word(data, line, end, body_end, direction, level)


@inlined
def _is_ok(data: ByteArray, at: int, end: int) -> bool:
    return byte(data, at) == 0x4F and (end - at < 2 or byte(data, at + 1) == 0x4B)


@inlined
def _is_error(data: ByteArray, at: int, end: int) -> bool:
    """ERROR, as far as it is there."""
    have = end - at
    if have >= 4 and be32(data, at) != 0x4552524F:
        return False
    return byte(data, at) == 0x45 and (have < 5 or byte(data, at + 4) == 0x52)


@inlined
def _is_stream_control(data: ByteArray, at: int, end: int) -> bool:
    """STREAM_CONTROL; four words of it are enough."""
    have = end - at
    if have < 15:
        return False
    return (
        be32(data, at) == 0x53545245
        and be32(data, at + 4) == 0x414D5F43
        and be32(data, at + 8) == 0x4F4E5452
        and be16(data, at + 12) == 0x4F4C
        and byte(data, at + 14) == 0x20
    )


@inlined
def _judge_answer(data: ByteArray, at: int, end: int, body_end: int, level: int) -> int:
    """An answer's first word: 1 if it is one, 0 if more bytes are needed, -1 if not."""
    have = end - at
    is_whole = end == body_end
    if _is_ok(data, at, end):
        if have < 2 or (have == 2 and not is_whole):
            return 0
        if have > 2 and not is_blank(byte(data, at + 2)):
            return -1
        return 1 if level < strictness.INSIDE else _has_argument(data, at, end, body_end, level)
    if _is_error(data, at, end) and level < strictness.INSIDE:
        if have < 6:
            return -1 if is_whole else 0
        after = byte(data, at + 5)
        return 1 if after == 0x3A or after == 0x20 else -1
    if byte(data, at) == 0x53 and have < 15 and not is_whole:
        return 0
    return 1 if _is_stream_control(data, at, end) else -1


@inlined
def _judge_json(data: ByteArray, at: int, end: int, body_end: int, direction: int) -> int:
    """An object or a list; where the direction is not known, one whose first key tells an answer.

    Those keys are status, success and error: their first four letters are enough.
    """
    if direction == TO_BROKER:
        return -1
    if end - at < 2:
        return 0 if end < body_end else -1
    first = byte(data, at)
    second = byte(data, at + 1)
    if direction == TO_CLIENT:
        if first == 0x7B:
            return 1 if second in (0x22, 0x7D) or is_blank(second) else -1
        return 1 if second in (0x7B, 0x22, 0x5D) else -1
    cursor = at + 1
    while cursor < end and is_blank(byte(data, cursor)):
        cursor += 1
    if end - cursor < 5:
        return 0 if end < body_end else -1
    key = be32(data, cursor + 1)
    is_answer = key in (_STAT, _SUCC, _ERRO)
    return 1 if first == 0x7B and byte(data, cursor) == 0x22 and is_answer else -1


@inlined
def _judge_plain(
    data: ByteArray, at: int, end: int, body_end: int, direction: int, level: int
) -> int:
    """A body that is not compressed: 1 it dispatches, 0 more bytes are needed, -1 it does not."""
    first = byte(data, at)
    if level == strictness.ALONE and first != 0xBA:
        return -1
    if first == 0xBA:
        if end - at < 2:
            return 0 if end < body_end else -1
        return _judge_batch(data, at, end, body_end) if be16(data, at) == batches.MAGIC else -1
    if first == 0x00:
        return _judge_envelope(data, at, end, body_end, direction, level)
    if first == 0x7B or first == 0x5B:
        if level >= strictness.INSIDE:
            return -1  # payloads mostly are
        return _judge_json(data, at, end, body_end, direction)
    answer = -1
    if direction != TO_BROKER:
        answer = _judge_answer(data, at, end, body_end, level)
        if answer == 1 or direction == TO_CLIENT:
            return answer
    word = _judge_word(data, at, end, body_end, direction, max(level, strictness.FIRST))
    return max(answer, word)


@inlined
def _judge_literal(
    data: ByteArray, literal: Literal, end: int, body_end: int, direction: int, level: int
) -> int:
    """A compressed body, by its literal, which must dispatch as a body."""
    if literal.at < 0:
        return -1
    if literal.at >= end:
        return 0 if end < body_end else -1
    first = byte(data, literal.at)
    if first != 0xBA and first != 0x00:
        return -1  # texts are too short to decide
    stop, level = min(end, literal.stop), max(level, strictness.FIRST)
    judged = _judge_plain(data, literal.at, stop, literal.body_end, direction, level)
    # A literal too short to judge is not a body's: compressors begin with a long one. The sizes in
    # a Pulsar frame's header would pass as such a block.
    return -1 if judged == 0 and (literal.stop <= end or end == body_end) else judged


@inlined
def _judge_body(
    data: ByteArray, at: int, end: int, body_end: int, direction: int, level: int
) -> int:
    """Whether a body of at least one byte dispatches; 1 yes, 0 more bytes are needed, -1 no."""
    if end <= at:
        return 0
    plain = _judge_plain(data, at, end, body_end, direction, level)
    if plain >= 0:
        return plain
    shape = shape_of(data, at, end)
    is_marked = shape in (BodyShape.GZIP, BodyShape.LZ4_FRAME, BodyShape.XERIAL)
    if is_marked and level < strictness.OWN:
        return 1  # other protocols compress as well, but begin with other literals
    if end - at < 8 and end < body_end and byte(data, at) in (0x1F, 0x04, 0x82):
        return 0
    if direction == TO_CLIENT:
        # Brokers of older versions answer in free text, of a digit or two at times.
        if level >= strictness.FIRST or not _is_text(data, at, end):
            return -1
        return 1 if end == body_end or end - at >= _WINDOW - 20 else 0
    literal = literal_of(data, at, end, shape)
    return _judge_literal(data, literal, end, body_end, direction, level)


@inlined
def _judge_empty(data: ByteArray, offset: int, end: int, direction: int, level: int) -> int:
    """A frame of length 0: a broker's keepalive, but four zero bytes prove nothing.

    If the direction is unknown, it is valid if the next frame with a body is.
    """
    if level >= strictness.FIRST:
        return -1
    if direction == TO_CLIENT:
        return LENGTH_BYTES
    at = offset + LENGTH_BYTES
    while end - at >= LENGTH_BYTES and at - offset < _WINDOW:
        size = be32(data, at)
        if size > MAX_CURSUS_BODY_BYTES:
            return -1
        at += LENGTH_BYTES
        if size:
            seen = min(end, at + size)
            judged = _judge_body(data, at, seen, at + size, direction, level)
            return LENGTH_BYTES if judged == 1 else judged
    return 0 if at - offset < _WINDOW else -1


def check_header(
    data: ByteArray, offset: int, end: int, direction: int, max_frame_bytes: int, is_strict: int
) -> int:
    """Judge the frame at offset; looks at no more than 64 bytes.

    Args:
        end: exclusive end of the bytes; direction: of protocols.columns; max_frame_bytes: of the
            user or of another protocol; Cursus' own limit counts if it is larger;
            is_strict: see `strictness`; ALONE: a batch with a topic, compressed or not.

    Returns:
        The bytes of the whole frame, 0 if more bytes are needed, -1 if it is none.
    """
    have = end - offset
    if have > 0 and byte(data, offset) > MAX_CURSUS_BODY_BYTES >> 24 and max_frame_bytes < 1 << 28:
        return -1
    if have < LENGTH_BYTES:
        return 0
    size = be32(data, offset)
    if size > max(max_frame_bytes - LENGTH_BYTES, MAX_CURSUS_BODY_BYTES):
        return -1
    if is_strict == strictness.CHAINED:
        return size + LENGTH_BYTES
    if size == 0:
        return _judge_empty(data, offset, end, direction, is_strict)
    at = offset + LENGTH_BYTES
    body_end = at + size
    seen = min(end, body_end, at + _WINDOW + LENGTH_BYTES)
    judged = _judge_body(data, at, seen, body_end, direction, is_strict)
    return size + LENGTH_BYTES if judged == 1 else judged


def prove_frame(data: ByteArray, offset: int, length: int) -> int:
    """Whether a whole frame's content proves it: 1 or 0. There are no checksums."""
    at = offset + LENGTH_BYTES
    end = offset + length
    shape = shape_of(data, at, end)
    if shape == BodyShape.BATCH_BODY:
        layout = batches.choose_layout(data, at, end, -1)
        return 1 if 0 <= layout < batches.LAYOUTS else 0
    if shape in (BodyShape.ENVELOPE, BodyShape.TEXT, BodyShape.JSON):
        judged = _judge_plain(data, at, end, end, UNKNOWN_DIRECTION, strictness.OWN)
    else:
        literal = literal_of(data, at, end, shape)
        judged = _judge_literal(data, literal, end, end, UNKNOWN_DIRECTION, strictness.FIRST)
    return 1 if judged == 1 else 0


@inlined
def _direction_of_batch(data: ByteArray, at: int, end: int) -> int:
    """Clients write offset 0 in every record, brokers the stored ones and always acks 1."""
    for layout in (0, 2, 3):
        head = batches.read_head(data, at, end, layout)
        if head.records_at < 0 or head.records < 0:
            continue
        first = batches.read_record(data, head.records_at, end, layout)
        if first.next < 0:
            continue
        if head.acks != 1 or head.idempotent == 1:
            return TO_BROKER
        if first.offset != 0:
            return TO_CLIENT
        if head.records > 1:
            second = batches.read_record(data, first.next, end, layout)
            if second.next >= 0:
                return TO_BROKER if second.offset == 0 else TO_CLIENT
        return UNKNOWN_DIRECTION
    return UNKNOWN_DIRECTION


def one_way(data: ByteArray, offset: int, end: int) -> int:
    """Which direction the frame at offset must have: to_broker, to_client, or unknown.

    Only clients send commands and compress; only brokers answer. An empty frame is a broker's, but
    a client's mistake looks the same.
    """
    at = offset + LENGTH_BYTES
    if end - at < 2:
        return UNKNOWN_DIRECTION
    shape = shape_of(data, at, end)
    if shape == BodyShape.BATCH_BODY:
        return _direction_of_batch(data, at, end)
    if shape in (BodyShape.ENVELOPE, BodyShape.GZIP, BodyShape.LZ4_FRAME, BodyShape.XERIAL):
        return TO_BROKER
    if shape == BodyShape.JSON:
        return TO_CLIENT
    if shape == BodyShape.TEXT:
        if _judge_answer(data, at, end, end, strictness.OWN) == 1:
            return TO_CLIENT
        if find_verb(data, at, end, 1) != NO_VERB:
            return TO_BROKER
    return UNKNOWN_DIRECTION


def announced_limit(data: ByteArray, offset: int, length: int) -> int:
    """The largest frame that any broker or client accepts, its length field included."""
    return MAX_CURSUS_BODY_BYTES + LENGTH_BYTES
