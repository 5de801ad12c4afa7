"""Speed and memory of the whole program: python -m tests.bench [--megabytes N] [--mix NAME]...

Makes each mix of traffic once (captures/make, below bench/), lands it in a process of
its own as a user would, and prints a table: wall seconds from start to end of the process, per
second packets, frames and bytes of capture, and the peak of its memory. The best and the median of
the runs are shown; the first run of a mix is not counted, it reads the capture into memory.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from captures.make import cursus_traffic, traffic
from tests.hard.floods import FLOODS, SCANS, Outcome, as_pcap

ROOT = Path(__file__).resolve().parent.parent
ROOM = ROOT / "bench"
MIXES = (*traffic.MIXES, *cursus_traffic.MIXES)


class Run(NamedTuple):
    """One process: wall seconds, peak resident bytes, and the rows that it landed."""

    seconds: float
    peak_bytes: int
    packets: int
    frames: int


def capture_of(mix: str, megabytes: int) -> Path:
    """The capture of a mix, made if it is not there."""
    path = ROOM / f"{mix}-{megabytes}.pcap"
    if not path.exists():
        ROOM.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        source = traffic if mix in traffic.MIXES else cursus_traffic
        source.write_capture(partial, mix, megabytes * 1_000_000)
        partial.rename(path)
    return path


def land(path: Path) -> Run:
    """Land a capture in a fresh lake with a fresh process."""
    lake = ROOM / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    command = [
        str(Path(sys.executable).with_name("dissector")),
        "land", str(path), "--lake", str(lake), "--quiet",
    ]  # fmt: skip
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    manifest = json.loads(next((lake / "_manifest").glob("*.json")).read_text())
    frames = sum(part["rows"] for part in manifest["files"] if part["table"] == "frames")
    packets = sum(row["packets"] for row in _file_rows(lake))
    return Run(seconds, usage.ru_maxrss * 1024, packets, frames)


def _file_rows(lake: Path) -> list[dict[str, int]]:
    import pyarrow.parquet as pq

    part = next((lake / "capture_files").glob("landing=*/part-*.parquet"))
    rows: list[dict[str, int]] = pq.ParquetFile(part).read(columns=["packets"]).to_pylist()
    return rows


def flood_table(few: int = 100_000) -> Table:
    """Streams alone under floods of packets: ten times the packets, how many times the seconds?

    Processor time of this process, the best of three; the first round warms up.
    """
    table = Table(title=f"streams under floods of {few:,} and {10 * few:,} packets")
    for heading in ("flood", "s", "s for ten times", "times", "steps a packet"):
        table.add_column(heading, justify="right")
    for name, make in FLOODS.items():
        Outcome(make(few // 10))
        seconds = []
        for count in (few, 10 * few):
            flood = make(count)
            runs = []
            for _ in range(3):
                begun = time.process_time()
                outcome = Outcome(flood)
                runs.append(time.process_time() - begun)
            seconds.append(min(runs))
        table.add_row(
            name,
            f"{seconds[0]:.3f}",
            f"{seconds[1]:.3f}",
            f"{seconds[1] / seconds[0]:.1f}",
            f"{outcome.steps / outcome.packets:.1f}",
        )
    return table


def scan_table(few: int = 50_000) -> Table:
    """Summaries of scans, each in a process of its own: what a packet costs beyond the start."""
    table = Table(title=f"summary of scans, {few:,}, {3 * few:,} and {20 * few:,} packets")
    for heading in ("scan", "packets", "CPU s", "us a packet", "peak MB"):
        table.add_column(heading, justify="right")
    ROOM.mkdir(exist_ok=True)
    path = ROOM / "scan.pcap"
    path.write_bytes(as_pcap(SCANS["fins"](1)))
    start = min(_summary_of(path)[0] for _ in range(3))
    ordinary = capture_of("small", 100)
    for name, make in [*SCANS.items(), ("(ordinary traffic)", None)]:
        for count in (few, 3 * few, 20 * few) if make else (0,):
            if make:
                path.write_bytes(as_pcap(make(count)))
            seconds, peak, packets = _summary_of(path if make else ordinary)
            cost = (seconds - start) / packets * 1e6
            table.add_row(
                name, f"{packets:,}", f"{seconds:.2f}", f"{cost:.2f}", f"{peak / 1e6:,.0f}"
            )
    path.unlink()
    return table


# A process counts the memory of the one that started it as its own peak, so a small one starts it.
_MEASURED = """
import resource, subprocess, sys
found = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
sys.stdout.flush()
sys.stdout.buffer.write(found.stdout)
"""


def _summary_of(path: Path) -> tuple[float, int, int]:
    """CPU seconds, peak bytes and packets of a summary."""
    command = [sys.executable, "-m", "dissector", "summary", str(path), "--json"]
    measured = [sys.executable, "-c", _MEASURED, *command]
    said, report = subprocess.check_output(measured, text=True).split("\n", 1)
    seconds, peak = said.split()
    return float(seconds), int(peak), json.loads(report)["coverage"]["total"]["packets"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--mix", action="append", choices=sorted(MIXES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--floods", action="store_true", help="only the tables of floods and scans")
    parser.add_argument("--large", type=int, help="also the small mix at this many MB, for memory")
    chosen = parser.parse_args()
    if chosen.floods:
        Console(width=110).print(flood_table())
        Console(width=110).print(scan_table())
        return
    table = Table(title=f"dissector land, {chosen.megabytes} MB a capture, {os.cpu_count()} cores")
    for heading in ("mix", "packets", "frames", "best s", "median s"):
        table.add_column(heading, justify="right")
    for heading in ("packets/s", "frames/s", "MB/s", "peak MB"):
        table.add_column(heading, justify="right")
    cases = [(mix, chosen.megabytes) for mix in chosen.mix or MIXES]
    if chosen.large:
        cases.append(("small", chosen.large))
    for mix, megabytes in cases:
        path = capture_of(mix, megabytes)
        runs = [land(path) for _ in range(chosen.runs + 1)][1:]
        best = min(runs, key=lambda run: run.seconds)
        size = path.stat().st_size / 1e6
        table.add_row(
            f"{mix} {megabytes}" if megabytes != chosen.megabytes else mix,
            f"{best.packets:,}",
            f"{best.frames:,}",
            f"{best.seconds:.2f}",
            f"{statistics.median(run.seconds for run in runs):.2f}",
            f"{best.packets / best.seconds:,.0f}",
            f"{best.frames / best.seconds:,.0f}",
            f"{size / best.seconds:,.0f}",
            f"{max(run.peak_bytes for run in runs) / 1e6:,.0f}",
        )
    Console(width=110).print(table)
    Console(width=110).print(flood_table())


if __name__ == "__main__":
    main()
