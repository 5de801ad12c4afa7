"""Format numbers and names for readers: units, thousands, shares; unknown is never 0."""

from collections.abc import Mapping, Sequence
from typing import Any

from dissector.schemas.quantities import about_text as about_text
from dissector.schemas.quantities import bytes_text as bytes_text
from dissector.schemas.quantities import duration_text as duration_text
from dissector.schemas.quantities import share_text as share_text
from dissector.schemas.quantities import significant
from dissector.schemas.wire_names import name_text as name_text


def count_text(value: int) -> str:
    """A number with commas between thousands."""
    return f"{value:,}"


def many(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun: 0 files, 1 file, 2,000 files. Every counted noun comes from here."""
    return f"{count_text(count)} {one if count == 1 else several or one + 's'}"


def percentile_ms(times: Mapping[str, Any], name: str, is_exact: bool = False) -> str:
    """A percentile in ms: three decimals if it is one of the values, as it is of few values; else
    two significant digits, as it is the middle of a bucket.

    Args:
        times: from `numbers.durations`. is_exact: percentiles were computed from all values.
    """
    value = times.get(name)
    if value is None:
        return "-"
    return f"{value:,.3f}" if is_exact or _is_value(times, name) else significant(value)


def time_text(times: Mapping[str, Any], name: str, is_exact: bool = False) -> str | None:
    """A percentile, minimum, maximum or mean with its unit, and the digits of `percentile_ms`;
    None where nothing was timed. Arguments as there."""
    value = times.get(name)
    if value is None:
        return None
    return (duration_text if is_exact or _is_value(times, name) else about_text)(value)


def _is_value(times: Mapping[str, Any], name: str) -> bool:
    """Whether a time is one of the values, or their mean: not the middle of a bucket."""
    return not name.startswith("p") or times[name] in (times["min"], times["max"])


def listed(items: Sequence[str], limit: int, total: int | None = None) -> str:
    """The first items of a list, such as "a, b, c … (9 in all)". total: the number of items, if
    `items` lacks some."""
    count = len(items) if total is None else total
    shown = ", ".join(items[:limit])
    return f"{shown} … ({count_text(count)} in all)" if count > limit else shown


def cut_text(total: Mapping[str, Any]) -> str:
    """The bytes that cut packets lack, and why. total: of the section `coverage`."""
    size, shortened = total["snaplen_cut_bytes"], total.get("shortened_bytes", 0)
    if shortened == 0:
        return f"{bytes_text(size)} cut by the snap length"
    shorter = "packets that are shorter than their IP header says"
    if shortened >= size:
        return f"{bytes_text(size)} missing from {shorter}"
    return f"{bytes_text(size)} cut by the snap length or missing from {shorter}"


def cut_sentence(report: Mapping[str, Any]) -> str:
    """What the snap length means for all numbers of a report; empty if no packet was cut."""
    total = report["coverage"]["total"]
    if not total["snaplen_cut_bytes"]:
        return ""
    lengths = {file["snaplen"] for file in report["sources"]}
    only = lengths.pop() if len(lengths) == 1 else None
    named = f" of {many(only, 'byte')}" if only else ""
    text = cut_text(total).replace("the snap length", f"the snap length{named}")
    return f"{text}: what was there is not known"
