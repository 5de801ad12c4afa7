"""Conversations on their way to the compiled pass over what is frequent, and back to the rules."""

import numpy as np

from dissector.limits import NULL
from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.cursus.commands import BATCH
from dissector.protocols.cursus.conversations import Conversation, Request
from dissector.protocols.cursus.talking import (
    KEPT,
    PUSHES,
    Talks,
    TalkState,
    WaitingBatches,
    Walked,
)
from dissector.protocols.tables import (
    ABSENT,
    grown_pool,
    new_hash_table,
    new_pool,
    put,
    remove,
    roomy,
)


class Lending:
    """The state of what is lent, with room for what comes. limit: of requests that wait."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.state = TalkState(
            by_connection=new_hash_table(128),
            talks=Talks.new(64),
            waiting=WaitingBatches.new(64),
            free=new_pool(64),
            pending=np.array([0, limit], np.int64),
        )
        self.walked = Walked.new(1)
        self._free_talks: list[int] = []
        self._used = 0

    @property
    def pending(self) -> int:
        """Requests that wait on any connection, lent or not."""
        return int(self.state.pending[0])

    def add_pending(self, more: int) -> None:
        """So many more wait, or fewer."""
        self.state.pending[0] += more

    def make_room(self, more: int) -> None:
        """Room for `more` further batches that wait, and no more than the limit of all."""
        state = self.state
        rows = len(state.free.rows)
        if int(state.free.free[0]) < more and rows < self._limit:
            rows = min(self._limit, 1 << (rows + more).bit_length())
            state.grow(waiting=state.waiting.grown(rows), free=grown_pool(state.free, rows))

    def open(self, connection: int) -> int:
        """A record for a connection, which the rules have at first."""
        state = self.state
        state.grow(by_connection=roomy(state.by_connection, 1))
        if self._free_talks:
            talk = self._free_talks.pop()
        else:
            talk = self._used
            self._used += 1
            if talk >= len(state.talks.matrix):
                state.grow(talks=state.talks.grown(2 * talk))
        state.talks.matrix[talk] = 0
        put(state.by_connection, connection, 0, 0, 0, talk)
        return talk

    def close(self, connection: int) -> None:
        """A connection is over, and nothing waits on it any more."""
        talk = int(remove(self.state.by_connection, connection, 0, 0, 0))
        if talk != ABSENT:
            self._free_talks.append(talk)

    def lend(self, known: Conversation) -> None:
        """Let the compiled pass have a conversation, if it is simple."""
        mode = known.mode()
        state = self.state
        if mode == KEPT or len(known.waiting) > int(state.free.free[0]):
            return
        stream = known.stream
        names = (NULL, NULL, NULL, NULL)
        if mode == PUSHES and stream is not None:
            names = (stream.topic, stream.subscription, stream.producer, stream.consumer_name)
        before = first = ABSENT
        for request in known.waiting:
            state.free.free[0] -= 1
            new = int(state.free.rows[state.free.free[0]])
            state.waiting.matrix[new] = _record(request)
            if before == ABSENT:
                first = new
            else:
                state.waiting.next[before] = new
            before = new
        flags = (known.has_pipelined, known.has_asked, known.seen[TO_CLIENT], known.has_stored)
        waiting = (first, before, len(known.waiting))
        state.talks.matrix[known.talk] = (mode, *names, *known.last_producer, *waiting, *flags)
        known.waiting.clear()
        known.is_lent = True

    def take_back(self, known: Conversation) -> None:
        """The rules have a conversation again."""
        state = self.state
        values = state.talks.matrix[known.talk].tolist()
        which, _, length, *flags = values[-7:]
        for _ in range(length):
            record = state.waiting.matrix[which].tolist()
            known.waiting.append(_request(record))
            state.free.rows[state.free.free[0]] = which
            state.free.free[0] += 1
            which = record[-1]
        known.publishes = len(known.waiting)
        known.has_pipelined, known.has_asked = bool(flags[0]), bool(flags[1])
        known.seen[TO_CLIENT], known.has_stored = bool(flags[2]), bool(flags[3])
        known.seen[TO_BROKER] = known.seen[TO_BROKER] or known.has_asked
        state.talks.mode[known.talk] = KEPT
        known.is_lent = False


def _record(request: Request) -> tuple[int, ...]:
    """A request as a record of WaitingBatches."""
    return (
        request.frame_no,
        request.first_ns,
        request.last_ns,
        request.size,
        request.topic,
        request.partition,
        request.producer,
        request.sequence,
        request.highest,
        request.message_count,
        request.attempt,
        request.outstanding,
        request.acks,
        request.idempotent,
        request.tainted,
        request.number,
        ABSENT,
    )


def _request(record: list[int]) -> Request:
    """A record of WaitingBatches as a request."""
    frame_no, first_ns, last_ns, size, topic, partition, producer, *rest = record
    request = Request(BATCH, frame_no, None)
    request.first_ns, request.last_ns, request.size = first_ns, last_ns, size
    request.topic, request.partition, request.producer = topic, partition, producer
    request.sequence, request.highest, request.message_count = rest[:3]
    request.attempt, request.outstanding, request.acks = rest[3:6]
    request.idempotent, request.tainted, request.number, _ = rest[6:]
    return request
