"""Which tests of kernels to run without the compiler: those of modules that changed.

    python -m tests.changed PATH...

It prints those of the given tests (folders and files) that have to do with a change: of the branch
against the main one, on that one of the last commit, and what is not committed. Where nobody can
say what changed, it prints all of them.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
MAIN = ("origin/main", "main")
# What kernels are made with: any of them may behave otherwise.
SHARED = ("dissector/jit.py", "dissector/limits.py", "dissector/codecs", "dissector/native")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def base_of(root: Path = ROOT) -> str | None:
    """The commit that changes are counted from; None where there is none."""
    head = _git(root, "rev-parse", "HEAD")
    for name in MAIN:
        base = _git(root, "merge-base", "HEAD", name)
        if base and base != head:
            return base
    return _git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")


def changed_files(root: Path = ROOT) -> list[str] | None:
    """Files that changed, and new ones, by their path from the root; None where nobody knows."""
    base = base_of(root)
    if base is None:
        return None
    changed = _git(root, "diff", "--name-only", "--no-renames", base)
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    if changed is None or new is None:
        return None
    return [*changed.splitlines(), *new.splitlines()]


def chosen_tests(files: Iterable[str] | None, tests: Sequence[str]) -> list[str]:
    """Those of the tests that have to do with changed files: the folder that mirrors theirs, and
    its own file where a module stands by itself."""
    if files is None:
        return list(tests)
    found: set[str] = set()
    for file in map(PurePosixPath, files):
        if file.suffix != ".py" or file.parts[0] not in ("dissector", "tests"):
            continue
        if any(file.is_relative_to(name) for name in SHARED):
            return list(tests)
        is_code = file.parts[0] == "dissector"
        place = PurePosixPath("tests", file.parent, f"test_{file.name}") if is_code else file
        for test in tests:
            if place.is_relative_to(test):
                folder = place.parent
                found.add(test if place == PurePosixPath(test) else str(folder))
    # What one folder holds is not named again.
    return sorted(
        one
        for one in found
        if not any(one != other and PurePosixPath(one).is_relative_to(other) for other in found)
    )


def main(tests: Sequence[str]) -> None:
    there = (test for test in chosen_tests(changed_files(), tests) if (ROOT / test).exists())
    print(" ".join(there))


if __name__ == "__main__":
    main(sys.argv[1:])
