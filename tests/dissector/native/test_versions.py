"""Versions of distributions, as the standard library finds them."""

import subprocess
import sys
from importlib import metadata

import pytest

from dissector.native.versions import version


@pytest.mark.parametrize("name", ["pulsar-dissector", "numba", "llvmlite", "zstandard", "click"])
def test_it_is_what_the_standard_library_says(name):
    assert version(name) == metadata.version(name)


def test_what_is_not_installed_has_none():
    with pytest.raises(metadata.PackageNotFoundError):
        version("no-such-distribution")


def test_a_folder_without_version_is_left_to_the_standard_library(tmp_path, monkeypatch):
    (tmp_path / "odd-thing.egg-info").mkdir()
    (tmp_path / "odd_thing.egg-info").mkdir()
    (tmp_path / "odd_thing.egg-info" / "PKG-INFO").write_text("Name: odd-thing\nVersion: 7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "missing")])
    assert version("odd-thing") == "7"


def test_no_parser_of_mail_is_imported():
    text = "import sys; from dissector.native.versions import version; version('numba')"
    code = f"{text}; print('email' in sys.modules, 'importlib.metadata' in sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout.split() == ["False", "False"]
