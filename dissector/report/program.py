"""The program's digest: cached results of a program with another digest are computed again."""

import hashlib
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from dissector.jit import program_digest
from dissector.native.versions import version

_PACKAGE_FOLDER: Final = Path(__file__).resolve().parent.parent
_OF_PYTHON: Final = (".py", ".pyc")  # files that `program_digest` covers
# Packages whose results are in a report.
_PACKAGES: Final = ("duckdb", "jinja2", "markupsafe", "matplotlib", "numpy", "pyarrow")


@cache
def program() -> str:
    """A digest of all files of this program, and the versions of Python and `_PACKAGES`."""
    digest = hashlib.sha256(f"{sys.version}\n{program_digest()}\n".encode())
    for name in _PACKAGES:
        with suppress(ModuleNotFoundError):  # of which PackageNotFoundError is one
            digest.update(f"{name} {version(name)}\n".encode())
    for path in sorted(_PACKAGE_FOLDER.rglob("*")):
        if path.suffix not in _OF_PYTHON and path.is_file():
            digest.update(f"{path.relative_to(_PACKAGE_FOLDER)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
