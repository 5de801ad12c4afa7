"""The second pass over a block: requests meet answers, batches become deliveries, commits count."""

from collections.abc import Sequence
from typing import Any, Final

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
from dissector.protocols.cursus.readings import Codes, Reading
from dissector.protocols.cursus.rows import (
    CONN_CLOSED,
    CONSUME,
    DUP_OR_DROPPED,
    ERROR,
    EVICTED,
    LOST_IN_GAP,
    NOT_AWAITED,
    OK,
    ORPHAN_RESPONSE,
    OTHER_SIDE_NOT_CAPTURED,
    PUBLISH,
    REQUEST,
    RESPONSE_CUT,
    UNANSWERED_AT_END,
    ExchangeRow,
    Gathered,
)
from dissector.protocols.cursus.secrets import without_secrets
from dissector.protocols.interface import ConnectionFacts
from dissector.stream.columns import ENDED_CAPTURE_END

_NUMBERS: Final = (
    "connection_id",
    "side",
    "direction",
    "command",
    "first_ts_ns",
    "last_ts_ns",
    "frame_bytes",
    "status",
    "retransmitted",
    "frame_no",
    "topic",
    "subscription",
    "producer_name",
    "consumer_name",
    "partition",
    "producer_epoch",
    "sequence_id",
    "highest_sequence_id",
    "message_count",
    "entry_id",
    "last_packet",
    "stream_offset",
)
_INHERITED: Final = ("topic", "subscription", "producer_name", "consumer_name")


class Cells:
    """Columns of a block as lists of plain numbers, which a loop over rows reads fast."""

    def __init__(self, frames: FrameColumns, bodies: BodyColumns, rows: int) -> None:
        for name in _NUMBERS:
            setattr(self, name, getattr(frames, name)[:rows].tolist())
        self.acks = bodies.acks[:rows].tolist()
        self.idempotent = bodies.idempotent[:rows].tolist()
        self.records = bodies.records[:rows].tolist()
        self.first_offset = bodies.first_offset[:rows].tolist()
        self.last_offset = bodies.last_offset[:rows].tolist()
        self.first_seq = bodies.first_seq[:rows].tolist()
        self.first_producer = bodies.first_producer[:rows].tolist()
        self.first_epoch = bodies.first_epoch[:rows].tolist()

    def __getattr__(self, name: str) -> list[int]:
        raise AttributeError(name)


class Correlation:
    """State of one capture. said: what connections that are over negotiated."""

    def __init__(self, gathered: Gathered, effects: Effects, codes: Codes, redact: bool) -> None:
        self._out = gathered
        self._effects = effects
        self._codes = codes
        self._redact = redact
        self._known: dict[int, Conversation] = {}
        self._pending = 0
        self._evicted = 0
        self._ordinal = 0
        self._now = NULL
        self.said: dict[int, ConnectionFacts] = {}

    def advance(
        self,
        frames: FrameColumns,
        rows: int,
        bodies: BodyColumns,
        mine: Sequence[int],
        readings: dict[int, Reading],
    ) -> None:
        """Take the rows of a block that belong to the protocol, in order."""
        first = self._ordinal + 1
        self._ordinal += rows
        if not mine:
            return
        cells = Cells(frames, bodies, rows)
        for row in mine:
            self._out.row = first + row
            if cells.last_ts_ns[row] > self._now:
                self._now = cells.last_ts_ns[row]
            if cells.frame_no[row] == NULL:
                self._event(cells, row)
            else:
                self._frame(frames, cells, row, readings.get(row))

    def _conversation(self, connection: int) -> Conversation:
        found = self._known.get(connection)
        if found is None:
            found = self._known[connection] = Conversation(connection)
        return found

    # -- events

    def _event(self, cells: Any, row: int) -> None:
        connection = cells.connection_id[row]
        command = cells.command[row]
        if command == EVENT_CLOSE:
            closing = self._known.get(connection)
            if closing is not None and closing.version is not None:
                said = ConnectionFacts(
                    protocol_version=closing.version, feature_flags=closing.features
                )
                self.said[connection] = said
            if cells.status[row] != ENDED_CAPTURE_END:
                self._close(self._known.pop(connection, None), CONN_CLOSED)
                self._effects.connection_over(connection)
            return
        known = self._conversation(connection)
        direction = cells.direction[row]
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
        self._pending -= len(left)
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

    def _frame(self, frames: FrameColumns, cells: Any, row: int, reading: Reading | None) -> None:
        known = self._conversation(cells.connection_id[row])
        direction = cells.direction[row]
        if direction == TO_BROKER:
            known.seen[TO_BROKER] = True
            self._request(known, cells, row, reading.line if reading else None)
        elif direction == TO_CLIENT:
            known.seen[TO_CLIENT] = True
            asked = self._answer(known, cells, row, reading.answer if reading else None)
            if asked is not None:
                _inherit(frames, cells, row, asked)

    def _request(self, known: Conversation, cells: Any, row: int, line: Any) -> None:
        request = Request(self._out.row, cells.command[row], cells.frame_no[row], line)
        request.first_ns, request.last_ns = cells.first_ts_ns[row], cells.last_ts_ns[row]
        request.size = cells.frame_bytes[row]
        request.tainted = int(cells.retransmitted[row] == 1 or cells.status[row] != COMPLETE)
        request.topic, request.partition = cells.topic[row], cells.partition[row]
        request.subscription = cells.subscription[row]
        request.producer, request.consumer_name = cells.producer_name[row], cells.consumer_name[row]
        if request.kind == PUBLISH or request.is_passed_on:
            request.sequence = cells.sequence_id[row]
            request.highest = cells.highest_sequence_id[row]
            request.message_count = cells.message_count[row]
        known.has_asked = True
        for lost in known.lost_before_request():
            self._pending -= 1
            self._write_unanswered(known, lost, LOST_IN_GAP)
        self._effects.asked(known, request, cells, row)
        self._pending += 1
        if known.stream is not None:
            known.unread.append(request)
        else:
            known.push(request)
        if self._pending > MAX_PENDING_REQUESTS:
            self._evict(known)

    def _evict(self, known: Conversation) -> None:
        """Too much waits: the oldest request of this connection is given up, its answer passed."""
        self._evicted += 1
        self._pending -= 1
        if known.unread:
            self._write_unanswered(known, known.unread.pop(0), NOT_AWAITED)
            return
        known.missed += 1
        request = known.pop()
        outcome = self._given_up(known, request, EVICTED)
        self._write_unanswered(known, request, outcome)

    def _answer(
        self, known: Conversation, cells: Any, row: int, answer: Answer | None
    ) -> Request | None:
        """A broker's frame; returns the request that it answers, or the stream it is part of."""
        command = cells.command[row]
        if known.second is not None:
            request, known.second = known.second, None
            self._pending -= 1
            self._write_answered(known, request, cells, row, answer)
            return request
        if known.stream is not None:
            return self._pushed(known, cells, row, answer)
        for lost in known.lost_before_answer(command, cells.topic[row], answer):
            self._pending -= 1
            self._write_unanswered(known, lost, LOST_IN_GAP)
        head = known.waiting[0] if known.waiting else None
        if head is not None and head.command == STREAM:
            return self._first_of_stream(known, cells, row, answer)
        if command == KEEPALIVE:
            if head is None and not known.has_asked:
                known.stream = NO_STREAM
            return None
        if known.missed and head is not None:
            known.missed -= 1
            return None
        if head is None:
            return self._unasked(known, cells, row, answer)
        if head.command == READ_STREAM and _is_first_of_two(cells, row, answer):
            known.second = known.pop()
            return head
        self._pending -= 1
        self._write_answered(known, known.pop(), cells, row, answer)
        return head

    def _first_of_stream(
        self, known: Conversation, cells: Any, row: int, answer: Answer | None
    ) -> Request:
        """What first follows a STREAM: a push, a sign of life, a refusal, or a close."""
        head = known.waiting[0]
        command = cells.command[row]
        if command == KEEPALIVE and not known.has_hole:
            # The stream has begun; the exchange waits for the first batch.
            return head
        known.pop()
        self._pending -= 1
        if command == STREAM_CONTROL:
            self._begin_stream(known, head)
            self._write_unanswered(known, head, CONN_CLOSED)
            self._effects.stream_control(head, cells, row, answer)
            return head
        if command in (BATCH, KEEPALIVE, NULL):
            self._begin_stream(known, head)
        self._write_answered(known, head, cells, row, answer)
        return head

    def _begin_stream(self, known: Conversation, head: Request) -> None:
        """From here on the connection is a push, and what the client sent since is not read."""
        known.stream = head
        while known.waiting:
            known.unread.append(known.pop())

    def _pushed(
        self, known: Conversation, cells: Any, row: int, answer: Answer | None
    ) -> Request | None:
        stream = known.stream
        assert stream is not None, "the caller has looked"
        command = cells.command[row]
        if command == BATCH:
            self._effects.delivered(stream, cells, row, True)
        elif command == STREAM_CONTROL:
            self._effects.stream_control(stream, cells, row, answer)
        return None if stream is NO_STREAM else stream

    def _unasked(
        self, known: Conversation, cells: Any, row: int, answer: Answer | None
    ) -> Request | None:
        """A frame of a broker that no request waits for."""
        command = cells.command[row]
        if command in (BATCH, STREAM_CONTROL) and not known.has_asked:
            known.stream = NO_STREAM
            return self._pushed(known, cells, row, answer)
        if command == BATCH:
            self._effects.delivered(NO_STREAM, cells, row, False)
        kind = CONSUME if command == BATCH else REQUEST
        if answer is not None and answer.ack is not None:
            kind = PUBLISH
        tainted = int(known.has_hole or cells.retransmitted[row] == 1)
        row_of = self._response(ExchangeRow(known.connection, kind), cells, row, answer)
        self._out.add(
            row_of._replace(
                outcome=ORPHAN_RESPONSE,
                tainted=tainted,
                topic=cells.topic[row],
                producer_name=cells.producer_name[row],
                sequence_id=cells.sequence_id[row],
                highest_sequence_id=_positive(cells.highest_sequence_id[row]),
                ts=cells.last_ts_ns[row],
                closing_row=self._out.row,
            )
        )
        return None

    # -- rows

    def _response(
        self, row_of: ExchangeRow, cells: Any, row: int, answer: Answer | None
    ) -> ExchangeRow:
        """The columns that an answer fills."""
        code = text = NULL
        if answer is not None and answer.is_error:
            if answer.error_code is not None:
                code = self._codes.of(answer.error_code.encode())
            if answer.error_text is not None:
                said = answer.error_text
                text = self._codes.of(without_secrets(said) if self._redact else said)
        return row_of._replace(
            response_command=cells.command[row],
            response_frame_no=cells.frame_no[row],
            response_first_ns=cells.first_ts_ns[row],
            response_last_ns=cells.last_ts_ns[row],
            error_code=code,
            error_text=text,
            entry_id=cells.entry_id[row] if answer is not None else NULL,
        )

    def _asked(self, known: Conversation, request: Request) -> ExchangeRow:
        """The columns that a request fills."""
        transmit = request.last_ns - request.first_ns
        return ExchangeRow(
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
            tainted=request.tainted,
            closing_row=self._out.row,
        )

    def _write_answered(
        self,
        known: Conversation,
        request: Request,
        cells: Any,
        row: int,
        answer: Answer | None,
    ) -> None:
        status = cells.status[row]
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
            latency = cells.last_ts_ns[row] - request.last_ns
        is_stored = self._effects.answered(request, cells, row, answer, outcome == OK)
        if answer is not None:
            self._effects.heard(known, request, cells, row, answer)
        if outcome == OK and not is_stored:
            outcome = DUP_OR_DROPPED
        row_of = self._response(self._asked(known, request), cells, row, answer)
        self._out.add(
            row_of._replace(
                outcome=outcome,
                latency_ns=latency if latency >= 0 else NULL,
                tainted=int(request.tainted or cells.retransmitted[row] == 1 or status != COMPLETE),
            )
        )

    def _write_unanswered(self, known: Conversation, request: Request, outcome: int) -> None:
        self._out.add(self._asked(known, request)._replace(outcome=outcome))


def _positive(number: int) -> int:
    return number if number > 0 else NULL


def _is_first_of_two(cells: Any, row: int, answer: Answer | None) -> bool:
    """Whether this is the JSON head of a READ_STREAM's answer, behind which a batch must come."""
    if answer is None or answer.is_error or cells.command[row] == RESPONSE_ERROR:
        return False
    return "count" in answer.fields or "key" in answer.fields or cells.status[row] != COMPLETE


def _inherit(frames: FrameColumns, cells: Any, row: int, asked: Request) -> None:
    """What an answer does not say of itself it has from its request."""
    values = (asked.topic, asked.subscription, asked.producer, asked.consumer_name)
    is_named = False
    for name, value in zip(_INHERITED, values, strict=True):
        if value != NULL and getattr(cells, name)[row] == NULL:
            getattr(frames, name)[row] = value
            is_named = True
    if is_named:
        frames.name_source[row] = NAME_OBSERVED
