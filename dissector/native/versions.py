"""Reads versions of installed distributions from the names of their folders.

`importlib.metadata` imports parsers of mail headers, which costs a twentieth of a short run. A
standard for all installers defines the folder's name by the distribution's name and version.
"""

import os
import sys
from functools import cache
from typing import Final

_SUFFIX: Final = ".dist-info"


@cache
def version(distribution: str) -> str:
    """Return the version of a distribution.

    Raises:
        importlib.metadata.PackageNotFoundError: it is not installed.
    """
    begin = distribution.replace("-", "_") + "-"
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:  # a zip archive, or missing
            continue
        for name in names:
            if name.startswith(begin) and name.endswith(_SUFFIX):
                return name[len(begin) : -len(_SUFFIX)]
    from importlib import metadata

    return metadata.version(distribution)
