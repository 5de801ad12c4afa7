"""Pulsar's commands: their numbers and names, who sends them, and what answers them.

A command's number is the value of BaseCommand.type, which is also the number of the field that
holds its body. Request, producer and consumer ids all belong to one connection.
"""

from typing import Final, NamedTuple

from dissector.blocks import Coded, Int64Array
from dissector.protocols.columns import TO_BROKER, TO_CLIENT, UNKNOWN_DIRECTION

_COMMON_NUMBERS: Final = 128  # every command that is defined, with room
_RARE_NUMBERS: Final = 4096

# Either side sends it.
EITHER: Final = UNKNOWN_DIRECTION

# What a command and its answer have in common.
KEY_NONE: Final = 0  # nothing: they follow one another
KEY_REQUEST: Final = 1  # request_id
KEY_SEND: Final = 2  # producer_id and sequence_id
KEY_CONSUMER: Final = 3  # consumer_id; pushed or unanswered
KEY_PRODUCER: Final = 4  # producer_id; unanswered
KEY_WATCHER: Final = 5  # watcher_id, watch_id or session_id
KEY_RESOURCE: Final = 6  # resource_id and resource_type: a producer or a consumer

CONNECT: Final = 2
CONNECTED: Final = 3
SUBSCRIBE: Final = 4
PRODUCER: Final = 5
SEND: Final = 6
SEND_RECEIPT: Final = 7
SEND_ERROR: Final = 8
MESSAGE: Final = 9
ACK: Final = 10
FLOW: Final = 11
UNSUBSCRIBE: Final = 12
SUCCESS: Final = 13
ERROR: Final = 14
CLOSE_PRODUCER: Final = 15
CLOSE_CONSUMER: Final = 16
PRODUCER_SUCCESS: Final = 17
PING: Final = 18
PONG: Final = 19
REDELIVER: Final = 20
PARTITIONED_METADATA: Final = 21
PARTITIONED_METADATA_RESPONSE: Final = 22
LOOKUP: Final = 23
LOOKUP_RESPONSE: Final = 24
CONSUMER_STATS: Final = 25
CONSUMER_STATS_RESPONSE: Final = 26
REACHED_END_OF_TOPIC: Final = 27
SEEK: Final = 28
GET_LAST_MESSAGE_ID: Final = 29
GET_LAST_MESSAGE_ID_RESPONSE: Final = 30
ACTIVE_CONSUMER_CHANGE: Final = 31
AUTH_CHALLENGE: Final = 36
AUTH_RESPONSE: Final = 37
ACK_RESPONSE: Final = 38
END_TXN: Final = 56
END_TXN_RESPONSE: Final = 57
TOPIC_MIGRATED: Final = 68


class Command(NamedTuple):
    """One command.

    direction: who sends it, see protocols.columns; key: what ties it to its answer; replies: the
    commands that may answer it, ERROR apart, which may answer whatever has a request_id.
    """

    number: int
    name: str
    direction: int
    key: int
    replies: tuple[int, ...] = ()


COMMANDS: Final = (
    Command(2, "CONNECT", TO_BROKER, KEY_NONE, (3, 36)),
    Command(3, "CONNECTED", TO_CLIENT, KEY_NONE),
    Command(4, "SUBSCRIBE", TO_BROKER, KEY_REQUEST, (13,)),
    Command(5, "PRODUCER", TO_BROKER, KEY_REQUEST, (17,)),
    Command(6, "SEND", TO_BROKER, KEY_SEND, (7, 8)),
    Command(7, "SEND_RECEIPT", TO_CLIENT, KEY_SEND),
    Command(8, "SEND_ERROR", TO_CLIENT, KEY_SEND),
    Command(9, "MESSAGE", TO_CLIENT, KEY_CONSUMER),
    Command(10, "ACK", TO_BROKER, KEY_REQUEST, (38,)),
    Command(11, "FLOW", TO_BROKER, KEY_CONSUMER),
    Command(12, "UNSUBSCRIBE", TO_BROKER, KEY_REQUEST, (13,)),
    Command(13, "SUCCESS", TO_CLIENT, KEY_REQUEST),
    Command(14, "ERROR", TO_CLIENT, KEY_REQUEST),
    Command(15, "CLOSE_PRODUCER", EITHER, KEY_REQUEST, (13,)),
    Command(16, "CLOSE_CONSUMER", EITHER, KEY_REQUEST, (13,)),
    Command(17, "PRODUCER_SUCCESS", TO_CLIENT, KEY_REQUEST),
    Command(18, "PING", EITHER, KEY_NONE, (19,)),
    Command(19, "PONG", EITHER, KEY_NONE),
    Command(20, "REDELIVER_UNACKNOWLEDGED_MESSAGES", TO_BROKER, KEY_CONSUMER),
    Command(21, "PARTITIONED_METADATA", TO_BROKER, KEY_REQUEST, (22,)),
    Command(22, "PARTITIONED_METADATA_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(23, "LOOKUP", TO_BROKER, KEY_REQUEST, (24,)),
    Command(24, "LOOKUP_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(25, "CONSUMER_STATS", TO_BROKER, KEY_REQUEST, (26,)),
    Command(26, "CONSUMER_STATS_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(27, "REACHED_END_OF_TOPIC", TO_CLIENT, KEY_CONSUMER),
    Command(28, "SEEK", TO_BROKER, KEY_REQUEST, (13,)),
    Command(29, "GET_LAST_MESSAGE_ID", TO_BROKER, KEY_REQUEST, (30,)),
    Command(30, "GET_LAST_MESSAGE_ID_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(31, "ACTIVE_CONSUMER_CHANGE", TO_CLIENT, KEY_CONSUMER),
    Command(32, "GET_TOPICS_OF_NAMESPACE", TO_BROKER, KEY_REQUEST, (33,)),
    Command(33, "GET_TOPICS_OF_NAMESPACE_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(34, "GET_SCHEMA", TO_BROKER, KEY_REQUEST, (35,)),
    Command(35, "GET_SCHEMA_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(36, "AUTH_CHALLENGE", TO_CLIENT, KEY_NONE, (37,)),
    Command(37, "AUTH_RESPONSE", TO_BROKER, KEY_NONE),
    Command(38, "ACK_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(39, "GET_OR_CREATE_SCHEMA", TO_BROKER, KEY_REQUEST, (40,)),
    Command(40, "GET_OR_CREATE_SCHEMA_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(50, "NEW_TXN", TO_BROKER, KEY_REQUEST, (51,)),
    Command(51, "NEW_TXN_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(52, "ADD_PARTITION_TO_TXN", TO_BROKER, KEY_REQUEST, (53,)),
    Command(53, "ADD_PARTITION_TO_TXN_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(54, "ADD_SUBSCRIPTION_TO_TXN", TO_BROKER, KEY_REQUEST, (55,)),
    Command(55, "ADD_SUBSCRIPTION_TO_TXN_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(56, "END_TXN", TO_BROKER, KEY_REQUEST, (57,)),
    Command(57, "END_TXN_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(58, "END_TXN_ON_PARTITION", TO_BROKER, KEY_REQUEST, (59,)),
    Command(59, "END_TXN_ON_PARTITION_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(60, "END_TXN_ON_SUBSCRIPTION", TO_BROKER, KEY_REQUEST, (61,)),
    Command(61, "END_TXN_ON_SUBSCRIPTION_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(62, "TC_CLIENT_CONNECT_REQUEST", TO_BROKER, KEY_REQUEST, (63,)),
    Command(63, "TC_CLIENT_CONNECT_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(64, "WATCH_TOPIC_LIST", TO_BROKER, KEY_REQUEST, (65,)),
    Command(65, "WATCH_TOPIC_LIST_SUCCESS", TO_CLIENT, KEY_REQUEST),
    Command(66, "WATCH_TOPIC_UPDATE", TO_CLIENT, KEY_WATCHER),
    Command(67, "WATCH_TOPIC_LIST_CLOSE", TO_BROKER, KEY_REQUEST, (13,)),
    Command(68, "TOPIC_MIGRATED", TO_CLIENT, KEY_RESOURCE),
    Command(70, "SCALABLE_TOPIC_LOOKUP", TO_BROKER, KEY_WATCHER, (71,)),
    Command(71, "SCALABLE_TOPIC_UPDATE", TO_CLIENT, KEY_WATCHER),
    Command(72, "SCALABLE_TOPIC_CLOSE", TO_BROKER, KEY_WATCHER),
    Command(73, "SCALABLE_TOPIC_SUBSCRIBE", TO_BROKER, KEY_REQUEST, (74,)),
    Command(74, "SCALABLE_TOPIC_SUBSCRIBE_RESPONSE", TO_CLIENT, KEY_REQUEST),
    Command(75, "SCALABLE_TOPIC_ASSIGNMENT_UPDATE", TO_CLIENT, KEY_CONSUMER),
    Command(76, "WATCH_SCALABLE_TOPICS", TO_BROKER, KEY_WATCHER, (77,)),
    Command(77, "WATCH_SCALABLE_TOPICS_UPDATE", TO_CLIENT, KEY_WATCHER),
    Command(78, "WATCH_SCALABLE_TOPICS_CLOSE", TO_BROKER, KEY_WATCHER),
    Command(79, "WATCH_TC_ASSIGNMENTS", TO_BROKER, KEY_WATCHER, (80,)),
    Command(80, "WATCH_TC_ASSIGNMENTS_UPDATE", TO_CLIENT, KEY_WATCHER),
    Command(81, "WATCH_TC_ASSIGNMENTS_CLOSE", TO_BROKER, KEY_WATCHER),
)

# Commands that come in masses: every field worth a column has one, and nothing else is decoded
# unless somebody looks at the frame.
FREQUENT: Final = frozenset({SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW, PING, PONG})

COMMAND_BY_NUMBER: Final = {command.number: command for command in COMMANDS}


def command_name(number: int) -> str:
    """The name of a command, `UNKNOWN_83` for one that is not in the table."""
    known = COMMAND_BY_NUMBER.get(number)
    return known.name if known else f"UNKNOWN_{number}"


class CommandNames:
    """Names of commands for columns of numbers; they share one list, so that it is written once."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._texts = [command_name(number) for number in range(_COMMON_NUMBERS)]
        self._rare: dict[int, int] = {}

    def column(self, numbers: Int64Array) -> Coded:
        """The names of int64[rows] numbers; null where a number is, or stands for an event."""
        is_rare = numbers >= _COMMON_NUMBERS
        if not is_rare.any():
            return Coded(numbers, self._texts)
        if len(self._rare) > _RARE_NUMBERS:  # a sender may put any number there
            self._start()
        codes = numbers.copy()
        codes[is_rare] = [self._code(number) for number in numbers[is_rare].tolist()]
        return Coded(codes, self._texts)

    def _code(self, number: int) -> int:
        code = self._rare.setdefault(number, len(self._texts))
        if code == len(self._texts):
            self._texts.append(command_name(number))
        return code
