"""One direction of a TLS connection: its keys, its record numbers, its buffered bytes.

A record is decrypted with the current key and its number. If that fails, other numbers and the next
key are tried, within bounds; behind a hole also other offsets.
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
    """An authentic record behind a hole: its stream offset, its bytes, its content, the number of
    records lost before it, and the bytes behind it with their pieces."""

    start: int
    record: memoryview
    content: Any
    lost_records: int
    rest: memoryview
    pieces: list[StreamRange]


class Direction:
    """One direction.

    plain: offset of its next plain byte.
    stages: TLS 1.3's next secrets, for records behind the handshake.
    secret, opener: the current ones; TLS 1.2 has no secret.
    sequence: number of the next record under the current key.
    is_encrypted: its records are encrypted; is_proved: one was authentic; is_dead: no further one
        will be decrypted.
    is_lost: no record boundary is known; lost_from: stream offset from which nothing was decrypted,
        lost_kind: the kind of that hole; reported: its plain bytes already reported as missing.
    skip_until: end of a record that a hole cut, 0: none; skip_from: its start.
    is_blocked: the next record needs the other side's messages, or a key.
    overhead: stream bytes of decrypted records minus their plain bytes.
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
        self.reported = 0
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
        """Whether its next bytes cannot be read as consecutive records."""
        return bool(self.is_dead or self.is_lost or self.skip_until or self.is_blocked)

    def begin_encryption(self) -> None:
        """Mark the following records as encrypted; drop the start of an unencrypted message."""
        self.is_encrypted = True
        self.messages.clear()
        self.is_unreadable = False

    def use(self, secrets: "list[TrafficSecret]") -> None:
        """Set the secrets of TLS 1.3, in order, and begin with the first one."""
        self.stages = secrets
        self.next_secret()

    def next_secret(self) -> None:
        """Switch to the next secret; without one no further record can be decrypted."""
        self.sequence = 0
        self.secret = self.stages.pop(0) if self.stages else None
        self.opener = None if self.secret is None else self.secret.opener()

    def update_key(self) -> None:
        """Switch to the key that follows a KeyUpdate."""
        if self.secret is not None:
            self.secret = self.secret.updated()
            self.opener, self.sequence = self.secret.opener(), 0

    def lose(self, sink: PlainSink | None, size: int, count: int, piece: StreamRange) -> None:
        """Report the plain bytes of `count` records of `size` stream bytes as missing.

        The overhead per record is known; bytes that `note_hole` reported are not counted again.
        """
        around = records.HEADER_BYTES + (0 if self.opener is None else self.opener.overhead)
        plain = max(1, size - count * around, self.reported) - self.reported
        if sink is not None and plain:
            sink.gap(self.index, self.lost_kind, self.plain, plain, piece)
        self.plain += plain
        self.reported, self.lost_kind = 0, int(RangeKind.GAP_LOST)

    def note_hole(self, sink: PlainSink | None) -> None:
        """Report one missing plain byte now, so that the hole comes before the other side's next
        bytes; the next decrypted record gives the number of missing bytes."""
        if sink is not None:
            piece = self.last._replace(flags=GOES_ON)
            sink.gap(self.index, self.lost_kind, self.plain, 1, piece)
            self.plain += 1
            self.reported += 1

    def opened(self, record: memoryview) -> Any:
        """The content of a record; None if it is not authentic."""
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
        """Decrypt a record whose number or key is uncertain; None if no attempt succeeds.

        Args:
            most: the largest number of records between the last one and this one.
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
        """Candidate secrets (None: the current one) and numbers of a record, likely ones first."""
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

    def find_record(self) -> FoundRecord | None:
        """The first authentic record in the bytes buffered behind a hole; needs an opener."""
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
