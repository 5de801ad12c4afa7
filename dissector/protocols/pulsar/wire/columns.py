"""Which protobuf fields of Pulsar have columns: a new column is a line here."""

from functools import cache
from typing import Final

from dissector.protobuf.descriptors import Field
from dissector.protobuf.plan import (
    DECIMAL,
    POSITION,
    TEXT,
    Default,
    Extra,
    Pair,
    Plan,
    Root,
    Wanted,
    build_plan,
)
from dissector.protocols.columns import FrameColumns, IdColumns

# The plan's roots, by their number.
ROOT_COMMAND: Final = 0
ROOT_BROKER_ENTRY: Final = 1
ROOT_METADATA_OF_SEND: Final = 2
ROOT_METADATA_OF_MESSAGE: Final = 3

COMMAND_FIELDS: Final = (
    Wanted("*.request_id", "request_id"),
    Wanted("*.producer_id", "producer_id"),
    Wanted("*.consumer_id", "consumer_id"),
    Wanted("*.watcher_id", "watcher_id"),
    Wanted("*.watch_id", "watcher_id"),
    Wanted("*.session_id", "watcher_id"),
    Wanted("*.sequence_id", "sequence_id"),
    Wanted("*.highest_sequence_id", "highest_sequence_id"),
    Wanted("*.txnid_most_bits", "txn_most_bits"),
    Wanted("*.txnid_least_bits", "txn_least_bits"),
    Wanted("*.txn_action", "txn_action"),
    Wanted("*.error", "error_code"),
    Wanted("*.error_code", "error_code"),
    Wanted("*.message", "error_text"),
    Wanted("*.error_message", "error_text"),
    Wanted("*.schema_version", "schema_version"),
    Wanted("*.consumer_epoch", "consumer_epoch"),
    Wanted("*.topic_epoch", "topic_epoch"),
    # -- one message id
    Wanted("*.message_id.ledgerId", "ledger_id"),
    Wanted("*.message_id.entryId", "entry_id"),
    Wanted("*.message_id.partition", "partition", null=-1),
    Wanted("*.start_message_id.ledgerId", "ledger_id"),
    Wanted("*.start_message_id.entryId", "entry_id"),
    Wanted("*.start_message_id.partition", "partition", null=-1),
    Wanted("*.last_message_id.ledgerId", "ledger_id"),
    Wanted("*.last_message_id.entryId", "entry_id"),
    Wanted("*.last_message_id.partition", "partition", null=-1),
    # -- names
    Wanted("*.topic", "wire_topic"),
    Wanted("endTxnOnSubscription.subscription.topic", "wire_topic"),
    Wanted("*.subscription", "wire_subscription"),
    Wanted("endTxnOnSubscription.subscription.subscription", "wire_subscription"),
    Wanted("*.producer_name", "wire_producer_name"),
    Wanted("*.producerName", "wire_producer_name"),
    Wanted("*.consumer_name", "wire_consumer_name"),
    Wanted("*.consumerName", "wire_consumer_name"),
    # -- producers and what they send
    Wanted("producer.epoch", "producer_epoch"),
    Wanted("producer.producer_access_mode", "access_mode", default=0),
    Wanted("producer_success.last_sequence_id", "last_sequence_id"),
    Wanted("producer_success.producer_ready", "is_ready", default=1),
    Wanted("send.num_messages", "num_messages"),
    Wanted("send.is_chunk", "is_chunk"),
    Wanted("send.marker", "is_marker"),
    # -- consumers and what they get
    Wanted("subscribe.subType", "subscription_type"),
    Wanted("subscribe.durable", "is_durable", default=1),
    Wanted("subscribe.initialPosition", "initial_position", default=0),
    Wanted("subscribe.priority_level", "priority_level"),
    Wanted("flow.messagePermits", "permits"),
    Wanted("message.redelivery_count", "redelivery_count"),
    Wanted("message.ack_set", "ack_set"),
    Wanted("message.message_permits", "message_permits"),
    Wanted("active_consumer_change.is_active", "is_active", default=0),
    Wanted("consumerStatsResponse.availablePermits", "available_permits"),
    Wanted("consumerStatsResponse.unackedMessages", "unacked_messages"),
    # -- many message ids
    Wanted("ack.ack_type", "ack_type"),
    Wanted("ack.validation_error", "validation_error"),
    Wanted("ack.message_id", "ids"),
    Wanted("ack.message_id.ledgerId", "ids.ledger_id"),
    Wanted("ack.message_id.entryId", "ids.entry_id"),
    Wanted("ack.message_id.partition", "ids.partition", null=-1),
    Wanted("ack.message_id.batch_index", "ids.batch_index", null=-1),
    Wanted("ack.message_id.batch_size", "ids.batch_size"),
    Wanted("ack.message_id.ack_set", "ids.ack_set"),
    Wanted("redeliverUnacknowledgedMessages.message_ids", "ids"),
    Wanted("redeliverUnacknowledgedMessages.message_ids.ledgerId", "ids.ledger_id"),
    Wanted("redeliverUnacknowledgedMessages.message_ids.entryId", "ids.entry_id"),
    Wanted("redeliverUnacknowledgedMessages.message_ids.partition", "ids.partition", null=-1),
    Wanted("redeliverUnacknowledgedMessages.message_ids.batch_index", "ids.batch_index", null=-1),
    Wanted("redeliverUnacknowledgedMessages.message_ids.batch_size", "ids.batch_size"),
    Wanted("redeliverUnacknowledgedMessages.message_ids.ack_set", "ids.ack_set"),
    # -- answers
    Wanted("partitionMetadataResponse.response", "response"),
    Wanted("lookupTopicResponse.response", "response"),
    # The resource is a producer or a consumer: `settle` moves the id to its own column.
    Wanted("topicMigrated.resource_id", "producer_id"),
    Wanted("topicMigrated.resource_type", "response"),
)

COMMAND_DEFAULTS: Final = (
    Default("ack", "id_count", 0),
    Default("redeliverUnacknowledgedMessages", "id_count", 0),
)

# Announced for brokers to come: how many permits a delivery costs.
COMMAND_EXTRA: Final = (
    Extra("CommandMessage", Field("message_permits", 6, "optional", "int32", "")),
)

BROKER_ENTRY_FIELDS: Final = (
    Wanted("broker_timestamp", "broker_timestamp_ms"),
    Wanted("index", "broker_index"),
)

METADATA_FIELDS: Final = (
    Wanted("producer_name", "wire_producer_name"),
    Wanted("publish_time", "publish_time_ms"),
    Wanted("replicated_from", "replicated_from"),
    Wanted("partition_key", "partition_key"),
    Wanted("partition_key_b64_encoded", "is_key_base64"),
    Wanted("ordering_key", "ordering_key"),
    Wanted("compression", "compression"),
    Wanted("uncompressed_size", "uncompressed_bytes"),
    # A batch is what has this field, even with the value 1; its absence means one plain message.
    Wanted("num_messages_in_batch", "message_count", present="is_batch"),
    # Java writes 0 where no time was set.
    Wanted("event_time", "event_time_ms", null=0),
    Wanted("deliver_at_time", "deliver_at_ms"),
    Wanted("encryption_keys", "is_encrypted"),
    Wanted("schema_version", "schema_version"),
    Wanted("marker_type", "marker_type"),
    Wanted("txnid_most_bits", "txn_most_bits"),
    Wanted("txnid_least_bits", "txn_least_bits"),
    Wanted("null_value", "is_null_value"),
    Wanted("uuid", "chunk_uuid"),
    Wanted("num_chunks_from_msg", "chunk_count"),
    Wanted("chunk_id", "chunk_id"),
    Wanted("total_chunk_msg_size", "chunked_bytes"),
    Wanted("compacted_batch_indexes", "compacted"),
)

# A SEND command says these itself; a MESSAGE has them in the metadata only.
METADATA_FIELDS_OF_MESSAGE: Final = (
    Wanted("sequence_id", "sequence_id"),
    Wanted("highest_sequence_id", "highest_sequence_id"),
)

METADATA_DEFAULTS: Final = (
    Default("", "compression", 0),
    Default("", "message_count", 1),
    Default("", "is_batch", 0),
    Default("", "is_encrypted", 0),
    Default("", "is_null_value", 0),
    Default("", "has_property", 0),
)

# Properties that Pulsar's own clients and brokers set: retries, dead letters, replication.
PAIRS: Final = (
    Pair("properties", b"RECONSUMETIMES", DECIMAL, "reconsume_times", "", "has_property", 1),
    Pair("properties", b"REAL_TOPIC", TEXT, "real_topic", "", "has_property", 2),
    Pair("properties", b"REAL_SUBSCRIPTION", TEXT, "real_subscription", "", "has_property", 4),
    Pair(
        "properties",
        b"__MSG_PROP_REPL_SOURCE_POSITION",
        POSITION,
        "repl_source_ledger_id",
        "repl_source_entry_id",
        "has_property",
        8,
    ),
)

ROOTS: Final = (
    Root("BaseCommand", COMMAND_FIELDS, (), COMMAND_DEFAULTS, COMMAND_EXTRA),
    Root("BrokerEntryMetadata", BROKER_ENTRY_FIELDS),
    Root("MessageMetadata", METADATA_FIELDS, PAIRS, METADATA_DEFAULTS),
    Root("MessageMetadata", METADATA_FIELDS + METADATA_FIELDS_OF_MESSAGE, PAIRS, METADATA_DEFAULTS),
)


@cache
def frame_plan() -> Plan:
    """The plan for the frame columns; roots are the ROOT_* numbers."""
    return build_plan(ROOTS, FrameColumns._fields, IdColumns._fields)
