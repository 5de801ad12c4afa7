"""Pulsar's commands: their numbers, who sends them, and which answers which. A line per command.

A command's number is the value of BaseCommand.type, which is also the number of the field that
holds its body; its name is the one that proto/PulsarApi.proto gives to the number. To add a request
and its answer, add two lines to the table here and their messages to the proto.

All that pairs a request with its answer holds within one connection. By request id: the answer
repeats it; SUCCESS and ERROR are generic, so only the waiting request tells what they answer (the
C++ client counts look-ups and the rest apart, so one id may wait twice, for different answers). By
send: producer id and sequence id. By turn: no key on the wire, answers come in the order of the
requests of that direction. By watcher: the first update answers, later ones are pushes.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Coded, Int64Array
from dissector.protobuf.descriptors import enum_names
from dissector.protocols.columns import TO_BROKER, TO_CLIENT, UNKNOWN_DIRECTION
from dissector.schemas.enums import KIND_ACK, KIND_AUTH, KIND_PING, KIND_PUBLISH, KIND_REQUEST
from dissector.states import State

COMMAND_SLOTS: Final = 128  # room in tables that are indexed by command number
BROKER_REQUEST_ID: Final = -1  # of closes by the broker and of errors before CONNECTED
_RARE_NUMBERS: Final = 4096

# Either side sends it.
EITHER: Final = UNKNOWN_DIRECTION

# How a request and its answer find each other.
NO_REQUEST: Final = -1  # the command asks nothing
BY_NOTHING: Final = 0  # no answer is due
BY_SEND: Final = 1
BY_REQUEST_ID: Final = 2
BY_TURN: Final = 3
BY_WATCHER: Final = 4

# What a command is about, if it names it by its id.
NO_SUBJECT: Final = 0
PRODUCER_SUBJECT: Final = 1
CONSUMER_SUBJECT: Final = 2


class Command(NamedTuple):
    """One command.

    direction: who sends it, see protocols.columns.
    pairing: BY_* of a request, else NO_REQUEST.
    answers: the requests that it may answer.
    kind: of a request's exchange.
    client_handle: what it names by its id.
    """

    number: int
    direction: int
    pairing: int = NO_REQUEST
    answers: tuple[int, ...] = ()
    kind: int = KIND_REQUEST
    client_handle: int = NO_SUBJECT

    @property
    def name(self) -> str:
        """Its name in the protocol."""
        return command_name(self.number)


COMMAND_BY_NUMBER: Final[dict[int, Command]] = {}  # by number


def _add(command: Command) -> int:
    assert command.number not in COMMAND_BY_NUMBER
    COMMAND_BY_NUMBER[command.number] = command
    return command.number


def _request(
    number: int, pairing: int, direction: int = TO_BROKER, kind: int = KIND_REQUEST, about: int = 0
) -> int:
    return _add(Command(number, direction, pairing, kind=kind, client_handle=about))


def _answer(number: int, *requests: int, about: int = NO_SUBJECT) -> int:
    """An answer comes from the other side; its pairing is that of the first request."""
    opposite = {TO_BROKER: TO_CLIENT, TO_CLIENT: TO_BROKER, EITHER: EITHER}
    direction = opposite[COMMAND_BY_NUMBER[requests[0]].direction]
    return _add(Command(number, direction, answers=requests, client_handle=about))


def _push(number: int, direction: int = TO_CLIENT, about: int = NO_SUBJECT) -> int:
    """A command that neither asks nor answers."""
    return _add(Command(number, direction, client_handle=about))


# -- connections
CONNECT: Final = _request(2, BY_TURN)
CONNECTED: Final = _answer(3, CONNECT)
PING: Final = _request(18, BY_TURN, EITHER, KIND_PING)
PONG: Final = _answer(19, PING)
AUTH_CHALLENGE: Final = _request(36, BY_TURN, TO_CLIENT, KIND_AUTH)
AUTH_RESPONSE: Final = _answer(37, AUTH_CHALLENGE)
# -- producers
PRODUCER: Final = _request(5, BY_REQUEST_ID, about=PRODUCER_SUBJECT)
PRODUCER_SUCCESS: Final = _answer(17, PRODUCER)
SEND: Final = _request(6, BY_SEND, TO_BROKER, KIND_PUBLISH, PRODUCER_SUBJECT)
SEND_RECEIPT: Final = _answer(7, SEND, about=PRODUCER_SUBJECT)
SEND_ERROR: Final = _answer(8, SEND, about=PRODUCER_SUBJECT)
CLOSE_PRODUCER: Final = _request(15, BY_REQUEST_ID, EITHER, about=PRODUCER_SUBJECT)
TOPIC_MIGRATED: Final = _push(68)
# -- consumers
SUBSCRIBE: Final = _request(4, BY_REQUEST_ID, about=CONSUMER_SUBJECT)
MESSAGE: Final = _push(9, TO_CLIENT, CONSUMER_SUBJECT)
ACK: Final = _request(10, BY_REQUEST_ID, TO_BROKER, KIND_ACK, CONSUMER_SUBJECT)
ACK_RESPONSE: Final = _answer(38, ACK, about=CONSUMER_SUBJECT)
FLOW: Final = _push(11, TO_BROKER, CONSUMER_SUBJECT)
UNSUBSCRIBE: Final = _request(12, BY_REQUEST_ID, about=CONSUMER_SUBJECT)
CLOSE_CONSUMER: Final = _request(16, BY_REQUEST_ID, EITHER, about=CONSUMER_SUBJECT)
REDELIVER: Final = _push(20, TO_BROKER, CONSUMER_SUBJECT)
CONSUMER_STATS: Final = _request(25, BY_REQUEST_ID, about=CONSUMER_SUBJECT)
CONSUMER_STATS_RESPONSE: Final = _answer(26, CONSUMER_STATS)
REACHED_END_OF_TOPIC: Final = _push(27, TO_CLIENT, CONSUMER_SUBJECT)
SEEK: Final = _request(28, BY_REQUEST_ID, about=CONSUMER_SUBJECT)
GET_LAST_MESSAGE_ID: Final = _request(29, BY_REQUEST_ID, about=CONSUMER_SUBJECT)
GET_LAST_MESSAGE_ID_RESPONSE: Final = _answer(30, GET_LAST_MESSAGE_ID)
ACTIVE_CONSUMER_CHANGE: Final = _push(31, TO_CLIENT, CONSUMER_SUBJECT)
# -- look-ups and schemas
PARTITIONED_METADATA: Final = _request(21, BY_REQUEST_ID)
PARTITIONED_METADATA_RESPONSE: Final = _answer(22, PARTITIONED_METADATA)
LOOKUP: Final = _request(23, BY_REQUEST_ID)
LOOKUP_RESPONSE: Final = _answer(24, LOOKUP)
GET_TOPICS_OF_NAMESPACE: Final = _request(32, BY_REQUEST_ID)
GET_TOPICS_OF_NAMESPACE_RESPONSE: Final = _answer(33, GET_TOPICS_OF_NAMESPACE)
GET_SCHEMA: Final = _request(34, BY_REQUEST_ID)
GET_SCHEMA_RESPONSE: Final = _answer(35, GET_SCHEMA)
GET_OR_CREATE_SCHEMA: Final = _request(39, BY_REQUEST_ID)
GET_OR_CREATE_SCHEMA_RESPONSE: Final = _answer(40, GET_OR_CREATE_SCHEMA)
# -- transactions
NEW_TXN: Final = _request(50, BY_REQUEST_ID)
NEW_TXN_RESPONSE: Final = _answer(51, NEW_TXN)
ADD_PARTITION_TO_TXN: Final = _request(52, BY_REQUEST_ID)
ADD_PARTITION_TO_TXN_RESPONSE: Final = _answer(53, ADD_PARTITION_TO_TXN)
ADD_SUBSCRIPTION_TO_TXN: Final = _request(54, BY_REQUEST_ID)
ADD_SUBSCRIPTION_TO_TXN_RESPONSE: Final = _answer(55, ADD_SUBSCRIPTION_TO_TXN)
END_TXN: Final = _request(56, BY_REQUEST_ID)
END_TXN_RESPONSE: Final = _answer(57, END_TXN)
END_TXN_ON_PARTITION: Final = _request(58, BY_REQUEST_ID)
END_TXN_ON_PARTITION_RESPONSE: Final = _answer(59, END_TXN_ON_PARTITION)
END_TXN_ON_SUBSCRIPTION: Final = _request(60, BY_REQUEST_ID)
END_TXN_ON_SUBSCRIPTION_RESPONSE: Final = _answer(61, END_TXN_ON_SUBSCRIPTION)
TC_CLIENT_CONNECT_REQUEST: Final = _request(62, BY_REQUEST_ID)
TC_CLIENT_CONNECT_RESPONSE: Final = _answer(63, TC_CLIENT_CONNECT_REQUEST)
WATCH_TC_ASSIGNMENTS: Final = _request(79, BY_WATCHER)
WATCH_TC_ASSIGNMENTS_UPDATE: Final = _answer(80, WATCH_TC_ASSIGNMENTS)
WATCH_TC_ASSIGNMENTS_CLOSE: Final = _request(81, BY_NOTHING)
# -- lists of topics, and topics that scale
WATCH_TOPIC_LIST: Final = _request(64, BY_REQUEST_ID)
WATCH_TOPIC_LIST_SUCCESS: Final = _answer(65, WATCH_TOPIC_LIST)
WATCH_TOPIC_UPDATE: Final = _push(66)
WATCH_TOPIC_LIST_CLOSE: Final = _request(67, BY_REQUEST_ID)
SCALABLE_TOPIC_LOOKUP: Final = _request(70, BY_WATCHER)
SCALABLE_TOPIC_UPDATE: Final = _answer(71, SCALABLE_TOPIC_LOOKUP)
SCALABLE_TOPIC_CLOSE: Final = _request(72, BY_NOTHING)
SCALABLE_TOPIC_SUBSCRIBE: Final = _request(73, BY_REQUEST_ID)
SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: Final = _answer(74, SCALABLE_TOPIC_SUBSCRIBE)
SCALABLE_TOPIC_ASSIGNMENT_UPDATE: Final = _push(75)
WATCH_SCALABLE_TOPICS: Final = _request(76, BY_WATCHER)
WATCH_SCALABLE_TOPICS_UPDATE: Final = _answer(77, WATCH_SCALABLE_TOPICS)
WATCH_SCALABLE_TOPICS_CLOSE: Final = _request(78, BY_NOTHING)
# -- generic answers: ERROR refuses whatever has a request id, and a CONNECT (with request id -1)
SUCCESS: Final = _answer(
    13, SUBSCRIBE, UNSUBSCRIBE, CLOSE_PRODUCER, CLOSE_CONSUMER, SEEK, WATCH_TOPIC_LIST_CLOSE
)
_WITH_ID: Final = [n for n, each in COMMAND_BY_NUMBER.items() if each.pairing == BY_REQUEST_ID]
ERROR: Final = _answer(14, *_WITH_ID, CONNECT)

COMMANDS: Final = tuple(COMMAND_BY_NUMBER[number] for number in sorted(COMMAND_BY_NUMBER))
# Commands that come in masses: every field worth a column has one, and nothing else is decoded
# unless somebody looks at the frame.
FREQUENT: Final = frozenset({SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW, PING, PONG})


class RuleColumns(State):
    """The table as kernels read it, int64[COMMAND_SLOTS] each, indexed by command number.

    request_key: BY_* of a request, else NO_REQUEST.
    kind: of a request's exchange.
    reply_key: BY_* of what an answer answers, else NO_REQUEST.
    asked_by: the first of the requests that it may answer, the only one unless they are paired by
        request id.
    reply_kind: of their exchanges.
    may_answer: int64[COMMAND_SLOTS, COMMAND_SLOTS], 1 where [request, reply] may be a pair.
    client_handle: *_SUBJECT of commands that name a producer or consumer.
    """

    request_key: Int64Array
    kind: Int64Array
    reply_key: Int64Array
    asked_by: Int64Array
    reply_kind: Int64Array
    may_answer: Int64Array
    client_handle: Int64Array


@cache
def rule_columns() -> RuleColumns:
    """The arrays of the table, which nobody changes."""
    columns = RuleColumns(
        request_key=np.full(COMMAND_SLOTS, NO_REQUEST, np.int64),
        kind=np.full(COMMAND_SLOTS, KIND_REQUEST, np.int64),
        reply_key=np.full(COMMAND_SLOTS, NO_REQUEST, np.int64),
        asked_by=np.full(COMMAND_SLOTS, -1, np.int64),
        reply_kind=np.full(COMMAND_SLOTS, KIND_REQUEST, np.int64),
        may_answer=np.zeros((COMMAND_SLOTS, COMMAND_SLOTS), np.int64),
        client_handle=np.zeros(COMMAND_SLOTS, np.int64),
    )
    for command in COMMANDS:
        columns.client_handle[command.number] = command.client_handle
        columns.request_key[command.number] = command.pairing
        columns.kind[command.number] = command.kind
        if command.answers:
            asked = COMMAND_BY_NUMBER[command.answers[0]]
            columns.reply_key[command.number] = asked.pairing
            columns.asked_by[command.number] = asked.number
            columns.reply_kind[command.number] = asked.kind
            columns.may_answer[list(command.answers), command.number] = 1
    return columns


def command_name(number: int) -> str:
    """The name of a command, `UNKNOWN_83` for one that is not in the table."""
    return enum_names("BaseCommand.Type").get(number, f"UNKNOWN_{number}")


@cache
def _usual_names() -> tuple[str, ...]:
    return tuple(command_name(number) for number in range(COMMAND_SLOTS))


class CommandNames:
    """Names of commands for columns of numbers; they share one list, so that it is written once.

    Until a rare number comes it is the same for all captures, a tuple: nobody looks for secrets in
    our own words.
    """

    def __init__(self) -> None:
        self._texts: Sequence[str] = _usual_names()
        self._slow_path: dict[int, int] = {}

    def column(self, numbers: Int64Array) -> Coded:
        """The names of int64[rows] numbers; null where a number is, or stands for an event."""
        if int(numbers.max(initial=0)) < COMMAND_SLOTS:
            return Coded(numbers, self._texts)
        needs_slow_path = numbers >= COMMAND_SLOTS
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
