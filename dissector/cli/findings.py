"""The commands findings and explain: what is wrong, and what a name or number means."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dissector.cli.opening import need_inputs_or_lake, opened_lake
from dissector.cli.options import (
    FOLDER,
    Common,
    LocalName,
    capture_option,
    chain_option,
    dissecting_options,
    example,
    json_option,
    lake_option,
)
from dissector.cli.render import json_line, time_text
from dissector.cli.terminal import Paint, counted, safe_text, terminal_width, wrapped
from dissector.errors import UsageError

if TYPE_CHECKING:
    from dissector.findings.finding import Finding
    from dissector.findings.loading import Rule
    from dissector.lake.manifest import Manifest

_COLOURS: Final = {"error": "red", "warning": "yellow", "info": "cyan"}

_rules_option = click.option(
    "--rules", "folder", type=FOLDER, metavar="DIR",
    help="Read rules of this folder, too: docs/writing-a-rule.md.",
)  # fmt: skip


@click.command(
    epilog=example(
        "dissector findings night.pcap\n"
        "dissector findings --lake lake --code D06 --json\n"
        "dissector findings night.pcap --rules my-rules"
    )
)
@click.argument("inputs", nargs=-1, type=LocalName(), metavar="[INPUT]...")
@lake_option("Look at this lake; captures are not read.")
@capture_option("Look at this capture of the lake only. Repeatable.")
@click.option(
    "--code", "codes", multiple=True, metavar="CODE",
    help="Ask this rule only, by number or code. Repeatable.",
)  # fmt: skip
@json_option("Print the findings as JSON.")
@_rules_option
@chain_option
@dissecting_options
def findings(
    common: Common,
    inputs: tuple[str, ...],
    lake: Path | None,
    captures: tuple[str, ...],
    codes: tuple[str, ...],
    is_json: bool,
    folder: Path | None,
    chain: str,
) -> int:
    """Say what is wrong, with the frames that prove it.

    Each finding says what happened, how it is known, what else could look the same, what would
    decide, and what to do; the worst comes first. A rule that cannot be used is named, the others
    go on.
    """
    from dissector.findings.finding import findings_of
    from dissector.findings.loading import load_rules
    from dissector.queries.sandbox import sandbox_over

    need_inputs_or_lake(inputs, lake, captures)
    rules, broken = load_rules(folder)
    for problem in broken:
        common.words.missing(f"rule left out: {problem}")
    rules = _wanted(rules, codes)
    with opened_lake(inputs, lake, common, chain) as opened:
        chosen = [
            one for one in opened.lake.captures if not captures or one.capture_id in captures
        ]
        unknown = sorted(set(captures) - {one.capture_id for one in chosen})
        if unknown:
            raise UsageError(f"{unknown[0]} is not in {lake}: dissector lake list shows what is")
        with sandbox_over(opened.lake._replace(captures=tuple(chosen))) as engine:
            found, failed = findings_of(engine, rules)
        for problem in failed:
            common.words.missing(f"rule left out: {problem}")
        command = _commands(inputs, lake, chosen)
        if is_json:
            rows = [_as_json(one, command(one)) for one in found]
            print(json_line({"findings": rows}, keeps_nulls=True))
        else:
            _print(found, len(rules) - len(failed), command, Paint(common.color))
        return opened.end(common)


def _wanted(rules: Sequence["Rule"], codes: Iterable[str]) -> list["Rule"]:
    """The rules that are named, all if none is."""
    names = {code.lower() for code in codes}
    known = {name for rule in rules for name in (rule.number.lower(), rule.code.lower())}
    for name in sorted(names - known):
        raise UsageError(f"--code {name}: no rule has this number or code")
    return [
        rule for rule in rules if not names or names & {rule.number.lower(), rule.code.lower()}
    ]


def _commands(
    inputs: Sequence[str], lake: Path | None, captures: Iterable["Manifest"]
) -> Callable[["Finding"], str]:
    """What gives the command line that shows the frames of a finding."""
    names = {one.capture_id: [source.file_name for source in one.sources] for one in captures}

    def command(one: "Finding") -> str:
        numbers = ", ".join(str(each.frame_no) for each in one.evidence)
        if lake is not None:
            query = (
                f"select * from frames where capture = '{one.capture}' and frame_no in ({numbers})"
            )
            return f"dissector sql --lake {shlex.quote(str(lake))} {shlex.quote(query)}"
        sources = {Path(name).name for name in names.get(one.capture, ())}
        mine = [name for name in inputs if Path(name).name in sources] or list(inputs)
        files = " ".join(map(shlex.quote, mine))
        return f"dissector frames {files} -Y 'frame_no in ({numbers})'"

    return command


def _as_json(one: "Finding", command: str) -> dict[str, Any]:
    return {
        "id": one.number, "code": one.code, "title": one.title, "severity": one.severity,
        "verdict": one.verdict, "capture": one.capture, "subject": dict(one.subject),
        "first_ts": time_text(one.first_ns), "last_ts": time_text(one.last_ns),
        "incidents": one.incidents, "measured": dict(one.measured),
        "thresholds": dict(one.thresholds), "ruled_out": list(one.ruled_out),
        "evidence": [each._asdict() for each in one.evidence], "text": one.text,
        "command": command,
    }  # fmt: skip


def _print(
    found: Sequence["Finding"], rules: int, command: Callable[["Finding"], str], paint: Paint
) -> None:
    width = terminal_width()
    if not found:
        print(f"no findings; {counted(rules, 'rule')} asked")
        return
    for one in found:
        severity = paint(one.severity, _COLOURS[one.severity])
        print(f"{one.number}  {severity}  {paint(safe_text(one.title), 'bold')}  ({one.verdict})")
        print(
            f"  {time_text(one.first_ns)} to {time_text(one.last_ns)}, "
            f"{counted(one.incidents, 'incident')}, {safe_text(one.capture)}"
        )
        subject = ", ".join(
            f"{name} {safe_text(str(value))}"
            for name, value in one.subject.items() if value is not None
        )  # fmt: skip
        lines = [subject, *map(safe_text, one.text.split("\n"))]
        lines += [f"Ruled out: {safe_text(each)}." for each in one.ruled_out]
        for line in filter(None, lines):
            print("\n".join(wrapped(f"  {line}", width, "    ")))
        for each in one.evidence:
            print(f"  frame {each.frame_no}, packet {each.packet}: {safe_text(each.role)}")
        if one.evidence:
            print(f"  {safe_text(command(one))}")
        print()
    print(f"{counted(len(found), 'finding')}; {counted(rules, 'rule')} asked")


@click.command(
    epilog=example(
        "dissector explain D06\n"
        "dissector explain unacked_limit_plateau\n"
        "dissector explain 369295620\n"
        "dissector explain ChecksumError"
    )
)
@click.argument("name", metavar="CODE|NUMBER|ERROR")
@_rules_option
def explain(name: str, folder: Path | None) -> int:
    """Say what a code, an error or a number means.

    A number is a frame length that a broker complains of; with what people reported and what to
    ask.
    """
    from dissector.findings.explaining import explained
    from dissector.findings.loading import load_rules

    rules, broken = load_rules(folder)
    for problem in broken:
        click.echo(f"dissector: rule left out: {safe_text(str(problem))}", err=True)
    lines = explained(name, rules)
    if not lines:
        raise UsageError(
            f"{name} is no finding, no error of a broker and no frame length that is known"
        )
    width = terminal_width()
    for line in lines:
        print("\n".join(wrapped(safe_text(line), width, "  ")))
    return 0
