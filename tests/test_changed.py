"""What changed decides which kernels are run as plain Python; where nobody knows, it is all."""

import subprocess
from pathlib import Path

import pytest

from tests.changed import base_of, changed_files, chosen_tests

TESTS = ("tests/dissector/codecs", "tests/dissector/protocols", "tests/dissector/test_buckets.py",
         "tests/fuzz")  # fmt: skip


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (None, list(TESTS)),
        ([], []),
        (["docs/metrics.md", "dissector/report/numbers.py", "captures/README.md"], []),
        (["dissector/buckets.py"], ["tests/dissector/test_buckets.py"]),
        (["dissector/codecs/integers.py"], list(TESTS)),
        (["dissector/protocols/framing/splitting.py"], ["tests/dissector/protocols/framing"]),
        (["tests/fuzz/seeds.py"], ["tests/fuzz"]),
        (
            ["dissector/protocols/framing/state.py", "dissector/protocols/endings.py"],
            ["tests/dissector/protocols"],
        ),
    ],
)
def test_tests_of_what_changed(files: list[str] | None, found: list[str]) -> None:
    assert chosen_tests(files, TESTS) == found


def git(folder: Path, *arguments: str) -> None:
    name = ("-c", "user.name=n", "-c", "user.email=e@invalid")
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path, name: str) -> None:
    """A commit with one file more, and with those that lie about."""
    (folder / name).touch()
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", name)


def test_changes_are_those_of_the_branch_of_the_last_commit_and_not_committed(
    tmp_path: Path,
) -> None:
    assert changed_files(tmp_path) is None, "no repository"
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "one")
    assert base_of(tmp_path) is None and changed_files(tmp_path) is None, "nothing before it"
    commit(tmp_path, "two")
    (tmp_path / "three").touch()
    assert set(changed_files(tmp_path) or ()) == {"two", "three"}
    git(tmp_path, "checkout", "-qb", "branch")
    commit(tmp_path, "four")
    commit(tmp_path, "five")
    assert set(changed_files(tmp_path) or ()) == {"three", "four", "five"}
