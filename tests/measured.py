"""Processes with all that they start: processor time, memory and a limit of seconds."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# A process counts the memory of the one that started it as its own peak, so a small one starts it.
# What loses its parent, as a virtual machine does whose Python ended, is given to that small one.
_STARTER = """
import ctypes, json, os, resource, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
started = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
code = None
while True:
    try:
        ended, status = os.wait()
    except ChildProcessError:
        break
    if ended == started.pid:
        code = os.waitstatus_to_exitcode(status)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
found = [code, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024]
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


class Measured(NamedTuple):
    """One command. cpu_seconds: of it and all that it started; peak_bytes: of the largest of these
    processes; told: the last line on standard error; is_ended: within the limit."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    told: str
    is_ended: bool

    def cells(self) -> tuple[str, str, str]:
        """CPU seconds, wall seconds and peak megabytes as texts."""
        limit = "" if self.is_ended else "> "
        return (
            f"{limit}{self.cpu_seconds:.1f}",
            f"{limit}{self.wall_seconds:.1f}",
            f"{self.peak_bytes / 1e6:,.0f}",
        )


def measure(
    command: Sequence[str],
    folder: Path,
    tree: Path,
    limit: float = 1e9,
    codes: Sequence[int] = (0,),
) -> Measured:
    """Run a command to its end.

    Args:
        folder: for what is measured and said. tree: whose code runs. limit: seconds, after which it
            is killed with all that it started. codes: with which it may end.

    Raises:
        RuntimeError: it ended with another code.
    """
    figures, words = folder / "figures.json", folder / "words.txt"
    figures.unlink(missing_ok=True)
    env = os.environ | {"PYTHONPATH": str(tree)}
    begun = time.perf_counter()
    with words.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", _STARTER, str(figures), *command], stderr=said, cwd=tree, env=env
        )
        cpu_seconds = 0.0
        # Some parents do not count their children, as Spark's Python does not.
        seen: dict[int, tuple[float, int]] = {}
        while process.poll() is None:
            time.sleep(0.02 if time.perf_counter() - begun < 5 else 0.2)
            for each in descendants(process.pid)[1:]:
                seen[each] = max(
                    (_processor_seconds(each), _peak_bytes(each)), seen.get(each, (0.0, 0))
                )
            if time.perf_counter() - begun > limit:
                cpu_seconds, peak = _killed(process.pid)
                process.wait()
                break
    wall = time.perf_counter() - begun
    lines = words.read_text(errors="replace").strip().splitlines()
    told = lines[-1] if lines else ""
    if not figures.exists():
        return Measured(wall, cpu_seconds, peak, told, False)
    code, cpu_seconds, peak = json.loads(figures.read_text())
    cpu_seconds = max(cpu_seconds, sum(seconds for seconds, _ in seen.values()))
    peak = max(peak, *(most for _, most in seen.values()), 0)
    if code not in codes:
        raise RuntimeError(f"{' '.join(command)} ended with {code}: {told}")
    return Measured(wall, cpu_seconds, peak, told, True)


def _killed(first: int) -> tuple[float, int]:
    """Kill a process with its descendants; returns the processor seconds and the peak of these."""
    family = descendants(first)
    seconds = sum(_processor_seconds(each, ended=True) for each in family)
    peak = max(map(_peak_bytes, family[1:]), default=0)
    for each in family:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return seconds, peak


def descendants(first: int) -> list[int]:
    """A process and those that it started, directly or not."""
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(each.name))
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(each.name))
    descendants = [first]
    for each in descendants:
        descendants += parents.get(each, [])
    return descendants


def _fields(process: int) -> Sequence[str]:
    """What /proc says of a process behind its name: state, parent, ...; empty if it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ()


def _processor_seconds(process: int, *, ended: bool = False) -> float:
    """Of a process; ended: and of those that it started and that ended."""
    fields = _fields(process)
    ticks = sum(map(int, fields[11 : 15 if ended else 13])) if fields else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _peak_bytes(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    values: Mapping[str, str] = dict(
        line.split(":", 1) for line in status.splitlines() if ":" in line
    )
    return int(values.get("VmHWM", "0 kB").split()[0]) * 1024
