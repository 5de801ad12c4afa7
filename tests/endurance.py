"""Endurance of the live tap: python -m tests.endurance [--hours 8] [--made N].

Hours of a moderately busy port in minutes: real captures and made traffic again and again, each
round later, between other hosts, over other topics and producers, some connections closed and some
left open, with losses, through the loop of the tap with metrics, rotations and recorder. Memory and
the size of everything that the tap holds are looked at all the time. What is larger in the last
quarter than ever in the second is printed: tables double until their bound. Memory that is larger
by a tenth makes the exit code 1.
"""

import argparse
import ctypes
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import dissector.cli.environment  # noqa: F401 -- the allocator as in the command
from captures.make.traffic import MIXES, Connection, Direction, _begin, _round, packets
from dissector.capture.reader import CaptureReader
from dissector.dissection import Dissection, Options
from dissector.limits import PACKET_BLOCK_ROWS
from dissector.notice_rows import Notice
from dissector.packet.columns import PacketColumns
from dissector.packet.link import ETHERNET
from dissector.tap.health import Health
from dissector.tap.loop_metrics import LoopMetrics
from dissector.tap.memory import resident_bytes
from dissector.tap.metrics import TapCollector, TapNumbers
from dissector.tap.packet_batches import Cuts, Idle, PacketBatch, Part, rows_before
from dissector.tap.recorder import Recorder
from dissector.tap.rotations import Rotations
from dissector.tap.service import Tap, TapSettings
from dissector.tap.triggers import Triggers
from dissector.tap.windows import Windows
from tests.dissector.observed import CAPTURES
from tests.dissector.tap.traffic import is_simple, rename, topic_names

START_NS: Final = 1_700_000_000_000_000_000
REAL: Final = (
    "cpp-c40_killed_Failover", "cpp-c41_unload", "cpp-c44_dedup", "cpp-s07_shared_rq10",
    "cpp-s08_nack", "cpp-s09_ack_timeout", "cpp-s11_dlq", "cpp-s12_seek-bem", "cpp-s15_errors",
    "go-g02_batch_zstd-bem", "go-g06_txn-bem", "java-j03_batch_lz4", "java-j40_slow_consumer",
)  # fmt: skip
_NS: Final = 1_000_000_000
_LOOK_NS: Final = 60 * _NS  # of capture time
_FRESH: Final = 3  # conversations of topics that are in no other round
_GROWTH: Final = 1.02  # what counts as growth
_TOO_MUCH: Final = 1.1  # of memory
_DEPTH: Final = 12
_RESIDENT: Final = "bytes resident"
_OBJECTS: Final = "objects of Python"
_HEAP: Final = "bytes of the heap"


Look = tuple[float, int, dict[str, int]]


class Template(NamedTuple):
    """Packets of a round: their bytes, and columns with times from 0 on."""

    data: np.ndarray
    columns: PacketColumns
    hosts: np.ndarray  # where the first two bytes of an address stand
    names: np.ndarray  # where topics are named


def timed_frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Packets of an Ethernet capture with their times from 0 on."""
    data = np.fromfile(path, np.uint8)
    reader = CaptureReader()
    reader.start_file()
    position, is_more, first = 0, True, -1
    while is_more:
        scan = reader.feed(data, position, len(data), True)
        position, is_more = scan.consumed, scan.is_more
        for row in range(scan.rows):
            at, size = int(reader.packets.offset[row]), int(reader.packets.captured_bytes[row])
            ts_ns = int(reader.packets.ts_ns[row])
            first = ts_ns if first < 0 else first
            yield ts_ns - first, data[at : at + size].tobytes()


def columns_of(frames: Sequence[bytes], times: Sequence[int]) -> tuple[np.ndarray, PacketColumns]:
    """Packets one behind the other in a buffer."""
    columns = PacketColumns.new(len(frames))
    sizes = np.array([len(frame) for frame in frames], np.int64)
    rows = slice(len(frames))
    columns.captured_bytes[rows] = columns.wire_bytes[rows] = sizes
    columns.offset[rows] = np.cumsum(sizes) - sizes
    columns.ts_ns[rows] = times
    data = np.frombuffer(bytearray(b"".join(frames)), np.uint8)
    return data, PacketColumns(np.ascontiguousarray(columns.matrix[:, rows]))


def template(seconds: float, made: int) -> Template:
    """A round: real captures beside each other, and made traffic of so many packets."""
    timed: list[tuple[int, int, bytes]] = []
    for number, name in enumerate(REAL):
        for ts_ns, frame in timed_frames(CAPTURES / "pulsar-apache" / f"{name}.pcap"):
            if ts_ns < seconds * _NS:
                timed.append((ts_ns, number, frame))
    for number, mix in enumerate(MIXES):
        step = int(seconds * _NS) // (made + 1)
        for place, frame in enumerate(islice(packets(MIXES[mix]), made)):
            timed.append((place * step + number, len(REAL) + number, frame))
    timed.sort(key=lambda each: each[:2])
    frames = [frame for _, _, frame in timed]
    data, columns = columns_of(frames, [ts_ns for ts_ns, _, _ in timed])
    simple = np.array([is_simple(frame) for frame in frames])
    starts = columns.offset[simple]
    for _, number, frame in timed:
        assert number < 256 and len(frame) > 13
    # The low half of an address stays, so that hosts of a capture keep apart.
    owner = np.array([number for _, number, _ in timed], np.uint8)[simple]
    data[starts + 28] += owner
    data[starts + 32] += owner
    return Template(data, columns, np.concatenate((starts + 26, starts + 30)), topic_names(data))


def fresh(number: int) -> list[bytes]:
    """Conversations over topics of their own; the last one stays open."""
    frames: list[bytes] = []
    for index in range(number * _FRESH, (number + 1) * _FRESH):
        pair = [Connection(0), Connection(0)]
        for side, connection in enumerate(pair):
            client = (0x0B000000 + 2 * index + side, 20000 + index % 40000)
            broker = (0x0A0000FE, 6650)
            connection.to_broker = Direction(client, broker)
            connection.to_client = Direction(broker, client)
        producer, consumer = pair
        # The names of topic and producer hold the number.
        frames += _renamed(_begin([producer], [consumer]), index)
        frames += _round(MIXES["small"], index, producer, consumer, 0, 30)
        if index % _FRESH != _FRESH - 1:
            for connection in pair:
                frames.append(connection.to_broker.packet(b"", connection.to_client.sequence, 0x11))
                frames.append(connection.to_client.packet(b"", connection.to_broker.sequence, 0x11))
    return frames


def _renamed(frames: Iterator[bytes], index: int) -> list[bytes]:
    """What opens a topic, with a name of the same length and a number."""
    digits = b"%06d" % (index % 10**6)
    names = ((b"bench-0", digits + b"x"), (b"standalone-0-0", b"alone-" + digits + b"-0"))
    renamed = []
    for frame in frames:
        for old, new in names:
            frame = frame.replace(old, new)
        renamed.append(frame)
    return renamed


class Endless:
    """A source of rounds until so much time of theirs has passed."""

    is_live = False
    name = part_name = "endless0"
    interfaces = ("endless0",)
    file_names = ()

    def __init__(self, hours: float, made: int, seconds: float) -> None:
        self._template = template(seconds, made)
        self._round_ns = int((seconds + 5) * _NS)
        self._rounds = int(hours * 3600 * _NS / self._round_ns)
        self._random = np.random.default_rng(1)
        self._is_ending = False
        self.now_ns = START_NS

    def introduce(self, dissection: Dissection) -> None:
        dissection.start_file()
        dissection.capture.start_live()
        dissection.capture.interfaces.add(ETHERNET, 0)

    def packet_batches(
        self, dissection: Dissection, cuts: Cuts
    ) -> Iterator[PacketBatch | Part | Idle]:
        self.introduce(dissection)
        del dissection
        for number in range(self._rounds):
            start_ns = START_NS + number * self._round_ns
            yield from self._part(*self._again(number, start_ns), cuts)
            frames = fresh(number)
            late_ns = start_ns + self._round_ns - 5 * _NS
            data, columns = columns_of(frames, [late_ns + 10**6 * i for i in range(len(frames))])
            yield from self._part(data, columns, cuts)
            yield Idle()
            if self._is_ending:
                return

    def _again(self, number: int, start_ns: int) -> tuple[np.ndarray, PacketColumns]:
        """The template between other hosts, over other topics, later, with holes."""
        data, columns, hosts, names = self._template
        data[hosts] = 10 + (number >> 8)
        data[hosts + 1] = number & 0xFF
        rename(data, names, number)
        kept = np.ones(len(columns.ts_ns), bool)
        for at in self._random.integers(0, len(kept), 4):
            kept[at : at + 20] = False
        found = PacketColumns(np.ascontiguousarray(columns.matrix[:, kept]))
        found.ts_ns[:] += start_ns
        return data, found

    def _part(self, data: np.ndarray, columns: PacketColumns, cuts: Cuts) -> Iterator[PacketBatch]:
        while len(columns.ts_ns):
            rows = min(PACKET_BLOCK_ROWS, len(columns.ts_ns))
            packets = PacketColumns(np.ascontiguousarray(columns.matrix[:, :rows]))
            chosen = rows_before(packets, rows, cuts)
            if chosen == 0:
                yield PacketBatch(data, packets, 0, lambda dissection: [], is_boundary=True)
                continue
            self.now_ns = int(packets.ts_ns[chosen - 1])
            yield PacketBatch(
                data, packets, chosen,
                lambda dissection, p=packets, n=chosen: dissection.feed_packets(data, p, n),
            )  # fmt: skip
            columns = PacketColumns(np.ascontiguousarray(columns.matrix[:, chosen:]))

    def dropped(self) -> int:
        return 0

    def down(self) -> list[str]:
        return []

    def notices(self) -> list[Notice]:
        return []

    def stop(self) -> None:
        self._is_ending = True

    def close(self) -> None:
        """Nothing is held."""


def sizes(root: object) -> dict[str, int]:
    """Entries of containers and bytes of arrays below an object, by the way to them."""
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    waiting: deque[tuple[str, Any, int]] = deque([("", root, 0)])
    while waiting:
        path, value, depth = waiting.popleft()
        if id(value) in seen or depth > _DEPTH:
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            sizes[path] = sizes.get(path, 0) + value.nbytes
        elif isinstance(value, bytes | bytearray | str):
            continue
        elif isinstance(value, Mapping):
            sizes[path] = sizes.get(path, 0) + len(value)
            waiting.extend((f"{path}[]", each, depth + 1) for each in list(value.values()))
        elif isinstance(value, list | tuple | set | deque):
            if not hasattr(value, "_fields"):
                sizes[path] = sizes.get(path, 0) + len(value)
            waiting.extend((f"{path}[]", each, depth + 1) for each in list(value))
        elif type(value).__module__.startswith(("dissector", "tests.endurance")):
            waiting.extend(
                (f"{path}.{name}", each, depth + 1) for name, each in vars(value).items()
            )
    return sizes


class _Heap(ctypes.Structure):
    """What the allocator of the C library says of itself (mallinfo2)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                     "uordblks", "fordblks", "keepcost")
    )  # fmt: skip


def in_use() -> dict[str, int]:
    """Bytes that the program holds of the C library's heap, and objects of Python."""
    usage = {_OBJECTS: sys.getallocatedblocks()}
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is not None:
        ask.restype = _Heap
        heap = ask()
        usage[_HEAP] = int(heap.uordblks + heap.hblkhd)
    return usage


class Looker:
    """A listener that looks at memory and sizes once a minute of capture time."""

    def __init__(self, source: Endless, tap: Tap, collector: TapCollector, every_ns: int) -> None:
        self._source, self._tap, self._collector = source, tap, collector
        self._every_ns = every_ns
        self._next_ns = START_NS
        self._began = time.monotonic()
        self._places: dict[str, int] = {}
        self._rows: list[tuple[float, int, np.ndarray]] = []

    @property
    def looks(self) -> list[Look]:
        """All looks: hours, resident bytes, sizes by name."""
        names = list(self._places)
        return [
            (hours, memory, dict(zip(names, row.tolist(), strict=False)))
            for hours, memory, row in self._rows
        ]

    def packets(self, packet_batch: PacketBatch) -> None:
        """Nothing is asked of packets."""

    def rows(self, blocks: Sequence[object]) -> None:
        """Nor of rows."""

    def tick(self, now: float) -> None:
        if self._source.now_ns < self._next_ns:
            return
        self._next_ns = self._source.now_ns + self._every_ns
        for _ in self._collector.collect():  # somebody scrapes
            pass
        hours = (self._source.now_ns - START_NS) / 3600 / _NS
        used = in_use()
        usage = {**sizes(self._tap), **used}
        # Looks shall not be what grows: names once, numbers in an array.
        for name in usage:
            self._places.setdefault(name, len(self._places))
        row = np.zeros(len(self._places), np.int64)
        row[[self._places[name] for name in usage]] = list(usage.values())
        self._rows.append((hours, resident_bytes(), row))
        if len(self._rows) % 10 == 1:
            passed = time.monotonic() - self._began
            told = ", ".join(f"{count:,} {name}" for name, count in used.items())
            print(
                f"{hours:6.2f} h in {passed:6.0f} s: {resident_bytes() / 1e6:7.1f} MB resident, "
                f"{self._tap.account.packets:,} packets; {told}",
                flush=True,
            )


def growing(looks: Sequence[Look]) -> dict[str, tuple[int, int]]:
    """What is larger at the end of the second half than ever in the first: most then, most now."""
    half = len(looks) // 2
    early, late = looks[half // 4 : half], looks[half + half // 2 :]
    found = {}
    for name in {name for _, _, found in looks for name in found}:
        before = max((sizes.get(name, 0) for _, _, sizes in early), default=0)
        after = min((sizes.get(name, 0) for _, _, sizes in late), default=0)
        if after > _GROWTH * before + 8:
            found[name] = (before, after)
    before = max(memory for _, memory, _ in early)
    after = min(memory for _, memory, _ in late)
    if after > _GROWTH * before:
        found[_RESIDENT] = (before, after)
    return found


def main() -> int:
    """One run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=8, help="of capture time")
    parser.add_argument("--made", type=int, default=8000, help="made packets of each mix a round")
    parser.add_argument("--round", type=float, default=55, help="seconds")
    parser.add_argument("--no-lake", action="store_true")
    parser.add_argument("--no-recorder", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Endless(chosen.hours, chosen.made, chosen.round)
        health, numbers = Health(is_live=False), TapNumbers()
        rotations = None
        if not chosen.no_lake:
            rotations = Rotations(Path(folder) / "lake", source.name, {}, may_wait=True)
        tap = Tap(source, TapSettings(Options()), rotations, [health])
        windows = Windows(tap, True, [health.sums])
        health.refresh = windows.flush  # it is the loop that looks
        tap.listen(windows)
        recorder = Recorder(
            Path(folder) / "kept", Triggers(), lambda each: tap.dissection.ends_of(each),
            tap.link_types, keep_bytes=50_000_000,
        )  # fmt: skip
        recorder.sums, recorder.ask = health.sums, windows.flush
        watch = LoopMetrics(health, numbers, rotations, recorder)
        watch.tap = tap
        looker = Looker(source, tap, TapCollector(health, numbers), _LOOK_NS)
        listeners = [watch, looker, Sweeper(Path(folder) / "lake")]
        for listener in listeners if chosen.no_recorder else [recorder, *listeners]:
            tap.listen(listener)
        tap.run()
        windows.close()
        recorder.close()
    looks = looker.looks
    found = growing(looks)
    memory = [size // 1_000_000 for _, size, _ in looks]
    print(json.dumps({
        "hours": chosen.hours, "packets": tap.account.packets,
        "frames": sum(health.sums.counts["frames"].values.values()),
        "megabytes": memory[:: max(1, len(memory) // 24)], "growing": found,
    }, indent=1))  # fmt: skip
    kinds = (_RESIDENT, _OBJECTS, _HEAP)
    return int(any(found[kind][1] > _TOO_MUCH * found[kind][0] for kind in kinds if kind in found))


class Sweeper:
    """Deletes what was landed, so that hours fit a small disk."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._next = 0.0

    def packets(self, packet_batch: PacketBatch) -> None:
        """Nothing is asked of packets."""

    def rows(self, blocks: Sequence[object]) -> None:
        """Nor of rows."""

    def tick(self, now: float) -> None:
        if now > self._next:
            self._next = now + 5
            for path in self._lake.glob("*/day=*/landing=*/*.parquet"):
                path.unlink()


if __name__ == "__main__":
    sys.exit(main())
