"""The same numbers however the traffic is split: python -m tests.split [CAPTURE...] [--way WAY].

Each capture, by default every sample, is landed whole, and then again split in each way; the facts
of all captures that belong together must be those of the whole, row by row, in all columns but
those that say where something lies; with --reports, what report.json says, too. What differs is
printed by table and columns, and makes the exit code 1, but for what KNOWN has with a reason.

cut: where no frame is under way, landed in order. anywhere: behind any packets. order: cut, and
landed in another order. connections: in two, by clients, as two taps would have them. both: by
clients, and each half cut. rotations: by a tap. processes: cut, and landed by three processes.
spark: cut, and what Spark reports; of some samples, and only if asked for.

All ways of all samples take some 20 minutes of a processor; --turns, one way for each sample,
takes three.
"""

import argparse
import io
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from dissector.cli.exits import EXIT_OK, EXIT_PARTIAL
from dissector.cli.main import run
from dissector.joining.closing import CLOSED
from dissector.lake.manifest import tap_run_of
from dissector.lake.reader import open_lake
from tests.dissector.joining.cutting import (
    LINKS,
    MAGIC,
    SAMPLES,
    by_client,
    closed,
    land,
    link_of,
    packets,
    parts,
    plain,
    planned,
    read,
)
from tests.dissector.report import apart
from tests.reports import SOME_RULES, differences, reported
from tests.split_known import KNOWN, KNOWN_IN_REPORTS

CUTS: Final = 3
HANDLES: Final = ("producers", "consumers")
# Where the frames of joined rows lie; and how far a log reaches, which each capture knows alone.
MORE: Final = ("own_capture", "own_connection_id", "response_capture", "response_connection_id",
               "previous_capture", "ack_capture", "ack_connection_id", "order_no", "lag",
               "closed_capture", "closed_connection_id", "closed_no")  # fmt: skip
# What a boundary destroys or adds to reports, whatever is joined.
LOST: Final = {
    "about", "closing", "coverage",  # of files and captures, their notices and their ends
    "evidence", "title", "text",  # sentences name captures and frames
    "network_round_trip_ms",  # of a handshake that is cut
    "balance_over_time",  # its steps are as fine as the first capture is short
}  # fmt: skip

Parts = list[bytes]
Way = Callable[[bytes, list[int], random.Random], Parts]
Facts = dict[str, Counter[tuple[Any, ...]]]


def quiet_places(data: bytes, lake: Path) -> list[int]:
    """Behind how many packets of a capture no frame is under way."""
    with open_lake(lake) as opened:
        rows = opened.table("frames").select(["first_packet", "last_packet"]).to_pylist()
    last = len(packets(data)) - 2
    under_way = {
        place
        for row in rows
        if row["first_packet"] is not None
        for place in range(row["first_packet"], row["last_packet"])
    }
    return [place for place in range(1, last) if place not in under_way]


def _some(places: list[int], draw: random.Random) -> list[int]:
    return sorted(draw.sample(places, min(CUTS, len(places))))


def _cut(data: bytes, quiet: list[int], draw: random.Random) -> Parts:
    return parts(data, _some(quiet, draw))


def _anywhere(data: bytes, _quiet: list[int], draw: random.Random) -> Parts:
    return parts(data, _some(list(range(1, len(packets(data)) - 2)), draw))


def _order(data: bytes, quiet: list[int], draw: random.Random) -> Parts:
    pieces = _cut(data, quiet, draw)
    draw.shuffle(pieces)
    return pieces


def _connections(data: bytes, _quiet: list[int], draw: random.Random) -> Parts:
    chosen: dict[int, bool] = {}
    return by_client(data, lambda port: chosen.setdefault(port, draw.random() < 0.5))


def _both(data: bytes, quiet: list[int], draw: random.Random) -> Parts:
    chosen: dict[int, bool] = {}
    pieces = []
    for part in parts(data, _some(quiet, draw)):
        pieces += by_client(part, lambda port: chosen.setdefault(port, draw.random() < 0.5))
    return [piece for piece in pieces if len(packets(piece)) > 1]


WAYS: Final[dict[str, Way | None]] = {
    "cut": _cut,
    "anywhere": _anywhere,
    "order": _order,
    "connections": _connections,
    "both": _both,
    "rotations": None,
    "processes": _cut,
    "spark": _cut,
}
# Spark takes half a minute to begin, and seconds for each lake.
OF_SPARK: Final = ("java-j61_txn_abort.pcap", "java-j24_unload.pcap",
                   "../cursus/go-transactions.pcap")  # fmt: skip
EVERY: Final = tuple(way for way in WAYS if way != "spark")


def told(lake: Path, folder: Path, **more: Any) -> Any:
    """What the report of a lake says, but for places."""
    return without(reported(lake, folder, rules=SOME_RULES, tell=lambda _: None, **more))


def without(value: Any) -> Any:
    """A report, or a part of one, without what a split may change."""
    if isinstance(value, dict):
        left_out = apart.PLACES | LOST
        return {name: without(each) for name, each in value.items() if name not in left_out}
    if not isinstance(value, list):
        return value
    rows = [without(each) for each in value]
    # What is alike in a list stands in the order of its places.
    is_table = all(isinstance(row, dict) for row in rows)
    return sorted(rows, key=partial(json.dumps, sort_keys=True)) if is_table else rows


def facts(lake: Path, folder: Path) -> Facts:
    """The rows of a lake that reports count, joined where captures belong together."""
    with open_lake(lake) as opened:
        plan = planned(opened)
        tables = closed(opened, plan, folder)
        found = {}
        for name in (*CLOSED, *HANDLES):
            alone = [
                row
                for row in opened.table(name).to_pylist()
                if tap_run_of(row["capture"]) not in plan.captures
            ]
            rows = [*tables[name].to_pylist(), *alone]
            found[name] = plain(map(_marked, rows) if name in HANDLES else rows, MORE)
    return found


def _marked(row: dict[str, Any]) -> dict[str, Any]:
    """Of frames of producers and consumers whether there is one: captures number their own."""
    return {
        name: value is not None if name.endswith("_frame_no") else value
        for name, value in row.items()
    }


def unlike(whole: Facts, parts: Facts) -> Counter[str]:
    """How many rows differ, by table and in which columns; in all where the other has none."""
    found: Counter[str] = Counter()
    for name, theirs in whole.items():
        mine = parts[name]
        lost, new = [*(theirs - mine).elements()], [*(mine - theirs).elements()]
        for row in lost:
            alike = max(new, key=lambda other: len({*row} & {*other}), default=None)
            if alike is None:
                found[f"{name}: missing"] += 1
                continue
            new.remove(alike)
            columns = sorted({column for column, _ in {*row} ^ {*alike}})
            found[f"{name}: {', '.join(columns)}"] += 1
        if new:
            found[f"{name}: more"] += len(new)
    return found


class Whole(NamedTuple):
    """A sample that is landed whole, once for all ways. report: without places, None if reports are
    not asked for."""

    name: str
    data: bytes
    lake: Path
    quiet: list[int]
    facts: Facts
    report: Any

    @property
    def rows(self) -> int:
        """How many rows of facts there are."""
        return sum(rows.total() for rows in self.facts.values())


@contextmanager
def landed(name: str, *, has_report: bool = False) -> Iterator[Whole]:
    """Land a sample; its lake is gone when the body ends."""
    data = read(name)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        land(data, _base(name), folder / "lake", folder)
        report = told(folder / "lake", folder / "report") if has_report else None
        quiet = quiet_places(data, folder / "lake")
        found = facts(folder / "lake", folder / "closed")
        yield Whole(name, data, folder / "lake", quiet, found, report)


def split(whole: Whole, way: str, seed: int) -> Counter[str]:
    """How much of a sample that is split differs from the whole, of its facts and its report."""
    made = WAYS[way]
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        lake = folder / "lake"
        if made is None:
            _rotated(whole.data, folder, seed)
        elif way == "processes":
            _by_processes(made(whole.data, whole.quiet, random.Random(seed)), folder)
        else:
            for number, part in enumerate(made(whole.data, whole.quiet, random.Random(seed))):
                land(part, f"{_base(whole.name)}-part{number}", lake, folder)
        if way == "spark":
            return Counter(differences(whole.report, _by_spark(lake, folder / "report")))
        found = unlike(whole.facts, facts(lake, folder / "closed"))
        if whole.report is not None and not found:
            found.update(differences(whole.report, told(lake, folder / "report")))
    return found


def _base(name: str) -> str:
    return Path(name).name.partition(".")[0]


def _rotated(data: bytes, folder: Path, seed: int) -> None:
    """Let a tap land a capture in rotations of about a third of it."""
    (folder / "replayed.pcap").write_bytes(data)
    size = len(data) // 3 + seed
    command = ["tap", "--replay", str(folder / "replayed.pcap"), "--lake", str(folder / "lake")]
    assert run([*command, "--rotate", f"{size}B", "--no-findings", "-q"]) == 0


def _by_processes(pieces: Parts, folder: Path) -> None:
    """Land files at once, in any order."""
    paths = [folder / f"piece{number}.pcap" for number, _ in enumerate(pieces)]
    for path, piece in zip(paths, pieces, strict=True):
        path.write_bytes(piece)
    command = ["land", *map(str, paths), "--lake", str(folder / "lake"), "--chain", "none"]
    with redirect_stdout(io.StringIO()):
        assert run([*command, "-j", "3", "-q"]) in (EXIT_OK, EXIT_PARTIAL)


def _by_spark(lake: Path, folder: Path) -> Any:
    from dissector.spark import session
    from dissector.spark.engine import SparkEngine

    spark = session.start("local[2]", name="split")
    return told(lake, folder, engine=lambda _: SparkEngine(spark))


def can_be(way: str, name: str) -> bool:
    """Whether a sample can be split so: what two taps see of Cursus has nothing to put it together
    by, neither checksums nor ids."""
    return way not in ("connections", "both") or Path(name).parent.name != "cursus"


def samples() -> list[str]:
    """The samples that can be cut, as `read` names them."""
    paths = sorted(SAMPLES.parent.glob("*/*.pcap*"))
    names = [f"../{path.parent.name}/{path.name}" for path in paths]
    return [name.removeprefix(f"../{SAMPLES.name}/") for name in names if is_cut(read(name))]


def is_cut(data: bytes) -> bool:
    """Whether a capture is a pcap file that `packets` reads, with enough of them."""
    return data[:4] in MAGIC and link_of(data) in LINKS and len(packets(data)) > 4


def compare(name: str, ways: Iterable[str], seed: int, *, has_report: bool) -> list[str]:
    """What a sample says of each way, one line each and one of each difference; "!" begins the line
    of a way that differs in other rows than is known."""
    said = []
    with landed(name, has_report=has_report or "spark" in ways) as whole:
        for way in ways:
            if not can_be(way, name):
                continue
            found = split(whole, way, seed)
            is_listed = seed == 1 and way != "spark"
            known = known_rows(name, way, in_report=has_report) if is_listed else 0
            mark = "" if found.total() == known else "! "
            said.append(f"{mark}{name} {way}: {found.total()} of {whole.rows} rows differ")
            said += [f"  {count} {text}" for text, count in sorted(found.items())]
    return said


def named(path: str, parser: argparse.ArgumentParser) -> str:
    """A file, or a sample by its name, as `read` takes it."""
    name = str(Path(path).resolve()) if Path(path).is_file() else path
    if not (SAMPLES / name).is_file():
        parser.error(f"{path}: there is no such file, and no sample of that name")
    if not is_cut(read(name)):
        parser.error(f"{path}: packets of its format are not cut, or it has less than five")
    return name


def folder_and_name(name: str) -> str:
    """How KNOWN names a sample: in two folders there may be one of a name."""
    return "/".join((SAMPLES / name).resolve().parts[-2:])


def known_rows(name: str, way: str, *, in_report: bool = False) -> int:
    """How many rows of a sample are known to differ; if none do, how many values of its report."""
    entry = f"{folder_and_name(name)} {way}"
    rows = sum(rows.get(entry, 0) for rows in KNOWN.values())
    values = sum(values.get(entry, 0) for values in KNOWN_IN_REPORTS.values())
    return rows or (values if in_report else 0)


def main() -> int:
    """Split captures in all ways, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("capture", nargs="*", help="samples, or other files; all samples if none")
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--turns", action="store_true", help="one way for each sample, by turns")
    parser.add_argument("--seed", type=int, default=1, help="where to cut; KNOWN is of 1")
    parser.add_argument("--reports", action="store_true", help="compare what reports say, too")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    asked = parser.parse_args()
    ways = asked.way or EVERY
    names = [named(each, parser) for each in asked.capture]
    names = names or (OF_SPARK if ways == ["spark"] else samples())
    chosen = [[ways[number % len(ways)]] if asked.turns else ways for number in range(len(names))]
    each = partial(compare, seed=asked.seed, has_report=asked.reports)
    is_known = True
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        for lines in pool.map(each, names, chosen):
            print("\n".join(lines), flush=True)
            is_known &= not any(line.startswith("! ") for line in lines)
    return 0 if is_known else 1


if __name__ == "__main__":
    sys.exit(main())
