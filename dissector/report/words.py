"""Numbers and names as people read them: units, thousands, shares; unknown is never 0."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dissector.schemas.wire_names import name_text as name_text

_SCALE: Final = ((60_000.0, ""), (1000.0, "s"), (1.0, "ms"), (0.001, "µs"), (0.000_001, "ns"))


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration_text(duration_ms: float) -> str:
    """A duration in ms with the unit that suits it: 850 ns, 12.3 µs, 1.5 ms, 2 min 5 s."""
    if duration_ms >= 60_000:
        seconds = round(duration_ms / 1000)
        minutes, rest = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
    for size, unit in _SCALE[1:]:
        if duration_ms >= size:
            return f"{_trimmed(_digits(duration_ms / size))} {unit}"
    return "0" if duration_ms == 0 else f"{duration_ms * 1_000_000:.0f} ns"


def count_text(value: int) -> str:
    """A number with its thousands apart."""
    return f"{value:,}"


def many(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun: 0 files, 1 file, 2,000 files. Every counted noun comes from here."""
    return f"{count_text(count)} {one if count == 1 else several or one + 's'}"


def every(count: int, one: str, is_so: str, are_so: str, several: str | None = None) -> str:
    """That something is true of all: the only file is, both files are, all 3 files are."""
    noun = one if count == 1 else several or one + "s"
    who = {1: "The only", 2: "Both"}.get(count, f"All {count_text(count)}")
    return f"{who} {noun} {is_so if count == 1 else are_so}"


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


def bytes_text(size: int) -> str:
    """A size in bytes, KiB, MiB and so on."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{size:,} bytes" if unit == "bytes" else f"{_digits(value)} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def share_text(part: float) -> str:
    """A share as percent; what is not quite all or nothing does not look like it."""
    percent = part * 100
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    return f"{_trimmed(f'{percent:.2f}')} %"
