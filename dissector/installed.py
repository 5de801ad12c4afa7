"""The name and version under which this program is installed."""

from typing import Final

from dissector.native.versions import version

DISTRIBUTION: Final = "pulsar-dissector"


def own_version() -> str:
    """The version of the installed program.

    Raises:
        importlib.metadata.PackageNotFoundError: it is not installed as a package.
    """
    return version(DISTRIBUTION)
