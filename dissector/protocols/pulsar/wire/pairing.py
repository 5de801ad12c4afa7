"""Which Pulsar command answers which: the pairing rules, as a table keyed by command number.

All keys hold within one connection. By request id: the answer repeats it; SUCCESS and ERROR are
generic, so only the waiting request tells what they answer (the C++ client counts look-ups and the
rest apart, so one id may wait twice, for different answers). By send: producer id and sequence id.
By turn: no key on the wire, answers come in the order of the requests of that direction (CONNECT,
AUTH_CHALLENGE, PING; a refused CONNECT gets an ERROR with request id -1). By watcher: the first
update answers, later ones are pushes.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.protocols.pulsar.wire.commands import (
    ACK,
    ACK_RESPONSE,
    ACTIVE_CONSUMER_CHANGE,
    AUTH_CHALLENGE,
    AUTH_RESPONSE,
    CLOSE_CONSUMER,
    CLOSE_PRODUCER,
    CONNECT,
    CONNECTED,
    CONSUMER_STATS,
    ERROR,
    FLOW,
    GET_LAST_MESSAGE_ID,
    MESSAGE,
    PING,
    PONG,
    PRODUCER,
    PRODUCER_SUCCESS,
    REACHED_END_OF_TOPIC,
    REDELIVER,
    SEEK,
    SEND,
    SEND_ERROR,
    SEND_RECEIPT,
    SUBSCRIBE,
    SUCCESS,
    UNSUBSCRIBE,
)
from dissector.states import State

COMMAND_SLOTS: Final = 128  # room in tables that are indexed by command number
WATCH_SCALABLE_TOPICS: Final = 76
BROKER_REQUEST_ID: Final = -1  # of closes by the broker and of errors before CONNECTED

# How a request and its answer find each other.
BY_NOTHING: Final = 0
BY_SEND: Final = 1
BY_REQUEST_ID: Final = 2
BY_TURN: Final = 3
BY_WATCHER: Final = 4

KIND_PUBLISH: Final = 0
KIND_REQUEST: Final = 1
KIND_ACK: Final = 2
KIND_PING: Final = 3
KIND_AUTH: Final = 4
KIND_CONSUME: Final = 5
KIND_NAMES: Final = ("publish", "request", "ack", "ping", "auth", "consume")

NO_SUBJECT: Final = 0
PRODUCER_SUBJECT: Final = 1
CONSUMER_SUBJECT: Final = 2


class RequestRule(NamedTuple):
    """A command that asks for something. key: BY_*; replies: commands that may answer (none: no
    answer is due); kind: of its exchange."""

    request: int
    key: int
    replies: tuple[int, ...]
    kind: int = KIND_REQUEST


RULES: Final = (
    RequestRule(CONNECT, BY_TURN, (CONNECTED, ERROR)),
    RequestRule(SUBSCRIBE, BY_REQUEST_ID, (SUCCESS, ERROR)),
    RequestRule(PRODUCER, BY_REQUEST_ID, (PRODUCER_SUCCESS, ERROR)),
    RequestRule(SEND, BY_SEND, (SEND_RECEIPT, SEND_ERROR), KIND_PUBLISH),
    RequestRule(ACK, BY_REQUEST_ID, (ACK_RESPONSE, ERROR), KIND_ACK),
    RequestRule(UNSUBSCRIBE, BY_REQUEST_ID, (SUCCESS, ERROR)),
    RequestRule(CLOSE_PRODUCER, BY_REQUEST_ID, (SUCCESS, ERROR)),
    RequestRule(CLOSE_CONSUMER, BY_REQUEST_ID, (SUCCESS, ERROR)),
    RequestRule(PING, BY_TURN, (PONG,), KIND_PING),
    RequestRule(21, BY_REQUEST_ID, (22, ERROR)),  # PARTITIONED_METADATA
    RequestRule(23, BY_REQUEST_ID, (24, ERROR)),  # LOOKUP
    RequestRule(CONSUMER_STATS, BY_REQUEST_ID, (26, ERROR)),
    RequestRule(SEEK, BY_REQUEST_ID, (SUCCESS, ERROR)),
    RequestRule(GET_LAST_MESSAGE_ID, BY_REQUEST_ID, (30, ERROR)),
    RequestRule(32, BY_REQUEST_ID, (33, ERROR)),  # GET_TOPICS_OF_NAMESPACE
    RequestRule(34, BY_REQUEST_ID, (35, ERROR)),  # GET_SCHEMA
    RequestRule(AUTH_CHALLENGE, BY_TURN, (AUTH_RESPONSE,), KIND_AUTH),
    RequestRule(39, BY_REQUEST_ID, (40, ERROR)),  # GET_OR_CREATE_SCHEMA
    RequestRule(50, BY_REQUEST_ID, (51, ERROR)),  # NEW_TXN
    RequestRule(52, BY_REQUEST_ID, (53, ERROR)),  # ADD_PARTITION_TO_TXN
    RequestRule(54, BY_REQUEST_ID, (55, ERROR)),  # ADD_SUBSCRIPTION_TO_TXN
    RequestRule(56, BY_REQUEST_ID, (57, ERROR)),  # END_TXN
    RequestRule(58, BY_REQUEST_ID, (59, ERROR)),  # END_TXN_ON_PARTITION
    RequestRule(60, BY_REQUEST_ID, (61, ERROR)),  # END_TXN_ON_SUBSCRIPTION
    RequestRule(62, BY_REQUEST_ID, (63, ERROR)),  # TC_CLIENT_CONNECT_REQUEST
    RequestRule(64, BY_REQUEST_ID, (65, ERROR)),  # WATCH_TOPIC_LIST
    RequestRule(67, BY_REQUEST_ID, (SUCCESS, ERROR)),  # WATCH_TOPIC_LIST_CLOSE
    RequestRule(70, BY_WATCHER, (71,)),  # SCALABLE_TOPIC_LOOKUP
    RequestRule(72, BY_NOTHING, ()),  # SCALABLE_TOPIC_CLOSE
    RequestRule(73, BY_REQUEST_ID, (74, ERROR)),  # SCALABLE_TOPIC_SUBSCRIBE
    # No first update comes if the client's hash of the topics was right.
    RequestRule(WATCH_SCALABLE_TOPICS, BY_WATCHER, (77,)),
    RequestRule(78, BY_NOTHING, ()),  # WATCH_SCALABLE_TOPICS_CLOSE
    RequestRule(79, BY_WATCHER, (80,)),  # WATCH_TC_ASSIGNMENTS
    RequestRule(81, BY_NOTHING, ()),  # WATCH_TC_ASSIGNMENTS_CLOSE
)

# Commands about one producer or consumer that they name by its id.
PRODUCER_COMMANDS: Final = (PRODUCER, SEND, SEND_RECEIPT, SEND_ERROR, CLOSE_PRODUCER)
CONSUMER_COMMANDS: Final = (
    SUBSCRIBE,
    MESSAGE,
    ACK,
    FLOW,
    UNSUBSCRIBE,
    CLOSE_CONSUMER,
    REDELIVER,
    CONSUMER_STATS,
    REACHED_END_OF_TOPIC,
    SEEK,
    GET_LAST_MESSAGE_ID,
    ACTIVE_CONSUMER_CHANGE,
    ACK_RESPONSE,
)


class RuleColumns(State):
    """The rules as kernels read them, int64[COMMAND_SLOTS] each, indexed by command number.

    request_key: BY_* of a request, -1 for other commands; kind: of a request's exchange;
    reply_key: BY_* of an answer, -1 for other commands; asked_by: the one request that an answer
    by turn or watcher answers; reply_kind: KIND_* of what it answers; may_answer:
    int64[COMMAND_SLOTS, COMMAND_SLOTS], 1 where [request, reply] is a rule; subject: *_SUBJECT of
    commands that name a producer or consumer.
    """

    request_key: Int64Array
    kind: Int64Array
    reply_key: Int64Array
    asked_by: Int64Array
    reply_kind: Int64Array
    may_answer: Int64Array
    subject: Int64Array


def rule_columns() -> RuleColumns:
    """The arrays of RULES, made anew."""
    columns = RuleColumns(
        request_key=np.full(COMMAND_SLOTS, -1, np.int64),
        kind=np.full(COMMAND_SLOTS, -1, np.int64),
        reply_key=np.full(COMMAND_SLOTS, -1, np.int64),
        asked_by=np.full(COMMAND_SLOTS, -1, np.int64),
        reply_kind=np.full(COMMAND_SLOTS, KIND_REQUEST, np.int64),
        may_answer=np.zeros((COMMAND_SLOTS, COMMAND_SLOTS), np.int64),
        subject=np.zeros(COMMAND_SLOTS, np.int64),
    )
    for rule in RULES:
        columns.request_key[rule.request] = rule.key
        columns.kind[rule.request] = rule.kind
        for reply in rule.replies:
            columns.may_answer[rule.request, reply] = 1
            if reply != ERROR:
                columns.reply_key[reply] = rule.key
                columns.asked_by[reply] = rule.request
                columns.reply_kind[reply] = rule.kind
    columns.reply_key[ERROR] = BY_REQUEST_ID
    columns.subject[list(PRODUCER_COMMANDS)] = PRODUCER_SUBJECT
    columns.subject[list(CONSUMER_COMMANDS)] = CONSUMER_SUBJECT
    return columns
