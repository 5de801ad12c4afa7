"""Commands that are printed run: each is typed as it stands where the captures and lakes are."""

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dissector.cli.terminal import Messages
from dissector.limits import MAX_WINDOW_BYTES
from dissector.tap.windows import Windows
from tests.dissector.cli.conftest import SAMPLES, Command

NAMES = (
    *("java-j24_unload.pcap", "java-j17_blocked_unacked.pcap", "java-j74_corrupt.pcap"),
    *("java-j12_nack.pcap", "../cursus/go-crash_redelivery_streaming.pcap"),
)
# A line of its own, or behind `See:`; on the page an element.
LINES = re.compile(r"(?m)^ *(dissector .+)$|See: (dissector .+)$")
CODES = re.compile(r"<code[^>]*>(dissector .+?)</code>", re.DOTALL)
PLACEHOLDERS = re.compile(r"\b(?:INPUT|FILE|ID|list LAKE)\b")


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with captures, where commands are typed."""
    for name in NAMES:
        shutil.copy(SAMPLES / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(text: str) -> list[str]:
    return [one or other for one, other in LINES.findall(text)]


def assert_they_run(command: Command, lines: list[str], least: int) -> None:
    lines = sorted({line for line in lines if not PLACEHOLDERS.search(line)})
    assert len(lines) >= least, lines
    for line in lines:
        result = command(*shlex.split(line)[1:])
        assert result.code == 0, (line, result.err)
        if " frames " in line or "from frames" in line:
            assert len(result.lines) > 1, (line, "it shows frames")


@pytest.mark.parametrize("name", [Path(name).name for name in NAMES])
def test_commands_over_captures_run(command: Command, there: Path, name: str) -> None:
    lines = printed(command("summary", name).out) + printed(command("findings", name).out)
    assert_they_run(command, lines, 1)


@pytest.mark.usefixtures("no_plots")
def test_commands_over_several_captures_and_their_lake_run(command: Command, there: Path) -> None:
    names = [Path(name).name for name in NAMES[:3]]
    assert_they_run(command, printed(command("summary", *names).out), 3)
    assert command("land", *names, "--lake", "lake").code == 0
    lines = printed(command("summary", "--lake", "lake").out)
    lines += printed(command("findings", "--lake", "lake").out)
    assert not [line for line in lines if line.startswith("dissector frames")], (
        "a lake is asked, no file"
    )
    assert len({*lines}) >= 5
    assert command("report", "--lake", "lake", "-o", "out").code == 0
    page = (there / "out" / "report.html").read_text("utf-8")
    found = [html.unescape(line) for line in CODES.findall(page)]
    assert len({*found}) >= 3
    assert_they_run(command, lines + found, 5)


@pytest.mark.usefixtures("no_plots")
def test_commands_over_the_lake_of_a_tap_run(command: Command, there: Path) -> None:
    tapped = command(
        "tap", "--replay", "java-j24_unload.pcap", "--lake", "it's tapped", "--rotate", "400ms"
    )
    lines = printed(tapped.err)
    for words in (("summary", "--lake"), ("findings", "--lake")):
        lines += printed(command(*words, "it's tapped").out)
    assert len({*lines}) >= 6
    assert command("report", "--lake", "it's tapped", "-o", "out").code == 0
    page = (there / "out" / "report.html").read_text("utf-8")
    found = [html.unescape(line) for line in CODES.findall(page)]
    assert not [line for line in found if "INPUT" in line or "LAKE" in line]
    assert len({*found}) >= 3
    assert_they_run(command, lines + found, 6)


@pytest.mark.usefixtures("without_numbers")
def test_commands_of_a_bundle_run(command: Command, there: Path) -> None:
    made = command("evidence", NAMES[0], "--finding", "D24", "-o", "BUNDLE.zip")
    assert made.code == 0
    with zipfile.ZipFile("BUNDLE.zip") as archive:
        page = archive.read("README.md").decode()
    assert_they_run(command, printed(page), 3)


@pytest.mark.parametrize(("name", "rotate"), [(NAMES[0], "1h"), (NAMES[1], "200ms")])
def test_what_a_tap_says_of_a_finding_shows_it_while_the_tap_runs(
    command: Command, there: Path, monkeypatch: pytest.MonkeyPatch, name: str, rotate: str
) -> None:
    """The connection is open then and its rows are in no rotation, or no rotation is over."""
    monkeypatch.setattr(Windows.__init__, "__defaults__", (None, MAX_WINDOW_BYTES, 1_000_000_000))
    shown: dict[str, str] = {}
    say = Messages.say

    def saying(self: Messages, text: str, *more: bool) -> None:
        say(self, text, *more)
        for line in printed(text):
            done = subprocess.run(
                [sys.executable, "-m", *shlex.split(line)], capture_output=True, text=True,
                check=False, timeout=120,
            )  # fmt: skip
            shown[line] = done.stdout + done.stderr

    monkeypatch.setattr(Messages, "say", saying)
    # As fast as it was: what is found early is said long before the end.
    words = ("--replay", name, "--speed", "1", "--lake", "lake", "--rotate", rotate)
    tapped = command("tap", *words)
    monkeypatch.undo()
    monkeypatch.chdir(there)
    assert tapped.code == 0 and shown
    for line, text in shown.items():
        assert re.search(rf"^{line.split()[-1]}  ", text, re.MULTILINE), (line, text)
    # When it is over the rows say it, once.
    result = command("findings", "--lake", "lake").out
    (first, *_) = shown
    assert len(re.findall(rf"(?m)^{first.split()[-1]}  ", result)) == 1
    assert not (there / "lake/_findings").exists()


@pytest.mark.parametrize(
    "name", [b"latin \xe9.pcap", b"two\nlines' \x1b[31m\\.pcap", b"-it's.pcap"]
)
def test_commands_over_a_file_with_an_odd_name_run_in_a_shell(
    process: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(SAMPLES / "java-j17_blocked_unacked.pcap", os.fsdecode(name))
    asked = process("findings", os.fsdecode(b"./" + name))
    (line,) = printed(asked.out)
    assert line.isprintable()
    here = f'dissector() {{ {shlex.quote(sys.executable)} -m dissector "$@"; }}; {line}'
    shown = subprocess.run(["bash", "-c", here], capture_output=True, check=True)
    assert shown.stdout.count(b"\n") > 4
