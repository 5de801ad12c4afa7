"""The same numbers however the traffic is split: python -m tests.split [CAPTURE...] [--way WAY].

Each capture, by default every sample, is landed whole, and then again split in each way; what the
reports say must be the same but for what says where something lies, and for what is found in each
capture by itself. A capture is cut where no frame is under way, so that a cut destroys nothing but
what LOST names. Differences are printed, and make the exit code 1.

cut: at packets, landed in order. order: the same parts, landed in another order. connections: in
two, by clients, as two taps would have them. both: by clients, and each half cut. rotations: by a
tap.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from dissector.cli.main import run
from dissector.lake.reader import open_lake
from tests.dissector.joining.cutting import SAMPLES, by_client, land, packets, parts, read
from tests.dissector.report.apart import PLACES
from tests.reports import SOME_RULES, differences, reported

CUTS: Final = 3
ETHERNET: Final = 1
# What a border destroys or adds, whatever is joined.
LOST: Final = {
    "about", "closing", "coverage",  # of files and captures, their notices and their ends
    "evidence", "title", "text",  # sentences name captures and frames
    "network_round_trip_ms",  # of a handshake that is cut
}  # fmt: skip

Parts = list[bytes]
Way = Callable[[bytes, list[int], random.Random], Parts]


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


def _some(quiet: list[int], draw: random.Random) -> list[int]:
    return sorted(draw.sample(quiet, min(CUTS, len(quiet))))


def _cut(data: bytes, quiet: list[int], draw: random.Random) -> Parts:
    return parts(data, _some(quiet, draw))


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
    "order": _order,
    "connections": _connections,
    "both": _both,
    "rotations": None,
}


def told(lake: Path, folder: Path) -> Any:
    """What the report of a lake says, but for places."""
    report = reported(lake, folder, rules=SOME_RULES, tell=lambda _: None)
    return without(report)


def without(value: Any) -> Any:
    """A report, or a part of one, without what a split may change."""
    if isinstance(value, dict):
        left_out = PLACES | LOST
        return {name: without(each) for name, each in value.items() if name not in left_out}
    if not isinstance(value, list):
        return value
    rows = [without(each) for each in value]
    # What is alike in a list stands in the order of its places.
    is_table = all(isinstance(row, dict) for row in rows)
    return sorted(rows, key=partial(json.dumps, sort_keys=True)) if is_table else rows


def split(name: str, way: str, seed: int, folder: Path) -> list[str]:
    """Where the report of a sample that is split differs from that of the whole."""
    data = read(name)
    base = Path(name).name.partition(".")[0]
    land(data, base, folder / "whole", folder)
    made = WAYS[way]
    if made is None:
        _rotated(data, folder, seed)
    else:
        quiet = quiet_places(data, folder / "whole")
        for number, part in enumerate(made(data, quiet, random.Random(seed))):
            land(part, f"{base}-part{number}", folder / "split", folder)
    whole = told(folder / "whole", folder / "whole-report")
    return differences(whole, told(folder / "split", folder / "split-report"))


def _rotated(data: bytes, folder: Path, seed: int) -> None:
    """Let a tap land a capture in rotations of about a third of it."""
    (folder / "replayed.pcap").write_bytes(data)
    size = len(data) // 3 + seed
    command = ["tap", "--replay", str(folder / "replayed.pcap"), "--lake", str(folder / "split")]
    assert run([*command, "--rotate", f"{size}B", "--no-findings", "-q"]) == 0


def can_be(way: str, name: str) -> bool:
    """Whether a sample can be split so: clients are told by ports, behind Ethernet headers. What
    two taps see of Cursus has nothing to put it together by, neither checksums nor ids."""
    is_of_cursus = name.startswith("../cursus")
    by_clients = way in ("connections", "both")
    return not by_clients or (not is_of_cursus and read(name)[20] == ETHERNET)


def samples() -> list[str]:
    """The samples of Pulsar's and of Cursus' brokers, as `read` names them."""
    folders = (SAMPLES, SAMPLES.parent / "cursus")
    return [
        path.name if folder == SAMPLES else f"../cursus/{path.name}"
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.name.endswith((".pcap", ".pcap.gz"))
    ]


def main() -> int:
    """Split captures in all ways, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("capture", nargs="*", help="names of samples; all if none is given")
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    count = 0
    for name in asked.capture or samples():
        for way in asked.way or WAYS:
            if not can_be(way, name):
                continue
            with tempfile.TemporaryDirectory() as folder:
                found = split(name, way, asked.seed, Path(folder))
            count += bool(found)
            print(f"{name} {way}: {len(found) or 'no'} differences", flush=True)
            for text in found:
                print(f"  {text}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
