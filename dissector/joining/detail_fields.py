"""Fields of rare commands that a replay reads from the column `detail`, where they are JSON."""

import json
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.limits import NULL
from dissector.protobuf.descriptors import descriptors, enum_names
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pulsar.registry import key_shared_bytes
from dissector.protocols.pulsar.wire import commands as wire_commands

# Fields without a column of their own, by their name in `detail`.
_IN_DETAIL: Final = {
    "subType": ("subscription_type", "CommandSubscribe.SubType"),
    "initialPosition": ("initial_position", "CommandSubscribe.InitialPosition"),
    "durable": ("is_durable", ""),
    "priority_level": ("priority_level", ""),
    "producer_access_mode": ("access_mode", "ProducerAccessMode"),
    "topic_epoch": ("topic_epoch", ""),
    "last_sequence_id": ("last_sequence_id", ""),
    "producer_ready": ("is_ready", ""),
    "is_active": ("is_active", ""),
    "availablePermits": ("available_permits", ""),
    "unackedMessages": ("unacked_messages", ""),
    "txn_action": ("txn_action", "TxnAction"),
    "watcher_id": ("watcher_id", ""),
    "watch_id": ("watcher_id", ""),
    "session_id": ("watcher_id", ""),
}
_RESPONSES: Final = {
    "PARTITIONED_METADATA_RESPONSE": "CommandPartitionedTopicMetadataResponse.LookupType",
    "LOOKUP_RESPONSE": "CommandLookupTopicResponse.LookupType",
}
# What a field means that the sender left out, by command.
_DEFAULTS: Final = {
    "PRODUCER_SUCCESS": {"is_ready": 1},
    "SUBSCRIBE": {"is_durable": 1, "initial_position": 0},
    "PRODUCER": {"access_mode": 0},
    "ACTIVE_CONSUMER_CHANGE": {"is_active": 0},
}


@cache
def commands_with_detail() -> tuple[str, ...]:
    """The commands whose `detail` says something that the passes read."""
    messages = descriptors().messages
    base = messages["BaseCommand"]
    fields = _IN_DETAIL.keys()
    return tuple(
        wire_commands.command_name(command.number)
        for command in wire_commands.COMMANDS
        if wire_commands.command_name(command.number) in _RESPONSES
        or (
            command.number in base
            and any(field.name in fields for field in messages[base[command.number].of].values())
        )
    )


@cache
def _enum(name: str) -> dict[str, int]:
    return {text: number for number, text in enum_names(name).items()}


def number_of(text: str | None, enum: str) -> int:
    """The number of an enumeration's value; a value without a name is its digits."""
    if text is None:
        return NULL
    known = _enum(enum).get(text)
    return (int(text) if text.lstrip("-").isdecimal() else NULL) if known is None else known


def fill_details(frames: FrameColumns, text: dict[str, pa.Array], count: int) -> dict[int, bytes]:
    """Fill columns from the detail of each frame.

    Args:
        text: columns of the rows, of which `command` and `detail` are read.

    Returns:
        how keys are shared, as bytes of the wire, by row.
    """
    policies: dict[int, bytes] = {}
    commands = text["command"]
    for name, values in _DEFAULTS.items():
        mask = pc.fill_null(pc.equal(commands, name), False).to_numpy(zero_copy_only=False)
        for column, value in values.items():
            getattr(frames, column)[:count][mask] = value
    details = text["detail"]
    for row in np.flatnonzero(details.is_valid().to_numpy(zero_copy_only=False)).tolist():
        try:
            detail = json.loads(details[row].as_py())
        except ValueError:
            continue  # a very long text is cut
        command = commands[row].as_py()
        if not isinstance(detail, dict):
            continue
        for key, value in detail.items():
            column, enum = _IN_DETAIL.get(key, ("", ""))
            if key == "response" and command in _RESPONSES and isinstance(value, str):
                frames.response[row] = number_of(value, _RESPONSES[command])
            elif column and isinstance(value, str) and enum:
                getattr(frames, column)[row] = number_of(value, enum)
            elif column and isinstance(value, int):
                getattr(frames, column)[row] = int(value)
            elif key == "keySharedMeta" and (policy := key_shared_bytes(value)) is not None:
                policies[row] = policy
    return policies
