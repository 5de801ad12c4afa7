"""The second pass over a block: requests meet answers, batches become deliveries, commits count."""

from typing import Final

import numpy as np

from dissector.codecs.texts import bounded
from dissector.findings import Finding, Findings
from dissector.limits import MAX_PENDING_REQUESTS, NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import (
    COMPLETE,
    CUT_BY_END,
    CUT_BY_SNAPLEN,
    EVENT_CLOSE,
    EVENT_FIN,
    EVENT_GAP,
    EVENT_SKIPPED,
    NAME_OBSERVED,
    TO_BROKER,
    TO_CLIENT,
    FrameColumns,
)
from dissector.protocols.cursus.answers import Answer
from dissector.protocols.cursus.bodies import BodyColumns
from dissector.protocols.cursus.cells import Cell, cell_of, cells_of
from dissector.protocols.cursus.commands import (
    BATCH,
    KEEPALIVE,
    RESPONSE_ERROR,
    STREAM_CONTROL,
)
from dissector.protocols.cursus.conversations import (
    NO_STREAM,
    READ_STREAM,
    STREAM,
    Conversation,
    Request,
)
from dissector.protocols.cursus.effects import Effects
from dissector.protocols.cursus.lending import Lending
from dissector.protocols.cursus.lines import Line
from dissector.protocols.cursus.readings import Reading, Readings
from dissector.protocols.cursus.rows import ExchangeRow, Gathered
from dissector.protocols.cursus.talking import Work, walk_simple
from dissector.protocols.interface import ConnectionFacts
from dissector.schemas.words import (
    CONN_CLOSED,
    DUP_OR_DROPPED,
    EVICTED,
    LOST_IN_GAP,
    NOT_AWAITED,
    OK,
    ORPHAN_RESPONSE,
    OTHER_SIDE_NOT_CAPTURED,
    RESPONSE_CUT,
    UNANSWERED_AT_END,
)
from dissector.schemas.words import ERROR_ANSWER as ERROR
from dissector.schemas.words import KIND_CONSUME as CONSUME
from dissector.schemas.words import KIND_PUBLISH as PUBLISH
from dissector.schemas.words import KIND_REQUEST as REQUEST
from dissector.stream.columns import ENDED_CAPTURE_END

_INHERITED: Final = ("topic", "subscription", "producer_name", "consumer_name")


class Correlation:
    """State of one capture. said: what connections that are over negotiated."""

    def __init__(
        self, gathered: Gathered, effects: Effects, readings: Readings, place: int
    ) -> None:
        self._out = gathered
        self._effects = effects
        self._readings = readings
        self._codes = readings.codes
        self._place = place
        self._known: dict[int, Conversation] = {}
        self._lending = Lending(MAX_PENDING_REQUESTS)
        self._evicted = 0
        self._ordinal = 0
        self._now = NULL
        self.said: dict[int, ConnectionFacts] = {}

    def advance(
        self, frames: FrameColumns, rows: int, mine: int, readings: dict[int, Reading]
    ) -> None:
        """Take the rows of a block that belong to the protocol, in order. mine: how many."""
        base = self._ordinal + 1
        self._ordinal += rows
        if not mine:
            return
        self._make_room(mine)
        bodies = self._readings.bodies
        is_rare = bodies.reading[:rows] == NULL
        is_rare |= frames.frame_no[:rows] == NULL
        is_rare &= frames.protocol[:rows] == self._place
        rare = is_rare.tobytes()  # rows that no compiled pass can do
        cells = cells_of(frames, bodies, np.flatnonzero(is_rare))
        row = self._walk(frames, bodies, 0, rows, base)
        while row < rows:
            self._out.row = base + row
            cell = cells.get(row) or cell_of(frames, bodies, row)
            self._now = max(self._now, cell.last_ts_ns)
            if cell.frame_no == NULL:
                self._event(cell)
            else:
                self._frame(frames, cell, row, readings.get(row))
            row += 1
            if row < rows and not rare[row]:
                row = self._walk(frames, bodies, row, rows, base)

    def _make_room(self, rows: int) -> None:
        """Room for all that so many rows could add."""
        self._effects.sendings.make_room(rows)
        self._effects.groups.handing.make_room(rows)
        self._lending.make_room(rows)
        self._out.exchanges.make_room(rows)

    def _walk(
        self, frames: FrameColumns, bodies: BodyColumns, row: int, stop: int, base: int
    ) -> int:
        """Let the compiled pass do rows from `row` on; the first that it cannot do, or `stop`."""
        exchanges = self._out.exchanges
        exchanges.make_room(stop - row)
        walked = self._lending.walked
        walked.matrix[0] = (row, exchanges.count, self._now)
        work = Work(
            self._lending.state,
            self._effects.sendings.state,
            self._effects.groups.handing.state,
            frames,
            bodies,
            exchanges.columns,
        )
        walk_simple(work, walked, stop, self._place, base)
        row, exchanges.count, self._now = walked.matrix[0].tolist()
        return row

    def _conversation(self, connection: int) -> Conversation:
        """What is known of a connection, taken back from compiled passes."""
        found = self._known.get(connection)
        if found is None:
            talk = self._lending.open(connection)
            found = self._known[connection] = Conversation(connection, talk)
        elif found.is_lent:
            self._lending.take_back(found)
        return found

    # -- events

    def _event(self, cell: Cell) -> None:
        connection = cell.connection_id
        command = cell.command
        if command == EVENT_CLOSE:
            closing = self._known.get(connection)
            if closing is not None and closing.is_lent:
                self._lending.take_back(closing)
            if closing is not None and closing.version is not None:
                said = ConnectionFacts(
                    protocol_version=closing.version, feature_flags=closing.features
                )
                self.said[connection] = said
            if cell.status != ENDED_CAPTURE_END:
                self._close(self._known.pop(connection, None), CONN_CLOSED)
                self._lending.close(connection)
                self._effects.connection_over(connection)
            return
        known = self._conversation(connection)
        direction = cell.direction
        if command == EVENT_FIN and direction in (TO_BROKER, TO_CLIENT):
            known.seen[direction] = True
        if command in (EVENT_GAP, EVENT_SKIPPED):
            if direction in (TO_BROKER, TO_CLIENT):
                known.seen[direction] = True
            known.hole(direction != TO_BROKER)

    def _close(self, known: Conversation | None, otherwise: int) -> None:
        """Nothing more comes on a connection: what waits has no answer."""
        if known is None:
            return
        for request in self._left(known):
            self._write_unanswered(known, request, self._given_up(known, request, otherwise))
        self._effects.producers_over(known, otherwise == UNANSWERED_AT_END)

    def _left(self, known: Conversation) -> list[Request]:
        left = [*known.waiting, *known.unread]
        if known.second is not None:
            left.append(known.second)
        self._lending.add_pending(-len(left))
        known.waiting.clear()
        known.unread.clear()
        known.second = None
        left.sort(key=lambda request: request.frame_no)
        return left

    def _given_up(self, known: Conversation, request: Request, otherwise: int) -> int:
        if request.is_never_awaited() and not request.may_be_lost:
            return NOT_AWAITED
        if not known.seen[TO_CLIENT]:
            return OTHER_SIDE_NOT_CAPTURED
        if request.may_be_lost:
            return LOST_IN_GAP
        if request.is_silent() or known.stream is not None:
            return NOT_AWAITED
        return otherwise

    def finish(self, findings: Findings) -> None:
        """The capture is over: what waits, in the order of its frames."""
        self._out.row = self._ordinal + 1
        for known in self._known.values():
            if known.is_lent:
                self._lending.take_back(known)
        left = [(request, known) for known in self._known.values() for request in self._left(known)]
        for request, known in sorted(left, key=lambda pair: pair[0].frame_no):
            outcome = self._given_up(known, request, UNANSWERED_AT_END)
            self._write_unanswered(known, request, outcome)
        for known in self._known.values():
            self._effects.producers_over(known, True)
        self._known.clear()
        if self._evicted:
            kind = NOTICE_NUMBER["pending_limit"]
            findings.add([Finding(kind, self._now, value=self._evicted)])

    # -- frames

    def _frame(self, frames: FrameColumns, cell: Cell, row: int, reading: Reading | None) -> None:
        known = self._conversation(cell.connection_id)
        direction = cell.direction
        if direction == TO_BROKER:
            known.seen[TO_BROKER] = True
            self._request(known, cell, reading.line if reading else None)
        elif direction == TO_CLIENT:
            known.seen[TO_CLIENT] = True
            answer = reading.answer if reading else self._readings.frequent(frames, row)
            asked = self._answer(known, cell, answer)
            if asked is not None:
                _inherit(frames, cell, row, asked)
        if known.is_frequent:
            self._lending.lend(known)

    def _request(self, known: Conversation, cell: Cell, line: Line | None) -> None:
        request = Request(cell.command, cell.frame_no, line)
        if cell.command in (BATCH, STREAM):
            known.is_frequent = True
        request.first_ns, request.last_ns = cell.first_ts_ns, cell.last_ts_ns
        request.size = cell.frame_bytes
        request.tainted = int(cell.retransmitted == 1 or cell.status != COMPLETE)
        request.topic, request.partition = cell.topic, cell.partition
        request.subscription = cell.subscription
        request.producer, request.consumer_name = cell.producer_name, cell.consumer_name
        if request.kind == PUBLISH or request.is_passed_on:
            request.sequence = cell.sequence_id
            request.highest = cell.highest_sequence_id
            request.message_count = cell.message_count
        known.has_asked = True
        for lost in known.lost_before_request():
            self._lending.add_pending(-1)
            self._write_unanswered(known, lost, LOST_IN_GAP)
        self._effects.asked(known, request, cell)
        self._lending.add_pending(1)
        if known.stream is not None:
            known.unread.append(request)
        else:
            known.push(request)
        if self._lending.pending > MAX_PENDING_REQUESTS:
            self._evict(known)

    def _evict(self, known: Conversation) -> None:
        """Too much waits: the oldest request of this connection is given up, its answer passed."""
        self._evicted += 1
        self._lending.add_pending(-1)
        if known.unread:
            self._write_unanswered(known, known.unread.pop(0), NOT_AWAITED)
            return
        known.missed += 1
        request = known.pop()
        outcome = self._given_up(known, request, EVICTED)
        self._write_unanswered(known, request, outcome)

    def _answer(self, known: Conversation, cell: Cell, answer: Answer | None) -> Request | None:
        """A broker's frame; returns the request that it answers, or the stream it is part of."""
        command = cell.command
        if known.second is not None:
            request, known.second = known.second, None
            self._lending.add_pending(-1)
            self._write_answered(known, request, cell, answer)
            return request
        if known.stream is not None:
            return self._pushed(known, cell, answer)
        for lost in known.lost_before_answer(command, cell.topic, answer):
            self._lending.add_pending(-1)
            self._write_unanswered(known, lost, LOST_IN_GAP)
        head = known.waiting[0] if known.waiting else None
        if head is not None and head.command == STREAM:
            return self._first_of_stream(known, cell, answer)
        if command == KEEPALIVE:
            if head is None and not known.has_asked:
                known.stream = NO_STREAM
            return None
        if known.missed and head is not None:
            known.missed -= 1
            return None
        if head is None:
            return self._unasked(known, cell, answer)
        if head.command == READ_STREAM and _is_first_of_two(cell, answer):
            known.second = known.pop()
            return head
        self._lending.add_pending(-1)
        self._write_answered(known, known.pop(), cell, answer)
        return head

    def _first_of_stream(self, known: Conversation, cell: Cell, answer: Answer | None) -> Request:
        """What first follows a STREAM: a push, a sign of life, a refusal, or a close."""
        head = known.waiting[0]
        command = cell.command
        if command == KEEPALIVE and not known.has_hole:
            # The stream has begun; the exchange waits for the first batch.
            return head
        known.pop()
        self._lending.add_pending(-1)
        if command == STREAM_CONTROL:
            self._begin_stream(known, head)
            self._write_unanswered(known, head, CONN_CLOSED)
            self._effects.stream_control(head, cell, answer)
            return head
        if command in (BATCH, KEEPALIVE, NULL):
            self._begin_stream(known, head)
        self._write_answered(known, head, cell, answer)
        return head

    def _begin_stream(self, known: Conversation, head: Request) -> None:
        """From here on the connection is a push, and what the client sent since is not read."""
        known.stream = head
        while known.waiting:
            known.unread.append(known.pop())

    def _pushed(self, known: Conversation, cell: Cell, answer: Answer | None) -> Request | None:
        stream = known.stream
        assert stream is not None, "the caller has looked"
        command = cell.command
        if command == BATCH:
            self._effects.delivered(stream, cell, True)
        elif command == STREAM_CONTROL:
            self._effects.stream_control(stream, cell, answer)
        return None if stream is NO_STREAM else stream

    def _unasked(self, known: Conversation, cell: Cell, answer: Answer | None) -> Request | None:
        """A frame of a broker that no request waits for."""
        command = cell.command
        if command in (BATCH, STREAM_CONTROL) and not known.has_asked:
            known.stream = NO_STREAM
            return self._pushed(known, cell, answer)
        if command == BATCH:
            self._effects.delivered(NO_STREAM, cell, False)
        kind = CONSUME if command == BATCH else REQUEST
        if answer is not None and answer.ack is not None:
            kind = PUBLISH
        tainted = int(known.has_hole or cell.retransmitted == 1)
        self._out.add(
            ExchangeRow(
                known.connection,
                kind,
                outcome=ORPHAN_RESPONSE,
                tainted=tainted,
                topic=cell.topic,
                producer_name=cell.producer_name,
                sequence_id=cell.sequence_id,
                highest_sequence_id=_positive(cell.highest_sequence_id),
                ts=cell.last_ts_ns,
                closing_row=self._out.row,
                **self._response(cell, answer),
            )
        )
        return None

    # -- rows

    def _response(self, cell: Cell, answer: Answer | None) -> dict[str, int]:
        """The columns that an answer fills."""
        code = text = NULL
        if answer is not None and answer.is_error:
            if answer.error_code is not None:
                code = self._codes.of(answer.error_code.encode())
            if answer.error_text is not None:
                text = self._codes.of(bounded(answer.error_text))
        return {
            "response_command": cell.command,
            "response_frame_no": cell.frame_no,
            "response_first_ns": cell.first_ts_ns,
            "response_last_ns": cell.last_ts_ns,
            "error_code": code,
            "error_text": text,
            "entry_id": cell.entry_id if answer is not None else NULL,
        }

    def _write(
        self, known: Conversation, request: Request, outcome: int, tainted: int, **answer: int
    ) -> None:
        """A row of an exchange. answer: columns that an answer fills."""
        transmit = request.last_ns - request.first_ns
        row = ExchangeRow(
            known.connection,
            request.kind,
            request_command=request.command,
            request_frame_no=request.frame_no,
            request_first_ns=request.first_ns,
            request_last_ns=request.last_ns,
            transmit_ns=transmit if transmit >= 0 else NULL,
            topic=request.topic,
            subscription=request.subscription,
            producer_name=request.producer,
            sequence_id=request.sequence,
            highest_sequence_id=_positive(request.highest),
            attempt=request.attempt,
            message_count=request.message_count,
            request_bytes=request.size,
            outstanding_before=request.outstanding,
            ts=request.last_ns,
            outcome=outcome,
            tainted=tainted,
            closing_row=self._out.row,
            **answer,
        )
        self._out.add(row)

    def _write_answered(
        self,
        known: Conversation,
        request: Request,
        cell: Cell,
        answer: Answer | None,
    ) -> None:
        status = cell.status
        outcome = OK
        if answer is not None and answer.is_error:
            outcome = ERROR
        elif status != COMPLETE:
            outcome = RESPONSE_CUT
            if status == CUT_BY_END and request.is_silent():
                self._write_unanswered(known, request, NOT_AWAITED)
                return
        latency = NULL
        if status in (COMPLETE, CUT_BY_SNAPLEN):
            latency = cell.last_ts_ns - request.last_ns
        is_stored = self._effects.answered(request, cell, answer, outcome == OK)
        if answer is not None:
            self._effects.heard(known, request, cell, answer)
        if outcome == OK and not is_stored:
            outcome = DUP_OR_DROPPED
        tainted = int(request.tainted or cell.retransmitted == 1 or status != COMPLETE)
        answered = self._response(cell, answer)
        answered["latency_ns"] = latency if latency >= 0 else NULL
        self._write(known, request, outcome, tainted, **answered)

    def _write_unanswered(self, known: Conversation, request: Request, outcome: int) -> None:
        self._write(known, request, outcome, request.tainted)


def _positive(number: int) -> int:
    return number if number > 0 else NULL


def _is_first_of_two(cell: Cell, answer: Answer | None) -> bool:
    """Whether this is the JSON head of a READ_STREAM's answer, behind which a batch must come."""
    if answer is None or answer.is_error or cell.command == RESPONSE_ERROR:
        return False
    return "count" in answer.fields or "key" in answer.fields or cell.status != COMPLETE


def _inherit(frames: FrameColumns, cell: Cell, row: int, asked: Request) -> None:
    """What an answer does not say of itself it has from its request."""
    values = (asked.topic, asked.subscription, asked.producer, asked.consumer_name)
    is_named = False
    for name, value in zip(_INHERITED, values, strict=True):
        if value != NULL and getattr(cell, name) == NULL:
            getattr(frames, name)[row] = value
            is_named = True
    if is_named:
        frames.name_source[row] = NAME_OBSERVED
