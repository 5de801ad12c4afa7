"""Landing captures: dissect one and put it into a lake, or many in several processes.

`land_chain` is the whole of it for one capture; the command line and Spark tasks both call it.
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
from dissector.lake.known import known_capture, told_of
from dissector.lake.landing import ConcurrentLanding, Landed, Landing
from dissector.lake.manifest import cut_base_name
from dissector.sources.account import Account
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain

if TYPE_CHECKING:  # what only several processes need takes as long to import as a small capture
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Progress = Callable[[int], None]

# Starting a process and loading the compiled passes there takes a processor as long as 80 MB of
# input, so each shall have more to do; a capture costs as much as so many bytes of it before its
# first packet. Where it is smaller, whether the lake has it already is seen before processes start.
_WORTH_A_PROCESS: Final = 128 << 20
_BYTES_OF_A_CAPTURE: Final = 2 << 20


class Outcome(NamedTuple):
    """What became of one capture: number of its chain; landed is None where error says why not."""

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
    """Dissect one capture into a lake, unless it is there already.

    Args:
        cluster: label of the Pulsar cluster. progress: told the stored bytes read so far.

    Returns:
        What was read, kept and lost; what became of it in the lake.

    Raises:
        InputError: nothing of the capture could be read; the lake is as it was.
        OutputError: the lake could not be written.
    """
    if known := known_capture(chain, lake, options, cluster, progress):
        return known
    while True:
        with Landing(lake, _base_name(chain, options)) as landing:
            account = _write(landing, chain, options, cluster, progress)
            with suppress(ConcurrentLanding):  # then the size of what came meanwhile is known
                is_last = chain.is_stdin
                return account, _commit(landing, account, options, cluster, is_last=is_last)


def land_strictly(
    chains: Sequence[Chain],
    lake: Path,
    options: Options,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Dissect all captures, then put all of them into the lake, or none if a part is missing.

    Raises:
        InputError: a part of the input is missing; the lake is as it was.
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
    """What a capture is compared by with those in the lake: one that is cut on purpose is no
    beginning of the whole one, nor of one that is cut elsewhere."""
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
    told = told_of(options, cluster, account)
    return landing.commit(told, account.as_json(), is_last=is_last)


def _shifted(progress: Progress | None, done: int) -> Progress | None:
    return None if progress is None else lambda bytes_read: progress(done + bytes_read)


def processes_for(chains: Sequence[Chain], jobs: int) -> int:
    """In how many processes of their own captures are landed; 0: in this one, as one capture is
    all but all there is to do, or there is little."""
    work = sorted(chain.stored_bytes + _BYTES_OF_A_CAPTURE for chain in chains)
    beside_largest = sum(work[:-1]) // _WORTH_A_PROCESS
    processes = min(jobs, len(chains), sum(work) // _WORTH_A_PROCESS, 1 + beside_largest)
    return 0 if processes == 1 or any(chain.is_stdin for chain in chains) else processes


def land_chains(
    chains: Sequence[Chain],
    lake: Path,
    options: Options,
    cluster: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Iterator[Outcome]:
    """Land captures one by one or in several processes; yields outcomes as they come.

    A capture that cannot be read is an outcome with its error; the others go on. When the caller
    stops (an exception in it, such as KeyboardInterrupt), captures that are complete stay in the
    lake, unfinished ones leave nothing.

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
    """The outcomes of small captures that the lake has."""
    for number, chain in enumerate(chains):
        if chain.stored_bytes < _BYTES_OF_A_CAPTURE:
            with suppress(InputError):  # which whoever lands it tells
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
    """land_chain, where a capture that cannot be read is an outcome with its error."""
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


def _work(channel: "Connection") -> None:
    """In a process of its own: land what comes through the channel, until it says None.

    The terminal's interrupt reaches every process of the group; here the first process decides, and
    ends the others by SIGTERM, which leaves an unfinished capture as cleanly as an interrupt.
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
    """Sends progress to the first process, a few times a second at most."""

    _STEP: Final = 16 << 20

    def __init__(self, channel: "Connection") -> None:
        self._channel = channel
        self._reported = 0

    def __call__(self, bytes_read: int) -> None:
        if bytes_read - self._reported >= self._STEP:
            self._reported = bytes_read
            self._channel.send(bytes_read)


class _Workers:
    """The processes, each with the chain it works on."""

    def __init__(self, count: int) -> None:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        self.channels: list[Connection] = []
        self.processes: list[BaseProcess] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
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
    """The largest captures first, so that the last one to end is not the longest."""
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
    """The next message of a worker; what it raised is raised here."""
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
