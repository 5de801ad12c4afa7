"""Rotations of a tap on their way into the lake, in a thread of their own.

The loop hands over blocks of rows and says when a rotation ends; the thread writes and installs.
Between them is a queue of bounded size. A live tap never waits for it: when it is full, or when
writing fails (a full disk), the rotation is given up as a whole and the next one is tried, because
packets that are not read in time are lost to the metrics, too. A replay waits instead, and ends
with the error.
"""

import queue
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from dissector.blocks import TableBlock
from dissector.errors import DissectorError, OutputError
from dissector.lake.install import recover
from dissector.lake.landing import Landing
from dissector.lake.locks import exclusive_lock
from dissector.lake.manifest import clean_base_name, read_manifests, tap_capture_id
from dissector.lake.writer import block_bytes

QUEUE_BYTES: Final = 128 << 20

_DISTRIBUTION: Final = "pulsar-dissector"


class Fate(NamedTuple):
    """What became of a rotation. packets: it held; problem: why it is not in the lake, or None."""

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


class Rotations:
    """Takes rows, makes captures of them.

    landed, lost: how many rotations so far; lost_packets: of those that were given up; problem: why
    the last one was, None once one was landed again.

    Args:
        name: of the interface, for ids. may_wait: the loop may be held up by a slow disk.

    Raises:
        InputError: a newer program wrote the lake.
        OutputError: the lake cannot be written.
    """

    def __init__(
        self,
        lake: Path,
        name: str,
        told: Mapping[str, Any],
        may_wait: bool,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.name = clean_base_name(name)
        self.landed = 0
        self.lost = 0
        self.lost_packets = 0
        self.problem: str | None = None
        self._lake = lake
        self._told = told
        self._may_wait = may_wait
        self._limit = queue_bytes
        self._first_ts_ns = 0
        self._number = 0
        self._is_open = False
        self._is_given_up = False
        self._queued = 0
        self._room = threading.Condition()
        self._items: queue.SimpleQueue[TableBlock | _Start | _End | None] = queue.SimpleQueue()
        self._fates: queue.SimpleQueue[Fate] = queue.SimpleQueue()
        _try_out(lake)
        self._thread = threading.Thread(target=self._run, name="tap-landing", daemon=True)
        self._thread.start()

    def begin_run(self, first_ts_ns: int) -> None:
        """A run of the tap begins with this packet: rotations are named by it, from number 0."""
        self._first_ts_ns, self._number = first_ts_ns, 0

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
            self._items.put(_Start(tap_capture_id(self.name, self._first_ts_ns, self._number)))
        if self._is_given_up:
            return
        size = block_bytes(block)
        with self._room:
            while self._may_wait and self._queued and self._queued + size > self._limit:
                self._room.wait()
            if self._queued and self._queued + size > self._limit:
                self._is_given_up = True
                return
            self._queued += size
        self._items.put(block)

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
        found = []
        while not self._fates.empty():
            fate = self._fates.get()
            found.append(fate)
            if fate.problem is None:
                self.landed += 1
                self.problem = None
            else:
                self.lost += 1
                self.lost_packets += fate.packets
                self.problem = fate.problem
                if self._may_wait:
                    raise OutputError(fate.problem)
        return found

    def close(self) -> list[Fate]:
        """Land what is complete, drop what is not, end the thread."""
        self._items.put(None)
        self._thread.join()
        return self.fates()

    # -- in the thread

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            assert isinstance(item, _Start), "a rotation begins with its id"
            self._land(item.capture_id)

    def _land(self, capture_id: str) -> None:
        """Write and install one rotation; whatever happens, take all of its items."""
        landing: Landing | None = None
        problem: str | None = None
        rows = 0
        try:
            landing = Landing(self._lake, self.name, is_tap=True)
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
            problem = f"the lake {self._lake} is written too slowly"
        if landing is not None:
            problem = self._finish(landing, capture_id, item is not None, problem)
        if isinstance(item, _End):
            self._fates.put(Fate(capture_id, item.packets, rows, problem))
        else:
            self._items.put(None)

    def _finish(
        self, landing: Landing, capture_id: str, is_whole: bool, problem: str | None
    ) -> str | None:
        """Install the rotation if it is whole, drop it if not; gives what went wrong."""
        with landing:
            if problem is None and is_whole:
                versions = {"dissector": metadata.version(_DISTRIBUTION)}
                try:
                    landing.commit(self._told, versions, tap_id=capture_id)
                except DissectorError as error:
                    problem = str(error)
        return problem


def _try_out(lake: Path) -> None:
    """Open the lake once, so that a wrong folder is said before anything is captured."""
    with Landing(lake, "tap", is_tap=True), exclusive_lock(lake):
        recover(lake)
        read_manifests(lake)
