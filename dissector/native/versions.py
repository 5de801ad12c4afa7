"""Versions of installed distributions by the names of their folders.

`importlib.metadata` imports parsers of mail headers first, which takes a twentieth of the time of a
short run. That name and version make the name of the folder is a standard for all installers.
"""

import os
import sys
from functools import cache
from typing import Final

_SUFFIX: Final = ".dist-info"


@cache
def version(distribution: str) -> str:
    """The version of a distribution.

    Raises:
        importlib.metadata.PackageNotFoundError: it is not installed.
    """
    begin = distribution.replace("-", "_") + "-"
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:  # a zip archive, or no longer there
            continue
        for name in names:
            if name.startswith(begin) and name.endswith(_SUFFIX):
                return name[len(begin) : -len(_SUFFIX)]
    from importlib import metadata

    return metadata.version(distribution)
