"""The stage between streams and protocols: replace TLS ranges by their plain ranges.

Other connections pass unchanged, and a block without TLS is not copied. The ranges of a TLS
connection are kept until its first record is decrypted; if none can be, they pass unchanged, and
the protocols count them. The connection's facts are kept until its table row is written.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from dissector import limits
from dissector.blocks import ByteArray, Int64Array
from dissector.limits import NULL
from dissector.notice_rows import Notice, NoticeRows, notice_of
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.framing import HeadVerdict, look
from dissector.stream import columns
from dissector.stream.columns import RangeColumns, RangeKind, RangeSource
from dissector.tls import facts as reasons
from dissector.tls import runs
from dissector.tls.connection import OPEN, TlsConnection
from dissector.tls.facts import TlsFacts
from dissector.tls.keylog import KeyLog
from dissector.tls.packet_order import order_by_packet
from dissector.tls.quick import read_quickly
from dissector.tls.records import HANDSHAKE, PlainSpan, StreamRange
from dissector.tls.sessions import Sessions

Sources = tuple[ByteArray, ByteArray, ByteArray]

_COLUMNS: Final = RangeColumns._fields
_AT: Final = {name: number for number, name in enumerate(_COLUMNS)}
_FIRST_BYTES: Final = np.zeros(256, bool)
_FIRST_BYTES[[HANDSHAKE, *b"P\r"]] = True  # a record of a handshake, or a proxy's header
_NOTICE_COLUMNS: Final = NoticeRows._fields
_UNFITTING: Final = (reasons.NO_KEY, reasons.WRONG_KEY)
_NO_CONNECTION: Final = np.empty(0, np.int64)


class _Followed:
    """A connection that is followed.

    ranges: rows that wait for the verdict; held: their charged bytes. since: capture time at which
    it began to wait for a key.
    heads: the first bytes of each direction until a proxy's header is ruled out; None afterwards.
    """

    def __init__(self, connection: TlsConnection) -> None:
        self.connection = connection
        self.ranges: list[tuple[list[int], bytes]] = []
        self.held = 0
        self.since: int | None = None
        self.heads: list[bytes | None] = [b"", b""]


class TlsRoom:
    """Decrypts the TLS connections of a capture.

    keys: the secrets; None: there is no key log, only the handshakes are read.
    may_wait: the key log may grow, so that connections wait for their keys.
    followed: the most connections at once; further ones pass unchanged.
    """

    def __init__(
        self, keys: KeyLog | None = None, followed: int = limits.MAX_TLS_CONNECTIONS
    ) -> None:
        self.keys = keys
        self._most = followed
        self.may_wait = keys is not None and keys.may_grow
        self._followed: dict[int, _Followed] = {}
        self._numbers: Int64Array | None = _NO_CONNECTION  # of _followed; None: others since
        self._facts: dict[int, TlsFacts] = {}
        self._held = 0
        self._passed_by = 0
        self._opened = self._unfitting = 0  # connections
        self._sessions = Sessions()
        self._randoms: deque[tuple[bytes, bytes]] = deque(maxlen=limits.MAX_USED_KEYS)
        self._has_own_keys = False
        self._notices: list[list[int]] = []
        # Output of the current block: plain ranges as (row in the block, endpoint index, offset,
        # size, offset in the chunks, packet, time, flags); other rows, their rows in the block, and
        # the number of output rows before each; all bytes.
        self._plain: list[Sequence[int]] = []
        self._rows: list[list[int]] = []
        self._places: list[int] = []
        self._before: list[int] = []
        self._chunks: list[Any] = []
        self._size = 0
        self._row: list[int] = []
        self._place = 0

    # -- facts and notices

    def facts(self, connection: int) -> TlsFacts | None:
        """The facts of a connection, None if it is no TLS that began in the capture."""
        followed = self._followed.get(connection)
        if followed is not None:
            followed.connection.tell()
        return self._facts.get(connection)

    @property
    def is_empty(self) -> bool:
        """Whether there are no facts of any connection."""
        return not self._facts

    def forget(self, connections: Iterable[int]) -> None:
        """Drop the facts of connections whose rows are written."""
        for connection in connections:
            self._facts.pop(connection, None)

    def notices(self) -> Int64Array:
        """Notices since the last call, as the matrix of NoticeRows; the direction is the endpoint's
        index."""
        rows, self._notices = self._notices, []
        return np.array(rows, np.int64).reshape(-1, len(_NOTICE_COLUMNS))

    def add_keys(self, text: bytes) -> list[int]:
        """Add a key log that the capture contains; returns the numbers of malformed lines."""
        if not self._has_own_keys:
            # The given key log is shared with other captures: add to a copy.
            self.keys = KeyLog() if self.keys is None else self.keys.widened()
            self._has_own_keys = True
            for followed in self._followed.values():
                followed.connection.take_keys(self.keys)
        assert self.keys is not None
        log = KeyLog(text)
        self.keys.update(log)
        return log.broken

    def keys_used(self) -> list[str]:
        """Lines of a key log with the secrets that opened connections."""
        keys = KeyLog() if self.keys is None else self.keys
        return [line for own, random in self._randoms for line in keys.lines_of(own, random)]

    def last_notices(self) -> list[Notice]:
        """The notices about the capture as a whole."""
        notices: list[Notice] = []
        if self._passed_by:
            notices.append(notice_of("tls_connections_limit", value=self._passed_by))
        if self._unfitting and not self._opened and self.keys is not None and len(self.keys):
            notices.append(notice_of("tls_no_key_fits", value=self._unfitting))
        return notices

    # -- ranges

    def advance(
        self, ranges: RangeColumns, rows: int, sources: Sources
    ) -> tuple[RangeColumns, int, Sources]:
        """Replace the TLS ranges of a block; returns the new block, its rows and its sources."""
        chosen = self._chosen(ranges, rows, sources)
        if chosen is None or not chosen.any():
            return ranges, rows, sources
        at = np.flatnonzero(chosen)
        views: list[memoryview] = [source.data for source in sources]
        done_to = self._read_runs(ranges.matrix[:, at], at, views)
        left = ranges.stream_offset[at] + ranges.length[at] > done_to
        left |= (ranges.kind[at] != RangeKind.DATA) | (done_to < 0)
        at, done_to = at[left], done_to[left]
        for place, row, taken in zip(
            at.tolist(), ranges.matrix[:, at].T.tolist(), done_to.tolist(), strict=True
        ):
            self._place, self._row = place, row
            if taken > row[3]:
                self._cut(row, taken - row[3])
            number, endpoint_index, kind, start, size, source, offset, packet, ts_ns, flags = row[
                :10
            ]
            if kind == RangeKind.DATA:
                followed = self._followed.get(number)
                if followed is not None and followed.connection.verdict == OPEN:
                    done = read_quickly(
                        *followed.connection.direction(endpoint_index),
                        views[source][offset : offset + size],
                        StreamRange(start, start + size, packet, ts_ns, flags),
                        self,
                    )
                    if done == size:
                        continue
                    if done:
                        self._cut(row, done)
            self._take(row, views)
        return self._joined(ranges, sources, ~chosen)

    @staticmethod
    def _cut(row: list[int], size: int) -> None:
        """Cut bytes off a range's front."""
        row[_AT["stream_offset"]] += size
        row[_AT["length"]] -= size
        row[_AT["offset"]] += size
        row[_AT["flags"]] &= ~columns.STARTS_PACKET

    def _read_runs(self, rows: Int64Array, places: Int64Array, views: list[memoryview]) -> Any:
        """Read the ranges of each direction of an open connection together, up to the connection's
        first range that is no data; returns for each row the stream offset up to which the
        direction's bytes are handled, -1 for none."""
        number, endpoint_index, kind, start, size, _, _, packet, ts_ns, flags = rows[:10]
        done_to = np.full(rows.shape[1], -1, np.int64)
        key = number * 2 + endpoint_index
        order = np.argsort(key, kind="stable")
        boundaries = np.flatnonzero(np.diff(key[order])) + 1
        groups = [group for group in np.split(order, boundaries) if len(group) >= runs.LEAST_RANGES]
        stops: dict[int, int] = {}
        if groups:
            for at in np.flatnonzero(kind != RangeKind.DATA).tolist():
                stops.setdefault(int(number[at]), at)
        for group in groups:
            connection = int(number[group[0]])
            followed = self._followed.get(connection)
            if followed is None or followed.connection.verdict != OPEN:
                continue
            own = group[: np.searchsorted(group, stops.get(connection, len(kind)))]
            if len(own) < runs.LEAST_RANGES:
                continue
            run = np.array(
                [
                    start[own],
                    start[own] + size[own],
                    packet[own],
                    ts_ns[own],
                    flags[own],
                    places[own],
                ]
            )
            parts = [
                views[where][first : first + count]
                for where, first, count in rows[[5, 6, 4]][:, own].T.tolist()
            ]
            side = followed.connection.direction(int(endpoint_index[own[0]]))
            done_to[own] = runs.read_run(*side, run, parts, self)
        return done_to

    def _chosen(self, ranges: RangeColumns, rows: int, sources: Sources) -> Any:
        """A mask of the rows of connections that are, or may be, TLS; None: there are none."""
        first = np.flatnonzero((ranges.stream_offset[:rows] == 0) & (ranges.length[:rows] > 0))
        connections = ranges.connection[:rows]
        fresh: list[int] = []
        if len(first):
            is_data = ranges.kind[first] == RangeKind.DATA
            first = first[is_data]
            source, offset = ranges.source[first], ranges.offset[first]
            for number, data in enumerate(sources):
                own = first[source == number]
                if len(own):
                    own = own[_FIRST_BYTES[data[offset[source == number]]]]
                    fresh += connections[own].tolist()
        new = [number for number in fresh if number not in self._followed]
        if new:
            self._begin(new)
        if self._numbers is None:
            # Built once per block: with ten thousand connections one build per begin and end costs
            # too much.
            self._numbers = np.array(list(self._followed), np.int64)
        if not len(self._numbers):
            return None
        if len(self._numbers) == 1:
            return connections == self._numbers[0]
        return np.isin(connections, self._numbers)

    def _begin(self, connections: list[int]) -> None:
        for number in connections:
            if number in self._followed or number in self._facts:
                continue
            if len(self._followed) >= self._most:
                self._passed_by += 1
                self._facts[number] = reasons.LIMITED
                continue
            connection = TlsConnection(self.keys, self, self._sessions)
            self._followed[number] = _Followed(connection)
        self._numbers = None

    def _take(self, row: list[int], views: list[memoryview]) -> None:
        """Handle a range of a connection that is followed, or was until this block."""
        number, kind = row[_AT["connection"]], row[_AT["kind"]]
        followed = self._followed.get(number)
        view = memoryview(b"")
        if kind == RangeKind.DATA:
            offset = row[_AT["offset"]]
            view = views[row[_AT["source"]]][offset : offset + row[_AT["length"]]]
        if followed is None:
            self._put_back(row, bytes(view))
            return
        connection = followed.connection
        if connection.is_waiting:
            connection.try_again()
        if connection.verdict is None:
            self._hold(followed, row, view)
        self._feed(followed, row, kind, view)
        if connection.verdict is None:
            self._bound(followed, row)
        if kind == RangeKind.CLOSE:
            connection.close()
        self._settle(number, followed, row, kind)

    def _feed(self, followed: _Followed, row: list[int], kind: int, view: memoryview) -> None:
        connection, endpoint_index = followed.connection, row[_AT["endpoint_index"]]
        start = row[_AT["stream_offset"]]
        piece = StreamRange(
            start, start + row[_AT["length"]], row[_AT["packet"]], row[_AT["ts_ns"]],
            row[_AT["flags"]],
        )  # fmt: skip
        if kind == RangeKind.DATA:
            if followed.heads[endpoint_index] is not None:
                self._head(followed, endpoint_index, piece, view)
            elif connection.verdict in (None, OPEN):
                connection.add(endpoint_index, piece, view)
        elif kind in (RangeKind.GAP_LOST, RangeKind.GAP_CUT):
            if connection.verdict in (None, OPEN):
                connection.gap(endpoint_index, piece, kind)
        elif connection.verdict == OPEN:
            if kind == RangeKind.FIN:
                row = [*row]
                row[_AT["stream_offset"]] = connection.finish(endpoint_index)
            else:
                connection.finish(0)
                connection.finish(1)
            self._put(row)

    def _head(
        self, followed: _Followed, endpoint_index: int, piece: StreamRange, view: memoryview
    ) -> None:
        """Check the first bytes of a direction: skip a proxy's header, stop if it is not TLS."""
        head = (followed.heads[endpoint_index] or b"") + bytes(view)
        connection = followed.connection
        judged = look(head[: limits.MAX_TLS_HEAD_BYTES], True)
        size = judged.header_bytes if judged.verdict == HeadVerdict.IS_PROXY_HEADER else 0
        if judged.verdict == HeadVerdict.MORE_NEEDED and len(head) < limits.MAX_TLS_HEAD_BYTES:
            followed.heads[endpoint_index] = head
            return
        followed.heads[endpoint_index] = None
        if size:
            connection.skip_header(endpoint_index, piece, head[:size])
        elif (
            judged.verdict != HeadVerdict.IS_TLS and followed.heads[1 - endpoint_index] is not None
        ):
            connection.verdict = ""
            return
        if len(head) > size:
            connection.add(endpoint_index, piece._replace(start=size), memoryview(head)[size:])

    def _hold(self, followed: _Followed, row: list[int], view: memoryview) -> None:
        """Keep a range until the verdict."""
        followed.ranges.append((row, bytes(view)))
        size = len(view) + limits.TLS_RANGE_CHARGE_BYTES
        followed.held += size
        self._held += size

    def _bound(self, followed: _Followed, row: list[int]) -> None:
        """Close a connection that holds too many bytes, or waits too long."""
        connection = followed.connection
        if connection.is_waiting and followed.since is None:
            followed.since = row[_AT["ts_ns"]]
        waited = 0 if followed.since is None else row[_AT["ts_ns"]] - followed.since
        if (
            followed.held > limits.MAX_TLS_HELD_BYTES_PER_CONNECTION
            or self._held > limits.MAX_TLS_HELD_BYTES
            or waited > limits.TLS_KEY_WAIT_MS * 1_000_000
        ):
            connection.close()

    def _settle(self, number: int, followed: _Followed, row: list[int], kind: int) -> None:
        """Apply a verdict: emit or drop the kept ranges, store the facts."""
        connection = followed.connection
        if connection.verdict is None:
            return
        is_over = kind == RangeKind.CLOSE
        if followed.ranges:
            held, followed.ranges = followed.ranges, []
            self._held -= followed.held
            followed.held = 0
            for old, data in held:
                if connection.verdict != OPEN:
                    self._put_back(old, data)
                elif old[_AT["kind"]] in (RangeKind.FIN, RangeKind.CLOSE) and old is not row:
                    self._put(old)
        if connection.verdict != OPEN:
            is_over = True
            connection.close()
            self._unfitting += connection.verdict in _UNFITTING
        elif number not in self._facts:
            self._facts[number] = connection.facts
            self._opened += 1
            self._randoms.append(connection.randoms)
        if is_over:
            del self._followed[number]
            self._numbers = None
            if connection.verdict:
                self._facts[number] = connection.facts

    # -- output of a connection (PlainSink)

    def data(self, endpoint_index: int, offset: int, content: Any, spans: list[PlainSpan]) -> None:
        """Emit the plain bytes of a record."""
        at = self._size
        for size, packet, ts_ns, flags in spans:
            self._plain.append(
                (self._place, endpoint_index, offset, size, at, packet, ts_ns, flags)
            )
            offset += size
            at += size
        self._chunks.append(content)
        self._size += len(content)

    def rows(self, endpoint_index: int, offset: int, content: bytes, rows: Int64Array) -> None:
        """Emit the plain bytes of many records (RunSink)."""
        place, begin, size, packet, ts_ns, flags = rows
        side = np.full(len(place), endpoint_index)
        put = [place, side, offset + begin, size, self._size + begin, packet, ts_ns, flags]
        self._plain.extend(np.array(put).T.tolist())
        self._chunks.append(content)
        self._size += len(content)

    def gap(
        self, endpoint_index: int, kind: int, offset: int, size: int, piece: StreamRange
    ) -> None:
        """Emit missing plain bytes."""
        row, goes_on = [*self._row], piece.flags & columns.GOES_ON
        row[1:10] = [endpoint_index, kind, offset, size, 0, 0, piece.packet, piece.ts_ns, goes_on]
        self._put(row)

    def note(self, code: str, endpoint_index: int, piece: StreamRange, **numbers: int) -> None:
        """Emit a notice about a direction."""
        fields = {
            "kind": NOTICE_NUMBER[code],
            "ts_ns": piece.ts_ns,
            "connection_id": self._row[_AT["connection"]],
            "direction": endpoint_index,
            "packet": piece.packet,
            **numbers,
        }
        self._notices.append([fields.get(column, NULL) for column in _NOTICE_COLUMNS])

    # -- rows

    def _put(self, row: list[int]) -> None:
        self._before.append(len(self._plain) + len(self._rows))
        self._rows.append(row)
        self._places.append(self._place)

    def _put_back(self, row: list[int], data: bytes) -> None:
        """Emit a range unchanged."""
        row = [*row]
        row[_AT["release_packet"]] = self._row[_AT["release_packet"]]
        if row[_AT["kind"]] == RangeKind.DATA:
            row[_AT["source"]], row[_AT["offset"]] = RangeSource.SIDE, self._size
            self._chunks.append(data)
            self._size += len(data)
        self._put(row)

    def _joined(
        self, ranges: RangeColumns, sources: Sources, is_kept: Any
    ) -> tuple[RangeColumns, int, Sources]:
        """The block with its TLS rows replaced by the output rows."""
        kept = np.flatnonzero(is_kept)
        plain = np.frombuffer(bytearray().join(self._chunks) or bytearray(1), np.uint8)
        put, places = self._put_rows(ranges)
        matrix = ranges.matrix[:, kept]
        if (matrix[_AT["source"]] == RangeSource.SIDE).any():
            # The side buffer has reassembled packets: append the plain bytes to it.
            is_data = put[_AT["kind"]] == RangeKind.DATA
            put[_AT["offset"], is_data] += len(sources[RangeSource.SIDE])
            plain = np.concatenate((sources[RangeSource.SIDE], plain))
        all_places = np.concatenate((kept, places))
        order = np.argsort(all_places, kind="stable")
        joined = np.ascontiguousarray(np.concatenate((matrix, put), axis=1)[:, order])
        order_by_packet(joined, all_places[order])
        self._plain, self._rows, self._places, self._before = [], [], [], []
        self._chunks, self._size = [], 0
        return RangeColumns(joined), joined.shape[1], (sources[0], sources[1], plain)

    def _put_rows(self, ranges: RangeColumns) -> tuple[Int64Array, Int64Array]:
        """The output rows in order: int64[columns, rows], and their rows in the block."""
        count = len(self._plain) + len(self._rows)
        put, places = np.empty((len(_COLUMNS), count), np.int64), np.empty(count, np.int64)
        is_plain = np.ones(count, bool)
        is_plain[self._before] = False
        if self._plain:
            place, endpoint_index, offset, size, at, packet, ts_ns, flags = np.array(
                self._plain, np.int64
            ).T
            rows = ranges.matrix[:, place]  # the range that brought a record's end
            data, side = np.full(len(place), RangeKind.DATA), np.full(len(place), RangeSource.SIDE)
            rows[1:10] = endpoint_index, data, offset, size, side, at, packet, ts_ns, flags
            put[:, is_plain], places[is_plain] = rows, place
        if self._rows:
            put[:, self._before] = np.array(self._rows, np.int64).T
            places[self._before] = self._places
        return put, places
