"""Commands that give numbers: summary of captures or a lake, report of a lake, analyze of both."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dissector.cli import options, selecting
from dissector.cli.conditions import Condition, check_paths, met, read_conditions
from dissector.cli.engines import Name, chosen, engine_option, opened
from dissector.cli.exits import EXIT_FAIL_ON, EXIT_PARTIAL
from dissector.cli.lake import exit_of_unread
from dissector.cli.lake_of_command import need_inputs_or_lake, opened_lake, say_fetched, shown_lake
from dissector.cli.land import compact_crowded_days, land_inputs
from dissector.cli.options import Common, LakePath
from dissector.cli.over_time import CommandOverTime, over_time_option, table_lines
from dissector.cli.terminal import Messages, Paint, counted, steps_bar, terminal_width
from dissector.errors import OutputError
from dissector.outputs import refuse_inputs_in

if TYPE_CHECKING:
    from dissector.lake.manifests import Manifests
    from dissector.report.pipeline import Scope

_capture_option = options.capture_option("Read this capture of the lake only. Repeatable.")
_output_option = click.option(
    "-o",
    "--output",
    required=True,
    type=options.FOLDER,
    metavar="DIR",
    help="Write to this folder.",
)


class _LakePath(LakePath):
    """Parse a lake; without one, the error says how to create one."""

    def get_missing_message(
        self, param: click.Parameter, ctx: click.Context | None = None
    ) -> str | None:
        return (
            "To report on a capture: dissector analyze night.pcap -o result; to make a lake first: "
            "dissector land night.pcap --lake lake"
        )


_lake_option = options.lake_option(
    "Read this lake.", required=True, type=_LakePath(file_okay=False, path_type=Path)
)


def judge(conditions: Sequence[Condition], numbers: Any, code: int, words: Messages) -> int:
    """The exit code after --fail-on: a met condition takes precedence over partial input."""
    met_conditions = met(conditions, numbers)
    for text in met_conditions:
        words.missing(f"--fail-on: {text}")
    return EXIT_FAIL_ON if met_conditions else code


def _judge_report(
    conditions: Sequence[Condition], report: dict[str, Any], code: int, words: Messages
) -> int:
    """The exit code of a report: partial, with a message, if rules or verdicts failed."""
    failed = report["verdicts"]["total"]["failed"]
    if failed:
        what = counted(failed, "judgement")
        words.missing(f"this program failed at {what}: see the verdicts, and please report it")
        code = code or EXIT_PARTIAL
    return judge(conditions, report, code, words)


def _make_report(
    lake: Path, output: Path, engine: Name, master: str | None, scope: "Scope", common: Common,
    *, rows: int, is_forced: bool, has_lists: bool, manifests: "Manifests",
) -> dict[str, Any]:  # fmt: skip
    """Compute and write the report of a lake. has_lists, manifests: as in `pipeline.write`.

    Raises:
        DependencyError: the engine is missing.
    """
    from dissector.report import pipeline

    compact_crowded_days(lake, common.words)
    name, why = chosen(engine, master, rows)
    common.words.say(why)
    with (
        steps_bar("report", common.is_progress_shown, common.color) as step,
        opened(name, master, common) as engine_in,
    ):
        progress = pipeline.ReportProgress(common.words.say, step)
        made = pipeline.write(
            lake, output, engine_in, scope, progress, is_forced=is_forced, has_lists=has_lists,
            manifests=manifests,
        )  # fmt: skip
    say_fetched(common, lake)
    return made


def check_output(folder: Path, *, is_forced: bool) -> None:
    """Create a report's folder before its contents are computed.

    Raises:
        OutputError: it cannot be created or written, or has other contents than a report.
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
    """Refuse to write a report over its own lake.

    Raises:
        OutputError: the lake is the folder, or one is inside replaced parts of the other.
    """
    from dissector.report.output import NAMES

    target, source = Path(os.path.realpath(output)), Path(os.path.realpath(lake))
    parts = [target / name for name in NAMES]
    if target.is_relative_to(source) or any(source.is_relative_to(part) for part in parts):
        raise OutputError(f"{output} is in the lake {lake}, or the lake in it: choose another -o")


@click.command(
    cls=CommandOverTime,
    epilog=options.example(
        "dissector summary night.pcap\n"
        "dissector summary night.pcap --since -30m --over-time=1m\n"
        "dissector summary night.pcap --json | jq .send_latency.total\n"
        "dissector summary --lake lake --capture c-night-0123456789ab\n"
        "dissector summary night.pcap --fail-on 'checksum_failures.total.mismatch > 0'"
    ),
)
@options.inputs_or_lake_argument
@options.lake_option("Read this lake instead of captures.")
@_capture_option
@selecting.selecting_options
@over_time_option
@options.json_option("Print the whole report as JSON.")
@options.exact_option
@options.fail_on_option
@options.chain_option
@options.dissecting_options
def summary(
    common: Common,
    inputs: tuple[str, ...],
    lake: Path | None,
    captures: tuple[str, ...],
    selected: selecting.Selected,
    width_ns: int | None,
    is_json: bool,
    exact: bool,
    fail_on: tuple[str, ...],
    chain: str,
) -> int:
    """Print the numbers of a report, without Java.

    Captures are landed in a temporary folder ($TMPDIR) and counted there.
    """
    conditions = read_conditions(fail_on)
    check_paths(conditions)
    need_inputs_or_lake(inputs, lake, captures)
    from dissector.cli.text_report import text_report
    from dissector.queries.duckdb_engine import DuckdbEngine
    from dissector.report import pipeline
    from dissector.report.counted_captures import captures_that_count
    from dissector.report.example_commands import Commands
    from dissector.report.output import report_text
    from dissector.report.over_time import over_time
    from dissector.report.workspace import temporary

    with opened_lake(inputs, lake, common, chain, may_be_partial=True) as opened:
        reading = opened.reading
        with temporary() as work:
            scope = pipeline.Scope(captures, selected.of(opened.lake, captures), exact)
            engine = partial(DuckdbEngine, threads=common.jobs)
            if reading is None:
                result = pipeline.numbers(opened.lake, work, engine, scope, common.words.say)
            else:
                counted = captures_that_count(opened.lake, log=common.words.say)
                made = pipeline.make_report(
                    opened.lake, work, engine, scope, has_memory=False, counted=counted
                )
                result = made.report
            if width_ns is not None:
                result["over_time"] = over_time(
                    opened.lake, work, common.jobs, captures, scope.selection, width_ns or None
                )
            code = opened.end(common)
    if is_json:
        print(report_text(result), end="")
    else:
        files = None if reading is None else reading.files_of_captures()
        commands = Commands(result, inputs, files, shown_lake(lake))
        paint, width = Paint(common.color), terminal_width()
        for line in text_report(result, paint, width, commands, exact):
            print(line)
        if width_ns is not None:
            print(
                "", *table_lines(result["over_time"], paint, has_bars=sys.stdout.isatty()), sep="\n"
            )
    return code if opened.is_interrupted else _judge_report(conditions, result, code, common.words)


@click.command(epilog=options.example("dissector report --lake lake -o report"))
@_lake_option
@_output_option
@_capture_option
@selecting.selecting_options
@click.option(
    "--new",
    "is_new",
    is_flag=True,
    help="Read only captures that landed since the last report in DIR.",
)
@engine_option
@options.master_option
@options.exact_option
@options.fail_on_option
@options.force_option
@options.private_option
@options.speaking_options
def report(
    common: Common,
    lake: Path,
    output: Path,
    captures: tuple[str, ...],
    selected: selecting.Selected,
    is_new: bool,
    engine: Name,
    master: str | None,
    exact: bool,
    fail_on: tuple[str, ...],
    force: bool,
) -> int:
    """Write the report of a lake.

    Writes report.html, report.json and tables/ to DIR, replacing an earlier report. The lake caches
    results of each capture: the next report reads only new ones. Spark needs Java 17 or newer.
    """
    conditions = read_conditions(fail_on)
    check_paths(conditions, is_of_lake=True)
    from dissector.lake.manifests import Manifests
    from dissector.lake.reader import open_lake
    from dissector.report.pipeline import Scope

    manifests = Manifests(lake)  # errors in them end the command before any work
    with open_lake(lake, manifests) as there:
        code = 0 if captures else exit_of_unread(common, there)
        scope, rows = Scope(captures, selected.of(there, captures), exact), there.rows()
    _refuse_lake(output, lake)
    check_output(output, is_forced=force)
    if is_new:
        common.words.detail("--new is how every report is made: what is known is not read again")
    result = _make_report(
        lake, output, engine, master, scope, common, rows=rows, is_forced=force, has_lists=False,
        manifests=manifests,
    )  # fmt: skip
    print(output / "report.html")
    return _judge_report(conditions, result, code, common.words)


@click.command(
    epilog=options.example(
        "dissector analyze night.pcap -o result    # then open result/report/report.html"
    )
)
@options.inputs_argument
@_output_option
@selecting.selecting_options
@options.cluster_option
@engine_option
@options.master_option
@options.exact_option
@options.fail_on_option
@options.force_option
@options.private_option
@options.chain_option
@options.dissecting_options
def analyze(
    common: Common,
    inputs: tuple[str, ...],
    output: Path,
    selected: selecting.Selected,
    cluster: str | None,
    engine: Name,
    master: str | None,
    exact: bool,
    fail_on: tuple[str, ...],
    force: bool,
    chain: str,
) -> int:
    """Land captures and write the report.

    Writes DIR/lake and DIR/report; other files in DIR stay. Prints the main numbers and the path of
    the report. The lake always contains the whole captures.
    """
    conditions = read_conditions(fail_on)
    check_paths(conditions, is_of_lake=True)
    refuse_inputs_in([output / "report"], inputs, "-o")
    check_output(output / "report", is_forced=force)
    from dissector.cli.text_report import text_report
    from dissector.lake.manifests import Manifests
    from dissector.lake.reader import open_lake
    from dissector.report.example_commands import Commands
    from dissector.report.pipeline import Scope

    reading, _, is_interrupted = land_inputs(inputs, output / "lake", common, chain, cluster)
    if is_interrupted:
        return reading.end(is_interrupted)
    manifests = Manifests(output / "lake")
    with open_lake(output / "lake", manifests) as there:
        scope, rows = Scope(selection=selected.of(there), is_exact=exact), there.rows()
    result = _make_report(
        output / "lake", output / "report", "duckdb" if engine == "auto" and not master else engine,
        master, scope, common, rows=rows, is_forced=force, has_lists=True,
        manifests=manifests,
    )  # fmt: skip
    paint, width = Paint(common.color), terminal_width()
    for line in text_report(result, paint, width, Commands(result, inputs), exact):
        print(line)
    print(f"report: {output / 'report' / 'report.html'}")
    return _judge_report(conditions, result, reading.end(), common.words)
