"""What fields hold: the list names fields that there are."""

from dissector.protobuf.descriptors import descriptors
from dissector.protocols.pulsar.wire import contents
from dissector.protocols.pulsar.wire.contents import SECRET, content_of, spans_of_field

FIELDS = [
    (message, field) for message, fields in descriptors().messages.items()
    for field in fields.values()
]  # fmt: skip


def test_every_line_names_a_field_of_text_or_bytes() -> None:
    known = {f"{message}.{field.name}" for message, field in FIELDS}
    known |= {field.name for _, field in FIELDS if field.type_name in ("string", "bytes")}
    assert set(contents._CONTENTS) <= known


def test_what_authenticates_is_a_secret_wherever_it_stands() -> None:
    found = {f"{message}.{each.name}" for message, each in FIELDS
             if content_of(message, each.name) == SECRET}  # fmt: skip
    assert found == {
        "CommandConnect.auth_data", "CommandConnect.original_auth_data",
        "CommandConnect.original_principal", "CommandLookupTopic.original_auth_data",
        "CommandLookupTopic.original_principal",
        "CommandPartitionedTopicMetadata.original_auth_data",
        "CommandPartitionedTopicMetadata.original_principal", "AuthData.auth_data",
        "EncryptionKeys.value",
    }  # fmt: skip


def test_a_name_alone_holds_in_all_messages_and_one_with_its_message_only_there() -> None:
    assert content_of("EncryptionKeys", "value") == SECRET
    assert content_of("KeyValue", "value") == ""
    assert content_of("CommandError", "message") == content_of("CommandSendError", "message")


def test_of_a_pair_the_value_is_hidden_by_its_key_and_other_fields_by_what_they_hold() -> None:
    assert spans_of_field("KeyValue", "value", b"plain", "db.password") == [(0, 5)]
    assert spans_of_field("KeyValue", "key", b"db.password", "db.password") == []
    assert spans_of_field("EncryptionKeys", "value", b"ab") == [(0, 2)]
    assert spans_of_field("CommandError", "message", b"bad token=ab") == [(10, 12)]
