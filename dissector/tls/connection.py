"""One TLS connection: pieces of both directions in, plain ranges out.

Theory. A direction is a sequence of records: those of the handshake say version, cipher and the
client's random, by which the key log has the secrets; all others are opened with the direction's
key and their number. A record is authentic or gives no byte. Nothing is decided until one is:
whoever feeds the connection keeps its ranges until `verdict` is, and lets them go on as they were
unless it is OPEN.

A hole takes records with it. Where the header of the record that it cuts is there, its end and the
next number are known. Else places that may begin a record are tried with the numbers that the lost
bytes allow (`records.RecordStream`, `MAX_TLS_TRIED_RECORDS`, `MAX_TLS_TRIED_BYTES`). What was lost
of the plain stream follows from the numbers: each record takes the same beside its plain bytes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from dissector import limits
from dissector.stream import columns
from dissector.stream.columns import RangeKind
from dissector.tls import facts as reasons
from dissector.tls import handshake, records, suites
from dissector.tls.facts import TlsFacts
from dissector.tls.handshake import ClientHello, Message, ServerHello
from dissector.tls.keylog import MASTER_SECRET, KeyLog
from dissector.tls.records import Piece, PlainSpan, RecordStream

if TYPE_CHECKING:
    from dissector.tls.ciphers import RecordOpener, TrafficSecret

OPEN: Final = "open"
_FATAL: Final = 2
_SIDE_NAMES: Final = ("CLIENT", "SERVER")


class PlainSink(Protocol):
    """Who takes what comes out. may_wait: a key that is not there may still come."""

    @property
    def may_wait(self) -> bool: ...

    def data(self, endpoint_index: int, offset: int, content: Any, spans: Any) -> None:
        """Plain bytes of one record. spans: a list of records.PlainSpan."""

    def gap(self, endpoint_index: int, kind: int, offset: int, size: int, piece: Piece) -> None:
        """Plain bytes that are not there."""

    def note(self, code: str, endpoint_index: int, piece: Piece, **numbers: int) -> None:
        """A notice."""


class _Side:
    """One direction.

    plain: offset of its next plain byte.
    stages: secrets (TLS 1.3) or openers (TLS 1.2) to come, by which records behind the handshake
        are opened.
    sequence: number of the next record under the key in use.
    is_encrypted: records are; is_proved: one was authentic; is_dead: none will be opened.
    is_lost: no boundary is known; lost_from: stream offset from which nothing was opened, lost_kind
        which kind of hole that was.
    skip_until: end of a record that a hole cut, 0: none; skip_from: its start.
    is_blocked: the next record waits for what the other side, or the key log, will say.
    overhead: stream bytes of opened records that are no plain ones.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.stream = RecordStream()
        self.plain = 0
        self.messages = bytearray()
        self.is_unreadable = False  # a hole was in its handshake
        self.stages: list[TrafficSecret] = []
        self.secret: TrafficSecret | None = None
        self.opener: RecordOpener | None = None
        self.pending: RecordOpener | None = None
        self.has_handshake_secret = False
        self.sequence = 0
        self.record_no = 0
        self.hint = 0
        self.is_encrypted = False
        self.is_proved = False
        self.is_dead = False
        self.is_lost = False
        self.lost_from = 0
        self.lost_kind = int(RangeKind.GAP_LOST)
        self.skip_from = self.skip_until = 0
        self.is_blocked = False
        self.passed_over = 0  # records before the first authentic one
        self.failures = 0
        self.tried_bytes = 0
        self.overhead = 0
        self.last = Piece(0, 0, limits.NULL, limits.NULL, 0)
        self.first_encrypted_ns: int | None = None

    @property
    def is_special(self) -> bool:
        """Whether its next bytes are no records in a row."""
        return bool(self.is_dead or self.is_lost or self.skip_until or self.is_blocked)


class TlsConnection:
    """Follows one connection.

    verdict: None while nothing is decided, OPEN, or why it is not (`facts`).
    is_waiting: only a key is wanting.
    keys: the key log, None if there is none.
    """

    def __init__(self, keys: KeyLog | None, sink: PlainSink) -> None:
        self.keys = keys
        self._sink = sink
        self.facts = TlsFacts()
        self.verdict: str | None = None
        self.is_waiting = False
        self._sides = (_Side(0), _Side(1))
        self._client: _Side | None = None
        self._hello: ClientHello | None = None
        self._server: ServerHello | None = None
        self._suite = suites.suite_of(0)
        self._is_13 = False
        self._has_certificate = False
        self._is_early_taken = True
        self._said_early = self._said_renegotiation = False
        self._secrets: dict[str, bytes] = {}
        self._headers: list[tuple[int, Piece, bytes]] = []

    # -- what comes in

    def read_quickly(self, endpoint_index: int, view: memoryview, piece: Piece) -> int:
        """Take what nearly all ranges are: records of application data that open at once, and
        the beginning of the next one; gives how many bytes it took, from the front.

        Args:
            view: the range; piece: it.
        """
        side = self._sides[endpoint_index]
        opener, stream = side.opener, side.stream
        if opener is None or not side.is_proved or side.is_special:
            return 0
        at, size = 0, len(view)
        if stream.data:
            missing = stream.needed - len(stream.data)
            if stream.data[0] != records.APPLICATION_DATA or stream.needed == records.HEADER_BYTES:
                return 0
            if size < missing:
                stream.data += view
                stream.pieces.append(piece)
                return size
            record = memoryview(bytes(stream.data) + view[:missing])
            pieces = [*stream.pieces, piece]
            if not self._put_quickly(side, opener, record, stream.start, pieces):
                return 0
            stream.data = bytearray()
            at = missing
        start, own = piece.start, [piece]
        while size - at > records.HEADER_BYTES and view[at] == records.APPLICATION_DATA:
            body = view[at + 3] << 8 | view[at + 4]
            end = at + records.HEADER_BYTES + body
            if view[at + 1] != 3 or body > records.MAX_BODY_BYTES:
                break
            if end > size:
                stream.data = bytearray(view[at:])
                stream.start, stream.pieces, stream.needed = start + at, own, end - at
                return size
            if not self._put_quickly(side, opener, view[at:end], start + at, own):
                break
            at = end
        return at

    def _put_quickly(
        self,
        side: _Side,
        opener: "RecordOpener",
        record: memoryview,
        start: int,
        pieces: list[Piece],
    ) -> bool:
        """Put out what a record of application data holds; False: it is none that opens at once."""
        body = record[records.HEADER_BYTES :]
        content = opener.open(side.sequence, bytes(record[: records.HEADER_BYTES]), body)
        if not content:
            return False
        plain = len(content)
        if self._is_13:
            plain -= 1
            if content[plain] != records.APPLICATION_DATA:
                return False
        side.sequence += 1
        side.record_no += 1
        if opener.lead:
            side.hint = opener.hint(body)
        side.overhead += len(record) - plain
        if not plain:
            return True
        end = start + len(record)
        if len(pieces) == 1:
            _, last, packet, ts_ns, flags = pieces[0]
            if pieces[0].start != start:
                flags &= ~columns.STARTS_PACKET
            if last != end:
                flags &= ~columns.ENDS_PACKET
            spans: Any = ((plain, packet, ts_ns, flags),)
        else:
            lead = records.HEADER_BYTES + opener.lead
            spans = records.shares(pieces, start, end, lead, plain)
        self._sink.data(side.index, side.plain, content, spans)
        side.plain += plain
        return True

    @property
    def random(self) -> bytes:
        """The client's random, by which the key log has its secrets."""
        return b"" if self._hello is None else self._hello.random

    def skip_header(self, endpoint_index: int, piece: Piece, header: bytes) -> None:
        """Bytes before the first record, which are plain (a proxy's header)."""
        side = self._sides[endpoint_index]
        side.plain = side.stream.start = len(header)
        self._headers.append((endpoint_index, piece, header))

    def add(self, endpoint_index: int, piece: Piece, view: memoryview) -> None:
        """The next bytes of a direction."""
        side = self._sides[endpoint_index]
        side.last = piece
        if side.skip_until:
            size = min(side.skip_until, piece.end) - piece.start
            view, piece = view[size:], piece._replace(start=piece.start + size)
            if piece.start == side.skip_until:
                self._end_skip(side, piece)
            if not view:
                return
        if side.is_dead:
            self._pass_over(side, piece)
            return
        if side.is_lost:
            side.stream.add(piece, view)
            self._search(side)
        elif side.stream.data or side.is_blocked:
            side.stream.add(piece, view)
            if len(side.stream.data) >= side.stream.needed:
                self._advance(side)
        else:
            self._read(side, view, piece.start, [piece])
        self._advance_blocked(side)

    def gap(self, endpoint_index: int, piece: Piece, kind: int) -> None:
        """Bytes of a direction that are missing. piece: they, and the packet before."""
        side = self._sides[endpoint_index]
        side.last = piece
        if self.verdict is None and not self._is_known(side):
            self.verdict = reasons.NO_HELLO
            return
        if side.is_dead:
            self._sink.gap(side.index, kind, side.plain, piece.end - piece.start, piece)
            side.plain += piece.end - piece.start
            return
        if side.is_lost:
            side.stream.begin_search(piece.end)
            return
        if side.skip_until:
            start, end = side.skip_from, side.skip_until
        else:
            data = side.stream.data
            start, end = (side.stream.start if data else piece.start), 0
            if len(data) >= records.HEADER_BYTES:
                size = records.body_bytes(memoryview(data)[: records.HEADER_BYTES])
                end = start + records.HEADER_BYTES + size if size >= 0 else 0
        side.lost_kind = kind
        side.messages.clear()
        side.is_unreadable = not side.is_encrypted
        side.skip_from, side.skip_until = start, 0
        side.stream.begin_search(piece.end)
        if piece.end <= end:
            side.skip_until = end
            if piece.end == end:
                self._end_skip(side, piece)
            return
        side.is_lost, side.lost_from = True, start

    def try_again(self) -> None:
        """The key log may have grown."""
        for side in self._sides:
            if side.is_blocked:
                self._advance(side)

    def finish(self, endpoint_index: int) -> int:
        """A direction has ended, or will give no more: the offset of its plain end."""
        side = self._sides[endpoint_index]
        if self.verdict == OPEN and side.is_lost:
            self._lose(side, side.stream.end - side.lost_from, 1, side.last)
            side.is_lost = False
            side.is_dead = True
        return side.plain

    def close(self) -> None:
        """No byte follows: decide."""
        for side in self._sides:
            if side.failures > limits.MAX_TLS_NOTED_RECORDS and self.verdict == OPEN:
                self._sink.note(
                    "tls_more_records", side.index, side.last,
                    value=side.failures - limits.MAX_TLS_NOTED_RECORDS,
                )  # fmt: skip
        if self.verdict is None:
            self.verdict = self._why_not()
        if self.verdict == OPEN:
            self.facts.overhead = [side.overhead for side in self._sides]
            is_whole = not any(side.failures or side.is_dead for side in self._sides)
            self.facts.decryption = reasons.DECRYPTED if is_whole else reasons.PARTLY
        else:
            self.facts.decryption = self.verdict

    # -- records

    def _is_known(self, side: _Side) -> bool:
        """Whether what was said so far is enough to go on behind a hole in a direction."""
        return self._server is not None and self._hello is not None

    def _advance(self, side: _Side) -> None:
        """Read records of what is held."""
        stream = side.stream
        data, start, pieces = stream.data, stream.start, stream.pieces
        stream.data = bytearray()
        self._read(side, memoryview(data), start, pieces)

    def _advance_blocked(self, side: _Side) -> None:
        """The other direction may go on by what this one said."""
        other = self._sides[1 - side.index]
        if other.is_blocked and self.verdict in (None, OPEN):
            self._advance(other)

    def _read(self, side: _Side, view: memoryview, start: int, pieces: list[Piece]) -> None:
        """Take the whole records at the front of some bytes; the rest is held."""
        at, size, first = 0, len(view), 0
        side.is_blocked = False
        side.stream.needed = records.HEADER_BYTES
        while size - at >= records.HEADER_BYTES:
            body = records.body_bytes(view[at : at + records.HEADER_BYTES])
            if body < 0:
                self._break(side, start + at, pieces[-1])
                return
            end = at + records.HEADER_BYTES + body
            if end > size:
                side.stream.needed = end - at
                break
            while pieces[first].end <= start + at:
                first += 1
            last = first
            while pieces[last].end < start + end:
                last += 1
            side.last = pieces[last]
            taken = self._take(side, view[at:end], start + at, pieces[first : last + 1])
            if not taken:
                side.is_blocked = True
                break
            at = end
            if side.is_dead:
                break
        if at < size and not side.is_dead:
            side.stream.keep(view[at:], start + at, pieces[first:])
        elif side.is_dead and at < size:
            self._pass_over(side, pieces[-1]._replace(start=start + at))
        if self.is_waiting and not side.is_blocked and not self._sides[1 - side.index].is_blocked:
            self.is_waiting = False

    def _take(self, side: _Side, record: memoryview, start: int, pieces: list[Piece]) -> bool:
        """Take one whole record; False: it must wait."""
        kind = record[0]
        if not side.is_encrypted:
            body = record[records.HEADER_BYTES :]
            is_answered = self._server is not None
            if kind == records.HANDSHAKE:
                self._add_messages(side, body)
            elif kind == records.ALERT:
                self._alert(side, body)
            elif not is_answered and (self._client is None or side is self._client):
                return False
            elif kind == records.CHANGE_CIPHER_SPEC:
                if not self._is_13 and not self._change_keys(side):
                    return False
            elif self._is_13 and kind == records.APPLICATION_DATA:
                if not self._begin_13(side):
                    return False
                return self._take(side, record, start, pieces)
            else:
                self._give_up(side)
            side.overhead += len(record)
            return True
        if side.first_encrypted_ns is None:
            self._note_encrypted(side, pieces[-1].ts_ns)
        if side.opener is None and not self._find_opener(side):
            return False
        if self._is_13 and kind == records.CHANGE_CIPHER_SPEC:
            side.overhead += len(record)
            return True
        content = self._opened(side, record)
        side.record_no += 1
        if content is None:
            return True
        self._prove(side)
        self._take_content(side, record, content, start, pieces)
        return True

    def _take_content(
        self, side: _Side, record: memoryview, content: Any, start: int, pieces: list[Piece]
    ) -> None:
        """What an authentic record holds."""
        kind = record[0]
        if self._is_13:
            size = len(content) - 1
            while size > 0 and content[size] == 0:
                size -= 1
            if size < 0:
                side.overhead += len(record)
                return
            kind, content = content[size], memoryview(content)[:size]
        size = len(content)
        if kind == records.APPLICATION_DATA:
            side.overhead += len(record) - size
            if size:
                assert side.opener is not None, "the record was opened"
                lead = records.HEADER_BYTES + side.opener.lead
                spans = records.shares(pieces, start, start + len(record), lead, size)
                self._sink.data(side.index, side.plain, content, spans)
                side.plain += size
            return
        side.overhead += len(record)
        if kind == records.HANDSHAKE:
            self._add_messages(side, content)
        elif kind == records.ALERT:
            self._alert(side, content)
        elif kind == records.CHANGE_CIPHER_SPEC and not self._is_13:
            side.opener = None
            self._change_keys(side)

    def _pass_over(self, side: _Side, piece: Piece) -> None:
        """Bytes of a direction that nothing opens."""
        size = piece.end - piece.start
        if size > 0 and self.verdict == OPEN:
            self._sink.gap(side.index, RangeKind.GAP_LOST, side.plain, size, piece)
            side.plain += size

    def _lose(self, side: _Side, size: int, count: int, piece: Piece) -> None:
        """Stream bytes that held so many records, none of which was opened."""
        overhead = records.HEADER_BYTES
        if side.opener is not None:
            overhead += side.opener.overhead
        plain = max(1, size - count * overhead)
        if self.verdict == OPEN:
            self._sink.gap(side.index, side.lost_kind, side.plain, plain, piece)
        side.plain += plain
        side.lost_kind = int(RangeKind.GAP_LOST)

    def _give_up(self, side: _Side) -> None:
        """Nothing of a direction will be opened; of both: the connection is none of ours."""
        side.is_dead = True
        if self.verdict is None:
            self.verdict = reasons.WRONG_KEY if side.is_encrypted else reasons.UNSUPPORTED

    def _break(self, side: _Side, offset: int, piece: Piece) -> None:
        """What must be a header is none."""
        if self.verdict is None and not (self._hello and self._server):
            self.verdict = reasons.NO_HELLO if self._hello or self._server else ""
            return
        self._sink.note(
            "tls_broken_record", side.index, piece, stream_offset=offset, value=side.record_no
        )
        if side.opener is None:
            self._give_up(side)
            return
        side.failures += 1
        held = piece._replace(start=offset)
        side.is_lost, side.lost_from = True, offset
        side.stream.begin_search(held.end)

    def _end_skip(self, side: _Side, piece: Piece) -> None:
        """The record that a hole cut ends here."""
        size = side.skip_until - side.skip_from
        if side.is_encrypted:
            self._lose(side, size, 1, piece)
            side.sequence += 1
            side.record_no += 1
        side.skip_until = 0
        side.stream.begin_search(piece.start)

    # -- the handshake

    def _add_messages(self, side: _Side, data: Any) -> None:
        """Bytes of handshake messages."""
        if side.is_unreadable:
            return
        side.messages += data
        while len(side.messages) >= 4:
            size = int.from_bytes(side.messages[1:4], "big")
            if size > limits.MAX_TLS_MESSAGE_BYTES:
                side.is_unreadable = True
                side.messages.clear()
                return
            if len(side.messages) < 4 + size:
                return
            kind, body = side.messages[0], bytes(side.messages[4 : 4 + size])
            del side.messages[: 4 + size]
            self._message(side, kind, body)

    def _message(self, side: _Side, kind: int, body: bytes) -> None:
        facts = self.facts
        if kind == Message.CLIENT_HELLO:
            self._client_hello(side, body)
        elif kind == Message.SERVER_HELLO:
            self._server_hello(side, body)
        elif kind == Message.CERTIFICATE and side is not self._client and not self._is_13:
            self._has_certificate = True
            facts.certificate = handshake.certificate(body)
        elif not side.is_encrypted:
            return
        elif kind == Message.HELLO_REQUEST and not self._is_13:
            self._note_renegotiation(side)
        elif kind == Message.ENCRYPTED_EXTENSIONS:
            protocol, self._is_early_taken = handshake.encrypted_extensions(body)
            facts.protocol = protocol or facts.protocol
        elif kind == Message.FINISHED:
            self._finished(side)
        elif kind == Message.KEY_UPDATE and self._is_13 and side.secret is not None:
            side.secret = side.secret.updated()
            side.opener, side.sequence = side.secret.opener(), 0

    def _client_hello(self, side: _Side, body: bytes) -> None:
        hello = handshake.client_hello(body)
        if hello is None:
            return
        if side.is_encrypted:
            self._note_renegotiation(side)
        self._client, self._hello = side, hello
        facts = self.facts
        facts.client = side.index
        facts.server_name = hello.server_name or facts.server_name
        if facts.hello_ns is None:
            facts.hello_ns = side.last.ts_ns

    def _server_hello(self, side: _Side, body: bytes) -> None:
        hello = handshake.server_hello(body)
        if hello is None:
            return
        facts = self.facts
        facts.version = suites.version_name(hello.version)
        self._suite = suites.suite_of(hello.suite)
        facts.cipher = self._suite.name
        self._is_13 = hello.version == suites.TLS_1_3
        if hello.is_retry:
            return
        self._server = hello
        facts.protocol = hello.protocol or facts.protocol
        if self._is_13:
            facts.is_resumed = hello.is_resumed

    def _finished(self, side: _Side) -> None:
        """The last message of a direction's handshake."""
        if not self._is_13:
            return
        if side is self._client:
            self._end_handshake(side.last.ts_ns)
        if side.stages:
            side.secret = side.stages.pop(0)
            side.opener, side.sequence = side.secret.opener(), 0
        else:
            side.secret = side.opener = None

    def _note_encrypted(self, side: _Side, ts_ns: int) -> None:
        """The first encrypted record of a direction: in TLS 1.2 the end of its handshake."""
        side.first_encrypted_ns = ts_ns
        other = self._sides[1 - side.index]
        if not self._is_13 and other.first_encrypted_ns is not None:
            self._end_handshake(max(ts_ns, other.first_encrypted_ns))
        elif self._is_13 and side is self._client and self.facts.handshake_ns is None:
            self._end_handshake(ts_ns)  # as far as is known without keys

    def _end_handshake(self, ts_ns: int) -> None:
        if self.facts.hello_ns is not None and ts_ns != limits.NULL:
            self.facts.handshake_ns = max(0, ts_ns - self.facts.hello_ns)

    def _note_renegotiation(self, side: _Side) -> None:
        if not self._said_renegotiation:
            self._said_renegotiation = True
            self._sink.note("tls_renegotiation", side.index, side.last)

    def _alert(self, side: _Side, body: Any) -> None:
        if len(body) != 2 or body[0] not in (1, _FATAL):
            return
        if body[1] != suites.CLOSE_NOTIFY:
            self.facts.alerts[side.index] = suites.alert_name(body[1])

    # -- keys

    def _find_secrets(self) -> bool:
        """Whether the key log has this connection; else it waits, or will not be opened."""
        assert self._hello is not None or self._server is not None
        if self._hello is None:
            self.verdict = reasons.NO_HELLO
            return False
        if not self._suite.mode or self._server is None or self._server.compression:
            return self._refuse(reasons.UNSUPPORTED)
        if not self._is_13 and self._server.version != suites.TLS_1_2:
            return self._refuse(reasons.UNSUPPORTED)
        if not self._secrets and self.keys is not None:
            self._secrets = self.keys.find(self._hello.random)
        is_there = any((label == MASTER_SECRET) != self._is_13 for label in self._secrets)
        if is_there:
            return True
        self._secrets = {}
        if self._sink.may_wait:
            self.is_waiting = True
            return False
        return self._refuse(self._why_not())

    def _refuse(self, reason: str) -> bool:
        """It will not be opened: decided when the handshake has told what it tells."""
        sides = self._sides
        if all(side.first_encrypted_ns is not None or side.is_dead for side in sides):
            self.verdict = self.verdict or reason
        return False

    def _why_not(self) -> str:
        """Why nothing was opened, of a connection that is over."""
        if self._hello is None or self._server is None:
            return reasons.NO_HELLO
        if self._server is not None and (
            not self._suite.mode or self._server.version not in (suites.TLS_1_2, suites.TLS_1_3)
        ):
            return reasons.UNSUPPORTED
        if self.keys is None or (not len(self.keys) and not self._secrets):
            return reasons.NO_KEY_LOG
        return reasons.WRONG_KEY if self._secrets else reasons.NO_KEY

    def _change_keys(self, side: _Side) -> bool:
        """TLS 1.2: the direction's next record is encrypted; False: not known how."""
        if self._server is None:
            return False
        side.is_encrypted = True
        side.messages.clear()
        side.is_unreadable = False
        side.sequence = 0
        if side is not self._client and self.facts.is_resumed is None:
            self.facts.is_resumed = not self._has_certificate
        return True

    def _begin_13(self, side: _Side) -> bool:
        """TLS 1.3: the direction's records are encrypted from here on."""
        if self._client is None:
            self.verdict = reasons.NO_HELLO
            return False
        side.is_encrypted = True
        side.messages.clear()
        side.is_unreadable = False
        return True

    def _find_opener(self, side: _Side) -> bool:
        """The first key of a direction; False: it waits, or there is none."""
        if side.is_proved and self._is_13:
            self._give_up(side)  # behind its handshake, without a secret for what follows
            return False
        if not self._find_secrets():
            return False
        try:  # only here: most runs have no key log
            from dissector.tls import ciphers
        except ImportError:
            return self._refuse(reasons.NO_LIBRARY)
        assert self._hello is not None and self._server is not None
        if not self._is_13:
            both = ciphers.openers12(
                self._suite, self._secrets[MASTER_SECRET], self._hello.random,
                self._server.random, self._server.encrypts_then_macs,
            )  # fmt: skip
            side.opener = both[0] if side is self._client else both[1]
            return True
        name = _SIDE_NAMES[side is not self._client]
        first = self._secrets.get(f"{name}_HANDSHAKE_TRAFFIC_SECRET")
        second = self._secrets.get(f"{name}_TRAFFIC_SECRET_0")
        side.has_handshake_secret = first is not None
        side.stages = [
            ciphers.TrafficSecret(self._suite, secret)
            for secret in (first, second)
            if secret is not None
        ]
        if not side.stages:
            if self._sink.may_wait:
                self._secrets = {}
                self.is_waiting = True
                return False
            self._give_up(side)
            return False
        side.secret = side.stages.pop(0)
        side.opener = side.secret.opener()
        return True

    def _prove(self, side: _Side) -> None:
        """A record was authentic: the keys are right."""
        side.is_proved = True
        if self.verdict is None:
            self.verdict = OPEN
            for endpoint_index, piece, header in self._headers:
                span = PlainSpan(len(header), piece.packet, piece.ts_ns, piece.flags)
                self._sink.data(endpoint_index, 0, header, [span])

    def _opened(self, side: _Side, record: memoryview) -> Any:
        """What a record holds; None if it is not authentic, or cannot be read."""
        header, body = bytes(record[: records.HEADER_BYTES]), record[records.HEADER_BYTES :]
        opener = side.opener
        assert opener is not None
        content = opener.open(side.sequence, header, body)
        if content is not None:
            side.sequence += 1
            if opener.lead:
                side.hint = opener.hint(body)
            return content
        content = self._tried(side, header, body, 0)
        if content is not None or self._is_passed_over(side, record):
            return content
        side.failures += 1
        side.sequence += 1
        if not side.is_proved:
            self._give_up(side)
        if self.verdict == OPEN and side.failures <= limits.MAX_TLS_NOTED_RECORDS:
            self._sink.note(
                "tls_bad_record", side.index, side.last,
                value=side.record_no, value2=self._server.suite if self._server else limits.NULL,
                bytes=len(record),
            )  # fmt: skip
        self._lose(side, len(record), 1, side.last)
        return None

    def _is_passed_over(self, side: _Side, record: memoryview) -> bool:
        """Whether a record before the first authentic one is none that the secrets open."""
        if side.is_proved or not self._is_13:
            return False
        side.passed_over += 1
        if side is self._client and self._hello is not None and self._hello.has_early_data:
            if side.passed_over > limits.MAX_TLS_EARLY_RECORDS:
                return False
            if not self._said_early:
                self._said_early = True
                self._sink.note("tls_early_data", side.index, side.last)
            if self._is_early_taken:
                self._lose(side, len(record), 1, side.last)
            else:
                side.overhead += len(record)
            return True
        side.overhead += len(record)
        return not side.has_handshake_secret and side.passed_over <= limits.MAX_TLS_BLIND_RECORDS

    def _tried(self, side: _Side, header: bytes, body: memoryview, most: int) -> Any:
        """Open a record whose number, or key, is not sure.

        Args:
            most: how many records may be between the last one and this.
        """
        cost = len(body) + limits.TLS_TRY_CHARGE_BYTES
        for secret, sequence in self._numbers(side, body, most):
            side.tried_bytes += cost
            if side.tried_bytes > limits.MAX_TLS_TRIED_BYTES:
                return None
            opener = side.opener if secret is None else secret.opener()
            assert opener is not None
            content = opener.open(sequence, header, body)
            if content is None:
                continue
            if secret is not None:
                if side.stages and secret is side.stages[0]:
                    side.stages.pop(0)
                side.secret, side.opener = secret, opener
            side.sequence = sequence + 1
            side.hint = opener.hint(body)
            return content
        return None

    def _numbers(
        self, side: _Side, body: memoryview, most: int
    ) -> Iterator[tuple["TrafficSecret | None", int]]:
        """Secrets (None: that in use) and numbers of a record, the likely ones first."""
        assert side.opener is not None
        hinted = side.opener.hinted(body, side.hint) if side.is_proved else None
        if hinted and hinted <= most:
            yield None, side.sequence + hinted
        most = min(most, limits.MAX_TLS_TRIED_RECORDS)
        for number in range(1, most + 1):
            yield None, side.sequence + number
        if side.secret is None:
            return
        if side.stages:
            following = side.stages[0]
        elif side.is_proved:
            following = side.secret.updated()
        else:
            return
        for number in range(most + 1):
            yield following, number

    def _search(self, side: _Side) -> None:
        """Look for a record behind a hole whose end is no boundary that is known."""
        stream = side.stream
        if not self._is_ready(side):
            if len(stream.data) > limits.MAX_TLS_HELD_BYTES_PER_CONNECTION:
                self._give_up(side)
            return
        assert side.opener is not None
        least = side.opener.overhead
        for place in stream.candidates(least):
            size = stream.data[place + 3] << 8 | stream.data[place + 4]
            end = place + records.HEADER_BYTES + size
            record = memoryview(bytes(stream.data[place:end]))
            header, body = bytes(record[: records.HEADER_BYTES]), record[records.HEADER_BYTES :]
            before = side.sequence
            lost = stream.start + place - side.lost_from
            content = side.opener.open(before, header, body)
            if content is not None:
                side.sequence, side.hint = before + 1, side.opener.hint(body)
            else:
                most = lost // (records.HEADER_BYTES + least)
                content = self._tried(side, header, body, most)
            if content is None:
                continue
            count = max(0, side.sequence - 1 - before)
            self._prove(side)
            side.is_encrypted = True
            side.is_lost = False
            start = stream.start + place
            side.record_no += count
            self._lose(side, lost, count, side.last)
            pieces = [piece for piece in stream.pieces if piece.end > start]
            data, first = stream.data, stream.start
            stream.data = bytearray()
            of_record = [piece for piece in pieces if piece.start < start + len(record)]
            self._take_content(side, record, content, start, of_record)
            side.record_no += 1
            rest = memoryview(data)[end:]
            if rest:
                self._read(side, rest, first + end, [p for p in pieces if p.end > first + end])
            return
        if side.tried_bytes > limits.MAX_TLS_TRIED_BYTES:
            self._sink.note("tls_search_limit", side.index, side.last, value=side.tried_bytes)
            self._lose(side, stream.end - side.lost_from, 1, side.last)
            side.is_dead = True
            return
        stream.forget_searched()

    def _is_ready(self, side: _Side) -> bool:
        """Whether a direction without boundaries has a key to try."""
        if side.opener is not None:
            return True
        if self._server is None or self._client is None:
            return False
        is_found = self._find_opener(side)
        if not is_found and self.verdict is None and side.first_encrypted_ns is None:
            side.first_encrypted_ns = side.last.ts_ns
            self._refuse(self._why_not())
        return is_found
