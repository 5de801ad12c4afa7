"""Jobs where the default file system of the cluster is elsewhere, and paths that lead there."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from spark_jobs import archive, coverage, land
from tests.spark_jobs.conftest import Both, default_elsewhere


def test_a_report_is_made_where_the_default_file_system_is_elsewhere(
    spark: Any, both: Both
) -> None:
    """That of all the tests here: it equals the one of DuckDB."""
    with default_elsewhere(spark), pytest.raises(Exception, match=r"nowhere\.invalid"):
        spark.read.parquet(str(both.lake / "frames")).count()  # it is elsewhere indeed
    assert {"[", "%", " "} <= set(both.lake.name) and not both.lake.name.isascii()
    assert (both.spark / "report.json").exists()


@pytest.mark.parametrize(
    ("main", "given"),
    [
        (coverage.main, ["--lake", "ftp://h/lake", "-o", "x"]),
        (coverage.main, ["--lake", "lake", "-o", "s3a://b/x"]),
        (archive.main, ["-o", "s3a://b/x.tar"]),
        (land.main, ["night.pcap", "--lake", "ftp://b/lake"]),
        (land.main, ["night.pcap", "--lake", "lake", "--archive", "s3a://b/x.tar"]),
    ],
    ids=["a lake", "a report", "an archive", "the lake of land", "the archive of land"],
)
def test_a_job_refuses_an_address_in_one_line(
    main: Any, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(given) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "is an address" in said
    assert list(tmp_path.iterdir()) == []
