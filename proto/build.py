"""Compile PulsarApi.proto into the descriptor set that the program reads.

Only what our own text uses is understood: proto2 messages of scalar, enum and message fields with
labels, numbers and defaults, and enums, at the top level or inside a message. So the build needs
nothing but the protobuf library, which the program needs anyway.

    python proto/build.py        writes dissector/data/PulsarApi.binpb
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "PulsarApi.proto"
TARGET = FOLDER.parent / "dissector" / "data" / "PulsarApi.binpb"

_TOKEN = re.compile(r"//[^\n]*|\s+|(\"[^\"]*\"|-?\w+(?:\.\w+)*|[{}\[\]=;])")
_FIELD = descriptor_pb2.FieldDescriptorProto
_LABELS = {
    "required": _FIELD.LABEL_REQUIRED,
    "optional": _FIELD.LABEL_OPTIONAL,
    "repeated": _FIELD.LABEL_REPEATED,
}
_SCALARS = {
    "double": _FIELD.TYPE_DOUBLE,
    "int64": _FIELD.TYPE_INT64,
    "uint64": _FIELD.TYPE_UINT64,
    "int32": _FIELD.TYPE_INT32,
    "uint32": _FIELD.TYPE_UINT32,
    "bool": _FIELD.TYPE_BOOL,
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
}


def _tokens(text: str) -> Iterator[str]:
    """The words and signs of a text, without comments and spaces.

    Raises:
        ValueError: at a character that no token starts with.
    """
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"line {text.count(chr(10), 0, position) + 1}: {text[position]!r}")
        position = match.end()
        if match[1] is not None:
            yield match[1]


def _expect(tokens: Iterator[str], wanted: str) -> None:
    found = next(tokens)
    if found != wanted:
        raise ValueError(f"{wanted!r} expected, {found!r} found")


def _read_enum(tokens: Iterator[str], enum: descriptor_pb2.EnumDescriptorProto) -> None:
    enum.name = next(tokens)
    _expect(tokens, "{")
    while (name := next(tokens)) != "}":
        _expect(tokens, "=")
        enum.value.add(name=name, number=int(next(tokens)))
        _expect(tokens, ";")


def _read_field(
    tokens: Iterator[str], label: str, field: descriptor_pb2.FieldDescriptorProto
) -> None:
    field.label = _LABELS[label]
    type_name = next(tokens)
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        field.type_name = type_name  # made complete, and its kind set, once all names are known
    field.name = next(tokens)
    _expect(tokens, "=")
    field.number = int(next(tokens))
    if (sign := next(tokens)) == "[":
        _expect(tokens, "default")
        _expect(tokens, "=")
        field.default_value = next(tokens)
        _expect(tokens, "]")
        sign = next(tokens)
    if sign != ";":
        raise ValueError(f"field {field.name}: ';' expected, {sign!r} found")


def _read_message(tokens: Iterator[str], message: descriptor_pb2.DescriptorProto) -> None:
    message.name = next(tokens)
    _expect(tokens, "{")
    while (word := next(tokens)) != "}":
        if word == "enum":
            _read_enum(tokens, message.enum_type.add())
        elif word in _LABELS:
            _read_field(tokens, word, message.field.add())
        else:
            raise ValueError(f"message {message.name}: {word!r}")


def _resolve(file: descriptor_pb2.FileDescriptorProto) -> None:
    """Give every reference its full name and say whether it names an enum or a message."""
    kinds: dict[str, int] = {enum.name: _FIELD.TYPE_ENUM for enum in file.enum_type}
    for message in file.message_type:
        kinds[message.name] = _FIELD.TYPE_MESSAGE
        for enum in message.enum_type:
            kinds[f"{message.name}.{enum.name}"] = _FIELD.TYPE_ENUM
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                inner = f"{message.name}.{field.type_name}"
                name = inner if inner in kinds else field.type_name
                if name not in kinds:
                    raise ValueError(f"{message.name}.{field.name}: no type {field.type_name!r}")
                field.type = kinds[name]
                field.type_name = f".{file.package}.{name}"


def parse(text: str, name: str) -> descriptor_pb2.FileDescriptorSet:
    """The descriptor set of one proto2 text.

    Raises:
        ValueError: at anything that our own text does not use.
    """
    descriptors = descriptor_pb2.FileDescriptorSet()
    file = descriptors.file.add(name=name)
    tokens = _tokens(text)
    for word in tokens:
        if word == "syntax":
            _expect(tokens, "=")
            _expect(tokens, '"proto2"')
            _expect(tokens, ";")
        elif word == "package":
            file.package = next(tokens)
            _expect(tokens, ";")
        elif word == "enum":
            _read_enum(tokens, file.enum_type.add())
        elif word == "message":
            _read_message(tokens, file.message_type.add())
        else:
            raise ValueError(f"{word!r} at the top level")
    _resolve(file)
    return descriptors


def build() -> bytes:
    """The bytes of the descriptor set, the same on every machine."""
    descriptors = parse(SOURCE.read_text("utf-8"), SOURCE.name)
    return bytes(descriptors.SerializeToString(deterministic=True))


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(build())
    print(f"{TARGET}: {TARGET.stat().st_size} bytes", file=sys.stderr)
