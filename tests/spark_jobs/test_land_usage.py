"""Landing on a cluster: what is refused before Spark starts."""

from pathlib import Path

import pytest

from spark_jobs import land
from tests.dissector.spark import hide_spark


@pytest.mark.parametrize("arguments", [["-"], ["x.pcap", "--strict"]])
def test_what_a_cluster_cannot_do_is_refused(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert land.main([*arguments, "--lake", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_without_spark_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide_spark(monkeypatch)
    assert land.main(["x.pcap", "--lake", str(tmp_path)]) == 5
    assert "is missing: pip install" in capsys.readouterr().err
