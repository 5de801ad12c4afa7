"""Which answers belong to which requests, as a protocol declares it: a table of its commands.

All that pairs a request with its answer holds within one connection. By request id: the answer
repeats it; generic answers fit many requests, so only the waiting one tells what they answer. By
send: producer id and sequence id. By turn: no key on the wire, answers come in the order of the
requests of that command and direction. By order: as by turn, of all requests of the connection. By
watcher: the first update answers, later ones are pushes.
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
NOT_SEEN: Final = COMMAND_SLOTS - 1  # the place of a command that could not be read

# Either side sends it.
EITHER: Final = UNKNOWN_DIRECTION


class PairedBy(enum.IntEnum):
    """How a request and its answer find each other."""

    NO_REQUEST = -1  # the command asks nothing
    NOTHING = 0  # no answer is due
    SEND = 1
    REQUEST_ID = 2
    TURN = 3
    WATCHER = 4
    ORDER = 5


class Expectation(enum.IntEnum):
    """Whether a request is sure to get an answer."""

    AWAITED = 0
    MAY_BE_SILENT = 1  # no answer is due where nothing happens
    NEVER_AWAITED = 2  # its client reads no answer, though one may come


class Command(NamedTuple):
    """One command.

    direction: who sends it, see protocols.columns.
    pairing: of a request, else NO_REQUEST.
    answers: the requests that it may answer.
    kind: of a request's exchange.
    client_handle: of what it names by its id, a number of the protocol's.
    is_refusal: an answer that says that nothing was done.
    failed_response: the number in `response` by which an answer says that.
    is_receipt: an answer that names what was stored, ledger and entry -1 if nothing was.
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
    """The table as kernels read it, int64[COMMAND_SLOTS] each, indexed by `slot_of` a command.

    request_key: the PairedBy of a request, else NO_REQUEST.
    kind: of the exchange of a request or, of what asks nothing, of what it answers.
    reply_key: the PairedBy of what an answer answers, else NO_REQUEST.
    asked_by: the first of the requests that it may answer, the only one unless they are paired by
        request id.
    may_answer: int64[COMMAND_SLOTS, COMMAND_SLOTS], 1 where [request, reply] may be a pair.
    client_handle and those below: of a command.
    """

    request_key: Int64Array
    kind: Int64Array
    reply_key: Int64Array
    asked_by: Int64Array
    may_answer: Int64Array
    client_handle: Int64Array
    silence: Int64Array
    is_refusal: Int64Array
    failed_response: Int64Array
    is_receipt: Int64Array


@inlined
def slot_of(command: int) -> int:
    """The place of a command's number in the table."""
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
    """The arrays of a table."""
    by_number = {command.number: command for command in commands}
    columns = RuleColumns(
        request_key=np.full(COMMAND_SLOTS, PairedBy.NO_REQUEST, np.int64),
        kind=np.full(COMMAND_SLOTS, KIND_REQUEST, np.int64),
        reply_key=np.full(COMMAND_SLOTS, PairedBy.NO_REQUEST, np.int64),
        asked_by=np.full(COMMAND_SLOTS, -1, np.int64),
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
            asked = by_number[command.answers[0]]
            columns.reply_key[number] = asked.pairing
            columns.asked_by[number] = asked.number
            if command.pairing == PairedBy.NO_REQUEST:
                columns.kind[number] = asked.kind
            columns.may_answer[list(command.answers), number] = 1
    return columns
