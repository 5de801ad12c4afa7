"""The archive for workers: what is in it, and that it is written whole or not at all."""

import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.errors import OutputError
from dissector.jit import program_digest
from dissector.native.code import code_folder, keep_file, keep_list
from spark_jobs import archive


def test_what_tasks_need_is_found_at_any_depth() -> None:
    found = archive.needed()
    assert {"numpy", "numba", "llvmlite", "pyarrow", "click"} <= set(found)
    assert {"obstore", "hdfs-native", "cryptography"} <= set(found), "they read stores, and TLS"
    assert not {"pyspark", "pytest", "pulsar-dissector", "boto3"} & set(found)


def test_it_holds_program_libraries_and_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "needed", lambda: ["click"])
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path / "cache"))
    for name in ("read-1", "read-0ld"):
        keep_file(code_folder() / f"{name}.kernel", b"code")
    keep_list(program_digest(), ["read-1"])
    output = tmp_path / "small.tar.gz"
    assert archive.main(["-o", str(output)]) == 0
    with tarfile.open(output) as tar:
        names = [entry.name for entry in tar if entry.isfile()]
        modes = {entry.mode for entry in tar if entry.name.startswith("kernels") and entry.isdir()}
    assert modes == {0o755}
    needed = {"lib/dissector/jit.py", "lib/spark_jobs/land.py", "lib/click/core.py"}
    assert needed <= set(names)
    assert any(name.endswith("dist-info/METADATA") and "pulsar" in name for name in names)
    assert [name for name in names if name.startswith("kernels/")] == [
        f"kernels/{code_folder().name}/read-1.kernel",
        f"kernels/{code_folder().name}/{program_digest()}.list",
    ]
    assert not any("__pycache__" in name for name in names)
    assert list(tmp_path.glob(".*")) == []


def test_an_archive_without_kernels_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archive, "needed", list)
    monkeypatch.setattr(archive, "PACKAGES", ("spark_jobs",))
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path / "cache"))
    assert archive.main(["-o", str(tmp_path / "cold.tar")]) == 0
    assert "doctor --warm" in capsys.readouterr().err
    keep_file(code_folder() / "read-1.kernel", b"code")
    keep_list(program_digest(), ["read-1"])
    assert archive.main(["-o", str(tmp_path / "warm.tar")]) == 0
    assert capsys.readouterr().err == ""


def test_a_place_that_cannot_be_written_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert archive.main(["-o", str(tmp_path / "none" / "a.tar")]) == OutputError.exit_code
    assert "cannot write" in capsys.readouterr().err


def test_settings_point_into_the_unpacked_archive() -> None:
    found = archive.settings_of(Path("/a/b.tar"))
    assert found["spark.archives"] == "file:///a/b.tar#dissector-archive"
    assert found["spark.executorEnv.PYTHONPATH"] == "dissector-archive/lib"
    assert archive.settings_of(None) == {}
