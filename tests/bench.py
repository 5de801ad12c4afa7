"""Speed and memory of the whole program: python -m tests.bench [--megabytes N] [--mix NAME]...

Makes each mix of traffic once (below bench/), lands it in a process of its own as a user would, and
prints a table: wall, user and system seconds from start to end of the process, cores that it used,
frames and bytes of capture per second, the peak of its memory, bytes of lake per frame; and, where
tshark is installed, its seconds for the same file in the same run and how many times our median
that is. With Apache's plugin tshark writes a line per packet with all fields that the plugin reads
(`-T fields`), the nearest that it has to a table; without, only TCP and its reassembly are timed,
and the column says so. The best and the median of the runs are shown; the first run of a mix is not
counted, it reads the capture into memory.

Further tables: one capture on one processor and more; several captures at once; floods in the
streams alone; floods landed, with what a packet costs beside one of ordinary traffic; subscriptions
of every type with every style of acknowledgement; the live tap at 100,000 packets a second; TLS
beside clear; summaries beside landings. --only NAME prints one;
`--only landed --flood "lone frames" --packets 100000` lands floods of that name alone.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from captures.make import cursus_traffic
from tests.busy.encrypted import write_encrypted
from tests.busy.pending import PENDING, write_live, write_pending
from tests.busy.subscriptions import every, write_consumed
from tests.busy.traffic import FILE_HEADER, Size, write_capture
from tests.hard.floods import FLOODS, SCANS, Outcome, as_pcap
from tests.hard.packet_floods import PACKET_FLOODS
from tests.hard.stream_floods import STREAM_FLOODS
from tests.joinbench import joining_table

ROOT = Path(__file__).resolve().parent.parent
ROOM = ROOT / "bench"
DISSECTOR = str(Path(sys.executable).with_name("dissector"))
# Eight producers and their consumers, who acknowledge one by one, by list and cumulatively.
BUSY = {
    "100-bytes": Size(0),
    "1-kib": Size(0, message_bytes=(1024,) * 4),
    "batches": Size(0, message_bytes=(200,) * 4, batch=100),
    "lz4": Size(0, message_bytes=(200,) * 4, batch=100, is_lz4=True),
    "lossy": Size(0, message_bytes=(1024,) * 4, lost=100),
    "midstream": Size(0, message_bytes=(1024,) * 4, is_midstream=True),
    "bursts": Size(0, message_bytes=(20, 150, 1_200, 9_000), bursts=20),
    "connections": Size(0, connections=10_000),
}
MIXES = (*BUSY, *cursus_traffic.MIXES)
_SAMPLE_FRAMES = 40_000
_MANY = 8  # large captures that are landed at once
_MANY_SMALL = 200


class Run(NamedTuple):
    """One process: its seconds, its peak of resident bytes, and what it landed."""

    wall: float
    user: float
    system: float
    peak_bytes: int
    packets: int = 0
    frames: int = 0
    lake_bytes: int = 0


def capture_of(mix: str, megabytes: int) -> Path:
    """The capture of a mix, made if it is not there."""
    path = ROOM / f"{mix}-{megabytes}.pcap"
    if not path.exists():
        ROOM.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        if mix in BUSY:
            write_capture(partial, BUSY[mix]._replace(frames=_SAMPLE_FRAMES, connections=0))
            frames = _SAMPLE_FRAMES * megabytes * 1_000_000 // partial.stat().st_size
            write_capture(partial, BUSY[mix]._replace(frames=frames))
        else:
            cursus_traffic.write_capture(partial, mix, megabytes * 1_000_000)
        partial.rename(path)
    return path


# A process counts the memory of the one that started it as its own peak, so a small one starts it.
_MEASURED = """
import json, resource, subprocess, sys, time
begun = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
wall = time.perf_counter() - begun
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([wall, usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024]))
"""


def measured(command: list[str]) -> Run:
    """Run a command in a process of its own."""
    return Run(*json.loads(subprocess.check_output([sys.executable, "-c", _MEASURED, *command])))


def land(
    paths: list[Path], jobs: int = 1, more: Sequence[str] = (), cpus: int | None = None
) -> Run:
    """Land captures in a fresh lake with a fresh process, on so many processors or all."""
    lake = ROOM / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    options = ["--lake", str(lake), "--quiet", "--chain", "none", "--jobs", str(jobs)]
    usable = sorted(os.sched_getaffinity(0))[:cpus]
    pinned = ["taskset", "-c", ",".join(map(str, usable))] if cpus else []
    run = measured([*pinned, DISSECTOR, "land", *map(str, paths), *options, *more])
    frames = size = 0
    for manifest in (lake / "_manifest").glob("*.json"):
        files = json.loads(manifest.read_text())["files"]
        frames += sum(part["rows"] for part in files if part["table"] == "frames")
        size += sum(part["bytes"] for part in files)
    packets = sum(row["packets"] for row in _file_rows(lake))
    return run._replace(packets=packets, frames=frames, lake_bytes=size)


@cache
def plugin_fields() -> tuple[str, ...]:
    """The fields of Apache's plugin for tshark; none where tshark or the plugin is missing."""
    if shutil.which("tshark") is None:
        return ()
    told = subprocess.run(["tshark", "-G", "fields"], capture_output=True, text=True, check=True)
    rows = (line.split("\t") for line in told.stdout.splitlines())
    return tuple(row[2] for row in rows if row[0] == "F" and row[2].startswith("apache.pulsar."))


def tshark_seconds(path: Path) -> float | None:
    """Wall seconds of tshark over a capture; None where there is no tshark."""
    if shutil.which("tshark") is None:
        return None
    chosen = ["-q", "-z", "io,stat,0"]
    if fields := plugin_fields():
        chosen = ["-T", "fields"]
        for name in ("frame.number", "frame.time_epoch", "tcp.stream", *fields):
            chosen += ["-e", name]
    return measured(["tshark", "-r", str(path), *chosen]).wall


def mix_table(cases: list[tuple[str, int]], runs: int) -> Table:
    """Landing of each mix at a size in MB."""
    reference_name = "tshark" if plugin_fields() else "tshark, TCP alone"
    table = Table(title=f"dissector land, {os.cpu_count()} cores")
    for heading in (
        "mix", "MB", "frames", "best s", "median", "user", "system", "cores", "frames/s", "MB/s",
        "peak MB", "lake B/frame", reference_name,
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for mix, megabytes in cases:
        path = capture_of(mix, megabytes)
        found = [land([path]) for _ in range(runs + 1)][1:]
        best = min(found, key=lambda run: run.wall)
        middle = statistics.median(run.wall for run in found)
        reference = tshark_seconds(path)
        table.add_row(
            mix,
            f"{path.stat().st_size / 1e6:,.0f}",
            f"{best.frames:,}",
            f"{best.wall:.2f}",
            f"{middle:.2f}",
            f"{best.user:.2f}",
            f"{best.system:.2f}",
            f"{(best.user + best.system) / best.wall:.2f}",
            f"{best.frames / best.wall:,.0f}",
            f"{path.stat().st_size / 1e6 / best.wall:,.0f}",
            f"{max(run.peak_bytes for run in found) / 1e6:,.0f}",
            f"{best.lake_bytes / best.frames:.1f}",
            f"{reference:.1f} s, {reference / middle:.1f}x" if reference else "",
        )
    return table


def cores_table(megabytes: int = 300, runs: int = 3) -> Table:
    """Landing of one capture on one, two, four processors, and on all: the best of the runs."""
    table = Table(title="dissector land of one capture")
    for heading in ("mix", "MB", "processors", "s", "user", "system", "cores", "times as fast"):
        table.add_column(heading, justify="right")
    there = len(os.sched_getaffinity(0))
    counts = sorted({each for each in (1, 2, 4, 8, 16) if each < there} | {there})
    for mix in BUSY:
        path, alone = capture_of(mix, megabytes), 0.0
        land([path])
        for count in counts:
            best = min((land([path], cpus=count) for _ in range(runs)), key=lambda run: run.wall)
            alone = alone or best.wall
            table.add_row(
                mix, f"{path.stat().st_size / 1e6:,.0f}", str(count), f"{best.wall:.2f}",
                f"{best.user:.2f}", f"{best.system:.2f}",
                f"{(best.user + best.system) / best.wall:.2f}", f"{alone / best.wall:.2f}",
            )  # fmt: skip
    return table


def jobs_table(frames: int = 250_000) -> Table:
    """Landing of several captures, large ones and many small ones, by one process and by two."""
    ROOM.mkdir(exist_ok=True)
    table = Table(title="dissector land of several captures")
    for heading in ("captures", "MB", "jobs", "s", "cores", "times as fast"):
        table.add_column(heading, justify="right")
    for number, size in ((_MANY, Size(frames)), (_MANY_SMALL, Size(100))):
        copies = [ROOM / f"one-of-{number}-{each}.pcap" for each in range(number)]
        for seed, copy in enumerate(copies, start=1):
            write_capture(copy, size, seed=seed)
        megabytes = sum(copy.stat().st_size for copy in copies) / 1e6
        alone = land(copies, 1)
        for jobs, run in ((1, alone), (2, land(copies, 2))):
            cores = (run.user + run.system) / run.wall
            table.add_row(
                str(number), f"{megabytes:,.0f}", str(jobs), f"{run.wall:.2f}", f"{cores:.2f}",
                f"{alone.wall / run.wall:.2f}",
            )  # fmt: skip
        for copy in copies:
            copy.unlink()
    return table


def _file_rows(lake: Path) -> list[dict[str, int]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, int]] = []
    for part in (lake / "capture_files").glob("day=*/landing=*/part-*.parquet"):
        rows += pq.ParquetFile(part).read(columns=["packets"]).to_pylist()
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
    ordinary = capture_of("100-bytes", 100)
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


def _open_floods() -> dict[str, Callable[[Path, int], object]]:
    """Floods by name, which write a capture of about so many packets: SYNs, ports in use again,
    connections that live, work that is not done, fragments and tunnels, holes, connections from
    within, redirects."""
    made: dict[str, Callable[[int], bytes]] = {
        **{
            name: lambda count, make=FLOODS[name]: as_pcap(make(count))
            for name in ("syns", "reused ports", "half open")
        },
        **PACKET_FLOODS,
        **STREAM_FLOODS,
    }
    return {
        "live connections": lambda path, count: write_live(path, count // 50),
        **{name: partial(_write_pending, name) for name in PENDING},
        **{name: partial(_write_made, make) for name, make in made.items()},
    }


def _write_pending(name: str, path: Path, count: int) -> None:
    write_pending(path, name, count)


def _write_made(make: Callable[[int], bytes], path: Path, count: int) -> None:
    path.write_bytes(make(count))


def landed_flood_table(names: Sequence[str] = (), count: int = 1_000_000) -> Table:
    """Landing of floods: user time of a packet beyond the start, beside ordinary traffic.

    A packet of small messages holds many frames, and each costs: so their time is told, too. The
    start is what a capture of one packet takes; the best of three runs counts.

    Args:
        names: of floods, by default all.
    """
    table = Table(title=f"dissector land of floods of {count:,}")
    for heading in (
        "flood", "packets", "frames", "user s", "us a packet", "of ordinary", "us a frame",
        "peak MB",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    ordinary = capture_of("100-bytes", 100)
    path = ROOM / "flood.pcap"
    path.write_bytes(as_pcap(FLOODS["fins"](1)))
    start = _least_user(path).user
    usual = 0.0
    floods = _open_floods()
    for name in ("(ordinary traffic)", *(names or floods)):
        if name in floods:
            floods[name](path, count)
        run = _least_user(path if name in floods else ordinary)
        cost = (run.user - start) / run.packets * 1e6
        usual = usual or cost
        table.add_row(
            name, f"{run.packets:,}", f"{run.frames:,}", f"{run.user:.2f}", f"{cost:.2f}",
            f"{cost / usual:.1f}x",
            f"{(run.user - start) / run.frames * 1e6:.2f}" if run.frames else "",
            f"{run.peak_bytes / 1e6:,.0f}",
        )  # fmt: skip
    path.unlink()
    return table


def _least_user(path: Path) -> Run:
    """The one of three landings of a capture that took the least user time."""
    return min((land([path]) for _ in range(3)), key=lambda run: run.user)


def _least_cpu(path: Path) -> Run:
    """Likewise, of user and system time."""
    return min((land([path]) for _ in range(3)), key=lambda run: run.user + run.system)


def subscription_table(count: int = 300_000) -> Table:
    """Landing of one consumer: processor time of a frame beyond the start, beside the plainest.

    A slow consumer holds a third of all deliveries open. The best of three runs counts.
    """
    table = Table(title=f"dissector land of {count:,} deliveries to one consumer")
    for heading in ("subscription", "frames", "CPU s", "us a frame", "of plainest", "peak MB"):
        table.add_column(heading, justify="right")
    ROOM.mkdir(exist_ok=True)
    path = ROOM / "consumed.pcap"
    path.write_bytes(as_pcap(FLOODS["fins"](1)))
    least = _least_cpu(path)
    start, plainest = least.user + least.system, 0.0
    for kind in every(count // 3):
        write_consumed(path, kind, count)
        run = _least_cpu(path)
        seconds = run.user + run.system
        cost = (seconds - start) / run.frames * 1e6
        plainest = plainest or cost
        table.add_row(
            kind.name, f"{run.frames:,}", f"{seconds:.2f}", f"{cost:.2f}",
            f"{cost / plainest:.1f}x", f"{run.peak_bytes / 1e6:,.0f}",
        )  # fmt: skip
    path.unlink()
    return table


def tap_table(seconds: int = 20) -> Table:
    """The live tap at 100,000 packets and at most 100 MB a second (`tests.tapbench`)."""
    table = Table(title="dissector tap at 100,000 packets a second, with a lake")
    mixes = [f"{capture_of(mix, 30)}" for mix in ("100-bytes", "1-kib", "batches", "lz4")]
    command = [sys.executable, "-m", "tests.tapbench", *mixes, "--acks", "4", "--lake", "--pin"]
    said = json.loads(subprocess.check_output([*command, "--seconds", str(seconds)], cwd=ROOT))
    for name, value in said.items():
        table.add_row(name, str(value))
    return table


def _summary_of(path: Path) -> tuple[float, int, int]:
    """CPU seconds, peak bytes and packets of a summary."""
    said = ROOM / "summary.json"
    run = measured(["sh", "-c", f"{sys.executable} -m dissector summary {path} --json > {said}"])
    packets = json.loads(said.read_text())["coverage"]["total"]["packets"]
    return run.user + run.system, run.peak_bytes, packets


def tls_table(megabytes: int = 150) -> Table:
    """TLS beside the same bytes in clear: user seconds without those of a run over no packet, the
    least of three runs, by turns."""
    table = Table(title="dissector land, AES-128-GCM beside clear")
    for heading in ("record B", "records of", "clear s", "TLS s", "times", "peak MB", "TLS"):
        table.add_column(heading, justify="right")
    nothing = ROOM / "nothing.pcap"
    nothing.write_bytes(FILE_HEADER)
    start = min(land([nothing]).user for _ in range(3))
    for mix, record_bytes in (("100-bytes", 100), ("1-kib", 1400), ("1-kib", 16384)):
        paths = ROOM / f"{mix}-tls-{record_bytes}.pcap", ROOM / f"{mix}-clear-{record_bytes}.pcap"
        keys = paths[0].with_suffix(".keys")
        if not keys.exists():
            said = write_encrypted(capture_of(mix, megabytes), *paths, record_bytes)
            keys.touch(0o600)
            keys.write_text(said)
        runs = [
            (land([paths[1]]), land([paths[0]], more=("--keylog", str(keys)))) for _ in range(3)
        ]
        clear, tls = (min(pair[n].user for pair in runs) - start for n in (0, 1))
        peaks = (max(pair[n].peak_bytes for pair in runs) / 1e6 for n in (0, 1))
        table.add_row(
            str(record_bytes), mix, f"{clear:.2f}", f"{tls:.2f}", f"{tls / clear:.2f}",
            *(f"{peak:,.0f}" for peak in peaks),
        )  # fmt: skip
    return table


def summary_table(megabytes: int = 200, runs: int = 3) -> Table:
    """Summaries beside landings of the same capture, by turns: the least of the runs."""
    table = Table(title="dissector summary beside dissector land")
    for heading in ("mix", "MB", "land CPU s", "wall", "summary CPU s", "wall", "CPU", "wall"):
        table.add_column(heading, justify="right")
    for mix in ("100-bytes", "1-kib", "batches", "lz4", "cursus"):
        path = capture_of(mix, megabytes)
        command = [DISSECTOR, "summary", str(path), "--json", "--quiet", "--chain", "none"]
        pairs = [(land([path]), measured(command)) for _ in range(runs)]
        landed, summed = (
            (min(run.user + run.system for run in each), min(run.wall for run in each))
            for each in zip(*pairs, strict=True)
        )
        table.add_row(
            mix, f"{path.stat().st_size / 1e6:,.0f}", *(f"{s:.2f}" for s in (*landed, *summed)),
            *(f"{ours / theirs:.2f}x" for theirs, ours in zip(landed, summed, strict=True)),
        )  # fmt: skip
    return table


TABLES: dict[str, Callable[[], Table]] = {
    "cores": cores_table,
    "jobs": jobs_table,
    "joining": joining_table,
    "streams": flood_table,
    "landed": landed_flood_table,
    "subscriptions": subscription_table,
    "tap": tap_table,
    "tls": tls_table,
    "summary": summary_table,
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--mix", action="append", choices=sorted(MIXES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=sorted(TABLES), help="only this table")
    parser.add_argument(
        "--flood", action="append", choices=sorted(_open_floods()), help="of landed"
    )
    parser.add_argument("--packets", type=int, default=1_000_000, help="of a flood that is landed")
    parser.add_argument("--floods", action="store_true", help="only the tables of floods and scans")
    parser.add_argument("--large", type=int, help="also at this many MB (else of 100-bytes)")
    chosen = parser.parse_args()
    if chosen.floods:
        Console(width=110).print(flood_table())
        Console(width=110).print(scan_table())
        return
    tables = {**TABLES, "landed": partial(landed_flood_table, chosen.flood or (), chosen.packets)}
    if chosen.only:
        Console(width=110).print(tables[chosen.only]())
        return
    cases = [(mix, chosen.megabytes) for mix in chosen.mix or MIXES]
    if chosen.large:
        cases += [(mix, chosen.large) for mix in chosen.mix or ("100-bytes",)]
    Console(width=150).print(mix_table(cases, chosen.runs))
    for make in tables.values():
        Console(width=110).print(make())


if __name__ == "__main__":
    main()
