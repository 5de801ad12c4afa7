"""Traffic between brokers: batches for a leader, copies for followers, changes of state.

A broker that is not the leader forwards a client's batch as base64 after `payload=`, or unchanged.
Leaders send each batch to their followers as JSON, and changes of groups, offsets and transactions
to the cluster's leader as JSON, too. Other commands are forwarded unchanged, with the brokers' own
token as their first argument.
"""

import base64
import binascii
import json
import re
from typing import Any, Final, NamedTuple

from dissector.limits import MAX_FORWARDED_JSON_BYTES
from dissector.protocols.cursus.commands import NUMBER
from dissector.protocols.cursus.lines import CommandLine

INTERNAL_BATCH: Final = NUMBER["INTERNAL_BATCH"]
REPLICATE_MESSAGE: Final = NUMBER["REPLICATE_MESSAGE"]
WITH_JSON: Final = frozenset(
    (REPLICATE_MESSAGE, NUMBER["REPLICATE_SNAPSHOT"], NUMBER["RAFT_APPLY"])
)

_FIRST_KEYS: Final = re.compile(rb'\A\{"topic":"([^"\\]{1,249})","(?:partition":(\d{1,9}),|key")')
_TEXTS: Final = (("topic", "topic"), ("group", "subscription"), ("member", "consumer_name"))
_NOT_SHOWN: Final = frozenset(
    ("topic", "partition", "group", "member", "messages", "payload", "Payload")
)


class Forwarded(NamedTuple):
    """The content of a payload between brokers.

    texts: names by column of frames.
    numbers: by column, too.
    rest: values without a column, by key.
    """

    texts: dict[str, bytes]
    numbers: dict[str, int]
    rest: dict[str, Any]


NOTHING: Final = Forwarded({}, {}, {})


def batch_within(line: CommandLine) -> bytes | None:
    """The body of the batch in an INTERNAL_BATCH, None if there is none."""
    if line.command != INTERNAL_BATCH or line.payload is None:
        return None
    words = line.payload[1].split(None, 1)
    if not words:
        return None
    try:
        return base64.b64decode(words[0], validate=True)
    except binascii.Error:
        return None


def is_passed_on(line: CommandLine) -> bool:
    """Whether a broker forwards a client's command, which then counts where the client sent it.

    The brokers' token is the mark; without a token such commands look like any client's.
    """
    return b"internal_token" in line.arguments


def read_forwarded(line: CommandLine) -> Forwarded:
    """The content of the JSON of one broker for another."""
    if line.command not in WITH_JSON or line.payload is None:
        return NOTHING
    text = line.payload[1]
    if len(text) > MAX_FORWARDED_JSON_BYTES:
        return _first_keys(text)
    try:
        parsed = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return NOTHING
    if not isinstance(parsed, dict):
        return NOTHING
    forwarded = Forwarded({}, {}, {key: parsed[key] for key in parsed if key not in _NOT_SHOWN})
    for key, column in _TEXTS:
        value = parsed.get(key)
        if isinstance(value, str) and value:
            forwarded.texts[column] = value.encode("utf-8", "replace")
    _put(forwarded, "partition", parsed.get("partition"))
    messages = parsed.get("messages")
    if line.command == REPLICATE_MESSAGE and isinstance(messages, list):
        _add_messages(forwarded, messages)
    return forwarded


def _first_keys(text: bytes) -> Forwarded:
    start = _FIRST_KEYS.match(text)
    if start is None:
        return NOTHING
    numbers = {} if start[2] is None else {"partition": int(start[2])}
    return Forwarded({"topic": start[1]}, numbers, {})


def _put(forwarded: Forwarded, column: str, value: Any) -> None:
    """A number for a column, None if it is not a number or does not fit."""
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << 62) < value < 1 << 62:
        forwarded.numbers[column] = value


def _add_messages(forwarded: Forwarded, messages: list[Any]) -> None:
    """The records that a follower shall store: how many, their sequence numbers, first offset."""
    forwarded.numbers["message_count"] = len(messages)
    records = [each for each in messages if isinstance(each, dict)]
    if not records:
        return
    first, last = records[0], records[-1]
    _put(forwarded, "sequence_id", first.get("SeqNum"))
    _put(forwarded, "highest_sequence_id", last.get("SeqNum"))
    _put(forwarded, "entry_id", first.get("Offset"))
    names = {each.get("ProducerID") for each in records if isinstance(each.get("ProducerID"), str)}
    if len(names) == 1:
        name = names.pop()
        if name:
            forwarded.texts["producer_name"] = name.encode("utf-8", "replace")
            _put(forwarded, "producer_epoch", first.get("Epoch"))
