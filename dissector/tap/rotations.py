"""Writes the rotations of a tap into its lake, in threads.

The loop queues blocks of rows and ends rotations. One thread writes the files; another syncs them
to disk and installs them, so that the next rotation's rows do not wait for a disk. The queue is
bounded. If it is full, a live tap waits while its ring has room and the writer makes progress, as
when all threads share one core. If the writer stalls or fails (a full disk), the whole rotation is
dropped and the next one is tried, because unread packets would be missing in the metrics as well. A
replay waits instead, and ends with the error.
"""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from dissector.blocks import TableBlock
from dissector.errors import DissectorError, OutputError
from dissector.lake.install import recover
from dissector.lake.landing import Landing
from dissector.lake.locks import adding_lock_if_free
from dissector.lake.manifest import clean_base_name, tap_capture_id
from dissector.lake.manifests import crowded_days
from dissector.lake.mirror import of, shown
from dissector.lake.partitions import NS_PER_DAY
from dissector.lake.writer import block_bytes
from dissector.tap.delivery import Delivery

QUEUE_BYTES: Final = 128 << 20

# The longest wait of a live tap at once, and in all as a share of the rotation's time.
_WAIT_SECONDS: Final = 0.25
_WAIT_SHARE: Final = 0.5
_UPKEEP: Final = "old days and small rotations of the lake may stay"
_UPKEEP_AFTER: Final = 16  # rotations between two runs of upkeep
_UNFINISHED: Final = 2  # rotations that are written but not yet synced; then writing waits


class Fate(NamedTuple):
    """The outcome of a rotation.

    packets: their number.
    problem: why it is not in the lake, None if it is.
    """

    capture_id: str
    packets: int
    rows: int
    problem: str | None


class _End(NamedTuple):
    """The end of a rotation; is_given_up: rows are missing because the queue was full."""

    packets: int
    is_given_up: bool


class _Start(NamedTuple):
    """The begin of a rotation."""

    capture_id: str


class _Written(NamedTuple):
    """A rotation whose rows are all written.

    landing: None if it could not begin.
    end: None if the tap ended within it.
    problem: as in Fate, so far.
    """

    landing: Landing | None
    capture_id: str
    rows: int
    end: _End | None
    problem: str | None


class _Upkeep:
    """Deletes old days of a tap's lake and compacts rotations of a day, in a process: reading them
    uses a processor for seconds, for which packets would wait.

    Args:
        keep_days: days to keep, None for all.
    """

    def __init__(self, lake: Path, keep_days: int | None) -> None:
        self._command = [sys.executable, "-P", "-m", "dissector.lake.retention", str(lake)]
        self._has_daily = keep_days is not None or of(lake) is not None
        self._keep = str(keep_days or 0)
        self._lake = lake
        self._day = 0
        self._landed = _UPKEEP_AFTER
        self._process: subprocess.Popen[str] | None = None

    def after_landing(self) -> str | None:
        """Start upkeep if it is due; returns the problem of the last run, None if it succeeded."""
        problem = self._ended()
        self._landed += 1
        today = time.time_ns() // NS_PER_DAY
        is_due = self._has_daily and today != self._day
        is_worth_it = self._landed >= _UPKEEP_AFTER and crowded_days(self._lake)
        if self._process is None and (is_due or is_worth_it):
            self._day, self._landed = today, 0
            try:
                self._process = subprocess.Popen(
                    [*self._command, self._keep] if is_due else self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # the terminal's interrupt is for the tap
                )
            except OSError as error:
                problem = f"{_UPKEEP}: {error}"
        return problem

    def close(self) -> str | None:
        """Wait for a running upkeep; returns its problem."""
        if self._process is not None:
            self._process.wait()
        return self._ended()

    def _ended(self) -> str | None:
        if self._process is None or self._process.poll() is None:
            return None
        assert self._process.stderr is not None
        with self._process.stderr as words:
            lines = words.read().splitlines()
        is_wrong = self._process.returncode != 0
        self._process = None
        return f"{_UPKEEP}: {lines[-1] if lines else 'it was killed'}" if is_wrong else None


class Rotations:
    """Writes rows as captures of the lake, one per rotation.

    landed, lost: number of rotations so far.
    lost_packets: packets of lost rotations.
    problem: why the last one was lost, None after one was landed again.
    delivery: uploads rotations on disk to the store of the lake.
    upkeep_problem: why upkeep failed, None if it succeeded.

    Args:
        name: of the interface, for ids. may_wait: a slow disk may block the loop.
        keep_days: days of the lake to keep, None for all.

    Raises:
        InputError: a newer program wrote the lake.
        OutputError: the lake cannot be written.
    """

    def __init__(
        self,
        lake: Path,
        name: str,
        options: Mapping[str, Any],
        may_wait: bool,
        queue_bytes: int = QUEUE_BYTES,
        keep_days: int | None = None,
    ) -> None:
        self.name = clean_base_name(name)
        self.landed = 0
        self.lost = 0
        self.lost_packets = 0
        self.problem: str | None = None
        self.upkeep_problem: str | None = None
        self._lake = lake
        self._options = options
        self._may_wait = may_wait
        self._limit = queue_bytes
        self._upkeep = _Upkeep(lake, keep_days)
        self._first_ts_ns = 0
        self._number = 0
        self._is_open = False
        self._is_given_up = False
        self._began = self._waited = 0.0
        self._queued = 0
        self._room = threading.Condition()
        self._items: queue.SimpleQueue[TableBlock | _Start | _End | None] = queue.SimpleQueue()
        self._fates: queue.SimpleQueue[Fate] = queue.SimpleQueue()
        self._written: queue.Queue[_Written | None] = queue.Queue(_UNFINISHED)
        _try_out(lake)
        self.delivery = Delivery(lake, is_live=not may_wait)
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("tap-landing", self._run), ("tap-finishing", self._run_finishing))
        ]
        for thread in self._threads:
            thread.start()

    def begin_run(self, first_ts_ns: int) -> None:
        """Begin a run at this packet's time, which names its rotations, numbered from 0."""
        self._first_ts_ns, self._number = first_ts_ns, 0

    @property
    def capture(self) -> str | None:
        """The prefix of the ids of this run's rotations; None before the run begins."""
        if not self._first_ts_ns:
            return None
        return tap_capture_id(self.name, self._first_ts_ns, 0).rpartition("-")[0]

    @property
    def queued_bytes(self) -> int:
        """Bytes of rows that wait to be written."""
        return self._queued

    def write(self, block: TableBlock) -> None:
        """Queue a block of the current rotation.

        Raises:
            OutputError: an earlier one could not be written, and the loop waits for the lake.
        """
        if not self._is_open:
            self._is_open = True
            self._is_given_up = False
            self._began, self._waited = time.monotonic(), 0.0
            self._items.put(_Start(tap_capture_id(self.name, self._first_ts_ns, self._number)))
        if self._is_given_up:
            return
        size = block_bytes(block)
        with self._room:
            if not self._has_room(size) and not self._wait(size):
                self._is_given_up = True
                return
            self._queued += size
        self._items.put(block)

    def _has_room(self, size: int) -> bool:
        return not self._queued or self._queued + size <= self._limit

    def _wait(self, size: int) -> bool:
        """Wait for room in the queue within the limits; whether there is room."""
        if self._may_wait:
            return self._room.wait_for(lambda: self._has_room(size))
        began = time.monotonic()
        left = _WAIT_SECONDS + _WAIT_SHARE * (began - self._began) - self._waited
        has_room = self._room.wait_for(
            lambda: self._has_room(size), min(_WAIT_SECONDS, max(0.0, left))
        )
        self._waited += time.monotonic() - began
        return has_room

    def end(self, packets: int) -> None:
        """End the current rotation; one without rows is not written."""
        if not self._is_open:
            return
        self._items.put(_End(packets, self._is_given_up))
        self._is_open = False
        self._number += 1

    def fates(self) -> list[Fate]:
        """The outcomes of rotations since the last call.

        Raises:
            OutputError: one could not be landed, and the loop waits for the lake.
        """
        fates = []
        while not self._fates.empty():
            fate = self._fates.get()
            fates.append(fate)
            if fate.problem is None:
                self.landed += 1
                self.problem = None
            else:
                self.lost += 1
                self.lost_packets += fate.packets
                self.problem = fate.problem
                if self._may_wait:
                    raise OutputError(fate.problem)
        return fates

    def close(self) -> list[Fate]:
        """Land complete rotations, drop the incomplete one, end the threads."""
        self._items.put(None)
        for thread in self._threads:
            thread.join()
        self.delivery.close()
        self.upkeep_problem = self._upkeep.close() or self.upkeep_problem
        return self.fates()

    # -- in the threads

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            assert isinstance(item, _Start), "a rotation begins with its id"
            self._write(item.capture_id)
        self._written.put(None)

    def _run_finishing(self) -> None:
        while (written := self._written.get()) is not None:
            problem = self._finish(written)
            if written.end is not None:
                end = written.end
                self._fates.put(Fate(written.capture_id, end.packets, written.rows, problem))

    def _write(self, capture_id: str) -> None:
        """Write one rotation; even after an error, remove all its items from the queue."""
        landing: Landing | None = None
        problem: str | None = None
        rows = 0
        try:
            landing = Landing(self._lake, self.name, capture_id)
        except DissectorError as error:
            problem = str(error)
        while isinstance(item := self._items.get(), TableBlock):
            rows += item.rows
            if landing is not None and problem is None:
                try:
                    landing.write(item)
                except DissectorError as error:
                    problem = str(error)
            with self._room:
                self._queued -= block_bytes(item)
                self._room.notify()
        if isinstance(item, _End) and item.is_given_up and problem is None:
            problem = f"the lake {shown(self._lake)} is written too slowly"
        end = item if isinstance(item, _End) else None
        self._written.put(_Written(landing, capture_id, rows, end, problem))
        if end is None:
            self._items.put(None)

    def _finish(self, written: _Written) -> str | None:
        """Install a complete rotation or drop an incomplete one; returns the problem."""
        problem = written.problem
        if written.landing is None:
            return problem
        with written.landing as landing:
            if problem is None and written.end is not None:
                try:
                    landing.commit(self._options)
                except DissectorError as error:
                    problem = str(error)
        self.delivery.wake()
        if self._may_wait:
            self.delivery.attempt()
            problem = problem or self.delivery.sentence()
        if problem is None and written.end is not None:
            self.upkeep_problem = self._upkeep.after_landing() or self.upkeep_problem
        return problem


def _try_out(lake: Path) -> None:
    """Open the lake once, so that a wrong folder is reported before the capture begins."""
    with Landing(lake, "tap", "c-tap"), adding_lock_if_free(lake) as is_ours:
        if is_ours:
            recover(lake, is_alone=False)
