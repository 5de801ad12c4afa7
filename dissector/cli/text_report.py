"""The numbers of a report as a page of text: what `summary` prints and `analyze` ends with.

The headlines come first, each fact once; rival causes and next steps follow after all facts, so
that the first lines answer. Then each section with rows has a short table. Names are last in a
line, so that numbers stay in columns however long a name is. Sentences and names wrap if a width is
given; numbers and commands are never broken.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from dissector.cli.local_time import shown_instant, shown_sentence, shown_time
from dissector.cli.terminal import Paint, counted, safe_text, wrapped
from dissector.findings.finding import counts_text
from dissector.findings.totals import names_of
from dissector.packet.unread import UNREAD_CODES
from dissector.report.descriptions import (
    NO_CODE,
    STATUSES,
    in_protocol_words,
    notice_sentence,
    selection_words,
)
from dissector.report.example_commands import Commands
from dissector.report.formatting import (
    bytes_text,
    cut_sentence,
    cut_text,
    duration_text,
    listed,
    percentile_ms,
    share_text,
)
from dissector.report.headlines import Headline, headlines
from dissector.report.numbers import READABLE, UNKNOWN, answered

Numbers = dict[str, Any]
_LISTED: Final = 5  # lines of each list that are shown
STEPS: Final = "what else it may be, and what to do"
_PERCENTILES: Final = ("p50", "p90", "p99")
_KINDS: Final = 12  # named kinds of ignored packets
_STYLES: Final = {"ok": "green", "look": "yellow", "bad": "red"}
_LEAST_NAME: Final = 20  # columns that a name gets at least; with less room it has its own lines


def text_report(
    report: Numbers,
    paint: Paint,
    width: int | None = None,
    commands: Commands | None = None,
    is_exact: bool = False,
) -> Iterator[str]:
    """The lines of a report: what was read, what stands out, and the numbers behind it.

    Args:
        width: columns of the terminal; None breaks no line. commands: see `headlines`.
        is_exact: percentiles are of all values, not of their buckets.
    """
    yield from _capture(report)
    yield ""
    facts = headlines(report, commands)
    for headline in facts:
        yield from _fact(headline, paint, width)
    yield from _steps(facts, paint, width)
    for title, table in (
        (
            "send latency in ms, from the end of a SEND to the end of its receipt",
            _sends(report, is_exact),
        ),
        ("slowest sends", _slowest(report)),
        ("permits of consumers", _permits(report)),
        ("redeliveries", _redeliveries(report)),
        ("lag of groups in messages, behind commits and behind deliveries", _lags(report)),
        ("wrong checksums", _checksums(report)),
        ("refused requests", _errors(report)),
    ):
        if table.rows:
            yield ""
            yield from (
                paint(line, "bold") for line in wrapped(in_protocol_words(report, title), width)
            )
            yield from (f"  {line}" for line in table.lines(width and width - 2))
    lacks = list(_lacks(report["coverage"]["total"]))
    if lacks:
        yield ""
        yield paint("what the capture lacks", "bold")
        for sentence in lacks:
            yield from wrapped(f"  {sentence}", width, "    ")


def _fact(headline: Headline, paint: Paint, width: int | None) -> Iterator[str]:
    """The lines of a fact, after its mark and its rule."""
    mark = paint(f"{headline.word:<4}", _STYLES.get(headline.word, "dim"))
    yield from _labelled(f"  {mark}  ", 8, headline, headline.text, width)


def _steps(facts: Sequence[Headline], paint: Paint, width: int | None) -> Iterator[str]:
    """Rival causes and next steps by rule, each once; a command is on its own line, for copying."""
    steps = [one for one in facts if one.rival or one.next_step]
    if steps:
        yield ""
        yield paint(STEPS, "bold")
    seen: set[str] = set()
    for one in steps:
        words, _, command = one.next_step.partition("\n")
        if one.next_step in seen:
            words = command = ""
        seen.add(one.next_step)
        text = " ".join(part for part in (one.rival, words) if part)
        if text:
            yield from _labelled("  ", 2, one, text, width)
        if command:
            yield f"{' ' * (4 + len(one.number))}  {paint(safe_text(command), 'cyan')}"


def _labelled(
    start: str, columns: int, headline: Headline, text: str, width: int | None
) -> Iterator[str]:
    """A text after the number of its rule. start: the text before it, of the given width."""
    indent = " " * (columns + len(headline.number) + 2)
    first, *more = wrapped(f"{indent}{safe_text(shown_sentence(text))}", width, indent)
    yield f"{start}{headline.number}  {first[len(indent) :]}"
    yield from more


class _Table(NamedTuple):
    """Columns of a list, numbers to the right; the last column is text.

    total: rows there are.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: int

    def lines(self, width: int | None) -> Iterator[str]:
        """The table's lines. Names wrap in their column; without room for one, they have own
        lines."""
        columns = list(zip(self.headings, *self.rows, strict=True))[:-1]
        widths = [max(map(len, column)) for column in columns]
        for row in (self.headings, *self.rows):
            cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)]
            start = "  ".join((*cells, ""))
            if width is None or len(start) + len(row[-1]) <= width:
                yield start + row[-1]
            elif len(start) + max(_LEAST_NAME, *map(len, row[-1].split())) <= width:
                yield from wrapped(start + row[-1], width, " " * len(start), keeps=len(start))
            else:
                yield start.rstrip()
                yield from wrapped(f"    {row[-1]}", width, "    ")
        if self.total > len(self.rows):
            yield f"… and {self.total - len(self.rows):,} more ({self.total:,} in all), see --json"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"


def _share(value: float | None) -> str:
    return "-" if value is None else share_text(value)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _name(value: str | None) -> str:
    return safe_text(value) if value is not None else "(unknown)"


def _code(value: str | None) -> str:
    return safe_text(value) if value is not None else NO_CODE


def _packets(first: int | None, last: int | None) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _counts(counts: Numbers, limit: int = 8) -> str:
    """`12 ok, 3 error`; the largest first, at most `limit`; the rest is counted."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [f"{count:,} {safe_text(str(name))}" for name, count in ordered[:limit]]
    rest = len(ordered) - limit
    return ", ".join(shown) + (f" … ({len(ordered)} in all)" if rest > 0 else "")


def _captures(report: Numbers) -> Callable[[Numbers], str]:
    """Return a function from a row to its capture in words, empty if there is one only."""
    files: dict[Any, list[str]] = {}
    for source in report["sources"]:
        files.setdefault(source["capture"], []).append(source["file_name"])
    if len(files) < 2:
        return lambda row: ""
    names = {
        key: file_names[0] if len(file_names) == 1 else key for key, file_names in files.items()
    }
    return lambda row: f" in {_name(names.get(row['capture'], row['capture']))}"


def _capture(report: Numbers) -> Iterator[str]:
    total = report["coverage"]["total"]
    span = duration_text((total["span_ns"] or 0) / 1e6)
    when = f", {span} from {shown_instant(total['first_ts'])}" if total["first_ts"] else ""
    yield f"{counted(total['packets'], 'packet')} in {counted(total['files'], 'file')}{when}"
    if part := selection_words(report, moment=shown_time):
        yield safe_text(f"selected{part}")
    of = _counts(total["connections_by_protocol"])
    frames = counted(total["frames"], "frame")
    yield f"{counted(total['connections'], 'connection')}{f' ({of})' if of else ''}, {frames}"
    if cut := cut_sentence(report):
        yield cut


def _times(took: Numbers, is_exact: bool) -> tuple[str, ...]:
    return *(percentile_ms(took, name, is_exact) for name in _PERCENTILES), _ms(took["max"])


def _sends(report: Numbers, is_exact: bool) -> _Table:
    section = report["send_latency"]
    groups = section["by_topic"]
    rows = [
        (
            *_times(group["latency_ms"], is_exact),
            *_sent(group),
            _name(group["topic"]),
        )
        for group in groups[:_LISTED]
    ]
    if len(groups) > 1:
        total = section["total"]
        latency = _times(total["latency_ms"], is_exact)
        rows.append((*latency, *_sent(total), "all topics"))
    headings = (*_PERCENTILES, "max", "sends", "answered", "refused", "topic")
    return _Table(headings, rows, len(groups) + (len(groups) > 1))


def _sent(group: Numbers) -> tuple[str, str, str]:
    """The numbers of sends, of answered ones, and of refused ones, as texts."""
    outcomes = group["outcomes"]
    got, refused = answered(outcomes), outcomes.get("error", 0)
    is_hidden = any(outcomes.get(name) for name in UNKNOWN)
    # If no answer could be read, number and contents of answers are unknown.
    is_unread = is_hidden and not any(outcomes.get(name) for name in READABLE)
    return (
        _count(group["sends"]),
        "-" if is_hidden and not got else _count(got),
        "-" if is_unread else _count(refused),
    )


def _slowest(report: Numbers) -> _Table:
    slow = [each for each in report["slowest"]["publish"] if each["latency_ms"] is not None][:3]
    of = _captures(report)
    rows = [
        (
            _ms(each["latency_ms"]),
            f"{each['connection_id']}",
            f"{each['request_frame_no']}-{each['response_frame_no']}",
            f"{each['request_packet']}-{each['response_packet']}",
            f"{_name(each['topic'])}{of(each)}",
        )
        for each in slow
    ]
    return _Table(("ms", "connection", "frames", "packets", "topic"), rows, len(rows))


def _stalls(stalls: Numbers) -> int | None:
    """The times without permits, ended by a grant or not; None if no balance is known."""
    count: int | None = stalls["count"]
    return None if count is None else count + int(stalls["open_at_end"]["count"])


def _permits(report: Numbers) -> _Table:
    groups = report["permit_utilization"]["by_subscription"]
    rows = [
        (
            _count(group["granted"]),
            _count(group["delivered"]),
            _share(group["utilization"]),
            _share(group["exhausted_share"]),
            _count(_stalls(group["stalls"])),
            _count(group["stalls"]["confirmed"]["count"]),
            f"{_name(group['subscription'])} of {_name(group['topic'])}"
            + ("" if group["baseline_known"] else " (balance not known throughout)"),
        )
        for group in groups[:_LISTED]
    ]
    headings = (
        "granted",
        "delivered",
        "used",
        "time without",
        "stalls",
        "confirmed",
        "subscription",
    )
    return _Table(headings, rows, len(groups))


def _redeliveries(report: Numbers) -> _Table:
    groups = [each for each in report["redelivery"]["by_subscription"] if each["redelivered"]]
    causes = names_of("V10")
    rows = [
        (
            _count(group["redelivered"]),
            _count(group["deliveries"]),
            _share(group["rate_messages"]),
            f"{_name(group['subscription'])} of {_name(group['topic'])}"
            f": {counts_text(group['by_cause'], causes)}",
        )
        for group in groups[:_LISTED]
    ]
    headings = ("again", "deliveries", "of messages", "subscription")
    return _Table(headings, rows, len(groups))


def _lags(report: Numbers) -> _Table:
    names = ("lag_committed_last", "lag_committed_max", "lag_delivered_last", "lag_delivered_max")
    listed = report["ack_latency"]["by_subscription"]
    groups = [each for each in listed if any(each[name] is not None for name in names)]
    groups.sort(key=lambda each: -(each["lag_committed_last"] or each["lag_delivered_last"] or 0))
    rows = [
        (
            *(_count(group[name]) for name in names),
            f"{_name(group['subscription'])} of {_name(group['topic'])}",
        )
        for group in groups[:_LISTED]
    ]
    headings = ("committed", "most of a log", "delivered", "most of a log", "subscription")
    return _Table(headings, rows, len(groups))


def _checksums(report: Numbers) -> _Table:
    failures = report["checksum_failures"]["failures"]
    of = _captures(report)
    rows = [
        (
            f"{each['connection_id']}",
            f"{each['frame_no']}",
            _packets(each["first_packet"], each["last_packet"]),
            str(each["command"]),
            f"{_name(each['topic'])}{of(each)} ({each['verdict'].replace('_', ' ')})",
        )
        for each in failures[:_LISTED]
    ]
    headings = ("connection", "frame", "packets", "command", "topic")
    return _Table(headings, rows, report["checksum_failures"]["total"]["mismatch"])


def _errors(report: Numbers) -> _Table:
    incidents = report["errors"]["incidents"]
    of = _captures(report)
    rows = [
        (
            f"{each['answers']:,}",
            f"{each['connection_id']}",
            f"{each['response_frame_no']}",
            each["request_command"] or "unknown",
            f"{_code(each['error_code'])}{of(each)}: {_short(each['error_text'] or 'no text')}",
        )
        for each in incidents[:_LISTED]
    ]
    headings = ("times", "connection", "frame", "command", "answer")
    return _Table(headings, rows, report["errors"]["total"]["incidents"])


def _short(text: str) -> str:
    shown = safe_text(text)
    return shown if len(shown) <= 100 else f"{shown[:99]}…"


def _lacks(total: Numbers) -> Iterator[str]:
    if total["dropped_by_interface"]:
        yield f"{counted(total['dropped_by_interface'], 'packet')} dropped by the interface"
    if total["gap_bytes"]:
        yield f"{bytes_text(total['gap_bytes'])} in {counted(total['gaps'], 'gap')} never captured"
    if total["snaplen_cut_bytes"]:
        yield cut_text(total)
    damaged = {name: n for name, n in total["frames_by_status"].items() if name != "complete"}
    if damaged:
        yield "frames that are not whole: " + "; ".join(
            f"{count:,} ({STATUSES.get(name, name)})" for name, count in damaged.items()
        )
    if total["packets_ignored_by_reason"]:
        yield f"packets not used: {_counts(total['packets_ignored_by_reason'])}"
    unread = total["packets_unread_by_kind"]
    if unread:
        kinds = [f"{kind} ({counted(count, 'packet')})" for kind, count in unread.items()]
        yield f"kinds of packets that are not read: {listed(kinds, _KINDS)}"
    for code, count in total["notices_by_code"].items():
        if code in UNREAD_CODES and unread:
            continue
        yield f"{code} ({counted(count, 'notice')}): {notice_sentence(total, code)}"
