"""The commands findings and explain: list faults, and explain names and numbers."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dissector.cli import options, selecting
from dissector.cli.conditions import check_paths, read_conditions
from dissector.cli.engines import Name, chosen, engine_option
from dissector.cli.engines import opened as opened_engine
from dissector.cli.lake_of_command import OpenLake, need_inputs_or_lake, opened_lake, shown_lake
from dissector.cli.local_time import shown_instant, shown_sentence, shown_time
from dissector.cli.options import INPUT_NAME, Common
from dissector.cli.render import json_line
from dissector.cli.report import judge
from dissector.cli.terminal import Paint, counted, safe_text, terminal_width, wrapped
from dissector.errors import UsageError

if TYPE_CHECKING:
    from dissector.findings.finding import Finding
    from dissector.findings.loading import Rule, RuleProblem
    from dissector.queries.selection import Selection
    from dissector.report.example_commands import Commands

Row = dict[str, Any]
_COLOURS: Final = {"error": "red", "warning": "yellow", "info": "cyan"}

_rules_option = click.option(
    "--rules", "folder", type=options.FOLDER, metavar="DIR",
    help="Read rules of this folder, too: docs/writing-a-rule.md.",
)  # fmt: skip


@click.command(
    epilog=options.example(
        "dissector findings night.pcap\n"
        "dissector findings --lake lake --code D06 --json\n"
        "dissector findings night.pcap --rules my-rules\n"
        "dissector findings night.pcap --fail-on 'finding.severity >= error'"
    )
)
@click.argument("inputs", nargs=-1, type=INPUT_NAME, metavar="[INPUT]...")
@options.lake_option("Look at this lake instead of captures.")
@options.capture_option("Look at this capture of the lake only. Repeatable.")
@selecting.selecting_options
@click.option(
    "--code", "codes", multiple=True, metavar="CODE",
    help="Run this rule only, by number or code. Repeatable.",
)  # fmt: skip
@options.json_option("Print the findings as JSON.")
@_rules_option
@options.fail_on_option
@engine_option
@options.master_option
@options.chain_option
@options.dissecting_options
def findings(
    common: Common,
    inputs: tuple[str, ...],
    lake: Path | None,
    captures: tuple[str, ...],
    selected: selecting.Selected,
    codes: tuple[str, ...],
    is_json: bool,
    folder: Path | None,
    fail_on: tuple[str, ...],
    engine: Name,
    master: str | None,
    chain: str,
) -> int:
    """List faults, with the frames that prove them.

    Each finding says what happened, how it is known, what else could look the same, what would
    decide, and what to do; the worst comes first. A rule that cannot be used is named; the others
    run. Of a lake only new captures are read; rules of --rules read all of them.
    """
    from dissector.findings.finding import worst_first
    from dissector.findings.loading import load_rules, named
    from dissector.report.example_commands import Commands
    from dissector.report.sections.findings import as_row

    conditions = read_conditions(fail_on)
    check_paths(conditions)
    need_inputs_or_lake(inputs, lake, captures)
    rules, problems = load_rules(folder)
    rules = named(rules, codes)
    with opened_lake(inputs, lake, common, chain) as opened:
        part = selected.of(opened.lake, captures)
        all_findings, failed, sources = _run_rules(
            opened, rules, captures, part, (engine, master), common
        )
        for problem in (*problems, *failed):
            common.words.missing(f"rule left out: {problem}")
        files = None if opened.reading is None else opened.reading.files_of_captures()
        commands = Commands({"sources": sources}, inputs, files, shown_lake(lake))
        rows = [as_row(one) for one in worst_first(all_findings)]
        if is_json:
            shown = [row | {"command": commands.of_finding(row)} for row in rows]
            said = {} if part.is_everything else {"selection": part.as_json()}
            print(json_line({"findings": shown, **said}, keeps_nulls=True))
        else:
            if not part.is_everything:
                print(safe_text(f"selected{part.words(shown_time)}"))
            if sources and not any(row["packets"] for row in sources):
                print("no packet was captured: there is nothing to judge")
            paint, width = Paint(common.color), terminal_width()
            for line in lines_of(rows, len(rules) - len(failed), commands, paint, width):
                print(line)
        code = opened.end(common)
    return judge(conditions, {"findings": {"findings": rows}}, code, common.words)


def _run_rules(
    opened: OpenLake,
    rules: Sequence["Rule"],
    captures: Sequence[str],
    selection: "Selection",
    engine: tuple[Name, str | None],
    common: Common,
) -> tuple[list["Finding"], list["RuleProblem"], list[Row]]:
    """Run rules over a lake: their findings, the rules that failed, and the captures' files."""
    from dissector.findings.finding import findings_of
    from dissector.findings.querying import rule_queries
    from dissector.findings.running_findings import joined, noted
    from dissector.findings.totals import totals_rules
    from dissector.queries.sandbox import sandbox_over
    from dissector.report import pipeline
    from dissector.report.counted_captures import counted_lake
    from dissector.report.workspace import temporary

    own = {query.rule.file for query in rule_queries().values()}
    own |= {rule.file for rule in totals_rules().rules.values()}
    of_users = [rule for rule in rules if rule.file not in own]
    numbers = frozenset(rule.number for rule in rules if rule.file in own)
    name, why = chosen(*engine, opened.lake.rows())
    common.words.detail(why)
    with (
        temporary() as work,
        opened_engine(name, engine[1], common) as engine_in,
    ):
        all_findings: list[Finding] = []
        failed: list[RuleProblem] = []
        sources: list[Row] = []
        # A tap may have found something before its first rotation is in the lake.
        if opened.lake.captures or not noted(opened.lake.folder):
            all_findings, failed, sources = pipeline.find(
                opened.lake,
                work,
                engine_in,
                captures,
                selection=selection,
                has_memory=opened.reading is None,
                rules=numbers,
                log=common.words.say,
            )
        all_findings = [one for one in all_findings if one.number in numbers]
        if opened.reading is None:
            more = [one for one in noted(opened.lake.folder) if one.number in numbers]
            all_findings = joined(all_findings, [one for one in more if not captures])
        if of_users:
            lake = counted_lake(opened.lake, captures) if opened.lake.captures else opened.lake
            with sandbox_over(lake, folder=work) as sandbox:
                more, broken = findings_of(sandbox, of_users)
            all_findings, failed = [*all_findings, *more], [*failed, *broken]
    of_selection = (
        one for one in all_findings if selection.has(one.first_ns, one.last_ns, one.subject)
    )
    return [*of_selection], failed, sources


def lines_of(
    rows: Sequence[Row],
    rules: int,
    commands: "Commands",
    paint: Paint,
    width: int | None,
) -> Iterator[str]:
    """Findings as lines of text. rules: how many were run."""
    if not rows:
        yield f"no findings; {counted(rules, 'rule')} asked"
        return
    for row in rows:
        severity = paint(row["severity"], _COLOURS[row["severity"]])
        title = paint(safe_text(row["title"]), "bold")
        yield f"{row['id']}  {severity}  {title}  ({row['verdict']})"
        yield (
            f"  {shown_instant(row['first_ts'])} to {shown_instant(row['last_ts'])}, "
            f"{counted(row['incidents'], 'incident')}, "
            f"{safe_text(row['capture'] or 'all captures together')}"
        )
        subject = ", ".join(
            f"{name} {safe_text(str(value))}"
            for name, value in row["subject"].items() if value is not None
        )  # fmt: skip
        lines = [subject, *map(safe_text, shown_sentence(row["text"]).split("\n"))]
        lines += [f"Ruled out: {safe_text(each)}." for each in row["ruled_out"]]
        for line in filter(None, lines):
            yield from wrapped(f"  {line}", width, "    ")
        for each in row["evidence"]:
            yield f"  frame {each['frame_no']}, packet {each['packet']}: {safe_text(each['role'])}"
        if command := commands.of_finding(row):
            yield f"  {paint(safe_text(command), 'cyan')}"
        yield ""
    yield f"{counted(len(rows), 'finding')}; {counted(rules, 'rule')} asked"


@click.command(
    epilog=options.example(
        "dissector explain D06\n"
        "dissector explain unacked_limit_plateau\n"
        "dissector explain 369295620\n"
        "dissector explain ChecksumError\n"
        "dissector explain application_ms\n"
        "dissector explain Exclusive consumer is already connected\n"
        "dissector explain unacked messages limit"
    )
)
@click.argument("words", nargs=-1, required=True, metavar="CODE|NUMBER|ERROR|WORDS...")
@_rules_option
def explain(words: tuple[str, ...], folder: Path | None) -> int:
    """Explain a code, an error, a command or a word.

    Explains columns of tables and their values, numbers of a report, metrics of a tap, commands of
    the protocols, and texts of brokers and clients, with what people reported and what to ask. A
    number is a frame length that a broker complains of. Other words are searched for in findings,
    errors and notices; the best matches are listed.
    """
    from dissector.findings.explaining import explained, searched
    from dissector.findings.loading import load_rules

    rules, broken = load_rules(folder)
    for problem in broken:
        click.echo(f"dissector: rule left out: {safe_text(str(problem))}", err=True)
    name = " ".join(words)
    lines = explained(name, rules)
    if not lines and (lines := searched(name, rules)):
        lines = [*lines, "", "dissector explain CODE says more of one of these."]
    if not lines:
        raise UsageError(
            f"{name!r} is no finding, notice, error, command or word of a table, and no frame "
            "length that is known; fewer words find more, such as: dissector explain timeout"
        )
    width = terminal_width()
    for line in lines:
        print("\n".join(wrapped(safe_text(line), width, "  ")))
    return 0
