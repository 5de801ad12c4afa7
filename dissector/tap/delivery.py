"""Uploads a tap's rotations from disk to the lake's store.

A thread uploads them, so that neither packets nor the disk wait for a network. A failed upload is
retried; the rotation stays on disk until it succeeds, even after the tap ends.
"""

import errno
import threading
from pathlib import Path
from typing import Final

from dissector.errors import DissectorError
from dissector.lake import mirror
from dissector.lake.delivery import deliver
from dissector.lake.install import ready_stages, writing_to
from dissector.lake.manifests import refuse_newer
from dissector.report.formatting import many

RETRY_SECONDS: Final = 15.0  # each request was retried before that (`limits`)
# How long a live tap waits for the store before the first packet. A silent store may answer later,
# but a wrong address or missing rights are reported at once.
_FIRST_SECONDS: Final = 1.0
_WRONG: Final = (errno.ENXIO, errno.EACCES)


class Delivery:
    """Uploads waiting rotations, if the lake is in a store.

    waiting: number of rotations that are on disk but not in the store.
    problem: why the last upload failed, None if it succeeded.

    Args:
        is_live: upload in a thread after `wake`; else only inside `attempt`.

    Raises:
        InputError: a newer program wrote the lake.
        OutputError: the store does not exist, or the rights are missing.
    """

    def __init__(self, lake: Path, is_live: bool) -> None:
        self.waiting = 0
        self.problem: str | None = None
        self._lake = lake
        self._is_stored = mirror.of(lake) is not None
        self._is_over = False
        self._error: OSError | DissectorError | None = None
        self._woken, self._tried = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="tap-delivering", daemon=True)
        if self._is_stored and is_live:
            self._thread.start()
            self._tried.wait(_FIRST_SECONDS)
        else:
            self.attempt()
        error = self._error
        if isinstance(error, DissectorError) or (error is not None and error.errno in _WRONG):
            self._is_over = True
            self.wake()
            with writing_to(lake):
                raise error

    def wake(self) -> None:
        """Make the thread upload."""
        self._woken.set()

    def attempt(self) -> None:
        """Try once to upload all waiting rotations."""
        if not self._is_stored:
            return
        try:
            if not self._tried.is_set():
                mirror.refresh(self._lake)
                refuse_newer(self._lake)
            damaged = deliver(self._lake)
            self._error, self.problem = None, damaged[0] if damaged else None
        except (OSError, DissectorError) as error:
            reason = getattr(error, "strerror", None) or error
            self._error, self.problem = error, f"{mirror.shown(self._lake)}: {reason}"
        self.waiting = len(ready_stages(self._lake))
        mirror.trim(self._lake)
        self._tried.set()

    def sentence(self) -> str | None:
        """A sentence on waiting rotations and the reason; None if there are none."""
        if self.problem is None:
            return None
        return (
            f"{many(self.waiting, 'rotation')} on this disk, not in the store: {self.problem}; "
            "this tap tries again, and so does the next command over the lake on this machine"
        )

    def close(self) -> None:
        """Try a last time and end the thread."""
        self._is_over = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_over
            self.attempt()
            if not is_last:
                self._woken.wait(RETRY_SECONDS if self.waiting else None)
                self._woken.clear()
