"""The content of fields of text and bytes, one line per field, for hiding, showing and renaming.

`details` and `secret_fields` hide secrets, `anonymize` replaces names. A field that is not listed
contains a name if it is text, and content that must be hidden if it is bytes.
"""

from typing import Final

from dissector.codecs.redaction import secrets
from dissector.codecs.secret_keys import Span, is_secret

SECRET: Final = "secret"  # credentials and keys
VERSION: Final = "version"  # of a program, or the name of a method: known words stay
SENTENCE: Final = "sentence"  # free text, which may contain names
NUMBER: Final = "number"  # as bytes, if it is short
DOCUMENT: Final = "document"  # text in a field of bytes

# By field name, in any message; with a message's name in front, only in that message.
_CONTENTS: Final = {
    "auth_data": SECRET,
    "original_auth_data": SECRET,
    "original_principal": SECRET,
    "EncryptionKeys.value": SECRET,
    "client_version": VERSION,
    "server_version": VERSION,
    "proxy_version": VERSION,
    "auth_method_name": VERSION,
    "original_auth_method": VERSION,
    "encryption_algo": VERSION,
    "connectedSince": VERSION,
    "CommandConsumerStatsResponse.type": VERSION,
    "message": SENTENCE,
    "error_message": SENTENCE,
    "schema_version": NUMBER,
    "schema_id": NUMBER,
    "Schema.schema_data": DOCUMENT,
}
# Properties that clients and brokers set: whether the value is a name.
PROPERTIES: Final = {
    b"RECONSUMETIMES": False,
    b"DELAY_TIME": False,
    b"ORIGIN_MESSAGE_ID": False,
    b"ORIGIN_MESSAGE_IDY_TIME": False,
    b"__MSG_PROP_REPL_SOURCE_POSITION": False,
    b"REAL_TOPIC": True,
    b"REAL_SUBSCRIPTION": True,
}


def is_secret_field(message: str, field: str, key: str = "") -> bool:
    """Whether a field is secret whatever its value. key: if the field is a KeyValue's value."""
    is_value = message == "KeyValue" and field == "value"
    return content_of(message, field) == SECRET or (is_value and is_secret(key))


def spans_of_field(message: str, field: str, value: bytes, key: str = "") -> list[Span]:
    """The byte ranges of secrets in a field of text or bytes, for all code that shows or writes it.
    Arguments as above."""
    if is_secret_field(message, field, key):
        return [(0, len(value))] if value else []
    return secrets(value)


def content_of(message: str, field: str) -> str:
    """The content of a field of a message, empty if it is not listed."""
    return _CONTENTS.get(f"{message}.{field}") or _CONTENTS.get(field, "")
