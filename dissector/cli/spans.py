"""Spans of time on a command line: how long, when to rotate, how fast to replay."""

import re
from typing import Final, NamedTuple

from dissector.cli.options import Parsed, size_of
from dissector.errors import UsageError
from dissector.limits import MAX_KEPT_DAYS

_DAYS: Final = re.compile(r"(\d{1,6})d")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")


class Rotate(NamedTuple):
    """The end of a rotation: after seconds or after bytes of packets, whichever is first."""

    seconds: float | None
    size: int | None


def seconds_of(text: str) -> float | None:
    """A duration such as 500ms, 60s, 5m, 8h in seconds; None if it is none."""
    match = _DURATION.fullmatch(text.strip())
    return float(match[1]) * _SECONDS[match[2]] if match else None


def days_of(text: str) -> int | None:
    """A number of days such as 30d; None if it is none."""
    match = _DAYS.fullmatch(text.strip())
    days = int(match[1]) if match else 0
    return days if 0 < days <= MAX_KEPT_DAYS else None


def _days(text: str) -> int:
    """A number of days: 30d."""
    days = days_of(text)
    if days is None:
        raise UsageError(f"{text!r} is no number of days; write 30d")
    return days


def _duration(text: str) -> float:
    """A time span with its unit: 500ms, 60s, 5m, 8h."""
    seconds = seconds_of(text)
    if seconds is None or seconds <= 0:
        raise UsageError(f"{text!r} is no time span; write 500ms, 60s, 5m or 8h")
    return seconds


def _rotate(text: str) -> Rotate:
    """A time span, a size, or both: 60s, 256MB, 60s,256MB."""
    seconds, size = None, None
    for part in text.split(","):
        span = seconds_of(part)
        if span is not None:
            seconds = span
        else:
            try:
                size = size_of(part)
            except UsageError:
                what = f"{part!r} is neither time nor size"
                raise UsageError(f"{what}; write 60s, 256MB or 60s,256MB") from None
    if seconds == 0 or size == 0:
        raise UsageError(f"{text!r} is nothing; write 60s, 256MB or both")
    return Rotate(seconds, size)


def _speed(text: str) -> float:
    """real, max, or how many times faster than captured. max is 0."""
    if text in ("max", "real"):
        return 0.0 if text == "max" else 1.0
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:
        raise UsageError(f"{text!r} is no speed; write real, max or a number")
    return number


DAYS: Final = Parsed("days", _days)
DURATION: Final = Parsed("duration", _duration)
ROTATE: Final = Parsed("rotate", _rotate)
SPEED: Final = Parsed("speed", _speed)
