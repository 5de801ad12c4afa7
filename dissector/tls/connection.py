"""One TLS connection: ranges of both directions in, plain ranges out.

Theory. A direction is a sequence of records. Handshake records give the version, the cipher and the
client's random, by which the key log has the secrets; all others are decrypted with the direction's
key and their number. Only an authentic record gives plain bytes, and the first one decides the
verdict: until then the caller keeps the connection's ranges, and passes them on unchanged unless
`verdict` becomes OPEN.

A hole hides records. If the header of the record that it cuts was captured, that record's end and
the next number are known. If not, offsets that may begin a record are tried with the numbers that
the lost bytes allow (`Direction.find_record`, `MAX_TLS_TRIED_RECORDS`, `MAX_TLS_TRIED_BYTES`). The
number of lost plain bytes follows from these numbers: each record has the same overhead.
"""

from typing import Any, Final

from dissector import limits
from dissector.stream.columns import RangeKind
from dissector.tls import facts as reasons
from dissector.tls import records
from dissector.tls.direction import Direction
from dissector.tls.facts import TlsFacts
from dissector.tls.greeting import Greeting
from dissector.tls.handshake import Message
from dissector.tls.keylog import KeyLog
from dissector.tls.keyring import KeyRing
from dissector.tls.records import PlainSink, PlainSpan, StreamRange
from dissector.tls.sessions import Sessions

OPEN: Final = "open"


class TlsConnection:
    """Decrypts one connection.

    verdict: None while undecided, OPEN, or the reason why nothing is decrypted (`facts`).
    is_waiting: only a key is missing.
    """

    def __init__(self, keys: KeyLog | None, sink: PlainSink, sessions: Sessions) -> None:
        self._ring = KeyRing(keys, sessions)
        self._sink = sink
        self.verdict: str | None = None
        self.is_waiting = False
        self._greeting = Greeting()
        self._sides = (Direction(0), Direction(1))
        self._noted_early = self._renegotiated = False
        self._headers: list[tuple[int, StreamRange, bytes]] = []

    def take_keys(self, keys: KeyLog) -> None:
        """Use another key log from now on."""
        self._ring.keys = keys

    @property
    def facts(self) -> TlsFacts:
        """The facts of the connection so far."""
        return self._greeting.facts

    @property
    def randoms(self) -> tuple[bytes, bytes]:
        """The client's random, and the random under which the key log has its secrets."""
        hello = self._greeting.hello
        return b"" if hello is None else hello.random, self._ring.random

    # -- input

    def direction(self, endpoint_index: int) -> tuple[Direction, bool]:
        """A direction, and whether it is TLS 1.3: for `quick` and `runs`."""
        return self._sides[endpoint_index], self._greeting.is_13

    def skip_header(self, endpoint_index: int, piece: StreamRange, header: bytes) -> None:
        """Skip the unencrypted bytes before the first record (a proxy's header)."""
        side = self._sides[endpoint_index]
        side.plain = side.stream.start = len(header)
        self._headers.append((endpoint_index, piece, header))

    def add(self, endpoint_index: int, piece: StreamRange, view: memoryview) -> None:
        """Read the next bytes of a direction."""
        side = self._sides[endpoint_index]
        overhead_before = side.overhead
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
            if side.is_lost:
                side.note_hole(self._open_sink)
        elif side.is_blocked:
            side.stream.add(piece, view)
            held = len(side.stream.data)
            if self.verdict == OPEN and held > limits.MAX_TLS_HELD_BYTES_PER_CONNECTION:
                self._give_up(side)
                self._pass_over(side, piece._replace(start=side.stream.start))
        elif side.stream.data:
            side.stream.add(piece, view)
            if len(side.stream.data) >= side.stream.needed:
                self._advance(side)
        else:
            self._read(side, view, piece.start, [piece])
        other = self._sides[1 - endpoint_index]
        has_read = side.overhead > overhead_before  # more than a part of a record
        if other.is_blocked and has_read and not self.is_waiting and self.verdict in (None, OPEN):
            self._advance(other)

    def gap(self, endpoint_index: int, piece: StreamRange, kind: int) -> None:
        """Handle missing bytes of a direction. piece: their range, and the packet before them."""
        side = self._sides[endpoint_index]
        side.last = piece
        if self.verdict is None and (self._greeting.hello is None or self._greeting.server is None):
            self.verdict = reasons.NO_HELLO
            return
        if side.is_dead:
            self._sink.gap(side.index, kind, side.plain, piece.end - piece.start, piece)
            side.plain += piece.end - piece.start
            return
        if side.is_lost:
            side.stream.begin_search(piece.end)
            side.note_hole(self._open_sink)
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
        else:
            side.is_lost, side.lost_from = True, start
        side.note_hole(self._open_sink)

    def try_again(self) -> None:
        """Read blocked directions again if the key log has grown."""
        if not self._ring.has_grown:
            return
        for side in self._sides:
            if side.is_blocked:
                self._advance(side)

    def finish(self, endpoint_index: int) -> int:
        """End a direction; returns the offset of its plain end."""
        side = self._sides[endpoint_index]
        if self.verdict == OPEN and side.is_lost:
            side.lose(self._open_sink, side.stream.end - side.lost_from, 1, side.last)
            side.is_lost = False
            side.is_dead = True
        return side.plain

    def close(self) -> None:
        """End the connection: decide the verdict and complete the facts."""
        if self.verdict is None:
            self.verdict = self._ring.missing(self._greeting) or reasons.WRONG_KEY
        self.tell()
        for side in self._sides:
            more = side.failures - limits.MAX_TLS_NOTED_RECORDS
            if more > 0 and self.verdict == OPEN:
                self._sink.note("tls_more_records", side.index, side.last, value=more)

    def tell(self) -> None:
        """Update the facts' decryption and overhead."""
        facts = self.facts
        if self.verdict is None:
            return
        if self.verdict != OPEN:
            facts.decryption = self.verdict
            return
        facts.overhead = [side.overhead for side in self._sides]
        is_whole = not any(side.failures or side.is_dead or side.is_blocked for side in self._sides)
        facts.decryption = reasons.DECRYPTED if is_whole else reasons.PARTLY

    # -- records

    def _advance(self, side: Direction) -> None:
        """Read records from the buffered bytes."""
        stream = side.stream
        data, start, pieces = stream.data, stream.start, stream.pieces
        stream.data = bytearray()
        self._read(side, memoryview(data), start, pieces)

    def _read(
        self, side: Direction, view: memoryview, start: int, pieces: list[StreamRange]
    ) -> None:
        """Read the whole records at the front of some bytes; buffer the rest."""
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

    def _take(
        self, side: Direction, record: memoryview, start: int, pieces: list[StreamRange]
    ) -> bool:
        """Read one whole record; False: it must wait."""
        if not side.is_encrypted:
            if not self._take_plain(side, record):
                return False
            if not side.is_encrypted or record[0] == records.CHANGE_CIPHER_SPEC:
                side.overhead += len(record)
                return True
        kind, greeting = record[0], self._greeting
        greeting.note_encrypted(side.index, pieces[-1].ts_ns)
        if side.opener is None and not self._find_opener(side):
            return False
        if greeting.is_13 and kind == records.CHANGE_CIPHER_SPEC:
            side.overhead += len(record)
            return True
        content = side.opened(record)
        if content is None:
            self._refuse_record(side, record)
        side.record_no += 1
        if content is not None:
            self._prove(side)
            self._take_content(side, record, content, start, pieces)
        return True

    def _take_plain(self, side: Direction, record: memoryview) -> bool:
        """Read a record before encryption, or the one with which it begins; False: it must wait."""
        kind, body, greeting = record[0], record[records.HEADER_BYTES :], self._greeting
        if kind == records.HANDSHAKE:
            self._add_messages(side, body)
        elif kind == records.ALERT:
            greeting.take_alert(side.index, body)
        elif greeting.server is None and greeting.client in (None, side.index):
            return False
        elif kind == records.CHANGE_CIPHER_SPEC:
            if not greeting.is_13:
                if greeting.server is None:
                    return False
                self._change_keys(side)
        elif greeting.is_13 and kind == records.APPLICATION_DATA:
            side.begin_encryption()
        else:
            self._give_up(side)
        return True

    def _take_content(
        self,
        side: Direction,
        record: memoryview,
        content: Any,
        start: int,
        pieces: list[StreamRange],
    ) -> None:
        """Handle the content of an authentic record."""
        kind = record[0]
        if self._greeting.is_13:
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
            self._greeting.take_alert(side.index, content)
        elif kind == records.CHANGE_CIPHER_SPEC and not self._greeting.is_13:
            side.opener = None
            self._change_keys(side)

    def _change_keys(self, side: Direction) -> None:
        """TLS 1.2: encryption begins with the direction's next record."""
        side.begin_encryption()
        side.sequence = 0
        self._greeting.change_keys(side.index)

    def _prove(self, side: Direction) -> None:
        """Note an authentic record: the keys are right, the verdict is OPEN."""
        side.is_proved = True
        if self.verdict is None:
            self.verdict = OPEN
            for endpoint_index, piece, header in self._headers:
                span = PlainSpan(len(header), piece.packet, piece.ts_ns, piece.flags)
                self._sink.data(endpoint_index, 0, header, [span])

    def _refuse_record(self, side: Direction, record: memoryview) -> None:
        """Handle a record that is not authentic: it gives no plain byte."""
        greeting, hello = self._greeting, self._greeting.hello
        if not side.is_proved and greeting.is_13:
            # Before the first authentic record there may be records under other secrets.
            side.passed_over += 1
            is_early = hello is not None and hello.has_early_data and side.index == greeting.client
            if is_early and side.passed_over <= limits.MAX_TLS_EARLY_RECORDS:
                self._pass_early(side, record)
                return
            is_blind = not side.has_handshake_secret
            if is_blind and side.passed_over <= limits.MAX_TLS_BLIND_RECORDS:
                side.overhead += len(record)
                return
        side.failures += 1
        side.sequence += 1
        if not side.is_proved:
            self._give_up(side)
        if self.verdict == OPEN and side.failures <= limits.MAX_TLS_NOTED_RECORDS:
            number = limits.NULL if greeting.server is None else greeting.server.suite
            self._sink.note(
                "tls_bad_record", side.index, side.last,
                value=side.record_no, value2=number, bytes=len(record),
            )  # fmt: skip
        side.lose(self._open_sink, len(record), 1, side.last)

    def _pass_early(self, side: Direction, record: memoryview) -> None:
        """Skip a record of early data: its secret is not read from the key log."""
        if not self._noted_early:
            self._noted_early = True
            self._sink.note("tls_early_data", side.index, side.last)
        if self._greeting.takes_early_data:
            side.lose(self._open_sink, len(record), 1, side.last)
        else:
            side.overhead += len(record)

    @property
    def _open_sink(self) -> PlainSink | None:
        """The sink for missing bytes, None while nothing was decrypted."""
        return self._sink if self.verdict == OPEN else None

    def _search(self, side: Direction) -> None:
        """Search for a record behind a hole whose end is no known boundary."""
        if side.opener is None and not self._find_opener(side):
            if len(side.stream.data) > limits.MAX_TLS_HELD_BYTES_PER_CONNECTION:
                self._give_up(side)
            return
        found = side.find_record()
        if found is not None:
            self._prove(side)
            side.is_encrypted, side.is_lost = True, False
            size = len(found.record)
            side.lose(self._open_sink, found.start - side.lost_from, found.lost_records, side.last)
            side.record_no += found.lost_records + 1
            end = found.start + size
            pieces = [piece for piece in found.pieces if piece.start < end]
            self._take_content(side, found.record, found.content, found.start, pieces)
            rest = [piece for piece in found.pieces if piece.end > end]
            if rest:
                self._read(side, found.rest, end, rest)
        elif side.tried_bytes > limits.MAX_TLS_TRIED_BYTES:
            self._sink.note("tls_search_limit", side.index, side.last, value=side.tried_bytes)
            side.lose(self._open_sink, side.stream.end - side.lost_from, 1, side.last)
            side.is_dead = True

    def _pass_over(self, side: Direction, piece: StreamRange) -> None:
        """Report bytes that cannot be decrypted as missing."""
        size = piece.end - piece.start
        if size > 0 and self.verdict == OPEN:
            self._sink.gap(side.index, RangeKind.GAP_LOST, side.plain, size, piece)
            side.plain += size

    def _give_up(self, side: Direction) -> None:
        """Stop decrypting a direction; if nothing was decrypted yet, decide the verdict."""
        side.is_dead = True
        if self.verdict is None:
            self.verdict = reasons.WRONG_KEY if side.is_encrypted else reasons.UNSUPPORTED

    def _break(self, side: Direction, offset: int, piece: StreamRange) -> None:
        """Handle bytes that should be a record header and are not: search for a record."""
        greeting = self._greeting
        if self.verdict is None and (greeting.hello is None or greeting.server is None):
            is_begun = greeting.hello is not None or greeting.server is not None
            self.verdict = reasons.NO_HELLO if is_begun else ""
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

    def _end_skip(self, side: Direction, piece: StreamRange) -> None:
        """End the record that a hole cut: report its plain bytes as missing."""
        size = side.skip_until - side.skip_from
        if side.is_encrypted:
            side.lose(self._open_sink, size, 1, piece)
            side.sequence += 1
            side.record_no += 1
        side.skip_until = 0
        side.stream.begin_search(piece.start)

    # -- the handshake

    def _add_messages(self, side: Direction, data: Any) -> None:
        """Append bytes of handshake messages; handle each whole message."""
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
            self._greeting.take(side.index, kind, body, side.last.ts_ns)
            if side.is_encrypted:
                self._follow_message(side, kind)

    def _follow_message(self, side: Direction, kind: int) -> None:
        """Handle an encrypted message that changes keys or renegotiates."""
        if self._greeting.is_13:
            if kind == Message.FINISHED:
                side.next_secret()
            elif kind == Message.KEY_UPDATE:
                side.update_key()
        elif kind in (Message.HELLO_REQUEST, Message.CLIENT_HELLO) and not self._renegotiated:
            self._renegotiated = True
            self._sink.note("tls_renegotiation", side.index, side.last)

    # -- keys

    def _refuse(self, reason: str) -> bool:
        """Decide the verdict if both sides are encrypted or a hello is missing; returns False."""
        if self.verdict is None and (
            reason == reasons.NO_HELLO or self._greeting.has_both_encrypted
        ):
            self.verdict = reason
        return False

    def _find_opener(self, side: Direction) -> bool:
        """Get the first key of a direction; False: it waits, or there is none."""
        if side.is_proved and self._greeting.is_13:
            self._give_up(side)  # behind its handshake, without a secret for application data
            return False
        missing = self._ring.unlock(side, self._greeting)
        if not missing:
            return True
        if missing in (reasons.NO_KEY, reasons.NO_KEY_LOG, reasons.PARTLY) and self._sink.may_wait:
            self.is_waiting = True
            return False
        if missing == reasons.PARTLY:  # there are keys of the other direction
            self._give_up(side)
            return False
        if missing == reasons.NO_HELLO and not self._sides[1 - side.index].overhead:
            return False  # the other side's hello may come later
        return self._refuse(missing)
