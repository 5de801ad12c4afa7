"""All fields of a frame as JSON text, decoded on demand by the protobuf library.

The column `detail` has the fields of rare commands that have no column; `full` returns all fields.
Secrets do not leave this module: credentials are replaced by their length, and so are values whose
key means a secret, and texts that look like one (`codecs.redaction`). Damaged or newer messages are
parsed as far as possible: no field is required, and text need not be UTF-8.
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

    The library creates classes of inner messages on first use, and garbage collection may free them
    in any thread: this holds them all from the start.
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
    """Parse a message; None if the bytes are not protobuf."""
    parsed = _classes()[message]()
    try:
        parsed.MergeFromString(data)
    except DecodeError:
        return None
    return parsed


def text_of(value: bytes) -> str:
    """Bytes as text; bytes that are not UTF-8 become \\xNN."""
    return value.decode("utf-8", "backslashreplace")


SecretFinder = Callable[[str, str, bytes, str], list[Span]]
"""(message, field, value, key) -> byte ranges of secrets in a field's value; key: of a KeyValue,
else empty."""


def _no_secrets(message: str, field: str, value: bytes, key: str = "") -> list[Span]:
    return []


def _secret_finder(redact: bool) -> SecretFinder:
    return contents.spans_of_field if redact else _no_secrets


def pair_text(pair: Any, redact: bool) -> str:
    """The value of a KeyValue; only its length if the key means a secret."""
    return _shown(_secret_finder(redact), "KeyValue", "value", pair.value, text_of(pair.key))


def key_text(pair: Any, redact: bool) -> str:
    """The key of a KeyValue."""
    return _shown(_secret_finder(redact), "KeyValue", "key", pair.key)


def _shown(secrets_of: SecretFinder, message: str, field: str, value: bytes, key: str = "") -> str:
    """A text field with its secrets replaced by their lengths."""
    return text_of(with_sizes(value, secrets_of(message, field, value, key)))


class _Renderer:
    """Turns messages into JSON text; the renderer of each field is cached by its path."""

    def __init__(
        self,
        secrets_of: SecretFinder,
        is_bounded: bool,
        hidden: frozenset[tuple[str, ...]] = frozenset(),
    ) -> None:
        self.secrets_of = secrets_of
        self.is_bounded = is_bounded
        self.hidden = hidden
        self._renderers: dict[tuple[str, ...], dict[FieldDescriptor, _FieldRenderer | None]] = {}

    def render(self, message: Message, path: tuple[str, ...] = ()) -> str:
        """The JSON of a message, without the fields that have a column."""
        return _object(self.fields(message, path))

    def fields(self, message: Message, path: tuple[str, ...]) -> dict[str, str]:
        """The JSON of each field of a message by name, without the fields that have a column."""
        out: dict[str, str] = {}
        renderers = self._renderers.setdefault(path, {})
        for field, value in message.ListFields():
            try:
                renderer = renderers[field]
            except KeyError:
                renderer = renderers[field] = self._field_renderer(message, field, path)
            if renderer is not None:
                text = renderer.show(value)
                if text not in _EMPTY or not self.hidden:
                    out[renderer.name] = text
        return out

    def _field_renderer(
        self, message: Message, field: FieldDescriptor, path: tuple[str, ...]
    ) -> "_FieldRenderer | None":
        """The renderer of a field, None if it has a column."""
        inner = (*path, field.name)
        if inner in self.hidden:
            return None
        show = self._value_renderer(message.DESCRIPTOR.name, field, inner)
        if field.is_repeated:
            is_pairs = field.message_type is not None and field.message_type.name == "KeyValue"
            show = self._pairs if is_pairs else partial(self._many, show)
        return _FieldRenderer(field.name, show)

    def _pairs(self, pairs: Any) -> str:
        shown = partial(_shown, self.secrets_of, "KeyValue")
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

    def _value_renderer(
        self, message: str, field: FieldDescriptor, path: tuple[str, ...]
    ) -> "_Show":
        """The function that turns one value of a field into JSON."""
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
            self.secrets_of is not _no_secrets
            and contents.content_of(message, field) == contents.SECRET
        )
        if is_text and not is_secret:
            return self._text(_shown(self.secrets_of, message, field, value))
        if is_secret or self.secrets_of(message, field, value, ""):
            return f'"{hidden(len(value)).decode()}"'  # also for an empty one
        return f'"{value.hex()}"'

    def _text(self, text: str) -> str:
        if self.is_bounded and len(text) > MAX_DETAIL_TEXT:
            text = f"{text[:MAX_DETAIL_TEXT]}<{len(text) - MAX_DETAIL_TEXT} more>"
        return encode_basestring(text)


_Show = Callable[[Any], str]
_EMPTY: Final = ("{}", "[]")


class _FieldRenderer(NamedTuple):
    """A field at a path: its name, and the function that turns its value into JSON."""

    name: str
    show: _Show


def _object(texts: dict[str, str]) -> str:
    """A JSON object of members that are JSON texts already."""
    members = ",".join([f"{encode_basestring(key)}:{text}" for key, text in texts.items()])
    return f"{{{members}}}"


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'"{value}"'
    return str(value - (1 << 64) if value >= 1 << 63 else value)  # wire ids are signed everywhere


class FrameParts(NamedTuple):
    """The whole protobuf parts of a frame; None for a part that is missing or cut."""

    command: bytes | None = None
    broker_entry: bytes | None = None
    metadata: bytes | None = None


def _piece(data: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    """The bytes behind the size at an offset, and their end; None if they are cut."""
    if end - at < 4:
        return None, end
    size = int.from_bytes(data[at : at + 4])
    if size > end - at - 4:
        return None, end
    return data[at + 4 : at + 4 + size].tobytes(), at + 4 + size


def _magic(data: memoryview, at: int) -> int:
    # Without the kernels' loads: called from here they would cost a tenth of a second to compile.
    return int.from_bytes(data[at : at + 2])


def commands_of(
    frames: FrameColumns, rows: Int64Array, sources: Sources
) -> Iterator[tuple[int, bytes]]:
    """Pairs of an index in rows and the protobuf command of that frame, if it is whole."""
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


def details_of(commands: Sequence[bytes], redact: bool) -> list[str | None]:
    """The fields without a column of each command, as JSON text; None if there are none.

    Texts whose field and key mean no secret are searched for secrets all at once: few have one.
    """
    texts: list[bytes] = []

    def secrets_of(message: str, field: str, value: bytes, key: str = "") -> list[Span]:
        if contents.is_secret_field(message, field, key):
            return contents.spans_of_field(message, field, value, key)
        texts.append(value)
        return []

    details: list[str | None] = []
    texts_of: list[bytes] = []
    renderer = _Renderer(secrets_of if redact else _no_secrets, True, shown_paths())
    for command in commands:
        details.append(_detail_of(command, renderer))
        texts_of.append(BETWEEN.join(texts))
        texts.clear()
    exact = _Renderer(_secret_finder(redact), True, shown_paths())
    for index in suspicious(texts_of):
        details[index] = _detail_of(commands[index], exact)
    return details


def _detail_of(command: bytes, renderer: _Renderer) -> str | None:
    message = parse("BaseCommand", command)
    if message is None:
        return None
    body: dict[str, str] = {}
    for field, part in message.ListFields():
        if isinstance(part, Message):
            body |= renderer.fields(part, (field.name,))
    return _object(body) if body else None


# Only redacted texts are cached: a text with secrets is rendered each time.
clean_details: Final = Remembered(
    partial(details_of, redact=True),
    lambda text: text is None or len(text) <= MAX_DETAIL_REMEMBERED,
)


def full(frames: FrameColumns, row: int, sources: Sources, redact: bool = True) -> str | None:
    """Every decoded field of a frame as JSON text: command, broker_entry and metadata.

    Without redact, credentials are shown in hex or as text. None if nothing can be decoded.
    """
    renderer = _Renderer(_secret_finder(redact), False)
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
    """By command number: whether a command may have a field without a column."""
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
    """The detail of chosen rows: the fields of rare commands without a column, as JSON text.

    None for FREQUENT and unknown commands and if there are no such fields; None instead of a list
    if no row can have any. Many plain frames cost little.
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
    render = clean_details.all_of if redact else partial(details_of, redact=False)
    for index, detail in zip(indexes[list(whole)].tolist(), render([*whole.values()]), strict=True):
        details[index] = detail
    return details


def full_details(
    frames: FrameColumns, rows: Int64Array, sources: Sources, redact: bool
) -> Sequence[str | None] | None:
    """All fields of chosen rows, as JSON text."""
    return [full(frames, row, sources, redact) for row in rows.tolist()]


def no_details(
    frames: FrameColumns, rows: Int64Array, sources: Sources, redact: bool
) -> Sequence[str | None] | None:
    """No detail, for readers that do not need it."""
    return None


# By the value of the option `detail`.
DETAILS: Final[
    dict[str, Callable[[FrameColumns, Int64Array, Sources, bool], Sequence[str | None] | None]]
] = {"none": no_details, "rare": rare_details, "all": full_details}
