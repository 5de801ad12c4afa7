"""Rotations of a tap whose lake lies in a store: on disk first, then in the store when it answers.

A thread of its own puts them there, so that neither the packets nor the disk wait for a network.
What the store does not take is tried again, and waits on disk beyond the end of the tap.
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

RETRY_SECONDS: Final = 15.0  # requests have been tried for a while by then (`limits`)
# How long a live tap waits for the store before the first packet; one that is silent may answer
# later, but what is wrong with the address or the rights is said at once.
_FIRST_SECONDS: Final = 1.0
_WRONG: Final = (errno.ENXIO, errno.EACCES)


class Delivery:
    """Puts what waits into the store, if the lake lies in one.

    waiting: rotations that are on disk and not in the store.
    problem: why, None while the store takes them.

    Args:
        is_live: in a thread, when it is woken; else while `attempt` is called.

    Raises:
        InputError: a newer program wrote the lake.
        OutputError: there is no such store, or no right to it.
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
        """There is something to put into the store."""
        self._woken.set()

    def attempt(self) -> None:
        """Try once to put there all that waits."""
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
        """What waits and why; None where the store takes all."""
        if self.problem is None:
            return None
        return (
            f"{many(self.waiting, 'rotation')} on this disk, not in the store: {self.problem}; "
            "this tap tries again, and so does the next command over the lake on this machine"
        )

    def close(self) -> None:
        """Try once more, end the thread."""
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
