"""Speed of reports at the size of real traffic: python -m tests.reportbench [--traffic NAME]...

Makes two-way traffic (tests/busy, below bench/), lands it, and prints processor seconds of all
processes together, wall seconds and the memory of the largest process for: `land`, `summary`, and
`report` by each engine; then of many small captures, of many landings into one lake, and of
`analyze` on a small capture. What the code at hand cannot do is left out, and said. `--tree` runs
other code than this: that of a worktree whose figures are to be compared.
"""

import argparse
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.busy.traffic import START_NS, Size, write_capture
from tests.dissector.joining.cutting import packets
from tests.measured import Measured, measure

ROOT: Final = Path(__file__).resolve().parent.parent
TRAFFIC: Final = {
    "2M": Size(2_000_000),
    "8M": Size(8_000_000),
    "50M": Size(50_000_000),
    "2M-connections-10k": Size(2_000_000, connections=10_000),
    "rows-100k": Size(450_000, rows=100_000),
    "rows-1M": Size(4_500_000, rows=1_000_000),
}
USUAL: Final = ("2M", "8M", "2M-connections-10k", "rows-1M")
NIGHTS: Final = 300
NIGHT: Final = Size(2_600)
DAYS: Final = 100
A_DAY: Final = 10
LANDINGS: Final = 1_000
LANDING: Final = Size(60)
SMALL: Final = ROOT / "captures" / "cursus" / "go-crash_redelivery_streaming.pcap"  # 44 KB
_SAMPLES: Final = ("captures/pulsar", "captures/cursus", "captures/pulsar-apache")
_SMALL_BYTES: Final = 30_000  # of samples that stand for a day's captures
_HOUR_NS: Final = 3600 * 10**9

# Lands files one after the other in one process; prints the seconds of each, processor and wall.
_LANDINGS: Final = """
import json, sys, time
from pathlib import Path
from dissector.dissection import Options
from dissector.lake.land import land_chain
from dissector.sources.rings import Chain
seconds = []
for path in sorted(Path(sys.argv[1]).glob("*.pcap")):
    begun, wall = time.process_time(), time.perf_counter()
    land_chain(Chain((str(path),), path.name), Path(sys.argv[2]), Options())
    seconds.append((time.process_time() - begun, time.perf_counter() - wall))
print(json.dumps(seconds))
"""


class Bench:
    """Rows of the table, each as it is measured.

    Args:
        room: folder for captures, lakes and reports. tree: whose code runs. limit: seconds of a
            command. engines: by which a report is made.
    """

    def __init__(self, room: Path, tree: Path, limit: float, engines: list[str]) -> None:
        self.room, self.tree, self.limit = room, tree, limit
        self.rows: list[tuple[str, Measured]] = []
        self._work = room / "work"
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        self._report_help = self._help("report")
        self.engines = engines

    def _help(self, *command: str) -> str:
        found = [sys.executable, "-m", "dissector", *command, "--help"]
        return subprocess.check_output(found, text=True, cwd=self.tree)

    def row(self, name: str, *arguments: str) -> Measured:
        """Measure a command of the program as a row."""
        command = [sys.executable, "-m", "dissector", *arguments]
        measured = measure(command, self._work, self.tree, self.limit)
        self.rows.append((name, measured))
        print(f"{name}: CPU {', '.join(measured.cells())}  {measured.told[:150]}", flush=True)
        return measured

    def engine_options(self, engine: str) -> list[str] | None:
        """What asks for an engine; None: this code does not have it, which is said."""
        has_engines = "--engine" in self._report_help
        if engine == "spark":
            return ["--master", "local[2]", *(("--engine", "spark") if has_engines else ())]
        if has_engines:
            return ["--engine", engine]
        print(f"report by {engine}: left out, `dissector report` has no --engine", flush=True)
        return None

    def folder(self, name: str) -> Path:
        """An empty place below the working folder."""
        found = self._work / name
        shutil.rmtree(found, ignore_errors=True)
        return found

    def lake_without_sums(self, lake: Path) -> Path:
        """A copy of a lake as it was before any report."""
        copy = self.folder("lake")
        shutil.copytree(lake, copy, ignore=shutil.ignore_patterns("_sums"))
        return copy

    def traffic(self, name: str) -> None:
        """One capture of a kind of traffic: landed, summarised, reported by each engine."""
        capture = made_capture(self.room, name)
        lake = self.folder("landed")
        self.row(f"land {name}", "land", str(capture), "--lake", str(lake), "--quiet")
        self.row(f"summary {name}", "summary", str(capture), "--json", "--quiet")
        for engine in self.engines:
            options = self.engine_options(engine)
            if options is None:
                continue
            asked = ["--lake", str(self.lake_without_sums(lake)), "-o", str(self.folder("report"))]
            found = self.row(f"report {name}, {engine}", "report", *asked, "--quiet", *options)
            if found.is_ended and "_sums" in {each.name for each in Path(asked[1]).iterdir()}:
                self.row(f"report {name}, {engine}, again", "report", *asked, "--quiet", *options)

    def nights(self, count: int) -> None:
        """Many small captures: the first report, the same again, and with one more."""
        folder = made_nights(self.room, count)
        files = sorted(map(str, folder.glob("*.pcap")))
        landed = self.folder("landed")
        self.row(f"land {count} captures", "land", *files[:-1], "--lake", str(landed), "--quiet")
        for engine in self.engines:
            options = self.engine_options(engine)
            if options is None:
                continue
            lake = self.lake_without_sums(landed)
            asked = ["report", "--lake", str(lake), "-o", str(self.folder("report")), "--quiet"]
            name = f"report of {count} captures, {engine}"
            if not self.row(name, *asked, *options).is_ended:
                continue
            print(f"report.json has {(self._work / 'report/report.json').stat().st_size:,} bytes")
            self.row(f"{name}, again", *asked, *options)
            self.row("land one more", "land", files[-1], "--lake", str(lake), "--quiet")
            self.row(f"{name}, one more night", *asked, *options)
            self.row(f"{name}, one more night with --new", *asked, *options, "--new")

    def years(self, days: int) -> None:
        """Days of small samples: the first report, the same again, and with one more day."""
        folder = made_days(self.room, days)
        files = sorted(map(str, folder.glob("*.pcap")))
        lake = self.folder("landed")
        name = f"{A_DAY * days + 1:,} captures of {days} days"
        self.row(f"land {name}", "land", *files[: -A_DAY + 1], "--lake", str(lake), "--quiet")
        asked = ["report", "--lake", str(lake), "-o", str(self.folder("report")), "--quiet"]
        self.row(f"report of {name}", *asked)
        self.row("nothing new", *asked)
        for kind, some in (
            ("capture", files[-A_DAY + 1 : -A_DAY + 2]),
            ("day", files[-A_DAY + 2 :]),
        ):
            self.row(f"land one more {kind}", "land", *some, "--lake", str(lake), "--quiet")
            self.row(f"one more {kind}", *asked)

    def landings(self, count: int) -> None:
        """Many landings into one lake, in one process: the first beside the last."""
        folder = made_landings(self.room, count)
        lake = self.folder("landed")
        command = [sys.executable, "-c", _LANDINGS, str(folder), str(lake)]
        env = {"PYTHONPATH": str(self.tree), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
        seconds = json.loads(subprocess.check_output(command, cwd=self.tree, env=env))
        few = max(1, count // 50)
        for kind, taken in zip(("CPU", "wall"), zip(*seconds, strict=True), strict=True):
            # Those at the very start compile, or load what is compiled.
            first, last = sum(taken[few : 2 * few]) / few, sum(taken[-few:]) / few
            print(
                f"{count:,} landings into one lake, {kind}: {1000 * first:.1f} ms each at first, "
                f"{1000 * last:.1f} ms at the end, {last / first:.1f} times; {sum(taken):.1f} s",
                flush=True,
            )

    def analyze(self) -> None:
        """A small capture from file to page, beside its summary; everything is warm."""
        has_engines = "--engine" in self._help("analyze")
        for name in ("summary", "analyze"):
            asked = [name, str(SMALL), "--quiet"]
            if name == "analyze":
                asked += ["-o", str(self.folder("analyzed"))]
            measure([sys.executable, "-m", "dissector", *asked], self._work, self.tree)
            if name == "analyze":
                self.folder("analyzed")
            self.row(f"{name} of 44 KB", *asked)
        if has_engines:
            asked = ["analyze", str(SMALL), "--quiet", "--engine", "spark", "-o"]
            self.row("analyze of 44 KB, spark", *asked, str(self.folder("analyzed")))


def made(path: Path, make: Callable[[Path], object]) -> Path:
    """What is there, or is made and then put there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        make(partial)
        partial.rename(path)
    return path


def made_capture(room: Path, name: str) -> Path:
    """The capture of a kind of traffic."""
    return made(room / f"busy-{name}.pcap", lambda path: write_capture(path, TRAFFIC[name]))


def made_nights(room: Path, count: int) -> Path:
    """A folder of so many small captures an hour apart, and one more."""
    return made(room / f"nights-{count}", lambda path: _write_all(path, count + 1, NIGHT))


def made_days(room: Path, count: int) -> Path:
    """A folder of samples at so many days, one of the next, and the others of that day."""
    return made(room / f"days-{count}", lambda path: _write_days(path, count + 1))


def made_landings(room: Path, count: int) -> Path:
    """A folder of so many tiny captures."""
    return made(room / f"landings-{count}", lambda path: _write_all(path, count, LANDING))


def _write_all(folder: Path, count: int, size: Size) -> None:
    folder.mkdir()
    for number in range(count):
        path = folder / f"night-{number:04d}.pcap"
        write_capture(path, size, number, START_NS + number * _HOUR_NS)


def _write_days(folder: Path, days: int) -> None:
    """A_DAY captures a day: traffic of one broker, and every sample once among it.

    (A sample twice would be one sending that two captures show, which joining puts together.)
    """
    folder.mkdir()
    found = (path for name in _SAMPLES for path in sorted((ROOT / name).glob("*.pcap")))
    samples = [path.read_bytes() for path in found if path.stat().st_size < _SMALL_BYTES]
    every = -(-days * A_DAY // len(samples))
    for number in range(days * A_DAY):
        path, start_ns = (
            folder / f"day-{number:05d}.pcap",
            START_NS + number * 24 * _HOUR_NS // A_DAY,
        )
        if number % every:
            write_capture(path, LANDING, number, start_ns)
        else:
            path.write_bytes(at_time(samples[number // every], start_ns))


def at_time(data: bytes, start_ns: int) -> bytes:
    """A little-endian pcap file whose first packet was seen in the second of a time."""
    header, *records = packets(data)
    begun = struct.unpack_from("<I", records[0])[0] if records else 0
    later = start_ns // 10**9 - begun
    moved = (
        struct.pack("<I", struct.unpack_from("<I", each)[0] + later) + each[4:] for each in records
    )
    return b"".join((header, *moved))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traffic", action="append", choices=TRAFFIC, help="instead of the usual")
    parser.add_argument("--nights", type=int, default=NIGHTS, help="small captures")
    parser.add_argument("--days", type=int, default=DAYS, help="of small samples")
    parser.add_argument("--landings", type=int, default=LANDINGS)
    parser.add_argument("--only", choices=("traffic", "nights", "years", "landings", "analyze"))
    parser.add_argument("--engine", action="append", choices=("duckdb", "spark"))
    parser.add_argument("--limit", type=float, default=1200, help="seconds of one command")
    parser.add_argument("--room", type=Path, default=ROOT / "bench", help="for captures and lakes")
    parser.add_argument("--tree", type=Path, default=ROOT, help="whose code is measured")
    parser.add_argument("--make", action="store_true", help="only make the captures")
    chosen = parser.parse_args()
    if chosen.make:
        for name in chosen.traffic or USUAL:
            made_capture(chosen.room, name)
        made_nights(chosen.room, chosen.nights)
        made_days(chosen.room, chosen.days)
        made_landings(chosen.room, chosen.landings)
        return
    engines = chosen.engine or ["duckdb", "spark"]
    bench = Bench(chosen.room.resolve(), chosen.tree.resolve(), chosen.limit, engines)
    if chosen.only in (None, "traffic"):
        for name in chosen.traffic or USUAL:
            bench.traffic(name)
    if chosen.only in (None, "nights"):
        bench.nights(chosen.nights)
    if chosen.only in (None, "years"):
        bench.years(chosen.days)
    if chosen.only in (None, "landings"):
        bench.landings(chosen.landings)
    if chosen.only in (None, "analyze"):
        bench.analyze()
    table = Table(title=f"reports, by {bench.tree.name}")
    for heading in ("what", "CPU s", "wall s", "peak MB"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, found in bench.rows:
        table.add_row(name, *found.cells())
    Console(width=100).print(table)
    shutil.rmtree(bench.room / "work")


if __name__ == "__main__":
    main()
