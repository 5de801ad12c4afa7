"""Compiles all kernels beforehand, in as many processes as there are processors.

A process of its own (`python -m dissector.cli.warming`) reads the package's captures with kernels
in plain Python, which takes seconds, and prints each kernel call: module, name, and types of
arguments. The other processes compile these.
"""

import ast
import multiprocessing
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from dissector.native import recording
from dissector.native.progress import compiling

_Call = tuple[str, str, Any]  # as recording.Recorder takes it


class _Workers:
    """Processes that compile; a free process gets the kernel that suits it best.

    A process keeps its compiled functions, so kernels that call the same functions are better
    compiled by the same process.
    """

    def __init__(self, pools: list[ProcessPoolExecutor]) -> None:
        self._idle = dict(enumerate(pools))
        self._known: list[set[str]] = [set() for _ in pools]
        self._waiting: dict[_Call, dict[str, int]] = {}
        self._lock = threading.RLock()
        self.done: queue.SimpleQueue[tuple[str, Future[str]]] = queue.SimpleQueue()

    def add(self, call: _Call, sizes: dict[str, int]) -> None:
        """Queue a kernel. sizes: of its functions."""
        with self._lock:
            self._waiting[call] = sizes
            self._hand_out()

    def _hand_out(self) -> None:
        while self._idle and self._waiting:
            worker, pool = self._idle.popitem()
            call = max(self._waiting, key=lambda each: self._gain(worker, self._waiting[each]))
            self._known[worker].update(self._waiting.pop(call))
            future = pool.submit(_compile, *call)
            future.add_done_callback(partial(self._finish, worker, pool, call))

    def _gain(self, worker: int, sizes: dict[str, int]) -> int:
        """A kernel's priority in a process: its functions' sizes, less those of other processes."""
        own = self._known[worker]
        others = set().union(*self._known) - own
        return sum(-size if name in others else size for name, size in sizes.items())

    def _finish(
        self, worker: int, pool: ProcessPoolExecutor, call: _Call, future: Future[str]
    ) -> None:
        self.done.put((f"{call[0]}.{call[1]}", future))
        with self._lock:
            self._idle[worker] = pool
            if future.exception() is None:
                self._hand_out()


def warm_up(processes: int) -> None:
    """Compile every kernel that the cache lacks."""
    from dissector.jit import kernel_named
    from dissector.native.code import keep_list
    from dissector.native.digests import function_sizes, program_digest

    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pools = [ProcessPoolExecutor(1, context) for _ in range(processes)]
        for pool in pools:
            stack.callback(pool.shutdown, cancel_futures=True)
        workers = _Workers(pools)
        count = 0
        for call in _calls():
            workers.add(call, function_sizes(kernel_named(*call[:2])))
            count += 1
        names = []
        for _ in range(count):
            name, future = workers.done.get()
            with compiling(name):
                names.append(future.result())
    keep_list(program_digest(), sorted(names))


def _compile(module: str, name: str, key: Any) -> str:
    from dissector.jit import compile_ahead

    return compile_ahead(module, name, key)


def _calls() -> Iterator[_Call]:
    """Yield the kernel calls of the package's captures as they are recorded."""
    command = [sys.executable, "-P", "-m", __name__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield ast.literal_eval(line)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _run_everything() -> None:
    """Call every kernel: land the captures of the package, and what those do not need:
    texts that lie scattered in their buffer, and the ring of a tap."""
    import numpy as np

    from dissector.capture.tpacket import walk_block
    from dissector.cli.options import Common
    from dissector.cli.reading import Reading
    from dissector.cli.terminal import no_progress
    from dissector.lake.land import land_chains
    from dissector.packet.columns import PacketColumns
    from dissector.schemas.spans import gather_spans

    folder = Path(__file__).resolve().parent.parent / "data" / "warm"
    captures = sorted(str(path) for path in folder.iterdir())
    common = Common()
    reading = Reading(captures, common, "none")
    for _ in reading.blocks("recording", is_quiet=True, want_detail="all"):
        pass
    options = common.core_options(payload_sha256=True, properties=True)
    with tempfile.TemporaryDirectory(prefix="dissector-") as lake:
        list(land_chains(reading.chains, Path(lake), options, None, 1, no_progress))
    bounds = np.array([0, 2], np.int64), np.array([1, 1], np.int64)
    gather_spans(np.zeros(3, np.uint8), *bounds, np.zeros(2, np.uint8))
    walk_block(np.zeros(64, np.uint8), (0, 64), 0, 0, 1, PacketColumns.new(1))


def main() -> None:
    """Print a line for each kernel and combination of argument types."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    seen: set[_Call] = set()

    def write(*call: Any) -> None:
        if call not in seen:
            seen.add(call)
            print(repr(call), file=output)

    recording.record(write)
    _run_everything()


if __name__ == "__main__":
    main()
