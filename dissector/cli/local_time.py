"""Times in texts for people: UTC, or with --local-time in the zone TZ. Data stay UTC."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT: Final = re.compile(r"(?<![\w/:.-])\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z(?![\w/:-]|\.\w)")
_IS_LOCAL: Final = ContextVar("is_local", default=False)


def speak_local_time(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Make the command of a context print local times."""
    if is_asked:
        token = _IS_LOCAL.set(True)
        context.call_on_close(lambda: _IS_LOCAL.reset(token))


def is_local() -> bool:
    """Whether the user wants local times."""
    return _IS_LOCAL.get()


@contextmanager
def as_data() -> Iterator[None]:
    """Use UTC inside the body, or a decorated function: it writes a file."""
    token = _IS_LOCAL.set(False)
    try:
        yield
    finally:
        _IS_LOCAL.reset(token)


def time_text(ts_ns: int | None, decimals: int = 6) -> str:
    """ns since 1970 as UTC, 2026-01-31T23:59:59.123456Z; `-` for none.

    Times out of the calendar's range, which a damaged capture may have, stay numbers.
    """
    return _written(ts_ns, decimals, is_here=False)


def shown_time(ts_ns: int | None, decimals: int = 6) -> str:
    """`time_text`, with --local-time in the zone TZ: 2026-02-01T00:59:59.123456+01:00."""
    return _written(ts_ns, decimals, is_here=_IS_LOCAL.get())


def shown_value(value: Any) -> Any:
    """A cell's value for people: times as texts, other values unchanged."""
    return (
        shown_instant(f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z")
        if isinstance(value, datetime)
        else value
    )


def shown_instant(text: str | None) -> str:
    """A UTC time of a report, in the printed zone."""
    if text is None or not _IS_LOCAL.get():
        return text or "-"
    since = datetime.fromisoformat(text) - _EPOCH
    return shown_time((since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000)


def shown_sentence(text: str) -> str:
    """A sentence of a report with its UTC times replaced as by `shown_instant`.

    A match that continues on either side, or has an impossible date, is part of a name.
    """
    return _INSTANT.sub(_shown_match, text) if _IS_LOCAL.get() else text


def _shown_match(match: re.Match[str]) -> str:
    try:
        return shown_instant(match[0])
    except ValueError:
        return match[0]


def _written(ts_ns: int | None, decimals: int, *, is_here: bool) -> str:
    if ts_ns is None:
        return "-"
    seconds, rest = divmod(ts_ns, 1_000_000_000)
    try:
        whole = _EPOCH + timedelta(seconds=seconds)
        whole = whole.astimezone() if is_here else whole
    except (OverflowError, ValueError, OSError):
        return f"{ts_ns} ns"
    fraction = f"{rest:09d}"[:decimals]
    zone = whole.isoformat()[19:] if is_here else "Z"
    return f"{whole:%Y-%m-%dT%H:%M:%S}{'.' if fraction else ''}{fraction}{zone}"
