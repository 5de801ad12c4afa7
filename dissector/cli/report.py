"""Commands that give numbers: summary (in this process), report (by Spark), analyze (both ways)."""

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dissector.cli.conditions import Condition, check_paths, met, read_conditions
from dissector.cli.exits import EXIT_FAIL_ON
from dissector.cli.lake import exit_of_unread
from dissector.cli.land import land_inputs
from dissector.cli.options import (
    Common,
    LocalPath,
    chain_option,
    cluster_option,
    dissecting_options,
    example,
    force_option,
    inputs_argument,
    private_option,
    speaking_options,
)
from dissector.cli.terminal import Paint, Words, steps_bar, terminal_width
from dissector.errors import DependencyError, OutputError
from dissector.outputs import refuse_inputs_in

_exact_option = click.option("--exact", is_flag=True, help="Compute percentiles from all values.")
_fail_on_option = click.option(
    "--fail-on",
    multiple=True,
    metavar="EXPR",
    help="Exit 6 if this is true of the report. Repeatable.",
)
_master_option = click.option(
    "--master", metavar="URL", help="Run on this Spark master.  [default: local[*]]"
)
_output_option = click.option(
    "-o",
    "--output",
    required=True,
    type=LocalPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write to this folder.",
)


class _LakePath(LocalPath):
    """A lake; where none is named, how to get one."""

    def get_missing_message(
        self, param: click.Parameter, ctx: click.Context | None = None
    ) -> str | None:
        return (
            "To report on a capture: dissector analyze night.pcap -o result; to make a lake first: "
            "dissector land night.pcap --lake lake"
        )


_lake_option = click.option(
    "--lake",
    required=True,
    type=_LakePath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Read this lake.",
)


def _judge(conditions: Sequence[Condition], numbers: Any, code: int, words: Words) -> int:
    """The exit code after --fail-on: a condition that is met goes before a partial input."""
    found = met(conditions, numbers)
    for text in found:
        words.missing(f"--fail-on: {text}")
    return EXIT_FAIL_ON if found else code


def _run_spark(
    lake: Path,
    output: Path,
    master: str | None,
    is_exact: bool,
    captures: Sequence[str] = (),
    **part: Any,
) -> dict[str, Any]:
    """Run all Spark jobs over a lake, or over some captures of it.

    Raises:
        DependencyError: Spark or Java is missing.
    """
    try:
        job = importlib.import_module("spark_jobs.report")
    except ImportError as error:
        raise DependencyError(
            f"{error.name or 'Spark'} is missing, a report needs it: "
            "pip install 'pulsar-dissector[spark,jvm]'; `dissector summary` works without"
        ) from error
    result: dict[str, Any] = job.write_report(
        lake, output, captures=captures, is_exact=is_exact, master=master, **part
    )
    return result


def check_output(folder: Path, *, is_forced: bool) -> None:
    """Make a folder for a report, before time is spent on what goes into it.

    Raises:
        OutputError: it cannot be made or written, or holds what is no report.
    """
    from dissector.report.output import check_report_folder

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot make {folder}: {error.strerror}; choose another folder with -o"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write to {folder}; choose another folder with -o")
    check_report_folder(folder, is_forced=is_forced)


def _refuse_lake(output: Path, lake: Path) -> None:
    """Refuse to write a report over the lake that it is made from.

    Raises:
        OutputError: the lake is the folder, or one of them lies in what is replaced of the other.
    """
    from dissector.report.output import NAMES

    target, source = Path(os.path.realpath(output)), Path(os.path.realpath(lake))
    parts = [target / name for name in NAMES]
    if target.is_relative_to(source) or any(source.is_relative_to(part) for part in parts):
        raise OutputError(f"{output} is in the lake {lake}, or the lake in it: choose another -o")


@click.command(
    epilog=example(
        "dissector summary night.pcap\n"
        "dissector summary night.pcap --json | jq .send_latency.total\n"
        "dissector summary night.pcap --fail-on 'checksum_failures.total.mismatch > 0'"
    )
)
@inputs_argument
@click.option("--json", "is_json", is_flag=True, help="Print the whole report as JSON.")
@_fail_on_option
@chain_option
@dissecting_options
def summary(
    common: Common,
    inputs: tuple[str, ...],
    is_json: bool,
    fail_on: tuple[str, ...],
    chain: str,
) -> int:
    """Print the numbers of a report, without Java."""
    conditions = read_conditions(fail_on)
    check_paths(conditions)
    from dissector.cli.outline import outline
    from dissector.cli.reading import Reading
    from dissector.report.commands import Commands
    from dissector.report.summary import Summary

    reading = Reading(inputs, common, chain)
    numbers = Summary()
    is_interrupted = False
    try:
        for found, block in reading.blocks("reading", want_detail="none"):
            # The id is known at the end of a capture; until then its files stand for it.
            numbers.add_block(block, "\n".join(found.shown_names))
    except KeyboardInterrupt:
        is_interrupted = True
    code = reading.end(is_interrupted)
    result = numbers.result(
        {
            "\n".join(found.shown_names): reading.capture_ids.get(found, found.base_name)
            for found in reading.chains
        }
    )
    if is_json:
        print(json.dumps(result, indent=1))
    else:
        ids = reading.capture_ids
        files = {ids.get(found, found.base_name): found.files for found in reading.chains}
        commands = Commands(result, inputs, files)
        for line in outline(result, Paint(common.color), terminal_width(), commands):
            print(line)
    return code if is_interrupted else _judge(conditions, result, code, common.words)


@click.command(epilog=example("dissector report --lake lake -o report"))
@_lake_option
@_output_option
@click.option(
    "--capture",
    "captures",
    multiple=True,
    metavar="ID",
    help="Read this capture only. Repeatable.",
)
@click.option("--since", metavar="T", help="Read from this time on, UTC: 2026-01-31T12:00.")
@click.option("--until", metavar="T", help="Read up to this time, UTC.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Read this topic and its partitions only. Repeatable.",
)
@click.option(
    "--new",
    "is_new",
    is_flag=True,
    help="Read only captures that landed since the last report in DIR.",
)
@_master_option
@_exact_option
@_fail_on_option
@force_option
@private_option
@speaking_options
def report(
    common: Common,
    lake: Path,
    output: Path,
    captures: tuple[str, ...],
    since: str | None,
    until: str | None,
    topics: tuple[str, ...],
    is_new: bool,
    master: str | None,
    exact: bool,
    fail_on: tuple[str, ...],
    force: bool,
) -> int:
    """Run the Spark jobs over a lake.

    DIR gets report.html, report.json and tables/, in the place of an earlier report. Needs Java 17
    or newer.
    """
    conditions = read_conditions(fail_on)
    check_paths(conditions, is_of_lake=True)
    from dissector.lake.reader import open_lake

    with open_lake(lake) as opened:  # what is wrong with it is said before Spark starts
        code = 0 if captures else exit_of_unread(common, opened)
    _refuse_lake(output, lake)
    check_output(output, is_forced=force)
    part = {
        "since": since, "until": until, "topics": topics, "is_new": is_new, "is_forced": force,
    }  # fmt: skip
    with steps_bar("sections", common.is_progress_shown) as step:
        result = _run_spark(
            lake, output, master, exact, captures, **part, tell=common.words.say, step=step
        )
    print(output / "report.html")
    return _judge(conditions, result, code, common.words)


@click.command(
    epilog=example(
        "dissector analyze night.pcap -o result    # then open result/report/report.html"
    )
)
@inputs_argument
@_output_option
@cluster_option
@_master_option
@_exact_option
@_fail_on_option
@force_option
@private_option
@chain_option
@dissecting_options
def analyze(
    common: Common,
    inputs: tuple[str, ...],
    output: Path,
    cluster: str | None,
    master: str | None,
    exact: bool,
    fail_on: tuple[str, ...],
    force: bool,
    chain: str,
) -> int:
    """Land captures and write the report.

    Writes DIR/lake and DIR/report; what else is in DIR stays. Prints the main numbers and the path
    of the report.
    """
    conditions = read_conditions(fail_on)
    check_paths(conditions, is_of_lake=True)
    refuse_inputs_in([output / "report"], inputs, "-o")
    check_output(output / "report", is_forced=force)
    from dissector.cli.outline import outline
    from dissector.report.commands import Commands

    reading, _, is_interrupted = land_inputs(inputs, output / "lake", common, chain, cluster)
    if is_interrupted:
        return reading.end(is_interrupted)
    common.words.say("running the Spark jobs")
    with steps_bar("sections", common.is_progress_shown) as step:
        result = _run_spark(
            output / "lake", output / "report", master, exact, is_forced=force, step=step
        )
    for line in outline(result, Paint(common.color), terminal_width(), Commands(result, inputs)):
        print(line)
    print(f"report: {output / 'report' / 'report.html'}")
    return _judge(conditions, result, reading.end(), common.words)
