"""Rotations of a tap on their way into the lake, in a thread of their own.

The loop hands over blocks of rows and says when a rotation ends; one thread writes, another puts
what is written safely on disk and installs it, so that the rows of the next rotation do not wait
for a disk. Between them and the loop is a queue of bounded size. A live tap waits for room in it as
long as its ring has room, and only while rows are taken out, as where all share one core. When
nothing moves, or writing fails (a full disk), the rotation is given up as a whole and the next one
is tried, because packets that are not read in time are lost to the metrics, too. A replay waits
instead, and ends with the error.
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
from dissector.lake.places import NS_PER_DAY
from dissector.lake.writer import block_bytes
from dissector.tap.delivery import Delivery

QUEUE_BYTES: Final = 128 << 20

# How long a live tap waits at once, and how much of a rotation's time in all, before it gives up.
_WAIT_SECONDS: Final = 0.25
_WAIT_SHARE: Final = 0.5
_UPKEEP: Final = "old days and small rotations of the lake may stay"
_UPKEEP_AFTER: Final = 16  # rotations: somebody may read the lake, or they may be large ones
_UNFINISHED: Final = 2  # rotations that are written and not yet on disk; then writing waits


class Fate(NamedTuple):
    """What became of a rotation.

    packets: it held.
    problem: why it is not in the lake, or None.
    """

    capture_id: str
    packets: int
    rows: int
    problem: str | None


class _End(NamedTuple):
    """The rotation is over; is_given_up: rows of it are missing, because the queue was full."""

    packets: int
    is_given_up: bool


class _Start(NamedTuple):
    """A rotation begins."""

    capture_id: str


class _Written(NamedTuple):
    """A rotation whose rows were all taken.

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
    """Drops old days of a tap's lake and puts rotations of a day together, in a process of its own:
    reading them back takes a processor for seconds, in which packets would wait.

    Args:
        keep_days: how many days stay, None for all.
    """

    def __init__(self, lake: Path, keep_days: int | None) -> None:
        self._command = [sys.executable, "-m", "dissector.lake.retention", str(lake)]
        self._has_daily = keep_days is not None or of(lake) is not None
        self._keep = str(keep_days or 0)
        self._lake = lake
        self._day = 0
        self._landed = _UPKEEP_AFTER
        self._process: subprocess.Popen[str] | None = None

    def after_landing(self) -> str | None:
        """Begin if there is something to do; what went wrong the last time."""
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
        """Wait for the end of what runs; what went wrong."""
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
    """Takes rows, makes captures of them.

    landed, lost: how many rotations so far.
    lost_packets: of those that were given up.
    problem: why the last one was, None once one was landed again.
    delivery: what is on disk and waits for the store of the lake.
    upkeep_problem: why old days stay, or small rotations, None where all went well.

    Args:
        name: of the interface, for ids. may_wait: the loop may be held up by a slow disk.
        keep_days: days of the lake that stay, None for all.

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
        """A run of the tap begins with this packet: rotations are named by it, from number 0."""
        self._first_ts_ns, self._number = first_ts_ns, 0

    @property
    def capture(self) -> str | None:
        """What the ids of the rotations of this run begin with; None before there is one."""
        if not self._first_ts_ns:
            return None
        return tap_capture_id(self.name, self._first_ts_ns, 0).rpartition("-")[0]

    @property
    def queued_bytes(self) -> int:
        """Rows that wait to be written."""
        return self._queued

    def write(self, block: TableBlock) -> None:
        """Take over a block of the running rotation.

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
        """Wait for room as long as is right; whether there is some then."""
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
        """The running rotation is over; one without rows is none."""
        if not self._is_open:
            return
        self._items.put(_End(packets, self._is_given_up))
        self._is_open = False
        self._number += 1

    def fates(self) -> list[Fate]:
        """What became of rotations since the last call.

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
        """Land what is complete, drop what is not, end the threads."""
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
        """Write one rotation; whatever happens, take all of its items."""
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
        """Install a rotation if it is whole, drop it if not; gives what went wrong."""
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
    """Open the lake once, so that a wrong folder is said before anything is captured."""
    with Landing(lake, "tap", "c-tap"), adding_lock_if_free(lake) as is_ours:
        if is_ours:
            recover(lake, is_alone=False)
