"""What an engine wrote is found, whether it is one file or many."""

from pathlib import Path

from dissector.queries.written import written


def test_one_file_many_files_and_none(tmp_path: Path) -> None:
    (tmp_path / "one.parquet").touch()
    (tmp_path / "many").mkdir()
    for name in ("b.parquet", "a.parquet", "_SUCCESS"):
        (tmp_path / "many" / name).touch()
    assert written(tmp_path, "one") == [str(tmp_path / "one.parquet")]
    names = ("a.parquet", "b.parquet")
    assert written(tmp_path, "many") == [str(tmp_path / "many" / name) for name in names]
    assert written(tmp_path, "none") == []
