"""What requests and answers do: to logs, to groups and to transactions."""

from typing import Final

from dissector.findings import Finding, Findings
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import NAME_OBSERVED
from dissector.protocols.cursus.answers import Answer, log_ends
from dissector.protocols.cursus.cells import Cell
from dissector.protocols.cursus.commands import BATCH, NUMBER
from dissector.protocols.cursus.conversations import Conversation, Request
from dissector.protocols.cursus.groups import Delivery, Groups, Member
from dissector.protocols.cursus.readings import Codes
from dissector.protocols.cursus.rows import AckRow, Gathered, ProducerRow
from dissector.protocols.cursus.secrets import holds_token
from dissector.protocols.cursus.sendings import (
    Sendings,
    Sent,
    begin_batch,
    copies_of,
    find_batch,
    follow,
    published_ns,
    standing,
    store_batch,
)
from dissector.protocols.tables import ABSENT
from dissector.schemas.words import BY_CAPTURE_END, BY_CONNECTION
from dissector.schemas.words import KIND_PUBLISH as PUBLISH

_JOIN: Final = NUMBER["JOIN_GROUP"]
_LEAVE: Final = NUMBER["LEAVE_GROUP"]
_COMMIT_OFFSET: Final = NUMBER["COMMIT_OFFSET"]
_BATCH_COMMIT: Final = NUMBER["BATCH_COMMIT"]
_SEND_OFFSETS: Final = NUMBER["SEND_OFFSETS_TO_TXN"]
_END_TXN: Final = NUMBER["END_TXN"]
_CREATE: Final = NUMBER["CREATE"]
_APPEND_STREAM: Final = NUMBER["APPEND_STREAM"]
_LIST_OFFSETS: Final = NUMBER["LIST_OFFSETS"]
_DESCRIBE: Final = NUMBER["DESCRIBE"]
_AUTH: Final = NUMBER["AUTH"]
_NEGOTIATE: Final = NUMBER["NEGOTIATE"]
_MOVING_ERRORS: Final = frozenset(
    ("GEN_MISMATCH", "NOT_OWNER", "member_not_found", "REBALANCE_REQUIRED")
)
_MOVING_CLOSES: Final = frozenset((b"replaced", b"removed", b"timeout"))
_MAX_STAGED: Final = 1 << 14  # transactions whose offsets are remembered
_MAX_PRODUCERS: Final = 1 << 12  # of one connection


class Effects:
    """State of one capture that is not of one connection. findings: what is odd."""

    def __init__(self, gathered: Gathered, codes: Codes, findings: Findings) -> None:
        self._out = gathered
        self._codes = codes
        self._findings = findings
        self.groups = Groups(gathered)
        self.sendings = Sendings()
        self._staged: dict[bytes, list[tuple[int, int, int, int]]] = {}

    # -- requests

    def asked(self, known: Conversation, request: Request, cell: Cell) -> None:
        """A request came; it is not said yet whether it will be answered.

        What a broker passes on has done its work where the client sent it.
        """
        if request.is_passed_on:
            return
        if request.kind == PUBLISH:
            self._publish(known, request, cell)
            payload = request.line.payload if request.line is not None else None
            if payload is not None and holds_token(payload[1]):
                self._note("credentials_in_payload", cell)
        command = request.command
        self.groups.meet(request.subscription, request.topic)
        if command == _COMMIT_OFFSET and request.line is not None:
            following = request.line.number(b"offset")
            if following is not None:
                self._ack(known, request, request.topic, request.partition, following)
        elif command == _BATCH_COMMIT and request.line is not None:
            for partition, following in request.line.entries or ():
                self._ack(known, request, request.topic, partition, following)
        elif command == _END_TXN:
            self._end_of_transaction(known, request)

    def _ack(
        self, known: Conversation, request: Request, topic: int, partition: int, following: int
    ) -> AckRow:
        row = AckRow(
            known.connection,
            request.frame_no,
            request.last_ns,
            topic,
            request.subscription,
            following - 1 if following > 0 else NULL,
            partition,
            self.sendings.lag_from(topic, partition, following) if topic != NULL else NULL,
            self._out.row,
        )
        self._out.add(row)
        return row

    def _end_of_transaction(self, known: Conversation, request: Request) -> None:
        """A commit makes the offsets count that were sent to the transaction before."""
        line = request.line
        if line is None or line.arguments.get(b"result") != b"commit":
            return
        staged = self._staged.get(line.arguments.get(b"transactional_id", b""), [])
        for subscription, topic, partition, following in staged:
            request.subscription = subscription
            self._ack(known, request, topic, partition, following)
        if not staged:
            self._ack(known, request, NULL, NULL, 0)

    def _publish(self, known: Conversation, request: Request, cell: Cell) -> None:
        """A batch, or a text that carries a message, goes to a log."""
        if request.command == BATCH:
            request.acks = cell.acks if cell.acks != NULL else 1
            request.idempotent = max(cell.idempotent, 0)
        elif request.line is not None and request.line.arguments.get(b"acks") == b"0":
            request.acks = 0
        if request.producer == NULL or request.topic == NULL:
            return
        epoch = cell.producer_epoch
        self._meet_producer(known, request, epoch)
        if request.sequence == NULL:
            return
        sent = Sent(
            request.topic,
            request.partition,
            request.producer,
            epoch,
            request.sequence,
            request.highest,
        )
        state = self.sendings.state
        is_new = find_batch(state, sent) == ABSENT
        request.number = int(begin_batch(state, sent, request.last_ns))
        request.attempt = int(copies_of(state, request.number))
        if is_new:
            self._note_order(request, sent, cell)

    def _note_order(self, request: Request, sent: Sent, cell: Cell) -> None:
        """Epochs that go back, and holes in what a producer counts that is stored once."""
        is_once = request.idempotent == 1 or self.sendings.is_once(request.topic)
        is_known, epoch, seq_end = standing(self.sendings.state, sent)
        follow(self.sendings.state, sent)
        if not is_known:
            return
        if sent.epoch < epoch:
            self._note("producer_epoch_back", cell, sent.epoch, epoch)
        elif is_once and sent.epoch == epoch and sent.seq_start > seq_end + 1:
            self._note("sequence_gap", cell, sent.seq_start, seq_end)

    def _note(self, code: str, cell: Cell, value: int = NULL, value2: int = NULL) -> None:
        self._findings.add(
            [
                Finding(
                    NOTICE_NUMBER[code],
                    ts_ns=cell.last_ts_ns,
                    connection_id=cell.connection_id,
                    direction=cell.direction,
                    frame_no=cell.frame_no,
                    packet=cell.last_packet,
                    stream_offset=cell.stream_offset,
                    value=value,
                    value2=value2,
                )
            ]
        )

    def _meet_producer(self, known: Conversation, request: Request, epoch: int) -> None:
        key = (request.topic, request.producer)
        if key in known.producers or len(known.producers) < _MAX_PRODUCERS:
            known.producers[key] = epoch
            known.last_producer = (*key, epoch)

    def producers_over(self, known: Conversation, at_end: bool) -> None:
        """A connection is over, and with it the producers that were seen on it."""
        for (topic, name), epoch in known.producers.items():
            self._out.add(
                ProducerRow(
                    known.connection,
                    topic,
                    name,
                    epoch,
                    BY_CAPTURE_END if at_end else BY_CONNECTION,
                    NAME_OBSERVED,
                    self._out.row,
                )
            )
        known.producers = {}

    def connection_over(self, connection: int) -> None:
        """A connection is over."""
        self.groups.connection_over(connection)

    # -- answers

    def answered(self, request: Request, cell: Cell, answer: Answer | None, is_good: bool) -> bool:
        """A request was answered; False if what it wanted stored was there already."""
        command = request.command
        if request.is_passed_on:
            return True
        if cell.command == BATCH:
            self.delivered(request, cell, request.command == NUMBER["STREAM"])
            return True
        if answer is not None and answer.is_error:
            self._refused(cell.connection_id, request, answer)
            return True
        if not is_good or answer is None:
            return True
        if request.kind == PUBLISH:
            self._see_end(request, answer)
            return self._stored(request)
        if command in (_LIST_OFFSETS, _DESCRIBE):
            for partition, following in log_ends(answer):
                self.sendings.see_end(request.topic, partition, following)
        if command == _JOIN:
            self._joined(request, cell, answer)
        elif command == _LEAVE:
            self.groups.leave(
                request.subscription, request.topic, request.consumer_name, request.frame_no
            )
        elif command in (_COMMIT_OFFSET, _BATCH_COMMIT):
            self._committed(request)
        elif command == _SEND_OFFSETS:
            self._stage(request)
        elif command == _END_TXN:
            self._transaction_ended(request)
        elif command == _CREATE:
            self._created(request)
        return True

    def _created(self, request: Request) -> None:
        """A topic that stores each batch once, whatever its producers say."""
        if request.line is not None and request.line.arguments.get(b"idempotent") == b"true":
            self.sendings.store_once(request.topic)

    def _refused(self, connection: int, request: Request, answer: Answer) -> None:
        if request.subscription != NULL and answer.error_code in _MOVING_ERRORS:
            self.groups.moved(request.subscription)
        if request.command == _JOIN and answer.error_code is not None:
            refused = self._member(connection, request, request.consumer_name, NULL)
            self.groups.refuse(refused, self._codes.of(answer.error_code.encode()))

    def _stored(self, request: Request) -> bool:
        """Whether a good answer to a publish means that it was stored now."""
        if not request.number:
            return True
        was_stored = store_batch(self.sendings.state, request.number) == 1
        is_once = request.idempotent == 1 or self.sendings.is_once(request.topic)
        return not (was_stored and is_once)

    def _member(self, connection: int, request: Request, name: int, ready_frame_no: int) -> Member:
        return Member(
            connection,
            0,
            request.topic,
            request.subscription,
            name,
            request.frame_no,
            ready_frame_no,
        )

    def _joined(self, request: Request, cell: Cell, answer: Answer) -> None:
        if request.subscription == NULL:
            return
        name = cell.consumer_name
        if name == NULL:
            name = request.consumer_name
        member = self._member(cell.connection_id, request, name, cell.frame_no)
        generation = answer.number("generation")
        self.groups.join(member, NULL if generation is None else generation)

    def _committed(self, request: Request) -> None:
        line = request.line
        if line is None or request.subscription == NULL:
            return
        if request.command == _BATCH_COMMIT:
            entries = line.entries or ()
        else:
            following = line.number(b"offset")
            entries = () if following is None else ((request.partition, following),)
        for partition, following in entries:
            self._commit(request, request.subscription, request.topic, partition, following)

    def _commit(
        self, request: Request, subscription: int, topic: int, partition: int, following: int
    ) -> None:
        ack = AckRow(
            NULL, request.frame_no, request.last_ns, topic, subscription, NULL, partition, NULL, 0
        )
        self.groups.commit(subscription, topic, partition, following, ack)

    def _stage(self, request: Request) -> None:
        line = request.line
        if line is None or line.entries is None:
            return
        name = line.arguments.get(b"transactional_id", b"")
        if name not in self._staged and len(self._staged) >= _MAX_STAGED:
            del self._staged[next(iter(self._staged))]
        staged = self._staged.setdefault(name, [])
        staged.extend(
            (request.subscription, request.topic, partition, following)
            for partition, following in line.entries
        )

    def _transaction_ended(self, request: Request) -> None:
        line = request.line
        if line is None:
            return
        staged = self._staged.pop(line.arguments.get(b"transactional_id", b""), [])
        if line.arguments.get(b"result") == b"commit":
            for subscription, topic, partition, following in staged:
                self._commit(request, subscription, topic, partition, following)

    # -- batches for clients

    def delivered(self, asked: Request, cell: Cell, is_push: bool) -> None:
        """A batch was handed to a client. asked: the CONSUME, STREAM or READ_STREAM behind it."""
        topic, partition = cell.topic, cell.partition
        records = cell.records
        published = NULL
        if records != NULL and records > 0:
            key = (topic, partition, cell.first_producer, cell.first_epoch)
            published = int(published_ns(self.sendings.state, *key, cell.first_seq))
        count = records if records != NULL else max(cell.message_count, 0)
        first, last = cell.first_offset, cell.last_offset
        if last == NULL and first != NULL:
            last = first + count - 1  # cut: the offsets of the rest are not there
        self.groups.deliver(
            Delivery(
                cell.connection_id,
                cell.frame_no,
                cell.last_ts_ns,
                topic,
                partition,
                asked.subscription,
                asked.consumer_name,
                first if count else NULL,
                last if count else NULL,
                count,
                published,
                is_push,
                self._lag_behind(topic, partition, last) if count and last != NULL else NULL,
            )
        )

    def _lag_behind(self, topic: int, partition: int, last: int) -> int:
        lag = self.sendings.lag_from(topic, partition, last + 1)
        self.sendings.see_end(topic, partition, last + 1)
        return lag

    def heard(self, known: Conversation, request: Request, cell: Cell, answer: Answer) -> None:
        """What an answer says of the connection: versions, and whether it is authenticated."""
        if request.command == _AUTH and not answer.is_error:
            known.must_authenticate = False
            known.has_stored = False
        elif answer.error_code == "authentication_required":
            known.must_authenticate = True
        elif request.command == BATCH and answer.ack is not None:
            known.has_stored = True
        elif request.command == _NEGOTIATE and not answer.is_error:
            known.version = answer.number("protocol_version")
            enabled = answer.fields.get("enabled")
            if isinstance(enabled, bytes):
                names = enabled.decode("utf-8", "backslashreplace").split(",")
                known.features = tuple(name for name in names if name)
        if known.has_stored and known.must_authenticate:
            self._note("stored_without_auth", cell)
            known.has_stored = False

    def _see_end(self, request: Request, answer: Answer) -> None:
        """Where a log ends after a publish: behind the last offset that the answer says.

        A text PUBLISH is told the log's end itself, unless the broker is one of a cluster.
        """
        if request.command == _APPEND_STREAM:
            offset, partition = answer.number("offset"), answer.number("partition")
            if offset is not None and partition is not None:
                self.sendings.see_end(request.topic, partition, offset + 1)
        elif answer.ack is not None and request.partition != NULL:
            is_end = request.command != BATCH and "leader" not in answer.fields
            following = answer.ack.last_offset + (0 if is_end else 1)
            self.sendings.see_end(request.topic, request.partition, following)

    def stream_control(self, asked: Request, cell: Cell, answer: Answer | None) -> None:
        """The broker ends a stream: for some reasons because its partition goes to another."""
        if answer is None or asked.subscription == NULL:
            return
        if answer.fields.get("reason") in _MOVING_CLOSES:
            self.groups.moved(asked.subscription)

    def finish(self) -> None:
        """The capture is over."""
        self.groups.finish()
        if self.groups.given_up:
            kind = NOTICE_NUMBER["deliveries_limit"]
            self._findings.add([Finding(kind, value=self.groups.given_up)])
