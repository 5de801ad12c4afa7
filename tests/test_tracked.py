"""House rules about every file that belongs to the project, code or not."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Name and content of every text file that belongs to the project."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 1 << 20:
            content = path.read_bytes()
            if b"\0" not in content:
                yield name, content.decode("utf-8", "replace")


def test_texts_are_finished_and_know_no_machine() -> None:
    # Written in two parts so that this file does not find itself.
    unfinished = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    machine = re.compile(r"(?<![\w.])/(ho" + r"me|ro" + r"ot|wo" + r"rk|Us" + r"ers)/\w")
    wrong = []
    for name, text in tracked_texts():
        if name.endswith((".csv", ".pcap", ".json", ".jsonl")):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if unfinished.search(line) or machine.search(line):
                wrong.append(f"{name}:{number}: {line.strip()[:80]}")
    assert not wrong


def test_no_file_is_large() -> None:
    large = []
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and path.stat().st_size > 1_100_000:
            large.append(name)
    assert not large
