"""Parquet options and the file that hashes what is written to it."""

import hashlib
from pathlib import Path

import pytest

from dissector.lake.parquet import HashingFile, writer_options
from dissector.schemas import TABLES


def test_hashing_file_knows_size_and_digest(tmp_path: Path) -> None:
    file = HashingFile(tmp_path / "x")
    assert file.write(b"abc") == 3 and file.write(memoryview(b"defg")) == 4
    assert file.tell() == file.size == 7
    file.close()
    file.close()
    assert (tmp_path / "x").read_bytes() == b"abcdefg"
    assert file.sha256() == hashlib.sha256(b"abcdefg").hexdigest()
    with pytest.raises(FileExistsError):
        HashingFile(tmp_path / "x")


@pytest.mark.parametrize("table", list(TABLES))
def test_every_column_is_either_coded_delta_packed_or_plain(table: str) -> None:
    options = writer_options(table)
    delta = {name.split(".")[0] for name in options["column_encoding"]}
    coded = set(options["use_dictionary"])
    assert not delta & coded
    for column in TABLES[table].columns:
        assert (column.name in coded) == (column.type == "string" and column.repeats)
        whole = column.type in ("bigint", "timestamp[us, UTC]", "array<bigint>")
        assert (column.name in delta) == whole
