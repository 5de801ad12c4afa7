"""Pulsar's commands: their numbers, who sends them, and which answers which. A line per command.

A command's number is the value of BaseCommand.type, which is also the number of the field that
holds its body; its name is the one that proto/PulsarApi.proto gives to the number. To add a request
and its answer, add two lines to the table here and their messages to the proto.

`pairing.rules` says how they are paired. By request id: SUCCESS and ERROR are generic; the C++
client numbers look-ups and other requests separately, so two may wait under one id for different
answers.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from dissector.blocks import Coded, Int64Array
from dissector.protobuf.descriptors import enum_names
from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.pairing import rules
from dissector.protocols.pairing.rules import Command, Expectation, PairedBy, RuleColumns
from dissector.schemas.enums import KIND_ACK, KIND_AUTH, KIND_PING, KIND_PUBLISH, KIND_REQUEST

BROKER_REQUEST_ID: Final = -1  # of closes by the broker and of errors before CONNECTED
_RARE_NUMBERS: Final = 4096

# Kind of the client handle that a command names by id.
NO_SUBJECT: Final = 0
PRODUCER_SUBJECT: Final = 1
CONSUMER_SUBJECT: Final = 2

COMMAND_BY_NUMBER: Final[dict[int, Command]] = {}  # by number


def _add(command: Command) -> int:
    assert command.number not in COMMAND_BY_NUMBER
    COMMAND_BY_NUMBER[command.number] = command
    return command.number


def _request(
    number: int,
    pairing: PairedBy,
    direction: int = TO_BROKER,
    kind: int = KIND_REQUEST,
    handle: int = 0,
) -> int:
    return _add(Command(number, direction, pairing, kind=kind, client_handle=handle))


def _answer(number: int, *requests: int, handle: int = NO_SUBJECT, **fields: Any) -> int:
    """Add an answer, which has the other direction and the pairing of the first request.

    Args:
        fields: further fields of Command.
    """
    opposite = {TO_BROKER: TO_CLIENT, TO_CLIENT: TO_BROKER, rules.EITHER: rules.EITHER}
    direction = opposite[COMMAND_BY_NUMBER[requests[0]].direction]
    return _add(Command(number, direction, answers=requests, client_handle=handle, **fields))


def _push(number: int, direction: int = TO_CLIENT, handle: int = NO_SUBJECT) -> int:
    """Add a command that is neither request nor answer."""
    return _add(Command(number, direction, client_handle=handle))


# -- connections
CONNECT: Final = _request(2, PairedBy.TURN)
CONNECTED: Final = _answer(3, CONNECT)
PING: Final = _request(18, PairedBy.TURN, rules.EITHER, KIND_PING)
PONG: Final = _answer(19, PING)
AUTH_CHALLENGE: Final = _request(36, PairedBy.TURN, TO_CLIENT, KIND_AUTH)
AUTH_RESPONSE: Final = _answer(37, AUTH_CHALLENGE)
# -- producers
PRODUCER: Final = _request(5, PairedBy.REQUEST_ID, handle=PRODUCER_SUBJECT)
PRODUCER_SUCCESS: Final = _answer(17, PRODUCER)
SEND: Final = _request(6, PairedBy.SEND, TO_BROKER, KIND_PUBLISH, PRODUCER_SUBJECT)
SEND_RECEIPT: Final = _answer(7, SEND, handle=PRODUCER_SUBJECT, is_receipt=True)
SEND_ERROR: Final = _answer(8, SEND, handle=PRODUCER_SUBJECT, is_refusal=True)
CLOSE_PRODUCER: Final = _request(15, PairedBy.REQUEST_ID, rules.EITHER, handle=PRODUCER_SUBJECT)
TOPIC_MIGRATED: Final = _push(68)
# -- consumers
SUBSCRIBE: Final = _request(4, PairedBy.REQUEST_ID, handle=CONSUMER_SUBJECT)
MESSAGE: Final = _push(9, TO_CLIENT, CONSUMER_SUBJECT)
ACK: Final = _request(10, PairedBy.REQUEST_ID, TO_BROKER, KIND_ACK, CONSUMER_SUBJECT)
ACK_RESPONSE: Final = _answer(38, ACK, handle=CONSUMER_SUBJECT)
FLOW: Final = _push(11, TO_BROKER, CONSUMER_SUBJECT)
UNSUBSCRIBE: Final = _request(12, PairedBy.REQUEST_ID, handle=CONSUMER_SUBJECT)
CLOSE_CONSUMER: Final = _request(16, PairedBy.REQUEST_ID, rules.EITHER, handle=CONSUMER_SUBJECT)
REDELIVER: Final = _push(20, TO_BROKER, CONSUMER_SUBJECT)
NEGATIVE_ACK: Final = _push(82, TO_BROKER, CONSUMER_SUBJECT)
CONSUMER_STATS: Final = _request(25, PairedBy.REQUEST_ID, handle=CONSUMER_SUBJECT)
CONSUMER_STATS_RESPONSE: Final = _answer(26, CONSUMER_STATS)
REACHED_END_OF_TOPIC: Final = _push(27, TO_CLIENT, CONSUMER_SUBJECT)
SEEK: Final = _request(28, PairedBy.REQUEST_ID, handle=CONSUMER_SUBJECT)
GET_LAST_MESSAGE_ID: Final = _request(29, PairedBy.REQUEST_ID, handle=CONSUMER_SUBJECT)
GET_LAST_MESSAGE_ID_RESPONSE: Final = _answer(30, GET_LAST_MESSAGE_ID)
ACTIVE_CONSUMER_CHANGE: Final = _push(31, TO_CLIENT, CONSUMER_SUBJECT)
# -- look-ups and schemas
PARTITIONED_METADATA: Final = _request(21, PairedBy.REQUEST_ID)
PARTITIONED_METADATA_RESPONSE: Final = _answer(22, PARTITIONED_METADATA, failed_response=1)
LOOKUP: Final = _request(23, PairedBy.REQUEST_ID)
LOOKUP_RESPONSE: Final = _answer(24, LOOKUP, failed_response=2)
GET_TOPICS_OF_NAMESPACE: Final = _request(32, PairedBy.REQUEST_ID)
GET_TOPICS_OF_NAMESPACE_RESPONSE: Final = _answer(33, GET_TOPICS_OF_NAMESPACE)
GET_SCHEMA: Final = _request(34, PairedBy.REQUEST_ID)
GET_SCHEMA_RESPONSE: Final = _answer(35, GET_SCHEMA)
GET_OR_CREATE_SCHEMA: Final = _request(39, PairedBy.REQUEST_ID)
GET_OR_CREATE_SCHEMA_RESPONSE: Final = _answer(40, GET_OR_CREATE_SCHEMA)
# -- transactions
NEW_TXN: Final = _request(50, PairedBy.REQUEST_ID)
NEW_TXN_RESPONSE: Final = _answer(51, NEW_TXN)
ADD_PARTITION_TO_TXN: Final = _request(52, PairedBy.REQUEST_ID)
ADD_PARTITION_TO_TXN_RESPONSE: Final = _answer(53, ADD_PARTITION_TO_TXN)
ADD_SUBSCRIPTION_TO_TXN: Final = _request(54, PairedBy.REQUEST_ID)
ADD_SUBSCRIPTION_TO_TXN_RESPONSE: Final = _answer(55, ADD_SUBSCRIPTION_TO_TXN)
END_TXN: Final = _request(56, PairedBy.REQUEST_ID)
END_TXN_RESPONSE: Final = _answer(57, END_TXN)
END_TXN_ON_PARTITION: Final = _request(58, PairedBy.REQUEST_ID)
END_TXN_ON_PARTITION_RESPONSE: Final = _answer(59, END_TXN_ON_PARTITION)
END_TXN_ON_SUBSCRIPTION: Final = _request(60, PairedBy.REQUEST_ID)
END_TXN_ON_SUBSCRIPTION_RESPONSE: Final = _answer(61, END_TXN_ON_SUBSCRIPTION)
TC_CLIENT_CONNECT_REQUEST: Final = _request(62, PairedBy.REQUEST_ID)
TC_CLIENT_CONNECT_RESPONSE: Final = _answer(63, TC_CLIENT_CONNECT_REQUEST)
WATCH_TC_ASSIGNMENTS: Final = _request(79, PairedBy.WATCHER)
WATCH_TC_ASSIGNMENTS_UPDATE: Final = _answer(80, WATCH_TC_ASSIGNMENTS)
WATCH_TC_ASSIGNMENTS_CLOSE: Final = _request(81, PairedBy.NOTHING)
# -- lists of topics, and topics that scale
WATCH_TOPIC_LIST: Final = _request(64, PairedBy.REQUEST_ID)
WATCH_TOPIC_LIST_SUCCESS: Final = _answer(65, WATCH_TOPIC_LIST)
WATCH_TOPIC_UPDATE: Final = _push(66)
WATCH_TOPIC_LIST_CLOSE: Final = _request(67, PairedBy.REQUEST_ID)
SCALABLE_TOPIC_LOOKUP: Final = _request(70, PairedBy.WATCHER)
SCALABLE_TOPIC_UPDATE: Final = _answer(71, SCALABLE_TOPIC_LOOKUP)
SCALABLE_TOPIC_CLOSE: Final = _request(72, PairedBy.NOTHING)
SCALABLE_TOPIC_SUBSCRIBE: Final = _request(73, PairedBy.REQUEST_ID)
SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: Final = _answer(74, SCALABLE_TOPIC_SUBSCRIBE)
SCALABLE_TOPIC_ASSIGNMENT_UPDATE: Final = _push(75)
# The broker sends the first update only once topics match.
WATCH_SCALABLE_TOPICS: Final = _add(
    Command(76, TO_BROKER, PairedBy.WATCHER, silence=Expectation.MAY_BE_SILENT)
)
WATCH_SCALABLE_TOPICS_UPDATE: Final = _answer(77, WATCH_SCALABLE_TOPICS)
WATCH_SCALABLE_TOPICS_CLOSE: Final = _request(78, PairedBy.NOTHING)
# -- generic answers: ERROR refuses any request with a request id, and CONNECT (request id -1)
SUCCESS: Final = _answer(
    13, SUBSCRIBE, UNSUBSCRIBE, CLOSE_PRODUCER, CLOSE_CONSUMER, SEEK, WATCH_TOPIC_LIST_CLOSE
)
_BY_ID: Final = [n for n, c in COMMAND_BY_NUMBER.items() if c.pairing == PairedBy.REQUEST_ID]
ERROR: Final = _answer(14, *_BY_ID, CONNECT, is_refusal=True)

COMMANDS: Final = tuple(COMMAND_BY_NUMBER[number] for number in sorted(COMMAND_BY_NUMBER))
# Commands that are most of the traffic: their useful fields have columns, and the others are
# decoded only for a frame that is shown in full.
FREQUENT: Final = frozenset({SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW, PING, PONG})


@cache
def rule_columns() -> RuleColumns:
    """The arrays of the table; read-only."""
    return rules.rules_of(COMMANDS)


def command_name(number: int) -> str:
    """The name of a command, `UNKNOWN_83` for one that is not in the table."""
    return enum_names("BaseCommand.Type").get(number, f"UNKNOWN_{number}")


@cache
def _usual_names() -> tuple[str, ...]:
    return tuple(command_name(number) for number in range(rules.COMMAND_SLOTS))


class CommandNames:
    """Names of commands for columns of numbers; all columns share one list, written once.

    Without unusual numbers it is a tuple, the same for all captures, which is not searched for
    secrets.
    """

    def __init__(self) -> None:
        self._texts: Sequence[str] = _usual_names()
        self._slow_path: dict[int, int] = {}

    def column(self, numbers: Int64Array) -> Coded:
        """The names of int64[rows] numbers; null for null and for the numbers of events."""
        if int(numbers.max(initial=0)) < rules.COMMAND_SLOTS:
            return Coded(numbers, self._texts)
        needs_slow_path = numbers >= rules.COMMAND_SLOTS
        if (
            not self._slow_path or len(self._slow_path) > _RARE_NUMBERS
        ):  # a sender may put any number there
            self._texts, self._slow_path = list(_usual_names()), {}
        codes = numbers.copy()
        codes[needs_slow_path] = [
            self._code(number) for number in numbers[needs_slow_path].tolist()
        ]
        return Coded(codes, self._texts)

    def _code(self, number: int) -> int:
        assert isinstance(self._texts, list)
        code = self._slow_path.setdefault(number, len(self._texts))
        if code == len(self._texts):
            self._texts.append(command_name(number))
        return code
