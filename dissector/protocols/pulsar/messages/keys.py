"""The hash of the key by which the broker orders a message."""

from dissector.blocks import ByteArray
from dissector.codecs.key_hashes import murmur3, murmur3_of_base64
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.pulsar.messages.state import MessageColumns


@inlined
def hash_keys(messages: MessageColumns, number: int, text: ByteArray) -> None:
    """Write the hash of a message's ordering key, else its partition key; text: holds both."""
    at = messages.partition_key_at[number]
    size = messages.partition_key_bytes[number]
    key_hash = NULL
    if messages.ordering_key_bytes[number] >= 0:
        key_hash = murmur3(
            text, messages.ordering_key_at[number], messages.ordering_key_bytes[number]
        )
    elif size >= 0:
        if messages.is_key_base64[number] == 1:
            key_hash = murmur3_of_base64(text, at, size)
        else:
            key_hash = murmur3(text, at, size)
    messages.key_hash[number] = key_hash
