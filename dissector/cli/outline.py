"""The numbers of a report as a page of text: what `summary` prints and `analyze` ends with.

First what stands out, one sentence each; then a short table per section that has something to
list. Names come last in a line, so that numbers stay in columns however long a name is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dissector.cli.terminal import Paint, counted, safe_text
from dissector.report.outlook import BAD, GOOD, LOOK, remarks, spoken
from dissector.report.words import bytes_text, duration_text, share_text

Numbers = dict[str, Any]
_LISTED: Final = 5  # lines of each list that are shown
_MARKS: Final = {GOOD: ("ok", "green"), LOOK: ("look", "yellow"), BAD: ("BAD", "red")}


def outline(report: Numbers, paint: Paint) -> Iterator[str]:
    """The lines of a report: what was read, what stands out, and the numbers behind it."""
    yield from _capture(report["coverage"]["total"])
    yield ""
    for remark in remarks(report):
        mark, style = _MARKS.get(remark.mark, ("", "dim"))
        yield f"  {paint(f'{mark:<4}', style)}  {safe_text(remark.text)}"
    for title, lines in (
        ("send latency in ms, from the end of a SEND to the end of its receipt", _sends(report)),
        ("slowest sends", _slowest(report)),
        ("permits of consumers", _permits(report)),
        ("redeliveries", _redeliveries(report)),
        ("lag of groups in messages, behind commits and behind deliveries", _lags(report)),
        ("wrong checksums", _checksums(report)),
        ("refused requests", _errors(report)),
        ("what the capture lacks", _lacks(report["coverage"]["total"])),
    ):
        listed = list(lines)
        if listed:
            yield ""
            yield paint(spoken(report, title), "bold")
            yield from (f"  {line}" for line in listed)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], total: int) -> Iterator[str]:
    """Lines of columns, numbers to the right; the last column is text. total: rows there are."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)][:-1]
    for row in (heads, *rows):
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)]
        yield "  ".join((*cells, row[-1]))
    if total > len(rows):
        yield f"and {total - len(rows):,} more, see --json"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"


def _share(value: float | None) -> str:
    return "-" if value is None else share_text(value)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _name(value: str | None) -> str:
    return safe_text(value) if value is not None else "(unknown)"


def _packets(first: int | None, last: int | None) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _counts(counts: Numbers, limit: int = 8) -> str:
    """`12 ok, 3 error`; the largest first, what does not fit is counted."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [f"{count:,} {safe_text(str(name))}" for name, count in ordered[:limit]]
    rest = len(ordered) - limit
    return ", ".join(shown) + (f", and {rest} more" if rest > 0 else "")


def _captures(report: Numbers) -> Callable[[Numbers], str]:
    """Which capture a row is of, in words: nothing where there is one only."""
    files: dict[Any, list[str]] = {}
    for source in report["sources"]:
        files.setdefault(source["capture"], []).append(source["file_name"])
    if len(files) < 2:
        return lambda row: ""
    names = {key: found[0] if len(found) == 1 else key for key, found in files.items()}
    return lambda row: f" in {_name(names.get(row['capture'], row['capture']))}"


def _capture(total: Numbers) -> Iterator[str]:
    span = duration_text((total["span_ns"] or 0) / 1e6)
    when = f", {span} from {total['first_ts']}" if total["first_ts"] else ""
    yield f"{counted(total['packets'], 'packet')} in {counted(total['files'], 'file')}{when}"
    of = _counts(total["connections_by_protocol"])
    frames = counted(total["frames"], "frame")
    yield f"{counted(total['connections'], 'connection')}{f' ({of})' if of else ''}, {frames}"


def _sends(report: Numbers) -> Iterator[str]:
    section = report["send_latency"]
    groups = section["by_topic"]
    rows = [
        (
            *(_ms(group["latency_ms"][name]) for name in ("p50", "p90", "p99", "max")),
            _count(group["sends"]),
            f"{group['outcomes'].get('ok', 0):,}",
            _name(group["topic"]),
        )
        for group in groups[:_LISTED]
    ]
    if len(groups) > 1:
        total = section["total"]
        latency = [_ms(total["latency_ms"][name]) for name in ("p50", "p90", "p99", "max")]
        answered = total["outcomes"].get("ok", 0)
        rows.append((*latency, _count(total["sends"]), f"{answered:,}", "all topics"))
    heads = ("p50", "p90", "p99", "max", "sends", "answered", "topic")
    yield from _table(heads, rows, len(groups) + (len(groups) > 1))


def _slowest(report: Numbers) -> Iterator[str]:
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
    yield from _table(("ms", "connection", "frames", "packets", "topic"), rows, len(rows))


def _permits(report: Numbers) -> Iterator[str]:
    groups = report["permit_utilization"]["by_subscription"]
    rows = [
        (
            _count(group["granted"]),
            _count(group["delivered"]),
            _share(group["utilization"]),
            _share(group["exhausted_share"]),
            _count(group["stalls"]["confirmed"]["count"]),
            f"{_name(group['subscription'])} of {_name(group['topic'])}"
            + ("" if group["baseline_known"] else " (balance not known throughout)"),
        )
        for group in groups[:_LISTED]
    ]
    heads = ("granted", "delivered", "used", "time without", "stalls", "subscription")
    yield from _table(heads, rows, len(groups))


def _redeliveries(report: Numbers) -> Iterator[str]:
    total = report["redelivery"]["total"]
    groups = [each for each in report["redelivery"]["by_subscription"] if each["redelivered"]]
    rows = [
        (
            _count(group["redelivered"]),
            _count(group["deliveries"]),
            _share(group["rate_messages"]),
            f"{_name(group['subscription'])} of {_name(group['topic'])}"
            f" ({_counts(group['by_cause'])})",
        )
        for group in groups[:_LISTED]
    ]
    heads = ("again", "deliveries", "of messages", "subscription")
    yield from _table(heads, rows, len(groups))
    if total["dead_letter_publishes"] or total["retry_publishes"]:
        yield (
            f"published to dead letter topics: {total['dead_letter_publishes']:,}, "
            f"to retry topics: {total['retry_publishes']:,}"
        )


def _lags(report: Numbers) -> Iterator[str]:
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
    heads = ("committed", "most of a log", "delivered", "most of a log", "subscription")
    yield from _table(heads, rows, len(groups))


def _checksums(report: Numbers) -> Iterator[str]:
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
    heads = ("connection", "frame", "packets", "command", "topic")
    yield from _table(heads, rows, report["checksum_failures"]["total"]["mismatch"])


def _errors(report: Numbers) -> Iterator[str]:
    incidents = report["errors"]["incidents"]
    of = _captures(report)
    rows = [
        (
            f"{each['answers']:,}",
            f"{each['connection_id']}",
            f"{each['response_frame_no']}",
            str(each["request_command"]),
            f"{_name(each['error_code'])}{of(each)}: {_short(each['error_text'] or 'no text')}",
        )
        for each in incidents[:_LISTED]
    ]
    heads = ("times", "connection", "frame", "command", "answer")
    yield from _table(heads, rows, report["errors"]["total"]["incidents"])


def _short(text: str) -> str:
    shown = safe_text(text)
    return shown if len(shown) <= 100 else f"{shown[:99]}…"


def _lacks(total: Numbers) -> Iterator[str]:
    if total["dropped_by_interface"]:
        yield f"{counted(total['dropped_by_interface'], 'packet')} dropped by the interface"
    if total["gap_bytes"]:
        yield f"{bytes_text(total['gap_bytes'])} in {counted(total['gaps'], 'gap')} never captured"
    if total["snaplen_cut_bytes"]:
        yield f"{bytes_text(total['snaplen_cut_bytes'])} cut by the snap length"
    damaged = {name: n for name, n in total["frames_by_status"].items() if name != "complete"}
    if damaged:
        yield f"frames that are not whole: {_counts(damaged)}"
    if total["packets_ignored_by_reason"]:
        yield f"packets not used: {_counts(total['packets_ignored_by_reason'])}"
    if total["notices_by_code"]:
        yield f"notices: {_counts(total['notices_by_code'])}"
