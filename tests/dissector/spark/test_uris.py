"""Paths are of files here, whatever the default of a cluster is and folders are called."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.spark import uris


def test_paths_are_of_files_here() -> None:
    assert uris.to_write("/a b/c%d") == "file:///a b/c%d"
    assert uris.to_send("/a b/\u591c") == "file:///a%20b/%E5%A4%9C"
    assert uris.to_write("x") == f"file://{Path.cwd()}/x"
