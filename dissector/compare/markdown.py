"""A comparison as Markdown that fits a pull request: what changed, the rest folded away."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dissector.compare.comparing import NO_EVIDENCE
from dissector.compare.wording import HEADINGS, ResultLine, headline, left_out, lines, repeats
from dissector.limits import MAX_MARKDOWN_LINES, MAX_MARKDOWN_NAMES
from dissector.report.formatting import many
from dissector.schemas.wire_names import name_text, sentence_text

Row = dict[str, Any]
_MARKS: Final = {"worse": "🔴 worse", "better": "🟢 better", "no evidence": "no evidence"}
# What Markdown and HTML take for something else than text.
_SPECIAL: Final = "\\`*_{}[]<>()#+!|~&@"


def markdown(comparison: Row) -> str:
    """The comparison as Markdown. comparison: with the sentences of its runs."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Row) -> Iterator[str]:
    yield "### Comparison of two runs"
    yield ""
    yield f"**{plain(headline(comparison))}**"
    yield ""
    for word in ("before", "after"):
        yield f"- {word}: {plain(comparison[word]['sentence'])}"
    yield from (f"- {plain(text)}" for text in comparison["coverage_differences"])
    tested = list(lines(comparison))
    changed = [line for line in tested if line.verdict != NO_EVIDENCE]
    if changed:
        yield ""
        yield from _table(changed)
    same = [line for line in tested if line.verdict == NO_EVIDENCE]
    if same:
        yield from _folded(
            f"{many(len(same), 'metric')} without evidence of a change", _table(same)
        )
    others = [f"- {plain(text)}" for text in repeats(comparison)]
    if others:
        yield from _folded("The same numbers twice", others[:MAX_MARKDOWN_LINES])
    reasons = [
        f"- {plain(reason)}: "
        + ", ".join(plain(name_text(name)) for name in names[:MAX_MARKDOWN_NAMES])
        + (f" … ({len(names)} in all)" if len(names) > MAX_MARKDOWN_NAMES else "")
        for reason, names in left_out(comparison)
    ]
    if reasons:
        yield from _folded("Not comparable", reasons[:MAX_MARKDOWN_LINES])


def _folded(title: str, body: Sequence[str] | Iterator[str]) -> Iterator[str]:
    yield ""
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from body
    yield ""
    yield "</details>"


def _table(rows: Sequence[ResultLine]) -> Iterator[str]:
    yield f"| {' | '.join((*HEADINGS, 'topic'))} |"
    yield "|---|---|--:|--:|--:|--:|---|---|"
    for line in rows[:MAX_MARKDOWN_LINES]:
        names = (name_text(cell) for cell in line[1:])
        cells = (_MARKS[line.verdict], *map(plain, names))
        yield f"| {' | '.join(cells)} |"
    if len(rows) > MAX_MARKDOWN_LINES:
        yield f"\n… {len(rows) - MAX_MARKDOWN_LINES:,} more; `--json` has all"


def plain(text: str) -> str:
    """Text that Markdown shows as it is, all of it; names in it are from the wire."""
    return "".join(f"\\{one}" if one in _SPECIAL else one for one in sentence_text(text))
