"""Runs a plan over byte spans: protobuf fields straight into columns, no objects between.

Known fields of another wire type than theirs are skipped, unknown ones are counted; where a field
comes twice the last one counts, as protobuf has it. Groups, which Pulsar never used, are malformed.
"""

import enum
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle
from dissector.codecs.integers import Varint, byte, decimal, varint, wrapped
from dissector.codecs.names import NameColumns, intern
from dissector.jit import inlined, kernel
from dissector.limits import MAX_IDS_PER_ACK, MAX_NESTING, NULL
from dissector.protobuf import odd_fields as protobuf_odd_fields
from dissector.protobuf import plan as protobuf_plan
from dissector.protobuf.plan import FieldPlan, PairValue, StepKind


class SpanResult(enum.IntEnum):
    """What became of a span."""

    READ = 0
    BAD = 1  # not protobuf; fields before the defect are filled
    LIMITED = 2  # read, but ids or words above MAX_IDS_PER_ACK were left out
    FULL = 3  # no room for its ids or words; nothing of it counts, the caller makes room


# Places in Output.used.
USED_IDS: Final = 0
USED_WORDS: Final = 1
_WORDS_BEFORE: Final = 2
_IDS_BEFORE: Final = 3

_INT32_SIGN: Final = 0x8000_0000
_UINT32_BITS: Final = 0xFFFF_FFFF
_MAX_FIELD_NUMBER: Final = (1 << 29) - 1
_WIRE_TYPES: Final = 0b10_0111  # varint, eight bytes, length, four bytes
_NO_MORE: Final = -1
_NO_ROOM: Final = -2


class SpanColumns(Bundle):
    """Byte spans to be read; int64[rows] each.

    row: of the matrix that is filled.
    source: which byte array.
    at, end: the span's bytes there.
    root: root node of the plan.
    status: set by scan, READ, BAD or LIMITED.
    """

    row: Int64Array
    source: Int64Array
    at: Int64Array
    end: Int64Array
    root: Int64Array
    status: Int64Array


class Span(NamedTuple):
    """One byte span and the plan's root node for it."""

    at: int
    end: int
    root: int


class ScanOutput(NamedTuple):
    """Where a walk writes.

    cells: int64[columns, rows].
    ids: int64[child columns, capacity], the children.
    words: int64[capacity].
    used: int64[4], see USED_*.
    stack: int64[2, MAX_NESTING].
    names: text as codes.
    odd_here, odd_fields: fields that no message of the plan has, see `odd_fields`.
    """

    cells: Int64Array
    ids: Int64Array
    words: Int64Array
    used: Int64Array
    stack: Int64Array
    names: NameColumns
    odd_here: Int64Array
    odd_fields: Int64Array


class WireField(NamedTuple):
    """A field: wire type, varint value or number of bytes, and where the value's bytes start."""

    number: int
    wire: int
    value: int
    next: int


class Cell(NamedTuple):
    """The row of the matrix, and of the children, that fields go to."""

    row: int
    child: int


def new_output(matrix: Int64Array, child_columns: int, names: NameColumns) -> ScanOutput:
    """Where a walk writes, with some room for children."""
    return ScanOutput(
        cells=matrix,
        ids=np.full((child_columns, 4096), NULL, np.int64),
        words=np.zeros(4096, np.int64),
        used=np.zeros(4, np.int64),
        stack=np.zeros((2, MAX_NESTING), np.int64),
        names=names,
        odd_here=np.zeros(protobuf_odd_fields.SPAN_ROOM, np.int64),
        odd_fields=protobuf_odd_fields.new_odd_fields(),
    )


def doubled(out: ScanOutput) -> ScanOutput:
    """The same with twice the room for ids and words."""
    ids = np.full((out.ids.shape[0], 2 * out.ids.shape[1]), NULL, np.int64)
    ids[:, : out.ids.shape[1]] = out.ids
    words = np.zeros(2 * len(out.words), np.int64)
    words[: len(out.words)] = out.words
    return out._replace(ids=ids, words=words)


@inlined
def _short_varint(data: ByteArray, at: int, end: int) -> Varint:
    """As varint(), with two bytes handled in place too."""
    if end - at >= 2:
        first = byte(data, at)
        if first < 0x80:
            return Varint(first, at + 1)
        second = byte(data, at + 1)
        if second < 0x80:
            return Varint((first & 0x7F) | (second << 7), at + 2)
    return varint(data, at, end)


@inlined
def _long_varint(data: ByteArray, at: int, end: int) -> Varint:
    """As varint(), in place; for values, which often have three to six bytes."""
    value = 0
    shift = 0
    behind = -1
    while at < end and shift < 70:
        part = byte(data, at)
        at += 1
        value |= (part & 0x7F) << shift
        if part < 0x80:
            behind = at
            break
        shift += 7
    return Varint(wrapped(value), behind)


@inlined
def next_field(data: ByteArray, at: int, end: int) -> WireField:
    """The field at offset, with its value or the length of its bytes; next is -1 if malformed."""
    tag = _short_varint(data, at, end)
    number = tag.value >> 3
    wire = tag.value & 7
    if tag.next < 0 or not 0 < number <= _MAX_FIELD_NUMBER or (_WIRE_TYPES >> wire) & 1 == 0:
        return WireField(0, 0, 0, -1)
    if wire & 1:  # eight or four bytes, such as a double; no wanted field is one
        behind = tag.next + (8 if wire == 1 else 4)
        return WireField(number, wire, 0, behind if behind <= end else -1)
    value = _long_varint(data, tag.next, end)
    if value.next < 0 or (wire == 2 and not 0 <= value.value <= end - value.next):
        return WireField(0, 0, 0, -1)
    return WireField(number, wire, value.value, value.next)


@inlined
def _put(out: ScanOutput, cell: Cell, step: int, shift: int, value: int) -> None:
    column = (step >> shift) & protobuf_plan.ARGUMENT_BITS
    if step & protobuf_plan.IN_CHILD:
        out.ids[column, cell.child] = value
    else:
        out.cells[column, cell.row] = value


@inlined
def _get(out: ScanOutput, cell: Cell, step: int, shift: int) -> int:
    column = (step >> shift) & protobuf_plan.ARGUMENT_BITS
    return int(
        out.ids[column, cell.child]
        if step & protobuf_plan.IN_CHILD
        else out.cells[column, cell.row]
    )


@inlined
def _put_number(out: ScanOutput, cell: Cell, step: int, value: int) -> None:
    """A varint as its field's type has it."""
    kind = step & protobuf_plan.KIND_BITS
    if kind == StepKind.BOOL:
        value = 1 if value != 0 else 0
    elif kind != StepKind.INT64:
        value &= _UINT32_BITS
        if kind != StepKind.UINT32 and value >= _INT32_SIGN:
            value -= _UINT32_BITS + 1
    null = (step >> protobuf_plan.NULL_SHIFT) & protobuf_plan.NULL_BITS
    if null != 0 and value == null - 2:
        value = NULL
    _put(out, cell, step, protobuf_plan.FIRST_SHIFT, value)
    if kind == StepKind.COUNTED:
        _put(out, cell, step, protobuf_plan.SECOND_SHIFT, 1)


@inlined
def _put_word(out: ScanOutput, cell: Cell, step: int, value: int) -> SpanResult:
    """One more element of a repeated int64: READ, LIMITED or FULL."""
    used = out.used[USED_WORDS]
    if used - out.used[_WORDS_BEFORE] >= MAX_IDS_PER_ACK:
        return SpanResult.LIMITED
    if used >= len(out.words):
        return SpanResult.FULL
    count = _get(out, cell, step, protobuf_plan.SECOND_SHIFT)
    if count == NULL:
        _put(out, cell, step, protobuf_plan.FIRST_SHIFT, used)
        count = 0
    out.words[used] = value
    out.used[USED_WORDS] = used + 1
    _put(out, cell, step, protobuf_plan.SECOND_SHIFT, count + 1)
    return SpanResult.READ


@kernel
def _put_words(out: ScanOutput, cell: Cell, step: int, data: ByteArray, span: Span) -> SpanResult:
    """A packed repeated int64: READ, BAD, LIMITED or FULL."""
    at = span.at
    status = SpanResult.READ
    while at < span.end:
        value = varint(data, at, span.end)
        if value.next < 0:
            return SpanResult.BAD
        at = value.next
        result = _put_word(out, cell, step, value.value)
        if result == SpanResult.FULL:
            return SpanResult.FULL
        status = max(status, result)
    return status


@inlined
def _put_pair_value(
    out: ScanOutput, row: int, pair: Int64Array, data: ByteArray, value: Span
) -> None:
    """The value of a known key to its column; text that is no number leaves it null."""
    out.cells[pair[protobuf_plan.PAIR_FLAG], row] = (
        max(out.cells[pair[protobuf_plan.PAIR_FLAG], row], 0) | pair[protobuf_plan.PAIR_BIT]
    )
    if (
        pair[protobuf_plan.PAIR_KIND] != PairValue.DECIMAL
        and pair[protobuf_plan.PAIR_KIND] != PairValue.POSITION
    ):
        out.cells[pair[protobuf_plan.PAIR_COLUMN], row] = intern(
            out.names, data, value.at, value.end - value.at
        )
        return
    first = decimal(data, value.at, value.end)
    if pair[protobuf_plan.PAIR_KIND] == PairValue.DECIMAL:
        if first.next == value.end:
            out.cells[pair[protobuf_plan.PAIR_COLUMN], row] = first.value
    elif 0 < first.next < value.end and byte(data, first.next) == 0x3A:
        second = decimal(data, first.next + 1, value.end)
        if second.next == value.end:
            out.cells[pair[protobuf_plan.PAIR_COLUMN], row] = first.value
            out.cells[pair[protobuf_plan.PAIR_SECOND], row] = second.value


@inlined
def _is_key(plan: FieldPlan, pair: Int64Array, data: ByteArray, key: Span) -> bool:
    length = key.end - key.at
    if pair[protobuf_plan.PAIR_KEY_BYTES] != length:
        return False
    for k in range(length):
        if byte(data, key.at + k) != byte(plan.text, pair[protobuf_plan.PAIR_KEY_AT] + k):
            return False
    return True


@kernel
def _put_pair(
    plan: FieldPlan, out: ScanOutput, cell: Cell, step: int, data: ByteArray, span: Span
) -> SpanResult:
    """A KeyValue whose key may have a column: READ or BAD."""
    key = Span(span.at, span.at, 0)
    value = Span(span.at, span.at, 0)
    at = span.at
    while at < span.end:
        field = next_field(data, at, span.end)
        if field.next < 0:
            return SpanResult.BAD
        at = field.next
        if field.wire == 2:
            at += field.value
            if field.number == 1:
                key = Span(field.next, at, 0)
            elif field.number == 2:
                value = Span(field.next, at, 0)
    first = (step >> protobuf_plan.FIRST_SHIFT) & protobuf_plan.ARGUMENT_BITS
    for number in range(
        first, first + ((step >> protobuf_plan.SECOND_SHIFT) & protobuf_plan.ARGUMENT_BITS)
    ):
        pair = plan.pairs[:, number]
        if _is_key(plan, pair, data, key):
            _put_pair_value(out, cell.row, pair, data, value)
    return SpanResult.READ


@inlined
def _put_bytes(
    plan: FieldPlan, out: ScanOutput, cell: Cell, step: int, data: ByteArray, span: Span
) -> SpanResult:
    """A field with a length that is no nested message: READ, BAD, LIMITED or FULL."""
    kind = step & protobuf_plan.KIND_BITS
    if kind == StepKind.NAME:
        code = intern(out.names, data, span.at, span.end - span.at)
        _put(out, cell, step, protobuf_plan.FIRST_SHIFT, code)
    elif kind == StepKind.SPAN:
        _put(out, cell, step, protobuf_plan.FIRST_SHIFT, span.at)
        _put(out, cell, step, protobuf_plan.SECOND_SHIFT, span.end - span.at)
    elif kind == StepKind.PAIR:
        return _put_pair(plan, out, cell, step, data, span)
    elif kind == StepKind.PRESENT:
        _put(out, cell, step, protobuf_plan.FIRST_SHIFT, 1)
    elif kind == StepKind.WORD:
        return _put_words(out, cell, step, data, span)
    return SpanResult.READ


@inlined
def _new_child(out: ScanOutput, row: int, step: int) -> int:
    """The row of a new child, all null; _NO_MORE if the rest is left out, _NO_ROOM if FULL."""
    used = out.used[USED_IDS]
    if used - out.used[_IDS_BEFORE] >= MAX_IDS_PER_ACK:
        return _NO_MORE
    if used >= out.ids.shape[1]:
        return _NO_ROOM
    first = (step >> protobuf_plan.SECOND_SHIFT) & protobuf_plan.ARGUMENT_BITS
    count = used - out.used[_IDS_BEFORE]
    if count == 0:
        out.cells[first, row] = used
    out.cells[first + 1, row] = count + 1
    out.ids[0, used] = row
    for column in range(1, out.ids.shape[0]):
        out.ids[column, used] = NULL
    out.used[USED_IDS] = used + 1
    return int(used)


@inlined
def _put_defaults(plan: FieldPlan, out: ScanOutput, row: int, node: int) -> None:
    first = plan.nodes[protobuf_plan.NODE_DEFAULTS, node]
    for number in range(first, first + plan.nodes[protobuf_plan.NODE_DEFAULT_COUNT, node]):
        out.cells[plan.defaults[0, number], row] = plan.defaults[1, number]


@inlined
def _put_value(
    plan: FieldPlan, out: ScanOutput, cell: Cell, step: int, data: ByteArray, field: WireField
) -> SpanResult:
    """A field that is no nested message to its column: READ, BAD, LIMITED or FULL."""
    kind = step & protobuf_plan.KIND_BITS
    if field.wire == 2:
        if kind < StepKind.WORD:
            return SpanResult.READ
        span = Span(field.next, field.next + field.value, 0)
        return _put_bytes(plan, out, cell, step, data, span)
    if field.wire == 0 and kind < StepKind.WORD:
        _put_number(out, cell, step, field.value)
    elif field.wire == 0 and kind == StepKind.WORD:
        return _put_word(out, cell, step, field.value)
    return SpanResult.READ


@inlined
def walk(plan: FieldPlan, out: ScanOutput, row: int, data: ByteArray, span: Span) -> SpanResult:
    """Read one span into one row.

    Returns:
        READ, BAD, LIMITED, or FULL: then ids and words are as before.
    """
    out.used[_IDS_BEFORE] = out.used[USED_IDS]
    out.used[_WORDS_BEFORE] = out.used[USED_WORDS]
    out.odd_here[protobuf_odd_fields.ODD_FIELDS_HERE] = 0
    at = span.at
    end = span.end
    node = span.root
    child = -1
    depth = 0
    status = SpanResult.READ
    base = plan.nodes[protobuf_plan.NODE_BASE, node]
    limit = plan.nodes[protobuf_plan.NODE_LIMIT, node]
    _put_defaults(plan, out, row, node)
    while True:
        if at >= end:
            if depth == 0:
                break
            depth -= 1
            end = out.stack[0, depth]
            node = out.stack[1, depth]
            base = plan.nodes[protobuf_plan.NODE_BASE, node]
            limit = plan.nodes[protobuf_plan.NODE_LIMIT, node]
            continue
        field = next_field(data, at, end)
        if field.next < 0:
            status = SpanResult.BAD
            break
        at = field.next
        step = plan.steps[base + field.number] if field.number <= limit else StepKind.SKIP
        kind = step & protobuf_plan.KIND_BITS
        if field.wire == 2 and (kind in (StepKind.NESTED, StepKind.CHILD)):
            made = _new_child(out, row, step) if kind == StepKind.CHILD else child
            if kind == StepKind.NESTED or made >= 0:
                child = made
                out.stack[0, depth] = end
                out.stack[1, depth] = node
                depth += 1
                node = (step >> protobuf_plan.FIRST_SHIFT) & protobuf_plan.ARGUMENT_BITS
                end = at + field.value
                base = plan.nodes[protobuf_plan.NODE_BASE, node]
                limit = plan.nodes[protobuf_plan.NODE_LIMIT, node]
                _put_defaults(plan, out, row, node)
                continue
            result = SpanResult.LIMITED if made == _NO_MORE else SpanResult.FULL
        else:
            result = SpanResult.READ
            if step == StepKind.SKIP:
                protobuf_odd_fields.keep_odd_field(out.odd_here, node, field.number)
            elif step != StepKind.UNWANTED:
                result = _put_value(plan, out, Cell(row, child), step, data, field)
        if result in (SpanResult.BAD, SpanResult.FULL):
            status = result
            break
        status = max(status, result)
        if field.wire == 2:
            at += field.value
    if status == SpanResult.FULL:
        out.used[USED_IDS] = out.used[_IDS_BEFORE]
        out.used[USED_WORDS] = out.used[_WORDS_BEFORE]
    elif status != SpanResult.BAD and out.odd_here[protobuf_odd_fields.ODD_FIELDS_HERE] > 0:
        protobuf_odd_fields.count_odd_fields(out.odd_fields, out.odd_here, row)
    return status


@kernel
def scan(
    plan: FieldPlan,
    out: ScanOutput,
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray],
    spans: SpanColumns,
    first: int,
    count: int,
) -> int:
    """Read spans first to count - 1 into the rows that they name; writes spans.status.

    Returns:
        The next span: count if all are read, else one for whose ids or words there is no room. The
        caller makes room (`doubled`) and calls again from there.
    """
    for index in range(first, count):
        data = sources[spans.source[index]]
        span = Span(spans.at[index], spans.end[index], spans.root[index])
        status = walk(plan, out, spans.row[index], data, span)
        if status == SpanResult.FULL:
            return index
        spans.status[index] = status
    return count
