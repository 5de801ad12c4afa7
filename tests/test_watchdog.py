"""A kernel that loops for ever ends its test run, and the message names the test."""

import os
import subprocess
import sys
from pathlib import Path

from tests.watchdog import EXIT_CODE, PATIENCE

ROOT = Path(__file__).parents[1]
ENDLESS = """
import numpy as np
from dissector.jit import kernel


@kernel
def loops(words):
    at = 0
    while words[at] != 1:
        at = 1 - at
    return at


def test_that_loops():
    loops(np.zeros(2, np.int64))
"""


def test_a_kernel_without_end_is_ended_and_named(tmp_path: Path) -> None:
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_endless.py"],
        cwd=tmp_path, env={**os.environ, PATIENCE: "4", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == EXIT_CODE, done.stdout + done.stderr
    assert "test_endless.py::test_that_loops took more than 4 s and was ended" in done.stderr
    assert "in test_that_loops" in done.stderr
