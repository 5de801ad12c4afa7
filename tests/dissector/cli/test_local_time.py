"""Times as people read them: UTC, or those of TZ."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.cli.local_time import (
    as_data,
    is_local,
    shown_instant,
    shown_sentence,
    shown_time,
    shown_value,
    speak_local_time,
    time_text,
)

SUMMER = 1_795_254_379_901_123_456 - 150 * 86_400 * 10**9


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    """Local times are those of New York, and wanted."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    with click.Context(click.Command("x")) as context:
        speak_local_time(context, click.Option(["--local-time"]), True)
        assert is_local()
        yield ZoneInfo("America/New_York")
    assert not is_local()
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("ts_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_795_254_379_901_123_456, "2026-11-21T07:06:19.901123Z"),
        (None, "-"),
        (2**63 - 1, "2262-04-11T23:47:16.854775Z"),
    ],
)
def test_times_are_utc_and_never_rounded_up(ts_ns: int | None, text: str) -> None:
    expected = text
    if ts_ns and ts_ns > 10**18 and ts_ns < 2 * 10**18:
        at = datetime.fromtimestamp(ts_ns // 10**9, UTC)
        expected = f"{at:%Y-%m-%dT%H:%M:%S}.901123Z"
    assert time_text(ts_ns) == expected


def test_times_beyond_the_calendar_stay_numbers() -> None:
    assert time_text(10**30) == f"{10**30} ns"


def test_local_times_are_the_same_moments_with_their_offset(new_york: ZoneInfo) -> None:
    for ts_ns in (SUMMER, SUMMER + 180 * 86_400 * 10**9, 0, -1):
        shown = shown_time(ts_ns)
        at = datetime.fromisoformat(shown)
        assert at == datetime.fromisoformat(time_text(ts_ns)), "the same moment"
        assert at.utcoffset() == at.astimezone(new_york).utcoffset(), "of that day"
        assert shown_instant(time_text(ts_ns)) == shown
    assert shown_time(SUMMER).endswith("-04:00")
    assert shown_time(10**30) == f"{10**30} ns" and shown_instant(None) == "-"
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert shown_value(moment) == "2026-01-31T07:00:00.000000-05:00" and shown_value(5) == 5


def test_times_in_sentences_are_local_and_names_stay(new_york: ZoneInfo) -> None:
    since = "2026-01-31T23:59:59.123456Z"
    with_name = f"since {since}, in topic persistent://a/b/{since}, {since}-log and x.{since}."
    shown = "2026-01-31T18:59:59.123456-05:00"
    assert shown_sentence(with_name) == with_name.replace(f"since {since}", f"since {shown}")
    assert shown_sentence(f"({since}; {since}.") == f"({shown}; {shown}."
    no_day = "since 2026-13-31T23:59:59.123456Z"
    assert shown_sentence(no_day) == no_day


def test_files_stay_utc(new_york: ZoneInfo) -> None:
    with as_data():
        assert shown_time(SUMMER) == time_text(SUMMER)
    assert shown_time(SUMMER) != time_text(SUMMER)


@given(st.integers(-(2**62), 2**62))
def test_without_the_option_times_are_utc(ts_ns: int) -> None:
    assert shown_time(ts_ns) == time_text(ts_ns)
    assert shown_instant(time_text(ts_ns)) == time_text(ts_ns)
