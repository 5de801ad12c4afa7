"""Cursus' commands and answers: numbers, names, kinds of exchange, and which answers fit which.

A number is the index of the name in NAMES and is internal; frames contain only words.
"""

from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Coded, Int64Array
from dissector.codecs.integers import byte
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.pairing import rules
from dissector.protocols.pairing.rules import Command, Expectation, PairedBy
from dissector.schemas import enums

# Frames that are not text commands; UNKNOWN is a command whose word is in no list.
UNKNOWN: Final = 0
BATCH: Final = 1
RESPONSE_OK: Final = 2
RESPONSE_ERROR: Final = 3
RESPONSE_JSON: Final = 4
STREAM_CONTROL: Final = 5
KEEPALIVE: Final = 6
FIRST_VERB: Final = 7

_CLIENT_VERBS: Final = (
    "AUTH PROTOCOL_INFO NEGOTIATE HELP CREATE DELETE LIST DESCRIBE METADATA PUBLISH CONSUME STREAM"
    " LIST_OFFSETS FETCH_OFFSET COMMIT_OFFSET BATCH_COMMIT REGISTER_GROUP JOIN_GROUP SYNC_GROUP"
    " LEAVE_GROUP HEARTBEAT GROUP_STATUS LIST_GROUPS FIND_COORDINATOR INIT_PRODUCER_ID BEGIN_TXN"
    " TXN_PUBLISH SEND_OFFSETS_TO_TXN END_TXN TXN_STATUS APPEND_STREAM READ_STREAM STREAM_VERSION"
    " SAVE_SNAPSHOT READ_SNAPSHOT CLUSTER_STATUS LIST_CLUSTER ELECT_LEADER"
)
_BROKER_VERBS: Final = (
    "REPLICATE_MESSAGE REPLICATE_SNAPSHOT LIST_SNAPSHOTS FETCH_SNAPSHOT CATCHUP_SNAPSHOTS"
    " RAFT_APPLY INTERNAL_BATCH"
)
_DISCOVERY_VERBS: Final = "JOIN_CLUSTER LEAVE_CLUSTER HEARTBEAT_CLUSTER"
_ONLY_DOCUMENTED: Final = "SUBSCRIBE COMMIT EXIT"  # no broker ever knew them

VERBS: Final = tuple(
    " ".join((_CLIENT_VERBS, _BROKER_VERBS, _DISCOVERY_VERBS, _ONLY_DOCUMENTED)).split()
)
NAMES: Final = (
    "UNKNOWN",
    "BATCH",
    "RESPONSE_OK",
    "RESPONSE_ERROR",
    "RESPONSE_JSON",
    "STREAM_CONTROL",
    "KEEPALIVE",
    *VERBS,
)
NUMBER: Final = {name: number for number, name in enumerate(NAMES)}
VERB_NUMBER: Final = {verb.encode(): NUMBER[verb] for verb in VERBS}
NOT_IMPLEMENTED: Final = frozenset(NUMBER[verb] for verb in _ONLY_DOCUMENTED.split())

# Kinds of exchange, by the command that asks.
PUBLISHES: Final = frozenset(
    NUMBER[name] for name in ("BATCH", "PUBLISH", "TXN_PUBLISH", "APPEND_STREAM")
)
ACKS: Final = frozenset(NUMBER[name] for name in ("COMMIT_OFFSET", "BATCH_COMMIT"))
# Commands that commit a group's offset, or take part in a commit.
COMMITTING: Final = ACKS | {NUMBER["SEND_OFFSETS_TO_TXN"], NUMBER["END_TXN"]}
CONSUMES: Final = frozenset(NUMBER[name] for name in ("CONSUME", "STREAM", "READ_STREAM"))
KINDS: Final = {
    **dict.fromkeys(PUBLISHES, enums.KIND_PUBLISH),
    **dict.fromkeys(ACKS, enums.KIND_ACK),
    **dict.fromkeys(CONSUMES, enums.KIND_CONSUME),
    NUMBER["HEARTBEAT"]: enums.KIND_PING,
    NUMBER["AUTH"]: enums.KIND_AUTH,
}
# Their clients close without reading the answer.
_NEVER_AWAITED: Final = frozenset(NUMBER[name] for name in ("LEAVE_GROUP", "HEARTBEAT_CLUSTER"))

# -- which answers may follow which requests, by their words alone; `exchanges` looks inside
_ASKING: Final = (UNKNOWN, BATCH, *range(FIRST_VERB, len(NAMES)), rules.NOT_SEEN)
_ANSWERS: Final = {
    **dict.fromkeys((UNKNOWN, RESPONSE_ERROR, RESPONSE_JSON, rules.NOT_SEEN), _ASKING),
    RESPONSE_OK: tuple(number for number in _ASKING if number not in CONSUMES),
    BATCH: (*sorted(CONSUMES), rules.NOT_SEEN),
    **dict.fromkeys((STREAM_CONTROL, KEEPALIVE), (NUMBER["STREAM"], rules.NOT_SEEN)),
}
TABLE: Final = tuple(
    Command(
        number,
        rules.EITHER,
        PairedBy.ORDER if number in _ASKING else PairedBy.NO_REQUEST,
        _ANSWERS.get(number, ()),
        KINDS.get(number, enums.KIND_REQUEST),
        silence=Expectation.NEVER_AWAITED if number in _NEVER_AWAITED else Expectation.AWAITED,
        is_receipt=number in (RESPONSE_OK, RESPONSE_ERROR, RESPONSE_JSON),
    )
    for number in {*_ASKING, *_ANSWERS}
)

MAX_WORD_BYTES: Final = 19  # of a command; longer first words are none
_WORDS: Final = 3  # 64-bit words that hold one
_BLANKS: Final = (0x20, 0x09, 0x0A, 0x0D)

# Results of find_verb for a text that is no command.
NO_VERB: Final = -1
CUT_VERB: Final = -2  # the bytes end before the word does


def _packed(verb: str) -> list[int]:
    padded = verb.encode().ljust(8 * _WORDS, b"\0")
    return [int.from_bytes(padded[at : at + 8], "big") for at in range(0, 8 * _WORDS, 8)]


_PACKED: Final[Int64Array] = np.array([_packed(verb) for verb in VERBS], np.int64)


@inlined
def is_blank(value: int) -> bool:
    """Whether a byte separates words."""
    return value == 0x20 or value == 0x09 or value == 0x0A or value == 0x0D


@kernel
def find_verb(data: ByteArray, at: int, end: int, is_whole: int) -> int:
    """The number of the command whose word begins at `at`, in upper or lower case.

    Args:
        end: exclusive end of the bytes; is_whole: 1 if the text ends there.

    Returns:
        The number, NO_VERB, or CUT_VERB if more bytes may complete a command.
    """
    first = 0
    second = 0
    third = 0
    is_ended = is_whole == 1
    for length in range(end - at):
        value = byte(data, at + length)
        if is_blank(value):
            is_ended = True
            break
        if length == MAX_WORD_BYTES:
            return NO_VERB
        if 0x61 <= value <= 0x7A:
            value -= 0x20
        if value != 0x5F and (value < 0x41 or value > 0x5A):
            return NO_VERB
        shift = 56 - 8 * (length & 7)
        if length < 8:
            first |= value << shift
        elif length < 16:
            second |= value << shift
        else:
            third |= value << shift
    if not is_ended:
        return CUT_VERB
    for number in range(len(_PACKED)):
        if (
            _PACKED[number, 0] == first
            and _PACKED[number, 1] == second
            and _PACKED[number, 2] == third
        ):
            return FIRST_VERB + number
    return NO_VERB


def names_column(numbers: Int64Array) -> Coded:
    """The names of int64[rows] commands; null where a number is."""
    return Coded(np.where(numbers >= 0, numbers, NULL), NAMES)
