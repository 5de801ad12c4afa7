"""Landing on a cluster: what is refused before Spark starts. The rest: tests/spark_jobs."""

from pathlib import Path

import pytest

from dissector.cli import cluster
from dissector.errors import DependencyError


@pytest.mark.parametrize("arguments", [["-"], ["x.pcap", "--strict"]])
def test_what_a_cluster_cannot_do_is_refused(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.main([*arguments, "--lake", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_without_spark_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "spark_jobs.land", None)
    with pytest.raises(DependencyError, match="pip install"):
        cluster._job()
