"""Pairing of requests and answers: first in, first out on each connection.

A broker answers in the order of requests, with three exceptions: READ_STREAM is answered by two
frames, STREAM turns the connection into a one-way push of batches, and an append that fails may
close the connection with no answer at all. Empty frames from a broker are signs of life and answer
nothing.

Gaps are the weak point of pairing by order. A request may have lost its answer if bytes of the
answering direction were lost while it was unanswered: it keeps its position until an answer fits a
later one, or until its client, which never had two outstanding, sends the next request.
"""

from typing import Final

import numpy as np

from dissector.blocks import Coded, TableBlock
from dissector.codecs.names import NameTable
from dissector.codecs.texts import bounded
from dissector.jit import prepacked
from dissector.limits import MAX_PENDING_REQUESTS, NULL
from dissector.notice_log import NoticeLog
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns, FrameEvent
from dissector.protocols.cursus import commands
from dissector.protocols.cursus import deliveries as cursus_deliveries
from dissector.protocols.cursus import rows as cursus_rows
from dissector.protocols.cursus import sessions as cursus_sessions
from dissector.protocols.cursus.answers import Answer
from dissector.protocols.cursus.decoded_bodies import BodyDecoder, DecodedBody
from dissector.protocols.cursus.forwarded import is_passed_on
from dissector.protocols.cursus.lines import CommandLine
from dissector.protocols.cursus.rows import AckRows, ClosedRows, ConsumerRow, ProducerRow
from dissector.protocols.cursus.sessions import PassContext
from dissector.protocols.cursus.state_updates import StateUpdates
from dissector.protocols.cursus.walk import walk
from dissector.protocols.interface import ConnectionFacts
from dissector.protocols.pairing import connections as pairing_connections
from dissector.protocols.pairing import pending as pairing_pending
from dissector.protocols.pairing import rows as pairing_rows
from dissector.protocols.pairing import rules
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.exchanges import Exchanges
from dissector.protocols.pairing.rules import Expectation
from dissector.protocols.pairing.state import PairingBounds
from dissector.schemas import enums
from dissector.states import State
from dissector.stream.columns import ENDED_CAPTURE_END
from dissector.tables import ABSENT

_STREAM: Final = commands.NUMBER["STREAM"]
_READ_STREAM: Final = commands.NUMBER["READ_STREAM"]
_COMMITTING: Final = np.array(sorted(commands.COMMITTING), np.int64)
# Outcomes of commits without a readable answer: they may have been accepted.
_UNKNOWN_COMMITS: Final = np.array(
    (enums.LOST_IN_GAP, enums.RESPONSE_CUT, enums.OTHER_SIDE_NOT_CAPTURED), np.int64
)
_MAY_COMMIT: Final = commands.COMMITTING | {NULL, commands.UNKNOWN}
_COMMIT_COLUMNS: Final = ("request_command", "outcome", "subscription", "request_last_ns")
_BATCHES: Final = (commands.BATCH, commands.NUMBER["INTERNAL_BATCH"])
# Fields of a success that only some commands have; a few are enough to distinguish answers.
_DISTINCTIVE_FIELDS: Final = {
    "assignments": frozenset((commands.NUMBER["JOIN_GROUP"], commands.NUMBER["SYNC_GROUP"])),
    "batched": frozenset((commands.NUMBER["BATCH_COMMIT"],)),
    "leaders": frozenset((commands.NUMBER["METADATA"],)),
    "offsets": frozenset(
        (commands.NUMBER["LIST_OFFSETS"], commands.NUMBER["END_TXN"], commands.NUMBER["TXN_STATUS"])
    ),
    "coordinator_id": frozenset((commands.NUMBER["FIND_COORDINATOR"],)),
    "topics": frozenset((commands.NUMBER["LIST"],)),
    "authenticated": frozenset((commands.NUMBER["AUTH"],)),
    "left": frozenset((commands.NUMBER["LEAVE_GROUP"],)),
    "version": frozenset(
        commands.NUMBER[name] for name in ("APPEND_STREAM", "STREAM_VERSION", "SAVE_SNAPSHOT")
    ),
}


class CursusExchanges:
    """State of one capture. negotiated: by ended connection.

    Args:
        requests: bound of unanswered requests.
    """

    def __init__(
        self,
        names: NameTable,
        decoder: BodyDecoder,
        notices: NoticeLog,
        protocol: int,
        requests: int = MAX_PENDING_REQUESTS,
    ) -> None:
        self._closed_rows = ClosedRows(names)
        self._names = names
        self._decoder = decoder
        self._codes = decoder.codes
        self._notices = notices
        self._protocol = protocol
        self._exchanges = Exchanges(
            protocol,
            rules.rules_of(commands.TABLE),
            0,
            PairingBounds(requests=requests),
            names.key,
            {
                **dict.fromkeys(("request_command", "response_command"), commands.NAMES),
                **dict.fromkeys(("error_code", "error_text"), names.names),
            },
        )
        self._state = self._exchanges.memory()
        own = cursus_sessions.new_session_state()
        self._own = own
        self._updates = StateUpdates(
            self._closed_rows, decoder.codes, notices, self._state, own, names.key
        )
        self._sessions: dict[int, int] = {}  # by connection
        # The lines of text requests, except commits of one offset.
        self._lines: dict[int, tuple[int, CommandLine]] = {}
        self._blocks: list[TableBlock] = []
        self._ordinal = 0
        self.negotiated: dict[int, ConnectionFacts] = {}

    def advance(
        self, frames: FrameColumns, rows: int, mine: int, decoded: dict[int, DecodedBody]
    ) -> None:
        """Handle the protocol's rows of a block, in order. mine: their number."""
        base = self._ordinal + 1
        self._ordinal += rows
        if not mine:
            return
        bodies = self._decoder.bodies
        cursus_sessions.reserve(self._own, self._state, 0, mine)
        no_texts = np.full(rows, NULL, np.int64)
        pairing = prepacked(self._exchanges.begin(frames, rows, no_texts, self._names.names))
        context = self._updates.begin(pairing, bodies, mine)
        row = walk(context, 0, rows, self._protocol, base)
        while row < rows:
            self._closed_rows.row = base + row
            if frames.frame_no[row] == NULL:
                self._event(context, row)
            else:
                self._frame(context, row, decoded.get(row))
            row = walk(context, row + 1, rows, self._protocol, base)
        self._add(self._exchanges.blocks(pairing, self._notices))
        self._names.update()  # texts of errors, too

    def _add(self, blocks: list[TableBlock]) -> None:
        """Take exchanges that closed; of a commit among them the answer may be missing."""
        hidden = self._updates.groups.hidden
        for block in blocks:
            asked, outcome, group, asked_ns = (
                column.codes if isinstance(column, Coded) else np.asarray(column)
                for column in map(block.columns.__getitem__, _COMMIT_COLUMNS)
            )
            is_hidden = np.isin(asked, _COMMITTING) & np.isin(outcome, _UNKNOWN_COMMITS)
            for row in np.flatnonzero(is_hidden):
                hidden.note(int(group[row]), int(asked_ns[row]))
        self._blocks += blocks

    def client_handles(self) -> list[TableBlock]:
        """Blocks of producers and consumers that closed since last asked."""
        return self._closed_rows.drain(ProducerRow) + self._closed_rows.drain(ConsumerRow)

    def relations(self) -> list[TableBlock]:
        """Blocks of exchanges, acks and deliveries that closed since last asked."""
        out = self._closed_rows
        exchanges, self._blocks = self._blocks, []
        closed = self._updates.groups.open
        return [
            *exchanges,
            *out.block("acks", AckRows._fields, closed.drain_acks()),
            *out.block("deliveries", cursus_rows.DELIVERY_COLUMNS, closed.drain_closed()),
        ]

    # -- events

    def _session(self, connection: int) -> int:
        session = self._sessions.get(connection)
        if session is None:
            session = cursus_sessions.open_session(self._own, self._state, connection)
            self._sessions[connection] = session
        return session

    def _event(self, context: PassContext, row: int) -> None:
        frames = context.frames
        connection = int(frames.connection_id[row])
        if frames.command[row] == FrameEvent.CLOSE:
            is_capture_over = int(frames.status[row]) == ENDED_CAPTURE_END
            self._close_connection(context, row, is_capture_over)
            return
        session = self._session(connection)
        if self._stream_of(session) == ABSENT:
            direction_index = 2 * session + int(frames.endpoint_index[row])
            pairing_connections.note_event(context.pairing, row, direction_index)
            is_of_client = frames.direction[row] != columns.TO_CLIENT
            if is_of_client and pairing_connections.may_hide_frames(frames, row):
                # The event of a gap proved by a TCP acknowledgement follows the data before it.
                self._note_hidden(session, int(self._state.counters[pairing_state.COUNT_CLOCK]))

    def _note_hidden(self, session: int, ns: int) -> None:
        """Note that a commit may be missing: of the group that the client named before, or of any.

        A client that only sent batches commits nothing.
        """
        sessions = self._own.sessions
        group = int(sessions.group[session])
        if group != NULL or sessions.has_sent[session] == 0:
            is_one = group != cursus_deliveries.MANY
            self._updates.groups.hidden.note(group if is_one else NULL, ns)

    def _close_connection(self, context: PassContext, row: int, is_capture_over: bool) -> None:
        """Close a connection; at the capture's end it stays open, to be joined to the next one."""
        connection = int(context.frames.connection_id[row])
        session = self._sessions.get(connection)
        if session is not None:
            self._state.connections.is_two_way[session] |= context.frames.is_two_way[row]
        facts = self.open_facts(connection)
        if facts is not None:
            self.negotiated[connection] = facts
        if is_capture_over:
            return
        if session is not None:
            del self._sessions[connection]
            self._updates.close_session(connection, session, False)
            pairing_connections.close_connection(context.pairing, session, enums.CONN_CLOSED)
        self._updates.groups.open.close_connection(connection)

    def open_facts(self, connection: int) -> ConnectionFacts | None:
        """The facts negotiated on a connection so far, None if there are none."""
        session = self._sessions.get(connection)
        facts = None if session is None else self._updates.negotiated.get(session)
        return None if facts is None or facts.protocol_version is None else facts

    def memories(self) -> list[State]:
        """All states that a later capture can continue."""
        return [self._state, *self._updates.memories()]

    def finish(self) -> None:
        """Write unanswered requests, in the order of their frames, and close all sessions."""
        self._closed_rows.row = self._ordinal + 1
        self._state.counters[pairing_state.COUNT_ROW] = self._ordinal
        self._add(self._exchanges.finish(self._notices))
        for connection, session in self._sessions.items():
            self._updates.close_session(connection, session, True)
        self._sessions.clear()
        self._updates.finish()

    # -- requests

    def _frame(self, context: PassContext, row: int, decoded: DecodedBody | None) -> None:
        frames = context.frames
        session = self._session(int(frames.connection_id[row]))
        self._state.connections.is_two_way[session] |= frames.is_two_way[row]
        direction = int(frames.direction[row])
        if direction == columns.TO_BROKER:
            self._request(context, session, row, decoded.line if decoded else None)
        elif direction == columns.TO_CLIENT:
            answer = decoded.answer if decoded else self._decoder.frequent(frames, row)
            self._answer(context, session, row, answer)

    def _request(
        self, context: PassContext, session: int, row: int, line: CommandLine | None
    ) -> None:
        is_forwarded = line is not None and is_passed_on(line)
        command = int(context.frames.command[row])
        kind = enums.KIND_REQUEST
        if not is_forwarded:
            kind = commands.KINDS.get(command, kind)
        oldest = self._oldest(session)
        while self._own.sessions.has_pipelined[session] == 0 and self._may_be_lost(oldest):
            if self._stream_of(session) != ABSENT:
                break
            # The client sends the next request although no answer was seen: the answer was lost.
            self._close(context, oldest, enums.LOST_IN_GAP)
            oldest = self._oldest(session)
        if kind == enums.KIND_PUBLISH:
            self._updates.note_order(session, row)
        which = cursus_sessions.ask(context, session, row, kind, is_forwarded)
        is_cut = int(context.frames.status[row]) != columns.COMPLETE
        if is_cut and command in _MAY_COMMIT and self._stream_of(session) == ABSENT:
            self._note_hidden(session, int(context.frames.last_ts_ns[row]))
        if line is not None and self._own.requests.following[which] == NULL:
            self._lines[which] = int(context.frames.frame_no[row]), line
        if not is_forwarded:
            self._updates.handle_request(which, row, line)

    def _oldest(self, session: int) -> int:
        return int(self._state.group_lists.first[self._state.connections.requests[session]])

    def _stream_of(self, session: int) -> int:
        return int(self._state.connections.push[session])

    def _may_be_lost(self, which: int) -> bool:
        return which != ABSENT and bool(pairing_rows.may_be_lost(self._state, which))

    def _has_hole(self, session: int) -> bool:
        return int(self._state.directions.hole_row[2 * session : 2 * session + 2].max()) >= 0

    def _line_of(self, which: int) -> CommandLine | None:
        """The text of a request; None for a batch or a commit of one offset."""
        frame_no, line = self._lines.get(which, (NULL, None))
        return line if frame_no == self._state.pending.request_frame_no[which] else None

    def _close(self, context: PassContext, which: int, outcome: int) -> None:
        """Write the exchange of a request that gets no answer."""
        self._lines.pop(which, None)
        pairing_rows.write_unanswered(context.pairing, which, outcome)

    # -- answers

    def _answer(self, context: PassContext, session: int, row: int, answer: Answer | None) -> None:
        """Handle a broker's frame."""
        frames, pairing = context.frames, context.pairing
        command = int(frames.command[row])
        head = self._oldest(session)
        if head != ABSENT and self._own.requests.is_begun[head] == 1:
            self._close_answered(context, session, head, row, answer)
            return
        if self._stream_of(session) != ABSENT:
            self._push(context, session, row, answer)
            return
        head = int(pairing_pending.next_in_order(pairing, session, command))
        has_hole = self._has_hole(session)
        while has_hole and head != ABSENT and not self._fits(context, head, row, answer):
            if self._may_be_lost(head):
                self._close(context, head, enums.LOST_IN_GAP)
                head = int(pairing_pending.next_in_order(pairing, session, command))
                continue
            if pairing_rows.last_hole_of_requests(self._state, head) >= 0:
                head = ABSENT  # its request was not captured
            break
        connections, has_asked = self._state.connections, self._own.sessions.has_asked[session]
        asked = int(self._state.pending.request_command[head]) if head != ABSENT else NULL
        if asked == _STREAM:
            self._answer_stream(context, session, row, answer)
        elif command == commands.KEEPALIVE:
            if head == ABSENT and not has_asked:
                connections.push[session] = cursus_sessions.UNKNOWN_STREAM
        elif connections.skipped[session] and head != ABSENT:
            connections.skipped[session] -= 1
        elif head == ABSENT:
            self._unmatched(context, session, row, answer)
        elif asked == _READ_STREAM and _is_first_of_two(frames, row, answer):
            self._own.requests.is_begun[head] = 1
            cursus_sessions.inherit(context, head, row)
        else:
            self._close_answered(context, session, head, row, answer)

    def _fits(self, context: PassContext, which: int, row: int, answer: Answer | None) -> bool:
        """Whether an answer whose word fits can belong to a request, by its other fields."""
        pending, command = self._state.pending, int(context.frames.command[row])
        asked, kind = int(pending.request_command[which]), int(pending.kind[which])
        if NULL in (asked, command):
            return True
        if command == commands.BATCH:
            return int(pending.topic[which]) in (NULL, int(context.frames.topic[row]))
        if command == commands.RESPONSE_JSON:
            if answer is not None and answer.ack is not None:
                if asked in _BATCHES:
                    return int(pending.sequence_id[which]) in (NULL, answer.ack.seq_start)
                return asked in commands.PUBLISHES
            return asked not in commands.PUBLISHES and kind not in (enums.KIND_ACK, enums.KIND_PING)
        if command == commands.RESPONSE_OK:
            if asked == commands.BATCH and self._own.requests.acks[which] != 0:
                return False
            for name, verbs in _DISTINCTIVE_FIELDS.items():
                if answer is not None and name in answer.fields:
                    return asked in verbs
        return True

    def _answer_stream(
        self, context: PassContext, session: int, row: int, answer: Answer | None
    ) -> None:
        """Handle the first answer to a STREAM: a push, a keepalive, a refusal, or a close."""
        head, command = self._oldest(session), int(context.frames.command[row])
        if command == commands.KEEPALIVE and not self._has_hole(session):
            # The stream has begun; the exchange waits for the first batch.
            cursus_sessions.inherit(context, head, row)
            return
        if command in (commands.BATCH, commands.KEEPALIVE, commands.STREAM_CONTROL, NULL):
            # From here on the connection is a push; the broker ignores the client's requests.
            self._state.connections.push[session] = head
        if command == commands.STREAM_CONTROL:
            self._close(context, head, enums.CONN_CLOSED)
            self._updates.stream_control(head, answer)
            cursus_sessions.inherit(context, head, row)
            return
        self._close_answered(context, session, head, row, answer)

    def _push(self, context: PassContext, session: int, row: int, answer: Answer | None) -> None:
        """Handle a frame of a stream."""
        stream = self._stream_of(session)
        command = int(context.frames.command[row])
        if command == commands.BATCH:
            self._updates.add_delivery(stream, row, True)
        elif command == commands.STREAM_CONTROL and stream != cursus_sessions.UNKNOWN_STREAM:
            self._updates.stream_control(stream, answer)
        if stream != cursus_sessions.UNKNOWN_STREAM:
            cursus_sessions.inherit(context, stream, row)

    def _unmatched(
        self, context: PassContext, session: int, row: int, answer: Answer | None
    ) -> None:
        """Handle a broker's frame when no request is unanswered."""
        command, has_asked = int(context.frames.command[row]), self._own.sessions.has_asked
        if command in (commands.BATCH, commands.STREAM_CONTROL) and not has_asked[session]:
            self._state.connections.push[session] = cursus_sessions.UNKNOWN_STREAM
            self._push(context, session, row, answer)
            return
        if command == commands.BATCH:
            self._updates.add_delivery(ABSENT, row, False)
        elif command in (commands.RESPONSE_OK, NULL) and not has_asked[session]:
            # A direction without captured bytes has no gap events.
            self._note_hidden(session, int(context.frames.last_ts_ns[row]))
        kind = enums.KIND_CONSUME if command == commands.BATCH else enums.KIND_REQUEST
        if answer is not None and answer.ack is not None:
            kind = enums.KIND_PUBLISH
        cursus_sessions.respond_unasked(context, session, row, kind, *self._error_of(answer))

    def _error_of(self, answer: Answer | None) -> tuple[int, int]:
        """Error code and text of a refusal as codes of names, NULL for none."""
        if answer is None or not answer.is_error:
            return NULL, NULL
        code, text = answer.error_code, answer.error_text
        return (
            NULL if code is None else self._codes.of(code.encode()),
            NULL if text is None else self._codes.of(bounded(text)),
        )

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
            and self._state.pending.silence[which] != Expectation.AWAITED
        ):
            cursus_sessions.inherit(context, which, row)
            self._close(context, which, enums.NOT_AWAITED)
            return
        line = self._line_of(which)
        is_stored = self._updates.handle_answer(which, row, line, answer, outcome == enums.OK)
        if answer is not None:
            self._updates.read_session(session, which, row, answer)
        if outcome == enums.OK and not is_stored:
            outcome = enums.DUP_OR_DROPPED
        self._lines.pop(which, None)
        cursus_sessions.respond(context, which, row, outcome, *self._error_of(answer))


def _is_first_of_two(frames: FrameColumns, row: int, answer: Answer | None) -> bool:
    """Whether this is the JSON head of a READ_STREAM's answer, which a batch must follow."""
    if answer is None or answer.is_error or frames.command[row] == commands.RESPONSE_ERROR:
        return False
    is_cut = frames.status[row] != columns.COMPLETE
    return "count" in answer.fields or "key" in answer.fields or bool(is_cut)
