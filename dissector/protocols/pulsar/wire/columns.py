"""Which of Pulsar's protobuf fields go to which frame columns.

`schemas.frames` declares the fields that the table `frames` shows. This module declares the others,
which only facts read, and two that are no single value: message ids of ACK, REDELIVER and
NEGATIVE_ACK, and properties.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

from dissector.protobuf import plan
from dissector.protobuf.descriptors import Field, descriptors
from dissector.protobuf.plan import (
    Default,
    Extra,
    FieldColumn,
    FieldPlan,
    KeyValueColumn,
    PairValue,
    Root,
)
from dissector.protocols.columns import FrameColumns, IdColumns
from dissector.schemas.frames import TABLE

# The plan's roots, by their number.
ROOT_COMMAND: Final = 0
ROOT_BROKER_ENTRY: Final = 1
ROOT_METADATA_OF_SEND: Final = 2
ROOT_METADATA_OF_MESSAGE: Final = 3

_COMMAND_FACTS: Final = (
    FieldColumn("*.watcher_id", "watcher_id"),
    FieldColumn("*.watch_id", "watcher_id"),
    FieldColumn("*.session_id", "watcher_id"),
    FieldColumn("*.topic_epoch", "topic_epoch"),
    # -- names in the frame
    FieldColumn("*.topic", "wire_topic"),
    FieldColumn("endTxnOnSubscription.subscription.topic", "wire_topic"),
    FieldColumn("*.subscription", "wire_subscription"),
    FieldColumn("endTxnOnSubscription.subscription.subscription", "wire_subscription"),
    FieldColumn("*.producer_name", "wire_producer_name"),
    FieldColumn("*.producerName", "wire_producer_name"),
    FieldColumn("*.consumer_name", "wire_consumer_name"),
    FieldColumn("*.consumerName", "wire_consumer_name"),
    # -- producers and sends
    FieldColumn("producer.producer_access_mode", "access_mode", default=0),
    FieldColumn("producer_success.last_sequence_id", "last_sequence_id"),
    FieldColumn("producer_success.producer_ready", "is_ready", default=1),
    FieldColumn("send.is_chunk", "is_chunk"),
    FieldColumn("send.marker", "is_marker"),
    # -- consumers and deliveries
    FieldColumn("subscribe.subType", "subscription_type"),
    FieldColumn("subscribe.durable", "is_durable", default=1),
    FieldColumn("subscribe.initialPosition", "initial_position", default=0),
    FieldColumn("subscribe.priority_level", "priority_level"),
    FieldColumn("subscribe.keySharedMeta", "key_shared"),
    FieldColumn("message.ack_set", "ack_set"),
    FieldColumn("message.message_permits", "message_permits"),
    FieldColumn("active_consumer_change.is_active", "is_active", default=0),
    FieldColumn("consumerStatsResponse.availablePermits", "available_permits"),
    FieldColumn("consumerStatsResponse.unackedMessages", "unacked_messages"),
    # -- answers
    FieldColumn("*.txn_action", "txn_action"),
    FieldColumn("partitionMetadataResponse.response", "response"),
    FieldColumn("lookupTopicResponse.response", "response"),
    # Kind of the id that is in `producer_id`: `finish_rows` moves a consumer's to its column.
    FieldColumn("topicMigrated.resource_type", "response"),
    # -- many message ids
    *(
        each
        for path in (
            "ack.message_id",
            "redeliverUnacknowledgedMessages.message_ids",
            "negativeAck.negative_acked",
            "negativeAck.returned",
        )
        for each in (
            FieldColumn(path, "ids"),
            FieldColumn(f"{path}.ledgerId", "ids.ledger_id"),
            FieldColumn(f"{path}.entryId", "ids.entry_id"),
            FieldColumn(f"{path}.partition", "ids.partition", null=-1),
            FieldColumn(f"{path}.batch_index", "ids.batch_index", null=-1),
            FieldColumn(f"{path}.batch_size", "ids.batch_size"),
            FieldColumn(f"{path}.ack_set", "ids.ack_set"),
        )
    ),
)
_COMMAND_DEFAULTS: Final = (
    Default("ack", "id_count", 0),
    Default("redeliverUnacknowledgedMessages", "id_count", 0),
    Default("negativeAck", "id_count", 0),
)
# Announced for future brokers: how many permits a delivery costs.
COMMAND_EXTRA: Final = (
    Extra("CommandMessage", Field("message_permits", 6, "optional", "int32", "")),
)

_METADATA_FACTS: Final = (
    FieldColumn("producer_name", "wire_producer_name"),
    FieldColumn("partition_key", "partition_key"),
    FieldColumn("partition_key_b64_encoded", "is_key_base64"),
    FieldColumn("ordering_key", "ordering_key"),
    FieldColumn("null_value", "is_null_value", default=0),
    FieldColumn("total_chunk_msg_size", "chunked_bytes"),
    FieldColumn("compacted_batch_indexes", "compacted"),
)
_METADATA_DEFAULTS: Final = (Default("", "is_batch", 0), Default("", "has_property", 0))
# Properties that Pulsar's own clients and brokers set: retries, dead letters, replication.
_PAIRS: Final = (
    KeyValueColumn(
        "properties", b"RECONSUMETIMES", PairValue.DECIMAL, "reconsume_times", "", "has_property", 1
    ),
    KeyValueColumn(
        "properties", b"REAL_TOPIC", PairValue.TEXT, "real_topic", "", "has_property", 2
    ),
    KeyValueColumn(
        "properties",
        b"REAL_SUBSCRIPTION",
        PairValue.TEXT,
        "real_subscription",
        "",
        "has_property",
        4,
    ),
    KeyValueColumn(
        "properties",
        b"__MSG_PROP_REPL_SOURCE_POSITION",
        PairValue.POSITION,
        "repl_source_ledger_id",
        "repl_source_entry_id",
        "has_property",
        8,
    ),
)


def _shown(*parts: str) -> Iterator[FieldColumn]:
    """The fields of parts of a frame that are columns of the table `frames`."""
    for column in TABLE.columns:
        for path in column.wire.paths:
            part, _, rest = path.partition(".")
            if part in parts:
                wire = column.wire
                yield FieldColumn(rest, column.name, wire.default, wire.null, wire.present)


_METADATA: Final = (*_shown("metadata"), *_METADATA_FACTS)
ROOTS: Final = (
    Root(
        "BaseCommand",
        (*_shown("command"), *_COMMAND_FACTS),
        (),
        _COMMAND_DEFAULTS,
        COMMAND_EXTRA,
    ),
    Root("BrokerEntryMetadata", tuple(_shown("broker_entry"))),
    # A SEND command has its sequence ids; those of a MESSAGE are only in the metadata.
    Root("MessageMetadata", _METADATA, _PAIRS, _METADATA_DEFAULTS),
    Root(
        "MessageMetadata",
        (*_METADATA, *_shown("metadata_of_message")),
        _PAIRS,
        _METADATA_DEFAULTS,
    ),
)


@cache
def frame_plan() -> FieldPlan:
    """The plan for the frame columns; roots are the ROOT_* numbers."""
    return plan.build_plan(ROOTS, FrameColumns._fields, IdColumns._fields)


@cache
def frame_plan_messages() -> list[str]:
    """The name of the message of each node of that plan."""
    return plan.plan_messages(ROOTS, FrameColumns._fields, IdColumns._fields)


@cache
def shown_paths() -> frozenset[tuple[str, ...]]:
    """Paths of the command fields in columns of frames and acks, which `detail` leaves out."""
    facts = {rule.column for rule in _COMMAND_FACTS}
    columns = {column.name for column in TABLE.columns} - facts | {"ids"}
    return frozenset(
        path
        for path, rule in plan.column_paths(ROOTS[ROOT_COMMAND]).items()
        if rule.column.removeprefix("wire_") in columns
    )


def field_of(column: str) -> Field | None:
    """The field that fills a column, the first if there are several; None if none does."""
    message, path = _first_paths().get(column, ("", ()))
    field = None
    for name in path:
        fields = descriptors().messages[message].values()
        field = next((each for each in fields if each.name == name), None)
        message = field.of if field is not None else ""
    return field


@cache
def _first_paths() -> dict[str, tuple[str, tuple[str, ...]]]:
    """The message and the path below it of the first field that fills a column, by column."""
    paths: dict[str, tuple[str, tuple[str, ...]]] = {}
    for root in ROOTS:
        for path, rule in plan.column_paths(root).items():
            paths.setdefault(rule.column, (root.message, path))
    return paths
