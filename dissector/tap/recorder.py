"""The flight recorder: buffers the last packets and writes those around a trigger to a file.

A trigger (a wrong checksum, a slow send, a stall, a refusal, a signal) selects the packets of its
connection, from a moment before it to a moment after. A thread writes them as pcapng, with the
reason as a comment. Triggers are frequent: per minute there is one recording for each kind and
connection, and a limited number in all.
"""

import contextlib
import errno
import fcntl
import os
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from dissector.blocks import ByteArray, Int64Array, TableBlock
from dissector.capture.write import interface_block, packet_block, section_block
from dissector.dissection import Options
from dissector.endpoints import Endpoint, FlowKey
from dissector.errors import OutputError
from dissector.evidence.redacted import RAW_BYTES, redact_capture
from dissector.outputs import remove_left
from dissector.packet.columns import PacketColumns
from dissector.packet.reader import PacketReader
from dissector.schemas.enums import BOTH_DIRECTIONS
from dissector.schemas.rows import arrow_batch
from dissector.schemas.text import gathered
from dissector.sources.private import private
from dissector.sources.slice import of_flow
from dissector.tap.packet_batches import PacketBatch
from dissector.tap.service import Signals
from dissector.tap.sums import Sums
from dissector.tap.triggers import Trigger, Triggers, of_signal, of_stall

MEMORY_BYTES: Final = 64 << 20  # default: size of the buffered packets
KEEP_BYTES: Final = 2_000_000_000  # default: size of all recordings; the oldest are deleted
BEFORE_NS: Final = 2_000_000_000
AFTER_NS: Final = 500_000_000
PER_MINUTE: Final = 6
SAME_NS: Final = 60_000_000_000

_LONGEST_WAIT_SECONDS: Final = 2.0
_ASK_SECONDS: Final = 1.0  # interval of stall queries, if a stall may have ended
_CLOSED: Final = 4096  # closed connections whose endpoints are kept
_ENDS: Final = ("connection_id", "client_ip", "client_port", "broker_ip", "broker_port")
_UNFINISHED: Final = ".unfinished"
_APPLICATION: Final = "pulsar-dissector tap"

EndpointPair = tuple[Endpoint, Endpoint]


class _Chunk(NamedTuple):
    """A copy of some packets.

    packets: offsets into data.
    first_packet: number of the first one.
    """

    data: ByteArray
    packets: PacketColumns
    first_packet: int


class _Task(NamedTuple):
    trigger: Trigger
    ends: EndpointPair | None
    chunks: list[_Chunk]
    link_types: Int64Array


class Recorder:
    """A listener that buffers packets and records some.

    kept, limited, failed: recordings written, triggers without a recording because of the limit,
        and recordings that could not be written.
    problem: why the last write failed.
    redacted: options that find secrets in recordings to remove them; None: they stay.
    triggers: detects triggers in rows.
    sums: the source of stalls.
    ask: makes `sums` add up the rows so far.

    Args:
        ends_of: returns the endpoints of an open connection, None if unknown.
        link_types: returns the link types by interface, for each recording.

    Raises:
        OutputError: the folder cannot be created or written.
    """

    def __init__(
        self,
        folder: Path,
        triggers: Triggers,
        ends_of: Callable[[int], EndpointPair | None],
        link_types: Callable[[], Int64Array],
        memory_bytes: int = MEMORY_BYTES,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.folder = folder
        self.redacted: Options | None = None
        self.kept = self.limited = self.failed = 0
        self.problem: str | None = None
        self.signals: Signals | None = None
        self.sums: Sums | None = None
        self.ask: Callable[[], object] | None = None
        self._may_stall = False
        self._next_ask = 0.0
        self._unasked_bytes = 0  # of packets since the last stall query
        self.triggers = triggers
        self._ends_of = ends_of
        self._link_types = link_types
        self._memory_bytes, self._keep_bytes = memory_bytes, keep_bytes
        self._chunks: deque[_Chunk] = deque()
        self._held = 0
        self._next_packet = 1
        self._last_ns = 0
        self._closed: OrderedDict[int, EndpointPair] = OrderedDict()
        self._waiting: list[tuple[Trigger, EndpointPair | None, float]] = []
        self._made: dict[tuple[str, int], int] = {}
        self._recent: deque[int] = deque()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            for left in folder.glob(f"tap-*{_UNFINISHED}"):
                remove_left(left)
        except OSError as error:
            raise OutputError(
                f"--record {folder}: {error.strerror or error}; choose another folder"
            ) from None
        self._thread = threading.Thread(target=self._run, name="tap-recorder", daemon=True)
        self._thread.start()

    @property
    def content(self) -> str:
        """The content of recordings, as text."""
        return RAW_BYTES if self.redacted is None else "secrets in them are hidden"

    def outcomes(self) -> dict[str, int]:
        """The counts of kept, limited and failed recordings."""
        return {"kept": self.kept, "limited": self.limited, "failed": self.failed}

    def packets(self, packet_batch: PacketBatch) -> None:
        """Buffer a copy of the packets and drop the oldest."""
        columns = PacketColumns(packet_batch.packets.matrix[:, : packet_batch.rows].copy())
        starts, sizes = columns.offset.copy(), columns.captured_bytes
        data = gathered(packet_batch.data, starts, sizes)
        columns.offset[:] = np.cumsum(sizes) - sizes
        chunk = _Chunk(data, columns, self._next_packet)
        self._next_packet += packet_batch.rows
        self._last_ns = max(self._last_ns, int(columns.ts_ns.max()))
        self._chunks.append(chunk)
        self._held += _bytes_of(chunk)
        self._unasked_bytes += _bytes_of(chunk)
        while self._held > self._memory_bytes and len(self._chunks) > 1:
            self._held -= _bytes_of(self._chunks.popleft())

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Check rows for triggers."""
        for block in blocks:
            if block.table == "connections":
                self._note_closed(block)
            self._may_stall |= self.triggers.may_end_stall(block)
            for trigger in self.triggers.of(block):
                self.want(trigger)

    def want(self, trigger: Trigger) -> None:
        """Schedule the recording of a trigger, unless a limit is reached."""
        at = trigger.last_ns
        key = (trigger.reason, trigger.connection_id)
        while self._recent and self._recent[0] < at - SAME_NS:
            self._recent.popleft()
        made = self._made.get(key)
        if (made is not None and at - made < SAME_NS) or len(self._recent) >= PER_MINUTE:
            self.limited += 1
            return
        if len(self._made) > _CLOSED:
            self._made.clear()
        self._made[key] = at
        self._recent.append(at)
        self._waiting.append((trigger, self._find_ends(trigger.connection_id), 0.0))

    def tick(self, now: float) -> None:
        """Start recordings whose later packets have arrived, and those that a signal requests."""
        if self.signals is not None and self.signals.is_recording_requested:
            self.signals.is_recording_requested = False
            self._waiting.append((of_signal(self._last_ns), None, 0.0))
        self._ask_for_stalls(now)
        if not self._waiting:
            return
        waiting = []
        for trigger, ends, since in self._waiting:
            since = since or now
            is_old = now - since > _LONGEST_WAIT_SECONDS
            if self._last_ns >= trigger.last_ns + AFTER_NS or is_old:
                self._begin(trigger, ends)
            else:
                waiting.append((trigger, ends, since))
        self._waiting = waiting

    def close(self) -> None:
        """Write all scheduled recordings and end the thread."""
        self._want_stalls()
        for trigger, ends, _ in self._waiting:
            self._begin(trigger, ends)
        self._waiting = []
        self._tasks.put(None)
        self._thread.join()

    # -- inside

    def _ask_for_stalls(self, now: float) -> None:
        """Query stalls if one may have ended: at intervals, and before its packets are dropped."""
        is_urgent = self._unasked_bytes > self._memory_bytes // 4
        if self._may_stall and self.ask is not None and (is_urgent or now >= self._next_ask):
            self._may_stall = False
            self._unasked_bytes, self._next_ask = 0, now + _ASK_SECONDS
            self.ask()
        self._want_stalls()

    def _want_stalls(self) -> None:
        if self.sums is not None and self.triggers.wants_stalls:
            with self.sums.lock:
                stalls = self.sums.balances.drain_stalls()
            for stall in stalls:
                self.want(of_stall(stall))

    def _begin(self, trigger: Trigger, ends: EndpointPair | None) -> None:
        link_types = self._link_types().copy()
        self._tasks.put(_Task(trigger, ends, list(self._chunks), link_types))

    def _find_ends(self, connection: int) -> EndpointPair | None:
        return self._ends_of(connection) or self._closed.get(connection)

    def _note_closed(self, block: TableBlock) -> None:
        """Keep the endpoints of closed connections, because their other rows may follow later.
        Connections without frames are not kept, so a port scan fills nothing."""
        frames = [np.asarray(block.columns[f"frames_{direction}"]) for direction in BOTH_DIRECTIONS]
        with_frames = np.flatnonzero(sum(frames) > 0)
        if not len(with_frames):
            return
        rows = arrow_batch(block).select(_ENDS).take(pa.array(with_frames))
        for connection, *ends in zip(*(c.to_pylist() for c in rows.columns), strict=True):
            self._closed[connection] = (Endpoint.of(*ends[:2]), Endpoint.of(*ends[2:]))
        while len(self._closed) > _CLOSED:
            self._closed.popitem(last=False)

    # -- in the thread

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._write(task)
            except OSError as error:
                self.failed += 1
                self.problem = f"{self.folder}: {error.strerror or error}"

    def _write(self, task: _Task) -> None:
        """Write one recording atomically: complete under its name, or not at all."""
        trigger = task.trigger
        what = "all" if trigger.connection_id < 0 else f"connection-{trigger.connection_id}"
        path = self.folder / f"tap-{trigger.last_ns}-{trigger.reason}-{what}.pcapng"
        unfinished = path.with_suffix(_UNFINISHED)
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
        with open(unfinished, "xb", opener=private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self.redacted is None:
                file.writelines(_blocks(task))
            else:
                data = bytearray(b"".join(_blocks(task)))
                redact_capture(data, self.redacted)
                file.write(data)
        os.replace(unfinished, path)
        self.kept += 1
        self.problem = None
        self._reserve()

    def _reserve(self) -> None:
        """Delete the oldest recordings above the size limit."""
        files = sorted(self.folder.glob("tap-*.pcapng"), key=lambda path: path.stat().st_mtime_ns)
        total = sum(path.stat().st_size for path in files)
        while total > self._keep_bytes and len(files) > 1:
            oldest = files.pop(0)
            total -= oldest.stat().st_size
            with contextlib.suppress(FileNotFoundError):
                oldest.unlink()


def _blocks(task: _Task) -> Iterator[bytes]:
    """The blocks of a recording."""
    yield section_block(task.trigger.text, _APPLICATION)
    for link_type in task.link_types:
        yield interface_block(int(link_type))
    for chunk in task.chunks:
        for row in _wanted_rows(chunk, task).tolist():
            yield _packet(chunk, row, task.trigger)


def _bytes_of(chunk: _Chunk) -> int:
    return chunk.data.nbytes + chunk.packets.matrix.nbytes


def _packet(chunk: _Chunk, row: int, trigger: Trigger) -> bytes:
    packets = chunk.packets
    start = int(packets.offset[row])
    content = chunk.data[start : start + int(packets.captured_bytes[row])].tobytes()
    number = chunk.first_packet + row
    comment = f"packet {number}"
    if number == trigger.packet:
        comment += f": {trigger.text}"
    return packet_block(
        content,
        int(packets.ts_ns[row]),
        int(packets.wire_bytes[row]),
        int(packets.interface[row]),
        comment,
    )


def _wanted_rows(chunk: _Chunk, task: _Task) -> Int64Array:
    """The indexes of a chunk's packets that belong to a recording, by time and connection."""
    times = chunk.packets.ts_ns
    trigger = task.trigger
    in_time = (times >= trigger.first_ns - BEFORE_NS) & (times <= trigger.last_ns + AFTER_NS)
    if trigger.connection_id < 0:
        return np.arange(len(times))
    if task.ends is None or not in_time.any():
        return np.zeros(0, np.int64)
    rows = len(times)
    segments, count = PacketReader(block_rows=rows).read(
        chunk.data, chunk.packets, rows, 0, task.link_types
    )
    flow = FlowKey.between(*task.ends)
    is_wanted = of_flow(segments, count, flow) | of_flow(segments, count, flow.mirrored())
    numbers = segments.packet[:count][is_wanted]
    return numbers[in_time[numbers]]
