"""A comparison as Markdown for a pull request: changes first, the rest in folded sections."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dissector.compare.comparing import NO_EVIDENCE
from dissector.compare.wording import (
    ALL_TOPICS,
    HEADINGS,
    ResultLine,
    headline,
    left_out,
    lines,
    repeats,
)
from dissector.limits import MAX_MARKDOWN_BYTES, MAX_MARKDOWN_LINES, MAX_MARKDOWN_NAMES
from dissector.report.formatting import many
from dissector.schemas.wire_names import name_text, sentence_text

Row = dict[str, Any]
_HEADS: Final = (f"| {' | '.join(HEADINGS[:6])} |", "|---|---|--:|--:|--:|--:|")
_ROOM: Final = 400  # characters for titles and for the note on omitted lines
_MARKS: Final = {"worse": "🔴 worse", "better": "🟢 better", "no evidence": "no evidence"}
# Characters with a meaning in Markdown or HTML.
_SPECIAL: Final = "\\`*_{}[]<>()#+!|~&@"


def markdown(comparison: Row) -> str:
    """The comparison as Markdown, short enough for a comment; changes come first.

    comparison: includes the sentences of its runs.
    """
    output = [*_head(comparison)]
    rows = list(lines(comparison))
    changed = [line for line in rows if line.verdict != NO_EVIDENCE]
    same = [line for line in rows if line.verdict == NO_EVIDENCE]
    for title, header_lines, body in (
        ("", _HEADS, [*map(_cells, changed)]),
        (f"{many(len(same), 'metric')} without evidence of a change", _HEADS, [*map(_cells, same)]),
        ("The same numbers twice", (), [f"- {plain(text)}" for text in repeats(comparison)]),
        ("Not comparable", (), [_reason(*each) for each in left_out(comparison)]),
    ):
        room = MAX_MARKDOWN_BYTES - sum(len(line.encode()) + 1 for line in output)
        output += _part(title, header_lines, body, room)
    return "\n".join(output) + "\n"


def _head(comparison: Row) -> Iterator[str]:
    yield "### Comparison of two runs"
    yield ""
    yield f"**{plain(headline(comparison))}**"
    yield ""
    for word in ("before", "after"):
        yield f"- {word}: {plain(comparison[word]['sentence'])}"
    yield from (f"- {plain(text)}" for text in comparison["coverage_differences"])


def _part(title: str, header_lines: Sequence[str], body: Sequence[str], room: int) -> Iterator[str]:
    """A list or table, folded if it has a title, cut to `room` characters."""
    shown: list[str] = []
    for line in body[:MAX_MARKDOWN_LINES]:
        room -= len(line.encode()) + 1
        if room < _ROOM:
            break
        shown.append(line)
    if not shown:
        return
    yield ""
    if title:
        yield f"<details><summary>{title}</summary>"
        yield ""
    yield from header_lines
    yield from shown
    if len(shown) < len(body):
        yield f"\n… {len(body) - len(shown):,} more; `--json` has all"
    if title:
        yield ""
        yield "</details>"


def _cells(line: ResultLine) -> str:
    """A row of the table, with few columns because comments are narrow."""
    metric = plain(name_text(line.metric))
    if line.topic != ALL_TOPICS:
        metric += f"<br>{plain(name_text(line.topic))}"
    numbers = map(plain, (line.before, line.after, line.change, line.interval))
    return f"| {_MARKS[line.verdict]} | {metric} | {' | '.join(numbers)} |"


def _reason(reason: str, names: Sequence[str]) -> str:
    shown = ", ".join(plain(name_text(name)) for name in names[:MAX_MARKDOWN_NAMES])
    more = f" … ({len(names)} in all)" if len(names) > MAX_MARKDOWN_NAMES else ""
    return f"- {plain(reason)}: {shown}{more}"


def plain(text: str) -> str:
    """Escape text so that Markdown shows it literally; it has names from the wire."""
    return "".join(f"\\{one}" if one in _SPECIAL else one for one in sentence_text(text))
