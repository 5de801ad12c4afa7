"""The loop of a tap: feeds batches of packets to a dissection and passes the rows to listeners.

Between two batches it handles clocks and signals: due rotations, ended parts of the input, outcomes
of rotations, memory. It knows neither interfaces nor metrics; the caller passes them in.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dissector.blocks import Column, Int64Array, TableBlock
from dissector.capture.reader import LIVE
from dissector.dissection import Dissection, Options
from dissector.installed import own_version
from dissector.limits import NULL
from dissector.notice_log import NoticeLog
from dissector.packet.link import link_type_name
from dissector.schemas import SCHEMA_VERSION
from dissector.sources.account import Account
from dissector.sources.key_logs import FollowedKeyLog
from dissector.tap.memory import MemoryLimit
from dissector.tap.packet_batches import NEVER_NS, Cuts, PacketBatch, PacketSource, Part
from dissector.tap.rotations import Fate, Rotations

ROTATE_NS: Final = 60_000_000_000  # default; without a lake it bounds the waiting rows

_NS: Final = 1_000_000_000
_MEMORY_SECONDS: Final = 5.0
_FATES: Final = 1000  # outcomes of the last rotations that are kept


@dataclass(frozen=True)
class TapSettings:
    """The user's settings for the loop.

    duration_ns: run time after which it ends, None for no limit.
    memory_limit: bytes in use above which open state is discarded.
    """

    core: Options
    rotate_ns: int = ROTATE_NS
    rotate_bytes: int = NEVER_NS
    duration_ns: int | None = None
    cluster: str | None = None
    memory_limit: int | None = None


@dataclass
class Signals:
    """Requests of signals to a running tap: flags that the loop checks between two batches.

    is_end_requested: write everything and end.
    is_rotation_requested: end the current rotation.
    is_recording_requested: write the flight recorder's packets. The loop resets the last two.
    """

    is_end_requested: bool = False
    is_rotation_requested: bool = False
    is_recording_requested: bool = False


class Listener(Protocol):
    """Receives a tap's packets and rows: metrics, a recorder, a view."""

    def packets(self, packet_batch: PacketBatch) -> None:
        """Handle packets before they are dissected."""

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Handle closed rows."""

    def tick(self, now: float) -> None:
        """Handle the passing of time. now: monotonic clock, seconds."""


class Tap:
    """One source, its dissection, and the listeners.

    account: sums over the whole input.
    fates: outcomes of the last rotations. kernel_dropped: packets so far.
    signals: requests of signals.
    """

    def __init__(
        self,
        source: PacketSource,
        settings: TapSettings,
        rotations: Rotations | None = None,
        listeners: Sequence[Listener] = (),
        signals: Signals | None = None,
        memory: MemoryLimit | None = None,
    ) -> None:
        self.source = source
        self.settings = settings
        self.account = Account(source.name, source.file_names)
        self.fates: deque[Fate] = deque(maxlen=_FATES)
        self.signals = Signals() if signals is None else signals
        self._rotations = rotations
        self._listeners = list(listeners)
        self._began = time.monotonic()
        self._notices = NoticeLog()
        self._cuts = Cuts(settings.rotate_ns)
        self._cuts.room_bytes = settings.rotate_bytes
        self._rotation_began = self._began
        self._rotation_packets = 0
        self._rotation_rows = 0
        self._parts: list[Part] = []
        self._dropped_before = 0
        self.tap_run: str | None = None
        self._key_log = FollowedKeyLog.of(settings.core)
        self._dissect_again()
        self.memory_restarts = 0
        self.connections_before = 0
        self._memory_checked = self._began
        if memory is None and settings.memory_limit is not None:
            memory = MemoryLimit(settings.memory_limit)
        self._memory = memory

    @property
    def kernel_dropped(self) -> int:
        """Packets that the kernel dropped so far."""
        return self.source.dropped()

    def listen(self, listener: Listener) -> None:
        """Add a listener."""
        self._listeners.append(listener)

    def link_types(self) -> Int64Array:
        """Link types of the interfaces so far."""
        interfaces = self.dissection.capture.interfaces
        return interfaces.columns.link_type[: max(1, interfaces.count)]

    def notice(self, code: str, value: int = NULL, value2: int = NULL) -> None:
        """Add a notice about the tap itself to the current rotation."""
        self._notices.note(code, value=value, value2=value2)

    def open_rows(self) -> list[TableBlock]:
        """The rows of objects that are open after all packets so far."""
        self._give_out(self.dissection.settle())
        return self.dissection.open_rows()

    def run(self) -> None:
        """Run until the input ends, a signal requests it, or the duration is over.

        Raises:
            InputError: no input could be read.
            OutputError: a replay's rotation could not be landed.
        """
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """`run` as a generator that yields after each batch, when its rows were passed on."""
        for event in self.source.packet_batches(self.dissection, self._cuts):
            if isinstance(event, PacketBatch):
                self._handle(event)
            elif isinstance(event, Part):
                self._parts.append(event)
            else:
                self._give_out(self.dissection.settle())
            self._between()
            yield
        if self._key_log is not None:
            self._key_log.read()
            self._key_log.close()
        self._give_out(self.dissection.finish())
        self._rotate()
        if self._rotations is not None:
            self._keep(self._rotations.close())
        yield

    # -- inside

    def _handle(self, packet_batch: PacketBatch) -> None:
        """Handle one batch: first the cut before it, then its packets."""
        if packet_batch.is_boundary:
            next_ns = int(packet_batch.packets.ts_ns[0])
            self._rotate()
            step = self.settings.rotate_ns
            behind = max(0, next_ns - self._cuts.until_ns)
            self._cuts.until_ns += step * (1 + behind // step)
            return
        if packet_batch.rows:
            self._begin(int(packet_batch.packets.ts_ns[0]))
            if self._key_log is not None:
                self._key_log.read()
            for listener in self._listeners:
                listener.packets(packet_batch)
            self._rotation_packets += packet_batch.rows
            if self._cuts.room_bytes < NEVER_NS:
                taken = int(packet_batch.packets.captured_bytes[: packet_batch.rows].sum())
                self._cuts.room_bytes -= taken
        self._give_out(packet_batch.feed(self.dissection))

    def _begin(self, first_ns: int) -> None:
        """Begin a run at its first packet, which names it and starts the rotation clock."""
        if self.tap_run is not None:
            return
        self.tap_run = f"{self.source.name}-{first_ns}"
        self._cuts.until_ns = first_ns + self.settings.rotate_ns
        if self._rotations is not None:
            self._rotations.begin_run(first_ns)

    def _between(self) -> None:
        """Handle everything that is due between two batches."""
        now = time.monotonic()
        settings = self.settings
        is_due = self.source.is_live and now - self._rotation_began > settings.rotate_ns / _NS
        if self.signals.is_rotation_requested or self._cuts.room_bytes <= 0 or is_due:
            self.signals.is_rotation_requested = False
            self._rotate()
        if self._rotations is not None:
            self._keep(self._rotations.fates())
        if self._memory is not None and now - self._memory_checked > _MEMORY_SECONDS:
            self._memory_checked = now
            self._mind_memory(self._memory)
        is_over = settings.duration_ns is not None and now - self._began >= (
            settings.duration_ns / _NS
        )
        if is_over or self.signals.is_end_requested:
            self.source.stop()
        for listener in self._listeners:
            listener.tick(now)

    def _dissect_again(self) -> None:
        """Begin a new run with an empty dissection."""
        keys = None if self._key_log is None else self._key_log.keys
        self.dissection = Dissection(self.settings.core, keys=keys)
        self.tap_run = None

    def _mind_memory(self, limit: MemoryLimit) -> None:
        """If the memory limit is exceeded, close everything that is open and begin a new run.

        This is rare, because every table of the core has a bound; it guarantees that a tap can run
        for a year. Open rows are written to the lake as at the end of a capture.
        """
        in_use = limit.passed() if self.source.is_live else None
        if in_use is None:
            return
        self.notice("memory_restart", in_use)
        self._give_out(self.dissection.finish())
        self._rotate()
        self.memory_restarts += 1
        self.connections_before += self.dissection.connections_seen
        self._dissect_again()
        self.source.introduce(self.dissection)
        limit.begin_anew()

    def packet_counts(self) -> tuple[int, dict[str, int]]:
        """The number of dissected packets, and of ignored packets by reason."""
        counts = self.dissection.packets.counts()
        ignored = dict(self.account.ignored)
        for reason, count in counts.ignored.items():
            ignored[reason] = ignored.get(reason, 0) + count
        return self.account.packets_tcp + counts.used, ignored

    def _keep(self, fates: list[Fate]) -> None:
        """Record the outcomes of rotations; a loss becomes a notice in the next rotation."""
        self.fates.extend(fates)
        lost = sum(fate.packets for fate in fates if fate.problem is not None)
        rotations = sum(fate.problem is not None for fate in fates)
        if rotations:
            self.notice("queue_dropped", lost, rotations)

    def _give_out(self, blocks: list[TableBlock]) -> None:
        """Pass rows to the lake and to all listeners."""
        if not blocks:
            return
        for block in blocks:
            self.account.add(block)
            self._rotation_rows += block.rows
            if self._rotations is not None and block.rows:
                self._rotations.write(block)
        for listener in self._listeners:
            listener.rows(blocks)

    def _rotate(self) -> None:
        """End the current rotation: write its notices, its losses and its capture."""
        facts, counts, blocks = self.dissection.rotate()
        if facts is not None and (facts.packets or not self._parts):
            self._parts.append(Part(self.source.part_name, facts, counts))
        self._notices.add(self.source.notices())
        dropped = self.source.dropped() - self._dropped_before
        if dropped:
            self.notice("kernel_dropped", dropped)
        self._give_out([*blocks, self._notices.block()])
        if self._parts and (self._rotation_packets or self._rotation_rows or dropped):
            self._give_out([self._file_block(dropped)])
            # A file with an unsupported link type has nothing to land.
            is_nothing = self.account.is_unreadable and not self.source.is_live
            if self._rotations is not None and not is_nothing:
                self._rotations.end(self._rotation_packets)
        self._dropped_before += dropped
        self._parts = []
        self._rotation_packets = self._rotation_rows = 0
        self._rotation_began = time.monotonic()
        self._cuts.room_bytes = self.settings.rotate_bytes

    def _file_block(self, dropped: int) -> TableBlock:
        """The rows of capture_files of a rotation: one for each part of the input in it."""
        rows = [
            _file_row(index, part, self.tap_run, self.settings.cluster)
            for index, part in enumerate(self._parts)
        ]
        if self.source.is_live:
            rows[-1]["dropped_by_interface"] = dropped
        columns: dict[str, Column] = {name: [row[name] for row in rows] for name in rows[0]}
        return TableBlock("capture_files", len(rows), columns)


def _file_row(index: int, part: Part, tap_run: str | None, cluster: str | None) -> dict[str, Any]:
    """The row of capture_files of one part of a rotation."""
    facts = part.facts
    return {
        "file_name": part.name,
        "file_index": index,
        "tap_run": tap_run,
        "cluster": cluster,
        "sha256": None,
        "file_bytes": None,
        "format": LIVE,
        "compressed": None,
        "packets": facts.packets,
        "first_packet": facts.first_packet,
        "link_types": [link_type_name(number) for number in facts.link_types],
        "snaplen": facts.snaplen,
        "first_ts_ns": facts.first_ts_ns,
        "last_ts_ns": facts.last_ts_ns,
        "is_truncated": facts.is_truncated,
        "dropped_by_interface": facts.dropped_by_interface,
        "packets_tcp": part.counts.used,
        "packets_ignored_by_reason": sorted(part.counts.ignored.items()),
        "clock_steps": facts.clock_steps,
        "dissector_version": own_version(),
        "schema_version": SCHEMA_VERSION,
    }
