"""Which answer belongs to which request: first in, first out on each connection.

There is no request id. A broker reads, handles and answers one frame at a time, so answers come in
the order of requests, with three exceptions: READ_STREAM is answered by two frames, STREAM turns
the connection into a one-way push of batches, and an append that fails may close the connection
with no answer at all. Empty frames from a broker are signs of life and answer nothing.

Holes are the weak spot of a rule by order. Requests that were waiting when bytes of the answering
direction were lost may have lost their answer: they keep their place until an answer comes that
fits a later one, or until their client, which never had two outstanding, asks again.
"""

from collections import deque
from typing import Final

from dissector.limits import NULL
from dissector.protocols.cursus.answers import Answer
from dissector.protocols.cursus.commands import (
    ACKS,
    BATCH,
    CONSUMES,
    KEEPALIVE,
    NUMBER,
    PUBLISHES,
    RESPONSE_ERROR,
    RESPONSE_JSON,
    RESPONSE_OK,
    STREAM_CONTROL,
)
from dissector.protocols.cursus.lines import Line
from dissector.protocols.cursus.relayed import is_passed_on
from dissector.protocols.cursus.talking import BATCHES, KEPT, PUSHES
from dissector.schemas.words import KIND_ACK as ACK
from dissector.schemas.words import KIND_AUTH as AUTH
from dissector.schemas.words import KIND_CONSUME as CONSUME
from dissector.schemas.words import KIND_PING as PING
from dissector.schemas.words import KIND_PUBLISH as PUBLISH
from dissector.schemas.words import KIND_REQUEST as REQUEST

STREAM: Final = NUMBER["STREAM"]
READ_STREAM: Final = NUMBER["READ_STREAM"]
LEAVE_GROUP: Final = NUMBER["LEAVE_GROUP"]
_NEVER_AWAITED: Final = frozenset((LEAVE_GROUP, NUMBER["HEARTBEAT_CLUSTER"]))
_MAX_LENT: Final = 64  # batches that wait when a connection is lent to compiled passes
_ANSWERED_BY_BATCH: Final = CONSUMES
_BATCHES: Final = (BATCH, NUMBER["INTERNAL_BATCH"])
# Commands whose success has fields that no other's has; a few are enough to tell answers apart.
_TELLING_FIELDS: Final = {
    "assignments": frozenset((NUMBER["JOIN_GROUP"], NUMBER["SYNC_GROUP"])),
    "batched": frozenset((NUMBER["BATCH_COMMIT"],)),
    "leaders": frozenset((NUMBER["METADATA"],)),
    "offsets": frozenset((NUMBER["LIST_OFFSETS"], NUMBER["END_TXN"], NUMBER["TXN_STATUS"])),
    "coordinator_id": frozenset((NUMBER["FIND_COORDINATOR"],)),
    "topics": frozenset((NUMBER["LIST"],)),
    "authenticated": frozenset((NUMBER["AUTH"],)),
    "left": frozenset((LEAVE_GROUP,)),
    "version": frozenset(
        NUMBER[name] for name in ("APPEND_STREAM", "STREAM_VERSION", "SAVE_SNAPSHOT")
    ),
}


def kind_of(command: int) -> int:
    """The kind of exchange that a command begins."""
    if command in PUBLISHES:
        return PUBLISH
    if command in ACKS:
        return ACK
    if command in CONSUMES:
        return CONSUME
    if command == NUMBER["HEARTBEAT"]:
        return PING
    return AUTH if command == NUMBER["AUTH"] else REQUEST


KINDS: Final = {number: kind_of(number) for number in range(len(NUMBER))}


class Request:
    """A request that waits for its answer; numbers as in ExchangeRow."""

    __slots__ = (
        "acks",
        "attempt",
        "command",
        "consumer_name",
        "first_ns",
        "frame_no",
        "highest",
        "idempotent",
        "is_passed_on",
        "kind",
        "last_ns",
        "line",
        "may_be_lost",
        "message_count",
        "number",
        "outstanding",
        "partition",
        "producer",
        "sequence",
        "size",
        "subscription",
        "tainted",
        "topic",
    )

    def __init__(self, command: int, frame_no: int, line: Line | None) -> None:
        self.command = command
        self.frame_no = frame_no
        self.line = line
        self.is_passed_on = line is not None and is_passed_on(line)
        self.kind = REQUEST if self.is_passed_on else KINDS.get(command, REQUEST)
        self.first_ns = self.last_ns = NULL
        self.size = NULL
        self.topic = self.partition = self.subscription = NULL
        self.producer = self.consumer_name = NULL
        self.sequence = self.highest = self.message_count = NULL
        self.attempt = self.outstanding = NULL
        self.acks = 1
        self.idempotent = 0
        self.tainted = 0
        self.may_be_lost = False
        self.number = 0

    def is_never_awaited(self) -> bool:
        """Whether clients close without reading the answer."""
        return self.command in _NEVER_AWAITED

    def is_silent(self) -> bool:
        """Whether its client may not wait for the answer."""
        return self.is_never_awaited() or (self.kind == PUBLISH and self.acks == 0)


class Conversation:
    """One connection.

    waiting: requests in the order in which they came; unread: requests behind a STREAM, which
    nobody reads; stream: the STREAM that turned it into a push, or NO_STREAM if that was not seen;
    second: a READ_STREAM whose first frame has come; missed: answers still to come for requests
    that were given up; version, features: what was negotiated; must_authenticate: the broker said
    so, and the client has not; has_stored: a batch of it was stored since it last authenticated;
    is_frequent: it has batches or a stream, so that it is worth lending;
    talk: its record for compiled passes, which have the conversation while is_lent; last_producer:
    topic, name and epoch of the last batch.
    """

    __slots__ = (
        "connection",
        "features",
        "has_asked",
        "has_hole",
        "has_pipelined",
        "has_stored",
        "is_frequent",
        "is_lent",
        "last_producer",
        "missed",
        "must_authenticate",
        "producers",
        "publishes",
        "second",
        "seen",
        "stream",
        "talk",
        "unread",
        "version",
        "waiting",
    )

    def __init__(self, connection: int, talk: int) -> None:
        self.connection = connection
        self.talk = talk
        self.is_frequent = False
        self.is_lent = False
        self.last_producer = (NULL, NULL, NULL)
        self.waiting: deque[Request] = deque()
        self.unread: list[Request] = []
        self.stream: Request | None = None
        self.second: Request | None = None
        self.missed = 0
        self.publishes = 0
        self.has_asked = False
        self.has_pipelined = False
        self.has_hole = False
        self.seen = [False, False]
        self.producers: dict[tuple[int, int], int] = {}
        self.features: tuple[str, ...] | None = None
        self.version: int | None = None
        self.must_authenticate = False
        self.has_stored = False

    def mode(self) -> int:
        """What of it compiled passes can do now: of talking."""
        if self.second is not None:
            return KEPT
        if self.stream is not None:
            is_known = self.stream is not NO_STREAM and self.stream.subscription != NULL
            return PUSHES if is_known else KEPT
        if self.missed or self.must_authenticate or len(self.waiting) > _MAX_LENT:
            return KEPT
        is_simple = all(
            each.command == BATCH and each.kind == PUBLISH and not each.may_be_lost
            for each in self.waiting
        )
        return BATCHES if is_simple else KEPT

    def hole(self, is_answering: bool) -> None:
        """Bytes of a direction are missing."""
        self.has_hole = True
        for request in self.waiting:
            request.tainted = 1
            if is_answering:
                request.may_be_lost = True

    def lost_before_request(self) -> list[Request]:
        """Requests whose client asks again though no answer was seen: the answer was lost."""
        lost = []
        while not self.has_pipelined and self.waiting and self.waiting[0].may_be_lost:
            lost.append(self.pop())
        return lost

    def lost_before_answer(self, command: int, topic: int, answer: Answer | None) -> list[Request]:
        """Requests at the head that an answer does not fit, if theirs may have been lost."""
        lost = []
        while (
            self.waiting
            and self.waiting[0].may_be_lost
            and not fits(self.waiting[0], command, topic, answer)
        ):
            lost.append(self.pop())
        return lost

    def push(self, request: Request) -> None:
        """A request came."""
        if self.waiting and not self.waiting[0].may_be_lost:
            self.has_pipelined = True
        if request.kind == PUBLISH:
            request.outstanding = self.publishes
            self.publishes += 1
        self.waiting.append(request)

    def pop(self) -> Request:
        """The request whose turn it is, which waits no longer."""
        request = self.waiting.popleft()
        if request.kind == PUBLISH:
            self.publishes -= 1
        return request


NO_STREAM: Final = Request(STREAM, NULL, None)


def fits(request: Request, command: int, topic: int, answer: Answer | None) -> bool:
    """Whether an answer can be that of a request, by what it says."""
    asked = request.command
    if asked == NULL or command in (NULL, RESPONSE_ERROR):
        return True
    if command == BATCH:
        is_pattern = request.topic == NULL
        return asked in _ANSWERED_BY_BATCH and (is_pattern or request.topic == topic)
    if command in (KEEPALIVE, STREAM_CONTROL):
        return asked == STREAM
    if command == RESPONSE_JSON:
        if answer is not None and answer.ack is not None:
            if asked in _BATCHES:
                return request.sequence in (NULL, answer.ack.seq_start)
            return asked in PUBLISHES
        return asked not in PUBLISHES and request.kind not in (ACK, PING)
    if command == RESPONSE_OK:
        if asked in CONSUMES or (asked == BATCH and request.acks != 0):
            return False
        for name, verbs in _TELLING_FIELDS.items():
            if answer is not None and name in answer.fields:
                return asked in verbs
    return True
