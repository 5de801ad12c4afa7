"""The archive for workers: what is in it, and that it is written whole or not at all."""

import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.errors import OutputError
from spark_jobs import archive


def test_what_the_program_needs_is_found_at_any_depth_without_extras() -> None:
    found = archive.needed()
    assert {"numpy", "numba", "llvmlite", "pyarrow", "click"} <= set(found)
    assert not {"pyspark", "pytest", "pulsar-dissector"} & set(found)


def test_it_holds_program_libraries_and_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "needed", lambda: ["click"])
    kernels = tmp_path / "cache"
    digest = archive.module_digest("dissector.codecs.integers")
    for name in (f"dissector.codecs.integers-{digest}", "dissector.codecs.integers-0ld"):
        (kernels / name).mkdir(parents=True)
        (kernels / name / "read-1.kernel").write_bytes(b"code")
    monkeypatch.setenv("DISSECTOR_CACHE", str(kernels))
    output = tmp_path / "small.tar.gz"
    assert archive.main(["-o", str(output)]) == 0
    with tarfile.open(output) as tar:
        names = [entry.name for entry in tar if entry.isfile()]
        modes = {entry.mode for entry in tar if entry.name.startswith("kernels") and entry.isdir()}
    assert modes == {0o755}
    assert {"lib/dissector/dissection.py", "lib/spark_jobs/land.py", "lib/click/core.py"} <= set(
        names
    )
    assert any(name.endswith("dist-info/METADATA") and "pulsar" in name for name in names)
    assert [name for name in names if name.startswith("kernels/")] == [
        f"kernels/dissector.codecs.integers-{digest}/read-1.kernel"
    ]
    assert not any("__pycache__" in name for name in names)
    assert list(tmp_path.glob(".*")) == []


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
