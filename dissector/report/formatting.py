"""Numbers and names as people read them: units, thousands, shares; unknown is never 0."""

from collections.abc import Mapping, Sequence
from typing import Any

from dissector.schemas.quantities import about_text as about_text
from dissector.schemas.quantities import bytes_text as bytes_text
from dissector.schemas.quantities import duration_text as duration_text
from dissector.schemas.quantities import share_text as share_text
from dissector.schemas.quantities import significant
from dissector.schemas.wire_names import name_text as name_text


def count_text(value: int) -> str:
    """A number with its thousands apart."""
    return f"{value:,}"


def many(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun: 0 files, 1 file, 2,000 files. Every counted noun comes from here."""
    return f"{count_text(count)} {one if count == 1 else several or one + 's'}"


def percentile_ms(times: Mapping[str, Any], name: str, is_exact: bool = False) -> str:
    """A percentile in ms: all digits where it is one of the values, as it is of few; else the two
    that the middle of its bucket has.

    Args:
        times: as `numbers.durations` gives them. is_exact: they were computed from all values.
    """
    value = times.get(name)
    if value is None:
        return "-"
    return f"{value:,.3f}" if is_exact or _is_value(times, name) else significant(value)


def time_text(times: Mapping[str, Any], name: str, is_exact: bool = False) -> str | None:
    """A percentile, least, greatest or mean time with its unit, and digits as `percentile_ms`
    decides; None where nothing was timed. Arguments as there."""
    value = times.get(name)
    if value is None:
        return None
    return (duration_text if is_exact or _is_value(times, name) else about_text)(value)


def _is_value(times: Mapping[str, Any], name: str) -> bool:
    """Whether a time is one of the values or their mean, not the middle of a bucket."""
    return not name.startswith("p") or times[name] in (times["min"], times["max"])


def listed(items: Sequence[str], limit: int, total: int | None = None) -> str:
    """The first items of a list: a, b, c … (9 in all) where there are more. total: items there are,
    if not all were given."""
    count = len(items) if total is None else total
    shown = ", ".join(items[:limit])
    return f"{shown} … ({count_text(count)} in all)" if count > limit else shown


def cut_text(total: Mapping[str, Any]) -> str:
    """Bytes of packets that are not there whole, and why. total: of the section `coverage`."""
    size, shortened = total["snaplen_cut_bytes"], total.get("shortened_bytes", 0)
    if shortened == 0:
        return f"{bytes_text(size)} cut by the snap length"
    shorter = "packets that are shorter than their IP header says"
    if shortened >= size:
        return f"{bytes_text(size)} missing from {shorter}"
    return f"{bytes_text(size)} cut by the snap length or missing from {shorter}"
