"""Everything a frame says, decoded by the protobuf library when somebody looks at it.

The `detail` column holds what rare commands say beyond the columns, as JSON text; `full` holds all
of a frame. Secrets do not leave this module: what authenticates is replaced by its length, and so
are values whose key means a secret and what looks like one in any text (`codecs.redaction`).
Damaged or newer messages are read as far as they go: nothing is required, and text need not be
UTF-8.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from dissector.blocks import Int64Array
from dissector.codecs.redaction import hidden, with_sizes
from dissector.codecs.remembered import Remembered
from dissector.limits import MAX_DETAIL_ITEMS, MAX_DETAIL_REMEMBERED, MAX_DETAIL_TEXT
from dissector.protobuf.descriptors import descriptor_bytes, descriptors
from dissector.protocols.columns import FrameColumns
from dissector.protocols.interface import Sources
from dissector.protocols.pulsar.wire.columns import shown_paths
from dissector.protocols.pulsar.wire.commands import COMMANDS, FREQUENT, MESSAGE, SEND
from dissector.protocols.pulsar.wire.contents import (
    DOCUMENT,
    SECRET,
    content_of,
    spans_of_field,
)
from dissector.protocols.pulsar.wire.headers import MAGIC_BROKER_ENTRY, MAGIC_CHECKSUM

_PACKAGE: Final = "pulsar.proto."


@cache
def _classes() -> dict[str, type[Message]]:
    """The classes of all messages by name: no field is required, and text is bytes.

    The library makes those of inner messages when they are first met, and its garbage collection
    takes them away again, in whatever thread: here they are all held from the beginning.
    """
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(descriptor_bytes()).file
    for message in file.message_type:
        for field in message.field:
            if field.label == field.LABEL_REQUIRED:
                field.label = field.LABEL_OPTIONAL
            if field.type == field.TYPE_STRING:
                field.type = field.TYPE_BYTES
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(_PACKAGE + name))
        for name in descriptors().messages
    }


@cache
def _is_text(message: str, number: int) -> bool:
    field = descriptors().messages[message][number]
    return field.type_name == "string" or content_of(message, field.name) == DOCUMENT


def parse(message: str, data: bytes) -> Message | None:
    """A message read as far as its labels allow; None if the bytes are not protobuf."""
    made = _classes()[message]()
    try:
        made.MergeFromString(data)
    except DecodeError:
        return None
    return made


def text_of(value: bytes) -> str:
    """Bytes as text; what is not UTF-8 becomes \\xNN."""
    return value.decode("utf-8", "backslashreplace")


def pair_text(pair: Any, redact: bool) -> str:
    """The value of a KeyValue; of one whose key means a secret only the length."""
    return _shown("KeyValue", "value", pair.value, redact, text_of(pair.key))


def key_text(pair: Any, redact: bool) -> str:
    """The key of a KeyValue."""
    return _shown("KeyValue", "key", pair.key, redact)


def _shown(message: str, field: str, value: bytes, redact: bool, key: str = "") -> str:
    """A field of text, its secrets replaced by their lengths."""
    return text_of(
        with_sizes(value, spans_of_field(message, field, value, key)) if redact else value
    )


class _Renderer:
    """Turns messages into plain values for JSON."""

    def __init__(
        self, redact: bool, is_bounded: bool, hidden: frozenset[tuple[str, ...]] = frozenset()
    ) -> None:
        self.redact = redact
        self.is_bounded = is_bounded
        self.hidden = hidden

    def render(self, message: Message, path: tuple[str, ...] = ()) -> dict[str, Any]:
        """The fields of a message by name, without those that have a column."""
        out: dict[str, Any] = {}
        for field, value in message.ListFields():
            inner = (*path, field.name)
            if inner not in self.hidden:
                if field.is_repeated:
                    rendered = self._many(message, field, value, inner)
                else:
                    rendered = self._one(message, field, value, inner)
                if rendered not in ({}, []) or not self.hidden:
                    out[field.name] = rendered
        return out

    def _many(
        self, message: Message, field: FieldDescriptor, values: Any, path: tuple[str, ...]
    ) -> Any:
        if field.message_type is not None and field.message_type.name == "KeyValue":
            return {key_text(pair, self.redact): self._pair_value(pair) for pair in values}
        count = len(values)
        if self.is_bounded and count > MAX_DETAIL_ITEMS:
            shown = [self._one(message, field, values[k], path) for k in range(MAX_DETAIL_ITEMS)]
            return [*shown, f"<{count - MAX_DETAIL_ITEMS} more>"]
        return [self._one(message, field, value, path) for value in values]

    def _pair_value(self, pair: Any) -> str:
        return self._text(pair_text(pair, self.redact))

    def _one(
        self, message: Message, field: FieldDescriptor, value: Any, path: tuple[str, ...]
    ) -> Any:
        if isinstance(value, Message):
            return self.render(value, path)
        if isinstance(value, bytes):
            name = message.DESCRIPTOR.name
            if self.redact and content_of(name, field.name) == SECRET:
                return hidden(len(value)).decode()  # also that it is there and empty
            if _is_text(name, field.number):
                return self._text(_shown(name, field.name, value, self.redact))
            has_secret = self.redact and spans_of_field(name, field.name, value)
            return hidden(len(value)).decode() if has_secret else value.hex()
        if field.enum_type is not None:
            return field.enum_type.values_by_number[value].name
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, int) and value >= 1 << 63:
            return value - (1 << 64)  # wire ids are signed everywhere
        return value

    def _text(self, text: str) -> str:
        if self.is_bounded and len(text) > MAX_DETAIL_TEXT:
            return f"{text[:MAX_DETAIL_TEXT]}<{len(text) - MAX_DETAIL_TEXT} more>"
        return text


# `json.dumps` would make an encoder for each text.
_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Parts(NamedTuple):
    """The protobuf parts of a frame that are whole; empty where there is none."""

    command: bytes | None = None
    broker_entry: bytes | None = None
    metadata: bytes | None = None


def _piece(data: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    """The bytes behind a size at offset, and where they end; None if they are not all there."""
    if end - at < 4:
        return None, end
    size = int.from_bytes(data[at : at + 4])
    if size > end - at - 4:
        return None, end
    return data[at + 4 : at + 4 + size].tobytes(), at + 4 + size


def _magic(data: memoryview, at: int) -> int:
    # Not by the kernels' loads: called from here they would cost a tenth of a second to compile.
    return int.from_bytes(data[at : at + 2])


def commands_of(
    frames: FrameColumns, rows: Int64Array, sources: Sources
) -> Iterator[tuple[int, bytes]]:
    """The protobuf command of each chosen frame where it is whole, behind its index in rows."""
    columns = frames.source, frames.data_offset, frames.data_bytes
    chosen = zip(*(column[rows].tolist() for column in columns), strict=True)
    data = [source.data for source in sources]
    for index, (source, at, size) in enumerate(chosen):
        command, _ = _piece(data[source], at + 4, at + size)
        if command is not None:
            yield index, command


def parts_of(frames: FrameColumns, row: int, sources: Sources) -> Parts:
    """The protobuf parts of the frame in a row."""
    data = sources[int(frames.source[row])].data
    at = int(frames.data_offset[row])
    end = at + int(frames.data_bytes[row])
    command, at = _piece(data, at + 4, end)
    if command is None or int(frames.command[row]) not in (SEND, MESSAGE):
        return Parts(command)
    broker_entry = None
    if end - at >= 6 and _magic(data, at) == MAGIC_BROKER_ENTRY:
        broker_entry, at = _piece(data, at + 2, end)
    if end - at >= 6 and _magic(data, at) == MAGIC_CHECKSUM:
        at += 6
    return Parts(command, broker_entry, _piece(data, at, end)[0])


def said(command: bytes, redact: bool) -> str | None:
    """What a command says beyond the columns, as JSON text; None where nothing is left to say."""
    message = parse("BaseCommand", command)
    if message is None:
        return None
    rendered = _Renderer(redact, True, shown_paths()).render(message)
    rendered.pop("type", None)
    body: dict[str, Any] = {}
    for part in rendered.values():
        body |= part
    return _dump(body) if body else None


# Only what is said without secrets is remembered: a text that shows them is made each time.
clean_detail: Final = Remembered(
    partial(said, redact=True), lambda text: text is None or len(text) <= MAX_DETAIL_REMEMBERED
)


def full(frames: FrameColumns, row: int, sources: Sources, redact: bool = True) -> str | None:
    """Every decoded field of a frame as JSON text: command, broker_entry and metadata.

    Without redact, what authenticates is shown in hex or as it is. None if nothing can be decoded.
    """
    renderer = _Renderer(redact, False)
    names = ("BaseCommand", "BrokerEntryMetadata", "MessageMetadata")
    out: dict[str, Any] = {}
    parts = parts_of(frames, row, sources)
    for key, name, data in zip(parts._fields, names, parts, strict=True):
        message = parse(name, data) if data is not None else None
        if message is not None:
            out[key] = renderer.render(message)
    return _dump(out) if out else None


@cache
def _may_have_detail() -> tuple[bool, ...]:
    """By command number: whether a command can say anything that has no column."""
    base = descriptors().messages["BaseCommand"]
    found = [False] * (1 + max(command.number for command in COMMANDS))
    for command in COMMANDS:
        field = base.get(command.number)
        if field is not None and command.number not in FREQUENT:
            inner = descriptors().messages[field.of]
            found[command.number] = any(
                (field.name, part.name) not in shown_paths() for part in inner.values()
            )
    return tuple(found)


def rare_details(
    frames: FrameColumns, rows: Int64Array, sources: Sources, redact: bool
) -> Sequence[str | None] | None:
    """The detail of chosen rows: what rare commands say beyond the columns, as JSON text.

    None for the commands that come in masses, for unknown ones and where nothing is left to say;
    None for all if none of them can have any. Masses of plain frames cost little.
    """
    may_have = np.array(_may_have_detail())
    commands = frames.command[rows]
    is_known = (commands >= 0) & (commands < len(may_have))
    indexes = np.flatnonzero(may_have[np.where(is_known, commands, 0)] & is_known)
    if not len(indexes):
        return None
    details: list[str | None] = [None] * len(rows)
    say = clean_detail if redact else partial(said, redact=False)
    chosen = indexes.tolist()
    for number, command in commands_of(frames, rows[indexes], sources):
        details[chosen[number]] = say(command)
    return details


def full_details(
    frames: FrameColumns, rows: Int64Array, sources: Sources, redact: bool
) -> Sequence[str | None] | None:
    """Everything that chosen rows say."""
    return [full(frames, row, sources, redact) for row in rows.tolist()]


def no_details(
    frames: FrameColumns, rows: Int64Array, sources: Sources, redact: bool
) -> Sequence[str | None] | None:
    """Nothing, for readers that do not look at it."""
    return None


# By what the option `detail` says.
DETAILS: Final[
    dict[str, Callable[[FrameColumns, Int64Array, Sources, bool], Sequence[str | None] | None]]
] = {"none": no_details, "rare": rare_details, "all": full_details}
