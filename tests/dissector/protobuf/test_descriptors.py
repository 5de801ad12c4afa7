"""Descriptor tables against single facts of the protocol."""

from dissector.protobuf.descriptors import descriptors, enum_names


def test_fields_know_name_number_label_and_type() -> None:
    field = descriptors().messages["CommandAck"][3]
    assert field.name == "message_id" and field.number == 3
    assert (field.label, field.type_name, field.of) == ("repeated", "message", "MessageIdData")
    error = descriptors().messages["CommandAck"][4]
    assert (error.type_name, error.of) == ("enum", "CommandAck.ValidationError")
    assert descriptors().messages["CommandFlow"][2].type_name == "uint32"
    assert descriptors().messages["CommandPing"] == {}


def test_enums_inside_messages_and_outside_have_their_names() -> None:
    assert enum_names("CompressionType")[3] == "ZSTD"
    assert enum_names("CommandSubscribe.SubType")[3] == "Key_Shared"
    assert enum_names("CommandAck.ValidationError")[0] == "UncompressedSizeCorruption"
