"""The page about hard cases and the tests name the same cases."""

import re
from pathlib import Path

from tests.hard.cases import all_cases

ROOT = Path(__file__).resolve().parents[2]
IDS = {f"B{number:02}" for number in range(1, 63)}
ROW = re.compile(r"^\| (B\d\d) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, ...]]:
    page = (ROOT / "docs" / "hard-captures.md").read_text("utf-8")
    return {found[0]: found[1:] for found in ROW.findall(page)}


def names_of_tests() -> set[str]:
    """Names of the tests about a case, anywhere among the tests."""
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    return {name for text in texts for name in re.findall(r"^def (test_b\d\d_\w+)\(", text, re.M)}


def test_each_case_has_a_row_whose_tests_exist() -> None:
    found = names_of_tests()
    for id, (*_, tests, _seen) in rows().items():
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, f"{id}: no test is named"
        assert set(named) <= found, f"{id}: {set(named) - found}"
        assert all(name.startswith(f"test_{id.lower()}_") for name in named), id


def test_each_capture_has_a_test() -> None:
    tests = names_of_tests()
    for case in all_cases():
        assert any(name.startswith(f"test_{case.id.lower()}_") for name in tests), case.file_name


def test_no_case_has_two_rows() -> None:
    page = (ROOT / "docs" / "hard-captures.md").read_text("utf-8")
    listed = [found[0] for found in ROW.findall(page)]
    assert len(listed) == len(set(listed)) and set(listed) <= IDS
