"""The command land: captures into a lake."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from dissector.cli import options as cli_options
from dissector.cli import selecting
from dissector.cli.options import Command, Common
from dissector.cli.terminal import Messages, bytes_text, counted, progress_bar
from dissector.errors import DissectorError, OutputError
from dissector.options import LANDING
from dissector.outputs import refuse_inputs_in

if TYPE_CHECKING:
    from dissector.cli.reading import Reading
    from dissector.lake.land import Outcome


def land_inputs(
    inputs: Sequence[str],
    lake: Path,
    common: Common,
    mode: str = "auto",
    cluster: str | None = None,
    core: dict[str, Any] | None = None,
) -> tuple["Reading", list["Outcome"], bool]:
    """Land all inputs of a command line.

    Args:
        core: further options of the core, by their names there.

    Returns:
        The reading with its account, the outcome of each capture, and whether the user stopped it.

    Raises:
        InputError: nothing could be read, or with --strict: not everything.
        OutputError: the lake could not be written.
    """
    from dissector.cli.reading import Reading
    from dissector.lake.land import land_chains, land_strictly, processes_for

    refuse_lake_inputs(lake, inputs)
    reading = Reading(inputs, common, mode)
    options = common.core_options(**(core or {}))
    outcomes: list[Outcome] = []
    is_interrupted = False
    if processes_for(reading.chains, common.jobs) and not common.is_strict:
        compile_once()
    with progress_bar(
        "landing", reading.total_bytes, common.is_progress_shown, common.color
    ) as progress:
        try:
            if common.is_strict:
                reading.refuse_if_partial()
                outcomes = land_strictly(reading.chains, lake, options, cluster, progress)
            else:
                for outcome in land_chains(
                    reading.chains, lake, options, cluster, common.jobs, progress
                ):
                    outcomes.append(outcome)
        except KeyboardInterrupt:
            is_interrupted = True
        except OutputError:
            for outcome in outcomes:
                if outcome.landed is not None:
                    common.words.missing(f"{outcome.landed.capture_id}: landed, and stays")
            raise
    note_outcomes(reading, outcomes)
    return reading, outcomes, is_interrupted


@contextmanager
def temporary_lake(
    inputs: Sequence[str], common: Common, mode: str, core: dict[str, Any] | None = None
) -> Iterator[tuple[Path, "Reading", bool]]:
    """A temporary lake of captures, removed after the body.

    Args:
        core: as for `land_inputs`.

    Yields:
        The lake, the reading with its account, and whether the user stopped it.

    Raises:
        OutputError: the folder of temporary files is full; the text says how much was written.
        KeyboardInterrupt: the user stopped it before a capture was landed.
    """
    from dissector.lake.install import begin_temporary
    from dissector.report.workspace import temporary

    with temporary() as folder:
        lake = folder / "lake"
        begin_temporary(lake)
        try:
            reading, outcomes, is_interrupted = land_inputs(inputs, lake, common, mode, core=core)
        except OutputError as error:
            lake_bytes = sum(path.stat().st_size for path in lake.rglob("*") if path.is_file())
            raise OutputError(
                f"the tables of the captures do not fit into {folder.parent}, of which they "
                f"took {bytes_text(lake_bytes)} so far: name another folder with TMPDIR, or land "
                "them in a lake (dissector land) and name that with --lake"
            ) from error
        if is_interrupted and not any(outcome.landed for outcome in outcomes):
            raise KeyboardInterrupt
        yield lake, reading, is_interrupted


def compile_once() -> None:
    """Compile missing kernels once, before several processes each do so without messages."""
    from dissector.cli.compiling import is_needed
    from dissector.cli.warming import warm_up

    if is_needed():
        warm_up(cli_options.usable_cpus())


def refuse_lake_inputs(lake: Path, inputs: Sequence[str]) -> None:
    """Refuse inputs that lie in the folders of a lake's tables, where they could be replaced.

    Raises:
        OutputError: there is one.
    """
    from dissector.lake.install import FOLDERS

    refuse_inputs_in([lake / name for name in FOLDERS], inputs, "--lake")


def note_outcomes(reading: "Reading", outcomes: list["Outcome"]) -> None:
    """Add outcomes to the account of a reading, in the order of the command line; print them.

    Raises:
        InputError: nothing could be read.
    """
    outcomes.sort(key=lambda outcome: outcome.number)
    for outcome in outcomes:
        reading.account.merge(outcome.account)
        if outcome.landed is not None:
            reading.capture_ids[reading.chains[outcome.number]] = outcome.landed.capture_id
        _tell(outcome, reading.common.words)
    _tell_unchanged(outcomes, reading.common.words)
    if outcomes and all(outcome.landed is None for outcome in outcomes):
        from dissector.cli.reading import raise_last_missing

        raise_last_missing(reading.account, reading.common.words)


def _tell(outcome: "Outcome", words: Messages) -> None:
    """Print a line about a landed capture, and the lake's remarks on it."""
    if outcome.landed is None:
        return
    landed = outcome.landed
    for sentence in landed.sentences:
        words.say(sentence)
    if landed.outcome == "installed":
        what = f"landed, {bytes_text(landed.bytes)}"
        if landed.replaced:
            what += f", in place of {', '.join(landed.replaced)}"
    elif landed.outcome == "unchanged":
        what = "was there already, unchanged"
    else:
        what = "not landed, a longer version is there"
    words.detail(f"{landed.capture_id}: {what}")


def _tell_unchanged(outcomes: Sequence["Outcome"], words: Messages) -> None:
    """Print one line about the captures that were there already and have no line of their own."""
    names = [
        outcome.landed.capture_id
        for outcome in outcomes
        if outcome.landed and outcome.landed.outcome == "unchanged" and not outcome.landed.sentences
    ]
    if names:
        which = f"{names[0]} was" if len(names) == 1 else f"{counted(len(names), 'capture')} were"
        words.say(f"{which} in the lake already, unchanged")


class LandOptions(NamedTuple):
    """The options of a landing command, without those that all commands share.

    core: further options of the core, by their names there.
    """

    inputs: tuple[str, ...]
    lake: Path
    cluster: str | None
    tallies: bool
    chain: str
    core: dict[str, Any]


_INPUTS_AND_LAKE: Final = (
    cli_options.inputs_argument,
    click.option(
        "--lake",
        required=True,
        type=cli_options.LAKE,
        metavar="LAKE",
        help="Write to this lake.",
    ),
    cli_options.cluster_option,
)
_CORE: Final = cli_options.core_flags(LANDING)
_MORE: Final = (
    click.option(
        "--tallies", is_flag=True, help="Count at once, so that the next report has less to do."
    ),
    cli_options.private_option,
    selecting.no_selecting_options(
        "a lake holds whole captures, since rows of a time rest on what came before it: "
        "dissector summary or report --lake takes it"
    ),
    cli_options.chain_option,
    cli_options.dissecting_options,
)


def landing_options(command: Command) -> Command:
    """Add the options of landing to a command: inputs, how to read them, and the lake.

    The command receives `common`, `landing` (a `LandOptions`), and its own options.
    """

    @wraps(command)
    def collected(**values: Any) -> Any:
        core = {name: values.pop(name) for name in _CORE}
        own = {name: values.pop(name) for name in LandOptions._fields if name != "core"}
        return command(landing=LandOptions(**own, core=core), **values)

    decorated: Any = collected
    for option in reversed((*_INPUTS_AND_LAKE, *_CORE.values(), *_MORE)):
        decorated = option(decorated)
    result: Command = decorated
    return result


@click.command(
    epilog=cli_options.example(
        "dissector land night.pcap --lake lake\n"
        "dissector land /var/tap/ring.pcap* --lake lake --cluster east\n"
        "zstdcat night.pcap.zst | dissector land - --lake lake"
    )
)
@landing_options
def land(common: Common, landing: LandOptions) -> int:
    """Dissect captures into Parquet tables, the lake.

    Prints the id of each capture. Landing the same bytes again changes nothing.
    """
    reading, outcomes, is_interrupted = land_inputs(
        landing.inputs, landing.lake, common, landing.chain, landing.cluster, landing.core
    )
    return end_landing(reading, outcomes, landing, is_interrupted)


def _aggregate(lake: Path, common: Common) -> None:
    """Compute and cache the rows that reports of a lake need."""
    from dissector.queries.duckdb_engine import DuckdbEngine
    from dissector.report.pipeline import aggregate
    from dissector.report.workspace import temporary

    with temporary() as work:
        aggregate(lake, work, partial(DuckdbEngine, threads=common.jobs))


def compact_crowded_days(lake: Path, words: Messages, days: Collection[str] | None = None) -> None:
    """Compact days with many captures, in a lake that may be written; days: None for all. A failure
    loses nothing, so it is printed and is no error."""
    from dissector.lake import mirror
    from dissector.lake.manifests import crowded_days
    from dissector.lake.partitions import day_of

    if not crowded_days(lake) or not mirror.may_change(lake):
        return
    # What reads a lake takes a tenth of the time of a small landing to import.
    from dissector.lake.retention import compact_crowded

    try:
        made = compact_crowded(lake, days)
    except DissectorError as error:
        words.say(f"days of many captures stay as they are: {error}")
        return
    for group in made.groups:
        day = day_of(group.first_ts_ns)
        words.say(f"{day}: {counted(len(group.replaces), 'capture')} compacted")


def end_landing(
    reading: "Reading", outcomes: Sequence["Outcome"], landing: LandOptions, is_interrupted: bool
) -> int:
    """Aggregate the landed captures if requested, print their ids and the account of reading;
    return the exit code."""
    days = {outcome.landed.day for outcome in outcomes if outcome.landed is not None}
    if not is_interrupted:
        compact_crowded_days(landing.lake, reading.common.words, days)
    if landing.tallies and not is_interrupted:
        _aggregate(landing.lake, reading.common)
    for outcome in outcomes:
        if outcome.landed is not None:
            print(outcome.landed.capture_id)
    from dissector.lake.mirror import shown

    landed = sum(outcome.landed is not None for outcome in outcomes)
    reading.common.words.detail(f"{counted(landed, 'capture')} in {shown(landing.lake)}")
    return reading.end(is_interrupted)
