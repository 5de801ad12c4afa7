"""The page: the numbers of report.json as one self-contained HTML file.

The browser fetches nothing: style, script and plots are in the file. Without the script all
contents are shown; it adds sorting of tables and hints under the pointer.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib import resources
from shlex import quote
from typing import Any, Final, NamedTuple

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from dissector.limits import MAX_PAGE_FOLDED, MAX_PAGE_REASONS, MAX_PAGE_ROWS
from dissector.report import descriptions, formatting, numbers, timeline_picture
from dissector.report.descriptions import in_protocol_words, selection_words
from dissector.report.drawings import Pair
from dissector.report.example_commands import ANY_LAKE, Commands
from dissector.report.figures import Figures
from dissector.report.formatting import cut_sentence, cut_text, many
from dissector.report.headlines import (
    CAPTURE_WORDS,
    WORDS,
    WRONG,
    anchor_of,
    headlines,
    verdict,
)
from dissector.report.numbers import Row
from dissector.report.result import JUDGED
from dissector.report.template_code import code_of
from dissector.report.timelines import Timeline

MIN_FOLD: Final = 3  # so many rows with equal keys become one
UNKNOWN: Final = "not known"
_FIRST_LINES: Final = 3  # findings above the picture of the worst
_HEAD: Final = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_DATA: Final = "dissector.data"

Text = Callable[[Any], str]  # may return Markup, which is not escaped again


def asset(name: str) -> str:
    """Read a text file of the package's data."""
    return (resources.files(_DATA) / name).read_text("utf-8")


def unknown(reason: str = "") -> Markup:
    """The mark of an unknown number. reason: its tooltip."""
    if not reason:
        return Markup('<span class="unknown">not known</span>')
    return Markup('<span class="unknown" title="{}">not known</span>').format(reason)


def or_unknown(text: Text, value: Any, reason: str = "") -> Markup:
    """A value as `text` formats it; None: the mark of an unknown number, never 0."""
    return unknown(reason) if value is None else escape(text(value))


def plain(name: Any) -> str:
    """A name or enum value; unprintable characters of wire names are escaped."""
    return formatting.name_text(str(name))


def breakable(name: Any) -> Markup:
    """A name with optional line breaks after its slashes."""
    parts = re.split(r"(?<=/)(?!/)", plain(name))
    return Markup("<wbr>").join(parts)


def broken(name: str) -> Markup:
    """A file name with optional line breaks after its dots, dashes and underscores."""
    return Markup("").join(
        escape(part) + Markup("<wbr>") for part in re.split(r"(?<=[-_.])", name) if part
    )


def labelled(rows: Markup, heads: str = "") -> Markup:
    """Rows of a table with a column label in each cell: on narrow screens each row becomes a list.

    Args:
        heads: the header cells; default: those in `rows`.
    """
    names = [Markup(each).striptags() for each in _HEAD.findall(heads or rows)]
    parts = str(rows).split("<tr")
    for place, part in enumerate(parts):
        first, *cells = part.split("<td")
        if len(cells) == len(names):  # not the folded rows below a row
            labels = (f'<td data-label="{name}"' for name in map(escape, names))
            parts[place] = first + "".join(map("".join, zip(labels, cells, strict=True)))
    return Markup("<tr".join(parts))


def condition_of(fields: Row) -> str:
    """The condition (`-Y`) that selects a row's frames; empty if no value is known.

    fields: values by column of frames; `by` is no column. A reader must see what a copied command
    does: a name that is shown escaped gives an empty condition.
    """
    known = {name: value for name, value in fields.items() if value is not None and name != "by"}
    if any(formatting.name_text(str(value)) != value for value in known.values()):
        return ""
    return " and ".join(
        f"{name} == {json.dumps(value, ensure_ascii=False)}" for name, value in known.items()
    )


def spaced(name: str) -> str:
    """An enum value with spaces for underscores."""
    return formatting.name_text(name).replace("_", " ")


class Fold(NamedTuple):
    """Rows of a list with equal keys, as a storm of errors gives them.

    rows: the shown ones, in the order of the list.
    times: the number of occurrences in all rows.
    first, last: their times, as text.
    listed: the number of all rows.
    """

    rows: list[Row]
    times: int
    first: str | None
    last: str | None
    listed: int


def folded(rows: Sequence[Row], keys: Sequence[str]) -> list[Fold]:
    """Group rows by keys and capture; rows of groups smaller than MIN_FOLD stay single.

    At most MAX_PAGE_ROWS rows of a group are shown, and MAX_PAGE_FOLDED folded rows in the list.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.get("capture"), *(row[key] for key in keys)), []).append(row)
    by_identity: dict[int, list[Row]] = {}
    for group in groups.values():
        for part in [group] if len(group) >= MIN_FOLD else [[row] for row in group]:
            by_identity[id(part[0])] = part
    folds, room = [], MAX_PAGE_FOLDED
    for row in rows:
        if id(row) in by_identity:
            folds.append(_fold(by_identity[id(row)], min(room, MAX_PAGE_ROWS - 1)))
            room -= len(folds[-1].rows) - 1
    return folds


def _fold(rows: list[Row], below: int) -> Fold:
    begins = [row.get("first_ts") or row.get("start_ts") or row.get("ts") for row in rows]
    ends = [row.get("last_ts") or begin for row, begin in zip(rows, begins, strict=True)]
    first = min((each for each in begins if each), default=None)
    last = max((each for each in ends if each), default=None)
    times = sum(row.get("answers", 1) for row in rows)
    return Fold(rows[: 1 + below], times, first, last, len(rows))


def _pairs(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Counts by name, the largest first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class PacketNames:
    """Translates packet numbers of a capture to a file and the number there."""

    def __init__(self, sources: Iterable[Row]) -> None:
        self._files: dict[str | None, list[Row]] = {}
        for source in sources:
            self._files.setdefault(source["capture"], []).append(source)

    def packet(self, capture: str | None, packet: int | None, command: str = "") -> Markup:
        """A packet as its file and the number that Wireshark shows; None: the unknown mark.

        Args:
            command: the one that shows its frame.
        """
        if packet is None:
            return unknown("the frame lies too far back in the capture")
        name, number = self._in_file(capture, packet)
        text = f"frame.number == {number}"
        return Markup(
            '<span class="place" data-command="{}" data-filter="{}"{}>packet {}</span>'
        ).format(
            command, text, Markup(' title="{}"').format(f"{name}: {text}") if name else "",
            formatting.count_text(number),
        )  # fmt: skip

    def filter_of(self, row: Row) -> dict[str, str]:
        """Wireshark's filter of the packets of a finding's evidence: of those in the first file
        that has any; `file` is its name if the capture has several files."""
        numbers_by_file: dict[str, list[int]] = {}
        for each in row["evidence"]:
            if each["packet"] is not None:
                name, number = self._in_file(row["capture"], each["packet"])
                numbers_by_file.setdefault(name, []).append(number)
        for name, packets in numbers_by_file.items():
            text = " || ".join(f"frame.number == {number}" for number in sorted({*packets}))
            is_one_of = len(self._files.get(row["capture"], [])) > 1
            return {"text": text, "file": name if is_one_of else ""}
        return {}

    def _in_file(self, capture: str | None, packet: int) -> tuple[str, int]:
        """The file of a packet and its number there; ("", packet) if no file has it."""
        for file in self._files.get(capture, []):
            first, count = file["first_packet"], file["packets"]
            if first is not None and first <= packet < first + (count or 0):
                return formatting.name_text(file["file_name"] or ""), packet - first + 1
        return "", packet

    def file_of(self, capture: str | None) -> str:
        """The shown name of a capture: its file's, or its id if it has several files."""
        files = self._files.get(capture, [])
        name = files[0]["file_name"] if len(files) == 1 else capture
        return formatting.name_text(name or "this capture")

    @property
    def count(self) -> int:
        """The number of captures."""
        return len(self._files)


def figure(pair: Pair | None, name: str) -> Markup:
    """A plot in both sizes, with the script's hints."""
    if pair is None:
        return Markup("")
    drawings = Markup("")
    for size, plot in (("wide", pair.wide), ("narrow", pair.narrow)):
        hints = json.dumps([list(hint) for hint in plot.hints], ensure_ascii=False)
        drawings += Markup('<div class="drawing {}" data-hints="{}">{}</div>').format(
            size, hints, Markup(plot.svg)
        )
    return Markup('<figure class="plot {}">{}<figcaption>{}</figcaption></figure>').format(
        name, drawings, pair.caption
    )


def _drawn(timelines: Iterable[Timeline], report: Row) -> dict[int, Row]:
    """The template's values of each drawn timeline, by the index of its finding."""
    drawn = {}
    for each in timelines:
        row = report["findings"]["findings"][each.place]
        svg = timeline_picture.picture(each, f"{row['id']} {row['title']}")
        if svg:
            drawn[each.place] = {
                "svg": svg,
                "touched": timeline_picture.touched(each),
                "letters": timeline_picture.lettered(each),
                "first_ns": each.first_ns,
                "last_ns": each.last_ns,
            }
    return drawn


@cache
def _template(is_exact: bool) -> Template:
    """The template of the page."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "count": partial(or_unknown, formatting.count_text),
        "ms": partial(or_unknown, formatting.duration_text),
        "about": partial(or_unknown, formatting.about_text),
        "time": lambda times, name, reason="": or_unknown(
            str, formatting.time_text(times, name, is_exact), reason
        ),
        "size": partial(or_unknown, formatting.bytes_text),
        "share": partial(or_unknown, formatting.share_text),
        "name": partial(or_unknown, breakable),
        "words": partial(or_unknown, spaced),
        "breaks": broken,
        "clock": lambda at_ns: (numbers.instant(at_ns) or "")[11:26],
        "day": lambda at_ns: (numbers.instant(at_ns) or "")[:10],
        "labelled": labelled,
        "pairs": _pairs,
        "moment": lambda value: unknown() if value is None else str(value)[:23].replace("T", " "),
        "hex32": lambda value: unknown() if value is None else f"0x{value:08x}",
    }
    environment.globals |= {
        "anchor_of": anchor_of,
        "condition_of": condition_of,
        "figure": figure,
        "first_lines": _FIRST_LINES,
        "folded": folded,
        "judged_sections": JUDGED,
        "mark_words": CAPTURE_WORDS,
        "many": many,
        "cut_sentence": cut_sentence,
        "cut_text": cut_text,
        "in_protocol_words": in_protocol_words,
        "meanings": descriptions,
        "meaning_of": descriptions.meaning_of,
        "series": [(each.one, each.several) for each in timeline_picture.SERIES.values()],
        "severities": {"error": "error", "warning": "warning", "info": "note"},
        "severity_words": WORDS,
        "dict": dict,
        "max_reasons": MAX_PAGE_REASONS,
        "max_rows": MAX_PAGE_ROWS,
    }
    name = "exact" if is_exact else "buckets"  # the code has filters of constants inlined
    code = code_of(environment, asset("report.html"), name)
    return Template.from_code(environment, code, environment.make_globals(None))


def page(
    report: Row, lake: object = None, timelines: Sequence[Timeline] = (), is_exact: bool = False,
    figures: Figures | None = None,
) -> str:  # fmt: skip
    """The page of a report that has all sections.

    Args:
        lake: the one that commands query if packets are in no file.
        timelines: of findings. is_exact: percentiles are of all values, not of their buckets.
        figures: the cache of drawn ones.
    """
    names, commands = PacketNames(report["sources"]), Commands(report)
    style, script = (Markup(f"\n{asset(name)}\n") for name in ("report.css", "report.js"))
    lines = headlines(report)
    text = _template(is_exact).render(
        report=report,
        command_of=commands.of_finding,
        command_of_frame=lambda row, number: commands.frames(f"frame_no == {number}", row),
        commands=commands,
        filter_of=names.filter_of,
        packet_of=names.packet,
        file_of=names.file_of,
        capture_count=names.count,
        selected=plain(selection_words(report, "")),
        plots=(figures or Figures()).of(report),
        headlines_apart=(
            [one for one in lines if one.anchor or one.word in WRONG],
            [one for one in lines if not one.anchor and one.word not in WRONG],
        ),
        verdict=verdict(lines),
        timelines=_drawn(timelines, report),
        policy=policy(style, script),
        style=style,
        script=script,
    )
    # Cached rows of captures have a placeholder for the lake's path, which may have changed.
    return text if lake is None else text.replace(ANY_LAKE, f"--lake {escape(quote(str(lake)))} ")


def policy(style: str, script: str) -> str:
    """The page's Content-Security-Policy: its own style and script, nothing else.

    The page shows names from the wire. A name that became a script would have another digest and
    not run; nothing can be fetched or sent.
    """
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    """The digest of a text as a policy source."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
