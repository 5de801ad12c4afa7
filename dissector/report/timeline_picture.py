"""The picture of a timeline: inline SVG, drawn once for every width, of a bounded number of marks.

Marks lie in an element that is stretched to the screen's width; texts are placed in percent of it
and keep their size. A lane shows its frames as bars on one line, higher ones for more frames. No
name from the wire is drawn: roles of frames are words of rules, all else are numbers.
"""

import json
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from dissector.report.formatting import count_text, duration_text, many
from dissector.report.numbers import NS_PER_MS, NS_PER_US, instant
from dissector.report.timelines import Mark, Shown, Timeline


class Series(NamedTuple):
    """The words and the colour of a series. label: in the picture, if it differs from `several`;
    ink: a variable of the style sheet; direction: of its frames, if they have one."""

    lane: int
    one: str
    several: str
    ink: str = "series-1"
    label: str = ""
    direction: str = ""


SERIES: Final = {
    "send": Series(0, "send", "sends", direction="to_broker"),
    "receipt": Series(1, "receipt", "receipts", direction="to_client"),
    "refused send": Series(1, "refused send", "refused sends", "bad", "refused"),
    "delivery": Series(2, "delivery", "deliveries", direction="to_client"),
    "redelivery": Series(2, "redelivery", "redeliveries", "warn-mark"),
    "grant": Series(3, "grant of permits", "grants of permits"),
    "ack": Series(4, "ack", "acks", direction="to_broker"),
    "request": Series(5, "other request", "other requests"),
    "refused request": Series(5, "refused request", "refused requests", "bad", "refused"),
    "close": Series(6, "producer or consumer closed", "producers and consumers closed",
                    "warn-mark"),
    "open": Series(7, "connection opened", "connections opened", "good"),
    "end": Series(8, "connection ended", "connections ended", "bad"),
}  # fmt: skip
# Lanes that are drawn even if empty: a reader searches for missing traffic.
_ALWAYS: Final = ("send", "receipt", "delivery", "ack")
_WIDTH: Final = 1000  # of the stretched element, in its own units
_HEAD: Final = 20  # px, for the letters of evidence
_LANE: Final = 36
_TALLEST: Final = 16
_LEAST_TALL: Final = 5
_LEAST_ODD: Final = 11  # of a lane's second series, which must not be overlooked
_AXIS: Final = 22
_STEPS: Final = (1, 2, 5)
# The share of the width that the begin's text covers, on any screen and on a narrow one.
_BEGIN: Final = 0.12
_NARROW_BEGIN: Final = 0.34
_TICKS: Final = 4  # at most, after the begin
_NEAR: Final = 0.03  # of the width: letters closer to each other are drawn as one text


def _units(at_ns: int, timeline: Timeline) -> int:
    """The position of a time, from 0 to `_WIDTH`."""
    return round(_WIDTH * _part(at_ns, timeline))


def _part(at_ns: int, timeline: Timeline) -> float:
    return (at_ns - timeline.first_ns) / max(timeline.last_ns - timeline.first_ns, 1)


def _percent(part: float) -> str:
    return f"{100 * part:.4g}%"


def lettered(timeline: Timeline) -> list[tuple[str, Shown]]:
    """The frames of evidence, each with its letter in the picture."""
    return [(chr(ord("a") + place), each) for place, each in enumerate(timeline.shown)]


def _counts(marks: Sequence[Mark]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for mark in marks:
        counts[mark.series] = counts.get(mark.series, 0) + mark.frames
    return counts


def _lanes(counts: dict[str, int]) -> list[int]:
    """The lanes to draw, in order; lanes of one kind of traffic are adjacent."""
    lanes = {SERIES[name].lane for name in counts}
    if lanes & {SERIES[name].lane for name in _ALWAYS}:
        lanes |= {SERIES[name].lane for name in _ALWAYS[: 4 if "delivery" in counts else 2]}
    return sorted(lanes)


def _bars(timeline: Timeline, name: str, base: int, most: int, least: int) -> str:
    """The bars of a series as one path."""
    steps = []
    for mark in timeline.marks:
        if mark.series == name:
            x, end = _units(mark.first_ns, timeline), _units(mark.last_ns, timeline)
            tall = max(round(_TALLEST * (mark.frames / most) ** 0.5), least)
            steps.append(f"M{x} {base}v-{tall}" + (f"H{end}v{tall}z" if end > x else ""))
    return (
        f'<path d="{"".join(steps)}" fill="var(--{SERIES[name].ink})" '
        f'stroke="var(--{SERIES[name].ink})" stroke-width="2" vector-effect="non-scaling-stroke"/>'
    )


def _letters(timeline: Timeline, height: int) -> tuple[str, str]:
    """The lines of evidence, and their letters; letters closer than `_NEAR` are one text."""
    lines, texts = "", ""
    groups: list[tuple[float, list[str]]] = []
    for letter, each in lettered(timeline):
        part = _part(each.at_ns, timeline)
        if not 0 <= part <= 1:
            continue
        x = _units(each.at_ns, timeline)
        lines += f"M{x} {_HEAD - 4}V{height}"
        if groups and part - groups[-1][0] < _NEAR * len(groups[-1][1]):
            groups[-1][1].append(letter)
        else:
            groups.append((part, [letter]))
    for part, letters in groups:
        anchor = "start" if part < _NEAR else "end" if part > 1 - _NEAR else "middle"
        texts += (
            f'<text class="letter" x="{_percent(part)}" y="{_HEAD - 8}" text-anchor="{anchor}">'
            f"{' '.join(letters)}</text>"
        )
    return lines, texts


def ticks(span_ns: int) -> list[int]:
    """Round times after the begin of a span, ns, at most `_TICKS`, without the begin."""
    size = 1
    while True:
        for step in _STEPS:
            if span_ns // (step * size) <= _TICKS:
                return [*range(step * size, span_ns + 1, step * size)]
        size *= 10


def _axis(timeline: Timeline, height: int) -> str:
    """The begin's time at the left, and round times after it."""
    span = timeline.last_ns - timeline.first_ns
    begin = (instant(timeline.first_ns) or "")[11:23]
    text = f'<text x="0" y="{height + 15}">{begin}</text>'
    for at in ticks(span):
        part = at / max(span, 1)
        if part < _BEGIN:  # the begin's own text is there
            continue
        anchor = "end" if part > 0.9 else "middle"
        early = ' class="early"' if part < _NARROW_BEGIN else ""
        text += f'<text{early} x="{_percent(part)}" y="{height + 15}" text-anchor="{anchor}">'
        text += f"+{duration_text(at / NS_PER_MS)}</text>"
    return text


def described(timeline: Timeline) -> str:
    """The picture in words, for screen readers."""
    counts = _counts(timeline.marks)
    parts = [many(counts[name], each.one, each.several) for name, each in SERIES.items()
             if name in counts]  # fmt: skip
    parts += [
        f"{SERIES[name].several} not captured"
        for name in _ALWAYS
        if name not in counts and SERIES[name].direction in timeline.missing
    ]
    shown = [f"{letter} {each.role} after {_offset(each.at_ns - timeline.first_ns)}"
             for letter, each in lettered(timeline)]  # fmt: skip
    begin, end = instant(timeline.first_ns), instant(timeline.last_ns)
    return f"{begin} to {end}: {', '.join(parts)}. Evidence: {', '.join(shown) or 'none'}."


def _offset(span_ns: int) -> str:
    sign = "-" if span_ns < 0 else ""
    return f"{sign}{duration_text(abs(span_ns) / NS_PER_MS)}"


def _label(name: str, count: int, missing: Container[str]) -> str:
    each = SERIES[name]
    text = each.label or (each.one if count == 1 else each.several)
    number = "not captured" if count == 0 and each.direction in missing else count_text(count)
    return f'<tspan fill="var(--{each.ink})">■</tspan> {text} {number}'


def picture(timeline: Timeline, title: str) -> Markup:
    """A timeline as an SVG element; empty if it has no marks.

    Args:
        title: of its finding.
    """
    counts = _counts(timeline.marks)
    if not counts:
        return Markup("")
    lanes = _lanes(counts)
    bases = {lane: _HEAD + (place + 1) * _LANE - 4 for place, lane in enumerate(lanes)}
    height = _HEAD + len(lanes) * _LANE
    lines, letters = _letters(timeline, height)
    first, last = (min(max(_units(at, timeline), 0), _WIDTH) for at in timeline.incident_ns)
    span = timeline.last_ns - timeline.first_ns
    grid = "".join(f"M{round(_WIDTH * at / span)} {_HEAD}V{height}" for at in ticks(span))
    rules = "".join(f"M0 {base}H{_WIDTH}" for base in bases.values())
    marks, words = "", ""
    for lane, base in bases.items():
        in_lane = [name for name, each in SERIES.items() if each.lane == lane]
        most = max([mark.frames for mark in timeline.marks if mark.series in in_lane], default=1)
        for name in (name for name in in_lane if name in counts):
            least = _LEAST_TALL if name == in_lane[0] else _LEAST_ODD
            marks += _bars(timeline, name, base, most, least)
        named = [name for name in in_lane if name in counts or name == in_lane[0]]
        label = "  ".join(_label(name, counts.get(name, 0), timeline.missing) for name in named)
        words += f'<text x="0" y="{base - _TALLEST - 4}">{label}</text>'
    thin = 'fill="none" vector-effect="non-scaling-stroke"'
    name = f"timeline-{timeline.place}"
    text = (
        f'<svg class="timeline" role="img" aria-labelledby="{name} {name}-described" width="100%" '
        f'height="{height + _AXIS}"><title id="{name}">{escape(title)}</title>'
        f'<desc id="{name}-described">{escape(described(timeline))}</desc>'
        f'<svg width="100%" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'preserveAspectRatio="none"><rect x="{first}" y="{_HEAD}" width="{max(last - first, 1)}" '
        f'height="{height - _HEAD}" fill="var(--plain-wash)"/>'
        f'<path d="{grid}{rules}" stroke="var(--rule)" {thin}/>{marks}'
        f'<path d="{lines}" stroke="var(--bad)" stroke-dasharray="3 3" {thin}/></svg>'
        f"{words}{letters}{_axis(timeline, height)}</svg>"
    )
    return Markup(text)


def touched(timeline: Timeline) -> str:
    """The marks as JSON for the page's script: of each its lane, begin and end (µs after the begin
    of the shown time), frames, index of its series, first and last frame number."""
    lanes = _lanes(_counts(timeline.marks))
    marks = [
        [
            lanes.index(SERIES[mark.series].lane),
            (mark.first_ns - timeline.first_ns) // NS_PER_US,
            -((timeline.first_ns - mark.last_ns) // NS_PER_US),
            mark.frames,
            [*SERIES].index(mark.series),
            mark.first_frame_no,
            mark.last_frame_no,
        ]
        for mark in timeline.marks
    ]
    return json.dumps(marks, separators=(",", ":"))
