"""One target under a fuzzer that follows coverage: python -m tests.fuzz.guided TARGET [OPTIONS].

The options are libFuzzer's: folders of inputs, -max_total_time, -artifact_prefix. Kernels run as
plain Python here, since compiled code tells nothing of its branches.
"""

import os
import sys

os.environ["NUMBA_DISABLE_JIT"] = "1"

import atheris

with atheris.instrument_imports(include=["dissector"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz until time is over or an input fails."""
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
