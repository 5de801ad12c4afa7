"""Fuzz every target: python -m tests.fuzz MINUTES [TARGET...], the way of `make fuzz`.

Each target gets an equal share of the time: most of it under a fuzzer that follows coverage, the
rest for what that found, what failed before, and damaged copies, other ones in each run, through
compiled kernels with bounds checks. Inputs are kept in build/fuzz/TARGET from one run to the next,
failures in build/fuzz/found: one that is mended becomes a file of corpus/TARGET. Without the fuzzer
(`pip install -e '.[fuzz]'`) all of the time goes to damaged copies.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.seeds import seeds, unload_seeds

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz"
CORPUS = Path(__file__).parent / "corpus"
GUIDED_SHARE = 0.6
TARGETS = ("files", "packets", "streams", "frames", "fields", "dissection")
LIMITS = ("-timeout=120", "-rss_limit_mb=4096", "-max_len=6000", "-print_final_stats=1",
          "-report_slow_units=120")  # fmt: skip


def has_fuzzer() -> bool:
    """Whether the fuzzer is installed."""
    return importlib.util.find_spec("atheris") is not None


def prepare(target: str) -> list[str]:
    """The folders of a target's inputs: the one that grows, then the project's own."""
    here = FOLDER / target
    here.mkdir(parents=True, exist_ok=True)
    inputs = seeds()[target] | (unload_seeds() if target == "dissection" else {})
    for name, data in inputs.items():
        (here / f"seed-{name}").write_bytes(data)
    folders = [str(here)]
    if (CORPUS / target).is_dir():
        folders.append(str(CORPUS / target))
    return folders


def fuzz(target: str, seconds: float) -> bool:
    """Fuzz one target; returns whether nothing failed."""
    folders = prepare(target)
    failures = FOLDER / "found"
    failures.mkdir(exist_ok=True)
    is_good = True
    left = seconds
    if has_fuzzer():
        guided = seconds * GUIDED_SHARE
        left -= guided
        options = [f"-max_total_time={int(guided)}", f"-artifact_prefix={failures}/{target}-"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", target, *LIMITS, *options, *folders],
            cwd=ROOT, capture_output=True, text=True, errors="replace",
        )  # fmt: skip
        lines = done.stderr.splitlines()
        shown = [line for line in lines if line.startswith(("stat::number_of", "artifact_prefix"))]
        covered = [line for line in lines if " cov: " in line][-1:]
        print(f"{target}:", *shown, *covered, flush=True)
        if done.returncode:
            is_good = False
            print("\n".join(lines[-60:]), flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.replay", target, str(left), str(failures), *folders],
        cwd=ROOT, env={**os.environ, "DISSECTOR_BOUNDSCHECK": "1"},
    )  # fmt: skip
    return is_good and done.returncode == 0


def main(minutes: str, *targets: str) -> int:
    """Fuzz all targets, or some; returns the exit code."""
    chosen = targets or TARGETS
    seconds = float(minutes) * 60 / len(chosen)
    good = [fuzz(target, seconds) for target in chosen]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
