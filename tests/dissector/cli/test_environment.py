"""How the command's process runs: what is set, and that a user's own choice stands."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = (
    "import gc, os, dissector.cli.environment\n"
    "print(os.environ['OPENBLAS_NUM_THREADS'], gc.get_threshold()[0] > 10_000, gc.isenabled())\n"
)


def told(**variables: str) -> list[str]:
    """What a fresh process says of itself; this one's own setting is not handed down."""
    clean = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**clean, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout.split()


def test_one_thread_and_rare_searches_for_garbage() -> None:
    assert told() == ["1", "True", "True"]


def test_what_a_user_chose_stands() -> None:
    assert told(OPENBLAS_NUM_THREADS="3")[0] == "3"


ENDINGS = """
import atexit, sys, threading, time
from dissector.cli import environment
atexit.register(print, "handlers", flush=True)
threading.Thread(target=lambda: (time.sleep(0.2), print("threads", flush=True))).start()

class Kept:
    def __del__(self):
        print("taken apart", flush=True)

kept = Kept()
if sys.argv[1:]:
    sys.stderr.write("no newline")
    environment.leave_with(int(sys.argv[1]))
"""


def ended(*arguments: str) -> tuple[int, list[str], str]:
    command = [sys.executable, "-c", ENDINGS, *arguments]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    return completed.returncode, completed.stdout.splitlines(), completed.stderr


def test_who_is_told_to_leave_waits_for_threads_and_handlers_alone() -> None:
    """What others have to do at the end is done; what is only taken apart is not."""
    assert ended("3") == (3, ["threads", "handlers"], "no newline")


def test_who_is_not_told_ends_as_others_do() -> None:
    assert ended() == (0, ["threads", "handlers", "taken apart"], "")


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
import dissector.cli.main
sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
"""


@pytest.mark.parametrize("module", ["typing", "click", "dissector.cli.options", "dissector.errors"])
def test_an_interrupt_while_modules_are_imported_has_no_traceback(module: str) -> None:
    """It is the system that ends the process; afterwards the command says that it was told."""
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run([*command, module], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
    assert subprocess.run([*command, "none"], check=False).returncode == 0
