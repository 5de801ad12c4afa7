"""How the command's process runs: what is set, and that a user's own choice stands."""

import os
import subprocess
import sys

PROGRAM = (
    "import gc, os, dissector.cli.environment\n"
    "print(os.environ['OPENBLAS_NUM_THREADS'], gc.get_threshold()[0] > 10_000, gc.isenabled())\n"
)


def told(**variables: str) -> list[str]:
    """What a fresh process says of itself; this one's own setting is not handed down."""
    clean = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**clean, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.split()


def test_one_thread_and_rare_searches_for_garbage() -> None:
    assert told() == ["1", "True", "True"]


def test_what_a_user_chose_stands() -> None:
    assert told(OPENBLAS_NUM_THREADS="3")[0] == "3"
