"""The Key_Shared policy of a SUBSCRIBE: from its KeySharedMeta to columns of consumers."""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.unknown_fields import UnknownFieldSet

from dissector.blocks import Column, Int64Array
from dissector.protobuf.descriptors import enum_names
from dissector.protocols.pulsar.wire.details import parse

_NOTHING: Final = (None, None, None)


def key_shared_columns(codes: Int64Array, raw_values: Sequence[bytes]) -> dict[str, Column]:
    """The Key_Shared columns of rows; no column if no row has a KeySharedMeta.

    codes: int64[rows], index of each row's KeySharedMeta in raw_values, negative if it has none.
    """
    policies = {code: _policy(raw_values[code]) for code in set(codes.tolist()) if code >= 0}
    if not policies:
        return {}
    rows = (policies.get(code, _NOTHING) for code in codes.tolist())
    modes, ranges, orders = zip(*rows, strict=True)
    return {"key_shared_mode": modes, "sticky_ranges": ranges, "allows_out_of_order": orders}


def _policy(data: bytes) -> tuple[str | None, list[int] | None, bool | None]:
    """Mode, ranges, allowOutOfOrderDelivery; _NOTHING if the bytes cannot be parsed."""
    message: Any = parse("KeySharedMeta", data)
    if message is None or not message.HasField("keySharedMode"):
        return _NOTHING
    ranges = [slot for each in message.hashRanges for slot in (each.start, each.end)]
    mode = enum_names("KeySharedMode")[message.keySharedMode]
    return mode, ranges or None, message.allowOutOfOrderDelivery


def unknown_fields(data: bytes) -> list[tuple[str, int]]:
    """Fields unknown to the .proto file, by message and number, each once: a future client may
    send more (entryBucketDispatch, whose number is not public)."""
    message: Any = parse("KeySharedMeta", data)
    parts = [] if message is None else [message, *message.hashRanges]
    unknown = ((part.DESCRIPTOR.name, UnknownFieldSet(part)) for part in parts)
    return sorted({(name, each.field_number) for name, fields in unknown for each in fields})
