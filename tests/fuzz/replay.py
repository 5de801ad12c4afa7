"""Inputs once more, and damaged copies of them, through compiled kernels.

python -m tests.fuzz.replay TARGET SECONDS FOUND FOLDER...

What failed before, in FOUND, and each file of the folders is run, then copies damaged at random,
other ones in each run, until the seconds are over. An input that fails is written to FOUND and
told; one that never ends or takes the interpreter with it is there, too. With
DISSECTOR_BOUNDSCHECK=1 kernels check every index.
"""

import faulthandler
import hashlib
import itertools
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.fuzz.targets import TARGETS
from tests.hard.scratches import scratched

PATIENCE_SECONDS = 900  # for one input, the compiling of kernels included
LONGEST = 1 << 14


def mutated(inputs: list[bytes], first: int = 0) -> Iterator[bytes]:
    """Damaged copies without end. first: the seed of the first one."""
    for seed in itertools.count(first):
        data = inputs[seed % len(inputs)]
        if seed % 3 == 2:
            data += inputs[(seed * 7 + 1) % len(inputs)]
        yield scratched(data[:LONGEST], seed, most=6)


def run(name: str, inputs: Iterable[bytes], failures: Path, until: float) -> int:
    """Run a target over inputs; returns how many failed."""
    target = TARGETS[name]
    failed = 0
    running = failures / f"{name}-running"
    for data in inputs:
        running.write_bytes(data)
        faulthandler.dump_traceback_later(PATIENCE_SECONDS, exit=True)
        try:
            target(data)
        except Exception:
            failed += 1
            path = failures / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"{path}: {traceback.format_exc(limit=-4)}", flush=True)
        if time.monotonic() > until:
            break
    faulthandler.cancel_dump_traceback_later()
    running.unlink(missing_ok=True)
    return failed


def main(name: str, seconds: str, failures: str, *folders: str) -> int:
    """Run everything; returns the exit code."""
    failed_before = Path(failures).glob(f"{name}-*")
    given = (path for folder in folders for path in Path(folder).glob("*") if path.is_file())
    files = [*sorted(failed_before), *sorted(given)]
    inputs = [path.read_bytes() for path in files]
    until = time.monotonic() + float(seconds)
    failed = run(name, inputs, Path(failures), float("inf"))
    count, first = 0, time.time_ns() >> 20

    def counted() -> Iterator[bytes]:
        nonlocal count
        for data in mutated(inputs, first):
            count += 1
            yield data

    failed += run(name, counted(), Path(failures), until)
    copies = f"{count} damaged copies from seed {first} on"
    print(f"{name}: {len(inputs)} inputs and {copies}, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
