"""Words, colours and safe text."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.cli.terminal import (
    NORMAL,
    QUIET,
    VERBOSE,
    Messages,
    Paint,
    WordsOfProgress,
    bytes_text,
    clipped,
    columns_of,
    counted,
    no_progress,
    no_step,
    progress_bar,
    safe_text,
    show_fetching,
    steps_bar,
    terminal_width,
    wrapped,
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text())
def test_safe_text_is_always_printable_and_keeps_what_is(text: str) -> None:
    shown = safe_text(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("a\nb\r", r"a\x0ab\x0d"),
        ("\u202eabc", r"\u202eabc"),
        ("Zürich/東京", "Zürich/東京"),
        ("\U000e0001", r"\U000e0001"),
    ],
    ids=["escape", "c1", "lines", "direction", "letters", "tag"],
)
def test_what_could_move_the_cursor_is_spelled_out(text: str, shown: str) -> None:
    assert safe_text(text) == shown


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_090_000, "1.09 MB"), (5 * 10**15, "5000.00 TB")],
)
def test_sizes_have_units(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_counts_have_their_word() -> None:
    assert [counted(1, "file"), counted(2000, "file")] == ["1 file", "2,000 files"]
    assert counted(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("loudness", "lines"),
    [(QUIET, 1), (NORMAL, 2), (VERBOSE, 3)],
    ids=["quiet", "normal", "verbose"],
)
def test_words_are_as_loud_as_asked(loudness: int, lines: int) -> None:
    stream = io.StringIO()
    words = Messages(loudness, stream)
    words.missing("a part")
    words.say("done")
    words.detail("in detail")
    assert stream.getvalue().count("\n") == lines
    assert all(line.startswith("dissector: ") for line in stream.getvalue().splitlines())


def test_colour_follows_the_terminal_the_choice_and_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Paint("auto", Screen()).is_on
    assert not Paint("never", Screen()).is_on
    assert not Paint("auto", io.StringIO()).is_on
    assert Paint("always", io.StringIO())("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Paint("auto", Screen()).is_on
    assert Paint("always", io.StringIO()).is_on
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Paint("auto", Screen()).is_on


def test_progress_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("reading", 200, True, "auto") as progress:
        progress(100)
    assert "50.0 %" in screen.getvalue() and "200 bytes" in screen.getvalue()
    with progress_bar("reading", 200, False, "auto") as progress:
        assert progress is no_progress
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress_bar("reading", 200, True, "auto") as progress:
        assert isinstance(progress, WordsOfProgress)


def drawn(color: str) -> str:
    """What a bar writes to a terminal."""
    with pytest.MonkeyPatch.context() as patch:
        screen = Screen()
        patch.setattr("sys.stderr", screen)
        with progress_bar("reading", 200, True, color) as progress:
            progress(100)
        with steps_bar("sections", True, color) as step:
            step(3, 11, "errors")
    return screen.getvalue()


def test_bars_have_colours_where_the_output_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    has_style = re.compile(r"\x1b\[[0-9;]*m").search
    assert has_style(drawn("auto"))
    assert "50.0 %" in drawn("never") and not has_style(drawn("never"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_style(drawn("auto")) and has_style(drawn("always"))


def test_without_a_terminal_progress_is_few_words_after_a_while() -> None:
    said: list[str] = []
    moments = iter([0.0, 1.0, 19.0, 21.0, 40.0, 62.0, 141.0, 143.0])
    progress = WordsOfProgress("reading", 328_000, said.append, lambda: next(moments))
    for size in range(0, 210_000, 30_000):
        progress(size)
    assert said[0] == "still reading after 21 s: 60.00 KB of 328.00 KB of input read so far"
    assert [text.split()[3] for text in said] == ["21", "62", "143"]


def test_steps_are_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with steps_bar("sections", True, "auto") as step:
        step(3, 11, "errors")
    assert "3 of 11 sections, now errors" in screen.getvalue()
    with steps_bar("sections", False, "auto") as step:
        assert step is no_step
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with steps_bar("sections", True, "auto") as step:
        assert step is no_step


def test_what_is_fetched_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, or by the bar that is there."""
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    show_fetching(500, 2000, "s3://a/lake")
    line = "fetching 500 B of 2.00 KB from s3://a/lake"
    assert screen.getvalue() == f"\r\x1b[K{line}"
    show_fetching(2000, 2000, "s3://a/lake")
    assert screen.getvalue().endswith("\r\x1b[K")
    with steps_bar("sections", True, "auto") as step:
        step(3, 11, "errors")
        show_fetching(500, 2000, "s3://a/lake")
        step(4, 11, "latency")
        show_fetching(2000, 2000, "s3://a/lake")
    assert f"3 of 11 sections, now {line}" in screen.getvalue()
    monkeypatch.setattr("sys.stderr", io.StringIO())
    show_fetching(500, 2000, "s3://a/lake")


def test_lines_wrap_at_the_terminal_and_not_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width(io.StringIO()) is None
    assert terminal_width(Screen()) == 80, "a terminal that does not tell"
    monkeypatch.setenv("COLUMNS", "61")
    assert terminal_width(io.StringIO()) == terminal_width(Screen()) == 61
    monkeypatch.setenv("COLUMNS", "3")
    assert terminal_width(Screen()) == 40


@given(st.lists(st.from_regex(r"[a-z]{1,12}|[0-9]{1,9} (ms|%)", fullmatch=True), min_size=1))
def test_wrapping_loses_nothing_and_parts_no_number(words: list[str]) -> None:
    text = " ".join(words)
    lines = wrapped(f"  {text}", 40, "    ")
    assert " ".join(line.strip() for line in lines) == text
    assert all(len(line) <= 40 for line in lines)
    assert all(any(word in line for line in lines) for word in words)
    assert wrapped(text, None) == [text]


@given(st.text(alphabet=st.characters(categories=("L", "N", "P"))), st.integers(2, 30))
def test_a_clipped_text_fits_and_begins_as_the_whole(text: str, width: int) -> None:
    shown = clipped(text, width)
    assert columns_of(shown) <= width
    assert shown == text or (shown.endswith("…") and text.startswith(shown[:-1]))
    assert clipped(text, None) == text


def test_wide_letters_take_two_columns() -> None:
    assert columns_of("a漢é") == 4 and clipped("漢漢漢", 5) == "漢漢…"
