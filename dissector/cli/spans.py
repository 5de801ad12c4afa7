"""Spans of time on a command line: how long, when to rotate, how fast to replay."""

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from dissector.cli.options import Size
from dissector.limits import MAX_KEPT_DAYS

_DAYS: Final = re.compile(r"(\d{1,6})d")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")

if TYPE_CHECKING:
    _NumberType = click.ParamType[float]
    _RotateType = click.ParamType["Rotate"]
    _DaysType = click.ParamType[int]
else:
    _NumberType = _RotateType = _DaysType = click.ParamType


class Rotate(NamedTuple):
    """When a rotation ends: after seconds, after bytes of packets, whichever is first."""

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


class Days(_DaysType):
    """A number of days: 30d."""

    name = "days"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        days = value if isinstance(value, int) else days_of(str(value))
        if days is None:
            self.fail(f"{value!r} is no number of days; write 30d", param, ctx)
        return days


class Duration(_NumberType):
    """A time span with its unit: 500ms, 60s, 5m, 8h."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, int | float):
            return float(value)
        seconds = seconds_of(str(value))
        if seconds is None or seconds <= 0:
            self.fail(f"{value!r} is no time span; write 500ms, 60s, 5m or 8h", param, ctx)
        return seconds


class RotateOption(_RotateType):
    """A time span, a size, or both: 60s, 256MB, 60s,256MB."""

    name = "rotate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Rotate:
        if isinstance(value, Rotate):
            return value
        seconds, size = None, None
        for part in str(value).split(","):
            span = seconds_of(part)
            if span is not None:
                seconds = span
            else:
                size = Size().convert(part, param, ctx)
        if seconds == 0 or size == 0:
            self.fail(f"{value!r} is nothing; write 60s, 256MB or both", param, ctx)
        return Rotate(seconds, size)


class Speed(_NumberType):
    """real, max, or how many times faster than captured. max is 0."""

    name = "speed"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if value in ("max", "real"):
            return 0.0 if value == "max" else 1.0
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e6:
            self.fail(f"{value!r} is no speed; write real, max or a number", param, ctx)
        return number
