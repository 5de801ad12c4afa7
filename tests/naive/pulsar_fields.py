"""Wire fields of one whole Pulsar frame, the slow and plain way: protobuf objects and dicts."""

import struct
from typing import Any

import crc32c
from google.protobuf.message import DecodeError, Message

from tests.wire.pulsar import classes

TEXT = {
    "message": "error_text",
    "error_message": "error_text",
    "topic": "wire_topic",
    "producer_name": "wire_producer_name",
    "producerName": "wire_producer_name",
    "consumer_name": "wire_consumer_name",
    "consumerName": "wire_consumer_name",
    "schema_version": "schema_version_hex",
}
PLAIN = {
    "request_id": "request_id",
    "producer_id": "producer_id",
    "consumer_id": "consumer_id",
    "sequence_id": "sequence_id",
    "highest_sequence_id": "highest_sequence_id",
    "txnid_most_bits": "txn_most_bits",
    "txnid_least_bits": "txn_least_bits",
    "txn_action": "txn_action",
    "error": "error_code",
    "error_code": "error_code",
    "topic_epoch": "topic_epoch",
    "watcher_id": "watcher_id",
    "watch_id": "watcher_id",
    "session_id": "watcher_id",
    "epoch": "producer_epoch",
    "last_sequence_id": "last_sequence_id",
    "is_chunk": "is_chunk",
    "marker": "is_marker",
    "subType": "subscription_type",
    "priority_level": "priority_level",
    "messagePermits": "permits",
    "redelivery_count": "redelivery_count",
    "ack_type": "ack_type",
    "validation_error": "validation_error",
    "availablePermits": "available_permits",
    "unackedMessages": "unacked_messages",
}
METADATA = {
    "publish_time": "publish_time_ms",
    "deliver_at_time": "deliver_at_ms",
    "uncompressed_size": "uncompressed_bytes",
    "marker_type": "marker_type",
    "txnid_most_bits": "txn_most_bits",
    "txnid_least_bits": "txn_least_bits",
    "num_chunks_from_msg": "chunk_count",
    "chunk_id": "chunk_id",
    "total_chunk_msg_size": "chunked_bytes",
    "partition_key_b64_encoded": "is_key_base64",
}
METADATA_TEXT = {
    "producer_name": "wire_producer_name",
    "replicated_from": "replicated_from",
    "schema_version": "schema_version_hex",
    "uuid": "chunk_uuid",
    "partition_key": "partition_key",
    "ordering_key": "ordering_key",
}
PROPERTIES = (
    "RECONSUMETIMES", "REAL_TOPIC", "REAL_SUBSCRIPTION", "__MSG_PROP_REPL_SOURCE_POSITION",
)  # fmt: skip


def signed(value: Any) -> int:
    """uint64 as Spark will see it, booleans as numbers."""
    number = int(value)
    return number - (1 << 64) if number >= 1 << 63 else number


def parse(name: str, data: bytes) -> Message:
    """A message; missing required fields do not matter.

    Raises:
        DecodeError: the bytes are not protobuf.
    """
    message = classes()[name]()
    message.MergeFromString(data)
    return message


def as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def position(message_id: Message) -> dict[str, Any]:
    fields = {}
    if message_id.HasField("ledgerId"):
        fields["ledger_id"] = signed(message_id.ledgerId)
    if message_id.HasField("entryId"):
        fields["entry_id"] = signed(message_id.entryId)
    if message_id.HasField("partition") and message_id.partition != -1:
        fields["partition"] = message_id.partition
    return fields


def ids_of(message_ids: Any) -> list[dict[str, Any]]:
    out = []
    for message_id in message_ids:
        one = position(message_id)
        if message_id.HasField("batch_index") and message_id.batch_index != -1:
            one["batch_index"] = message_id.batch_index
        if message_id.HasField("batch_size"):
            one["batch_size"] = message_id.batch_size
        if message_id.ack_set:
            one["ack_set"] = list(message_id.ack_set)
        out.append(one)
    return out


def command_fields(data: bytes) -> dict[str, Any]:
    """What a BaseCommand says, under the names of the frame columns; children under `ids`."""
    base = parse("BaseCommand", data)
    fields: dict[str, Any] = {"command": base.type}
    field = base.DESCRIPTOR.fields_by_number.get(base.type)
    if field is None or not base.HasField(field.name):
        return fields
    body = getattr(base, field.name)
    for part, value in body.ListFields():
        if part.message_type is not None or part.is_repeated:
            continue
        if part.name in PLAIN:
            fields[PLAIN[part.name]] = signed(value)
        elif part.name in TEXT and part.type in (part.TYPE_STRING, part.TYPE_BYTES):
            fields[TEXT[part.name]] = as_bytes(value)
    name = field.name
    if name in ("subscribe", "scalableTopicSubscribe") and body.HasField("subscription"):
        fields["wire_subscription"] = body.subscription.encode()
    for id_field in ("message_id", "last_message_id", "start_message_id"):
        inner = body.DESCRIPTOR.fields_by_name.get(id_field)
        if inner is not None and not inner.is_repeated and body.HasField(id_field):
            fields |= position(getattr(body, id_field))
    if name == "endTxnOnSubscription" and body.HasField("subscription"):
        for part, value in body.subscription.ListFields():
            fields[f"wire_{part.name}"] = value.encode()
    if name == "producer":
        fields["access_mode"] = body.producer_access_mode
    elif name == "producer_success":
        fields["is_ready"] = int(body.producer_ready)
    elif name == "subscribe":
        fields |= {"is_durable": int(body.durable), "initial_position": body.initialPosition}
        if body.HasField("keySharedMeta"):
            fields["key_shared"] = body.keySharedMeta.SerializePartialToString()
    elif name == "active_consumer_change":
        fields["is_active"] = int(body.is_active)
    elif name in ("partitionMetadataResponse", "lookupTopicResponse"):
        if body.HasField("response"):
            fields["response"] = body.response
    elif name == "topicMigrated":
        if body.HasField("resource_id"):
            place = "consumer_id" if body.resource_type == 1 else "producer_id"
            fields[place] = signed(body.resource_id)
    elif name == "message" and body.ack_set:
        fields["ack_set"] = list(body.ack_set)
    elif name in ("ack", "redeliverUnacknowledgedMessages"):
        fields["ids"] = ids_of(body.message_id if name == "ack" else body.message_ids)
        fields["id_count"] = len(fields["ids"])
    elif name == "negativeAck":
        fields["ids"] = ids_of([*body.negative_acked, *body.returned])
        fields["id_count"] = len(fields["ids"])
    return fields


def decimal(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def property_fields(properties: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"has_property": 0}
    for pair in properties:
        if pair.key not in PROPERTIES:
            continue
        fields["has_property"] |= 1 << PROPERTIES.index(pair.key)
        if pair.key == "RECONSUMETIMES":
            if decimal(pair.value) is not None:
                fields["reconsume_times"] = decimal(pair.value)
        elif pair.key.startswith("REAL"):
            fields[pair.key.lower()] = pair.value.encode()
        else:
            ledger, _, entry = pair.value.partition(":")
            if decimal(ledger) is not None and decimal(entry) is not None:
                fields["repl_source_ledger_id"] = decimal(ledger)
                fields["repl_source_entry_id"] = decimal(entry)
    return fields


def metadata_fields(data: bytes, is_send: bool) -> dict[str, Any]:
    metadata = parse("MessageMetadata", data)
    present = {field.name: value for field, value in metadata.ListFields()}
    fields = {METADATA[name]: signed(present[name]) for name in METADATA if name in present}
    fields |= {
        METADATA_TEXT[name]: as_bytes(present[name]) for name in METADATA_TEXT if name in present
    }
    if not is_send:
        for name in ("sequence_id", "highest_sequence_id"):
            if name in present:
                fields[name] = signed(present[name])
    if metadata.event_time:
        fields["event_time_ms"] = signed(metadata.event_time)
    if metadata.compacted_batch_indexes:
        fields["compacted"] = list(metadata.compacted_batch_indexes)
    return fields | {
        "compression": metadata.compression,
        "message_count": metadata.num_messages_in_batch,
        "is_batch": int(metadata.HasField("num_messages_in_batch")),
        "is_encrypted": int(len(metadata.encryption_keys) > 0),
        "is_null_value": int(metadata.null_value),
        **property_fields(metadata.properties),
    }


def entry_fields(frame: bytes, at: int, is_send: bool) -> dict[str, Any]:
    """The second half of a SEND or MESSAGE, from offset `at` of the frame."""
    fields: dict[str, Any] = {}
    if frame[at : at + 2] == b"\x0e\x02":
        (size,) = struct.unpack_from(">I", frame, at + 2)
        broker_entry = parse("BrokerEntryMetadata", frame[at + 6 : at + 6 + size])
        if broker_entry.HasField("broker_timestamp"):
            fields["broker_timestamp_ms"] = signed(broker_entry.broker_timestamp)
        if broker_entry.HasField("index"):
            fields["broker_index"] = signed(broker_entry.index)
        at += 6 + size
    fields["checksum"] = "absent"
    if frame[at : at + 2] == b"\x0e\x01":
        (stored,) = struct.unpack_from(">I", frame, at + 2)
        at += 6
        computed = crc32c.crc32c(frame[at:])
        fields |= {"crc32c_stored": stored, "crc32c_computed": computed}
        fields["checksum"] = "ok" if stored == computed else "mismatch"
    (size,) = struct.unpack_from(">I", frame, at)
    fields |= {"metadata_bytes": size, "payload_bytes": len(frame) - at - 4 - size}
    try:
        return fields | metadata_fields(frame[at + 4 : at + 4 + size], is_send)
    except DecodeError:
        if fields["checksum"] == "mismatch":
            return fields
        raise


def frame_fields(frame: bytes) -> dict[str, Any]:
    """Everything that a whole frame says.

    Raises:
        DecodeError: a part of it is not protobuf.
    """
    (size,) = struct.unpack_from(">I", frame, 4)
    fields = command_fields(frame[8 : 8 + size])
    if fields["command"] in (6, 9):
        fields |= entry_fields(frame, 8 + size, fields["command"] == 6)
    return fields
