"""Which answers belong to which requests: the table of commands that a protocol declares.

Requests and answers are paired within one connection. By request id: the answer repeats it; generic
answers fit many requests, so the waiting request decides. By send: producer id and sequence id. By
turn: no key on the wire; answers have the order of the requests of that command and direction. By
order: as by turn, over all requests of the connection. By watcher: the first update answers, later
ones are pushes.
"""

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.columns import UNKNOWN_DIRECTION
from dissector.schemas.enums import KIND_REQUEST
from dissector.states import State

COMMAND_SLOTS: Final = 128  # room in tables that are indexed by command number
NOT_SEEN: Final = COMMAND_SLOTS - 1  # index of a command whose number could not be read

# Either side sends it.
EITHER: Final = UNKNOWN_DIRECTION


class PairedBy(enum.IntEnum):
    """The key by which a request and its answer are paired."""

    NO_REQUEST = -1  # the command is no request
    NOTHING = 0  # a request without an answer
    SEND = 1
    REQUEST_ID = 2
    TURN = 3
    WATCHER = 4
    ORDER = 5


class Expectation(enum.IntEnum):
    """Whether the protocol demands an answer to a request."""

    AWAITED = 0
    MAY_BE_SILENT = 1  # the broker answers only if something happens
    NEVER_AWAITED = 2  # the client reads no answer, though the broker may send one


class Command(NamedTuple):
    """One command.

    direction: to broker or to client, see protocols.columns.
    pairing: of a request, else NO_REQUEST.
    answers: the requests that it may answer.
    kind: of a request's exchange.
    client_handle: kind of the handle that it names by id, a number of the protocol's.
    is_refusal: an answer: the request failed.
    failed_response: the number in `response` with which an answer says that the request failed.
    is_receipt: an answer with the position of the stored entry, ledger and entry -1 if none was.
    """

    number: int
    direction: int
    pairing: PairedBy = PairedBy.NO_REQUEST
    answers: tuple[int, ...] = ()
    kind: int = KIND_REQUEST
    client_handle: int = 0
    silence: Expectation = Expectation.AWAITED
    is_refusal: bool = False
    failed_response: int = NULL
    is_receipt: bool = False


class RuleColumns(State):
    """The table for kernels, int64[COMMAND_SLOTS] each, indexed by `slot_of` a command.

    request_key: the PairedBy of a request, else NO_REQUEST.
    kind: of the exchange of a request, or of the request of an answer.
    reply_key: the PairedBy of an answer's requests, else NO_REQUEST.
    first_request: the first request that an answer may answer, the only one unless paired by id.
    may_answer: int64[COMMAND_SLOTS, COMMAND_SLOTS], 1 where [request, reply] may be a pair.
    client_handle and below: as in `Command`.
    """

    request_key: Int64Array
    kind: Int64Array
    reply_key: Int64Array
    first_request: Int64Array
    may_answer: Int64Array
    client_handle: Int64Array
    silence: Int64Array
    is_refusal: Int64Array
    failed_response: Int64Array
    is_receipt: Int64Array


@inlined
def slot_of(command: int) -> int:
    """The index of a command's number in the table."""
    return command if command >= 0 else NOT_SEEN


_AS_DECLARED: Final = (
    "kind",
    "client_handle",
    "silence",
    "is_refusal",
    "failed_response",
    "is_receipt",
)


def rules_of(commands: Iterable[Command]) -> RuleColumns:
    """The arrays of a table of commands."""
    by_number = {command.number: command for command in commands}
    columns = RuleColumns(
        request_key=np.full(COMMAND_SLOTS, PairedBy.NO_REQUEST, np.int64),
        kind=np.full(COMMAND_SLOTS, KIND_REQUEST, np.int64),
        reply_key=np.full(COMMAND_SLOTS, PairedBy.NO_REQUEST, np.int64),
        first_request=np.full(COMMAND_SLOTS, -1, np.int64),
        may_answer=np.zeros((COMMAND_SLOTS, COMMAND_SLOTS), np.int64),
        client_handle=np.zeros(COMMAND_SLOTS, np.int64),
        silence=np.zeros(COMMAND_SLOTS, np.int64),
        is_refusal=np.zeros(COMMAND_SLOTS, np.int64),
        failed_response=np.full(COMMAND_SLOTS, NULL, np.int64),
        is_receipt=np.zeros(COMMAND_SLOTS, np.int64),
    )
    for number, command in by_number.items():
        columns.request_key[number] = command.pairing
        for name in _AS_DECLARED:
            getattr(columns, name)[number] = getattr(command, name)
        if command.answers:
            request = by_number[command.answers[0]]
            columns.reply_key[number] = request.pairing
            columns.first_request[number] = request.number
            if command.pairing == PairedBy.NO_REQUEST:
                columns.kind[number] = request.kind
            columns.may_answer[list(command.answers), number] = 1
    return columns
