"""Which of Pulsar's protobuf fields go to which frame columns.

Those that the table `frames` shows are declared there (`schemas.frames`); here are the others,
which only facts read, and what is no plain field: message ids of ACK and REDELIVER, and properties.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

from dissector.protobuf.descriptors import Field, descriptors
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
    wanted_paths,
)
from dissector.protocols.columns import FrameColumns, IdColumns
from dissector.schemas.frames import TABLE

# The plan's roots, by their number.
ROOT_COMMAND: Final = 0
ROOT_BROKER_ENTRY: Final = 1
ROOT_METADATA_OF_SEND: Final = 2
ROOT_METADATA_OF_MESSAGE: Final = 3

_COMMAND_FACTS: Final = (
    Wanted("*.watcher_id", "watcher_id"),
    Wanted("*.watch_id", "watcher_id"),
    Wanted("*.session_id", "watcher_id"),
    Wanted("*.topic_epoch", "topic_epoch"),
    # -- names, as the frame says them
    Wanted("*.topic", "wire_topic"),
    Wanted("endTxnOnSubscription.subscription.topic", "wire_topic"),
    Wanted("*.subscription", "wire_subscription"),
    Wanted("endTxnOnSubscription.subscription.subscription", "wire_subscription"),
    Wanted("*.producer_name", "wire_producer_name"),
    Wanted("*.producerName", "wire_producer_name"),
    Wanted("*.consumer_name", "wire_consumer_name"),
    Wanted("*.consumerName", "wire_consumer_name"),
    # -- producers and what they send
    Wanted("producer.producer_access_mode", "access_mode", default=0),
    Wanted("producer_success.last_sequence_id", "last_sequence_id"),
    Wanted("producer_success.producer_ready", "is_ready", default=1),
    Wanted("send.is_chunk", "is_chunk"),
    Wanted("send.marker", "is_marker"),
    # -- consumers and what they get
    Wanted("subscribe.subType", "subscription_type"),
    Wanted("subscribe.durable", "is_durable", default=1),
    Wanted("subscribe.initialPosition", "initial_position", default=0),
    Wanted("subscribe.priority_level", "priority_level"),
    Wanted("message.ack_set", "ack_set"),
    Wanted("message.message_permits", "message_permits"),
    Wanted("active_consumer_change.is_active", "is_active", default=0),
    Wanted("consumerStatsResponse.availablePermits", "available_permits"),
    Wanted("consumerStatsResponse.unackedMessages", "unacked_messages"),
    # -- answers
    Wanted("*.txn_action", "txn_action"),
    Wanted("partitionMetadataResponse.response", "response"),
    Wanted("lookupTopicResponse.response", "response"),
    # What `producer_id` is the id of: `settle` moves it to its own column.
    Wanted("topicMigrated.resource_type", "response"),
    # -- many message ids
    *(
        each
        for path in ("ack.message_id", "redeliverUnacknowledgedMessages.message_ids")
        for each in (
            Wanted(path, "ids"),
            Wanted(f"{path}.ledgerId", "ids.ledger_id"),
            Wanted(f"{path}.entryId", "ids.entry_id"),
            Wanted(f"{path}.partition", "ids.partition", null=-1),
            Wanted(f"{path}.batch_index", "ids.batch_index", null=-1),
            Wanted(f"{path}.batch_size", "ids.batch_size"),
            Wanted(f"{path}.ack_set", "ids.ack_set"),
        )
    ),
)
_COMMAND_DEFAULTS: Final = (
    Default("ack", "id_count", 0),
    Default("redeliverUnacknowledgedMessages", "id_count", 0),
)
# Announced for brokers to come: how many permits a delivery costs.
COMMAND_EXTRA: Final = (
    Extra("CommandMessage", Field("message_permits", 6, "optional", "int32", "")),
)

_METADATA_FACTS: Final = (
    Wanted("producer_name", "wire_producer_name"),
    Wanted("partition_key", "partition_key"),
    Wanted("partition_key_b64_encoded", "is_key_base64"),
    Wanted("ordering_key", "ordering_key"),
    Wanted("null_value", "is_null_value", default=0),
    Wanted("total_chunk_msg_size", "chunked_bytes"),
    Wanted("compacted_batch_indexes", "compacted"),
)
_METADATA_DEFAULTS: Final = (Default("", "is_batch", 0), Default("", "has_property", 0))
# Properties that Pulsar's own clients and brokers set: retries, dead letters, replication.
_PAIRS: Final = (
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


def _shown(*parts: str) -> Iterator[Wanted]:
    """The fields of parts of a frame that are columns of the table `frames`."""
    for column in TABLE.columns:
        for path in column.wire.paths:
            part, _, rest = path.partition(".")
            if part in parts:
                wire = column.wire
                yield Wanted(rest, column.name, wire.default, wire.null, wire.present)


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
    # A SEND command says its sequence ids itself; a MESSAGE has them in the metadata only.
    Root("MessageMetadata", _METADATA, _PAIRS, _METADATA_DEFAULTS),
    Root(
        "MessageMetadata",
        (*_METADATA, *_shown("metadata_of_message")),
        _PAIRS,
        _METADATA_DEFAULTS,
    ),
)


@cache
def frame_plan() -> Plan:
    """The plan for the frame columns; roots are the ROOT_* numbers."""
    return build_plan(ROOTS, FrameColumns._fields, IdColumns._fields)


@cache
def shown_paths() -> frozenset[tuple[str, ...]]:
    """Paths of the command fields that the tables frames and acks show."""
    columns = {column.name for column in TABLE.columns} | {"ids"}
    return frozenset(
        path
        for path, wanted in wanted_paths(ROOTS[ROOT_COMMAND]).items()
        if wanted.column.removeprefix("wire_") in columns
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
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for root in ROOTS:
        for path, wanted in wanted_paths(root).items():
            found.setdefault(wanted.column, (root.message, path))
    return found
