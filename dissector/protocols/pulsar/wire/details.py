"""Everything a frame says, decoded by the protobuf library when somebody looks at it.

The `detail` column holds what rare commands say beyond the columns, as JSON text; `full` holds all
of a frame. Secrets do not leave this module: what authenticates is replaced by its length, and so
are values whose key means a secret and what looks like one in any text (`codecs.redaction`).
Damaged or newer messages are read as far as they go: nothing is required, and text need not be
UTF-8.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from dissector.blocks import Int64Array
from dissector.codecs.memoized import Remembered
from dissector.codecs.redaction import hidden, with_sizes
from dissector.codecs.secret_keys import Span
from dissector.codecs.suspicious_texts import BETWEEN, suspicious
from dissector.limits import MAX_DETAIL_ITEMS, MAX_DETAIL_REMEMBERED, MAX_DETAIL_TEXT
from dissector.protobuf.descriptors import descriptor_bytes, descriptors
from dissector.protocols.columns import FrameColumns
from dissector.protocols.interface import Sources
from dissector.protocols.pulsar.wire import contents
from dissector.protocols.pulsar.wire.columns import shown_paths
from dissector.protocols.pulsar.wire.commands import COMMANDS, FREQUENT, MESSAGE, SEND
from dissector.protocols.pulsar.wire.headers import MAGIC_BROKER_ENTRY, MAGIC_CHECKSUM
from dissector.protocols.pulsar.wire.plain_commands import are_plain

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
    return (
        field.type_name == "string" or contents.content_of(message, field.name) == contents.DOCUMENT
    )


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


Judge = Callable[[str, str, bytes, str], list[Span]]
"""Says where the secrets of a field of text or bytes are, by names of its message and its own, its
value, and the key of a KeyValue whose value it is."""


def _nothing(message: str, field: str, value: bytes, key: str = "") -> list[Span]:
    return []


def _judge(redact: bool) -> Judge:
    return contents.spans_of_field if redact else _nothing


def pair_text(pair: Any, redact: bool) -> str:
    """The value of a KeyValue; of one whose key means a secret only the length."""
    return _shown(_judge(redact), "KeyValue", "value", pair.value, text_of(pair.key))


def key_text(pair: Any, redact: bool) -> str:
    """The key of a KeyValue."""
    return _shown(_judge(redact), "KeyValue", "key", pair.key)


def _shown(judge: Judge, message: str, field: str, value: bytes, key: str = "") -> str:
    """A field of text, its secrets replaced by their lengths."""
    return text_of(with_sizes(value, judge(message, field, value, key)))


class _Renderer:
    """Turns messages into JSON text.

    What is done with a field is found out when it is first met at its place, and kept.
    """

    def __init__(
        self, judge: Judge, is_bounded: bool, hidden: frozenset[tuple[str, ...]] = frozenset()
    ) -> None:
        self.judge = judge
        self.is_bounded = is_bounded
        self.hidden = hidden
        self._places: dict[tuple[str, ...], dict[FieldDescriptor, _Place | None]] = {}

    def render(self, message: Message, path: tuple[str, ...] = ()) -> str:
        """A message, without the fields that have a column."""
        return _object(self.fields(message, path))

    def fields(self, message: Message, path: tuple[str, ...]) -> dict[str, str]:
        """The text of each of its fields by name, without those that have a column."""
        out: dict[str, str] = {}
        places = self._places.setdefault(path, {})
        for field, value in message.ListFields():
            try:
                place = places[field]
            except KeyError:
                place = places[field] = self._place(message, field, path)
            if place is not None:
                text = place.show(value)
                if text not in _EMPTY or not self.hidden:
                    out[place.name] = text
        return out

    def _place(
        self, message: Message, field: FieldDescriptor, path: tuple[str, ...]
    ) -> "_Place | None":
        """What to do with a field, None if it has a column."""
        inner = (*path, field.name)
        if inner in self.hidden:
            return None
        show = self._one(message.DESCRIPTOR.name, field, inner)
        if field.is_repeated:
            is_pairs = field.message_type is not None and field.message_type.name == "KeyValue"
            show = self._pairs if is_pairs else partial(self._many, show)
        return _Place(field.name, show)

    def _pairs(self, pairs: Any) -> str:
        shown = partial(_shown, self.judge, "KeyValue")
        return _object(
            {
                shown("key", pair.key): self._text(shown("value", pair.value, text_of(pair.key)))
                for pair in pairs
            }
        )

    def _many(self, show: "_Show", values: Any) -> str:
        count = len(values)
        shown = [*map(show, values[:MAX_DETAIL_ITEMS] if self.is_bounded else values)]
        if len(shown) < count:
            shown.append(f'"<{count - MAX_DETAIL_ITEMS} more>"')
        return f"[{','.join(shown)}]"

    def _one(self, message: str, field: FieldDescriptor, path: tuple[str, ...]) -> "_Show":
        """What turns one value of a field into text."""
        if field.message_type is not None:
            return partial(self.render, path=path)
        if field.type == field.TYPE_BYTES:
            return partial(self._bytes, message, field.name, _is_text(message, field.number))
        if field.enum_type is not None:
            names = {value.number: f'"{value.name}"' for value in field.enum_type.values}
            return names.__getitem__
        return _number

    def _bytes(self, message: str, field: str, is_text: bool, value: bytes) -> str:
        is_secret = (
            self.judge is not _nothing and contents.content_of(message, field) == contents.SECRET
        )
        if is_text and not is_secret:
            return self._text(_shown(self.judge, message, field, value))
        if is_secret or self.judge(message, field, value, ""):
            return f'"{hidden(len(value)).decode()}"'  # also that it is there and empty
        return f'"{value.hex()}"'

    def _text(self, text: str) -> str:
        if self.is_bounded and len(text) > MAX_DETAIL_TEXT:
            text = f"{text[:MAX_DETAIL_TEXT]}<{len(text) - MAX_DETAIL_TEXT} more>"
        return encode_basestring(text)


_Show = Callable[[Any], str]
_EMPTY: Final = ("{}", "[]")


class _Place(NamedTuple):
    """A field where it stands: its name, and what turns its value into text."""

    name: str
    show: _Show


def _object(texts: dict[str, str]) -> str:
    """An object of JSON of the texts of its members."""
    members = ",".join([f"{encode_basestring(key)}:{text}" for key, text in texts.items()])
    return f"{{{members}}}"


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'"{value}"'
    return str(value - (1 << 64) if value >= 1 << 63 else value)  # wire ids are signed everywhere


class FrameParts(NamedTuple):
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


def parts_of(frames: FrameColumns, row: int, sources: Sources) -> FrameParts:
    """The protobuf parts of the frame in a row."""
    data = sources[int(frames.source[row])].data
    at = int(frames.data_offset[row])
    end = at + int(frames.data_bytes[row])
    command, at = _piece(data, at + 4, end)
    if command is None or int(frames.command[row]) not in (SEND, MESSAGE):
        return FrameParts(command)
    broker_entry = None
    if end - at >= 6 and _magic(data, at) == MAGIC_BROKER_ENTRY:
        broker_entry, at = _piece(data, at + 2, end)
    if end - at >= 6 and _magic(data, at) == MAGIC_CHECKSUM:
        at += 6
    return FrameParts(command, broker_entry, _piece(data, at, end)[0])


def said(commands: Sequence[bytes], redact: bool) -> list[str | None]:
    """What each of some commands says beyond the columns, as JSON text; None where nothing is left
    to say.

    Texts that no field and no key gives away are looked at all at once: few hold a secret.
    """
    texts: list[bytes] = []

    def judge(message: str, field: str, value: bytes, key: str = "") -> list[Span]:
        if contents.is_secret_field(message, field, key):
            return contents.spans_of_field(message, field, value, key)
        texts.append(value)
        return []

    details: list[str | None] = []
    texts_of: list[bytes] = []
    renderer = _Renderer(judge if redact else _nothing, True, shown_paths())
    for command in commands:
        details.append(_said(command, renderer))
        texts_of.append(BETWEEN.join(texts))
        texts.clear()
    exact = _Renderer(_judge(redact), True, shown_paths())
    for index in suspicious(texts_of):
        details[index] = _said(commands[index], exact)
    return details


def _said(command: bytes, renderer: _Renderer) -> str | None:
    message = parse("BaseCommand", command)
    if message is None:
        return None
    body: dict[str, str] = {}
    for field, part in message.ListFields():
        if isinstance(part, Message):
            body |= renderer.fields(part, (field.name,))
    return _object(body) if body else None


# Only what is said without secrets is remembered: a text that shows them is made each time.
clean_details: Final = Remembered(
    partial(said, redact=True), lambda text: text is None or len(text) <= MAX_DETAIL_REMEMBERED
)


def full(frames: FrameColumns, row: int, sources: Sources, redact: bool = True) -> str | None:
    """Every decoded field of a frame as JSON text: command, broker_entry and metadata.

    Without redact, what authenticates is shown in hex or as it is. None if nothing can be decoded.
    """
    renderer = _Renderer(_judge(redact), False)
    names = ("BaseCommand", "BrokerEntryMetadata", "MessageMetadata")
    out: dict[str, str] = {}
    parts = parts_of(frames, row, sources)
    for key, name, data in zip(parts._fields, names, parts, strict=True):
        message = parse(name, data) if data is not None else None
        if message is not None:
            out[key] = renderer.render(message)
    return _object(out) if out else None


@cache
def _may_have_detail() -> tuple[bool, ...]:
    """By command number: whether a command can say anything that has no column."""
    base = descriptors().messages["BaseCommand"]
    may_have = [False] * (1 + max(command.number for command in COMMANDS))
    for command in COMMANDS:
        field = base.get(command.number)
        if field is not None and command.number not in FREQUENT:
            inner = descriptors().messages[field.of]
            may_have[command.number] = any(
                (field.name, part.name) not in shown_paths() for part in inner.values()
            )
    return tuple(may_have)


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
    if len(indexes):
        indexes = indexes[are_plain(frames, rows[indexes], sources) == 0]
    if not len(indexes):
        return None
    details: list[str | None] = [None] * len(rows)
    whole = dict(commands_of(frames, rows[indexes], sources))
    say = clean_details.all_of if redact else partial(said, redact=False)
    for index, detail in zip(indexes[list(whole)].tolist(), say([*whole.values()]), strict=True):
        details[index] = detail
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
