"""The numbers of a report as a page of text: what `summary` prints and `analyze` ends with."""

from collections.abc import Iterator
from typing import Any, Final

from dissector.cli.terminal import Paint, bytes_text, counted, safe_text

Numbers = dict[str, Any]
_LISTED: Final = 5  # groups of each list that are shown


def outline(report: Numbers, paint: Paint) -> Iterator[str]:
    """The lines of a report, one section after the other; what did not occur is said so."""
    for title, lines in (
        ("coverage", _coverage),
        ("send latency", _send_latency),
        ("permit utilization", _permits),
        ("redelivery", _redelivery),
        ("checksum failures", _checksums),
        ("errors", _errors),
    ):
        section = report[title.replace(" ", "_")]
        yield paint(title, "bold")
        for line in lines(section, paint):
            yield f"  {line}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _name(value: str | None) -> str:
    return safe_text(value) if value is not None else "(unknown)"


def _counts(counts: Numbers, limit: int = 8) -> str:
    """`ok 12, error 3`; the largest first, what does not fit is counted."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [f"{safe_text(str(name))} {count:,}" for name, count in ordered[:limit]]
    rest = len(ordered) - limit
    return ", ".join(shown) + (f", and {rest} more" if rest > 0 else "")


def _more(listed: list[Numbers]) -> Iterator[str]:
    if len(listed) > _LISTED:
        yield f"  … and {len(listed) - _LISTED} more, see --json"


def _coverage(section: Numbers, paint: Paint) -> Iterator[str]:
    total = section["total"]
    span = (total["span_ns"] or 0) / 1e9
    yield (
        f"{counted(total['files'], 'file')}, {counted(total['packets'], 'packet')}, "
        f"{bytes_text(total['file_bytes'])}, {span:,.3f} s from {total['first_ts'] or '-'}"
    )
    yield (
        f"{counted(total['connections'], 'connection')} "
        f"({_counts(total['connections_by_protocol']) or 'none'}); "
        f"{_percent(total['decoded_share'])} of the stream bytes decoded"
    )
    yield f"{counted(total['frames'], 'frame')} ({_counts(total['frames_by_status']) or 'none'})"
    if total["packets_ignored_by_reason"]:
        yield f"packets not used: {_counts(total['packets_ignored_by_reason'])}"
    gaps = total.get("gap_bytes", 0)
    if gaps:
        yield paint(f"{counted(gaps, 'byte')} of the streams were never captured", "yellow")
    if total["notices_by_code"]:
        yield f"notices: {_counts(total['notices_by_code'])}"


def _latency_words(numbers: Numbers) -> str:
    latency = numbers["latency_ms"]
    return " ".join(f"{name} {_ms(latency[name])}" for name in ("p50", "p90", "p99", "max"))


def _send_latency(section: Numbers, paint: Paint) -> Iterator[str]:
    total = section["total"]
    if not total["sends"]:
        yield "no publishes"
        return
    yield (
        f"{counted(total['sends'], 'send')} of {counted(total['messages'], 'message')}: "
        f"{_counts(total['outcomes'])}; {total['resent']:,} sent again; "
        f"{total['tainted']:,} touched by a gap or retransmission"
    )
    yield f"ms over {total['latency_ms']['count']:,} answered: {_latency_words(total)}"
    if total["not_judged"]:
        yield f"not judged: {_counts(total['not_judged'])}"
    for group in section["by_topic"][:_LISTED]:
        yield f"  {_name(group['topic'])}: {group['sends']:,} sends, ms {_latency_words(group)}"
    yield from _more(section["by_topic"])


def _permits(section: Numbers, paint: Paint) -> Iterator[str]:
    total = section["total"]
    if not total["consumers"]:
        yield "no consumers"
        return
    yield (
        f"{counted(total['consumers'], 'consumer')}: {total['granted']:,} permits granted, "
        f"{total['delivered']:,} messages delivered, utilization {_percent(total['utilization'])}, "
        f"without permits {_percent(total['exhausted_share'])} of the time"
    )
    for group in section["by_subscription"][:_LISTED]:
        confirmed = group["stalls"]["confirmed"]
        stalls = f"{confirmed['count']:,} confirmed stalls"
        if confirmed["count"]:
            stalls = paint(f"{stalls}, longest {_ms(confirmed['longest_ms'])} ms", "yellow")
        yield (
            f"  {_name(group['topic'])} / {_name(group['subscription'])}: "
            f"utilization {_percent(group['utilization'])}, "
            f"without permits {_percent(group['exhausted_share'])}, {stalls}"
        )
    yield from _more(section["by_subscription"])


def _redelivery(section: Numbers, paint: Paint) -> Iterator[str]:
    total = section["total"]
    if not total["deliveries"]:
        yield "no deliveries"
        return
    line = f"{total['redelivered']:,} of {counted(total['deliveries'], 'delivery', 'deliveries')}"
    causes = total["by_cause"]
    if causes:
        line += f" again: {_counts(causes)}"
    yield line
    if total["dead_letter_publishes"] or total["retry_publishes"]:
        yield (
            f"{total['dead_letter_publishes']:,} published to dead letter topics, "
            f"{total['retry_publishes']:,} to retry topics"
        )
    again = [group for group in section["by_subscription"] if group["redelivered"]]
    for group in again[:_LISTED]:
        yield (
            f"  {_name(group['topic'])} / {_name(group['subscription'])}: {group['redelivered']:,} "
            f"of {group['deliveries']:,} again, {_percent(group['rate_messages'])} of the messages"
        )
    yield from _more(again)


def _checksums(section: Numbers, paint: Paint) -> Iterator[str]:
    total = section["total"]
    line = f"{total['mismatch']:,} of {counted(total['evaluated'], 'frame')} with a wrong checksum"
    if total["mismatch"]:
        verdicts = ("confirmed_by_peer", "capture_artefact", "unconfirmed")
        line += f" ({_counts({name: total[name] for name in verdicts if total[name]})})"
        line = paint(line, "red")
    yield line
    if total["absent"] or total["not_evaluated"]:
        yield f"absent {total['absent']:,}, not evaluated {total['not_evaluated']:,}"
    for failure in section["failures"][:_LISTED]:
        yield (
            f"  {_name(failure['topic'])}: connection {failure['connection_id']} frame "
            f"{failure['frame_no']}, {failure['verdict'].replace('_', ' ')}"
        )
    yield from _more(section["failures"])


def _errors(section: Numbers, paint: Paint) -> Iterator[str]:
    total = section["total"]
    if not total["answers"]:
        yield "none"
        return
    yield (
        f"{counted(total['answers'], 'answer')} with an error in "
        f"{counted(total['incidents'], 'incident')}"
    )
    for group in section["by_code"][:_LISTED]:
        yield (
            f"  {_name(group['error_code'])}: {counted(group['answers'], 'answer')} to "
            f"{_counts(group['by_request'])}"
        )
    yield from _more(section["by_code"])
