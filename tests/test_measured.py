"""What is measured of a command is that of all it starts, and none of it outlives the limit."""

import os
import sys
import time
from pathlib import Path

import pytest

from tests.measured import descendants, measure

ROOT = Path(__file__).resolve().parent.parent
_BUSY = "import time\nwhile time.process_time() < 0.5: pass"
# Starts a process that works on after the one that started it has ended.
_LEAVES = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_BUSY!r}])"
_WAITS = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
)


def test_what_lost_its_parent_is_measured_too(tmp_path: Path) -> None:
    measured = measure([sys.executable, "-c", _LEAVES], tmp_path, ROOT)
    assert measured.is_ended and 0.5 <= measured.cpu_seconds < 2
    assert measured.peak_bytes > 1_000_000


def test_a_command_beyond_the_limit_is_ended_with_its_children(tmp_path: Path) -> None:
    before = set(descendants(os.getpid()))
    begun = time.perf_counter()
    measured = measure([sys.executable, "-c", _WAITS], tmp_path, ROOT, limit=1)
    assert not measured.is_ended and measured.cells()[1].startswith("> ")
    assert time.perf_counter() - begun < 20
    while set(descendants(os.getpid())) - before:  # killed, and soon gone
        assert time.perf_counter() - begun < 60
        time.sleep(0.05)


def test_an_unexpected_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 3: so it is"):
        measure([sys.executable, "-c", "print('so it is', file=__import__('sys').stderr); exit(3)"],
                tmp_path, ROOT)  # fmt: skip
