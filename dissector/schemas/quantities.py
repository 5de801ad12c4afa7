"""Formats durations, sizes and shares for people."""

from collections.abc import Callable
from math import floor, log10
from typing import Final

_SCALE: Final = ((60_000.0, ""), (1000.0, "s"), (1.0, "ms"), (0.001, "µs"), (0.000_001, "ns"))


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def significant(value: float, digits: int = 2) -> str:
    """Some significant digits, without an exponent; of two: 0.43, 4.4, 15, 1,200."""
    if value <= 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:,.{max(0, digits - 1 - floor(log10(rounded)))}f}"


def amount_text(value: float, digits: int = 4) -> str:
    """What is counted or measured: all of a whole number, of others some digits and no zeros."""
    return f"{value:,.0f}" if float(value).is_integer() else _trimmed(significant(value, digits))


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def about_text(duration_ms: float) -> str:
    """Format a duration that is a bucket's middle: as `duration_text`, with two digits."""
    return duration_text(duration_ms, significant)


def duration_text(duration_ms: float, digits: Callable[[float], str] = _digits) -> str:
    """Format a duration in ms with a suitable unit: 850 ns, 12.3 µs, 1.5 ms, 2 min 5 s."""
    if duration_ms >= 60_000:
        seconds = round(duration_ms / 1000)
        minutes, rest = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
    for size, unit in _SCALE[1:]:
        if duration_ms >= size:
            return f"{_trimmed(digits(duration_ms / size))} {unit}"
    return "0" if duration_ms == 0 else f"{duration_ms * 1_000_000:.0f} ns"


def bytes_text(size: int) -> str:
    """Format a size in bytes, KiB, MiB or GiB."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{size:,} bytes" if unit == "bytes" else f"{_digits(value)} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def share_text(part: float) -> str:
    """Format a share as percent; neither 0 nor 100 is shown for a share in between."""
    percent = part * 100
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    return f"{_trimmed(f'{percent:.2f}')} %"
