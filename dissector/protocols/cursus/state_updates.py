"""Updates by requests and answers: of logs, groups, transactions and their session."""

from collections import OrderedDict
from typing import Final

from dissector.jit import prepacked
from dissector.limits import MAX_CURSUS_PRODUCERS, MAX_STAGED_TRANSACTIONS, NULL
from dissector.notice_log import NoticeLog
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import NAME_OBSERVED
from dissector.protocols.cursus import sessions as cursus_sessions
from dissector.protocols.cursus.answers import Answer, log_ends
from dissector.protocols.cursus.bodies import BodyColumns
from dissector.protocols.cursus.commands import ACKS, BATCH, NUMBER
from dissector.protocols.cursus.decoded_bodies import NameCodes
from dissector.protocols.cursus.deliveries import Commit
from dissector.protocols.cursus.groups import Groups, Member
from dissector.protocols.cursus.lines import CommandLine
from dissector.protocols.cursus.producer_log import EPOCH_BACK, GAP, ProducerLog, order_of
from dissector.protocols.cursus.rows import ClosedRows, ProducerRow
from dissector.protocols.cursus.secrets import holds_token
from dissector.protocols.cursus.sessions import PassContext, SessionState
from dissector.protocols.frame_notices import notice_at
from dissector.protocols.interface import ConnectionFacts
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.state import PairingState
from dissector.schemas.enums import BY_CAPTURE_END, BY_CONNECTION, KIND_PUBLISH
from dissector.states import State

_JOIN: Final = NUMBER["JOIN_GROUP"]
_LEAVE: Final = NUMBER["LEAVE_GROUP"]
_SEND_OFFSETS: Final = NUMBER["SEND_OFFSETS_TO_TXN"]
_END_TXN: Final = NUMBER["END_TXN"]
_CREATE: Final = NUMBER["CREATE"]
_APPEND_STREAM: Final = NUMBER["APPEND_STREAM"]
_LIST_OFFSETS: Final = NUMBER["LIST_OFFSETS"]
_DESCRIBE: Final = NUMBER["DESCRIBE"]
_STREAM: Final = NUMBER["STREAM"]
_AUTH: Final = NUMBER["AUTH"]
_NEGOTIATE: Final = NUMBER["NEGOTIATE"]
_REASSIGNING_ERRORS: Final = frozenset(
    ("GEN_MISMATCH", "NOT_OWNER", "member_not_found", "REBALANCE_REQUIRED")
)
_REASSIGNING_CLOSES: Final = frozenset((b"replaced", b"removed", b"timeout"))


class StateUpdates:
    """State of one capture beyond single connections. negotiated: by session."""

    def __init__(
        self,
        closed_rows: ClosedRows,
        codes: NameCodes,
        notices: NoticeLog,
        pairing: PairingState,
        own: SessionState,
        key: int,
    ) -> None:
        """key: of hash tables."""
        self._out = closed_rows
        self._codes = codes
        self._notices = notices
        self._state = pairing
        self._own = own
        self.groups = Groups(closed_rows, key)
        self._producer_log = ProducerLog(key=key)
        self._producers: dict[int, dict[tuple[int, int], int]] = {}  # epochs, by session
        self._staged: OrderedDict[bytes, list[tuple[int, int, int, int]]] = OrderedDict()
        self.negotiated: dict[int, ConnectionFacts] = {}

    def memories(self) -> list[State]:
        """The states of producers and of deliveries."""
        return [self._producer_log.state, self.groups.open.state]

    def begin(
        self, pairing: pairing_state.PassContext, bodies: BodyColumns, rows: int
    ) -> PassContext:
        """Begin a block; reserve room for everything that its rows can add."""
        self._producer_log.reserve(rows)
        self.groups.open.reserve(rows)
        log, deliveries = self._producer_log.state, self.groups.open.state
        context = PassContext(pairing, self._own, log, deliveries, pairing.frames, bodies)
        self._context = prepacked(context)
        return self._context

    # -- requests

    def note_order(self, session: int, row: int) -> None:
        """Note whether a batch, or a text with a message, continues its producer's sequence."""
        frames = self._context.frames
        topic, name = int(frames.topic[row]), int(frames.producer_name[row])
        if topic == NULL or name == NULL:
            return
        epoch = int(frames.producer_epoch[row])
        producers = self._producers.setdefault(session, {})
        if (topic, name) in producers or len(producers) < MAX_CURSUS_PRODUCERS:
            producers[topic, name] = epoch
            sessions = self._own.sessions
            sessions.last_topic[session] = topic
            sessions.last_producer[session] = name
            sessions.last_epoch[session] = epoch
        if not cursus_sessions.is_countable(frames, row):
            return
        idempotent = int(self._context.bodies.idempotent[row])
        batch = cursus_sessions.batch_key(frames, row)
        order = order_of(self._producer_log.state, batch, idempotent)
        if order.flaw == EPOCH_BACK:
            self._note("producer_epoch_back", row, epoch, order.epoch)
        elif order.flaw == GAP:
            self._note("sequence_gap", row, int(frames.sequence_id[row]), order.seq_end)

    def handle_request(self, which: int, row: int, line: CommandLine | None) -> None:
        """Apply a client's request, before its answer."""
        pending = self._state.pending
        command, topic = int(pending.request_command[which]), int(pending.topic[which])
        subscription = int(pending.subscription[which])
        self.groups.note_topic(subscription, topic)
        if line is None:
            return
        if pending.kind[which] == KIND_PUBLISH:
            if line.arguments.get(b"acks") == b"0":
                self._own.requests.acks[which] = 0
                cursus_sessions.set_silent(self._state, which)
            if line.payload is not None and holds_token(line.payload[1]):
                self._note("credentials_in_payload", row)
        if command in ACKS:
            for partition, following in self._committed_offsets(which, line):
                self._ack(which, subscription, topic, partition, following)
        elif command == _END_TXN and line.arguments.get(b"result") == b"commit":
            staged = self._staged.get(line.arguments.get(b"transactional_id", b""), [])
            for group, *offset in staged or [(subscription, NULL, NULL, 0)]:
                pending.subscription[which] = group
                self._ack(which, group, *offset)

    def _committed_offsets(
        self, which: int, line: CommandLine | None
    ) -> tuple[tuple[int, int], ...]:
        """Partitions and next offsets in a commit. line: of a commit of several offsets."""
        requests = self._own.requests
        following = int(requests.following[which])
        if following != NULL:
            return ((int(requests.committed_partition[which]), following),)
        return () if line is None or line.entries is None else line.entries

    def _ack(
        self, which: int, subscription: int, topic: int, partition: int, following: int
    ) -> None:
        self.groups.open.make_ack_room()
        cursus_sessions.note_commit(self._context, which, subscription, topic, partition, following)

    def _connection_of(self, which: int) -> int:
        """The id of the connection of a request."""
        connection = self._state.groups.connection[self._state.pending.group[which]]
        return int(self._state.connections.connection_id[connection])

    def _note(self, code: str, row: int, value: int = NULL, value2: int = NULL) -> None:
        kind, frames = NOTICE_NUMBER[code], self._context.frames
        self._notices.add([notice_at(kind, frames, row, value, value2)])

    def close_session(self, connection: int, session: int, is_capture_over: bool) -> None:
        """Close a session and write the rows of its producers."""
        self.negotiated.pop(session, None)
        closed_by = BY_CAPTURE_END if is_capture_over else BY_CONNECTION
        for (topic, name), epoch in self._producers.pop(session, {}).items():
            row = self._out.row
            self._out.add(
                ProducerRow(connection, topic, name, epoch, closed_by, NAME_OBSERVED, row)
            )

    # -- answers

    def handle_answer(
        self, which: int, row: int, line: CommandLine | None, answer: Answer | None, is_good: bool
    ) -> bool:
        """Apply the answer to a request; False if the broker had stored its batch already."""
        frames, pending = self._context.frames, self._state.pending
        requests = self._own.requests
        command = int(pending.request_command[which])
        if requests.is_passed_on[which] == 1:
            return True
        if frames.command[row] == BATCH:
            self.add_delivery(which, row, command == _STREAM)
            return True
        if answer is not None and answer.is_error:
            self._refused(which, answer)
            return True
        if not is_good or answer is None:
            return True
        topic, subscription = int(pending.topic[which]), int(pending.subscription[which])
        if pending.kind[which] == KIND_PUBLISH:
            self._see_log_end(which, answer)
            return cursus_sessions.store(self._context, which)
        if command in (_LIST_OFFSETS, _DESCRIBE):
            for partition, following in log_ends(answer):
                self._producer_log.see_log_end(topic, partition, following)
        elif command == _JOIN and subscription != NULL:
            name = int(frames.consumer_name[row])
            name = int(requests.consumer_name[which]) if name == NULL else name
            generation = answer.number("generation")
            member = self._member(which, name, int(frames.frame_no[row]))
            self.groups.join(member, NULL if generation is None else generation)
        elif command == _LEAVE:
            name, frame_no = requests.consumer_name[which], pending.request_frame_no[which]
            self.groups.leave(subscription, topic, int(name), int(frame_no))
        elif command in ACKS and subscription != NULL:
            for partition, following in self._committed_offsets(which, line):
                self._commit(which, subscription, topic, partition, following)
        elif line is not None:
            self._text_answered(which, line)
        return True

    def _text_answered(self, which: int, line: CommandLine) -> None:
        """Apply an accepted SEND_OFFSETS_TO_TXN, END_TXN or CREATE."""
        pending = self._state.pending
        command = int(pending.request_command[which])
        topic, subscription = int(pending.topic[which]), int(pending.subscription[which])
        transaction = line.arguments.get(b"transactional_id", b"")
        if command == _SEND_OFFSETS and line.entries is not None:
            if transaction not in self._staged and len(self._staged) >= MAX_STAGED_TRANSACTIONS:
                self._staged.popitem(last=False)
            self._staged.setdefault(transaction, []).extend(
                (subscription, topic, partition, following) for partition, following in line.entries
            )
        elif command == _END_TXN:
            staged = self._staged.pop(transaction, [])
            if line.arguments.get(b"result") == b"commit":
                for offset in staged:
                    self._commit(which, *offset)
        elif command == _CREATE and line.arguments.get(b"idempotent") == b"true":
            self._producer_log.store_once(topic)

    def _refused(self, which: int, answer: Answer) -> None:
        pending = self._state.pending
        subscription = int(pending.subscription[which])
        if subscription != NULL and answer.error_code in _REASSIGNING_ERRORS:
            self.groups.reassigned(subscription)
        if pending.request_command[which] == _JOIN and answer.error_code is not None:
            refused = self._member(which, int(self._own.requests.consumer_name[which]), NULL)
            self.groups.refuse(refused, self._codes.of(answer.error_code.encode()))

    def _member(self, which: int, name: int, ready_frame_no: int) -> Member:
        pending = self._state.pending
        return Member(
            self._connection_of(which),
            0,
            int(pending.topic[which]),
            int(pending.subscription[which]),
            name,
            int(pending.request_frame_no[which]),
            ready_frame_no,
        )

    def _commit(
        self, which: int, subscription: int, topic: int, partition: int, following: int
    ) -> None:
        frame_no = int(self._state.pending.request_frame_no[which])
        ns = int(self._state.pending.request_last_ns[which])
        commit = Commit(following, frame_no, ns, self._out.row)
        self.groups.commit(subscription, topic, partition, commit)

    def add_delivery(self, asked: int, row: int, is_push: bool) -> None:
        """Add the delivery of a batch. asked: the request that it answers, negative if unknown."""
        frames = self._context.frames
        if frames.is_two_way[row] == 0:
            self.groups.open.note_one_way(int(frames.connection_id[row]))
        self.groups.deliver(int(cursus_sessions.new_delivery(self._context, row, asked)), is_push)

    def read_session(self, session: int, which: int, row: int, answer: Answer) -> None:
        """Update the session by an answer: negotiated versions and authentication."""
        sessions = self._own.sessions
        command = int(self._state.pending.request_command[which])
        if command == _AUTH and not answer.is_error:
            sessions.must_authenticate[session] = 0
            sessions.has_stored[session] = 0
        elif answer.error_code == "authentication_required":
            sessions.must_authenticate[session] = 1
        elif command == BATCH and answer.ack is not None:
            sessions.has_stored[session] = 1
        elif command == _NEGOTIATE and not answer.is_error:
            self._negotiate(session, answer)
        if sessions.has_stored[session] and sessions.must_authenticate[session]:
            self._note("stored_without_auth", row)
            sessions.has_stored[session] = 0

    def _negotiate(self, session: int, answer: Answer) -> None:
        before = self.negotiated.get(session, ConnectionFacts())
        features = before.feature_flags
        enabled = answer.fields.get("enabled")
        if isinstance(enabled, bytes):
            names = enabled.decode("utf-8", "backslashreplace").split(",")
            features = tuple(name for name in names if name)
        version = answer.number("protocol_version")
        self.negotiated[session] = ConnectionFacts(protocol_version=version, feature_flags=features)

    def _see_log_end(self, which: int, answer: Answer) -> None:
        """Note the end of a log after a publish: the offset after the last one in the answer.

        The answer to a text PUBLISH has the log's end itself, unless the broker is in a cluster.
        """
        pending = self._state.pending
        command, partition = (
            pending.request_command[which],
            int(self._own.requests.partition[which]),
        )
        topic = int(pending.topic[which])
        if command == _APPEND_STREAM:
            offset, answered = answer.number("offset"), answer.number("partition")
            if offset is not None and answered is not None:
                self._producer_log.see_log_end(topic, answered, offset + 1)
        elif answer.ack is not None and partition != NULL:
            is_end = command != BATCH and "leader" not in answer.fields
            following = answer.ack.last_offset + (0 if is_end else 1)
            self._producer_log.see_log_end(topic, partition, following)

    def stream_control(self, stream: int, answer: Answer | None) -> None:
        """Apply the end of a stream by the broker; some reasons mean a reassigned partition."""
        subscription = int(self._state.pending.subscription[stream])
        if answer is None or subscription == NULL:
            return
        if answer.fields.get("reason") in _REASSIGNING_CLOSES:
            self.groups.reassigned(subscription)

    def finish(self) -> None:
        """Close the groups at the end of the capture and note deliveries closed at the limit."""
        self.groups.finish()
        if self.groups.given_up:
            self._notices.note("deliveries_limit", value=self.groups.given_up)
