"""Over several processes the suite shares what is costly: once there were two sessions of Spark."""

import pytest

from tests.grouping import GROUPS, LONGEST, ROOT, SHARING, group_of, place_of


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("tests/spark_jobs/test_jobs.py", "spark"),
        ("tests/dissector/lake/test_skipping.py", "spark"),
        ("tests/spark_jobs/test_archive.py", "tests/spark_jobs/test_archive.py"),
        ("tests/dissector/tap/test_live.py", "tap"),
        ("tests/dashboards/test_dashboards.py", "tap"),
        ("tests/dissector/test_same_rows.py", "rows"),
        ("tests/dissector/findings/test_totals.py", "rows"),
        ("tests/dissector/report/test_pipeline.py", "apart"),
        ("tests/test_tidy.py", "tests/test_tidy.py"),
    ],
)
def test_files_that_share_something_are_one_group(file: str, group: str) -> None:
    assert group_of(file) == group


def test_the_longest_groups_begin_first() -> None:
    assert all((ROOT / file).is_file() for file in GROUPS)
    names = [name for name in LONGEST if name not in ("spark", "tap", *SHARING)]
    tests = [f"{name}::test_it" for name in names]
    assert all((ROOT / test.partition("::")[0]).is_file() for test in tests)
    assert [place_of(test) for test in tests] == sorted(map(place_of, tests))
    assert place_of("tests/dissector/tap/test_live.py::test_it[a::b]") == 0
    assert place_of("tests/test_grouping.py::test_it") == len(LONGEST)
