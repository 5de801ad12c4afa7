"""Make a capture: python -m tests.busy FRAMES FILE [--connections N] [--rows N] [--bytes N]."""

import argparse
import json
import time
from pathlib import Path

from tests.busy.traffic import Size, write_capture


def main() -> None:
    """The command line; prints what was sent, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frames", type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--connections", type=int, default=0, help="that come and go")
    parser.add_argument("--rows", type=int, help="deliveries of the consumer that has most")
    parser.add_argument("--bytes", type=int, default=100, help="of a message")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    begun = time.perf_counter()
    size = Size(chosen.frames, chosen.connections, chosen.rows, (chosen.bytes,) * 4)
    counts = write_capture(chosen.file, size, chosen.seed)
    seconds = round(time.perf_counter() - begun, 2)
    print(json.dumps(dict(sorted(counts.items())) | {"seconds": seconds}))


if __name__ == "__main__":
    main()
