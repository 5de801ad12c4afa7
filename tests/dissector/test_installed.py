"""The version that the program names as its own."""

from importlib import metadata

from dissector.installed import DISTRIBUTION, own_version


def test_it_is_the_one_that_pip_installed() -> None:
    assert own_version() == metadata.version(DISTRIBUTION)
