"""One direction of a TLS connection: its keys, the numbers of its records, what it holds.

A record is opened with the key in use and its number. Where that does not do, other numbers and the
next key are tried, within bounds; behind a hole also other places.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dissector import limits
from dissector.stream.columns import GOES_ON, RangeKind
from dissector.tls import records
from dissector.tls.records import PlainSink, RecordStream, StreamRange

if TYPE_CHECKING:
    from dissector.tls.ciphers import RecordOpener, TrafficSecret


class FoundRecord(NamedTuple):
    """An authentic record behind a hole: where it begins in the stream, itself, what it holds, how
    many records were lost before it, and the bytes behind it."""

    start: int
    record: memoryview
    content: Any
    lost_records: int
    rest: memoryview
    pieces: list[StreamRange]


class Direction:
    """One direction.

    plain: offset of its next plain byte.
    stages: of TLS 1.3, secrets to come, by which records behind the handshake are opened.
    secret, opener: in use; of TLS 1.2 there is no secret.
    sequence: number of the next record under the key in use.
    is_encrypted: records are; is_proved: one was authentic; is_dead: none will be opened.
    is_lost: no boundary is known; lost_from: stream offset from which nothing was opened, lost_kind
        which kind of hole that was; told: plain bytes of it that are called missing already.
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
        self.told = 0
        self.skip_from = self.skip_until = 0
        self.is_blocked = False
        self.passed_over = 0  # records before the first authentic one
        self.failures = 0
        self.tried_bytes = 0
        self.overhead = 0
        self.last = StreamRange(0, 0, limits.NULL, limits.NULL, 0)
        self.first_encrypted_ns: int | None = None

    @property
    def is_special(self) -> bool:
        """Whether its next bytes are no records in a row."""
        return bool(self.is_dead or self.is_lost or self.skip_until or self.is_blocked)

    def begin_encryption(self) -> None:
        """Its records are encrypted from here on; what was said before is no part of messages."""
        self.is_encrypted = True
        self.messages.clear()
        self.is_unreadable = False

    def use(self, secrets: "list[TrafficSecret]") -> None:
        """Begin with the first of the secrets of TLS 1.3; the others follow."""
        self.stages = secrets
        self.next_secret()

    def next_secret(self) -> None:
        """Go on with the next secret; without one nothing opens what follows."""
        self.sequence = 0
        self.secret = self.stages.pop(0) if self.stages else None
        self.opener = None if self.secret is None else self.secret.opener()

    def update_key(self) -> None:
        """Go on with the key behind a KeyUpdate."""
        if self.secret is not None:
            self.secret = self.secret.updated()
            self.opener, self.sequence = self.secret.opener(), 0

    def lose(self, sink: PlainSink | None, size: int, count: int, piece: StreamRange) -> None:
        """Stream bytes that held so many records, none of which was opened.

        What they took beside their plain bytes is known; what `tell_hole` told is told.
        """
        around = records.HEADER_BYTES + (0 if self.opener is None else self.opener.overhead)
        plain = max(1, size - count * around, self.told) - self.told
        if sink is not None and plain:
            sink.gap(self.index, self.lost_kind, self.plain, plain, piece)
        self.plain += plain
        self.told, self.lost_kind = 0, int(RangeKind.GAP_LOST)

    def tell_hole(self, sink: PlainSink | None) -> None:
        """Say that bytes are missing before what the other side says next; how many, and which
        frames they took, the next record that is opened tells."""
        if sink is not None:
            piece = self.last._replace(flags=GOES_ON)
            sink.gap(self.index, self.lost_kind, self.plain, 1, piece)
            self.plain += 1
            self.told += 1

    def opened(self, record: memoryview) -> Any:
        """What a record holds; None if it is not authentic."""
        header, body = bytes(record[: records.HEADER_BYTES]), record[records.HEADER_BYTES :]
        opener = self.opener
        assert opener is not None
        content = opener.open(self.sequence, header, body)
        if content is None:
            return self._tried(header, body, 0)
        self.sequence += 1
        if opener.lead:
            self.hint = opener.hint(body)
        return content

    def _tried(self, header: bytes, body: memoryview, most: int) -> Any:
        """Open a record whose number, or key, is not sure.

        Args:
            most: how many records may be between the last one and this.
        """
        cost = len(body) + limits.TLS_TRY_CHARGE_BYTES
        for secret, sequence in self._numbers(body, most):
            self.tried_bytes += cost
            if self.tried_bytes > limits.MAX_TLS_TRIED_BYTES:
                return None
            opener = self.opener if secret is None else secret.opener()
            assert opener is not None
            content = opener.open(sequence, header, body)
            if content is None:
                continue
            if secret is not None:
                if self.stages and secret is self.stages[0]:
                    self.stages.pop(0)
                self.secret, self.opener = secret, opener
            self.sequence = sequence + 1
            self.hint = opener.hint(body)
            return content
        return None

    def _numbers(self, body: memoryview, most: int) -> Iterator[tuple["TrafficSecret | None", int]]:
        """Secrets (None: that in use) and numbers of a record, the likely ones first."""
        assert self.opener is not None
        hinted = self.opener.hinted(body, self.hint) if self.is_proved else None
        if hinted and hinted <= most:
            yield None, self.sequence + hinted
        most = min(most, limits.MAX_TLS_TRIED_RECORDS)
        for number in range(1, most + 1):
            yield None, self.sequence + number
        if self.secret is None:
            return
        if self.stages:
            following = self.stages[0]
        elif self.is_proved:
            following = self.secret.updated()
        else:
            return
        for number in range(most + 1):
            yield following, number

    def found(self) -> FoundRecord | None:
        """The first authentic record in what is held behind a hole; a key must be there."""
        stream, opener = self.stream, self.opener
        assert opener is not None
        least = opener.overhead
        for place in stream.candidates(least):
            if self.tried_bytes > limits.MAX_TLS_TRIED_BYTES:
                break
            size = stream.data[place + 3] << 8 | stream.data[place + 4]
            end = place + records.HEADER_BYTES + size
            record = memoryview(bytes(stream.data[place:end]))
            header, body = bytes(record[: records.HEADER_BYTES]), record[records.HEADER_BYTES :]
            before, start = self.sequence, stream.start + place
            content = opener.open(before, header, body)
            if content is not None:
                self.sequence, self.hint = before + 1, opener.hint(body)
            else:
                most = (start - self.lost_from) // (records.HEADER_BYTES + least)
                content = self._tried(header, body, most)
            if content is None:
                continue
            rest = memoryview(stream.data)[end:]
            pieces = [piece for piece in stream.pieces if piece.end > start]
            stream.data = bytearray()
            lost = max(0, self.sequence - 1 - before)
            return FoundRecord(start, record, content, lost, rest, pieces)
        stream.forget_searched()
        return None
