"""The protocol description: text, list of facts and package data say the same."""

import csv
import importlib.util
from importlib import resources
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf import descriptor_pb2

PROTO = Path(__file__).resolve().parents[2] / "proto"
FIELD = descriptor_pb2.FieldDescriptorProto


def load_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proto_build", PROTO / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shipped() -> bytes:
    return (resources.files("dissector") / "data" / "PulsarApi.binpb").read_bytes()


def type_name(field: descriptor_pb2.FieldDescriptorProto) -> str:
    if field.type_name:
        return field.type_name.removeprefix(".pulsar.proto.")
    return FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()


def facts_of(descriptors: descriptor_pb2.FileDescriptorSet) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    (file,) = descriptors.file
    enums = [("", enum) for enum in file.enum_type]
    for message in file.message_type:
        enums += [(message.name + ".", enum) for enum in message.enum_type]
        if not message.field:
            found.add(("message", message.name, "", "", "", "", ""))
        for field in message.field:
            label = FIELD.Label.Name(field.label).removeprefix("LABEL_").lower()
            facts = (field.name, str(field.number), label, type_name(field), field.default_value)
            found.add(("message", message.name, *facts))
    for scope, enum in enums:
        for value in enum.value:
            found.add(("enum", scope + enum.name, value.name, str(value.number), "", "", ""))
    return found


def test_the_description_says_what_the_list_of_wire_fields_says() -> None:
    with (PROTO / "pulsar-wire-fields.csv").open(encoding="utf-8", newline="") as file:
        rows = [tuple(row) for row in csv.reader(file)][1:]
    assert len(rows) == len(set(rows)) > 600
    descriptors = descriptor_pb2.FileDescriptorSet.FromString(shipped())
    assert facts_of(descriptors) == set(rows)


def test_the_package_data_is_what_the_description_builds() -> None:
    assert load_build().build() == shipped()


@pytest.mark.parametrize(
    "text",
    [
        "message A { optional Missing b = 1; }",
        "message A { oneof b { string c = 1; } }",
        "message A { optional string b = 1 }",
        "import 'other.proto';",
        "service A {}",
    ],
    ids=["unknown_type", "oneof", "no_semicolon", "import", "service"],
)
def test_what_the_build_does_not_understand_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        load_build().parse(text, "other.proto")
