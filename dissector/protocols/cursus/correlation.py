"""Which answer belongs to which request: first in, first out on each connection.

A broker answers in the order of requests, with three exceptions: READ_STREAM is answered by two
frames, STREAM turns the connection into a one-way push of batches, and an append that fails may
close the connection with no answer at all. Empty frames from a broker are signs of life and answer
nothing.

Holes are the weak point of a rule by order. Requests that were waiting when bytes of the answering
direction were lost may have lost their answer: they keep their position until an answer comes that
fits a later one, or until their client, which never had two outstanding, asks again.
"""

from typing import Final

from dissector.blocks import TableBlock
from dissector.codecs.names import NameTable
from dissector.codecs.texts import bounded
from dissector.limits import MAX_PENDING_REQUESTS, NULL
from dissector.notice_log import Notice, NoticeLog
from dissector.notices import NOTICE_NUMBER
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns
from dissector.protocols.cursus import commands
from dissector.protocols.cursus import rows as cursus_rows
from dissector.protocols.cursus import sessions as cursus_sessions
from dissector.protocols.cursus.answers import Answer
from dissector.protocols.cursus.decoded_bodies import BodyDecoder, DecodedBody
from dissector.protocols.cursus.forwarded import is_passed_on
from dissector.protocols.cursus.lines import CommandLine
from dissector.protocols.cursus.rows import AckRow, ClosedRows, ConsumerRow, ProducerRow
from dissector.protocols.cursus.sessions import OpenSessions, PassContext
from dissector.protocols.cursus.state_updates import StateUpdates
from dissector.protocols.cursus.walk import walk
from dissector.protocols.interface import ConnectionFacts
from dissector.schemas import enums
from dissector.states import State
from dissector.stream.columns import ENDED_CAPTURE_END
from dissector.tables import ABSENT

_STREAM: Final = commands.NUMBER["STREAM"]
_READ_STREAM: Final = commands.NUMBER["READ_STREAM"]
_LEAVE_GROUP: Final = commands.NUMBER["LEAVE_GROUP"]
_NEVER_AWAITED: Final = frozenset((_LEAVE_GROUP, commands.NUMBER["HEARTBEAT_CLUSTER"]))
_BATCHES: Final = (commands.BATCH, commands.NUMBER["INTERNAL_BATCH"])
_KINDS: Final = {
    **dict.fromkeys(commands.PUBLISHES, enums.KIND_PUBLISH),
    **dict.fromkeys(commands.ACKS, enums.KIND_ACK),
    **dict.fromkeys(commands.CONSUMES, enums.KIND_CONSUME),
    commands.NUMBER["HEARTBEAT"]: enums.KIND_PING,
    commands.NUMBER["AUTH"]: enums.KIND_AUTH,
}
# Commands whose success has fields that no other's has; a few are enough to tell answers apart.
_TELLING_FIELDS: Final = {
    "assignments": frozenset((commands.NUMBER["JOIN_GROUP"], commands.NUMBER["SYNC_GROUP"])),
    "batched": frozenset((commands.NUMBER["BATCH_COMMIT"],)),
    "leaders": frozenset((commands.NUMBER["METADATA"],)),
    "offsets": frozenset(
        (commands.NUMBER["LIST_OFFSETS"], commands.NUMBER["END_TXN"], commands.NUMBER["TXN_STATUS"])
    ),
    "coordinator_id": frozenset((commands.NUMBER["FIND_COORDINATOR"],)),
    "topics": frozenset((commands.NUMBER["LIST"],)),
    "authenticated": frozenset((commands.NUMBER["AUTH"],)),
    "left": frozenset((_LEAVE_GROUP,)),
    "version": frozenset(
        commands.NUMBER[name] for name in ("APPEND_STREAM", "STREAM_VERSION", "SAVE_SNAPSHOT")
    ),
}


class Correlation:
    """State of one capture. negotiated: by connections that are over.

    Args:
        requests: bound of those that wait for their answer.
    """

    def __init__(
        self,
        names: NameTable,
        decoder: BodyDecoder,
        notices: NoticeLog,
        protocol: int,
        requests: int = MAX_PENDING_REQUESTS,
    ) -> None:
        self._gathered = ClosedRows(names)
        self._decoder = decoder
        self._codes = decoder.codes
        self._notices = notices
        self._protocol = protocol
        self._open = OpenSessions(requests, names.key)
        self._state = self._open.state
        self._updates = StateUpdates(self._gathered, decoder.codes, notices, self._open, names.key)
        self._sessions: dict[int, int] = {}  # by connection
        self._lines: dict[int, CommandLine] = {}  # of requests that are texts
        self._evicted = 0
        self._ordinal = 0
        self.negotiated: dict[int, ConnectionFacts] = {}

    def advance(
        self, frames: FrameColumns, rows: int, mine: int, decoder: dict[int, DecodedBody]
    ) -> None:
        """Take the rows of a block that belong to the protocol, in order. mine: how many."""
        base = self._ordinal + 1
        self._ordinal += rows
        if not mine:
            return
        bodies = self._decoder.bodies
        context = self._updates.begin(frames, bodies, mine)
        needs_slow_path = bodies.decoded[:rows] == NULL
        needs_slow_path |= frames.frame_no[:rows] == NULL
        needs_slow_path &= frames.protocol[:rows] == self._protocol
        rare = needs_slow_path.tobytes()  # rows that no kernel can do
        row = walk(context, 0, rows, self._protocol, base)
        while row < rows:
            self._gathered.row = base + row
            self._state.counts[cursus_sessions.NOW] = max(
                self._state.counts[cursus_sessions.NOW], frames.last_ts_ns[row]
            )
            if frames.frame_no[row] == NULL:
                self._event(frames, row)
            else:
                self._frame(context, row, decoder.get(row))
            row += 1
            if row < rows and not rare[row]:
                self._open.make_closed_room(rows - row)
                row = walk(context, row, rows, self._protocol, base)

    def client_handles(self) -> list[TableBlock]:
        """Blocks of producers and consumers that closed since last asked."""
        return self._gathered.drain(ProducerRow) + self._gathered.drain(ConsumerRow)

    def relations(self) -> list[TableBlock]:
        """Blocks of exchanges, acks and deliveries that closed since last asked."""
        out = self._gathered
        deliveries = self._updates.groups.open.drain_closed()
        return [
            *out.block("exchanges", cursus_rows.EXCHANGE_COLUMNS, self._open.drain_closed()),
            *out.drain(AckRow),
            *out.block("deliveries", cursus_rows.DELIVERY_COLUMNS, deliveries),
        ]

    # -- events

    def _session(self, connection: int) -> int:
        found = self._sessions.get(connection)
        if found is None:
            found = self._sessions[connection] = self._open.open(connection)
        return found

    def _event(self, frames: FrameColumns, row: int) -> None:
        connection, command = int(frames.connection_id[row]), int(frames.command[row])
        direction = int(frames.direction[row])
        if command == columns.EVENT_CLOSE:
            self._connection_over(connection, int(frames.status[row]) == ENDED_CAPTURE_END)
            return
        session = self._session(connection)
        sessions = self._state.sessions
        is_hole = command in (columns.EVENT_GAP, columns.EVENT_SKIPPED)
        if direction == columns.TO_CLIENT and (is_hole or command == columns.EVENT_FIN):
            sessions.has_answered[session] = 1
        if is_hole:
            sessions.has_hole[session] = 1
            if sessions.stream[session] == ABSENT:
                cursus_sessions.taint(self._state, session, direction != columns.TO_BROKER)

    def _connection_over(self, connection: int, is_capture_over: bool) -> None:
        """A connection is over, or the capture is, and what waits may be joined to the next."""
        session = self._sessions.get(connection)
        facts = self.open_facts(connection)
        if facts is not None:
            self.negotiated[connection] = facts
        if is_capture_over:
            return
        if session is not None:
            del self._sessions[connection]
            exchanges = self._state.exchanges
            left = self._open.waiting(session)
            for which in sorted(left, key=lambda each: int(exchanges.request_frame_no[each])):
                self._close(which, self._unanswered(session, which, enums.CONN_CLOSED))
            self._updates.session_over(connection, session, False)
            self._open.close(connection, session)
        self._updates.groups.open.close_connection(connection)

    def open_facts(self, connection: int) -> ConnectionFacts | None:
        """What was negotiated on a connection so far."""
        session = self._sessions.get(connection)
        facts = None if session is None else self._updates.negotiated.get(session)
        return None if facts is None or facts.protocol_version is None else facts

    def memories(self) -> list[State]:
        """The states of all that is open or remembered."""
        return [self._state, *self._updates.memories()]

    def finish(self) -> None:
        """The capture is over: what waits, in the order of its frames."""
        self._gathered.row = self._ordinal + 1
        exchanges = self._state.exchanges
        left = [
            (int(exchanges.request_frame_no[which]), which, session)
            for session in self._sessions.values()
            for which in self._open.waiting(session)
        ]
        for _, which, session in sorted(left):
            self._close(which, self._unanswered(session, which, enums.UNANSWERED_AT_END))
        for connection, session in self._sessions.items():
            self._updates.session_over(connection, session, True)
        self._sessions.clear()
        if self._evicted:
            kind = NOTICE_NUMBER["pending_limit"]
            now = int(self._state.counts[cursus_sessions.NOW])
            self._notices.add([Notice(kind, now, value=self._evicted)])
        self._updates.finish()

    # -- requests

    def _frame(self, context: PassContext, row: int, decoded: DecodedBody | None) -> None:
        frames = context.frames
        session = self._session(int(frames.connection_id[row]))
        direction = int(frames.direction[row])
        if direction == columns.TO_BROKER:
            self._request(context, session, row, decoded.line if decoded else None)
        elif direction == columns.TO_CLIENT:
            self._state.sessions.has_answered[session] = 1
            answer = decoded.answer if decoded else self._decoder.frequent(frames, row)
            self._answer(context, session, row, answer)

    def _request(
        self, context: PassContext, session: int, row: int, line: CommandLine | None
    ) -> None:
        sessions, exchanges = self._state.sessions, self._state.exchanges
        is_forwarded = line is not None and is_passed_on(line)
        command = int(context.frames.command[row])
        kind = enums.KIND_REQUEST if is_forwarded else _KINDS.get(command, enums.KIND_REQUEST)
        while sessions.length[session] and not sessions.has_pipelined[session]:
            oldest = sessions.first[session]
            if sessions.stream[session] != ABSENT or exchanges.may_be_lost[oldest] != 1:
                break
            # Its client asks again though no answer was seen: the answer was lost.
            self._close(cursus_sessions.pop_oldest(self._state, session), enums.LOST_IN_GAP)
        if kind == enums.KIND_PUBLISH:
            self._updates.note_order(session, row)
        which = cursus_sessions.ask(context, session, row, kind, is_forwarded)
        if line is not None:
            self._lines[which] = line
        if not is_forwarded:
            self._updates.asked(which, row, line)
        if self._open.is_over_limit:
            self._evict(session)

    def _evict(self, session: int) -> None:
        """Too much waits: the oldest request of a session is given up, its answer passed."""
        self._evicted += 1
        which = cursus_sessions.pop_oldest(self._state, session)
        if self._state.sessions.stream[session] != ABSENT:
            self._close(which, enums.NOT_AWAITED)
            return
        self._state.sessions.missed[session] += 1
        self._close(which, self._unanswered(session, which, enums.EVICTED))

    def _is_never_awaited(self, which: int) -> bool:
        """Whether clients close without reading the answer."""
        return int(self._state.exchanges.request_command[which]) in _NEVER_AWAITED

    def _is_silent(self, which: int) -> bool:
        """Whether a client may not wait for the answer."""
        exchanges = self._state.exchanges
        is_publish = exchanges.kind[which] == enums.KIND_PUBLISH
        return self._is_never_awaited(which) or bool(is_publish and exchanges.acks[which] == 0)

    def _unanswered(self, session: int, which: int, otherwise: int) -> int:
        """The outcome of a request that gets no answer."""
        sessions = self._state.sessions
        may_be_lost = self._state.exchanges.may_be_lost[which] == 1
        if self._is_never_awaited(which) and not may_be_lost:
            return enums.NOT_AWAITED
        if not sessions.has_answered[session]:
            return enums.OTHER_SIDE_NOT_CAPTURED
        if may_be_lost:
            return enums.LOST_IN_GAP
        if self._is_silent(which) or sessions.stream[session] != ABSENT:
            return enums.NOT_AWAITED
        return otherwise

    def _close(self, which: int, outcome: int) -> None:
        """Write an exchange whose request waits no longer."""
        self._lines.pop(which, None)
        self._open.make_closed_room(1)
        cursus_sessions.close_exchange(self._state, which, outcome, self._gathered.row)

    # -- answers

    def _answer(self, context: PassContext, session: int, row: int, answer: Answer | None) -> None:
        """A broker's frame."""
        sessions, exchanges = self._state.sessions, self._state.exchanges
        command = int(context.frames.command[row])
        second = int(sessions.second[session])
        if second != ABSENT:
            sessions.second[session] = ABSENT
            self._close_answered(context, session, second, row, answer)
            return
        if sessions.stream[session] != ABSENT:
            self._pushed(context, session, row, answer)
            return
        while sessions.length[session]:
            oldest = int(sessions.first[session])
            if exchanges.may_be_lost[oldest] != 1 or self._fits(context, oldest, row, answer):
                break
            self._close(cursus_sessions.pop_oldest(self._state, session), enums.LOST_IN_GAP)
        head = int(sessions.first[session]) if sessions.length[session] else ABSENT
        asked = int(exchanges.request_command[head]) if head != ABSENT else NULL
        if asked == _STREAM:
            self._first_of_stream(context, session, row, answer)
        elif command == commands.KEEPALIVE:
            if head == ABSENT and not sessions.has_asked[session]:
                sessions.stream[session] = cursus_sessions.UNKNOWN_STREAM
        elif sessions.missed[session] and head != ABSENT:
            sessions.missed[session] -= 1
        elif head == ABSENT:
            self._unasked(context, session, row, answer)
        elif asked == _READ_STREAM and _is_first_of_two(context.frames, row, answer):
            sessions.second[session] = cursus_sessions.pop_oldest(self._state, session)
            cursus_sessions.inherit(context, head, row)
        else:
            cursus_sessions.pop_oldest(self._state, session)
            self._close_answered(context, session, head, row, answer)

    def _fits(self, context: PassContext, which: int, row: int, answer: Answer | None) -> bool:
        """Whether an answer can be that of a request, by what it says."""
        exchanges, command = self._state.exchanges, int(context.frames.command[row])
        asked = int(exchanges.request_command[which])
        if asked == NULL or command in (NULL, commands.RESPONSE_ERROR):
            return True
        if command == commands.BATCH:
            topic = exchanges.topic[which]
            return asked in commands.CONSUMES and bool(
                topic == NULL or topic == context.frames.topic[row]
            )
        if command in (commands.KEEPALIVE, commands.STREAM_CONTROL):
            return asked == _STREAM
        if command == commands.RESPONSE_JSON:
            if answer is not None and answer.ack is not None:
                if asked in _BATCHES:
                    return int(exchanges.sequence_id[which]) in (NULL, answer.ack.seq_start)
                return asked in commands.PUBLISHES
            kind = int(exchanges.kind[which])
            return asked not in commands.PUBLISHES and kind not in (enums.KIND_ACK, enums.KIND_PING)
        if command == commands.RESPONSE_OK:
            if asked in commands.CONSUMES or (
                asked == commands.BATCH and exchanges.acks[which] != 0
            ):
                return False
            for name, verbs in _TELLING_FIELDS.items():
                if answer is not None and name in answer.fields:
                    return asked in verbs
        return True

    def _first_of_stream(
        self, context: PassContext, session: int, row: int, answer: Answer | None
    ) -> None:
        """What first follows a STREAM: a push, a sign of life, a refusal, or a close."""
        sessions = self._state.sessions
        head, command = int(sessions.first[session]), int(context.frames.command[row])
        if command == commands.KEEPALIVE and not sessions.has_hole[session]:
            # The stream has begun; the exchange waits for the first batch.
            cursus_sessions.inherit(context, head, row)
            return
        cursus_sessions.pop_oldest(self._state, session)
        if command in (commands.BATCH, commands.KEEPALIVE, commands.STREAM_CONTROL, NULL):
            # From here on the connection is a push, and what the client sent since is not read.
            sessions.stream[session] = head
            self._state.exchanges.is_stream[head] = 1
        if command == commands.STREAM_CONTROL:
            self._close(head, enums.CONN_CLOSED)
            self._updates.stream_control(head, answer)
            cursus_sessions.inherit(context, head, row)
            return
        self._close_answered(context, session, head, row, answer)

    def _pushed(self, context: PassContext, session: int, row: int, answer: Answer | None) -> None:
        """A frame of a stream."""
        stream = int(self._state.sessions.stream[session])
        command = int(context.frames.command[row])
        if command == commands.BATCH:
            self._updates.delivered(stream, row, True)
        elif command == commands.STREAM_CONTROL and stream != cursus_sessions.UNKNOWN_STREAM:
            self._updates.stream_control(stream, answer)
        if stream != cursus_sessions.UNKNOWN_STREAM:
            cursus_sessions.inherit(context, stream, row)

    def _unasked(self, context: PassContext, session: int, row: int, answer: Answer | None) -> None:
        """A frame of a broker that no request waits for."""
        sessions, command = self._state.sessions, int(context.frames.command[row])
        if command in (commands.BATCH, commands.STREAM_CONTROL) and not sessions.has_asked[session]:
            sessions.stream[session] = cursus_sessions.UNKNOWN_STREAM
            self._pushed(context, session, row, answer)
            return
        if command == commands.BATCH:
            self._updates.delivered(ABSENT, row, False)
        kind = enums.KIND_CONSUME if command == commands.BATCH else enums.KIND_REQUEST
        if answer is not None and answer.ack is not None:
            kind = enums.KIND_PUBLISH
        which = cursus_sessions.respond_unasked(
            context, row, kind, bool(sessions.has_hole[session])
        )
        self._fill_error(which, answer)
        self._close(which, enums.ORPHAN_RESPONSE)

    def _fill_error(self, which: int, answer: Answer | None) -> None:
        if answer is None or not answer.is_error:
            return
        exchanges = self._state.exchanges
        if answer.error_code is not None:
            exchanges.error_code[which] = self._codes.of(answer.error_code.encode())
        if answer.error_text is not None:
            exchanges.error_text[which] = self._codes.of(bounded(answer.error_text))

    def _close_answered(
        self, context: PassContext, session: int, which: int, row: int, answer: Answer | None
    ) -> None:
        status = int(context.frames.status[row])
        outcome = enums.OK
        if answer is not None and answer.is_error:
            outcome = enums.ERROR_ANSWER
        elif status != columns.COMPLETE:
            outcome = enums.RESPONSE_CUT
        if (
            outcome == enums.RESPONSE_CUT
            and status == columns.CUT_BY_END
            and self._is_silent(which)
        ):
            cursus_sessions.inherit(context, which, row)
            self._close(which, enums.NOT_AWAITED)
            return
        line = self._lines.get(which)
        is_stored = self._updates.answered(which, row, line, answer, outcome == enums.OK)
        if answer is not None:
            self._updates.read_session(session, which, row, answer)
        if outcome == enums.OK and not is_stored:
            outcome = enums.DUP_OR_DROPPED
        cursus_sessions.respond(context, which, row)
        self._fill_error(which, answer)
        cursus_sessions.inherit(context, which, row)
        self._close(which, outcome)


def _is_first_of_two(frames: FrameColumns, row: int, answer: Answer | None) -> bool:
    """Whether this is the JSON head of a READ_STREAM's answer, behind which a batch must come."""
    if answer is None or answer.is_error or frames.command[row] == commands.RESPONSE_ERROR:
        return False
    is_cut = frames.status[row] != columns.COMPLETE
    return "count" in answer.fields or "key" in answer.fields or bool(is_cut)
