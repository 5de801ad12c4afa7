"""Plays capture files back to the tap's loop, without an interface and without root."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from dissector.blocks import Int64Array, TableBlock
from dissector.capture.reader import CaptureReader
from dissector.dissection import Dissection
from dissector.limits import NULL
from dissector.notice_rows import Notice
from dissector.packet.columns import PacketColumns
from dissector.sources.files import Buffer, ChainReader, FileStart, raise_if_nothing
from dissector.sources.rings import Chain
from dissector.tap.packet_batches import Cuts, Idle, PacketBatch, Part, rows_before

MAX_SPEED: Final = 0.0  # as fast as the machine reads

_STEP_SECONDS: Final = 0.05  # of replayed time in one batch, if the speed is limited
_IDLE_SECONDS: Final = 0.2


class FilePlayback:
    """The packets of a chain of files, at their capture speed, a multiple of it, or unlimited.

    A second reader scans each buffer ahead for packet times, which decide how many bytes of the
    buffer the dissection gets next. The rows do not depend on these cuts.

    Args:
        speed: 1 = as captured, 2 = twice as fast; MAX_SPEED = no waiting.
    """

    is_live = False

    def __init__(self, chain: Chain, speed: float = MAX_SPEED) -> None:
        self.name = chain.base_name
        self.part_name = self.name
        self.file_names: Sequence[str] = chain.shown_names
        self.interfaces: Sequence[str] = ()
        self._chain = chain
        self._speed = speed
        self._stop = threading.Event()
        self._start: tuple[float, int] | None = None
        self._empty = PacketColumns.new(1)
        self.is_damaged = False

    def dropped(self) -> int:
        """0: files lose no packets."""
        return 0

    def down(self) -> list[str]:
        """A replay has no interfaces."""
        return []

    def notices(self) -> list[Notice]:
        """None: the dissection raises all notices of files."""
        return []

    def introduce(self, dissection: Dissection) -> None:
        """A replay keeps its dissection."""

    def stop(self) -> None:
        """End after the current batch."""
        self._stop.set()

    def close(self) -> None:
        """Do nothing: no file stays open between batches."""

    def packet_batches(
        self, dissection: Dissection, cuts: Cuts
    ) -> Iterator[PacketBatch | Part | Idle]:
        """Yield all packets of the chain, and a Part at the end of each file.

        Raises:
            InputError: no file of the chain could be read.
        """
        scout = CaptureReader()
        with ChainReader(self._chain.files) as reader:
            for event in reader:
                if isinstance(event, FileStart):
                    self.part_name = event.name
                    scout.start_file()
                    dissection.start_file()
                elif isinstance(event, Buffer):
                    yield from self._of_buffer(event, scout, cuts)
                else:
                    scout.finish_file()
                    damaged = event.problem is not None
                    self.is_damaged |= damaged
                    yield Part(event.start.name, *dissection.end_file(is_damaged=damaged))
                if self._stop.is_set():
                    return
            raise_if_nothing(reader.problems, reader.files_read)

    def _of_buffer(
        self, buffer: Buffer, scout: CaptureReader, cuts: Cuts
    ) -> Iterator[PacketBatch | Idle]:
        """Yield the packets of one buffer, consuming as many bytes as the dissection does."""
        rest = _Feed(buffer)
        buffer.consumed = buffer.start
        position = buffer.start
        is_more = True
        while is_more and not self._stop.is_set():
            scan = scout.feed(buffer.data, position, buffer.end, buffer.is_last)
            position, is_more = scan.consumed, scan.is_more
            end = position if is_more else buffer.end
            yield from self._of_scan(rest, scout.packets, scan.rows, end, cuts)
        buffer.is_enough = scout.is_over
        if not rest.is_through and not self._stop.is_set():
            # Bytes without a packet: a file's header, a damaged end.
            yield PacketBatch(buffer.data, self._empty, 0, rest.up_to(buffer.end))

    def _of_scan(
        self, rest: "_Feed", packets: PacketColumns, rows: int, end: int, cuts: Cuts
    ) -> Iterator[PacketBatch | Idle]:
        """Yield the packets of one scan, which ends at the byte `end`."""
        while rows and not self._stop.is_set():
            chosen = rows_before(packets, rows, cuts)
            if chosen == 0:
                yield PacketBatch(rest.buffer.data, packets, 0, _nothing, is_boundary=True)
                continue
            chosen = self._within_step(packets.ts_ns[:chosen])
            yield from self._wait_for(int(packets.ts_ns[0]))
            # One byte into the next record's header: all earlier records are complete.
            stop = end if chosen == rows else int(packets.offset[chosen]) - 1
            yield PacketBatch(rest.buffer.data, packets, chosen, rest.up_to(stop))
            rows -= chosen
            if rows:
                packets = PacketColumns(packets.matrix[:, chosen : chosen + rows].copy())

    def _within_step(self, times_ns: Int64Array) -> int:
        """The number of packets in one batch: those within _STEP_SECONDS of replayed time."""
        if self._speed == MAX_SPEED:
            return len(times_ns)
        late = times_ns >= times_ns[0] + int(_STEP_SECONDS * self._speed * 1e9)
        return int(late.argmax()) if late.any() else len(times_ns)

    def _wait_for(self, ts_ns: int) -> Iterator[Idle]:
        """Wait until the packet is due at the playback speed."""
        if self._speed == MAX_SPEED or ts_ns == NULL:
            return
        if self._start is None:
            self._start = (time.monotonic(), ts_ns)
        began, first_ns = self._start
        due = began + (ts_ns - first_ns) / 1e9 / self._speed
        while (left := due - time.monotonic()) > 0 and not self._stop.is_set():
            if left > _IDLE_SECONDS:
                yield Idle()
            self._stop.wait(min(left, _IDLE_SECONDS))


class _Feed:
    """Feeds a buffer to the dissection in steps. is_through: all of it was fed."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.is_through = False
        self._end = buffer.start

    def up_to(self, end: int) -> "_Feed":
        """Set the end of the next step, a byte of the buffer."""
        self._end = end
        return self

    def __call__(self, dissection: Dissection) -> list[TableBlock]:
        buffer = self.buffer
        self.is_through = self._end == buffer.end
        is_last = buffer.is_last and self.is_through
        buffer.consumed, blocks = dissection.feed(buffer.data, buffer.consumed, self._end, is_last)
        return blocks


def _nothing(dissection: Dissection) -> list[TableBlock]:
    return []
