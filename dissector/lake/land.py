"""Land captures: dissect one and install it in a lake, or many in several processes.

`land_chain` does everything for one capture; the command line and Spark tasks both call it.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from dissector.dissection import Options
from dissector.errors import DissectorError, InputError
from dissector.lake import mirror
from dissector.lake.delivery import deliver
from dissector.lake.install import writing_to
from dissector.lake.known import decoding_options, known_capture
from dissector.lake.landing import ConcurrentLanding, Landed, Landing
from dissector.lake.manifest import cut_base_name
from dissector.sources.account import Account
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain

if TYPE_CHECKING:  # importing multiprocessing takes as long as landing a small capture
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Progress = Callable[[int], None]

# Starting a process and loading the compiled passes there costs the CPU time of 80 MB of input, so
# each process must have more input than that. A capture has a fixed cost of _BYTES_OF_A_CAPTURE
# bytes of input; smaller captures are looked up in the lake before processes start.
_WORTH_A_PROCESS: Final = 128 << 20
_BYTES_OF_A_CAPTURE: Final = 2 << 20


class Outcome(NamedTuple):
    """Result for the chain with this number; `landed` is None if `error` is set."""

    number: int
    account: Account
    landed: Landed | None
    error: DissectorError | None


def land_chain(
    chain: Chain,
    lake: Path,
    options: Options,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> tuple[Account, Landed]:
    """Dissect one capture into a lake, unless the lake has it already.

    Args:
        cluster: label of the Pulsar cluster. progress: called with the stored bytes read so far.

    Returns:
        The account of the input (read, kept, lost), and the result of landing it.

    Raises:
        InputError: nothing of the capture could be read; the lake is unchanged.
        OutputError: the lake could not be written.
    """
    if known := known_capture(chain, lake, options, cluster, progress):
        return known
    while True:
        with Landing(lake, _base_name(chain, options)) as landing:
            account = _write(landing, chain, options, cluster, progress)
            with suppress(ConcurrentLanding):  # retry: the other capture's size is known now
                is_last = chain.is_stdin
                return account, _commit(landing, account, options, cluster, is_last=is_last)


def land_strictly(
    chains: Sequence[Chain],
    lake: Path,
    options: Options,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Dissect all captures, then install all of them, or none if a part of the input is missing.

    Raises:
        InputError: a part of the input is missing; the lake is unchanged.
        OutputError: the lake could not be written.
    """
    outcomes: list[Outcome] = []
    with writing_to(lake):
        mirror.refresh(lake)
        deliver(lake)
    with ExitStack() as stack:
        landings: list[Landing] = []
        accounts: list[Account] = []
        done = 0
        for chain in chains:
            landing = stack.enter_context(Landing(lake, _base_name(chain, options)))
            account = _write(landing, chain, options, cluster, _shifted(progress, done))
            if account.is_partial:
                raise InputError(f"--strict: nothing landed, {account.missing[0]}")
            landing.seal()
            landings.append(landing)
            accounts.append(account)
            done += chain.stored_bytes
        for number, (landing, account) in enumerate(zip(landings, accounts, strict=True)):
            landed = _commit(landing, account, options, cluster)
            outcomes.append(Outcome(number, account, landed, None))
    return outcomes


def _base_name(chain: Chain, options: Options) -> str:
    """Return the base name under which the lake compares a capture. One limited by `--max-packets`
    has its own: it is no prefix of the whole capture, nor of one with another limit."""
    if options.max_packets is None:
        return chain.base_name
    return cut_base_name(chain.base_name, options.max_packets)


def _write(
    landing: Landing,
    chain: Chain,
    options: Options,
    cluster: str | None,
    progress: Progress | None,
) -> Account:
    account = Account(chain.base_name, chain.shown_names)
    for block in dissect(chain, options, progress, digest=landing.digest, cluster=cluster):
        account.add(block)
        landing.write(block)
    if account.is_unreadable:
        raise InputError(account.missing[0])
    return account


def _commit(
    landing: Landing,
    account: Account,
    options: Options,
    cluster: str | None,
    *,
    is_last: bool = True,
) -> Landed:
    decoding = decoding_options(options, cluster, account)
    return landing.commit(decoding, account.as_json(), is_last=is_last)


def _shifted(progress: Progress | None, done: int) -> Progress | None:
    return None if progress is None else lambda bytes_read: progress(done + bytes_read)


def processes_for(chains: Sequence[Chain], jobs: int) -> int:
    """Return the number of worker processes; 0: land in this process, as the input is small or
    consists mostly of one capture."""
    costs = sorted(chain.stored_bytes + _BYTES_OF_A_CAPTURE for chain in chains)
    beside_largest = sum(costs[:-1]) // _WORTH_A_PROCESS
    processes = min(jobs, len(chains), sum(costs) // _WORTH_A_PROCESS, 1 + beside_largest)
    return 0 if processes == 1 or any(chain.is_stdin for chain in chains) else processes


def land_chains(
    chains: Sequence[Chain],
    lake: Path,
    options: Options,
    cluster: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Iterator[Outcome]:
    """Land captures one by one or in several processes; yields outcomes as captures finish.

    A capture that cannot be read gives an outcome with its error and does not stop the others. If
    the caller stops (an exception in it, such as KeyboardInterrupt), finished captures stay in the
    lake and unfinished ones leave no files.

    Raises:
        OutputError: the lake could not be written.
    """
    with writing_to(lake):
        mirror.refresh(lake)
        deliver(lake)
    known: set[int] = set()
    if processes_for(chains, jobs):
        for outcome in _known_outcomes(chains, lake, options, cluster):
            known.add(outcome.number)
            yield outcome
    done = sum(chains[number].stored_bytes for number in known)
    waiting = [number for number in range(len(chains)) if number not in known]
    left = [chains[number] for number in waiting]
    if processes := processes_for(left, jobs):
        tasks = [_Task(number, chains[number], lake, options, cluster) for number in waiting]
        yield from _land_in_processes(tasks, processes, _shifted(progress, done))
    else:
        for number, chain in zip(waiting, left, strict=True):
            yield landed_or_failed(number, chain, lake, options, cluster, _shifted(progress, done))
            done += chain.stored_bytes
    mirror.trim(lake)


def _known_outcomes(
    chains: Sequence[Chain], lake: Path, options: Options, cluster: str | None
) -> Iterator[Outcome]:
    """Yield the outcomes of small captures that the lake has already."""
    for number, chain in enumerate(chains):
        if chain.stored_bytes < _BYTES_OF_A_CAPTURE:
            with suppress(InputError):  # landing it reports the error
                if known := known_capture(chain, lake, options, cluster):
                    yield Outcome(number, *known, None)


def landed_or_failed(
    number: int,
    chain: Chain,
    lake: Path,
    options: Options,
    cluster: str | None,
    progress: Progress | None = None,
) -> Outcome:
    """Call `land_chain`; return an InputError as an outcome."""
    try:
        account, landed = land_chain(chain, lake, options, cluster, progress)
    except InputError as error:
        account = Account()
        account.miss(str(error))
        return Outcome(number, account, None, error)
    return Outcome(number, account, landed, None)


# -- several processes


class _Task(NamedTuple):
    number: int
    chain: Chain
    lake: Path
    options: Options
    cluster: str | None


def _stop(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def _worker(channel: "Connection") -> None:
    """Run in a worker process: land the tasks that the channel delivers, until it delivers None.

    The terminal sends SIGINT to every process of the group. Workers ignore it: the parent process
    decides, and stops them by SIGTERM, which cleans up an unfinished capture as SIGINT would.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    try:
        while (task := channel.recv()) is not None:
            assert isinstance(task, _Task)
            channel.send(landed_or_failed(*task, _Reporter(channel)))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        return
    except DissectorError as error:
        channel.send(error)


class _Reporter:
    """Sends progress to the parent process, a few times a second at most."""

    _STEP: Final = 16 << 20

    def __init__(self, channel: "Connection") -> None:
        self._channel = channel
        self._reported = 0

    def __call__(self, bytes_read: int) -> None:
        if bytes_read - self._reported >= self._STEP:
            self._reported = bytes_read
            self._channel.send(bytes_read)


class _Workers:
    """The worker processes and their channels."""

    def __init__(self, count: int) -> None:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        self.channels: list[Connection] = []
        self.processes: list[BaseProcess] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_worker, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self.channels.append(ours)
            self.processes.append(process)

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *error: object) -> None:
        for channel, process in zip(self.channels, self.processes, strict=True):
            if error[0] is not None:
                process.terminate()
            channel.close()
        for process in self.processes:
            process.join()


def _land_in_processes(
    tasks: Sequence[_Task], processes: int, progress: Progress | None
) -> Iterator[Outcome]:
    """Land the largest captures first, so that no long one starts last."""
    from multiprocessing.connection import Connection, wait

    waiting = sorted(tasks, key=lambda task: task.chain.stored_bytes)
    running: dict[Connection, _Task] = {}
    read: dict[int, int] = {}
    with _Workers(processes) as workers:
        idle = list(workers.channels)
        while waiting or running:
            while waiting and idle:
                channel, task = idle.pop(), waiting.pop()
                channel.send(task)
                running[channel] = task
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                task = running[ready]
                message = _received(ready, task.chain)
                if isinstance(message, Outcome):
                    del running[ready]
                    idle.append(ready)
                    read[task.number] = task.chain.stored_bytes
                    yield message
                else:
                    read[task.number] = message
                if progress is not None:
                    progress(sum(read.values()))


def _received(channel: "Connection", chain: Chain) -> Outcome | int:
    """Return the next message of a worker; raise the exception that it sent."""
    try:
        message = channel.recv()
    except EOFError:
        raise InputError(
            f"{chain.files[0]}: the process that read it ended without a word, most likely for "
            "want of memory; try -j 1"
        ) from None
    if isinstance(message, DissectorError):
        raise message
    assert isinstance(message, Outcome | int)
    return message
