"""The messages and enums of the package's descriptor set, as plain tables."""

from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from google.protobuf import descriptor_pb2

DATA_FILE: Final = "PulsarApi.binpb"
_PACKAGE: Final = ".pulsar.proto."
_FIELD: Final = descriptor_pb2.FieldDescriptorProto


class Field(NamedTuple):
    """One field of a message.

    type_name: the scalar's name, `enum` or `message`.
    of: the enum's or message's name, else empty.
    """

    name: str
    number: int
    label: str
    type_name: str
    of: str


class Descriptors(NamedTuple):
    """messages: fields of each message by number; enums: value names of each enum by number.

    Names are those of the description without the package: `MessageIdData`, `CommandAck.AckType`.
    """

    messages: dict[str, dict[int, Field]]
    enums: dict[str, dict[int, str]]


def _field(field: descriptor_pb2.FieldDescriptorProto) -> Field:
    return Field(
        name=field.name,
        number=field.number,
        label=_FIELD.Label.Name(field.label).removeprefix("LABEL_").lower(),
        type_name=_FIELD.Type.Name(field.type).removeprefix("TYPE_").lower(),
        of=field.type_name.removeprefix(_PACKAGE),
    )


def descriptor_bytes() -> bytes:
    """The descriptor set that the package ships."""
    return (resources.files("dissector") / "data" / DATA_FILE).read_bytes()


@cache
def descriptors() -> Descriptors:
    """The tables of the shipped descriptor set."""
    messages: dict[str, dict[int, Field]] = {}
    enums: dict[str, dict[int, str]] = {}
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_bytes()).file:
        scoped = [("", enum) for enum in file.enum_type]
        for message in file.message_type:
            messages[message.name] = {field.number: _field(field) for field in message.field}
            scoped += [(f"{message.name}.", enum) for enum in message.enum_type]
        for scope, enum in scoped:
            enums[scope + enum.name] = {value.number: value.name for value in enum.value}
    return Descriptors(messages, enums)


def enum_names(enum: str) -> dict[int, str]:
    """Names of an enum's values by number, such as of `ServerError`."""
    return descriptors().enums[enum]
