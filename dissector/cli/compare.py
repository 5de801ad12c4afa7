"""The command compare: compares two runs, for people and for unattended jobs."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dissector.cli import options, selecting
from dissector.cli.conditions import met, read_conditions
from dissector.cli.lake_of_command import opened_lake
from dissector.cli.options import INPUT_NAME, Common
from dissector.cli.reading import STDIN
from dissector.cli.report import judge
from dissector.cli.terminal import Paint, safe_text, terminal_width, wrapped
from dissector.errors import UsageError, needs
from dissector.limits import MAX_SHOWN_INPUTS
from dissector.outputs import new_file, written

if TYPE_CHECKING:
    from dissector.compare.runs import Run

_STYLES: Final = {"worse": "red", "better": "green", "no evidence": "dim"}
_EXPRESSIONS: Final = {
    "worse": "verdicts.worse > 0",
    "better": "verdicts.better > 0",
    "not-comparable": "verdicts.not_comparable > 0",
}
_NUMBERS: Final = ("worse", "better", "no_evidence", "not_comparable")


@click.command(
    epilog=options.example(
        "dissector compare before.pcap after.pcap\n"
        "dissector compare lake-1.4 lake-1.5 --metric send_latency --fail-on worse\n"
        "dissector compare before.pcap after.pcap --markdown >> $GITHUB_STEP_SUMMARY"
    )
)
@click.argument("before", type=INPUT_NAME, metavar="BEFORE")
@click.argument("after", type=INPUT_NAME, metavar="AFTER")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME",
    help="Compare this metric only: send_latency.p99. Repeatable.",
)  # fmt: skip
@selecting.names_options
@selecting.no_selecting_options(
    "a time of one run is none of the other: make a report of each (dissector report --since) and "
    "compare these",
    "since", "until",
)  # fmt: skip
@click.option(
    "--confidence", type=click.FloatRange(50, 99.9), default=95.0, show_default=True,
    metavar="PERCENT", help="Be so sure that equal runs get no verdict at all.",
)  # fmt: skip
@click.option(
    "--least", type=click.FloatRange(0, 1000), default=0.0, show_default=True, metavar="PERCENT",
    help="Ignore changes that are not surely larger.",
)  # fmt: skip
@options.json_option("Print the comparison as JSON.")
@click.option("--markdown", "is_markdown", is_flag=True, help="Print Markdown for a pull request.")
@click.option(
    "--html", type=options.FILE, metavar="FILE",
    help="Write a page to this file, too.",
)  # fmt: skip
@options.fail_on_option
@options.force_option
@options.chain_option
@options.dissecting_options
def compare(
    common: Common,
    before: str,
    after: str,
    metrics: tuple[str, ...],
    selected: selecting.Selected,
    confidence: float,
    least: float,
    is_json: bool,
    is_markdown: bool,
    html: Path | None,
    fail_on: tuple[str, ...],
    force: bool,
    chain: str,
) -> int:
    """Compare two runs: is one worse?

    BEFORE and AFTER are captures, lakes, or reports (a folder or report.json, of which less can be
    tested). Each metric gets a verdict: worse, better, no evidence, or not comparable. If nothing
    changed, any of them says worse or better in 5 % of comparisons at most. docs/compare.md
    explains how, and shows a job in CI. --fail-on accepts worse, or an EXPR over the JSON; worse is
    also met if nothing could be tested.
    """
    if is_json and is_markdown:
        raise UsageError("--json and --markdown exclude each other")
    if before == after == STDIN:
        raise UsageError("only one run can come from standard input")
    for text in fail_on:
        if text.isalpha() and text not in _EXPRESSIONS:
            known = ", ".join(_EXPRESSIONS)
            raise UsageError(f"--fail-on: {text} is none of {known}; or write verdicts.worse > 3")
    conditions = read_conditions([_EXPRESSIONS.get(text, text) for text in fail_on])
    if {"worse", "better"} & {*fail_on}:
        # A job that asks for a verdict must not pass because there was none.
        (nothing,) = read_conditions(["tests == 0"])
        conditions.append(nothing._replace(text="tests == 0: nothing could be tested"))
    met(conditions, {"tests": 0, "verdicts": dict.fromkeys(_NUMBERS, 0)})
    target = None if html is None else new_file(html, [before, after], is_forced=force)
    from dissector.compare.comparing import compared
    from dissector.compare.facts import differences, facts, must_be_comparable, sentence
    from dissector.compare.questions import Choice, must_be_metrics

    must_be_metrics(metrics)
    choice = Choice(confidence / 100, metrics, least / 100)
    one, code = _run(before, selected, common, chain)
    other, other_code = _run(after, selected, common, chain)
    must_be_comparable(one, other)
    comparison = compared(one, other, choice)
    comparison |= {
        "before": facts(one) | {"sentence": sentence(one)},
        "after": facts(other) | {"sentence": sentence(other)},
        "coverage_differences": differences(one, other, comparison["topics"]),
    }
    if target is not None:
        with needs("report", "without --html the comparison is printed"):
            from dissector.compare.page import page
            from dissector.compare.pictures import curves

            drawn = curves(one, other, comparison["metrics"])
            content = page(comparison, drawn).encode()
        with written(target, is_forced=force) as file:
            file.write(content)
    if is_json:
        from dissector.report.output import report_text

        print(report_text(comparison), end="")
    elif is_markdown:
        from dissector.compare.markdown import markdown

        print(markdown(comparison), end="")
    else:
        for line in _text_report(comparison, Paint(common.color), terminal_width()):
            print(line)
    return judge(conditions, comparison, max(code, other_code), common.words)


def _run(name: str, selected: selecting.Selected, common: Common, chain: str) -> tuple["Run", int]:
    """Read one side; return it and the exit code of reading.

    Raises:
        InputError: it cannot be read, or is empty. UsageError: it has no rows of the topics.
    """
    from dissector.compare.lake_run import run_of_lake
    from dissector.compare.report_run import report_file, run_of_report

    lake = _lake(Path(name)) if name != STDIN else None
    report = report_file(Path(name)) if name != STDIN and lake is None else None
    if report is not None:
        return run_of_report(report, safe_text(name), selected.of_reports()), 0
    with (
        opened_lake((name,), lake, common, chain) as opened,
        tempfile.TemporaryDirectory(prefix="dissector-") as work,
    ):
        what = selected.of(opened.lake)
        shown, log = safe_text(name), common.words.say
        run = run_of_lake(opened.lake, shown, Path(work), common.jobs, what, log)
        return run, opened.end(common)


def _lake(path: Path) -> Path | None:
    """The lake in a folder, or in a folder of `dissector analyze`; None if there is none.

    An empty lake has no manifest: it is recognised by the folders of its tables.
    """
    from dissector.lake.manifest import MANIFEST_FOLDER

    for folder in (path, path / "lake"):
        if (folder / MANIFEST_FOLDER).is_dir():
            return folder
    return None


# -- output


def _text_report(comparison: dict[str, Any], paint: Paint, width: int | None) -> Iterator[str]:
    """The comparison as lines of text."""
    from dissector.compare.wording import HEADINGS, headline, left_out, lines, repeats

    for word in ("before", "after"):
        yield from wrapped(f"{word:<7} {safe_text(comparison[word]['sentence'])}", width, " " * 8)
    for text in comparison["coverage_differences"]:
        yield from wrapped(f"  {safe_text(text)}", width, "    ")
    yield ""
    yield from (paint(line, "bold") for line in wrapped(headline(comparison), width))
    rows = list(lines(comparison))
    sizes = [
        max(len(heading), *(len(line.cells[at]) for line in rows)) if rows else 0
        for at, heading in enumerate(HEADINGS)
    ]
    last = None
    for line in rows:
        if line.topic != last:
            last = line.topic
            yield ""
            yield from wrapped(paint(safe_text(line.topic), "bold"), width)
            yield paint(_cells(HEADINGS, sizes), "dim")
        text = _cells(line.cells, sizes)
        yield paint(text[: sizes[0] + 2], _STYLES[line.verdict]) + text[sizes[0] + 2 :]
    same = list(repeats(comparison))
    if same:
        yield ""
        for text in same:
            yield from wrapped(f"  {safe_text(text)}", width, "    ")
    reasons = list(left_out(comparison))
    if reasons:
        yield ""
        yield paint("not comparable", "bold")
    for reason, names in reasons:
        shown = ", ".join(names[:MAX_SHOWN_INPUTS])
        more = f" … ({len(names)} in all)" if len(names) > MAX_SHOWN_INPUTS else ""
        yield from wrapped(f"  {safe_text(reason)}: {safe_text(shown)}{more}", width, "    ")


def _cells(cells: Sequence[str], sizes: Sequence[int]) -> str:
    """A line of aligned cells: words to the left, numbers to the right."""
    parts = [
        f"{cell:>{size}}" if 2 <= at <= 5 else f"{cell:<{size}}"
        for at, (cell, size) in enumerate(zip(cells, sizes, strict=True))
    ]
    return f"  {'  '.join(parts)}".rstrip()
