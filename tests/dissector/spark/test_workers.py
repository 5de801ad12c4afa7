"""What differs where tasks run on other machines than the driver."""

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.errors import DependencyError, InputError, OutputError
from dissector.lake.mirror import BASE
from dissector.spark.workers import Workers


def chosen() -> str | None:
    return os.environ.get(BASE)


@pytest.mark.parametrize("own", [None, "", "/chosen"])
def test_copies_lie_where_spark_has_room_unless_the_machine_says_where(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch/a,/scratch/b")
    monkeypatch.setenv(BASE, own or "")
    if own is None:
        monkeypatch.delenv(BASE)
    assert Workers(is_here=True).run(chosen) == own
    assert Workers(is_here=False).run(chosen) == (own or "/scratch/a")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "")
    monkeypatch.setenv(BASE, "")
    assert Workers(is_here=False).run(chosen) == ""


def test_a_folder_that_a_worker_does_not_see_is_said(tmp_path: Path) -> None:
    assert Workers(is_here=False, folder=str(tmp_path)).run(chosen) is None
    found = Workers(is_here=False, folder=str(tmp_path / "none")).run(chosen)
    assert isinstance(found, OutputError)
    assert "none is not there" in str(found) and str(found).startswith("worker ")


@pytest.mark.parametrize("kind", [InputError, OutputError, DependencyError])
def test_what_a_task_raises_is_given_back(kind: type[InputError]) -> None:
    def task() -> None:
        raise kind("no such file")

    for is_here, said in ((True, "no such file"), (False, ": no such file")):
        found = Workers(is_here).run(task)
        assert type(found) is kind and str(found).endswith(said)
    assert str(found).startswith("worker ")
